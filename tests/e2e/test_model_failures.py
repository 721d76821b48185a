"""Every way in which a model request fails, against the contract: semantics RT1 to RT7, TU8, field case 80. One table; each row runs behind a tool call, so
that each also shows that a retry repeats no tool."""
import os
import socket
import unittest
from datetime import datetime

from harness import FakeModel, Mangod, main, wait_for
from turns import IDLE, fake, of

RETRIED, TERMINAL, EXHAUSTED = "retried", "terminal", "exhausted"
REQUEST_FAILED, RATE, OVERLOADED, BILLING = "model_request_failed_error", "model_rate_limited_error", "model_overloaded_error", "billing_error"

# what the endpoint does; the error type; what follows: RETRIED three times in all, TERMINAL at once, EXHAUSTED at once; a part of the message
FAILURES = {
    "400": (["status 400 bad thing"], REQUEST_FAILED, TERMINAL, "bad thing"),
    "401": (["status 401 no"], REQUEST_FAILED, TERMINAL, "check the API key"),
    "402": (["status 402 pay"], BILLING, TERMINAL, "pay"),
    "403": (["status 403 no"], REQUEST_FAILED, TERMINAL, "403"),
    "404": (["status 404 no"], REQUEST_FAILED, TERMINAL, "404"),
    "408": (["status 408 slow"], REQUEST_FAILED, RETRIED, "408"),
    "409": (["status 409 busy"], REQUEST_FAILED, RETRIED, "409"),
    "422": (["status 422 odd"], REQUEST_FAILED, TERMINAL, "422"),
    "429": (["status 429 slow down"], RATE, RETRIED, "slow down"),
    "500": (["status 500 oops"], REQUEST_FAILED, RETRIED, "500"),
    "502 with a page": (["code 502", "body text/html <html>bad gateway</html>"], REQUEST_FAILED, RETRIED, "bad gateway"),
    "503": (["status 503 away"], REQUEST_FAILED, RETRIED, "503"),
    "504": (["status 504 late"], REQUEST_FAILED, RETRIED, "504"),
    "529": (["status 529 full"], OVERLOADED, RETRIED, "full"),
    "overloaded in mid-answer": (["text half", "error overloaded_error full"], OVERLOADED, RETRIED, "mid-answer"),
    "rate limit in mid-answer": (["text half", "error rate_limit_error slow"], RATE, RETRIED, "slow"),
    "api_error in mid-answer": (["text half", "error api_error oops"], REQUEST_FAILED, RETRIED, "oops"),
    "invalid request in mid-answer": (["text half", "error invalid_request_error bad"], REQUEST_FAILED, TERMINAL, "bad"),
    "a stream that ends in the middle": (["text half", "cut"], REQUEST_FAILED, RETRIED, "message_stop"),
    "a connection closed in the middle": (["text half", "close"], REQUEST_FAILED, RETRIED, "broke off"),
    "a connection reset in the middle": (["text half", "reset"], REQUEST_FAILED, RETRIED, "broke off"),
    "a connection reset before the answer": (["reset"], REQUEST_FAILED, RETRIED, "broke off"),
    "an answer without a stop reason": (["text all", 'raw {"type":"message_stop"}'], REQUEST_FAILED, RETRIED, "without a stop reason"),
    "silence from the start": (["silence"], REQUEST_FAILED, RETRIED, "cannot be reached or broke off"),
    "silence in the middle": (["text half", "silence"], REQUEST_FAILED, RETRIED, "fell silent"),
    "pings only": (["ping 80 100", "text late"], REQUEST_FAILED, RETRIED, "fell silent"),
    "an empty body": (["empty"], REQUEST_FAILED, RETRIED, "empty body"),
    "200 with a page": (["body text/html <html>log in</html>"], REQUEST_FAILED, RETRIED, "login page"),
    "200 with other JSON": (['body application/json {"hello":1}'], REQUEST_FAILED, RETRIED, "not a message"),
    "an answer over its limit": (["big 5000000"], REQUEST_FAILED, TERMINAL, "too large"),
    "a stop reason that nobody knows": (["text well", "stop tired"], REQUEST_FAILED, EXHAUSTED, "tired"),
    "tool_use without a call": (["text well", "stop tool_use"], REQUEST_FAILED, EXHAUSTED, "tool_use"),
    "credit used up": (["status 400 Your credit balance is too low"], BILLING, TERMINAL, "credit"),
}

SILENT = ["silence from the start", "silence in the middle", "pings only"]  # these wait for MANGO_MODEL_IDLE, the others must not meet it


def at(event):
    return datetime.fromisoformat(event["processed_at"].replace("Z", "+00:00")).timestamp()


class ModelFailures(unittest.TestCase):
    def over(self, client, sid):
        events = client.events(sid)
        return events if events[-1]["type"] in (IDLE, "session.status_terminated") else None

    def test_case_80_each_failure_is_what_the_contract_says_and_repeats_no_tool(self):
        self.all_fail_right([name for name in FAILURES if name not in SILENT], {})

    def test_case_80_a_silent_model_is_what_the_contract_says_and_repeats_no_tool(self):
        self.all_fail_right(SILENT, {"MANGO_MODEL_IDLE": "3s"})

    def all_fail_right(self, names, env):
        with FakeModel() as model, Mangod(model_url=model.url, env=env) as server:
            client, sessions = server.client, {}
            for i, name in enumerate(names):
                lines, *_ = FAILURES[name]
                sessions[name] = client.new_session()["id"]
                call = 'tool bash {"command":"echo x >> %s"}' % os.path.join(server.dir, f"count{i}")
                client.say(sessions[name], fake(call, "---", *lines))
            for i, name in enumerate(names):
                with self.subTest(name):
                    events = wait_for(name, lambda: self.over(client, sessions[name]), 120)
                    self.check(server, name, events, sessions[name])
                    with open(os.path.join(server.dir, f"count{i}"), encoding="utf-8") as f:
                        self.assertEqual(f.read(), "x\n", "the tool ran once")
            self.assertEqual(model.refused(), 0)

    def check(self, server, name, events, sid):
        _, error_type, then, text = FAILURES[name]
        errors = [e["error"] for e in of(events, "session.error")]
        tries = 3 if then == RETRIED else 1
        last = "terminal" if then == TERMINAL else "exhausted"
        self.assertEqual([e["retry_status"]["type"] for e in errors], ["retrying"] * (tries - 1) + [last], errors)
        self.assertEqual({e["type"] for e in errors}, {error_type})
        self.assertIn(text, errors[-1]["message"])
        self.assertLessEqual(len(errors[-1]["message"].encode()), 512)
        self.assertNotIn("test-key-of-the-model", str(events))
        self.assertEqual(len(of(events, "span.model_request_start")), 1 + tries)
        ends = of(events, "span.model_request_end")
        self.assertEqual([e["is_error"] for e in ends], [False] + [then != EXHAUSTED] * tries)
        self.assertEqual([e["model_request_start_id"] for e in ends], [e["id"] for e in of(events, "span.model_request_start")])
        self.assertEqual(len(of(events, "session.status_rescheduled")), tries - 1)
        status = server.client.get(f"/v1/sessions/{sid}")["status"]
        if then == TERMINAL:
            self.assertEqual((events[-1]["type"], status), ("session.status_terminated", "terminated"))
            return
        self.assertEqual((events[-1]["stop_reason"]["type"], status), ("retries_exhausted", "idle"))
        # RT1: an error and its rescheduling are one commit; RT2: 1 s, then 2 s, each with at most a quarter more
        for nth, moved in enumerate(of(events, "session.status_rescheduled")):
            i = events.index(moved)
            self.assertEqual((events[i - 1]["type"], events[i + 1]["type"]), ("session.error", "session.status_running"))
            pause = at(events[i + 1]) - at(moved)
            self.assertGreaterEqual(pause, 2**nth - 0.05)
        with server.client.stream(sid) as stream:
            server.client.say(sid, "hello")
            self.assertEqual(stream.until(IDLE)[-1]["stop_reason"]["type"], "end_turn", "the session goes on")

    def test_a_connection_that_is_refused_is_tried_again(self):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        with Mangod(model_url=f"http://127.0.0.1:{port}") as server:
            sid = server.client.new_session(tools=False)["id"]
            server.client.say(sid, "hello")
            events = wait_for("the turn ends", lambda: self.over(server.client, sid), 20)
            self.assertEqual([e["error"]["retry_status"]["type"] for e in of(events, "session.error")], ["retrying", "retrying", "exhausted"])
            self.assertIn("cannot be reached", of(events, "session.error")[0]["error"]["message"])

    def test_retry_after_is_honoured_up_to_its_cap(self):
        with FakeModel() as model, Mangod(model_url=model.url) as server:
            client = server.client
            short, long = client.new_session(tools=False)["id"], client.new_session(tools=False)["id"]
            client.say(long, fake("header Retry-After: 86400", "status 429 tomorrow"))
            client.say(short, fake("@1 header Retry-After: 3", "@1 status 429 wait", "text there"))
            wait_for("the long wait begins", lambda: client.get(f"/v1/sessions/{long}")["status"] == "rescheduling")
            left = float(server.database.query(f"SELECT extract(epoch FROM turn_due_at - clock_timestamp()) FROM session_state WHERE session_id = '{long}'")[0][0])
            self.assertTrue(50 < left <= 75, left)
            events = wait_for("the short wait ends", lambda: self.over(client, short), 20)
            moved = of(events, "session.status_rescheduled")[0]
            self.assertGreaterEqual(at(events[events.index(moved) + 1]) - at(moved), 2.95)
            self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
            with client.stream(long) as stream:
                client.post(f"/v1/sessions/{long}/events", {"events": [{"type": "user.interrupt"}]})
                self.assertEqual(stream.until(IDLE)[-1]["stop_reason"]["type"], "end_turn", "a wait can be interrupted")

    def test_a_restart_in_the_wait_neither_shortens_it_nor_forgets_the_attempts(self):
        with FakeModel() as model, Mangod(model_url=model.url, env={"MANGO_NODE_TTL": "2s"}) as server:
            client = server.client
            sid = client.new_session(tools=False)["id"]
            client.say(sid, fake("header Retry-After: 3", "status 529 full"))
            wait_for("the request is rescheduled", lambda: client.get(f"/v1/sessions/{sid}")["status"] == "rescheduling", every=0.005)
            server.kill()
            server.process.end()
            server.start()
            events = wait_for("the turn ends", lambda: self.over(client, sid), 30)
            self.assertEqual([e["error"]["retry_status"]["type"] for e in of(events, "session.error")], ["retrying", "retrying", "exhausted"])
            self.assertEqual(len(model.requests()), 3)
            moved = of(events, "session.status_rescheduled")[0]
            self.assertGreaterEqual(at(events[events.index(moved) + 1]) - at(moved), 2.95)


if __name__ == "__main__":
    main()
