#!/usr/bin/env python3
"""kill -9 of mangod at every commit boundary in the life of a sandbox: create, bind, attach, commands, delete. Afterwards nothing is left that no
binding names, and nothing that a binding names is gone.

It runs with the backend `local`; test_srt_chaos.py and test_docker_chaos.py run it with others, and so does MANGO_TEST_CHAOS_SANDBOX=NAME, with the settings of that
one (DOCKER_*, MANGO_NAME_*, MANGO_SANDBOX_*) from the environment. Folders and processes are looked at where the backend is of this machine; elsewhere the service's own
list says what is there."""
import os
import random
import subprocess
import unittest

from api import ApiError
from harness import Database, Mangod, main, wait_for
from rig import killed
from test_cli import Cli
from test_sandboxes import folders, run, text_of

BACKEND = os.environ.get("MANGO_TEST_CHAOS_SANDBOX", "local")
OF_THIS_MACHINE = ("local", "srt")
WAIT_S = 90
# Passed by the first turn of a session, in this order; and by its second one, after a restart.
FIRST = [
    ("sandbox.before_create", 1),
    ("sandbox.after_create", 1),
    ("sandbox.after_bind", 1),
    ("turn.call_started.before", 1),
    ("turn.call_started.after", 1),
    ("turn.call_completed.before", 1),
]
SECOND = [("sandbox.before_advance", 1)]
DELETE = [
    ("session_delete.after", 1),
    ("sandbox.before_destroy", 1),
    ("sandbox.after_destroy", 1),
    ("sandbox.after_unbind", 1),
    ("session.before_remove", 1),
]


def settings():
    prefixes = ("DOCKER_", f"MANGO_{BACKEND.upper().replace('-', '_')}_", "MANGO_SANDBOX_")
    out = {k: v for k, v in os.environ.items() if k.startswith(prefixes)}
    return dict(out, MANGO_NODE_TTL="2s", MANGO_SANDBOX_ORPHAN_GRACE="1s")


def sleepers(mark):
    return subprocess.run(["pgrep", "-f", f"^sleep {mark}$"], capture_output=True, text=True, check=False).stdout.split()


class Life(unittest.TestCase):
    """What happens to sandboxes, and what must be true afterwards. No tests."""

    def setUp(self):
        self.mark = str(random.randint(10_000_000, 90_000_000))

    def there(self, m):
        """What is there of sandboxes, seen without the server; None where only the service could tell."""
        return folders(m, BACKEND) if BACKEND in OF_THIS_MACHINE else None

    def server(self, db):
        return Mangod(database=db, env=settings(), binary="mangod-test", sandbox=BACKEND)

    def settled(self, m, session):
        wait_for("the turn is over", lambda: m.client.get(f"/v1/sessions/{session['id']}")["status"] == "idle", WAIT_S)

    def all_is_owned(self, m, sessions):
        """Exactly the sandboxes of these sessions are there, and they work."""
        cli = Cli(m)
        wait_for("no orphan is left", lambda: cli.lines("sandbox", "orphans") == [], WAIT_S)
        rows = cli.lines("sandbox", "list")
        self.assertEqual(sorted(r["session_id"] for r in rows), sorted(s["id"] for s in sessions))
        self.assertEqual({r["state"] for r in rows}, {"bound"} if sessions else set())
        there = self.there(m)
        if there is not None:
            self.assertEqual(there, sorted(r["id"] for r in rows))
        for s in sessions:
            self.assertIn("alive", text_of(run(m, s, "echo alive")))

    def delete(self, m, session):
        try:
            m.client.delete(f"/v1/sessions/{session['id']}")
        except ApiError as e:
            self.assertEqual(e.status, 404)

    def nothing_left(self, m):
        wait_for("all rows are gone", lambda: Cli(m).lines("sandbox", "list") == [], WAIT_S)
        self.all_is_owned(m, [])
        if self.there(m) is not None:
            wait_for("no process is left", lambda: sleepers(self.mark) == [], WAIT_S)

    def begin(self, m, session):
        """A command that leaves a child behind, and a file."""
        m.client.say(session["id"], f"run: echo kept > file; sleep {self.mark} >/dev/null 2>&1 &")


class Chaos(Life):
    def first_turn(self, point, nth):
        with Database() as db, self.server(db) as m:
            session = m.client.new_session()
            m.restart(hooks=f"{point}=kill:{nth}")
            killed(m, point, lambda: self.begin(m, session))
            self.settled(m, session)
            self.all_is_owned(m, [session])
            self.delete(m, session)
            self.nothing_left(m)

    def second_turn(self, point, nth):
        with Database() as db, self.server(db) as m:
            session = m.client.new_session()
            run(m, session, "echo kept > file")
            m.restart(hooks=f"{point}=kill:{nth}")
            killed(m, point, lambda: m.client.say(session["id"], "run: cat file"))
            self.settled(m, session)
            self.assertIn("kept", text_of(run(m, session, "cat file")))
            self.all_is_owned(m, [session])
            self.delete(m, session)
            self.nothing_left(m)

    def deletion(self, point, nth):
        with Database() as db, self.server(db) as m:
            session, other = m.client.new_session(), m.client.new_session()
            self.begin(m, session)
            self.settled(m, session)
            run(m, other, "echo other > file")
            m.restart(hooks=f"{point}=kill:{nth}")
            killed(m, point, lambda: self.delete(m, session))
            wait_for("its row is gone", lambda: len(Cli(m).lines("sandbox", "list")) == 1, WAIT_S)
            self.assertEqual(m.client.raw("GET", f"/v1/sessions/{session['id']}")[0], 404)
            self.all_is_owned(m, [other])
            self.assertIn("other", text_of(run(m, other, "cat file")))
            self.delete(m, other)
            self.nothing_left(m)


def add(kind, point, nth):
    def test(self):
        getattr(self, kind)(point, nth)

    name = f"test_{kind}_killed_at_{point.replace('.', '_')}_{nth}"
    test.__name__ = name
    setattr(Chaos, name, test)


# One of each kind, for a backend of which a life costs seconds. MANGO_TEST_CHAOS_ALL=1: all of them.
FEW = ("first_turn_killed_at_sandbox_after_create", "second_turn_killed_at_sandbox_before_advance", "deletion_killed_at_sandbox_after_destroy")


def keep_few(cls):
    """Takes the other tests out of the class."""
    for name in [n for n in dir(cls) if n.startswith("test_")]:
        if not os.environ.get("MANGO_TEST_CHAOS_ALL") and not any(few in name for few in FEW):
            setattr(cls, name, None)
    return cls


for of, points in (("first_turn", FIRST), ("second_turn", SECOND), ("deletion", DELETE)):
    for p, n in points:
        add(of, p, n)

if __name__ == "__main__":
    main()
