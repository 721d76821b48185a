"""`MANGO_SANDBOX=opensandbox mangod` on the real lifecycle server, and behind a proxy that fails: container_services.py."""
import unittest

from rig import enter_engine, give_up, has_bridge, prepared, under_engine

under_engine(__file__)
import osb  # noqa: E402
from container_services import OfService  # noqa: E402
from harness import main  # noqa: E402

if not has_bridge():
    give_up("this Engine has no bridge: each sandbox needs a network of its own")
PYTHON, PROGRAM = prepared(osb.prepare)
enter_engine()


class OpenSandbox(OfService, unittest.TestCase):
    name, key = "opensandbox", osb.KEY

    @staticmethod
    def make():
        return osb.OpenSandbox(PYTHON, PROGRAM)

    @staticmethod
    def through(proxy):
        return {"OPEN_SANDBOX_DOMAIN": f"127.0.0.1:{proxy.own}", "OPEN_SANDBOX_USE_SERVER_PROXY": "true"}


if __name__ == "__main__":
    main()
