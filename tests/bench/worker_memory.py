#!/usr/bin/env python3
"""Memory of one worker, idle and while it serves a call: mango-worker beside the official TypeScript and Python workers, which come from npm and PyPI
into the build folder. Run under tests/support/pg-run; prints a table of MiB (resident, and proportional: shared pages divided among their users).

The shell of the tools and what it runs are no part of it: they are the same work on all sides.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("e2e", "sdk"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))
from harness import Database, FakeModel, Mangod, wait_for  # noqa: E402
from turns import fake  # noqa: E402
from worker_rig import GATE, MangoWorker, bash, issue, pass_gate  # noqa: E402
import sdk_rig as sdk  # noqa: E402

STILL = 10  # looks in a row, 0.1 s apart, at a memory that has not changed: the garbage of a start is collected, or not
SERVED = 20  # calls before it is measured in the 21st


def memory(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        rows = dict(line.split(":") for line in f if ":" in line and line[0].isupper())
    return [int(rows[name].split()[0]) / 1024 for name in ("Rss", "Pss")]


def settled(pid):
    """Its memory, once it stands still."""
    seen = []

    def still():
        seen.append(memory(pid))
        sizes = {round(rss, 1) for rss, _ in seen[-STILL:]}
        return seen[-1] if len(seen) >= STILL and len(sizes) == 1 else None

    return wait_for("the memory stands still", still, 60, every=0.1)


def measure(server, name, start):
    client, folder = server.client, os.path.join(server.dir, name)
    os.makedirs(folder)
    environment = client.post("/v1/environments", {"name": name, "config": {"type": "self_hosted"}})["id"]
    agent = client.post("/v1/agents", {"name": name, "model": "m", "tools": [{"type": "agent_toolset_20260401"}]})["id"]
    worker = start(f"http://127.0.0.1:{server.port}", environment, issue(server, environment), folder)
    try:
        idle = settled(worker.process.pid)
        session = client.post("/v1/sessions", {"agent": agent, "environment_id": environment})["id"]
        lines = [x for i in range(SERVED) for x in ('tool bash {"command":"echo %d"}' % i, "---")]
        client.say(session, fake(*lines, bash(f"cd {folder}; {GATE}"), "---", "text done"))
        wait_for("the last call runs", lambda: os.path.exists(os.path.join(folder, "begun")), 120)
        serving = settled(worker.process.pid)
        pass_gate(lambda: [folder])
        return idle, serving
    finally:
        worker.process.end()


def main():
    sides = {"mango-worker": lambda *a: MangoWorker(*a, "--max-idle", "60s")}
    if sdk.install_typescript() and (node := sdk.install_node()):
        sides["TypeScript 1.14.0"] = lambda *a: sdk.OfficialWorker([node, "worker.mjs", sdk.TYPESCRIPT[0]], *a, idle_ms=60000)
    if python := sdk.install_python():
        sides["Python 2.14.0"] = lambda *a: sdk.OfficialWorker([python, "worker.py"], *a, idle_ms=60000)
    print("| worker | idle, resident | idle, proportional | serving, resident | serving, proportional |\n|---|---|---|---|---|")
    with Database() as db, FakeModel() as model, Mangod(database=db, model_url=model.url, sandbox=None, env={"MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX": None}) as server:
        for name, start in sides.items():
            idle, serving = measure(server, name.split()[0], start)
            print(f"| {name} | " + " | ".join(f"{n:.1f}" for n in idle + serving) + " |", flush=True)


if __name__ == "__main__":
    main()
