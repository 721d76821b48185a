"""Interrupts: semantics IN1 to IN9, one test a statement (docs/semantics.md). The races are in test_races.py; what an interrupt does at another replica is in
test_two_nodes.py; the stops of every state in test_fencing.py."""
import glob
import os
import threading
import time
import unittest

from harness import main, wait_for
from rig import replicas
from turns import IDLE, TurnCase, answered, calls, fake, interrupt, message, of, reason, results, shown, types

STOP_S = 1.0  # from the interrupt's POST until nothing of the command is left


def running(mark):
    """Whether a process holds this text in its command line."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                if mark in f.read().decode(errors="replace"):
                    return True
        except OSError:
            pass
    return False


class Interrupts(TurnCase):
    def started(self, sid, *lines):
        """Sends a message whose first call is a command that runs until it is stopped; returns a text of its process's command line."""
        mark = "600.%d" % int.from_bytes(os.urandom(4), "big")
        self.send(sid, message(fake('tool bash {"command":"sleep %s"}' % mark, *lines)))
        wait_for("the command runs", lambda: running(mark))
        return mark

    def test_in1_an_interrupt_and_the_end_of_a_turn_take_the_same_lock(self):
        """Each of many interrupts hits the turn or comes behind it: the log says which, and never both."""
        hits = 0
        for n in range(20):
            sid = self.new()
            with self.client.stream(sid) as stream:
                self.send(sid, message(fake(f"delay {n * 2}", "text done")))
                time.sleep(n / 500)  # about as long as the answer takes
                self.send(sid, interrupt())
                stream.until(IDLE)
            events = self.events(sid)
            kinds = types(events)
            self.assertEqual(kinds.count(IDLE), 1, kinds)
            hit = kinds.index("user.interrupt") < kinds.index(IDLE)
            self.assertEqual("agent.message" in kinds, not hit, kinds)
            hits += hit
        self.assertLess(hits, 21)

    def test_in2_what_is_done_is_kept_and_what_is_not_gets_an_answer_of_the_server(self):
        sid = self.new(policy="always_allow")
        mark = "600.%d" % int.from_bytes(os.urandom(4), "big")
        lines = ["text I begin.", 'tool bash {"command":"echo first"}', 'tool bash {"command":"sleep %s"}' % mark, 'tool bash {"command":"echo third"}']
        self.send(sid, message(fake(*lines, "---", "text never")))
        wait_for("the second command runs", lambda: running(mark))
        self.send(sid, interrupt())
        events = self.events(sid)
        self.assertEqual([answered(r) for r in results(events)], [c["id"] for c in calls(events)])
        done, killed, unstarted = results(events)
        self.assertEqual((shown(done).strip(), done["is_error"]), ("first", False))
        self.assertIn("not known", shown(killed))
        self.assertIn("was not run", shown(unstarted))
        self.assertEqual([killed["is_error"], unstarted["is_error"]], [True, True])
        states = self.server.database.query(f"SELECT state FROM tool_calls WHERE session_id = '{sid}' ORDER BY ordinal")
        self.assertEqual(states, [["completed"], ["ambiguous"], ["completed"]])
        self.assertEqual(types(events).count(IDLE), 1)
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assert_goes_on(sid)
        self.assertIn("I begin.", str(self.last_request()), "committed text stays")

    def test_in2_a_message_that_waits_runs_behind_the_idle_event(self):
        sid = self.new(policy="always_allow")
        self.started(sid, "---", "text never")
        self.send(sid, message("queued"))
        with self.client.stream(sid) as stream:
            self.send(sid, interrupt(), message("sent along"))
            first, second = stream.until(IDLE), stream.until(IDLE)
        self.assertEqual(types(second)[:2], ["user.message", "session.status_running"])
        self.assertEqual(reason(first[-1]), "end_turn")
        self.assertEqual([shown(e) for e in of(second, "agent.message")], ["echo: queued", "echo: sent along"])

    def test_in3_an_interrupt_behind_the_turn_does_nothing_and_cancels_no_later_turn(self):
        sid = self.new()
        self.until(sid, message("hello"))
        stored = self.send(sid, interrupt())[0]
        self.assertIsNotNone(stored["processed_at"])
        self.assertEqual(types(self.events(sid))[-1], "user.interrupt")
        events = self.until(sid, message("again"))
        self.assertEqual([shown(e) for e in of(events, "agent.message")], ["echo: again"])

    def test_in3_interrupts_of_a_session_that_never_ran(self):
        sid = self.new()
        self.send(sid, interrupt(), interrupt())
        self.assertEqual(types(self.events(sid)), ["user.interrupt"] * 2)
        self.assertEqual(self.status(sid), "idle")
        self.assert_goes_on(sid)

    def test_in4_an_interrupt_alone_shows_no_activity(self):
        sid, _ = self.parked()
        before = len(self.events(sid))
        self.send(sid, interrupt())
        self.assertNotIn("session.status_running", types(self.events(sid)[before:]))

    def test_in5_an_interrupt_of_a_barrier_closes_it_and_asks_no_model(self):
        """Here the design overrides the reference: an interrupt answers the calls it kills (field case 3)."""
        for what in ("custom", "asked", "self_hosted"):
            with self.subTest(what):
                if what == "custom":
                    sid, ids = self.parked(2)
                else:
                    sid, ids = self.asked("true", "true", environment="self_hosted" if what == "self_hosted" else "cloud")
                requests = len(self.model.requests())
                self.send(sid, interrupt())
                events = self.events(sid)
                self.assertEqual([answered(r) for r in results(events)], ids)
                self.assertEqual([r["is_error"] for r in results(events)], [True, True])
                kind = {"custom": "user.custom_tool_result", "asked": "agent.tool_result", "self_hosted": "user.tool_result"}[what]
                self.assertEqual(types(results(events)), [kind, kind])
                self.assertEqual((types(events).count(IDLE), reason(events[-1])), (2, "end_turn"))
                self.assertEqual(len(self.model.requests()), requests)
                self.assert_goes_on(sid)

    def test_in6_a_thread_that_is_not_there_is_named(self):
        sid = self.new()
        self.assertIn("session_thread_id", self.refused(400, sid, {**interrupt(), "session_thread_id": "sthr_00000000000000000000000000"}))
        primary = self.client.get(f"/v1/sessions/{sid}/threads")["data"][0]["id"]
        self.send(sid, {**interrupt(), "session_thread_id": primary})

    def test_in7_the_next_request_pairs_every_call(self):
        sid = self.new(policy="always_allow")
        self.started(sid, 'tool bash {"command":"echo never"}', "---", "text never")
        self.send(sid, interrupt())
        self.until(sid, message("hello"))
        messages = self.last_request()
        uses = [b["id"] for m in messages if m["role"] == "assistant" for b in m["content"] if b["type"] == "tool_use"]
        told = [b for m in messages if m["role"] == "user" for b in m["content"] if b["type"] == "tool_result"]
        self.assertEqual([b["tool_use_id"] for b in told], uses)
        self.assertTrue(all(b["is_error"] for b in told))

    def test_in7_an_interrupt_of_each_step_leaves_a_session_that_goes_on(self):
        def model(sid):
            self.send(sid, message(fake("text tortoise", "delay 60000", "text never")))
            self.requested(sid and "tortoise")

        def backoff(sid):
            self.until(sid, message(fake("header retry-after: 30", "status 529 full")), ends=("session.status_rescheduled",))

        def second_request(sid):
            self.send(sid, message(fake('tool bash {"command":"echo hi"}', "---", "delay 60000", "text never")))
            wait_for("the second request is made", lambda: len(of(self.events(sid), "span.model_request_start")) == 2)

        for enter in (model, backoff, second_request):
            with self.subTest(enter.__name__):
                sid = self.new(policy="always_allow")
                enter(sid)
                self.send(sid, interrupt())
                events = self.events(sid)
                self.assertEqual((events[-1]["type"], reason(events[-1])), (IDLE, "end_turn"))
                self.assertEqual(types(events).count(IDLE), 1)
                starts, ends = of(events, "span.model_request_start"), of(events, "span.model_request_end")
                self.assertEqual([e["id"] for e in starts], [e["model_request_start_id"] for e in ends])
                self.assertTrue(all(e["processed_at"] for e in events))
                self.assert_goes_on(sid)

    def test_in8_a_running_command_is_gone_within_a_second(self):
        """Measured from the interrupt's POST to the end of the command's last process, through the adapter `local`."""
        for command in ("sleep %s", "trap '' INT TERM HUP; sleep %s", "sleep %s | sleep 601", "(while :; do sleep %s; done)"):
            with self.subTest(command):
                took = [self.seconds_to_stop(command)]
                while min(took) > STOP_S and len(took) < 3:  # a busy machine may hold up one try
                    took.append(self.seconds_to_stop(command))
                self.assertLess(min(took), STOP_S, took)

    def seconds_to_stop(self, command):
        sid = self.new(policy="always_allow")
        mark = "600.%d" % int.from_bytes(os.urandom(4), "big")
        self.send(sid, message(fake('tool bash {"command":"%s"}' % (command % mark), "---", "text never")))
        wait_for("the command runs", lambda: running(mark))
        start = time.monotonic()
        self.send(sid, interrupt())
        wait_for("nothing of it is left", lambda: not running(mark), 10)
        self.assertEqual(types(self.events(sid)).count(IDLE), 1)
        return time.monotonic() - start

    def test_many_interrupts_at_once_are_one_idle_event(self):
        sid = self.new(policy="always_allow")
        self.started(sid, "---", "text never")
        threads = [threading.Thread(target=self.send, args=(sid, interrupt())) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        events = self.events(sid)
        self.assertEqual(types(events).count("user.interrupt"), 8)
        self.assertEqual(types(events).count(IDLE), 1)
        self.assertEqual(len(results(events)), 1)


class OtherReplica(unittest.TestCase):
    def test_in8_a_command_at_another_replica_is_gone_within_two_seconds(self):
        """The wake-up between the replicas is on its way for some milliseconds; the second is the adapter's."""
        with replicas() as (_, [a, b]):
            sid = a.client.new_session()["id"]
            mark = "600.%d" % int.from_bytes(os.urandom(4), "big")
            a.client.say(sid, f"run: sleep {mark}")
            wait_for("the command runs", lambda: running(mark))
            start = time.monotonic()
            b.client.post(f"/v1/sessions/{sid}/events", {"events": [interrupt()]})
            wait_for("nothing of it is left", lambda: not running(mark), 10)
            self.assertLess(time.monotonic() - start, 2 * STOP_S)


if __name__ == "__main__":
    main()
