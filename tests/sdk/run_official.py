"""Runs the official SDKs' own examples of managed agents, unmodified, against a mangod with a scripted model: only the base URL, the keys and what else
they read from the environment are given. None of them stands in this repository:

- the Python SDK's come with its source archive, which pip fetches;
- the TypeScript SDK's are only in its Git repository, not in its package. They are taken from MANGO_TEST_SDK_EXAMPLES, the examples folder of a checkout of
  TYPESCRIPT_TAG, or cloned; where neither can be had that is said, and they are left out. They run with the release that they belong to and with the newest.

MANGO_TEST_SDK as in sdk_rig.py: =require makes a registry that cannot be reached a failure, but not the repository, which is none.
"""
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import traceback

import sdk_rig as sdk
from harness import BUILD, SKIPPED, FakeModel, Mangod, Process, wait_for
from sdk_rig import RUNNER, Failure
from test_files import TYPE, multipart
from worker_rig import Sessions, issue

WORK = os.path.join(sdk.WORK, "official")
PYTHON_RELEASE = re.sub(r"\[.*\]", "", sdk.PYTHON_PACKAGES[0])  # the source is of the package, without extras
TYPESCRIPT_REPOSITORY, TYPESCRIPT_TAG = "https://github.com/anthropics/anthropic-sdk-typescript", "sdk-v0.120.0"
TYPESCRIPT_RELEASES = ["0.120.0", "1.14.0"]
CLONE_S = 20  # a host that cannot be reached may leave packets unanswered
EXAMPLE_S = 150  # seconds that an example may take; those with a worker wait 60 of them for more work

# What the model says to the prompts of the examples. They send first and attach afterwards: the answer must not be over by then.
LATER = "delay 1500\n"
PLAY = {
    "Hello Claude!": LATER + "text Hello from the model.",
    "Write a short haiku about the ocean.": LATER + "text Waves come in and go,\\nand the moon keeps count of them,\\nsalt on every page.",
    "Read /uploads/data.csv": LATER + 'tool read {"file_path":"/mnt/session/uploads/data.csv"}\n---\ntext The file has columns.',
    "Hi! List every tool and skill": LATER + 'tool get_weather {"city":"Paris"}\ntool bash {"command":"cat skills/*/SKILL.md"}\n---\ntext That is all of them.',
    "What is the current time?": 'tool current_time {}\ntool bash {"command":"pwd"}\n---\ntext It is late.',
    "Run pwd and then ls": 'tool bash {"command":"pwd"}\ntool bash {"command":"ls"}\n---\ntext Two files.',
    "Serve me": 'tool current_time {}\ntool bash {"command":"pwd; echo from the dispatched worker"}\n---\ntext Served.',
}
# The TypeScript example of release 0.120.0 waits for get_weather under the name of a built-in tool, so nothing would answer it.
NO_WEATHER = {"Hi! List every tool and skill": PLAY["Hi! List every tool and skill"].replace('tool get_weather {"city":"Paris"}\n', "")}


# ---- where the examples come from ----


def python_examples():
    """(command, folder) of the examples of the Python SDK; None where they cannot be had."""
    venv = sdk.install_python()
    archive = os.path.join("official", PYTHON_RELEASE.replace("==", "-") + ".tar.gz")
    pip = [venv, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "anthropic", "-d", "official", PYTHON_RELEASE]
    if not venv or not sdk.install("the source of the Python SDK", "official-python.stamp", PYTHON_RELEASE, [pip, ["tar", "-xzf", archive, "-C", "official"]]):
        return None
    return [venv], os.path.join(sdk.WORK, archive[: -len(".tar.gz")], "examples")


def clone():
    """The examples folder of a clone of the TypeScript SDK's repository; None where there is none."""
    folder = os.path.join(WORK, TYPESCRIPT_TAG)
    argv = ["git", "clone", "-q", "--depth", "1", "--branch", TYPESCRIPT_TAG, TYPESCRIPT_REPOSITORY, folder]
    if not os.path.isdir(os.path.join(folder, "examples")):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            subprocess.run(argv, env=dict(os.environ, GIT_TERMINAL_PROMPT="0"), capture_output=True, text=True, timeout=CLONE_S, check=True)
        except (OSError, subprocess.SubprocessError) as e:
            why = (getattr(e, "stderr", None) or str(e))
            print(f"skipped: the examples of the TypeScript SDK: {str(why).strip()[-200:]}; MANGO_TEST_SDK_EXAMPLES can name a checkout's folder of them")
            return None
    return os.path.join(folder, "examples")


def typescript_examples(release, source):
    """(command, folder) of the examples with the packages of a release beside them."""
    folder = os.path.join("official", f"typescript-{release}")
    wanted = sdk.open_text(os.path.join(sdk.HERE, "examples", "official.json")).replace("RELEASE", release)
    os.makedirs(os.path.join(sdk.WORK, folder), exist_ok=True)
    with open(os.path.join(sdk.WORK, folder, "package.json"), "w", encoding="ascii") as f:
        f.write(wanted)
    node = sdk.install_node()
    if not node or not sdk.install(f"the TypeScript SDK {release}", f"official-{release}.stamp", wanted, [[*sdk.NPM, "--prefix", folder]]):
        return None
    shutil.copytree(source, os.path.join(sdk.WORK, folder, "examples"), dirs_exist_ok=True)
    return [node, os.path.join(sdk.WORK, folder, "node_modules", "tsx", "dist", "cli.mjs")], os.path.join(sdk.WORK, folder, "examples")


# ---- one example ----


class Example:
    """A process that runs an example file, with what it prints."""

    def __init__(self, suite, file, argv, env):
        self.suite, self.file = suite, file
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC_", "MANGO_"))}
        self.env.update(ANTHROPIC_BASE_URL=f"http://127.0.0.1:{suite.server.port}", ANTHROPIC_API_KEY=suite.server.key, PYTHONUNBUFFERED="1", **env)
        self.process = Process(argv, self.env, os.path.join(suite.server.dir, f"{suite.name}-{file}.log"), cwd=suite.folder)
        suite.running.append(self)

    def text(self):
        """What it printed, with its carriage returns."""
        with open(self.process.log_path, encoding="utf-8", errors="replace", newline="") as f:
            return f.read()

    def expect(self, condition, what):
        if not condition:
            raise Failure(what)

    def printed(self, pattern):
        """What the pattern matches in the output, once it does."""
        return wait_for(f"{self.file} prints {pattern}", lambda: re.search(pattern, self.text()), EXAMPLE_S, every=0.1)

    def end(self, status=0):
        """What it printed, once it ended."""
        try:
            got = self.process.wait(EXAMPLE_S)
        except subprocess.TimeoutExpired:
            self.expect(False, f"{self.file} is not done after {EXAMPLE_S} s")
        self.expect(got == status, f"{self.file} ended with status {got}")
        return self.text()


class Suite(Sessions):
    """The examples of one SDK. Each method is a test; those of SLOW run beside the others."""

    TURN_S = EXAMPLE_S

    def __init__(self, name, command, folder, server, model, suffix, dash):
        self.name, self.command, self.folder, self.server, self.model = name, command, folder, server, model
        self.suffix, self.dash, self.client = suffix, dash, server.client
        self.passed = self.failed = 0
        self.running = []
        self.workdir = os.path.join(server.dir, f"work-{name}")
        os.makedirs(self.workdir)

    def start(self, name, **env):
        file = name.replace("_", self.dash) + self.suffix
        return Example(self, file, [*self.command, file], env)

    def environment(self):
        """The id and the key of a self-hosted environment of its own."""
        made = self.client.post("/v1/environments", {"name": f"{self.name} examples", "config": {"type": "self_hosted"}})["id"]
        return {"ANTHROPIC_ENVIRONMENT_ID": made, "ANTHROPIC_ENVIRONMENT_KEY": issue(self.server, made), "ANTHROPIC_WORKDIR": self.workdir}

    def texts(self, session):
        """Of the results of its turn, once that ended."""
        return [text for text, _ in self.results(self.wait_end(session))]

    # ---- what is checked ----

    def agents(self):
        example = self.start("agents")
        text = example.end()
        example.expect("Hello from the model." in text and '"session.status_idle"' in text, "the answer and the idle")

    def streaming_deltas(self):
        example = self.start("managed-agents-streaming-deltas-manual")
        text = example.end()
        example.expect(re.search(r"\[final\] Waves come in and go,\n.*\nsalt on every page\.", text), "the final text")
        example.expect(len(set(re.findall(r"\rWaves[^\r[]*", text))) >= 3, "previews that grow")

    def agents_with_files(self):
        example = self.start("agents_with_files")
        text = example.end()
        with open(os.path.join(self.folder, "data.csv"), encoding="utf-8") as f:
            columns = f.readline().strip()
        example.expect("/mnt/session/uploads/data.csv" in text, "the place of the file")
        example.expect(columns in text and "The file has columns." in text, f"its first line {columns}")

    def agents_comprehensive(self):
        example = self.start("agents_comprehensive", GITHUB_TOKEN="of-no-use")
        text = example.end()
        example.expect("That is all of them." in text and "end_turn" in text, "the answer")
        example.expect('"mcp_server_name": "github"' in text, "an error that names the MCP server, which cannot be reached or refuses the token")
        example.expect(re.search(r"agent\.tool_result(.|\n)*greeting", text), "the skill in the sandbox")
        if PLAY["Hi! List every tool and skill"] == self.play["Hi! List every tool and skill"]:
            example.expect("user.custom_tool_result" in text and "temperature_c" in text, "the answer to the custom tool")

    def observe_tool_calls(self):
        """The tools run in the example's own process. It would wait a minute for more; the end of the session ends it."""
        env = self.environment()
        example = self.start("managed-agents-observe-tool-calls", **env)
        session = example.printed(r"created session (\S+)")[1]
        results = self.texts(session)
        example.expect(len(results) == 2 and any(os.path.realpath(self.workdir) in r for r in results), f"two results, one the folder: {results}")
        self.client.post(f"/v1/sessions/{session}/archive")
        text = example.end()
        calls = re.findall(r"bash.*(?:posted=True|-> ok$)", text, re.M)
        example.expect(len(calls) == (2 if self.dash == "_" else 1), f"the calls it saw: {calls}")

    def self_hosted_worker(self):
        """The example of a worker ends after a minute: it is interrupted, as from the keyboard, where it cleans up even so; else it is waited for."""
        env = self.environment()
        example = self.start("managed-agents-self-hosted-sandbox-worker", **env)
        session = example.printed(r"created session (\S+)")[1]
        results = self.texts(session)
        example.expect(len(results) == 2 and any(os.path.realpath(self.workdir) in r for r in results), f"two results, one the folder: {results}")
        if self.dash == "_":
            example.process.signal(signal.SIGINT)
            example.process.wait(EXAMPLE_S)
        else:
            text = example.end()
            example.expect("agent.message: It is late." in text, "the transcript")
        status = self.client.raw("GET", f"/v1/sessions/{session}")[0]
        example.expect(status == 404, "the session is deleted by the example")

    def worker_dispatch(self):
        """An item that mango-worker claims is handed to the example, in the folder that it expects."""
        env = self.environment()
        root = [x for f in sorted(os.listdir("/")) if os.path.isdir(f"/{f}") and f not in ("workspace", "proc", "dev") for x in ("--bind", f"/{f}", f"/{f}")]
        inside = ["bwrap", "--dev-bind", "/dev", "/dev", *root, "--proc", "/proc", "--bind", self.workdir, "/workspace"]
        script = os.path.join(self.server.dir, f"{self.name}-dispatch")
        file = os.path.join(self.folder, "managed-agents-worker-dispatch" + self.suffix)
        with open(script, "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o755)) as f:
            # mango-worker passes the item's secret and no environment key; release 0.120.0 asks for one, and then uses the secret.
            f.write("#!/bin/sh\nexport ANTHROPIC_ENVIRONMENT_KEY=of-no-use\nexec " + " ".join([*inside, *self.command, file]) + "\n")
        argv = [os.path.join(BUILD, "mango-worker"), "poll", "--on-work", script]
        dispatch = Example(self, "managed-agents-worker-dispatch" + self.suffix, argv, {**env, "ANTHROPIC_WORKDIR": "/workspace", "MANGO_WORKER_RUNNER": RUNNER})
        time_tool = {"type": "custom", "name": "current_time", "description": "d", "input_schema": {"type": "object", "properties": {}}}
        agent = self.client.post("/v1/agents", {"name": "dispatched", "model": "m", "tools": [{"type": "agent_toolset_20260401"}, time_tool]})["id"]
        session = self.client.post("/v1/sessions", {"agent": agent, "environment_id": env["ANTHROPIC_ENVIRONMENT_ID"]})["id"]
        self.client.say(session, "Serve me")
        results = self.texts(session)
        dispatch.expect(any("/workspace" in r and "from the dispatched worker" in r for r in results), results)
        self.client.post(f"/v1/sessions/{session}/archive")
        dispatch.printed(r"work item (?:complete|handled)")

    SLOW = [self_hosted_worker, observe_tool_calls, worker_dispatch]
    QUICK = [agents, streaming_deltas, agents_with_files, agents_comprehensive]

    def run(self, check):
        what = check.__name__.replace("_", " ")
        try:
            check(self)
            self.passed += 1
            print(f"ok - {self.name}: {what}", flush=True)
        except Exception:
            self.failed += 1
            logs = "".join(f"--- {os.path.basename(e.process.log_path)}\n{e.text()[-3000:]}\n" for e in self.running)
            print(f"not ok - {self.name}: {what}\n{traceback.format_exc()}\n{logs}", flush=True)

    def run_all(self):
        self.play = {**PLAY, **(NO_WEATHER if self.dash == "-" else {})}
        self.model.client.post("/script", {"when": self.play})
        try:
            with concurrent.futures.ThreadPoolExecutor(len(self.SLOW)) as pool:
                beside = [pool.submit(self.run, c) for c in self.SLOW]
                for check in self.QUICK:
                    self.run(check)
                for b in beside:
                    b.result()
        finally:
            for e in self.running:
                e.process.end()


def import_skill(server):
    """The vendor's skill that an example names; on a server of one's own it is there when the operator imports one."""
    text = b"---\nname: xlsx\ndescription: Reads and writes spreadsheets.\n---\nUse a library.\n"
    status, _, answer = server.client.raw("POST", "/v1/skills", multipart(("source", None, b"anthropic"), ("files[]", "xlsx/SKILL.md", text)), TYPE)
    if status != 200:
        raise Failure(f"the import of a skill: {status} {answer[:300]}")


def suites():
    """(name, command, folder, suffix, dash) of each set of examples that is there, and how many a registry did not give."""
    out, missing = [], 0
    python = python_examples()
    if python:
        out += [("python", *python, ".py", "_")]
    missing += not python
    source = os.environ.get("MANGO_TEST_SDK_EXAMPLES") or clone()
    for release in TYPESCRIPT_RELEASES if source else []:
        there = typescript_examples(release, source)
        if there:
            out += [(f"typescript-{release}", *there, ".ts", "-")]
        missing += not there
    return out, missing


def main():
    if not sdk.asked("installs clients from npm and PyPI"):
        return SKIPPED
    os.makedirs(WORK, exist_ok=True)
    there, missing = suites()
    status = sdk.cannot_begin(there, missing)
    if status is not None:
        return status
    passed = failed = 0
    env = {"MANGO_DEFAULT_ENVIRONMENT": "cloud", "MANGO_VAULT_KEYRING_FILE": sdk.keyring()}
    with FakeModel() as model, Mangod(database=None, model_url=model.url, env=env) as server:
        import_skill(server)
        for name, command, folder, suffix, dash in there:
            suite = Suite(name, command, folder, server, model, suffix, dash)
            suite.run_all()
            passed, failed = passed + suite.passed, failed + suite.failed
        return sdk.finish(passed, failed, model)


if __name__ == "__main__":
    sys.exit(main())
