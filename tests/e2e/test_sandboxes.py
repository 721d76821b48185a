#!/usr/bin/env python3
"""The sandboxes of sessions as an operator sees them: `mango sandbox`, orphans, the end of a session whose backend is away."""
import os
import unittest

from harness import Database, Mangod, main, wait_for
from test_cli import Cli


def folders(m, backend="local"):
    path = os.path.join(m.dir, "state", backend)
    return sorted(name for name in os.listdir(path) if name.startswith("session-")) if os.path.isdir(path) else []


def run(m, session, command):
    """Says it and waits for the end of the turn; the turn's events."""
    before = len(m.client.events(session["id"]))
    m.client.say(session["id"], "run: " + command)

    def ended():
        events = m.client.events(session["id"])[before:]
        return events if events and events[-1]["type"] == "session.status_idle" else None

    return wait_for("the turn ends", ended, timeout=40)


def text_of(events):
    return " ".join(b.get("text", "") for e in events if e["type"] == "agent.tool_result" for b in e["content"])


class Operator(unittest.TestCase):
    def test_list_shows_what_sessions_have_and_destroy_is_said_by_the_session(self):
        with Mangod() as m:
            cli = Cli(m)
            self.assertEqual(cli.lines("sandbox", "list"), [])
            session = m.client.new_session()
            run(m, session, "echo kept > file")
            row = cli.lines("sandbox", "list")[0]
            self.assertEqual((row["session_id"], row["state"], row["backend"]), (session["id"], "bound", "local"))
            self.assertEqual([row["id"]], folders(m))
            self.assertIn(session["id"], cli("sandbox", "list", "--format", "text").stdout)
            self.assertEqual(cli.lines("sandbox", "orphans"), [])
            cli("sandbox", "destroy", session["id"])
            self.assertEqual(folders(m), [])
            self.assertEqual(cli.lines("sandbox", "list")[0]["state"], "lost")

            def lost():
                return "lost" in str(run(m, session, "cat file"))

            wait_for("the session says that its workspace is lost", lost, timeout=40)
            self.assertEqual(folders(m), [], "an empty workspace was put in its place")
            self.assertIn("has no sandbox", cli("sandbox", "destroy", m.client.new_session()["id"], status=1).stderr)
            m.client.delete(f"/v1/sessions/{session['id']}")
            wait_for("nothing is left of it", lambda: cli.lines("sandbox", "list") == [], timeout=30)

    def test_orphans_are_listed_and_go_by_hand(self):
        with Database() as db, Mangod(database=db) as m:
            cli = Cli(m)
            kept, lost = m.client.new_session(), m.client.new_session()
            run(m, kept, "true")
            run(m, lost, "true")
            db.query(f"DELETE FROM sandboxes WHERE session_id = '{lost['id']}'")
            orphan = cli.lines("sandbox", "orphans")
            self.assertEqual([o["state"] for o in orphan], ["orphan"])
            self.assertEqual([o["state"] for o in cli.lines("sandbox", "orphans", "--destroy")], ["young"])
            self.assertEqual(len(folders(m)), 2)
            self.assertIn("--destroy", cli("sandbox", "orphans", "--now", status=2).stderr)
            self.assertEqual([o["state"] for o in cli.lines("sandbox", "orphans", "--destroy", "--now")], ["destroyed"])
            self.assertEqual([r["id"] for r in cli.lines("sandbox", "list")], folders(m))

    def test_the_server_destroys_orphans_after_their_grace(self):
        with Database() as db, Mangod(database=db, env={"MANGO_SANDBOX_ORPHAN_GRACE": "1s"}) as m:
            kept, lost = m.client.new_session(), m.client.new_session()
            run(m, kept, "true")
            run(m, lost, "true")
            db.query(f"DELETE FROM sandboxes WHERE session_id = '{lost['id']}'")
            wait_for("the orphan is gone", lambda: len(folders(m)) == 1, timeout=40)
            self.assertIn("ok", text_of(run(m, kept, "echo ok")))


if __name__ == "__main__":
    main()
