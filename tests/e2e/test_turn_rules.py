"""What a turn does from its trigger to its idle event: semantics OR, TU and TJ, one test a statement (docs/semantics.md)."""

import os

from harness import main, wait_for
from turns import CUSTOM, IDLE, TurnCase, answered, bash, calls, custom_result, fake, interrupt, message, of, pass_gate, reason, results, shown, types

CONTRACT = set("""agent.message agent.thinking agent.tool_use agent.tool_result agent.mcp_tool_use agent.mcp_tool_result agent.custom_tool_use
session.status_idle session.status_running session.status_rescheduled session.status_terminated session.error session.updated session.usage session.deleted
session.thread_created session.thread_status_running session.thread_status_idle session.thread_status_rescheduled session.thread_status_terminated
agent.thread_message_sent agent.thread_message_received agent.thread_context_compacted span.model_request_start span.model_request_end
span.outcome_evaluation_start span.outcome_evaluation_ongoing span.outcome_evaluation_end user.message user.interrupt user.tool_confirmation
user.custom_tool_result user.tool_result user.define_outcome system.message""".split())


class Order(TurnCase):
    def test_or1_the_list_is_in_the_order_of_receipt(self):
        sid, (call,) = self.parked()
        later = self.send(sid, message("later"))[0]["id"]
        answer = self.send(sid, custom_result(call))[0]["id"]
        ids = [e["id"] for e in self.idle(sid, 2)]
        self.assertLess(ids.index(later), ids.index(answer), "the message came first, whatever was handled first")

    def test_or2_the_model_reads_each_answer_before_the_next_message(self):
        sid = self.new()
        self.until(sid, message(fake("delay 200", "text answer of A")), message("B"))
        said = [(m["role"], "".join(b["text"] for b in m["content"])) for m in self.last_request()]
        self.assertEqual([role for role, _ in said], ["user", "assistant", "user"])
        self.assertEqual((said[1][1], said[2][1]), ("answer of A", "B"))

    def test_or3_what_one_commit_writes_shares_one_instant(self):
        sid = self.new()
        events = self.until(sid, message("hello"))
        stored = {e["id"]: e for e in self.events(sid)}
        outputs = [stored[e["id"]] for e in events if e["type"] in ("user.message", "agent.message", "span.model_request_end", IDLE)]
        self.assertEqual(len({e["processed_at"] for e in outputs}), 1, "the input that was consumed and all that came of it")

    def test_or6_the_kind_of_a_result_follows_its_call(self):
        sid = self.new(CUSTOM, policy="always_allow")
        events = self.until(sid, message(fake('tool bash {"command":"true"}', 'tool lookup {"n":1}', 'tool no_such {}', "---", "text done")))
        self.send(sid, interrupt())
        kinds = {answered(r): r["type"] for r in results(self.events(sid))}
        self.assertEqual([kinds[c["id"]] for c in calls(events)], ["agent.tool_result", "user.custom_tool_result", "agent.tool_result"])

    def test_or8_a_page_holds_100_events_and_at_most_1000(self):
        sid = self.new()
        self.send(sid, *[interrupt()] * 100)
        self.send(sid, interrupt())
        self.assertEqual(len(self.client.get(f"/v1/sessions/{sid}/events")["data"]), 100)
        self.assertEqual(len(self.client.get(f"/v1/sessions/{sid}/events?limit=1000")["data"]), 101)
        self.assertEqual(self.client.raw("GET", f"/v1/sessions/{sid}/events?limit=1001")[0], 400)

    def test_or9_the_server_writes_only_types_of_the_contract(self):
        sid = self.new(CUSTOM, policy="always_allow")
        self.until(sid, message(fake("think hm", 'tool bash {"command":"true"}', 'tool lookup {"n":1}', "---", "@1 status 529 full", "text done")))
        self.send(sid, interrupt())
        self.until(sid, message(fake("@1 status 529 full", "text ok")), ends=(IDLE,))
        self.client.post(f"/v1/sessions/{sid}", {"title": "t"})
        self.assertLessEqual({e["type"] for e in self.events(sid)}, CONTRACT)


class Turns(TurnCase):
    def test_tu1_no_part_of_a_completion_is_seen_alone(self):
        """Every version of the row that a reader may see: idle with an open action means its event and its call are there."""
        for _ in range(5):
            sid = self.new(CUSTOM)
            self.send(sid, message(fake('tool lookup {"n":1}', "---", "text done")))
            look = (
                f"SELECT turn_step, open_actions, (SELECT count(*) FROM tool_calls c WHERE c.session_id = '{sid}' AND waits_for <> 'none'),"
                f" (SELECT count(*) FROM events e WHERE e.session_id = '{sid}' AND type = '{IDLE}'), transcript_len,"
                f" (SELECT count(*) FROM transcript t WHERE t.session_id = '{sid}') FROM session_state WHERE session_id = '{sid}'"
            )
            seen = wait_for("the barrier stands", lambda look=look: (lambda r: r if r[0] == "action" else self.assertEqual(r[1:4], ["0", "0", "0"]))(self.server.database.query(look)[0]))
            self.assertEqual(seen, ["action", "1", "1", "1", "2", "2"])

    def test_tu3_a_message_that_waits_starts_without_an_idle_between(self):
        sid = self.new()
        events = self.until(sid, message(fake("delay 200", "text one")), message("two"), message("three"))
        self.assertEqual((types(events).count(IDLE), types(events).count("session.status_running")), (1, 1))
        self.assertEqual([shown(e) for e in of(events, "agent.message")], ["one", "echo: two", "echo: three"])

    def test_tu4_an_idle_event_says_why(self):
        ends = {
            "end_turn": lambda: self.until(self.new(), message("hello")),
            "requires_action": lambda: self.until(self.new(CUSTOM), message(fake('tool lookup {"n":1}'))),
            "refusal": lambda: self.until(self.new(), message(fake("text no", "stop refusal"))),
            "retries_exhausted": lambda: self.until(self.new(), message(fake("too-long"))),
        }
        for why, run in ends.items():
            with self.subTest(why):
                last = run()[-1]
                self.assertEqual(reason(last), why)
                self.assertEqual("event_ids" in last["stop_reason"], why == "requires_action")

    def test_tu5_what_waits_behind_a_turn_that_is_given_up_is_processed_and_kept(self):
        sid = self.new()
        self.send(sid, message(fake("delay 3000", "stop no_such_reason")))
        self.send(sid, message("behind one"))
        self.send(sid, message("behind two"), {"type": "system.message", "content": [{"type": "text", "text": "with two"}]})
        events = self.idle(sid)
        self.assertEqual(reason(events[-1]), "retries_exhausted")
        self.assertEqual(len(of(events, "span.model_request_start")), 1, "none of them was tried")
        self.assertTrue(all(e["processed_at"] for e in events))
        self.until(sid, message("and now"))
        told = [b["text"] for m in self.last_request() if m["role"] == "user" for b in m["content"]]
        self.assertEqual(told[-6:], ["behind one", "behind two", "<system-message>", "with two", "</system-message>", "and now"])

    def test_tu6_an_endless_tool_loop_ends_with_an_error(self):
        sid = self.new()
        self.model.client.post("/script", {"responses": ["tool no_such {}"] * 200})
        events = self.until(sid, message("loop"), timeout=60)
        self.assertEqual(len(of(events, "span.model_request_start")), 200)
        self.assertEqual(of(events, "session.error")[-1]["error"]["type"], "tool_use_limit_reached_error")
        self.assertEqual(reason(events[-1]), "retries_exhausted")
        self.assert_goes_on(sid)

    def test_tu7_a_pause_is_continued_five_times_and_a_cut_text_three_times(self):
        for stop, n in (("pause_turn", 5), ("max_tokens", 3)):
            with self.subTest(stop):
                sid = self.new()
                self.model.client.post("/script", {"responses": [f"text part\nstop {stop}"] * (n + 1)})
                events = self.until(sid, message("go on"))
                self.assertEqual(len(of(events, "span.model_request_start")), n + 1)
                self.assertEqual(reason(events[-1]), "end_turn")
                self.assert_goes_on(sid)

    def test_tu8_an_answer_that_contradicts_itself_runs_nothing(self):
        for stop in ("end_turn", "stop_sequence", "pause_turn", "no_such_reason"):
            with self.subTest(stop):
                sid = self.new(policy="always_allow")
                events = self.until(sid, message(fake("text so", 'tool bash {"command":"touch /tmp/never-run"}', f"stop {stop}")))
                self.assertEqual(calls(events), [])
                self.assertIn(stop, of(events, "session.error")[-1]["error"]["message"])
                self.assertEqual(reason(events[-1]), "retries_exhausted")
                self.assert_goes_on(sid)
        sid = self.new(policy="always_allow")
        events = self.until(sid, message(fake("text but no call", "stop tool_use")))
        self.assertEqual(reason(events[-1]), "retries_exhausted")
        self.assert_goes_on(sid)

    def test_tu8_a_refusal_with_a_call_runs_nothing_and_leaves_no_open_call(self):
        sid = self.new(policy="always_allow")
        events = self.until(sid, message(fake('tool bash {"command":"touch /tmp/never-run"}', "stop refusal")))
        self.assertEqual((reason(events[-1]), calls(events)), ("refusal", []))
        self.assert_goes_on(sid)

    def test_tu9_calls_run_in_their_order_and_their_results_go_back_in_one_message(self):
        sid = self.new(policy="always_allow")
        path = f"{self.server.dir}/order"
        lines = ['tool bash {"command":"sleep 0.%d; echo %d >> %s; echo %d"}' % (3 - n, n, path, n) for n in range(3)]
        self.until(sid, message(fake(*lines, "---", "text done")))
        with open(path, encoding="ascii") as f:
            self.assertEqual(f.read().split(), ["0", "1", "2"])
        last = self.last_request()[-1]["content"]
        self.assertEqual([b["content"][0]["text"].strip() for b in last if b["type"] == "tool_result"], ["0", "1", "2"])

    def test_tu10_a_database_that_drops_its_connections_loses_no_result(self):
        sid = self.new(policy="always_allow")
        with self.client.stream(sid) as stream:
            gate = "connections-dropped"
            os.mkfifo(f"{self.server.dir}/{gate}")
            self.send(sid, message(fake(bash(f"cat {self.server.dir}/{gate}; echo survived"), "---", "text done")))
            stream.until("agent.tool_use")
            end = wait_for("the call runs", lambda: self.server.database.query(f"SELECT 1 FROM tool_calls WHERE session_id = '{sid}' AND state = 'started'"))
            self.assertTrue(end)
            self.server.database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
            pass_gate(lambda: [self.server.dir], gate)
        events = self.idle(sid)
        (result,) = results(events)
        self.assertEqual((shown(result).strip(), result["is_error"]), ("survived", False))
        self.assertEqual(reason(events[-1]), "end_turn")

    def test_tj4_a_sandbox_that_does_not_start_leaves_no_started_call(self):
        sid = self.new(policy="always_allow")
        self.until(sid, message(fake('tool bash {"command":"true"}', "---", "text done")))
        self.server.database.query(f"UPDATE sandboxes SET lost_at = now() WHERE session_id = '{sid}'")
        self.server.restart()
        events = self.until(sid, message(fake('tool bash {"command":"true"}', 'tool bash {"command":"true"}', "---", "text never")))
        self.assertEqual(reason(events[-1]), "retries_exhausted")
        self.assertEqual([answered(r) for r in results(events)], [c["id"] for c in calls(events)], "each call is answered all the same")
        started = self.server.database.query(f"SELECT count(*) FROM tool_calls WHERE session_id = '{sid}' AND started_at IS NOT NULL")
        self.assertEqual(started, [["1"]], "that of the first turn alone")

    def test_tj11_a_call_that_a_client_runs_makes_no_sandbox(self):
        sid = self.new(environment="self_hosted", policy="always_allow")
        self.until(sid, message(fake('tool bash {"command":"true"}', "---", "text done")), ends=("agent.tool_use",))
        self.send(sid, interrupt())
        for table in ("sandboxes", "sandbox_intents"):
            self.assertEqual(self.server.database.query(f"SELECT count(*) FROM {table} WHERE session_id = '{sid}'"), [["0"]])


if __name__ == "__main__":
    main()
