"""Runs the official SDKs and foreign WebSocket clients against a mangod of its own: what an application developer would use, from the registries."""
import json
import os
import sys

import sdk_rig as sdk
from harness import SKIPPED, FakeModel, Mangod
from webhook_rig import LOCAL, Receiver, mango, new_webhook

NOTICES = ", webhooks"  # clients of this name find new notices in the file MANGO_NOTICES
SCRIPTED = ["threads"]  # clients that need what only the scripted model says


def clients():
    """(name, argv, folder) of each client that can run here; the missing ones were reported."""
    out, missing, work = [], 0, sdk.WORK
    if sdk.install_typescript():
        out += [(alias, ["node", "typescript.mjs", alias], work) for alias in sdk.TYPESCRIPT]
        out += [(f"{alias} resources", ["node", "resources.mjs", alias], work) for alias in sdk.TYPESCRIPT]
        out += [(f"{alias}, files", ["node", "files.mjs", alias], work) for alias in sdk.TYPESCRIPT]
        out += [(alias + NOTICES, ["node", "webhooks.mjs", alias], work) for alias in sdk.TYPESCRIPT]
        out += [("ws from npm", ["node", "ws_resume.mjs"], work)]
        out += [("threads", ["node", "threads.mjs", sdk.TYPESCRIPT[0]], work)]
    else:
        missing += 1
    venv = sdk.install_python()
    if venv:
        out += [("python sdk", [venv, "python_sdk.py"], work), ("python sdk resources", [venv, "resources.py"], work), ("websockets from PyPI", [venv, "ws_resume.py"], work)]
        out += [("python sdk" + NOTICES, [venv, "webhooks.py"], work)]
    else:
        missing += 1
    go = sdk.install_go(".", "client")
    if go:
        out += [("go sdk", [go], work), ("go sdk" + NOTICES, [go, "webhooks"], work)]
    else:
        missing += 1
    return out, missing


def write_notices(server):
    """Causes a few events and keeps what a webhook was told of them: the verifiers refuse what is older than five minutes."""
    path = os.path.join(sdk.WORK, "notices.json")
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
    with Mangod(database=None, env={"MANGO_DEFAULT_ENVIRONMENT": "cloud", "MANGO_VAULT_KEYRING_FILE": sdk.keyring(), **LOCAL}, model_url=model_url) as server:
        env = dict(os.environ, MANGO_BASE_URL=f"http://127.0.0.1:{server.port}", MANGO_API_KEY=server.key)
        env.pop("ANTHROPIC_API_KEY", None)
        env.pop("ANTHROPIC_BASE_URL", None)
        for name, argv, cwd in group:
            if name.endswith(NOTICES):
                env["MANGO_NOTICES"] = write_notices(server)
            got = sdk.run(name, argv, cwd, env)
            passed, failed = passed + got[0], failed + got[1]
        if server.stop() != 0:
            print("not ok - the server did not stop cleanly")
            failed += 1
    return passed, failed


def main():
    if not sdk.asked("installs clients from npm, PyPI and the Go proxy"):
        return SKIPPED
    ready, missing = clients()
    status = sdk.cannot_begin(ready, missing)
    if status is not None:
        return status
    passed = failed = 0
    scripted = [c for c in ready if c[0] in SCRIPTED]
    with FakeModel() as model:
        for group, model_url in (([c for c in ready if c not in scripted], None), (scripted, model.url)):
            got = run_all(group, model_url)
            passed, failed = passed + got[0], failed + got[1]
    return sdk.finish(passed, failed)


if __name__ == "__main__":
    sys.exit(main())
