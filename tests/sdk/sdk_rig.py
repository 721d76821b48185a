"""What the runs of this folder share: MANGO_TEST_SDK, the packages from the registries in the build folder, and the counts at the end.

`make check` uses no network: there MANGO_TEST_SDK must be set to anything. Where a registry cannot be reached and nothing was installed before, that client is reported
as skipped with the reason; MANGO_TEST_SDK=require makes that a failure.
"""
import fcntl
import filecmp
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import go_tool  # noqa: E402
from harness import BUILD, SKIPPED, Process, wait_for  # noqa: E402
from vault_rig import key_text, write_keyring  # noqa: E402
from worker_rig import IDLE_MS, WorkerProcess  # noqa: E402

WORK = os.path.join(BUILD, "tests", "sdk")
INSTALL_S, RUN_S = 600, 300
NODE = "22.21.0"  # of the npm package node: the glob tool of the TypeScript SDK and the MCP SDK's server do not run on the 18 of Debian 12
NPM = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
PYTHON_PACKAGES = ["anthropic[webhooks]==2.14.0", "websockets==17.4"]
TYPESCRIPT = ["sdk-1.14.0", "sdk-1.2.0", "sdk-0.130.0", "sdk-0.120.0"]
RUNNER = os.path.join(BUILD, "plugins", "loadable", "mango-local-runner")


class Failure(AssertionError):
    pass


# ---- whether to run, and how it ended ----


def asked(what):
    """Whether MANGO_TEST_SDK is set; else says what the run would do."""
    if not os.environ.get("MANGO_TEST_SDK"):
        print(f"skipped: MANGO_TEST_SDK is not set; it {what} (./bootstrap check sets it)")
    return bool(os.environ.get("MANGO_TEST_SDK"))


def cannot_begin(ready, missing):
    """The exit status of a run that has not what it needs; None where it has."""
    if missing and os.environ.get("MANGO_TEST_SDK") == "require":
        print("not ok - what a registry has could not be installed, and MANGO_TEST_SDK=require forbids to go on without it")
        return 1
    return None if ready else SKIPPED


def finish(passed, failed, model=None, more=""):
    """Prints the count; the exit status."""
    if model and model.refused():
        failed += 1
        print(f"not ok - the model endpoint had to refuse {model.refused()} requests")
    print(f"{passed} passed, {failed} failed{more}")
    return 1 if failed else 0


# ---- packages ----


def install(name, stamp, wanted, commands, folder=WORK):
    """True when the packages are there. stamp holds what was installed. Runners run side by side: one installs, the others wait."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, stamp), "a+", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        if f.read() == wanted:
            return True
        f.truncate(0)
        for argv in commands:
            try:
                done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S)
            except (OSError, subprocess.TimeoutExpired) as e:
                print(f"skipped: {name}: {argv[0]}: {e}")
                return False
            if done.returncode != 0:
                print(f"skipped: {name}: {' '.join(argv[:3])} failed: {(done.stderr or done.stdout).strip()[-300:]}")
                return False
        f.write(wanted)
    return True


def copy(names, source, folder):
    """Files beside the packages, since node looks for those in the script's own folders. What is the same already may be in use by another run."""
    os.makedirs(folder, exist_ok=True)
    for name in names:
        there = os.path.join(folder, os.path.basename(name))
        if not os.path.exists(there) or not filecmp.cmp(os.path.join(source, name), there, shallow=False):
            shutil.copy(os.path.join(source, name), there)


def install_npm(name, folder=WORK):
    """What the package.json in the folder asks for."""
    return install(name, "npm.stamp", open_text(os.path.join(folder, "package.json")), [NPM], folder)


def install_node():
    """The path of a node that is new enough; None where it cannot be had."""
    os.makedirs(os.path.join(WORK, "node22"), exist_ok=True)
    there = install("node 22", "node22.stamp", NODE, [[*NPM, "--prefix", "node22", f"node@{NODE}"]])
    return os.path.join(WORK, "node22", "node_modules", "node", "bin", "node") if there else None


def install_typescript():
    """True when the releases of TYPESCRIPT are there, beside this folder's scripts."""
    copy([n for n in os.listdir(HERE) if n.endswith(".mjs") or n == "package.json"], HERE, WORK)
    return install_npm("npm")


def install_python():
    """The Python that has the packages, beside this folder's scripts; None where they cannot be had."""
    venv = os.path.join(WORK, "venv", "bin", "python")
    commands = [[sys.executable, "-m", "venv", "venv"], [venv, "-m", "pip", "install", "-q", *PYTHON_PACKAGES]]
    copy(["checks.py", "python_sdk.py", "resources.py", "webhooks.py", "worker.py", "ws_resume.py"], HERE, WORK)
    return venv if install("pip", "pip.stamp", " ".join(PYTHON_PACKAGES), commands) else None


def install_go(package, built):
    """The program that is built of a package in go/; None where it cannot be had."""
    source, module = os.path.join(HERE, "go", package), os.path.join(WORK, "go")
    copy(["go.mod", "go.sum"], os.path.join(HERE, "go"), module)
    names = sorted(n for n in os.listdir(source) if n.endswith(".go"))
    copy(names, source, os.path.join(module, package))
    sources = "".join(open_text(os.path.join(source, n)) for n in names) + open_text(os.path.join(HERE, "go", "go.sum"))
    try:
        go = go_tool.go(WORK)
    except (OSError, subprocess.TimeoutExpired) as e:
        print(f"skipped: go: {e}")
        return None
    return os.path.join(module, built) if install("go", f"go-{built}.stamp", sources, [[go, "build", "-C", "go", "-o", built, "./" + package]]) else None


def open_text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


# ---- what runs ----


def run(name, argv, cwd, env):
    """(passed, failed) as the client counted them."""
    try:
        done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=RUN_S)
    except subprocess.TimeoutExpired as e:
        print(f"not ok - {name}: not done after {RUN_S} s\n{(e.stdout or b'').decode(errors='replace')[-2000:]}")
        return 0, 1
    print(done.stdout, end="")
    counts = re.findall(r"^(\d+) passed, (\d+) failed$", done.stdout, re.M)
    if not counts or (done.returncode != 0 and counts[-1][1] == "0"):
        print(f"not ok - {name}: ended with status {done.returncode} and no count\n{done.stderr[-3000:]}")
        return 0, 1
    if counts[-1][1] != "0":
        print(done.stderr[-3000:])
    return int(counts[-1][0]), int(counts[-1][1])


def keyring():
    """A file with a key for the vaults; its server is gone after the run, and so may be the key."""
    path = os.path.join(WORK, "keyring.json")
    if os.path.exists(path):
        os.remove(path)
    write_keyring(path, "test", {"test": key_text()})
    return path


class OfficialWorker(WorkerProcess):
    """The worker of an SDK, unmodified: argv runs worker.mjs or what does the same."""

    END_S = 60

    def __init__(self, argv, url, environment, key, folder, name="official", mode="worker", idle_ms=IDLE_MS):
        env = dict(os.environ, MANGO_BASE_URL=url, WORKER_ENVIRONMENT=environment, WORKER_KEY=key, WORKER_DIR=folder, WORKER_IDLE_MS=str(idle_ms), WORKER_ID=name, WORKER_MODE=mode)
        env.pop("ANTHROPIC_API_KEY", None)
        self.process = Process(argv, env, os.path.join(folder, f"..{name}.{time.monotonic_ns()}.log"), cwd=WORK)
        try:
            if mode == "worker":
                wait_for(f"the worker {name} starts", lambda: "ready" in self.log(), 60)
        except AssertionError as e:
            self.kill()
            raise AssertionError(f"{e}; its log ends with {self.log()[-1000:]}") from e
