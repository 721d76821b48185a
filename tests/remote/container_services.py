"""Tests of the backends `opensandbox` and `daytona`, whose sandboxes are containers here: whole turns across a kill -9 of the server, and a service that fails at
every request in turn.

MANGO_TEST_REMOTE_FAULTS=all tries every fault at every request (about ten minutes for a service), and waits for a timer to be moved; without it every second request meets one of them, and each command's
answer is lost, or the command comes when it has been given up and is asked for again."""
import functools
import os
import re
import subprocess
import unittest

import dtn
import osb
from fault_proxy import FAULTS, FaultProxy
from harness import FakeModel, Mangod, wait_for
from outputs_rig import check_outputs
from rig import conformance, enter_engine, give_up, has_bridge, prepared, sdk, under_engine
from sandbox import EINTERNAL, OK, Driver, label

ALL = os.environ.get("MANGO_TEST_REMOTE_FAULTS") == "all"
SERVICES = {"daytona": dtn.Daytona, "opensandbox": osb.OpenSandbox}


def ready(file, *names, client=False):
    """What makes each service, once this process runs under an Engine, has all that comes from registries, and is in the Engine's network."""
    under_engine(file)
    if any(SERVICES[n].needs_bridge for n in names) and not has_bridge():
        give_up("this Engine has no bridge: each sandbox needs a network of its own")
    made = [functools.partial(SERVICES[n], *prepared(SERVICES[n].prepare)) for n in names]
    for name in names if client else ():
        prepared(functools.partial(sdk, name))
    enter_engine()
    return made


class Conformance:
    """What holds for both, of the service itself and of the suite."""

    name, make = "", None

    def test_the_official_client_understands_the_stand_ins(self):
        with self.make() as service:
            done = subprocess.run(["node", self.name + "_sdk_check.mjs", *service.check_words(service.env)], cwd=sdk(self.name), capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            wait_for("nothing to be left", lambda: service.left() == [], service.ends_within_s, 0.2)

    def test_the_suite_passes_and_leaves_nothing(self):
        with self.make() as service:
            self.assertNotIn(service.key, conformance(self, self.name, service.env, 900))
            self.assertEqual(service.left(), [])


class OfService:
    """What holds for both, of the server."""

    name, make = "", None

    @classmethod
    def setUpClass(cls):
        cls.service = cls.make()

    @classmethod
    def tearDownClass(cls):
        cls.service.end()

    def left_empty(self):
        wait_for("nothing to be left", lambda: self.service.left() == [], 60, 0.2)

    # ---- turns ----

    def turn(self, m, session, command):
        seen = len(m.client.events(session))
        m.client.say(session, "run: " + command)

        def ended():
            events = m.client.events(session)[seen:]
            return events if events and events[-1]["type"] == "session.status_idle" else None

        return wait_for(f"the turn with `{command}`", ended, timeout=120)

    def say(self, m, session, command):
        """What the session's bash tool printed, through a whole turn."""
        result = next(e for e in self.turn(m, session, command) if e["type"] == "agent.tool_result")
        return "".join(b.get("text", "") for b in result["content"])

    def test_a_session_survives_kill_9_of_the_server_and_leaves_nothing_when_deleted(self):
        with Mangod(sandbox=self.name, env={**self.service.env, "MANGO_NODE_TTL": "2s", "MANGO_SANDBOX_ORPHAN_GRACE": "1s", "MANGO_LOG_LEVEL": "debug"}) as m:
            session = m.client.new_session()["id"]
            self.assertIn("written", self.say(m, session, "echo of this session >kept.txt; cd /tmp; export V=written; echo $V"))
            self.assertIn("/tmp written", self.say(m, session, "echo $PWD $V"), "folder and variables are kept between calls")
            self.assertEqual(len(self.service.left()), 1)
            first = m.process.log()
            m.kill()
            m.process.end()
            m.start()
            workspace = self.service.workspace[1]
            self.assertIn("of this session", self.say(m, session, f"cat {workspace}/kept.txt"))
            self.assertEqual(len(self.service.left()), 1, "the same sandbox")
            if hasattr(self.service, "duplicate"):  # names of Daytona are taken once
                self.service.duplicate()
                self.assertEqual(len(self.service.left()), 2)
                wait_for("the second one goes", lambda: len(self.service.left()) < 2, 90, 0.2)
                self.assertIn("of this session", self.say(m, session, f"cat {workspace}/kept.txt"))
            m.client.delete(f"/v1/sessions/{session}")
            self.left_empty()
            self.assertNotIn(self.service.key, first + m.process.log())

    @unittest.skipUnless(ALL, "a timer has a minute at least: MANGO_TEST_REMOTE_FAULTS=all waits for a third of it; test_envd_turn.py always does")
    def test_case_60_a_running_turn_moves_the_timer_while_the_model_thinks_and_an_idle_session_does_not(self):
        with FaultProxy(self.service.url) as proxy, FakeModel() as model:
            env = {**self.service.env, **self.service.through(proxy), **self.service.timer}
            with Mangod(sandbox=self.name, model_url=model.url, env=env) as m:
                bash = 'tool bash {"command":"echo done"}'
                shown = lambda session, kind: any(e["type"] == kind for e in m.client.events(session))
                idle, busy = m.client.new_session()["id"], m.client.new_session()["id"]
                m.client.say(idle, f"#fake\n{bash}\n---\ntext end")
                wait_for("the first turn ends", lambda: shown(idle, "session.status_idle"), 120)
                (idle_box,) = self.service.ids()
                m.client.say(busy, f"#fake\n{bash}\n---\ndelay 240000\ntext end")
                wait_for("the model thinks", lambda: shown(busy, "agent.tool_result"), 120)
                (busy_box,) = self.service.ids() - {idle_box}
                quiet = len(proxy.log)
                moved = lambda: [r["path"] for r in proxy.log[quiet:] if r["path"].endswith(self.service.moved)]
                wait_for("its timer is moved", moved, 120)
                self.assertTrue(all(busy_box in path for path in moved()), moved())
                m.client.post(f"/v1/sessions/{busy}/events", {"events": [{"type": "user.interrupt"}]})
                wait_for("the turn ends", lambda: shown(busy, "session.status_idle"), 60)
                for session in (idle, busy):
                    m.client.delete(f"/v1/sessions/{session}")
                self.left_empty()

    def test_case_49_a_sandbox_that_its_timer_ended_is_an_error_and_never_replaced(self):
        with Mangod(sandbox=self.name, env=self.service.env) as m:
            session = m.client.new_session()["id"]
            self.assertIn("made", self.say(m, session, "echo kept >file; echo made"))
            (box,) = self.service.ids()
            self.service.end_one(box)  # what the service does when the timer is over
            wait_for("it to be gone", lambda: self.service.ids() == set(), 60)
            for restarted in (False, True):
                if restarted:
                    m.restart()
                with self.subTest(restarted=restarted):
                    self.assertIn("lost", str(self.turn(m, session, "ls file || echo empty")))
                    self.assertEqual(self.service.ids(), set())

    def test_ex14_what_a_command_leaves_as_an_output_is_published_once(self):
        with Mangod(sandbox=self.name, env=self.service.env) as m:
            check_outputs(self, m.client, lambda session, command: self.say(m, session, command))
            self.left_empty()

    def test_a_sandbox_that_was_made_and_cannot_be_used_does_not_stay(self):
        variable, _ = self.service.workspace
        with Driver(self.name, {**self.service.env, variable: "/dev/shm"}) as d:  # where the runtime lets nothing be executed
            answer = d.call("create", label(), d.owner, "open", 0, 0, 0, 0)
            self.assertEqual(answer["status"], EINTERNAL, answer)
            self.assertIn("cannot run in the sandbox (exit code 126)", answer["error"])
            self.left_empty()

    # ---- faults ----

    def scenario(self, proxy, faults):
        """Everything once. The answers, in order."""
        box, answers = label(), []
        env = {**self.service.env, **self.service.through(proxy)}
        proxy.reset(faults)
        with Driver(self.name, env) as d:
            answers.append(d.call("create", box, d.owner, "open", 0, 0, 0, 0))
            if answers[-1]["status"] == OK:
                answers.append(d.call("exec", box, 30000, 0, "echo x >>count; echo done $(ls -d .mango/errand-* | wc -l); exit 3", ""))
                answers.append(d.call("write", box, "sub/file", "content"))
                answers.append(d.call("read", box, "sub/file", 0, 100))
                answers.append(d.call("attach", box, d.owner))
                answers.append(d.call("read", box, "count", 0, 100))
            proxy.faults = {n: f for n, f in proxy.faults.items() if n >= len(proxy.log)}
            answers.append(d.call("destroy", box))
            self.requests = list(proxy.log)
            proxy.reset()
            if answers[-1]["status"] != OK:
                d.ok("destroy", box)
            self.left_empty()
        return answers

    def check(self, answers, what):
        """Each operation ended right, or with an error in words; a command that ran, ran once."""
        for a in answers:
            text = str(a)
            self.assertNotIn(self.service.key, text)
            self.assertTrue(a["status"] == OK or a.get("error"), f"{what}: {text}")
        if len(answers) < 6:
            return
        exec_, write, read, _, count = answers[1:6]
        if exec_["status"] == OK and not exec_.get("unknown"):
            self.assertEqual((exec_["code"], exec_["out"]), (3, "done 1\n"), f"{what}: and one program is there")
        if count["status"] == OK:
            self.assertEqual(count["content"], "x\n", what)
        if write["status"] == OK and read["status"] == OK:
            self.assertEqual(read["content"], "content", what)

    def test_a_service_that_fails_at_each_request_in_turn(self):
        proxy = FaultProxy(self.service.url)
        self.addCleanup(proxy.end)
        clean = self.scenario(proxy, {})
        self.assertEqual([a["status"] for a in clean], [OK] * len(clean), clean)
        n, right = len(self.requests), 0
        commands = [i for i, r in enumerate(self.requests) if re.search(r"/(execute|command)$", r["path"])]
        self.assertGreater(len(commands), 3)
        runs = {(i, f) for i in range(n) for f in FAULTS} if ALL else {(i, FAULTS[i % len(FAULTS)]) for i in range(0, n, 2)} | {(i, ("lost", "late")[k % 2]) for k, i in enumerate(commands)}
        for i, fault in sorted(runs):
            with self.subTest(request=i, fault=fault):
                answers = self.scenario(proxy, {i: fault})
                self.check(answers, f"{fault} at request {i}")
                right += all(a["status"] == OK for a in answers)
        print(f"{self.name}: {len(runs)} faults over {n} requests, {right} scenarios without any error")
        self.assertGreaterEqual(right, len(runs) * 9 // 10, "most faults are none of the caller's business")
