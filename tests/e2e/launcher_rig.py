"""What the tests of launchers share: mango-worker supervise as a process, and all that must hold whatever launches the boxes."""
import json
import os
import re
import signal
import threading
import time

from harness import BUILD, Process, wait_for
from recorder import Cut, Recorder
from test_files import TYPE, multipart
from worker_rig import ENDS_THE_SECOND_TIME, GATE, IDLE_MS, NEVER, WorkerCase, bash, pass_gate

GRACE_S = 20
SKILL = b"---\nname: greeting\ndescription: Greets.\n---\nof the skill\n"
# What a worker in a box asks for while it serves one call of a session with a skill and a memory store, in this order.
REQUESTS = [
    ("the first heartbeat", "POST", r"/heartbeat"), ("the session", "GET", r"/sessions/[^/]+$"), ("the skill's version", "GET", r"/versions/[^/]+$"), ("the skill", "GET", r"/content$"),
    ("the memories", "GET", r"/memories\?view=full"), ("the stream", "GET", r"/events/stream"), ("the history", "GET", r"/events\?"), ("the result", "POST", r"/events$"),
    ("the last list", "GET", r"/memories\?view=basic"), ("a memory", "POST", r"/memories$"), ("the stop", "POST", r"/stop$"),
]  # fmt: skip
# With MANGO_TEST_KILL_STEPS=all everything that runs is killed at each of them, before the server has it and behind its answer; else at these.
SOME = {"box": [("the skill", "before"), ("the result", "after")], "mangod": [("the result", "after"), ("a memory", "before")]}


class Supervisor:
    def __init__(self, case, *args):
        env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": case.folder,
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": case.url(),
            "ANTHROPIC_ENVIRONMENT_ID": case.environment,
            "ANTHROPIC_ENVIRONMENT_KEY": case.key,
            "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable"),
            "MANGO_SUPERVISOR_STATE_DIR": os.path.join(case.folder, "state"),
            **{n: v for n, v in os.environ.items() if n.endswith("SAN_OPTIONS")},
            **case.settings(),
        }
        argv = [
            os.path.join(BUILD, "mango-worker"),
            "supervise",
            "--launcher",
            case.LAUNCHER,
            "--poll-gap",
            "100ms",
            "--grace",
            f"{GRACE_S}s",
            f"--worker-arg=--max-idle={IDLE_MS}ms",
            *args,
        ]
        self.process = Process(argv, env, os.path.join(case.folder, f"..supervisor.{time.monotonic_ns()}.log"))
        case.supervisors.append(self)

    def log(self):
        return self.process.log()

    def kill(self):
        self.process.signal(signal.SIGKILL)
        self.process.wait()

    def end(self, timeout=60):
        if self.process.running():
            self.process.signal(signal.SIGTERM)
        return self.process.wait(timeout)


class Launchers:
    """Holds the case, so that only its subclasses are run."""

    class Case(WorkerCase):
        """What both launchers must do. What a subclass says: how a box looks from outside."""

        LAUNCHER = None

        def setUp(self):
            super().setUp()
            self.supervisors = []
            self.addCleanup(self.end_supervisors)

        def end_supervisors(self):
            for s in self.supervisors:
                s.process.end()
                if getattr(self, "_outcome", None) and self.failed():
                    print(f"--- a supervisor's log\n{s.log()[-6000:]}", flush=True)
            self.clean()

        def failed(self):
            result = self._outcome.result
            return any(t is self for t, _ in [*result.failures, *result.errors])

        def supervise(self, *args):
            return Supervisor(self, *args)

        # ---- for subclasses ----

        def settings(self):
            raise NotImplementedError

        def boxes(self):
            """session's label -> names of what lives of its boxes."""
            raise NotImplementedError

        def workspaces(self):
            """The folders of the sessions, as this process reaches them."""
            raise NotImplementedError

        def clean(self):
            raise NotImplementedError

        def reach(self, port):
            """Lets the boxes reach this port of the machine."""

        # ---- kill -9 at each request of a box ----

        def crash(self):
            self.server.kill()
            self.server.process.end()
            self.server.start()

        def prepared(self):
            """(agent, store): a skill and a memory that are there before the tools."""
            status, _, text = self.client.raw("POST", "/v1/skills", multipart(("files[]", "greeting/SKILL.md", SKILL)), {**TYPE, "anthropic-version": "2026-10-21"})
            self.assertEqual(status, 200, text)
            agent = {"name": "a", "model": "m", "tools": [{"type": "agent_toolset_20260401"}], "skills": [{"type": "custom", "skill_id": json.loads(text)["id"]}]}
            store = self.client.post("/v1/memory_stores", {"name": "notes"})["id"]
            self.client.post(f"/v1/memory_stores/{store}/memories", {"path": "/a", "content": "of the store"})
            return self.client.post("/v1/agents", agent)["id"], store

        def kill_at_requests(self, what, kill):
            net = self.enterContext(Recorder(self.server.port))
            self.reach(net.server.server_address[1])
            supervisor = self.supervise("--box-base-url", net.url)
            steps = [(name, when) for name, _, _ in REQUESTS for when in ("before", "after")]
            for name, when in steps if os.environ.get("MANGO_TEST_KILL_STEPS") == "all" else SOME[what]:
                with self.subTest(kill=what, at=name, when=when):
                    self.kill_at(net, kill, name, when, lost=what == "box")
            self.assertTrue(supervisor.process.running())

        def kill_at(self, net, kill, name, when, lost):
            """One session; what runs is killed once. lost: what a killed box had not yet sent of its memories is."""
            place = [n for n, _, _ in REQUESTS].index(name)
            agent, store = self.prepared()
            resource = {"type": "memory_store", "memory_store_id": store}
            s = self.client.post("/v1/sessions", {"agent": agent, "environment_id": self.environment, "resources": [resource]})["id"]
            said, killed = threading.Event(), threading.Event()
            net.clear()
            net.on(*REQUESTS[place][1:], Cut(when, lambda: (said.wait(60), kill(), killed.set())))
            self.say(s, bash("tail -1 skills/greeting/SKILL.md; cat memory/notes/a; printf new > memory/notes/b"), "---", "text done")
            said.set()
            wait_for(f"it is killed at {name}", killed.is_set, 60, 0.05)
            self.assertEqual(self.results(self.wait_end(s)), [("of the skill\nof the store", False)])
            self.wait_left(s)
            self.wait_no_box()
            self.check_leases(s)
            memories = {m["path"]: m["content"] for m in self.client.get(f"/v1/memory_stores/{store}/memories?view=full")["data"]}
            saved = {"/a": "of the store", "/b": "new"}
            allowed = [saved, {"/a": "of the store"}] if lost and place >= [n for n, _, _ in REQUESTS].index("the result") else [saved]
            self.assertIn(memories, allowed)

        # ---- words ----

        def wait_box(self, n=1):
            return wait_for(f"{n} boxes", lambda: (lambda b: b if len(b) == n else None)(self.boxes()), 60, 0.05)

        def wait_no_box(self):
            wait_for("no box is left", lambda: not self.boxes(), 60, 0.05)

        def started(self, session, name):
            """The session's command has run up to `touch NAME`: its file is in the workspace."""
            wait_for(f"the command has made {name}", lambda: self.workspace_has(name), 60, 0.05)

        def workspace_has(self, name):
            return any(os.path.exists(os.path.join(w, name)) for w in self.workspaces())

        def pass_gate(self, name="go"):
            pass_gate(self.workspaces, name)

        # ---- tests ----

        def test_a_later_item_finds_the_files_of_the_earlier(self):
            s = self.new()
            self.supervise()
            events = self.turn(s, 'tool bash {"command":"echo one > kept; pwd"}', 'tool read {"file_path":"kept"}', "---", "text done")
            self.assertEqual(self.results(events)[1], ("one\n", False))
            self.wait_left(s)
            self.wait_no_box()
            again = self.turn(s, 'tool bash {"command":"cat kept"}', 'tool glob {"pattern":"*"}', "---", "text done")
            self.assertEqual(self.results(again)[0], ("one", False))
            self.assertIn("kept", self.results(again)[1][0])
            self.wait_left(s)
            self.wait_no_box()
            self.assertEqual(len(self.items(s)), 2, "a second activation is another item")

        def test_sessions_have_boxes_of_their_own(self):
            self.supervise()
            sessions = [self.new() for _ in range(3)]
            for s in sessions:
                self.say(s, bash(f"ls; echo {s} > mine; mkfifo go-{s}; cat go-{s}; cat mine"), "---", "text done")
            wait_for("all have written theirs", lambda: all(self.workspace_has("go-" + s) for s in sessions), 60, 0.05)
            for s in sessions:
                self.pass_gate("go-" + s)
            for s in sessions:
                self.assertEqual(self.results(self.wait_end(s))[0], (s, False))
                self.check_pairs(s)

        def test_sigterm_ends_in_order(self):
            w = self.supervise()
            s = self.new()
            self.say(s, bash(f"touch begun; {NEVER}"), "---", "text done")
            self.started(s, "begun")
            self.assertEqual(w.end(), 0)
            self.assertEqual(self.boxes(), {})
            wait_for("the call is answered", lambda: self.results(self.events(s)), 20)
            self.check_pairs(s)
            # What the session still needs is queued for the next worker.
            self.supervise()
            self.wait_end(s)
            self.check_pairs(s)

        def test_a_supervisor_that_was_killed_is_followed(self):
            first = self.supervise()
            s = self.new()
            self.say(s, bash(f"{GATE}; echo went"), "---", "text done")
            self.started(s, "begun")
            first.kill()
            before = self.wait_box()
            second = self.supervise()
            wait_for("the box is found", lambda: "a box of an earlier supervisor is found" in second.log(), 30)
            self.assertEqual(self.boxes(), before, "it is the same box")
            self.pass_gate()
            self.assertEqual(self.results(self.wait_end(s)), [("went", False)])
            self.check_leases(s)
            self.wait_no_box()

        def test_a_box_that_was_killed_gives_its_item_back(self):
            w = self.supervise()
            s = self.new()
            self.say(s, bash(ENDS_THE_SECOND_TIME), "---", "text done")
            self.started(s, "begun")
            since = time.monotonic()
            self.kill_box()
            self.assertEqual(self.results(self.wait_end(s)), [("end", False)])
            self.check_leases(s)
            self.assertIn("a box has ended", w.log())
            self.assertLess(time.monotonic() - since, 40)
            self.wait_left(s)
            self.wait_no_box()

        def test_mangod_that_was_killed_comes_back(self):
            self.supervise()
            s = self.new()
            self.say(s, bash(f"{GATE}; echo went"), "---", "text done")
            self.started(s, "begun")
            self.server.kill()
            self.server.process.end()
            self.pass_gate()
            self.server.start()
            events = self.wait_end(s)
            self.check_pairs(s)
            self.assertEqual(len(self.results(events)), 1)

        def test_a_confirmation_waits_across_a_restart(self):
            self.supervise()
            s = self.new(default_config={"permission_policy": {"type": "always_ask"}})
            self.say(s, 'tool bash {"command":"echo x >> ran; echo confirmed"}', "---", "text done")
            ids = self.wait_end(s, reason="requires_action")[-1]["stop_reason"]["event_ids"]
            self.server.restart()
            self.assertFalse(self.workspace_has("ran"))
            self.send(s, {"type": "user.tool_confirmation", "tool_use_id": ids[0], "result": "allow"})
            self.assertEqual(self.results(self.wait_end(s))[-1], ("confirmed", False))
            self.check_pairs(s)

        def test_a_stopped_worker_is_fenced_when_it_wakes(self):
            self.supervise("--max-boxes", "4")
            s = self.new()
            self.say(s, bash(ENDS_THE_SECOND_TIME), "---", "text done")
            self.started(s, "begun")
            wake = self.stop_box()
            # The lease ends, the session goes to another box; the launcher has removed the stopped one before.
            self.assertEqual(self.results(self.wait_end(s)), [("end", False)])
            wake()
            self.wait_left(s)
            self.wait_no_box()
            self.check_leases(s)

        def test_case_98_a_kill_at_each_step_leaves_no_box_and_never_two_of_one_session(self):
            """The supervisor dies behind the claim, behind the launch, while a tool runs and while the box leaves; each time another follows, and the session
            ends right."""
            for step in ("claimed work", "a box is launched", "tool", "idle"):
                s = self.new()
                first = self.supervise()
                gate = "go-" + s
                self.say(s, bash(f"[ -p {gate} ] || mkfifo {gate}; cat {gate}; echo end"), "---", "text done")
                if step == "tool":
                    self.started(s, gate)
                elif step == "idle":
                    self.pass_gate(gate)
                    self.wait_end(s)
                else:
                    wait_for(step, lambda: step in first.log(), 30, 0.005)
                first.kill()
                second = self.supervise()
                self.assertTrue(all(len(of_one) == 1 for of_one in self.boxes().values()), self.boxes())
                if step != "idle":
                    self.pass_gate(gate)
                self.assertEqual(self.results(self.wait_end(s)), [("end", False)], step)
                self.wait_left(s)
                self.check_leases(s)
                self.wait_no_box()
                second.kill()

        def test_a_box_that_is_killed_at_a_request_is_followed(self):
            self.kill_at_requests("box", self.kill_box)

        def test_mangod_that_is_killed_at_a_request_comes_back(self):
            self.kill_at_requests("mangod", self.crash)

        def test_the_environment_key_is_nowhere_in_a_box(self):
            self.supervise()
            s = self.new()
            self.say(s, bash(f"{GATE}; env; set; cat /proc/[0-9]*/environ; echo end"), "---", "text done")
            self.started(s, "begun")
            self.look_for_key()
            self.pass_gate()
            out = self.results(self.wait_end(s))[0][0]
            self.assertIn("end", out)
            self.assertNotIn(self.key, out)

        # ---- checks ----

        def check_leases(self, session):
            """From the event log and the work items alone: every call has one result, in the order of the calls, and each result was accepted while an item
            of the session was acknowledged and not yet over."""
            self.check_pairs(session)
            events = self.events(session)
            order = [e["id"] for e in events if e["type"] in ("agent.tool_use", "agent.custom_tool_use")]
            results = [e for e in events if e["type"] == "user.tool_result"]
            self.assertEqual(order, [e["tool_use_id"] for e in results])
            leases = [(w["acknowledged_at"], w["stopped_at"] or "9") for w in self.items(session) if w["acknowledged_at"]]
            for e in results:
                self.assertTrue(any(begin <= e["processed_at"] <= end for begin, end in leases), (e["processed_at"], leases))
            # No two items of one session were held at the same time.
            leases.sort()
            for (_, end), (begin, _) in zip(leases, leases[1:]):
                self.assertLessEqual(end, begin, leases)


RESERVED = 1 << 36  # bytes: a mapping of this size is address space that a sanitizer keeps, not memory


def memory(pid):
    """What of a process can be read: every mapping that is memory."""
    out = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if not m or "[v" in line:
                continue
            begin, end = int(m[1], 16), int(m[2], 16)
            if end - begin > RESERVED:
                continue
            try:
                mem.seek(begin)
                out.append(mem.read(end - begin))
            except (OSError, ValueError):
                pass
    return b"".join(out)
