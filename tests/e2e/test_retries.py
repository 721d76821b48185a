"""Failures of the model endpoint: semantics RT1 to RT7 (docs/semantics.md). What each failure becomes is in test_model_turns.py, and that a back-off survives a
restart."""
import datetime
import threading
import unittest

from harness import FakeModel, Mangod, main, wait_for
from rig import metrics
from turns import IDLE, TERMINATED, TurnCase, fake, interrupt, message, of, reason, shown, types


def at(event):
    return datetime.datetime.fromisoformat(event["processed_at"].replace("Z", "+00:00")).timestamp()


class Retries(TurnCase):
    def test_rt1_an_error_and_its_status_are_one_commit_and_going_on_says_running(self):
        sid = self.new()
        events = self.until(sid, message(fake("@1 status 529 full", "text done")))
        kinds = types(events)
        n = kinds.index("session.error")
        self.assertEqual(kinds[n - 1 : n + 4], ["span.model_request_end", "session.error", "session.status_rescheduled", "session.status_running", "span.model_request_start"])
        seen = self.server.database.query(
            f"SELECT count(DISTINCT xmin::text) FROM events WHERE session_id = '{sid}' AND type IN ('session.error', 'session.status_rescheduled')"
        )
        self.assertEqual(seen, [["1"]])
        self.assertEqual(events[n]["error"]["retry_status"], {"type": "retrying"})

    def test_rt2_three_attempts_a_second_and_two_apart_with_a_quarter_of_jitter(self):
        sid = self.new()
        events = self.until(sid, message(fake("status 500 oops")))
        starts, ends = of(events, "span.model_request_start"), of(events, "span.model_request_end")
        self.assertEqual(len(starts), 3)
        for n, (low, high) in enumerate(((1, 1.25), (2, 2.5))):
            pause = at(starts[n + 1]) - at(ends[n])
            self.assertGreaterEqual(pause, low)
            self.assertLess(pause, high + 2)  # the machine may be busy

    def test_rt2_retry_after_is_obeyed(self):
        sid = self.new()
        events = self.until(sid, message(fake("@1 header retry-after: 3", "@1 status 429 slow", "text done")))
        starts, ends = of(events, "span.model_request_start"), of(events, "span.model_request_end")
        self.assertGreaterEqual(at(starts[1]) - at(ends[0]), 3)

    def test_rt3_the_last_failure_leaves_a_session_and_a_permanent_one_ends_it(self):
        sid, dead = self.new(), self.new()
        events = self.until(sid, message(fake("status 529 full")))
        self.assertEqual([e["error"]["retry_status"]["type"] for e in of(events, "session.error")], ["retrying", "retrying", "exhausted"])
        self.assertEqual(reason(events[-1]), "retries_exhausted")
        self.assert_goes_on(sid)
        events = self.until(dead, message(fake("status 401 no")))
        self.assertEqual((events[-1]["type"], of(events, "session.error")[-1]["error"]["retry_status"]["type"]), (TERMINATED, "terminal"))

    def test_rt4_a_database_that_goes_away_costs_no_attempt(self):
        sid = self.new()
        self.send(sid, message(fake("delay 800", "text survived")))
        self.server.database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        events = self.idle(sid)
        self.assertEqual([shown(e) for e in of(events, "agent.message")], ["survived"])
        self.assertEqual((of(events, "session.error"), len(of(events, "span.model_request_start"))), ([], 1))

    def test_rt5_each_status_has_its_class(self):
        table = (
            (408, "model_request_failed_error", "retrying"),
            (409, "model_request_failed_error", "retrying"),
            (429, "model_rate_limited_error", "retrying"),
            (500, "model_request_failed_error", "retrying"),
            (504, "model_request_failed_error", "retrying"),
            (529, "model_overloaded_error", "retrying"),
            (402, "billing_error", "terminal"),
            (400, "model_request_failed_error", "terminal"),
            (403, "model_request_failed_error", "terminal"),
            (404, "model_request_failed_error", "terminal"),
            (413, "compaction_limit_reached_error", "exhausted"),
        )
        for status, kind, retry in table:
            with self.subTest(status):
                sid = self.new()
                events = self.until(sid, message(fake(f"status {status} because")), ends=("session.error",))
                error = events[-1]["error"]
                self.assertEqual((error["type"], error["retry_status"]["type"]), (kind, retry))
                if retry == "retrying":
                    self.send(sid, interrupt())

    def test_rt7_a_message_of_the_endpoint_is_cleaned_and_cut_at_a_character(self):
        key = "sk-ant-api03-" + "x" * 40
        sid = self.new()
        events = self.until(sid, message(fake("status 401 the key test-key-of-the-model and %s are \x07bad %s" % (key, "é" * 600))), ends=(TERMINATED, IDLE))
        shown_message = of(events, "session.error")[-1]["error"]["message"]
        self.assertNotIn(key, shown_message)
        self.assertNotIn("test-key-of-the-model", shown_message)
        self.assertNotIn("\x07", shown_message)
        self.assertLessEqual(len(shown_message.encode()), 512)
        self.assertNotIn("\ufffd", shown_message)


class Storm(unittest.TestCase):
    def test_case_85_sessions_that_meet_an_overloaded_endpoint_at_once_share_a_pace_and_all_end_well(self):
        """tests/unit/test-gate.c has the case at its full size, on a clock of its own; here sixty real sessions meet an endpoint that refuses each of them
        once."""
        with FakeModel(record=False) as model, Mangod(model_url=model.url) as m:
            sids = [m.client.new_session(tools=False)["id"] for _ in range(60)]
            threads = [threading.Thread(target=m.client.say, args=(sid, fake("@1 status 529 full", f"text {sid}"))) for sid in sids]
            for t in threads:
                t.start()
            paced = wait_for("the endpoint's refusals set a pace", lambda: metrics(m.client)["mango_model_pace"])
            self.assertGreaterEqual(paced, 2)
            for t in threads:
                t.join()
            starts = []
            for sid in sids:
                events = wait_for("each session ends", lambda s=sid: (lambda ev: ev if ev[-1]["type"] == IDLE else None)(m.client.events(s)), 60)
                self.assertEqual([shown(e) for e in of(events, "agent.message")], [sid])
                self.assertEqual(reason(events[-1]), "end_turn")
                starts += [at(e) for e in of(events, "agent.message")]
            self.assertGreater(max(starts) - min(starts), 2, "the retries came all at once")


if __name__ == "__main__":
    main()
