"""`mango conformance cube` against the peer of envd_rig.py."""
import unittest

import envd_rig
from harness import main

envd_rig.need_namespaces()


class Conformance(unittest.TestCase):
    def test_the_suite_passes_and_leaves_nothing(self):
        envd_rig.run_suite(self, "cube")


if __name__ == "__main__":
    main()
