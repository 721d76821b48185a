"""Runs the official workers of the SDKs, unmodified, against a mangod of its own: EnvironmentWorker with its WorkPoller and SessionToolRunner, of four
TypeScript releases, the newest Python and the newest Go. Each serves an environment of its own; all run side by side.

What is needed comes from the registries into the build folder, as in sdk_rig.py; MANGO_TEST_SDK must be set, and MANGO_TEST_SDK=require makes a client that
cannot be installed a failure. MANGO_TEST_WORKERS=NAME,NAME runs some of them only (sdk-1.14.0, python, go).
"""
import concurrent.futures
import os
import signal
import sys
import time
import traceback

import sdk_rig as sdk
from harness import SKIPPED, Database, FakeModel, Mangod, wait_for
from rig import fill
from sdk_rig import Failure, OfficialWorker
from turns import fake
from worker_rig import IDLE_MS, Sessions, issue

TTL_S = 6  # a lease: short, so that lost ones are seen soon; heartbeats are at half of it
TURN_S = 90  # seconds that a turn may take: a worker looks for work every 3 s at most, and the machine may be loaded


class Suite(Sessions):
    """One SDK: what its workers must do."""

    TURN_S = TURN_S

    def __init__(self, name, argv, server, database):
        self.name, self.argv, self.server, self.database = name, argv, server, database
        self.client, self.workers, self.passed, self.failed = server.client, [], 0, 0
        self.folder = os.path.join(server.dir, f"work-{name}")
        os.makedirs(self.folder)
        self.agent = self.make_agent()
        self.careful = self.make_agent(default_config={"permission_policy": {"type": "always_ask"}})

    def make_agent(self, **toolset):
        weather = {"type": "custom", "name": "weather", "description": "d", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
        return self.client.post("/v1/agents", {"name": self.name, "model": "m", "tools": [{"type": "agent_toolset_20260401", **toolset}, weather]})["id"]

    def new(self, agent=None):
        return self.client.post("/v1/sessions", {"agent": agent or self.agent, "environment_id": self.environment})["id"]

    def begin(self, name="", mode="worker"):
        worker = OfficialWorker(self.argv, f"http://127.0.0.1:{self.server.port}", self.environment, self.key, self.folder, self.name + name, mode)
        self.workers.append(worker)
        return worker

    def expect(self, what, condition, seen=""):
        if not condition:
            raise Failure(f"{what}: {seen}")

    # ---- what is checked, in this order ----

    def six_tools(self):
        d = self.folder
        session = self.new()
        events = self.turn(
            session,
            'tool write {"file_path":"%s/a.txt","content":"one\\ntwo\\n"}' % d,
            'tool bash {"command":"echo $((6*7))"}',
            "---",
            'tool edit {"file_path":"%s/a.txt","old_string":"two","new_string":"three"}' % d,
            'tool read {"file_path":"%s/a.txt"}' % d,
            'tool grep {"pattern":"three","path":"%s"}' % d,
            'tool glob {"pattern":"*.txt","path":"%s"}' % d,
            "---",
            "text all six",
        )
        results = self.results(events)
        self.expect("no tool failed", len(results) == 6 and not any(r[1] for r in results), results)
        with open(os.path.join(d, "a.txt"), encoding="utf-8") as f:
            self.expect("the file is written", f.read() == "one\nthree\n")
        self.expect("bash, read, grep and glob say what is", "42" in results[1][0] and "three" in results[3][0] and "a.txt" in results[4][0] + results[5][0], results)

    def a_custom_tool(self):
        events = self.turn(self.new(), 'tool weather {"city":"Bonn"}', "---", "text nice")
        self.expect("its answer", self.results(events)[0][0].startswith("sunny in Bonn"), self.results(events))

    def a_confirmation(self):
        session = self.new(self.careful)
        self.client.say(session, fake('tool bash {"command":"echo confirmed"}', 'tool bash {"command":"echo denied"}', "---", "text done"))
        idle = self.wait_end(session, reason="requires_action")[-1]
        ids = idle["stop_reason"]["event_ids"]
        self.expect("two calls wait", len(ids) == 2, ids)
        events = [{"type": "user.tool_confirmation", "tool_use_id": ids[0], "result": "allow"}, {"type": "user.tool_confirmation", "tool_use_id": ids[1], "result": "deny"}]
        self.client.post(f"/v1/sessions/{session}/events", {"events": events})
        results = {e["tool_use_id"]: e for e in self.wait_end(session) if e["type"].endswith("tool_result")}
        self.expect("the allowed one ran", "confirmed" in results[ids[0]]["content"][0]["text"], results)
        self.expect("the denied one did not", results[ids[1]]["is_error"] and results[ids[1]]["type"] == "agent.tool_result", results)
        self.check_pairs(session)

    def messages_in_the_idle_window_and_after_it(self):
        session = self.new()
        for i in range(3):  # at once, within the window, and when the worker has left
            results = self.results(self.turn(session, 'tool bash {"command":"echo message %d"}' % i, "---", "text done"))
            self.expect("it was served", f"message {i}" in results[0][0], results)
            if i == 0:
                time.sleep(IDLE_MS / 1000 * 0.9)  # near the end of the window, where the race is: whichever side wins, it is served
            else:
                wait_for("the worker leaves", lambda: "active" not in self.states(session), 30)

    def a_history_of_over_1000_events(self):
        session = self.new()
        fill(self.database, session, 1300, 100)
        results = self.results(self.turn(session, 'tool bash {"command":"echo after 1300"}', "---", "text done"))
        self.expect("it was served", "after 1300" in results[0][0], results)

    def a_call_that_an_interrupt_kills_is_not_run_again(self):
        session = self.new()
        path = os.path.join(self.folder, "counter")
        self.client.say(session, fake('tool bash {"command":"echo x >> %s; sleep 3"}' % path, "---", "text never"))
        wait_for("it runs", lambda: os.path.exists(path), TURN_S)
        self.client.post(f"/v1/sessions/{session}/events", {"events": [{"type": "user.interrupt"}]})
        self.wait_end(session)
        wait_for("the worker leaves", lambda: "active" not in self.states(session), 60)
        self.turn(session, "text a fresh worker reads the history")
        with open(path, encoding="utf-8") as f:
            self.expect("it ran once", f.read() == "x\n")

    def a_lost_lease_goes_to_a_second_worker(self):
        session = self.new()
        path = os.path.join(self.folder, "runs")
        first = self.worker
        self.client.say(session, fake('tool bash {"command":"echo run >> %s; sleep 2; echo done"}' % path, "---", "text done"))
        wait_for("it runs", lambda: os.path.exists(path), TURN_S)
        os.killpg(first.process.pid, signal.SIGSTOP)  # with its tools
        second = self.begin("-second")
        self.wait_end(session)
        os.killpg(first.process.pid, signal.SIGCONT)
        self.worker = second
        first.end()
        self.check_pairs(session)
        self.expect("the item of the first is over, another one served", len(self.states(session)) >= 2, self.states(session))

    def a_shutdown_in_mid_tool_leaves_nothing_stuck(self):
        session = self.new()
        path = os.path.join(self.folder, "shutdown")
        self.client.say(session, fake('tool bash {"command":"touch %s; sleep 4; echo done"}' % path, "---", "text done"))
        wait_for("it runs", lambda: os.path.exists(path), TURN_S)
        self.worker.end()
        self.worker = self.begin("-third")
        self.wait_end(session)
        self.check_pairs(session)

    def drain_takes_what_there_is_and_ends(self):
        self.worker.end()
        wait_for("nothing is held", lambda: not {"starting", "active", "stopping"} & set(self.states()), 30)
        sessions = [self.new() for _ in range(2)]
        for s in sessions:
            self.client.say(s, "hello")
        drain = self.begin("-drain", "drain")
        self.expect("it ended by itself", drain.process.wait(60) == 0, drain.log()[-800:])
        for s in sessions:
            self.expect("each was handed out", f"drained {s}" in drain.log(), drain.log()[-800:])
        self.worker = self.begin("-fourth")  # what the drain acknowledged and nobody ran comes back with its lease
        for s in sessions:
            self.expect("and is served after all", "from the worker" in self.results(self.turn(s, 'tool bash {"command":"echo from the worker"}', "---", "text done"))[0][0])

    CHECKS = [six_tools, a_custom_tool, a_confirmation, messages_in_the_idle_window_and_after_it, a_history_of_over_1000_events, a_call_that_an_interrupt_kills_is_not_run_again,
              a_lost_lease_goes_to_a_second_worker, a_shutdown_in_mid_tool_leaves_nothing_stuck, drain_takes_what_there_is_and_ends]  # fmt: skip

    def run(self, check, *args):
        try:
            check(*args)
            self.passed += 1
            print(f"ok - {self.name}: {check.__name__.replace('_', ' ')}", flush=True)
            return True
        except Exception:
            self.failed += 1
            print(f"not ok - {self.name}: {check.__name__.replace('_', ' ')}\n{traceback.format_exc()}", flush=True)
            for w in self.workers[-2:]:
                print(f"--- {os.path.basename(w.process.log_path)}\n{w.log()[-3000:]}", flush=True)
            return False

    def start(self):
        self.environment = self.client.post("/v1/environments", {"name": f"workers of {self.name}", "config": {"type": "self_hosted"}})["id"]
        self.key = issue(self.server, self.environment)
        self.worker = self.begin()

    def run_all(self):
        if not self.run(Suite.start, self):
            return
        for check in self.CHECKS:
            if not self.run(check, self) and not self.worker.process.running():
                self.worker = self.begin(f"-again{self.failed}")

    # ---- a restart, for all at once ----

    def begin_long_call(self):
        self.long_session = self.new()
        self.long_path = os.path.join(self.folder, "long")
        self.client.say(self.long_session, fake('tool bash {"command":"echo x >> %s; sleep 6; echo survived"}' % self.long_path, "---", "text done"))
        wait_for("it runs", lambda: os.path.exists(self.long_path), TURN_S)

    def a_server_restart_in_mid_stream(self):
        results = self.results(self.wait_end(self.long_session))
        self.check_pairs(self.long_session)
        self.expect("its result arrived", "survived" in results[0][0], results)
        with open(self.long_path, encoding="utf-8") as f:
            self.expect("it ran once", f.read() == "x\n")

    def close(self):
        for w in self.workers:
            w.kill()


def workers():
    """(name, argv) of each worker that can run here, and how many cannot."""
    out, missing = [], 0
    node = sdk.install_typescript() and sdk.install_node()
    if node:
        out += [(alias, [node, "worker.mjs", alias]) for alias in sdk.TYPESCRIPT]
    else:
        missing += 1
    venv = sdk.install_python()
    if venv:
        out += [("python", [venv, "worker.py"])]
    else:
        missing += 1
    go = sdk.install_go("worker", "serve")
    if go:
        out += [("go", [go])]
    else:
        missing += 1
    wanted = [n for n in os.environ.get("MANGO_TEST_WORKERS", "").split(",") if n]
    return [w for w in out if not wanted or w[0] in wanted], missing


def restart(suites, server):
    alive = [s for s in suites if s.run(s.begin_long_call)]
    server.restart()
    for s in alive:
        s.run(s.a_server_restart_in_mid_stream)


def main():
    if not sdk.asked("installs clients from npm, PyPI and the Go proxy"):
        return SKIPPED
    ready, missing = workers()
    status = sdk.cannot_begin(ready, missing)
    if status is not None:
        return status
    with Database() as db, FakeModel() as model, Mangod(database=db, model_url=model.url, sandbox=None, env={"MANGO_WORK_TTL": f"{TTL_S}s", "MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX": None}) as server:
        suites = [Suite(name, argv, server, db) for name, argv in ready]
        try:
            with concurrent.futures.ThreadPoolExecutor(len(suites)) as pool:
                list(pool.map(Suite.run_all, suites))
            restart(suites, server)
        finally:
            for s in suites:
                s.close()
        return sdk.finish(sum(s.passed for s in suites), sum(s.failed for s in suites), model)


if __name__ == "__main__":
    sys.exit(main())
