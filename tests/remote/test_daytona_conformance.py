"""`mango conformance daytona` on stand-ins of control plane and toolbox, on a real Engine."""
import unittest

from container_services import Conformance, ready
from harness import main

(MAKE,) = ready(__file__, "daytona", client=True)


class Daytona(Conformance, unittest.TestCase):
    name, make = "daytona", staticmethod(MAKE)


if __name__ == "__main__":
    main()
