"""The sandbox `docker` on a real Engine, which tests/support/docker-run starts."""
import os
import subprocess
import sys
import unittest

from harness import BUILD, SRC, main

if not os.environ.get("MANGO_TEST_DOCKER"):
    run = os.path.join(SRC, "tests", "support", "docker-run")
    os.execv(run, [run, sys.executable, os.path.abspath(__file__), *sys.argv[1:]])

PLUGINS = {"MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable")}


def docker(*words):
    """What the Engine's own command line says: the witness, beside what is tested."""
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True, timeout=60).stdout.split()


def left():
    """Names of containers and volumes of sandboxes."""
    return docker("ps", "-a", "--filter", "label=io.mango.label", "--format", "{{.Names}}") + docker(
        "volume", "ls", "--filter", "label=io.mango.label", "--format", "{{.Name}}"
    )


def conformance(*options, env=None):
    return subprocess.run(
        [os.path.join(BUILD, "mango"), "conformance", "docker", *options],
        env={**os.environ, **PLUGINS, **(env or {})},
        capture_output=True,
        text=True,
        timeout=500,
    )


class Conformance(unittest.TestCase):
    def test_the_suite_passes_and_leaves_nothing(self):
        done = conformance()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("ok 1 - core/", done.stdout)
        self.assertEqual(left(), [])


if __name__ == "__main__":
    main()
