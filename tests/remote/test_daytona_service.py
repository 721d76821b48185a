"""`MANGO_SANDBOX=daytona mangod` on stand-ins of the service, and behind a proxy that fails: container_services.py."""
import unittest

from container_services import OfService, ready
from harness import main

(MAKE,) = ready(__file__, "daytona")


class Daytona(OfService, unittest.TestCase):
    name, make = "daytona", staticmethod(MAKE)


if __name__ == "__main__":
    main()
