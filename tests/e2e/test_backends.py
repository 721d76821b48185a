#!/usr/bin/env python3
"""Several backends in one server: the default switched between restarts, a backend that is down (field case 62), nodes that lack one. The second
backend is a real plugin, built here from tests/abi/second.c; a file stops its service."""
import glob
import os
import shutil
import subprocess
import tempfile
import unittest

from api import Client
from harness import BUILD, Database, Mangod, main, wait_for
from test_cli import Cli
from test_sandboxes import run, text_of

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOADABLE = os.path.join(BUILD, "plugins", "loadable")
WAIT_S = 60


def setUpModule():
    global PLUGINS
    PLUGINS = tempfile.mkdtemp(prefix="mango-plugins.", dir="/tmp")
    os.chmod(PLUGINS, 0o755)
    for name in ("local.so", "mango-local-runner"):
        shutil.copy(os.path.join(LOADABLE, name), PLUGINS)
    common = glob.glob(os.path.join(SRC, "plugins/common/*.c")) + glob.glob(os.path.join(SRC, "plugins/common/hostbox/*.c"))
    sources = [os.path.join(SRC, "tests/abi/second.c"), *common]
    flags = ["-std=gnu17", "-D_GNU_SOURCE", "-O1", "-fvisibility=hidden", "-shared", "-fPIC"]
    includes = ["-I" + SRC, "-I" + os.path.join(SRC, "plugin-api"), "-I" + os.path.join(SRC, "plugins")]
    out = os.path.join(PLUGINS, "second.so")
    subprocess.run([*os.environ.get("CC", "cc").split(), *flags, *includes, "-o", out, *sources], check=True)


def tearDownModule():
    shutil.rmtree(PLUGINS, ignore_errors=True)


def settings(folder):
    return {
        "MANGO_PLUGIN_DIR": PLUGINS,
        "MANGO_SECOND_BASE_DIR": os.path.join(folder, "second"),
        "MANGO_SECOND_DOWN_FILE": os.path.join(folder, "down"),
        "MANGO_NODE_TTL": "2s",
    }


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mango-backends.", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def stop_service(self):
        open(os.path.join(self.folder, "down"), "w", encoding="utf-8").close()

    def start_service(self):
        os.remove(os.path.join(self.folder, "down"))

    def state(self, m):
        return m.client.get("/readyz")["sandboxes"]


def metrics(m):
    return m.client.raw("GET", "/metrics")[2].decode()


def types_after(m, session, n):
    return [e["type"] for e in m.client.events(session["id"])[n:]]


class TwoBackends(Case):
    def test_the_default_is_switched_and_old_sessions_keep_theirs(self):
        with Mangod(env=settings(self.folder), sandbox="second") as m:
            cli, old = Cli(m), m.client.new_session()
            run(m, old, "echo old > file")
            m.sandbox = "local"
            m.restart()
            new = m.client.new_session()
            run(m, new, "echo new > file")
            self.assertIn("old", text_of(run(m, old, "cat file")))
            backends = {r["session_id"]: r["backend"] for r in Cli(m).lines("sandbox", "list")}
            self.assertEqual(backends, {old["id"]: "second", new["id"]: "local"})
            wait_for("both are up", lambda: self.state(m) == {"second": "up", "local": "up"}, timeout=WAIT_S)
            listed = {p["name"]: p["nodes"] for p in Cli(m).lines("plugin", "list")}
            self.assertTrue(listed["second"].endswith("=up") and listed["local"].endswith("=up"), listed)
            self.assertIn("mango_sandbox_backend_up{backend=\"second\"} 1", metrics(m))
            m.client.delete(f"/v1/sessions/{old['id']}")
            wait_for("its sandbox is gone", lambda: os.listdir(os.path.join(self.folder, "second")) == [], timeout=WAIT_S)
            self.assertIn("new", text_of(run(m, new, "cat file")))
            del cli

    def test_case_62_a_turn_waits_while_its_backend_is_down(self):
        with Mangod(env=settings(self.folder), sandbox="second", binary="mangod-test") as m:
            bound, fresh, stopped = m.client.new_session(), m.client.new_session(), m.client.new_session()
            run(m, bound, "echo kept > file")
            self.stop_service()
            wait_for("the server knows", lambda: self.state(m)["second"] != "up", WAIT_S)
            at = {s["id"]: len(m.client.events(s["id"])) for s in (bound, fresh, stopped)}
            for s in (bound, fresh, stopped):
                m.client.say(s["id"], "run: echo after; cat file 2>/dev/null; true")
            for s in (bound, fresh, stopped):
                wait_for("the session says that it waits", lambda s=s: "session.status_rescheduled" in types_after(m, s, at[s["id"]]), WAIT_S)
                error = next(e for e in m.client.events(s["id"]) if e["type"] == "session.error")
                self.assertEqual(error["error"]["retry_status"]["type"], "retrying")
                self.assertIn("second", error["error"]["message"])
                self.assertEqual(m.client.get(f"/v1/sessions/{s['id']}")["status"], "rescheduling")
            self.assertIn("mango_sandbox_backend_up{backend=\"second\"} 0", metrics(m))
            # An interrupt ends the wait, and the answer to the call says that it was not run.
            m.client.post(f"/v1/sessions/{stopped['id']}/events", {"events": [{"type": "user.interrupt"}]})
            wait_for("the wait is over", lambda: m.client.get(f"/v1/sessions/{stopped['id']}")["status"] == "idle", WAIT_S)
            # A restart in the wait loses nothing of it.
            m.kill()
            m.start()
            self.start_service()
            for s, want in ((bound, "after kept"), (fresh, "after")):
                wait_for("the turn goes on", lambda s=s: m.client.get(f"/v1/sessions/{s['id']}")["status"] == "idle", WAIT_S)
                events = m.client.events(s["id"])[at[s["id"]]:]
                self.assertEqual(" ".join(text_of(events).split()), want)
                self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
                self.assertLess(types_after(m, s, at[s["id"]]).index("session.status_rescheduled"), len(events) - 1)
            wait_for("it is up again", lambda: self.state(m)["second"] == "up", WAIT_S)

    def test_case_62_a_wait_for_a_backend_ends_at_its_limit_and_the_session_stays(self):
        with Mangod(env=dict(settings(self.folder), MANGO_SANDBOX_WAIT="3s"), sandbox="second") as m:
            session = m.client.new_session()
            run(m, session, "echo kept > file")
            self.stop_service()
            wait_for("the server knows", lambda: self.state(m)["second"] != "up", WAIT_S)
            at = len(m.client.events(session["id"]))
            m.client.say(session["id"], "run: cat file")
            wait_for("it waits", lambda: "session.status_rescheduled" in types_after(m, session, at), WAIT_S)
            m.kill()  # what it has waited is not forgotten
            m.start()
            wait_for("the wait is over", lambda: m.client.get(f"/v1/sessions/{session['id']}")["status"] == "idle", WAIT_S)
            events = m.client.events(session["id"])[at:]
            last = [e for e in events if e["type"] == "session.error"][-1]["error"]
            self.assertEqual(last["retry_status"]["type"], "exhausted")
            self.assertIn("sandbox_wait", last["message"])
            self.assertEqual(events[-1]["stop_reason"]["type"], "retries_exhausted")
            self.assertIn("sandbox_wait", text_of(events))  # the call has its answer
            self.assertIn("mango_sandbox_waits_given_up_total 1", metrics(m))
            self.start_service()
            wait_for("it is up again", lambda: self.state(m)["second"] == "up", WAIT_S)
            self.assertIn("kept", text_of(run(m, session, "cat file")))

    def test_a_deletion_waits_for_its_backend_and_the_session_is_gone_at_once(self):
        with Mangod(env=settings(self.folder), sandbox="second") as m:
            session = m.client.new_session()
            run(m, session, "true")
            self.stop_service()
            m.client.delete(f"/v1/sessions/{session['id']}")
            self.assertEqual(m.client.raw("GET", f"/v1/sessions/{session['id']}")[0], 404)
            self.assertEqual(Cli(m).lines("sandbox", "list")[0]["state"], "deleting")
            m.restart()
            self.start_service()
            wait_for("nothing is left", lambda: Cli(m).lines("sandbox", "list") == [], WAIT_S)
            self.assertEqual(os.listdir(os.path.join(self.folder, "second")), [])


class TwoNodes(Case):
    def test_a_node_without_the_backend_leaves_the_session_to_one_that_has_it(self):
        env = settings(self.folder)
        with Database() as db, Mangod(database=db, env=env, sandbox="second") as has:
            session = has.client.new_session()
            run(has, session, "echo here > file")
            lacks_env = dict(env, MANGO_PLUGIN_DIR=LOADABLE)
            lacks = Mangod(database=db, env=lacks_env, sandbox="local")
            lacks.key = has.key
            lacks.client = client = Client(lacks.port, has.key)
            with lacks:
                before = len(client.events(session["id"]))
                client.say(session["id"], "run: cat file")  # the node that takes it in begins the turn
                wait_for("the other node ends it", lambda: client.get(f"/v1/sessions/{session['id']}")["status"] == "idle", WAIT_S)
                events = client.events(session["id"])[before:]
                self.assertIn("here", text_of(events))
                self.assertIn("session.status_rescheduled", [e["type"] for e in events])
                # Without any node that has it the turn waits, and says so.
                has.kill()
                before = len(client.events(session["id"]))
                client.say(session["id"], "run: cat file")
                wait_for("it waits", lambda: client.get(f"/v1/sessions/{session['id']}")["status"] == "rescheduling", WAIT_S)
                has.start()
                wait_for("it goes on", lambda: client.get(f"/v1/sessions/{session['id']}")["status"] == "idle", WAIT_S)
                self.assertIn("here", text_of(client.events(session["id"])[before:]))


if __name__ == "__main__":
    main()
