"""`mango conformance opensandbox` on the real lifecycle server, on a real Engine."""
import os
import subprocess
import unittest

from rig import BUILD, enter_engine, give_up, has_bridge, prepared, sdk, under_engine

under_engine(__file__)
import osb  # noqa: E402
from harness import main  # noqa: E402

if not has_bridge():
    give_up("this Engine has no bridge: each sandbox needs a network of its own")
PYTHON, PROGRAM = prepared(osb.prepare)
CLIENT = prepared(lambda: sdk("opensandbox"))
enter_engine()


class Conformance(unittest.TestCase):
    def test_the_official_client_understands_execd(self):
        with osb.OpenSandbox(PYTHON, PROGRAM) as service:
            argv = ["node", "opensandbox_sdk_check.mjs", service.env["OPEN_SANDBOX_DOMAIN"], osb.KEY, service.env["OPEN_SANDBOX_IMAGE"], "no"]
            done = subprocess.run(argv, cwd=CLIENT, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(service.left(), [])

    def test_the_suite_passes_and_leaves_nothing(self):
        with osb.OpenSandbox(PYTHON, PROGRAM) as service:
            done = subprocess.run(
                [os.path.join(BUILD, "mango"), "conformance", "opensandbox", "--live"],
                env={**os.environ, **service.env, "MANGO_LIVE_OPENSANDBOX": "local", "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable")},
                capture_output=True,
                text=True,
                timeout=900,
            )
            print(done.stdout)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(" 0 failed", done.stdout)
            self.assertNotIn("add --live", done.stdout)
            self.assertEqual(service.left(), [])


if __name__ == "__main__":
    main()
