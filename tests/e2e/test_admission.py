"""How client events enter a session: semantics AD1 to AD16, one test a statement (docs/semantics.md)."""
import threading

from api import ApiError
from harness import main, wait_for
from turns import IDLE, TurnCase, calls, confirmation, custom_result, fake, interrupt, message, of, reason, shown, system, text, tool_result, types


class Admission(TurnCase):
    def test_ad1_only_a_living_session_takes_input(self):
        archived, deleted, dead = self.new(), self.new(), self.new()
        self.client.post(f"/v1/sessions/{archived}/archive")
        self.client.delete(f"/v1/sessions/{deleted}")
        self.until(dead, message(fake("status 401 no")))
        for sid, status, word in (
            ("sesn_00000000000000000000000000", 404, "does not exist"),
            (deleted, 404, "does not exist"),
            (archived, 409, "archived"),
            (dead, 409, "terminated"),
        ):
            with self.subTest(word), self.assertRaises(ApiError) as caught:
                self.send(sid, message("x"))
            self.assertEqual(caught.exception.status, status)
            self.assertIn(word, caught.exception.message)

    def test_ad2_a_client_cannot_forge_what_the_server_writes(self):
        sid = self.new()
        for kind in ("agent.message", "agent.tool_result", "session.status_idle", "session.error", "span.model_request_end", "no.such"):
            with self.subTest(kind):
                self.assertIn("events[0].type", self.refused(400, sid, {"type": kind, "content": text("x")}))

    def test_ad3_a_batch_commits_wholly_or_not_at_all(self):
        sid, (call,) = self.parked()
        for bad in (
            custom_result("sevt_none"),
            {"type": "user.message"},
            custom_result(call, is_error="no"),
            system("first"),  # not the last one
        ):
            with self.subTest(bad["type"]):
                self.assertIn("events[1]", self.refused(400, sid, custom_result(call), bad, message("x")))
        self.until(sid, custom_result(call))

    def test_ad4_the_answer_lists_what_was_sent_in_its_order_and_no_companion(self):
        sid, _ = self.parked()
        answer = self.send(sid, message("one"), interrupt(), message("two"), system("three"))
        self.assertEqual(types(answer), ["user.message", "user.interrupt", "user.message", "system.message"])
        stored = {e["id"]: e for e in self.events(sid)}
        for e in answer:
            self.assertEqual(stored[e["id"]].get("content"), e.get("content"))

    def test_ad6_a_system_message_is_last_and_directly_follows_what_it_belongs_to(self):
        sid, (call,) = self.parked()
        for events in (
            [system("alone")],
            [message("m"), system("one"), system("two")],
            [message("m"), system("one"), message("n")],
            [interrupt(), system("one")],
            [custom_result(call), message("m"), interrupt(), system("one")],
        ):
            with self.subTest(types(events)):
                self.assertIn("system.message", self.refused(400, sid, *events))

    def test_ad6_a_system_message_reaches_the_model_with_the_result_before_it_and_no_other_message(self):
        sid, ids = self.parked(2)
        self.send(sid, message("later"))
        self.send(sid, custom_result(ids[0], "red"), system("steer left"))
        events = self.until(sid, custom_result(ids[1], "blue"))
        self.assertEqual(reason(events[-1]), "end_turn")
        bodies = [str(r["body"]["messages"]) for r in self.model.requests() if sid and "steer left" in str(r["body"])]
        self.assertNotIn("later", bodies[0], "the queued message has not been told yet")
        self.assertLess(bodies[0].index("blue"), bodies[0].index("steer left"))
        self.assertIn("later", bodies[-1])
        self.assertEqual(bodies[-1].count("steer left"), 1)
        self.assertTrue(all(e["processed_at"] for e in self.events(sid)))

    def test_ad6_an_interrupt_keeps_the_system_message_of_a_partial_answer(self):
        sid, ids = self.parked(2)
        self.send(sid, custom_result(ids[0]), system("remember the gate"))
        self.send(sid, interrupt())
        self.assertTrue(all(e["processed_at"] for e in self.events(sid)))
        self.until(sid, message("and now"))
        self.assertIn("remember the gate", str(self.last_request()))

    def test_ad7_numbers_have_no_gap_whoever_writes_at_the_same_time(self):
        sid = self.new()
        threads = [threading.Thread(target=self.send, args=(sid, message(f"m{i}"), message(f"n{i}"))) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        events = wait_for("all are answered", lambda: (lambda ev: ev if len(of(ev, "agent.message")) == 16 and ev[-1]["type"] == IDLE else None)(self.events(sid)))
        seqs = [int(r[0]) for r in self.server.database.query(f"SELECT seq FROM events WHERE session_id = '{sid}' ORDER BY seq")]
        self.assertEqual(seqs, list(range(1, len(events) + 1)))
        sent = [shown(e) for e in of(events, "user.message")]
        for i in range(8):
            self.assertEqual(sent.index(f"n{i}"), sent.index(f"m{i}") + 1, "a batch was torn apart")

    def test_ad8_processed_at_tells_queued_input_from_consumed(self):
        sid, (call,) = self.parked()
        queued = self.send(sid, message("later"))[0]
        self.assertIsNone(queued["processed_at"])
        result = self.send(sid, custom_result(call))[0]
        self.assertIsNotNone(result["processed_at"])
        self.assertIsNotNone(self.send(self.new(), interrupt())[0]["processed_at"], "handled by the commit that admits it")
        asked, (gate,) = self.asked()
        self.assertIsNotNone(self.send(asked, confirmation(gate))[0]["processed_at"], "handled by the commit that admits it")
        self.assertTrue(all(e["processed_at"] for e in self.idle(sid, 2)))

    def test_ad9_no_internal_member_is_shown(self):
        sid, (call,) = self.parked()
        self.until(sid, custom_result(call))
        known = {"id", "type", "processed_at", "content", "name", "input", "stop_reason", "stop_details", "custom_tool_use_id",
                 "model_request_start_id", "is_error", "model_usage"}  # fmt: skip
        for e in self.events(sid):
            self.assertLessEqual(set(e), known, e)

    def test_ad10_accepted_input_and_its_claim_are_one_commit(self):
        sid = self.new()
        self.send(sid, message(fake("delay 60000", "text x")))
        row = f"SELECT turn_step, turn_node IS NOT NULL, st.xmin = e.xmin FROM session_state st, events e WHERE st.session_id = '{sid}' AND e.session_id = '{sid}' AND e.seq = 1"
        self.assertEqual(self.server.database.query(row), [["model", "t", "t"]])
        self.send(sid, interrupt())

    def test_ad12_a_message_behind_a_barrier_waits_without_a_sign(self):
        sid, (call,) = self.parked()
        before = self.events(sid)
        self.send(sid, message("behind"))
        self.assertEqual(types(self.events(sid)[len(before) :]), ["user.message"])
        self.assertEqual(self.status(sid), "idle")
        events = self.until(sid, custom_result(call))
        self.assertEqual(reason(events[-1]), "end_turn")
        said = [shown(e) for e in of(events, "agent.message")]
        self.assertEqual(said, ["done", "echo: behind"], "the barrier's turn ends first, then the message is answered")
        self.assertEqual(len(of(events, IDLE)), 1)

    def test_ad13_a_system_message_behind_a_message_is_refused_while_gated(self):
        sid, ids = self.parked(2)
        self.assertIn("wait for a client", self.refused(400, sid, message("m"), system("s")))
        self.assertIn("wait for a client", self.refused(400, sid, custom_result(ids[0]), message("m"), system("s")))
        events = self.until(sid, custom_result(ids[0]), custom_result(ids[1]), message("m"), system("s"))
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assertIn("<system-message>s", "".join(b["text"] for b in self.last_request()[-1]["content"]))

    def test_ad14_a_message_during_the_back_off_is_queued_without_running(self):
        sid = self.new()
        self.until(sid, message(fake("header retry-after: 4", "@1 status 529 full", "text done")), ends=("session.status_rescheduled",))
        before = len(self.events(sid))
        self.send(sid, message("behind"))
        self.assertEqual(self.status(sid), "rescheduling")
        self.assertEqual(types(self.events(sid)[before:]), ["user.message"])
        events = self.idle(sid)
        self.assertEqual([shown(e) for e in of(events, "agent.message")], ["done", "echo: behind"])

    def test_ad16_a_repeated_result_is_the_same_result_and_never_a_second_one(self):
        sid, (call,) = self.parked()
        first = self.send(sid, custom_result(call, "red"), system("s"))
        self.idle(sid, 2)
        stored = self.events(sid)
        again = self.send(sid, custom_result(call, "red"), system("s"))
        self.assertEqual([e["id"] for e in again], [e["id"] for e in first])
        self.assertIn("already answered", self.refused(409, sid, custom_result(call, "blue")))
        self.assertIn("without this", self.refused(409, sid, custom_result(call, "red"), system("other")))
        self.assertEqual(self.events(sid), stored)

    def test_ad16_a_result_twice_in_one_batch_is_one_event(self):
        sid, ids = self.parked(2)
        answer = self.send(sid, custom_result(ids[0], "red"), custom_result(ids[0], "red"))
        self.assertEqual(answer[0], answer[1])
        self.assertEqual(len(of(self.events(sid), "user.custom_tool_result")), 1)
        self.assertIn("events[1]", self.refused(409, sid, custom_result(ids[1], "a"), custom_result(ids[1], "b")))

    def test_ids_that_are_wrong_or_foreign_are_refused_by_name(self):
        sid, (call,) = self.parked()
        other, (foreign,) = self.parked()
        first = self.events(sid)[0]["id"]
        for event, words in (
            (custom_result("sevt_00000000000000000000000000"), "no tool call"),
            (custom_result(foreign), "no tool call"),
            (custom_result(first), "no tool call"),
            (tool_result(call), "user.custom_tool_result"),
            (confirmation(call), "user.custom_tool_result"),
            (custom_result(call, session_thread_id="sthr_00000000000000000000000000"), "session_thread_id"),
            ({"type": "user.custom_tool_result", "content": []}, "custom_tool_use_id"),
        ):
            with self.subTest(words):
                self.assertIn(words, self.refused(400, sid, event))
        self.assertEqual(calls(self.events(other))[0]["id"], foreign)


if __name__ == "__main__":
    main()
