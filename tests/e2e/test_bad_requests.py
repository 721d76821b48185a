#!/usr/bin/env python3
"""The table of malformed requests, against a mangod with a database of its own."""
import unittest

import bad_requests
import harness


class BadRequests(unittest.TestCase):
    def test_each_malformed_request_gets_its_exact_answer_and_leaves_nothing_behind(self):
        with harness.Mangod(sandbox=None) as m:
            server = bad_requests.Server("127.0.0.1", m.port, m.key, m.process.pid, m.database)
            failures = bad_requests.check(server)
            self.assertEqual([], failures, "\n" + "\n".join(failures))


if __name__ == "__main__":
    harness.main()
