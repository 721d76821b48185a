#!/usr/bin/env python3
"""Several backends in one server: the default switched between restarts, a backend that is down (field case 62), nodes that lack one. The second
backend is a real plugin, built here from tests/abi/second.c; a file stops its service. And what a backend declares (semantics SP5), with tests/abi/liar.c,
which declares what it is told to."""
import glob
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from api import ApiError, Client
from harness import BUILD, Database, Mangod, main, wait_for
from test_cli import Cli
from test_files import TYPE, multipart
from test_sandboxes import run, text_of
from test_skills import GOOD, NEW

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
    flags = ["-std=gnu17", "-D_GNU_SOURCE", "-O1", "-fvisibility=hidden", "-shared", "-fPIC"]
    includes = ["-I" + SRC, "-I" + os.path.join(SRC, "plugin-api"), "-I" + os.path.join(SRC, "plugins")]
    for name in ("second", "liar"):
        out, source = os.path.join(PLUGINS, name + ".so"), os.path.join(SRC, "tests/abi", name + ".c")
        subprocess.run([*os.environ.get("CC", "cc").split(), *flags, *includes, "-o", out, source, *common], check=True)


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


class Declared(Case):
    """SP5: what a backend cannot do is refused when the session is created, by what the running plugin says."""

    LIMITED, PACKAGES, NAMES = 1 << 5, 1 << 6, 1 << 37  # MANGO_CAP_EGRESS_LIMITED, MANGO_CAP_PACKAGES, MANGO_TRAIT_HOST_NAMES
    ASKS = {
        "config.packages": {"packages": {"type": "packages", "pip": ["x"]}},
        "config.networking": {"networking": {"type": "limited", "allowed_hosts": ["a.example.com"]}},
    }

    def server(self, sandbox, declares=0, takes_back=0, start=True):
        env = {**settings(self.folder), "MANGO_LIAR_BASE_DIR": os.path.join(self.folder, "liar"), "LIE_CAPS": str(declares), "LIE_TAKES_BACK": str(takes_back)}
        return Mangod(env=env, sandbox=sandbox, start=start)

    def create(self, m, agent=None, config=None, **session):
        agent = m.client.post("/v1/agents", {"name": "a", "model": "m", **(agent or {})})["id"]
        place = m.client.post("/v1/environments", {"name": "e-" + os.urandom(6).hex(), "config": {"type": "cloud", **(config or {})}})["id"]
        return m.client.post("/v1/sessions", {"agent": agent, "environment_id": place, **session})

    def refused(self, m, *words, **asks):
        with self.assertRaises(ApiError) as e:
            self.create(m, **asks)
        self.assertEqual(e.exception.status, 400, e.exception.message)
        for w in words:
            self.assertIn(w, e.exception.message)

    def test_sp5_what_is_not_declared_is_refused_by_field_and_backend(self):
        with self.server("liar") as m:
            for field, config in self.ASKS.items():
                self.refused(m, f"environment_id: {field}: the sandbox backend 'liar'", config=config)
            self.create(m)
            self.assertEqual(len(m.client.get("/v1/sessions")["data"]), 1)

    def test_sp5_what_the_start_took_back_is_refused_and_what_is_declared_is_not(self):
        with self.server("liar", self.LIMITED | self.PACKAGES, self.PACKAGES) as m:
            self.refused(m, "config.packages: the sandbox backend 'liar'", config=self.ASKS["config.packages"])
            self.create(m, config=self.ASKS["config.networking"])

    def test_sp5_hosts_that_a_backend_cannot_allow_are_refused_by_place(self):
        listed = lambda *hosts: {"networking": {"type": "limited", "allowed_hosts": ["a.example.com", "*.example.org", *hosts]}}
        with self.server("liar", self.LIMITED | self.NAMES) as m:
            for host in ("192.0.2.7", "intranet"):
                self.refused(m, "environment_id: config.networking.allowed_hosts[2]: the sandbox backend 'liar'", f"'{host}'", config=listed(host))
            self.refused(m, "config.networking.allowed_hosts[2]", "without a port", config=listed("b.example.com:8443"))
            self.create(m, config=listed("1.example.com"))
            self.assertEqual(len(m.client.get("/v1/sessions")["data"]), 1)

    def test_sp5_a_backend_that_takes_back_what_it_never_declared_does_not_start(self):
        with self.server("liar", self.LIMITED, self.PACKAGES, start=False) as m:
            m.start(wait=False)
            self.assertEqual(m.process.wait(WAIT_S), 78)
            for words in ("MANGO_SANDBOX=liar", "liar.so", "'packages'", "does not have"):
                self.assertIn(words, m.process.log())

    def test_sp5_without_a_backend_nothing_is_accepted_that_needs_one(self):
        with self.server(None) as m:
            store = m.client.post("/v1/memory_stores", {"name": "s"})["id"]
            status, _, text = m.client.raw("POST", "/v1/files", multipart(("file", "a.txt", b"a")), TYPE)
            self.assertEqual(status, 200, text)
            status, _, skill = m.client.raw("POST", "/v1/skills", multipart(("files[]", *GOOD)), {**TYPE, **NEW})
            self.assertEqual(status, 200, skill)
            none = "this server has no sandbox backend"
            for field, config in self.ASKS.items():
                self.refused(m, f"environment_id: {field}: ", none, config=config)
            for resource in ({"type": "memory_store", "memory_store_id": store}, {"type": "file", "file_id": json.loads(text)["id"]}):
                self.refused(m, "resources: ", none, resources=[resource])
            self.refused(m, "agent.skills: ", none, agent={"skills": [{"type": "custom", "skill_id": json.loads(skill)["id"]}]})
            self.create(m)


if __name__ == "__main__":
    main()
