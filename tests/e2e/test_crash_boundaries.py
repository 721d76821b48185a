"""kill -9 of mangod at every commit boundary of a turn: after a restart the turn finishes or reports an ambiguous call; no event is lost, doubled or
reordered, and the tool's effect happens once at most.

The turn runs one tool, so it passes these commits (docs/architecture.md lists the hook names): admission, turn.response (the call), turn.call_started,
turn.call_completed, turn.response (the text). Each is hit before and after the COMMIT."""
import os
import unittest

from harness import Database, Mangod, main, wait_for
from rig import add_boundaries, killed, words_of

TTL = "2s"
POINTS = [
    ("admission.before", 1),
    ("admission.after", 1),
    ("turn.response.before", 1),
    ("turn.response.after", 1),
    ("turn.call_started.before", 1),
    ("turn.call_started.after", 1),
    ("turn.call_completed.before", 1),
    ("turn.call_completed.after", 1),
    ("turn.response.before", 2),
    ("turn.response.after", 2),
]
ENDS = ("end_turn", "retries_exhausted")


def idle_at_last(client, session_id):
    events = client.events(session_id)
    last = events[-1] if events else None
    if last and last["type"] == "session.status_idle" and last["stop_reason"]["type"] in ENDS:
        return events
    return None


class CrashBoundaries(unittest.TestCase):
    def check_log(self, events):
        ids = [e["id"] for e in events]
        self.assertEqual(len(ids), len(set(ids)), "an event is there twice")
        types = [e["type"] for e in events]
        self.assertEqual(types[0], "user.message")
        self.assertEqual(types.count("user.message"), 1)
        self.assertEqual(types.count("session.status_idle"), 1, types)
        self.assertEqual(types[-1], "session.status_idle")
        uses = [e["id"] for e in events if e["type"] == "agent.tool_use"]
        results = [e["tool_use_id"] for e in events if e["type"] == "agent.tool_result"]
        self.assertEqual(uses, results, "each call has one result, in order")
        starts = [e["id"] for e in events if e["type"] == "span.model_request_start"]
        ends = [e["model_request_start_id"] for e in events if e["type"] == "span.model_request_end"]
        self.assertEqual(starts, ends)
        for e in events:
            self.assertIsNotNone(e["processed_at"], e["type"])

    def one_boundary(self, point, nth):
        with Database() as db, Mangod(database=db, env={"MANGO_NODE_TTL": TTL}, binary="mangod-test") as m:
            effects = os.path.join(m.dir, "effects")
            session = m.client.new_session()
            before = m.client.events(session["id"])
            m.restart(hooks=f"{point}=kill:{nth}")
            killed(m, point, lambda: m.client.say(session["id"], f"run: echo once >> {effects}"))
            if not m.client.events(session["id"]):
                self.assertEqual(point, "admission.before", "an accepted event is gone")
                m.client.say(session["id"], f"run: echo once >> {effects}")
            events = wait_for("the turn ends after the restart", lambda: idle_at_last(m.client, session["id"]), timeout=40)
            self.assertEqual(before, [])
            self.check_log(events)
            lines = words_of(effects)
            self.assertLessEqual(len(lines), 1, "the command ran twice")
            result = next(e for e in events if e["type"] == "agent.tool_result")
            if not result.get("is_error"):
                self.assertEqual(lines, ["once"])
            else:
                self.assertIn("not run again", result["content"][0]["text"])
            # The session is as good as new.
            m.client.say(session["id"], "hello")
            wait_for(
                "the next message is answered", lambda: m.client.events(session["id"])[-1]["type"] == "session.status_idle", timeout=20
            )


add_boundaries(CrashBoundaries, POINTS)

if __name__ == "__main__":
    main()
