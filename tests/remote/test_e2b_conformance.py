"""`mango conformance e2b` against the peer of envd_rig.py."""
import subprocess
import unittest

import envd_rig
from harness import main

envd_rig.need_namespaces()


class Conformance(unittest.TestCase):
    def test_the_official_sdk_understands_the_peer(self):
        folder = envd_rig.scripts()
        with envd_rig.Peer("e2b", folder) as peer:
            done = subprocess.run(["node", "e2b_sdk_check.mjs", peer.control, peer.data, peer.key], cwd=folder, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(peer.sandboxes(), [])

    def test_the_suite_passes_and_leaves_nothing(self):
        envd_rig.run_suite(self, "e2b")


if __name__ == "__main__":
    main()
