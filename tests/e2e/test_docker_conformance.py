"""`mango conformance docker` on a real Engine, which tests/support/docker-run starts."""
import os
import subprocess
import unittest

from docker_rig import under_engine
from harness import BUILD, main

under_engine(__file__)


# Of the suite without mango-box, where a command costs a hundred times as much. MANGO_TEST_CONFORMANCE_ALL=1: all of it, in 3 minutes.
WITHOUT_BOX = ("by_signal", "unchanged", "interleaved", "middle_kills_everything", "ranges", "planted", "until_it_is_closed", "out_and_in")


class Conformance(unittest.TestCase):
    def run_suite(self, *words, **env):
        done = subprocess.run(
            [os.path.join(BUILD, "mango"), "conformance", "docker", "--live", *words],
            env={**os.environ, "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable"), **env},
            capture_output=True,
            text=True,
            timeout=560,
        )
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(" 0 failed", done.stdout)
        self.assertNotIn("add --live", done.stdout)
        self.assertNotIn("# 0 run", done.stdout, "a word of --only that is no case's")
        for kind in (["ps", "-a"], ["volume", "ls"]):
            left = subprocess.run(["docker", *kind, "-q", "--filter", "label=io.mango.label"], check=True, capture_output=True, text=True)
            self.assertEqual(left.stdout, "")

    def test_the_suite_passes_and_leaves_nothing(self):
        self.run_suite()

    def test_it_passes_without_mango_box_too(self):
        if os.environ.get("MANGO_TEST_CONFORMANCE_ALL"):
            self.run_suite(MANGO_DOCKER_RUNNER="exec")
            return
        for word in WITHOUT_BOX:
            with self.subTest(word):
                self.run_suite("--only", word, MANGO_DOCKER_RUNNER="exec")


if __name__ == "__main__":
    main()
