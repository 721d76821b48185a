"""Runs the official SDKs and foreign WebSocket clients against a mangod of its own: what an application developer would use, from the registries.

The packages go into the build folder once. Where a registry cannot be reached and nothing was installed before, that client is reported as skipped with
the reason; MANGO_TEST_SDK=require makes that a failure. `make check` uses no network: there the variable must be set to anything.
"""
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import go_tool  # noqa: E402
from harness import BUILD, FakeModel, Mangod, SKIPPED  # noqa: E402
from vault_rig import key_text, write_keyring  # noqa: E402
from webhook_rig import LOCAL, Receiver, mango, new_webhook  # noqa: E402

WORK = os.path.join(BUILD, "tests", "sdk")
INSTALL_S, RUN_S = 600, 300
NODE = "22.21.0"  # of the npm package node: the glob tool of the TypeScript SDK and the MCP SDK's server do not run on the 18 of Debian 12
NPM = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
PYTHON_PACKAGES = ["anthropic[webhooks]==2.14.0", "websockets==17.4"]
NOTICES = ", webhooks"  # clients of this name find new notices in the file MANGO_NOTICES
SCRIPTED = ["threads"]  # clients that need what only the scripted model says
TYPESCRIPT = ["sdk-1.14.0", "sdk-1.2.0", "sdk-0.130.0", "sdk-0.120.0"]


def install(name, stamp, wanted, commands):
    """True when the packages are there. stamp holds what was installed. Runners run side by side: one installs, the others wait."""
    with open(os.path.join(WORK, stamp), "a+", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        if f.read() == wanted:
            return True
        f.truncate(0)
        for argv in commands:
            try:
                done = subprocess.run(argv, cwd=WORK, capture_output=True, text=True, timeout=INSTALL_S)
            except (OSError, subprocess.TimeoutExpired) as e:
                print(f"skipped: {name}: {argv[0]}: {e}")
                return False
            if done.returncode != 0:
                print(f"skipped: {name}: {' '.join(argv[:3])} failed: {(done.stderr or done.stdout).strip()[-300:]}")
                return False
        f.write(wanted)
    return True


def install_npm(name, wanted):
    """What the package.json in WORK, of the text `wanted`, asks for."""
    return install(name, "npm.stamp", wanted, [NPM])


def install_node():
    """The path of a node that is new enough; None where it cannot be had."""
    os.makedirs(os.path.join(WORK, "node22"), exist_ok=True)
    there = install("node 22", "node22.stamp", NODE, [[*NPM, "--prefix", "node22", f"node@{NODE}"]])
    return os.path.join(WORK, "node22", "node_modules", "node", "bin", "node") if there else None


def install_python():
    """The Python that has the packages; None where they cannot be had."""
    venv = os.path.join(WORK, "venv", "bin", "python")
    commands = [[sys.executable, "-m", "venv", "venv"], [venv, "-m", "pip", "install", "-q", *PYTHON_PACKAGES]]
    return venv if install("pip", "pip.stamp", " ".join(PYTHON_PACKAGES), commands) else None


def install_go(folder, stamp, main, built, build):
    """The program that is built from the copy of a main.go and what stands beside it; None where it cannot be had."""
    beside = os.path.dirname(os.path.join(HERE, "go", main))
    sources = "".join(open_text(os.path.join(beside, n)) for n in sorted(os.listdir(beside)) if n.endswith(".go"))
    sources += open_text(os.path.join(HERE, "go", "go.sum"))
    try:
        go = go_tool.go(WORK)
    except (OSError, subprocess.TimeoutExpired) as e:
        print(f"skipped: go: {e}")
        return None
    there = install("go", stamp, sources, [[go, "build", "-C", folder, "-o", built, build]])
    return os.path.join(WORK, folder, built) if there else None


def open_text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def prepare():
    """Copies of the scripts stand beside the packages, since node looks for them in the script's own folders."""
    os.makedirs(os.path.join(WORK, "go"), exist_ok=True)
    for name in ("package.json", "checks.mjs", "typescript.mjs", "resources.mjs", "files.mjs", "threads.mjs", "webhooks.mjs", "ws_resume.mjs", "python_sdk.py", "resources.py", "webhooks.py", "ws_resume.py"):
        shutil.copy(os.path.join(HERE, name), WORK)
    for name in ("go.mod", "go.sum", "main.go", "resources.go", "every.go", "webhooks.go"):
        shutil.copy(os.path.join(HERE, "go", name), os.path.join(WORK, "go"))


def clients():
    """(name, argv, folder) of each client that can run here; the missing ones were reported."""
    out, missing = [], 0
    if install_npm("npm", open_text(os.path.join(HERE, "package.json"))):
        out += [(alias, ["node", "typescript.mjs", alias], WORK) for alias in TYPESCRIPT]
        out += [(f"{alias} resources", ["node", "resources.mjs", alias], WORK) for alias in TYPESCRIPT]
        out += [(f"{alias}, files", ["node", "files.mjs", alias], WORK) for alias in TYPESCRIPT]
        out += [(alias + NOTICES, ["node", "webhooks.mjs", alias], WORK) for alias in TYPESCRIPT]
        out += [("ws from npm", ["node", "ws_resume.mjs"], WORK)]
        out += [("threads", ["node", "threads.mjs", TYPESCRIPT[0]], WORK)]
    else:
        missing += 1
    venv = install_python()
    if venv:
        out += [("python sdk", [venv, "python_sdk.py"], WORK), ("python sdk resources", [venv, "resources.py"], WORK), ("websockets from PyPI", [venv, "ws_resume.py"], WORK)]
        out += [("python sdk" + NOTICES, [venv, "webhooks.py"], WORK)]
    else:
        missing += 1
    go = install_go("go", "go.stamp", "main.go", "client", ".")
    if go:
        out += [("go sdk", [go], WORK), ("go sdk" + NOTICES, [go, "webhooks"], WORK)]
    else:
        missing += 1
    return out, missing


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


def write_notices(server):
    """Causes a few events and keeps what a webhook was told of them: the verifiers refuse what is older than five minutes."""
    path = os.path.join(WORK, "notices.json")
    with Receiver() as receiver:
        hook, secret = new_webhook(server, receiver.url)
        server.client.post(f"/v1/sessions/{server.client.new_session()['id']}/archive")
        receiver.wait(1, "session.archived")
        mango(server, "webhook", "delete", hook)
        notices = [{"headers": n.headers, "raw": n.raw.decode()} for n in receiver.of()]
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"secret": secret, "notices": notices}, f)
    return path


def run_all(group, model_url):
    """The clients of a group against one server. model_url: of the scripted endpoint, or None for the offline model."""
    passed = failed = 0
    if not group:
        return 0, 0
    with Mangod(database=None, env={"MANGO_DEFAULT_ENVIRONMENT": "cloud", "MANGO_VAULT_KEYRING_FILE": keyring(), **LOCAL}, model_url=model_url) as server:
        env = dict(os.environ, MANGO_BASE_URL=f"http://127.0.0.1:{server.port}", MANGO_API_KEY=server.key)
        env.pop("ANTHROPIC_API_KEY", None)
        env.pop("ANTHROPIC_BASE_URL", None)
        for name, argv, cwd in group:
            if name.endswith(NOTICES):
                env["MANGO_NOTICES"] = write_notices(server)
            got = run(name, argv, cwd, env)
            passed, failed = passed + got[0], failed + got[1]
        if server.stop() != 0:
            print("not ok - the server did not stop cleanly")
            failed += 1
    return passed, failed


def main():
    if not os.environ.get("MANGO_TEST_SDK"):
        print("skipped: MANGO_TEST_SDK is not set; it installs clients from npm, PyPI and the Go proxy (./bootstrap check sets it)")
        return SKIPPED
    prepare()
    ready, missing = clients()
    if missing and os.environ.get("MANGO_TEST_SDK") == "require":
        print("not ok - a client could not be installed, and MANGO_TEST_SDK=require forbids to go on without it")
        return 1
    if not ready:
        return SKIPPED
    passed = failed = 0
    scripted = [c for c in ready if c[0] in SCRIPTED]
    with FakeModel() as model:
        for group, model_url in (([c for c in ready if c not in scripted], None), (scripted, model.url)):
            got = run_all(group, model_url)
            passed, failed = passed + got[0], failed + got[1]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
