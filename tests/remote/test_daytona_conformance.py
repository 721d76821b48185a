"""`mango conformance daytona` on stand-ins of control plane and toolbox, on a real Engine."""
import os
import subprocess
import unittest

from rig import BUILD, enter_engine, prepared, sdk, under_engine

under_engine(__file__)
import dtn  # noqa: E402
from harness import main, wait_for  # noqa: E402

PROGRAM = prepared(dtn.prepare)
CLIENT = prepared(lambda: sdk("daytona"))
enter_engine()


class Conformance(unittest.TestCase):
    def test_the_official_client_understands_the_stand_ins(self):
        with dtn.Daytona(PROGRAM) as service:
            argv = ["node", "daytona_sdk_check.mjs", service.env["DAYTONA_API_URL"], dtn.KEY, service.env["DAYTONA_IMAGE"]]
            done = subprocess.run(argv, cwd=CLIENT, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            wait_for("nothing to be left", lambda: service.left() == [], 30, 0.2)

    def test_the_suite_passes_and_leaves_nothing(self):
        with dtn.Daytona(PROGRAM) as service:
            done = subprocess.run(
                [os.path.join(BUILD, "mango"), "conformance", "daytona", "--live"],
                env={**os.environ, **service.env, "MANGO_LIVE_DAYTONA": "local", "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable")},
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
