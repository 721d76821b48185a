"""mango-worker as a process, and a server with an environment for it."""
import datetime
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from harness import BUILD, Process, wait_for
from turns import GATE, IDLE, NEVER, TURN_S, ModelCase, bash, fake, pass_gate

IDLE_MS = 1500  # a worker leaves a session that has been idle so long
ENDS_THE_SECOND_TIME = f"echo x >> runs; touch begun; [ $(wc -l < runs) -gt 1 ] || {{ {NEVER}; }}; echo end"


def issue(server, environment):
    """An environment key, by the command line."""
    done = subprocess.run(
        [os.path.join(BUILD, "mango"), "api-key", "create", "--environment", environment, "worker"], env=server.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["key"]


class WorkerProcess:
    """A worker that runs as self.process."""

    END_S = 40

    def log(self):
        return self.process.log()

    def signal(self, number):
        self.process.signal(number)

    def wait(self, timeout=30):
        return self.process.wait(timeout)

    def end(self):
        """As a supervisor ends it; the exit status."""
        if self.process.running():
            self.process.signal(signal.SIGTERM)
        return self.process.wait(self.END_S)

    def kill(self):
        self.process.end()


class MangoWorker(WorkerProcess):
    """A mango-worker, or drive-worker, the program of tests/support over libmango-worker."""

    def __init__(self, base_url, environment, key, folder, *args, command="poll", program="mango-worker", env=None):
        self.folder = folder
        full = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": folder,
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": base_url,
            "ANTHROPIC_ENVIRONMENT_ID": environment,
            "ANTHROPIC_ENVIRONMENT_KEY": key,
            "MANGO_WORKER_RUNNER": os.path.join(BUILD, "plugins", "loadable", "mango-local-runner"),
            "WORKER_DIR": folder,
            "WORKER_IDLE_MS": str(IDLE_MS),
            **{n: v for n, v in os.environ.items() if n.endswith("SAN_OPTIONS")},
            **(env or {}),
        }
        if program == "mango-worker":
            argv = [os.path.join(BUILD, program), command, "--workdir", folder, *([] if "--max-idle" in args else ["--max-idle", f"{IDLE_MS}ms"]), *(["--poll-gap", "100ms"] if command == "poll" else []), *args]
        else:
            argv = [os.path.join(BUILD, "tests", "support", program)]
        self.process = Process(argv, {n: v for n, v in full.items() if v is not None}, os.path.join(folder, f"..{time.monotonic_ns()}.log"))


class Sessions:
    """What is done with the sessions of self.environment, by self.client."""

    TURN_S = TURN_S

    def say(self, session, *script):
        self.client.say(session, fake(*script))

    def events(self, session):
        return self.client.events(session)

    def wait_end(self, session, after=0, reason="end_turn"):
        """The session's events once a turn ended behind the first `after` of them."""

        def ended():
            events = self.events(session)
            return events if len(events) > after and events[-1]["type"] == IDLE and events[-1]["stop_reason"]["type"] == reason else None

        try:
            return wait_for("the turn ends", ended, self.TURN_S, every=0.05)
        except AssertionError as e:
            tail = [(x["type"], json.dumps(x.get("content") or x.get("input") or "")[:200]) for x in self.events(session)[-12:]]
            raise AssertionError(f"{e}; its last events are {tail}") from e

    def turn(self, session, *script):
        after = len(self.events(session))
        self.say(session, *script)
        events = self.wait_end(session, after)[after:]
        self.check_pairs(session)
        return events

    def results(self, events):
        return [(e["content"][0].get("text", "") if e.get("content") else "", bool(e.get("is_error"))) for e in events if e["type"].endswith("tool_result")]

    def check_pairs(self, session):
        """Every call has exactly one result."""
        events = self.events(session)
        calls = sorted(e["id"] for e in events if e["type"] in ("agent.tool_use", "agent.custom_tool_use"))
        answers = sorted(e.get("tool_use_id") or e.get("custom_tool_use_id") for e in events if e["type"].endswith("tool_result"))
        if calls != answers:
            raise AssertionError(f"every call has exactly one result: calls {calls}, results {answers}")

    def items(self, session=None):
        page = self.client.get(f"/v1/environments/{self.environment}/work?limit=1000")
        return [w for w in page["data"] if session in (None, w["data"]["id"])]

    def states(self, session=None):
        return [w["state"] for w in self.items(session)]

    def wait_left(self, session=None, timeout=30):
        wait_for("the worker leaves the session", lambda: set(self.states(session)) <= {"stopped"}, timeout)


class WorkerCase(Sessions, ModelCase):
    """One server and, for each test, an environment, a folder and the workers that the test starts."""

    TTL_S = 4
    OPTIONS = {"sandbox": None, "env": {"MANGO_WORK_TTL": "4s", "MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX": None}}

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mango-worker-test.", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.environment = self.client.post("/v1/environments", {"name": "e-" + os.urandom(6).hex(), "config": {"type": "self_hosted"}})["id"]
        self.key = issue(self.server, self.environment)
        self.workers = []
        self.addCleanup(self.end_all)

    def end_all(self):
        failed = self._outcome and any(e for _, e in getattr(self._outcome, "errors", []) or [] if e) or not getattr(self._outcome, "success", True)
        for w in self.workers:
            w.kill()
            if failed:
                print(f"--- a worker's log\n{w.log()[-4000:]}", flush=True)

    def url(self):
        return f"http://127.0.0.1:{self.server.port}"

    def start(self, *args, **more):
        more.setdefault("key", self.key)
        base = more.pop("base_url", None) or self.url()
        w = MangoWorker(base, self.environment, more.pop("key"), self.folder, *args, **more)
        self.workers.append(w)
        return w

    # ---- sessions ----

    def agent(self, **toolset):
        custom = [
            {"type": "custom", "name": n, "description": "d", "input_schema": {"type": "object"}} for n in ("weather", "picture", "fails", "silent", "slow", "stubborn", "elsewhere")
        ]
        return self.client.post("/v1/agents", {"name": "a", "model": "m", "tools": [{"type": "agent_toolset_20260401", **toolset}, *custom]})["id"]

    def new(self, **toolset):
        return self.client.post("/v1/sessions", {"agent": self.agent(**toolset), "environment_id": self.environment})["id"]

    def send(self, session, *events):
        return self.client.post(f"/v1/sessions/{session}/events", {"events": list(events)})

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as f:
            return f.read()

    def pass_gate(self, name="go"):
        pass_gate(lambda: [self.folder], name)

    def nobody_waits(self, name="never"):
        """The command that waited at this FIFO has ended. Read from the processes: whoever opens the FIFO lets the command go on."""
        waiting = f"cat\0{name}\0".encode()

        def waits(pid):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    return f.read() == waiting and os.path.samefile(f"/proc/{pid}/cwd", self.folder)
            except OSError:
                return False  # it has ended meanwhile

        wait_for(f"no command waits at {name}", lambda: not any(waits(p) for p in os.listdir("/proc") if p.isdigit()), 20)

    def wait_held(self, session, seconds):
        """Until a worker has renewed its lease of the session's item so long after the call."""
        item = (lambda only: only["id"])(*self.items(session))

        def renewed():
            found = next(w for w in self.items(session) if w["id"] == item)
            at = found["latest_heartbeat_at"] or found["acknowledged_at"]
            return datetime.datetime.fromisoformat(at) >= until

        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        wait_for(f"the item is held for {seconds} s", renewed, seconds + 30)

    def there(self, name, timeout=TURN_S):
        wait_for(f"{name} is there", lambda: os.path.exists(os.path.join(self.folder, name)), timeout)


__all__ = ["ENDS_THE_SECOND_TIME", "GATE", "IDLE_MS", "MangoWorker", "NEVER", "Sessions", "WorkerCase", "WorkerProcess", "bash", "issue", "pass_gate", "unittest"]
