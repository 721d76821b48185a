"""Field case 63 while a server runs: its backend is lost, each tool is called, and nothing of it happens on the host instead."""
import json
import os
import secrets
import shutil
import tempfile

from harness import wait_for
from turns import fake

WAIT_S = 90  # a backend that was away is asked again after 15 s at most
HOST = "canary-on-the-host"


def calls(folder, mark):
    """What each tool is told to do: to leave the mark, or to give out what stands in the host's folder."""
    return {
        "bash": {"command": f"touch {mark} /tmp/{mark} {folder}/{mark}; cat {folder}/secret"},
        "write": {"file_path": f"{folder}/{mark}", "content": mark},
        "read": {"file_path": f"{folder}/secret"},
        "edit": {"file_path": f"{folder}/secret", "old_string": HOST, "new_string": mark},
        "glob": {"pattern": "*", "path": folder},
        "grep": {"pattern": "canary", "path": folder},
    }


def marked(m, mark):
    """Where the mark is outside of sandboxes: in the server's folders, its working folder (that of the test) and /tmp."""
    found = [path for path in (os.path.join(folder, mark) for folder in ("/tmp", os.getcwd())) if os.path.lexists(path)]
    for path, _, names in os.walk(m.dir):
        found += [os.path.join(path, n) for n in names if n == mark and "/session-" not in path]
    return found


def check_no_fallback(test, m, lose, restore):
    """m: a server with a model. lose and restore: what its backend cannot do without goes away, and is there again."""
    folder = tempfile.mkdtemp(prefix="mango-fallback.", dir="/srv")
    test.addCleanup(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o777)
    secret = os.path.join(folder, "secret")
    with open(secret, "w", encoding="ascii") as f:
        f.write(HOST)
    os.chmod(secret, 0o666)
    mark = "mark-" + secrets.token_hex(8)
    sessions = {tool: m.client.new_session()["id"] for tool in calls(folder, mark)}

    def events(tool):
        return m.client.events(sessions[tool])

    def said(tool):
        """The turn waits and says so, or its call was under way when the backend went, and failed."""
        return any(e["type"] == "session.error" or (e["type"] == "agent.tool_result" and e.get("is_error")) for e in events(tool))

    def nothing_on_the_host(when):
        test.assertEqual(os.listdir(folder), ["secret"], when)
        with open(secret, encoding="ascii") as f:
            test.assertEqual(f.read(), HOST, when)
        test.assertEqual(marked(m, mark), [], when)
        for tool in sessions:
            results = json.dumps([e for e in events(tool) if e["type"] == "agent.tool_result"])
            test.assertNotIn(HOST, results, f"{when}: {tool}")
            test.assertNotIn("secret\\n", results, f"{when}: {tool}")

    lose()
    for tool, what in calls(folder, mark).items():
        m.client.say(sessions[tool], fake(f"tool {tool} {json.dumps(what)}", "---", "text done"))
    for tool in sessions:
        wait_for(f"the session of {tool} says what is wrong", lambda t=tool: said(t), WAIT_S)
    nothing_on_the_host("while it is lost")
    restore()
    for tool in sessions:
        wait_for(f"the turn of {tool} ends", lambda t=tool: events(t)[-1]["type"] == "session.status_idle", WAIT_S)
        test.assertTrue(any(e["type"] == "agent.tool_result" for e in events(tool)), tool)
    nothing_on_the_host("when it is back")
