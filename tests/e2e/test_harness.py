#!/usr/bin/env python3
"""The harness itself: what it takes for a server that is ready is the server that it started."""
import http.server
import threading
import unittest

from harness import Mangod, listens, main


class Stranger(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Ready(unittest.TestCase):
    def test_a_stranger_that_answers_on_the_port_is_not_taken_for_the_server(self):
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
            threading.Thread(target=stranger.serve_forever, daemon=True).start()
            m = Mangod()
            m.port = m.client.port = stranger.server_address[1]
            with self.assertRaisesRegex(AssertionError, "mangod ended with status 78(?s:.*)another program has the port"):
                with m:
                    pass
            stranger.shutdown()

    def test_the_servers_own_port_is_told_from_any_other(self):
        with Mangod() as m:
            self.assertTrue(listens(m.process.pid, m.port))
            self.assertFalse(listens(m.process.pid, m.port + 1))


if __name__ == "__main__":
    main()
