"""Calls that wait for a client: semantics PA1 to PA11, one test a statement (docs/semantics.md). Field case 10 (several gates) is in test_model_turns.py, cases 1
to 4 are in tests/store/test-turn.c too."""

import os

from harness import main
from turns import CUSTOM, IDLE, NEVER, TurnCase, answered, bash, calls, confirmation, custom_result, fake, interrupt, message, of, pass_gate, reason, results, shown, text, tool_result, types


class Barriers(TurnCase):
    def test_pa1_one_result_answers_one_call(self):
        sid, ids = self.parked(3)
        self.assertEqual(len(set(ids)), 3)
        self.send(sid, custom_result(ids[1], "b"))
        self.send(sid, custom_result(ids[0], "a"))
        events = self.until(sid, custom_result(ids[2], "c"))
        self.assertEqual(reason(events[-1]), "end_turn")
        told = self.last_request()[-1]["content"]
        self.assertEqual([b["content"][0]["text"] for b in told], ["a", "b", "c"], "in the order of the calls, not of the answers")

    def test_pa2_a_resolution_names_its_call_fits_its_kind_and_comes_once(self):
        custom, (wanted,) = self.parked()
        asked, (gate,) = self.asked()
        served, (bash,) = self.server_call_of_a_self_hosted_session()
        for sid, event, words in (
            (custom, tool_result(wanted), "user.custom_tool_result"),
            (custom, confirmation(wanted), "user.custom_tool_result"),
            (asked, custom_result(gate), "user.tool_result"),
            (asked, tool_result(gate), "user.tool_confirmation"),
            (served, confirmation(bash), "needs no confirmation"),
            (served, custom_result(bash), "user.tool_result"),
        ):
            with self.subTest(event["type"]):
                self.assertIn(words, self.refused(400, sid, event))
        self.until(custom, custom_result(wanted))
        self.assertIn("already answered", self.refused(409, custom, custom_result(wanted, "another")))
        self.until(asked, confirmation(gate))
        self.assertIn("already allowed", self.refused(409, asked, confirmation(gate)))
        self.assertIn("already allowed", self.refused(409, asked, confirmation(gate, "deny")))

    def server_call_of_a_self_hosted_session(self):
        sid = self.new(environment="self_hosted", policy="always_allow")
        events = self.until(sid, message(fake('tool bash {"command":"true"}', "---", "text done")), ends=("agent.tool_use",))
        return sid, [events[-1]["id"]]

    def test_pa2_a_cloud_call_takes_no_result_of_a_client(self):
        sid = self.new(policy="always_allow")
        self.until(sid, message(fake(bash(NEVER), "---", "text done")), ends=("agent.tool_use",))
        self.assertIn("takes no result", self.refused(400, sid, tool_result(calls(self.events(sid))[0]["id"])))
        self.send(sid, interrupt())

    def test_pa4_partial_answers_say_what_is_left_and_the_last_one_wakes_once(self):
        sid, ids = self.parked(3)
        for n in (1, 2):
            events = self.until(sid, custom_result(ids[n - 1]))
            self.assertEqual(types(events), ["user.custom_tool_result", IDLE])
            self.assertEqual(events[-1]["stop_reason"]["event_ids"], ids[n:])
            self.assertEqual(self.status(sid), "idle")
        events = self.until(sid, custom_result(ids[2]))
        self.assertEqual(types(events).count("session.status_running"), 1)
        self.assertEqual(types(events).count("span.model_request_start"), 1)

    def test_pa5_messages_behind_a_barrier_are_answered_in_order_after_it(self):
        sid, (call,) = self.parked(after="text the barrier")
        for n in range(3):
            self.send(sid, message(f"later {n}"))
        events = self.until(sid, custom_result(call))
        self.assertEqual([shown(e) for e in of(events, "agent.message")], ["the barrier", "echo: later 0", "echo: later 1", "echo: later 2"])
        self.assertEqual(types(events).count(IDLE), 1)

    def test_pa5_an_answer_and_a_message_in_one_request_keep_their_order(self):
        sid, (call,) = self.parked(after="text the barrier")
        events = self.until(sid, message("behind"), custom_result(call))
        self.assertEqual([shown(e) for e in of(events, "agent.message")], ["the barrier", "echo: behind"])

    def test_pa6_allow_runs_the_call_as_it_was_asked(self):
        sid, (call,) = self.asked("echo exactly this")
        events = self.until(sid, confirmation(call))
        (result,) = results(events)
        self.assertEqual((result["tool_use_id"], shown(result).strip(), result["is_error"]), (call, "exactly this", False))

    def test_pa6_deny_tells_the_model_who_and_why(self):
        for message_, words in ((None, "The user denied this call."), ("not today", "not today")):
            with self.subTest(message_):
                sid, (call,) = self.asked("touch /tmp/never")
                more = {"deny_message": message_} if message_ else {}
                events = self.until(sid, confirmation(call, "deny", **more))
                (result,) = results(events)
                self.assertTrue(result["is_error"])
                self.assertIn("The user denied this call", shown(result))
                self.assertIn(words, shown(result))
                told = self.last_request()[-1]["content"][0]
                self.assertTrue(told["is_error"])
                self.assertEqual(told["content"], result["content"])

    def test_pa6_a_deny_message_belongs_to_a_deny(self):
        sid, (call,) = self.asked()
        self.assertIn("deny_message", self.refused(400, sid, confirmation(call, "allow", deny_message="why")))
        self.assertIn("result", self.refused(400, sid, confirmation(call, "maybe")))
        self.assertIn("deny_message", self.refused(400, sid, confirmation(call, "deny", deny_message="x" * 10001)))

    def test_pa8_on_self_hosted_a_call_that_asks_takes_its_result_after_the_approval_only(self):
        sid, (call,) = self.asked(environment="self_hosted")
        self.assertIn(call, self.refused(400, sid, tool_result(call)))
        self.until(sid, confirmation(call), ends=("session.status_running",))
        self.assertEqual(self.client.get(f"/v1/sessions/{sid}")["status"], "running", "it is a worker's now, and no client's")
        self.assertIn("already allowed", self.refused(409, sid, confirmation(call)))
        events = self.until(sid, tool_result(call, "ran"))
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assertIn("ran", str(self.last_request()))
        self.assertIn("already answered", self.refused(409, sid, tool_result(call, "ran again")))

    def test_pa8_a_denied_call_takes_no_result(self):
        sid, (call,) = self.asked(environment="self_hosted")
        events = self.until(sid, confirmation(call, "deny"))
        self.assertEqual(types(results(events)), ["agent.tool_result"], "a synthetic one, of the server")
        self.assertIn("denied", self.refused(400, sid, tool_result(call)))
        self.assertIn("already denied", self.refused(409, sid, confirmation(call)))

    def test_pa8_a_batch_applies_in_order_and_leaves_no_approval_behind_when_it_fails(self):
        sid, (call,) = self.asked(environment="self_hosted")
        self.refused(400, sid, tool_result(call), confirmation(call))
        self.refused(400, sid, confirmation(call), tool_result("sevt_none"))
        self.refused(400, sid, tool_result(call))  # still unapproved
        events = self.until(sid, confirmation(call), tool_result(call, "ran"))
        self.assertEqual(reason(events[-1]), "end_turn")

    def test_pa10_the_permission_is_written_on_the_call(self):
        tools = [{
            "type": "agent_toolset_20260401",
            "configs": [
                {"name": "bash", "permission_policy": {"type": "always_ask"}},
                {"name": "write", "enabled": False},
            ],
        }]  # fmt: skip
        sid = self.new(*tools)
        script = ['tool bash {"command":"true"}', 'tool write {"file_path":"a","content":"b"}', 'tool glob {"pattern":"*"}', 'tool nothing {}']
        events = self.until(sid, message(fake(*script, "---", "text done")))
        seen = [(c["name"], c["evaluated_permission"], c.get("evaluation")) for c in calls(events)]
        self.assertEqual(
            seen,
            [
                ("bash", "ask", {"type": "always_ask"}),
                ("write", "deny", None),
                ("glob", "allow", {"type": "always_allow"}),
                ("nothing", "deny", None),
            ],
        )
        self.send(sid, interrupt())

    def test_pa11_a_tools_own_setting_wins_over_the_toolsets(self):
        tools = [{
            "type": "agent_toolset_20260401",
            "default_config": {"permission_policy": {"type": "always_ask"}},
            "configs": [{"name": "bash", "permission_policy": {"type": "always_allow"}}],
        }]  # fmt: skip
        sid = self.new(*tools)
        events = self.until(sid, message(fake('tool bash {"command":"echo hi"}', 'tool glob {"pattern":"*"}', "---", "text done")))
        self.assertEqual([c["evaluated_permission"] for c in calls(events)], ["allow", "ask"])
        self.assertEqual([answered(r) for r in results(events)], [calls(events)[0]["id"]])
        self.assertEqual(self.new_default_permission(), "allow", "a toolset without any setting runs its tools")
        self.send(sid, interrupt())

    def new_default_permission(self):
        sid = self.new({"type": "agent_toolset_20260401"})
        return calls(self.until(sid, message(fake('tool bash {"command":"true"}', "---", "text done"))))[0]["evaluated_permission"]

    # ---- one barrier after another ----

    def test_a_barrier_replaces_a_barrier(self):
        sid = self.new(CUSTOM)
        events = self.until(sid, message(fake('tool lookup {"n":1}', "---", 'tool lookup {"n":2}', 'tool lookup {"n":3}', "---", "text done")))
        (first,) = events[-1]["stop_reason"]["event_ids"]
        events = self.until(sid, custom_result(first, "one"))
        second = events[-1]["stop_reason"]["event_ids"]
        self.assertEqual(len(second), 2)
        self.assertNotIn(first, second)
        self.assertIn("already answered", self.refused(409, sid, custom_result(first, "other")))
        self.assertEqual(self.send(sid, custom_result(first, "one"))[0]["custom_tool_use_id"], first, "a repeat is harmless, also behind the next barrier")
        events = self.until(sid, custom_result(second[1], "three"), custom_result(second[0], "two"))
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assertEqual([b["content"][0]["text"] for b in self.last_request()[-1]["content"]], ["two", "three"])

    def test_a_result_may_come_before_the_idle_event(self):
        """The server runs one call while the other waits: its answer is taken meanwhile."""
        sid = self.new(CUSTOM, policy="always_allow")
        gate = f"{self.server.dir}/{sid}"
        os.mkfifo(gate)
        with self.client.stream(sid) as stream:
            self.send(sid, message(fake(bash(f"cat {gate}; echo slow"), 'tool lookup {"n":1}', "---", "text done")))
            call = stream.until("agent.custom_tool_use")[-1]["id"]
            self.send(sid, custom_result(call, "quick"))
            pass_gate(lambda: [self.server.dir], sid)
            events = stream.until(IDLE)
        self.assertEqual(reason(events[-1]), "end_turn", "no barrier was left to wait for")
        self.assertEqual([b["content"][0]["text"].strip() for b in self.last_request()[-1]["content"]], ["slow", "quick"])

    def test_an_answer_after_an_interrupt_is_refused_and_the_next_message_works(self):
        sid, ids = self.parked(2)
        self.send(sid, custom_result(ids[0], "kept"))
        self.send(sid, interrupt())
        self.assertIn("already answered", self.refused(409, sid, custom_result(ids[1])))
        self.assertEqual(self.send(sid, custom_result(ids[0], "kept"))[0]["custom_tool_use_id"], ids[0])
        asked, (gate,) = self.asked()
        self.send(asked, interrupt())
        self.assertIn("already answered", self.refused(409, asked, confirmation(gate)))
        for s in (sid, asked):
            self.assert_goes_on(s)

    def test_an_interrupt_and_an_answer_in_one_request_apply_in_order(self):
        sid, ids = self.parked(2)
        self.assertIn("already answered", self.refused(409, sid, interrupt(), custom_result(ids[0])))
        self.send(sid, custom_result(ids[0], "mine"), interrupt())
        first, second = results(self.events(sid))
        self.assertEqual((shown(first), first.get("is_error")), ("mine", None))
        self.assertTrue(second["is_error"])
        self.assert_goes_on(sid)

    def test_each_shape_of_an_empty_result_is_taken_as_it_was_sent(self):
        """Field case 1 over the wire: stored as sent, and legal for the model."""
        pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": pixel}}
        for sent, told in (
            ({"content": text("")}, "(no output)"),
            ({"content": []}, "(no output)"),
            ({}, "(no output)"),
            ({"content": None}, "(no output)"),
            ({"content": [*text(""), image]}, None),
            ({"content": text(""), "is_error": True}, "(no output)"),
        ):
            with self.subTest(sent=str(sent)[:40]):
                sid, (call,) = self.parked()
                event = {"type": "user.custom_tool_result", "custom_tool_use_id": call, **sent}
                stored = self.send(sid, event)[0]
                self.assertEqual({k: stored.get(k) for k in sent}, sent)
                self.idle(sid, 2)
                block = self.last_request()[-1]["content"][0]
                self.assertEqual(bool(block.get("is_error")), bool(sent.get("is_error")))
                self.assertEqual([b.get("text") for b in block["content"]], [told])


if __name__ == "__main__":
    main()
