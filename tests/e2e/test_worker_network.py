"""mango-worker behind a network that fails: 4xx, 5xx, cut connections, slow answers, a server that restarts, a worker that was frozen."""
import json
import threading

from harness import main, wait_for
from recorder import Cut, CutStream, Recorder, Slow, Status
from worker_rig import GATE, WorkerCase, bash

WORK = r"/work/[^/?]+/"
BUSY = dict(retry_after_ms="20")


class Network(WorkerCase):
    def setUp(self):
        super().setUp()
        self.net = self.enterContext(Recorder(self.server.port))

    def served(self, *rules, script=('tool bash {"command":"echo x >> runs; echo served"}', "---", "text done"), expect="served", meanwhile=None):
        """One turn of one call under these rules; the tool runs once, the session ends right. meanwhile() is waited for while the tool waits at its gate."""
        for rule in rules:
            self.net.on(*rule)
        worker = self.start(base_url=self.net.url)
        s = self.new()
        self.say(s, *script)
        if meanwhile:
            self.there("begun")
            meanwhile()
            self.pass_gate()
        self.assertEqual(self.results(self.wait_end(s)), [(expect, False)])
        self.check_pairs(s)
        self.assertEqual(self.read("runs"), "x\n", "the tool ran once")
        self.assertTrue(worker.process.running())
        return s

    def test_polls_and_acks_that_fail(self):
        self.served(("GET", "/work/poll", Status(500, **BUSY), Cut("before"), Status(429, **BUSY), Cut("after")), ("POST", WORK + "ack", Status(503, **BUSY), Cut("after"), Slow(2)))

    def test_heartbeats_that_fail(self):
        faults = [Cut("before"), Status(500, **BUSY), Cut("after"), Slow(1.5), Status(409, **BUSY), Cut("after")]
        beat = WORK + "heartbeat"
        self.served(
            ("POST", beat, *faults),
            script=(bash(f"echo x >> runs; {GATE}; echo served"), "---", "text done"),
            meanwhile=lambda: wait_for("one is answered behind all faults", lambda: len(self.net.seen("POST", beat)) > len(faults), 30),
        )

    def test_a_session_and_a_history_that_fail(self):
        self.served(("GET", r"/sessions/[^/]+$", Status(502, **BUSY), Cut("before")), ("GET", r"/events\?limit", Status(500, **BUSY), Cut("after"), Slow(2)))

    def test_a_stream_that_fails_and_is_cut(self):
        cut = threading.Event()
        self.net.on("GET", "/events/stream", Status(500), Cut("before"), CutStream(cut))
        worker = self.start(base_url=self.net.url)
        s = self.new()
        self.say(s, bash(f"echo x >> runs; {GATE}; echo served"), "---", "text done")
        self.there("begun")
        cut.set()
        self.pass_gate()
        self.assertEqual(self.results(self.wait_end(s)), [("served", False)])
        wait_for("the stream is opened again", lambda: "opened again" in worker.log(), 20)
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo again"}', "---", "text done")), [("again", False)])
        self.assertEqual(self.read("runs"), "x\n")

    def test_case_04_a_result_whose_answer_is_lost(self):
        s = self.served(("POST", r"/sessions/[^/]+/events$", Cut("after"), Status(500, **BUSY), Status(500, **BUSY), Status(500, **BUSY)))
        sends = self.net.seen("POST", r"/events$")
        self.assertGreaterEqual(len(sends), 2)
        self.assertEqual(len({r.body for r in sends}), 1, "the same bytes each time")
        self.assertEqual(len([e for e in self.events(s) if e["type"] == "user.tool_result"]), 1)

    def test_a_slow_server(self):
        self.served(("POST", r"/events$", Slow(3)), ("GET", "/events/stream", Slow(2)), ("GET", "/work/poll", Slow(2)), ("GET", r"/sessions/[^/]+$", Slow(2)))

    def test_a_heartbeat_with_412_fences(self):
        worker = self.start(base_url=self.net.url)
        s = self.new()
        self.say(s, bash(f"echo x >> runs; {GATE}; echo y >> runs"), "---", "text done")
        self.there("begun")
        self.net.on("POST", WORK + "heartbeat", Status(412))
        wait_for("it notices", lambda: "lease lost" in worker.log(), 20)
        wait_for("the lease runs out, and the worker claims the session again", lambda: self.read("runs") == "x\nx\n", 30)
        item = self.net.seen("POST", WORK + "heartbeat")[0].path.split("/")[5]
        self.assertEqual([r for r in self.net.seen("POST") if "/events" in r.path or r.path.endswith(f"{item}/stop")], [], "nothing more was sent")
        self.pass_gate()  # the first command has been ended: it writes nothing more
        self.wait_end(s)
        self.check_pairs(s)
        self.assertEqual(self.read("runs").count("y"), 1)

    def test_a_credential_that_is_refused_in_mid_session_ends_the_item_not_the_worker(self):
        self.net.on("GET", "/events/stream", Status(401, error="authentication_error"))
        worker = self.start(base_url=self.net.url)
        s = self.new()
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo served"}', "---", "text done")), [("served", False)])
        self.assertIn("the item failed", worker.log())
        self.assertGreaterEqual(len(self.items(s)), 2)

    def test_a_heartbeat_that_is_refused_ends_the_item_not_the_worker(self):
        worker = self.start(base_url=self.net.url)
        self.net.on("POST", WORK + "heartbeat", Status(404, error="not_found_error"))
        s = self.new()
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo served"}', "---", "text done")), [("served", False)])
        self.assertIn("heartbeat refused", worker.log())

    def test_answers_that_are_no_json(self):
        self.net.on("POST", WORK + "heartbeat", Status(200))  # JSON, and no heartbeat
        self.net.on("GET", r"/events\?limit", Status(200))
        self.served()

    def test_what_a_worker_sends_carries_one_credential_and_the_headers_of_the_api(self):
        s = self.served()
        self.wait_left(s)
        token = None
        for r in self.net.seen():
            self.assertEqual(r.headers["anthropic-beta"], "managed-agents-2026-04-01")
            self.assertNotIn("x-api-key", r.headers)
            bearer = r.headers["authorization"]
            if "/work/poll" in r.path or r.path.endswith("/ack"):
                self.assertEqual(bearer, f"Bearer {self.key}")
                continue
            token = token or bearer
            self.assertEqual(bearer, token)
            self.assertNotEqual(bearer, f"Bearer {self.key}")
        self.assertEqual(json.loads(self.net.seen("POST", r"/stop$")[0].body), {"force": True})


class Restart(WorkerCase):
    def test_a_server_that_restarts_in_mid_stream(self):
        self.start()
        s = self.new()
        self.say(s, bash(f"echo x >> runs; {GATE}; echo survived"), "---", "text done")
        self.there("begun")
        self.server.restart()
        self.pass_gate()
        self.assertEqual(self.results(self.wait_end(s)), [("survived", False)])
        self.assertEqual(self.read("runs"), "x\n")
        self.check_pairs(s)

    def test_a_server_that_is_killed_while_a_confirmation_is_awaited(self):
        self.start()
        s = self.new(default_config={"permission_policy": {"type": "always_ask"}})
        self.say(s, 'tool bash {"command":"echo confirmed"}', "---", "text done")
        ids = self.wait_end(s, reason="requires_action")[-1]["stop_reason"]["event_ids"]
        self.server.kill()
        self.server.process.end()
        self.server.start()
        self.send(s, {"type": "user.tool_confirmation", "tool_use_id": ids[0], "result": "allow"})
        self.assertEqual(self.results(self.wait_end(s)), [("confirmed", False)])


if __name__ == "__main__":
    main()
