"""Turns against a scripted Messages endpoint that checks each request as the real one does: failures, cut answers, the transcript's legality."""
import os

from harness import FakeModel, Mangod, main, wait_for
from turns import IDLE, NEVER, TOOLSET, TurnCase, bash, confirmation, fake, interrupt, message, of, turn, types


def unmarked(value):
    """Without the cache breakpoints, which move and are no part of what the endpoint keeps."""
    if isinstance(value, dict):
        return {k: unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [unmarked(v) for v in value] if isinstance(value, list) else value


class ModelTurns(TurnCase):
    def file(self, name):
        return os.path.join(self.server.dir, name)

    # ---- failures ----

    def failing(self, directive, error, retry_status, requests):
        sid = self.new()
        events = self.turn(sid, fake(directive, "text never"))
        errors = of(events, "session.error")
        self.assertEqual(errors[-1]["error"]["type"], error, errors)
        self.assertEqual(errors[-1]["error"]["retry_status"]["type"], retry_status)
        self.assertEqual(len(of(events, "span.model_request_start")), requests)
        self.assertEqual(len(of(events, "span.model_request_end")), requests)
        return sid, events

    def test_case_80_permanent_failures_end_the_session(self):
        for directive in ("status 400 bad", "status 401 no", "status 403 no", "status 404 no"):
            with self.subTest(directive):
                sid, events = self.failing(directive, "model_request_failed_error", "terminal", 1)
                self.assertEqual(events[-1]["type"], "session.status_terminated")
                self.assertEqual(self.status(sid), "terminated")

    def test_case_80_retryable_failures_are_tried_three_times_and_leave_the_session_usable(self):
        for directive, error in (
            ("status 529 full", "model_overloaded_error"),
            ("status 429 slow", "model_rate_limited_error"),
            ("status 500 oops", "model_request_failed_error"),
            ("body text/html <html>sorry</html>", "model_request_failed_error"),
            ("empty", "model_request_failed_error"),
            ("reset", "model_request_failed_error"),
        ):
            with self.subTest(directive):
                sid, events = self.failing(directive, error, "exhausted", 3)
                self.assertEqual(len(of(events, "session.status_rescheduled")), 2)
                self.assertEqual(events[-1]["stop_reason"]["type"], "retries_exhausted")
                self.assert_goes_on(sid)

    def test_a_failure_that_passes_is_retried_and_the_turn_ends_well(self):
        sid = self.new()
        events = self.turn(sid, fake("@2 status 529 full", "text There it is."))
        self.assertEqual([e["error"]["retry_status"]["type"] for e in of(events, "session.error")], ["retrying", "retrying"])
        self.assertEqual(of(events, "agent.message")[0]["content"][0]["text"], "There it is.")
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")

    def test_a_stream_cut_in_the_middle_is_retried_and_its_text_is_not_kept(self):
        sid = self.new()
        events = self.turn(sid, fake("text half", "@1 close", "stop end_turn"))
        self.assertEqual(len(of(events, "agent.message")), 1)
        self.assertEqual(len(of(events, "session.error")), 1)

    def test_a_retry_repeats_no_tool(self):
        sid = self.new(TOOLSET)
        path = self.file("once")
        events = self.turn(sid, fake('tool bash {"command":"echo x >> %s"}' % path, "---", "@2 status 529 full", "text done"))
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        with open(path, encoding="utf-8") as f:
            self.assertEqual(f.read(), "x\n")

    def test_a_back_off_survives_a_restart(self):
        with FakeModel() as model, Mangod(model_url=model.url, env={"MANGO_NODE_TTL": "2s"}) as server:
            sid = server.client.new_session(tools=False)["id"]
            server.client.say(sid, fake("@1 status 429 wait", "text after the wait"))
            wait_for("the request is rescheduled", lambda: server.client.get(f"/v1/sessions/{sid}")["status"] == "rescheduling", every=0.005)
            server.kill()
            server.process.end()
            server.start()
            events = wait_for("the turn ends", lambda: (lambda ev: ev if ev[-1]["type"] == IDLE else None)(server.client.events(sid)))
            self.assertEqual(of(events, "agent.message")[0]["content"][0]["text"], "after the wait")

    # ---- answers that must not be taken at their word ----

    def test_case_79_a_cut_call_is_not_run(self):
        sid = self.new(TOOLSET)
        events = self.turn(
            sid, fake('cut-tool write {"file_path":"a.txt","content":"line1', "stop max_tokens", "---", "text I see.")
        )
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        result = of(events, "agent.tool_result")[0]
        self.assertTrue(result["is_error"])
        self.assertIn("cut off", result["content"][0]["text"])
        listing = self.turn(sid, fake('tool bash {"command":"ls -a"}', "---", "text ok"))
        self.assertNotIn("a.txt", of(listing, "agent.tool_result")[0]["content"][0]["text"])

    def test_case_79_of_two_calls_at_the_token_limit_neither_is_run(self):
        sid = self.new(TOOLSET)
        path = self.file("sibling")
        events = self.turn(
            sid,
            fake('tool bash {"command":"touch %s"}' % path, 'cut-tool bash {"command":"tou', "stop max_tokens", "---", "text ok"),
        )
        self.assertEqual([r["is_error"] for r in of(events, "agent.tool_result")], [True, True])
        self.assertFalse(os.path.exists(path))
        self.assert_goes_on(sid)

    def test_case_79_a_call_without_a_required_field_is_answered_with_the_rule(self):
        sid = self.new(TOOLSET)
        events = self.turn(sid, fake('tool write {"file_path":"a.txt"}', "---", "text ok"))
        result = of(events, "agent.tool_result")[0]
        self.assertTrue(result["is_error"])
        self.assertIn("content", result["content"][0]["text"])

    def test_max_tokens_continues_a_text(self):
        sid = self.new()
        self.model.client.post("/script", {"responses": ["text one\nstop max_tokens"] * 4})
        events = self.turn(sid, "write a long text")
        self.assertEqual(len(of(events, "span.model_request_start")), 4)  # three continuations, then the turn ends
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")

    def test_a_refusal_ends_the_turn_as_such(self):
        sid = self.new()
        details = '{"type":"refusal","category":null,"explanation":"no"}'
        events = self.turn(sid, fake("text I cannot.", "stop refusal " + details))
        self.assertEqual(events[-1]["stop_reason"]["type"], "refusal")
        self.assertEqual(events[-1]["stop_details"]["explanation"], "no")
        self.assert_goes_on(sid)

    def test_an_unknown_tool_is_answered_and_never_run(self):
        sid = self.new(TOOLSET)
        events = self.turn(sid, fake('tool launch_missiles {"at":"dawn"}', "---", "text ok"))
        self.assertTrue(of(events, "agent.tool_result")[0]["is_error"])
        self.assertEqual(of(events, "agent.tool_use")[0]["evaluated_permission"], "deny")

    def test_case_83_too_long_a_prompt_ends_the_turn_and_not_the_session(self):
        sid = self.new()
        events = self.turn(sid, fake("too-long"))
        self.assertEqual(of(events, "session.error")[-1]["error"]["retry_status"]["type"], "exhausted")
        self.assertEqual(events[-1]["type"], IDLE)
        self.assert_goes_on(sid)

    # ---- order and gates ----

    def test_case_9_no_false_end_of_turn(self):
        sid = self.new(TOOLSET)
        call = 'tool bash {"command":"echo %d"}'
        events = self.turn(sid, fake(call % 1, call % 2, call % 3, "---", "text done"))
        kinds = types(events)
        self.assertEqual(kinds.count(IDLE), 1)
        self.assertEqual(kinds[-1], IDLE)
        uses, results = of(events, "agent.tool_use"), of(events, "agent.tool_result")
        self.assertEqual([u["id"] for u in uses], [r["tool_use_id"] for r in results])
        self.assertEqual([r["content"][0]["text"].strip() for r in results], ["1", "2", "3"])

    def gated(self):
        """A session whose bash asks and whose read is allowed."""
        return self.new({**TOOLSET, "configs": [{"name": "bash", "permission_policy": {"type": "always_ask"}}]})

    def test_case_10_several_gates_in_one_response(self):
        sid = self.gated()
        calls = ['tool bash {"command":"echo %s"}' % n for n in "abc"]
        events = self.turn(sid, fake(*calls, 'tool write {"file_path":"w.txt","content":"w"}', "---", "text done"))
        uses = of(events, "agent.tool_use")
        asked = [u["id"] for u in uses if u["name"] == "bash"]
        self.assertEqual(events[-1]["stop_reason"], {"type": "requires_action", "event_ids": asked})
        self.assertEqual([r["tool_use_id"] for r in of(events, "agent.tool_result")], [uses[3]["id"]], "the allowed call ran at once")
        events = self.until(sid, confirmation(asked[1], "allow"))
        self.assertEqual(events[-1]["stop_reason"]["event_ids"], [asked[0], asked[2]])
        events = self.until(sid, confirmation(asked[0], "deny", deny_message="not this one"))
        self.assertEqual(events[-1]["stop_reason"]["event_ids"], [asked[2]])
        events = self.until(sid, confirmation(asked[2], "allow"))
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        last = self.model.requests()[-1]["body"]["messages"][-1]["content"]
        self.assertEqual([b["type"] for b in last], ["tool_result"] * 4)
        texts = [b["content"][0]["text"].strip() for b in last]
        self.assertIn("not this one", texts[0])
        self.assertEqual(texts[1:3], ["b", "c"])
        self.assert_goes_on(sid)

    # ---- interrupts ----

    def test_an_interrupt_stops_a_running_command_within_a_second_and_the_next_message_starts_behind_it(self):
        sid = self.new(TOOLSET)
        flag = self.file("started")
        self.client.say(sid, fake(bash(f"touch {flag}; {NEVER}"), "---", "text never"))
        wait_for("the command runs", lambda: os.path.exists(flag))
        with self.client.stream(sid) as stream:
            self.send(sid, interrupt(), message("hello"))
            first = stream.until(IDLE)
            second = stream.until(IDLE)
        self.assertEqual(first[-1]["stop_reason"]["type"], "end_turn")
        self.assertEqual(len(of(first, "agent.tool_result")), 1)
        self.assertTrue(of(second, "agent.message"))

    def test_case_81_an_interrupt_in_the_middle_of_an_answer_leaves_a_legal_transcript(self):
        sid = self.new()
        self.client.say(sid, fake("text tortoise", "delay 60000", "text end"))
        self.requested("tortoise")
        self.send(sid, interrupt())
        self.assertEqual(self.status(sid), "idle")
        self.assert_goes_on(sid)

    # ---- the transcript ----

    def test_case_84_requests_of_a_session_share_a_byte_equal_prefix_across_restarts(self):
        with FakeModel() as model, Mangod(model_url=model.url) as server:
            sid = server.client.new_session()["id"]
            raw = []
            for i in range(4):
                script = fake("think hm", 'tool bash {"command":"echo %d"}' % i, "---", 'block {"type":"text","text":"caf\\u00e9","x":1.0}')
                turn(server.client, sid, message(script))
                raw.append(unmarked(model.requests()[-1]["body"]))
                server.restart()
            for before, after in zip(raw, raw[1:]):
                n = len(before["messages"])
                self.assertEqual(after["messages"][: n - 1], before["messages"][: n - 1])
                self.assertEqual({k: v for k, v in before.items() if k != "messages"}, {k: v for k, v in after.items() if k != "messages"})
            self.assertEqual(model.refused(), 0)

    def test_opaque_blocks_come_back_as_they_were(self):
        sid = self.new()
        block = {"type": "server_thing", "data": {"n": 1.50, "big": 12345678901234567890, "s": "é"}, "encrypted_content": "QUJD"}
        self.turn(sid, fake("think deep", "redacted QUJDRA==", 'block {"type":"server_thing","data":{"n":1.50,"big":12345678901234567890,"s":"\\u00e9"},"encrypted_content":"QUJD"}', "text ok"))
        self.assert_goes_on(sid)
        assistant = next(m for m in self.model.requests()[-1]["body"]["messages"] if m["role"] == "assistant")
        self.assertIn(block, assistant["content"])
        self.assertEqual([b["type"] for b in assistant["content"]][:2], ["thinking", "redacted_thinking"])


if __name__ == "__main__":
    main()
