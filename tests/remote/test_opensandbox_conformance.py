"""`mango conformance opensandbox` on the real lifecycle server, on a real Engine."""
import unittest

from container_services import Conformance, ready
from harness import main

(MAKE,) = ready(__file__, "opensandbox", client=True)


class OpenSandbox(Conformance, unittest.TestCase):
    name, make = "opensandbox", staticmethod(MAKE)


if __name__ == "__main__":
    main()
