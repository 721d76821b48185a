"""`MANGO_SANDBOX=daytona mangod` on stand-ins of the service, and behind a proxy that fails: container_services.py."""
import unittest

from rig import enter_engine, prepared, under_engine

under_engine(__file__)
import dtn  # noqa: E402
from container_services import OfService  # noqa: E402
from harness import main  # noqa: E402

PROGRAM = prepared(dtn.prepare)
enter_engine()


class Daytona(OfService, unittest.TestCase):
    name, key = "daytona", dtn.KEY

    @staticmethod
    def make():
        return dtn.Daytona(PROGRAM)

    @staticmethod
    def through(proxy):
        return {"DAYTONA_API_URL": f"http://127.0.0.1:{proxy.own}/api"}


if __name__ == "__main__":
    main()
