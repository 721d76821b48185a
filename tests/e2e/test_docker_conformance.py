"""`mango conformance docker` on a real Engine, which tests/support/docker-run starts."""
import os
import subprocess
import sys
import unittest

from docker_rig import under_engine
from harness import BUILD, SRC, main

under_engine(__file__)


class Conformance(unittest.TestCase):
    def test_the_suite_passes_and_leaves_nothing(self):
        done = subprocess.run(
            [os.path.join(BUILD, "mango"), "conformance", "docker", "--live"],
            env={**os.environ, "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable")},
            capture_output=True,
            text=True,
            timeout=560,
        )
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(" 0 failed", done.stdout)
        self.assertNotIn("add --live", done.stdout)
        for kind in (["ps", "-a"], ["volume", "ls"]):
            left = subprocess.run(["docker", *kind, "-q", "--filter", "label=io.mango.label"], check=True, capture_output=True, text=True)
            self.assertEqual(left.stdout, "")


if __name__ == "__main__":
    main()
