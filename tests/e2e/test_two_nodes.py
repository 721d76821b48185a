"""Two mangod on one PostgreSQL: one dies or freezes in mid-turn, the other takes over; late writes of the first are fenced; a stream on the survivor shows
everything, once and in order."""
import os
import signal
import threading
import unittest

from harness import Database, Mangod, main, wait_for
from rig import processes
from turns import GATE, NEVER, stop_while_it_waits, types

TTL = "2s"
ENV = {"MANGO_NODE_TTL": TTL}


def ended(client, session_id):
    events = client.events(session_id)
    return events if events and events[-1]["type"] == "session.status_idle" else None


class Follower(threading.Thread):
    """Reads a session's stream until it is idle."""

    def __init__(self, client, session_id):
        super().__init__(daemon=True)
        self.stream = client.stream(session_id, timeout=60)
        self.events, self.error = [], None
        self.start()

    def run(self):
        try:
            self.events = self.stream.until("session.status_idle")
        except BaseException as e:
            self.error = e

    def result(self):
        self.join(70)
        if self.error:
            raise self.error
        return self.events


class TwoNodes(unittest.TestCase):
    def pair(self, db):
        a = Mangod(database=db, env=ENV, binary="mangod-test")
        b = Mangod(database=db, env=ENV, binary="mangod-test")
        b.key = a.key
        b.client.key = a.key
        return a, b

    def start_long_call(self, a, session_id, wait=NEVER):
        """A tool call that is surely running: it says so in a file."""
        flag = os.path.join(a.dir, "begun")
        a.client.say(session_id, f"run: cd {a.dir}; touch {flag}; {wait}; echo done")
        wait_for("the call runs", lambda: os.path.exists(flag))

    def test_events_of_one_node_reach_streams_of_the_other(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                session = a.client.new_session(tools=False)
                follower = Follower(b.client, session["id"])
                a.client.say(session["id"], "hello")
                self.assertEqual(types(follower.result()), types(a.client.events(session["id"])))

    def test_a_killed_nodes_turn_goes_on_at_the_other(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                session = a.client.new_session()
                follower = Follower(b.client, session["id"])
                self.start_long_call(a, session["id"])
                a.kill()
                seen = follower.result()
                stored = b.client.events(session["id"])
                self.assertEqual([e["id"] for e in seen], [e["id"] for e in stored])
                result = next(e for e in stored if e["type"] == "agent.tool_result")
                self.assertTrue(result["is_error"])
                self.assertIn("not run again", result["content"][0]["text"])
                self.assertEqual(stored[-1]["stop_reason"]["type"], "end_turn")

    def test_a_frozen_nodes_late_writes_are_fenced(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                session = a.client.new_session()
                follower = Follower(b.client, session["id"])
                self.start_long_call(a, session["id"], "sleep 1")
                a.process.signal(signal.SIGSTOP)
                try:
                    seen = follower.result()  # b takes over while a stands still
                finally:
                    a.process.signal(signal.SIGCONT)
                stored = b.client.events(session["id"])
                self.assertEqual([e["id"] for e in seen], [e["id"] for e in stored])
                # a is back, its command has long ended: what it would have written must not appear.
                wait_for("the first node answers again", lambda: a.client.raw("GET", "/readyz")[0] == 200)
                a.client.say(session["id"], "hello")
                after = wait_for("the next turn ends", lambda: (ended(b.client, session["id"]) or [])[len(stored) :])
                self.assertNotIn("agent.tool_result", types(after))
                self.assertEqual(types(b.client.events(session["id"])).count("agent.tool_result"), 1)

    def test_a_clean_stop_hands_the_turn_on_without_waiting_for_the_lease(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                session = a.client.new_session()
                follower = Follower(b.client, session["id"])
                self.start_long_call(a, session["id"], GATE)
                self.assertEqual(stop_while_it_waits(a, a.dir), 0)
                stored = follower.result()
                self.assertEqual(stored[-1]["stop_reason"]["type"], "end_turn")
                self.assertEqual(types(stored).count("agent.tool_result"), 1)
                result = next(e for e in stored if e["type"] == "agent.tool_result")
                self.assertIn("done", result["content"][0]["text"], "the running call was given the time to end")

    def test_an_interrupt_at_one_node_stops_the_command_at_the_other(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                session = a.client.new_session()
                seconds = f"600.{a.port}"  # no other process of the machine sleeps so long
                self.start_long_call(a, session["id"], f"sleep {seconds}")
                b.client.post(f"/v1/sessions/{session['id']}/events", {"events": [{"type": "user.interrupt"}]})
                events = ended(b.client, session["id"])
                self.assertIsNotNone(events, "the interrupt's own commit holds the idle event")
                self.assertEqual(types(events).count("session.status_idle"), 1)
                wait_for("no process of the command is left", lambda: f"sleep {seconds}" not in processes(), timeout=10)


if __name__ == "__main__":
    main()
