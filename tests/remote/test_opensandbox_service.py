"""`MANGO_SANDBOX=opensandbox mangod` on the real lifecycle server, and behind a proxy that fails: container_services.py."""
import unittest

from container_services import OfService, ready
from harness import main

(MAKE,) = ready(__file__, "opensandbox")


class OpenSandbox(OfService, unittest.TestCase):
    name, make = "opensandbox", staticmethod(MAKE)


if __name__ == "__main__":
    main()
