"""Runs the public worker CLI (`ant beta:worker`) and the Go SDK's self-hosted examples, unmodified, against a mangod: only the base URL and the keys are given. Both
use releases of the SDK that speak with the environment key everywhere, so the server allows it (MANGO_WORK_ALLOW_ENVIRONMENT_KEY=1).

Neither stands in this repository. The CLI is built from MANGO_TEST_SDK_CLI, a checkout of it, or as a module of CLI_RELEASE where the Go proxy has it; the examples are a
module of their own that no proxy has (it replaces the SDK by ../), so they need MANGO_TEST_SDK_GO, a checkout of the Go SDK. What cannot be had is said and left out.
"""
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import traceback

import go_tool
import sdk_rig as sdk
from harness import BUILD, SKIPPED, FakeModel, Mangod, Process, wait_for
from sdk_rig import RUNNER, Failure
from worker_rig import Sessions, issue

CLI, CLI_RELEASE = "github.com/anthropics/anthropic-cli", "v1.20.0"
EXAMPLES = ["managed-agents-self-hosted-sandbox-worker", "managed-agents-observe-tool-calls", "managed-agents-worker-dispatch"]
BUILD_S, TURN_S, EXAMPLE_S = 600, 90, 150
PLAY = {"What is the current time?": 'tool current_time {}\ntool bash {"command":"pwd"}\n---\ntext It is late.', "Serve me": 'tool current_time {}\ntool bash {"command":"pwd"}\n---\ntext Served.'}


def build(go, folder, output, package, **env):
    done = subprocess.run([go, "build", "-o", output, package], cwd=folder, env=dict(os.environ, GOFLAGS="-mod=mod", **env), capture_output=True, text=True, timeout=BUILD_S)
    if done.returncode != 0:
        raise Failure(f"{package} cannot be built: {done.stderr.strip()[-400:]}")
    return output


def cli(go, work):
    """The program, or None."""
    source = os.environ.get("MANGO_TEST_SDK_CLI")
    if source:
        copy = os.path.join(work, "cli")
        shutil.copytree(source, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
        return build(go, copy, os.path.join(work, "ant"), "./cmd/ant")
    done = subprocess.run([go, "install", f"{CLI}/cmd/ant@{CLI_RELEASE}"], env=dict(os.environ, GOBIN=work, GIT_TERMINAL_PROMPT="0"), capture_output=True, text=True, timeout=BUILD_S)
    if done.returncode == 0:
        return os.path.join(work, "ant")
    print(f"skipped: the worker CLI is not at the Go proxy ({done.stderr.strip()[-160:]!r}); MANGO_TEST_SDK_CLI can name a checkout of it")
    return None


def examples(go, work):
    source = os.environ.get("MANGO_TEST_SDK_GO")
    if not source:
        print("skipped: the Go SDK's examples are in no package; MANGO_TEST_SDK_GO can name a checkout of the SDK")
        return {}
    copy = os.path.join(work, "go-sdk")
    shutil.copytree(source, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    return {name: build(go, os.path.join(copy, "examples"), os.path.join(work, name), f"./{name}") for name in EXAMPLES}


class Rig(Sessions):
    """An environment, its key and a folder for each check."""

    TURN_S = TURN_S

    def __init__(self, server, name):
        self.server, self.client, self.processes = server, server.client, []
        self.folder = os.path.join(server.dir, name)
        os.makedirs(self.folder)
        self.environment = self.client.post("/v1/environments", {"name": name, "config": {"type": "self_hosted"}})["id"]
        self.key = issue(server, self.environment)

    def start(self, argv, **env):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC_", "MANGO_"))}
        own = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.server.port}", "ANTHROPIC_ENVIRONMENT_ID": self.environment, "ANTHROPIC_ENVIRONMENT_KEY": self.key, "ANTHROPIC_API_KEY": self.server.key, "MANGO_WORKER_RUNNER": RUNNER}
        p = Process(argv, {**kept, **own, **env}, os.path.join(self.folder, f"..{len(self.processes)}.log"), cwd=self.folder)
        self.processes.append(p)
        return p

    def script(self, *argv):
        path = os.path.join(self.folder, "on-work")
        with open(path, "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o755)) as f:
            f.write("#!/bin/sh\nexec " + " ".join(argv) + "\n")
        return path

    def session(self):
        time_tool = {"type": "custom", "name": "current_time", "description": "d", "input_schema": {"type": "object", "properties": {}}}
        agent = self.client.post("/v1/agents", {"name": "a", "model": "m", "tools": [{"type": "agent_toolset_20260401"}, time_tool]})["id"]
        return self.client.post("/v1/sessions", {"agent": agent, "environment_id": self.environment})["id"]

    def texts(self, session, n):
        """Of the n results of a turn that ended."""
        got = self.results(self.wait_end(session))
        if len(got) != n or any(error for _, error in got):
            raise Failure(f"{n} results without errors were expected: {got}")
        return [text for text, _ in got]

    def served(self, worker):
        """One session with all tools of the worker's own, which leaves it and goes on; and a second one."""
        for i in range(2):
            s = self.session()
            script = [f'tool write {{"file_path":"a.txt","content":"one {i}\\n"}}', "---", 'tool edit {"file_path":"a.txt","old_string":"one","new_string":"two"}', "---", 'tool read {"file_path":"a.txt"}',
                      'tool bash {"command":"pwd"}', 'tool glob {"pattern":"*.txt"}', 'tool grep {"pattern":"two"}', "---", "text done"]  # fmt: skip
            self.say(s, *script)
            results = self.texts(s, 6)
            if f"two {i}" not in results[2] or os.path.realpath(self.folder) not in results[3]:
                raise Failure(results)
            self.wait_left(timeout=60)
        if not worker.running():
            raise Failure("the worker ended")
        worker.signal(signal.SIGTERM)
        worker.wait(60)

    def close(self):
        for p in self.processes:
            p.end()


# ---- what is checked: a rig, and the programs ----


def the_cli_polls_and_serves(rig, ant, _):
    rig.served(rig.start([ant, "beta:worker", "poll", "--workdir", rig.folder, "--max-idle", "1s"]))


def the_cli_hands_items_to_its_own_run(rig, ant, _):
    rig.served(rig.start([ant, "beta:worker", "poll", "--on-work", rig.script(ant, "beta:worker", "run", "--workdir", rig.folder, "--max-idle", "1s")]))


def the_cli_hands_items_to_mango_worker(rig, ant, _):
    rig.served(rig.start([ant, "beta:worker", "poll", "--on-work", rig.script(os.path.join(BUILD, "mango-worker"), "run", "--workdir", rig.folder, "--max-idle", "1s")]))


def mango_worker_hands_items_to_the_cli(rig, ant, _):
    script = rig.script(ant, "beta:worker", "run", "--workdir", rig.folder, "--max-idle", "1s")
    rig.served(rig.start([os.path.join(BUILD, "mango-worker"), "poll", "--pass-environment-key", "--on-work", script]))


def example_self_hosted_sandbox_worker(rig, _, built):
    example = rig.start([built[EXAMPLES[0]]])
    session = wait_for("it made a session", lambda: re.search(r"created session.*session_id=(\S+)", example.log()), EXAMPLE_S)[1]
    results = rig.texts(session, 2)
    if not any(os.path.realpath(rig.folder) in r for r in results) or example.wait(EXAMPLE_S) != 0 or "--- session transcript ---" not in example.log():
        raise Failure(f"{results}\n{example.log()[-2000:]}")


def example_observe_tool_calls(rig, _, built):
    example = rig.start([built[EXAMPLES[1]]], ANTHROPIC_WORKDIR=rig.folder)
    if example.wait(EXAMPLE_S) != 0 or "bash" not in example.log():
        raise Failure(example.log()[-2000:])


def example_worker_dispatch(rig, ant, built):
    rig.start([ant or os.path.join(BUILD, "mango-worker"), *(["beta:worker", "poll"] if ant else ["poll", "--pass-environment-key"]), "--on-work", rig.script(built[EXAMPLES[2]])], ANTHROPIC_WORKDIR=rig.folder)
    session = rig.session()
    rig.client.say(session, "Serve me")
    if not any(os.path.realpath(rig.folder) in r for r in rig.texts(session, 2)):
        raise Failure("the folder is another")


OF_CLI = [the_cli_polls_and_serves, the_cli_hands_items_to_its_own_run, the_cli_hands_items_to_mango_worker, mango_worker_hands_items_to_the_cli]
OF_EXAMPLES = [example_self_hosted_sandbox_worker, example_observe_tool_calls, example_worker_dispatch]


def run(check, server, ant, built):
    rig = Rig(server, check.__name__)
    what = check.__name__.replace("_", " ")
    try:
        check(rig, ant, built)
        print(f"ok - {what}", flush=True)
        return True
    except Exception:
        logs = "".join(f"---\n{p.log()[-3000:]}\n" for p in rig.processes)
        print(f"not ok - {what}\n{traceback.format_exc()}\n{logs}", flush=True)
        return False
    finally:
        rig.close()


def main():
    if not sdk.asked("fetches the Go modules that the worker CLI needs"):
        return SKIPPED
    work = os.path.join(sdk.WORK, "worker-cli")
    os.makedirs(work, exist_ok=True)
    try:
        go = go_tool.go(sdk.WORK)
        ant, built = cli(go, work), examples(go, work)
    except (OSError, subprocess.TimeoutExpired) as e:
        print(f"skipped: go: {e}")
        return SKIPPED
    checks = (OF_CLI if ant else []) + (OF_EXAMPLES if built else [])
    if not checks:
        return SKIPPED
    env = {"MANGO_WORK_ALLOW_ENVIRONMENT_KEY": "1", "MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX": None}
    with FakeModel() as model, Mangod(database=None, model_url=model.url, sandbox=None, env=env) as server:
        model.client.post("/script", {"when": PLAY})
        with concurrent.futures.ThreadPoolExecutor(len(checks)) as pool:
            passed = list(pool.map(lambda check: run(check, server, ant, built), checks))
        return sdk.finish(sum(passed), len(passed) - sum(passed), model)


if __name__ == "__main__":
    sys.exit(main())
