#!/usr/bin/env python3
"""What mangod gives to its plugins: the settings are checked at startup, and the counters are in /metrics."""
import unittest

import harness
from harness import Mangod
from rig import metrics


class PluginServices(unittest.TestCase):
    def test_bad_settings_stop_the_startup_by_name(self):
        for name, value in (("MANGO_EGRESS_NETWORKS", "10.0.0.0/33"), ("MANGO_PLUGIN_PROXY", "::::")):
            with self.assertRaisesRegex(AssertionError, f"mangod ended with status 78(?s:.*){name}"):
                with Mangod(env={name: value}):
                    pass

    def test_the_proxy_and_the_calls_into_plugins_are_counted(self):
        with Mangod() as m:
            seen = metrics(m.client)
            self.assertEqual(seen["mango_egress_doors"], 0)
            self.assertEqual(seen["mango_egress_connections"], 0)
            _, _, text = m.client.raw("GET", "/metrics")
            self.assertIn("# TYPE mango_plugin_op_calls_total counter", text if isinstance(text, str) else text.decode())


if __name__ == "__main__":
    harness.main()
