"""Resources of sessions: files in the sandbox, where they may go, what removes them, and what is refused."""
import json
import os
import shutil
import unittest

from api import ApiError
from harness import Mangod, main, wait_for
from test_files import TYPE, multipart


def upload(client, content, filename="a.txt"):
    status, _, text = client.raw("POST", "/v1/files", multipart(("file", filename, content)), TYPE)
    assert status == 200, text
    return json.loads(text)


GOOD_PATHS = [
    "/workspace/a", "/workspace/a/b/c.txt", "/workspace/ a b ", "/workspace/é", "/workspace/e\u0301", "/workspace/.hidden", "/workspace/a.", "/workspace/-rf",
    "/workspace/" + "x" * 255, "/workspace/" + "/".join(["d" * 100] * 10), "/workspace/CON", "/workspace/a:b", "/workspace/$(id)", "/workspace/a;b", "/workspace/a'b\"c",
    "/workspace/%2e%2e/x", "/workspace/...", "/mnt/session/uploads/x", "/mnt/session/uploads/a/b", "/workspace/mnt/session", "/workspace/skillset", "/workspace/👩‍👩‍👧",
]  # fmt: skip
BAD_PATHS = [
    "", "/", ".", "..", "./a", "../a", "a/../b", "a//b", "a/", "a/..", "x" * 256, "./workspace/a", "../workspace/a", "/workspace", "/workspace/", "/workspace//a", "//workspace/a", "/workspace/a/",
    "/workspace/a//b", "/workspace/.", "/workspace/..", "/workspace/./a", "/workspace/../etc/passwd", "/workspace/a/../b", "/workspace/a/..", "/workspace/a/./b", "/workspace/a/.",
    "/etc/passwd", "/root/x", "/tmp/x", "/proc/self/mem", "/dev/null", "/workspacex/a", "/mnt/session", "/mnt/session/uploads", "/mnt/session/uploads/", "/mnt/session/uploads/..",
    "/mnt/session/uploads/../outputs/x", "/mnt/session/outputs/x", "/mnt/session/x", "/mnt/memory/x", "/mnt/x", "/Workspace/a", "/workspace\\a", "/workspace/a\\b", "C:\\a",
    "/workspace/a\u0000b", "/workspace/a\nb", "/workspace/a\tb", "/workspace/a\u007fb", "/workspace/a\u0085b", "/workspace/a\u202eb", "/workspace/a\u2028b", "/workspace/a\u2066b", "/workspace/a\u200eb",
    "/workspace/" + "x" * 256, "/workspace/" + "a/" * 600 + "b", "/workspace/skills", "/workspace/skills/x", "/workspace/.session", "/workspace/.session/mounts", "/workspace/.mango-generation",
    "/workspace/.mango", "/workspace/.agents/x", "/workspace/a/\u0001", "/workspace/a\r", "file:///workspace/a", "/workspace/é" + "é" * 127 + "x",
]  # fmt: skip


class Resources(unittest.TestCase):
    SANDBOX = "local"

    @classmethod
    def setUpClass(cls):
        cls.server = Mangod(sandbox=cls.SANDBOX)
        cls.server.__enter__()
        cls.c = cls.server.client
        cls.file = upload(cls.c, b"hello")

    @classmethod
    def tearDownClass(cls):
        if not cls.server.process.running():
            print(cls.server.log()[-4000:])
        cls.server.__exit__(None, None, None)

    def refused(self, status, *call):
        with self.assertRaises(ApiError) as caught:
            self.c.call(*call)
        self.assertEqual(status, caught.exception.status, caught.exception)
        return caught.exception

    def ask(self, session_id, command):
        """The output of a command in the session's sandbox."""
        before = len(self.c.events(session_id))
        self.c.say(session_id, f"run: {command}")

        def done():
            new = self.c.events(session_id)[before:]
            return new if [e for e in new if e["type"] == "session.status_idle"] else None

        results = [e for e in wait_for("the turn ends", done) if e["type"] == "agent.tool_result"]
        return results[-1]["content"][0]["text"] if results else None

    def test_hostile_mount_paths_are_refused_and_odd_ones_are_taken(self):
        self.assertGreaterEqual(len(BAD_PATHS), 60)
        session = self.c.new_session()["id"]
        for path in BAD_PATHS:
            with self.subTest(path=path):
                e = self.refused(400, "POST", f"/v1/sessions/{session}/resources", {"type": "file", "file_id": self.file["id"], "mount_path": path})
                self.assertIn("mount_path", e.message)
        for path in GOOD_PATHS:
            with self.subTest(path=path):
                made = self.c.post(f"/v1/sessions/{session}/resources", {"type": "file", "file_id": self.file["id"], "mount_path": path})
                self.assertEqual(path, made["mount_path"])
                self.c.delete(f"/v1/sessions/{session}/resources/{made['id']}")

    def test_a_relative_mount_path_lies_below_the_uploads(self):
        session = self.c.new_session(resources=[{"type": "file", "file_id": self.file["id"], "mount_path": "data.csv"}])
        self.assertEqual("/mnt/session/uploads/data.csv", session["resources"][0]["mount_path"])
        made = self.c.post(f"/v1/sessions/{session['id']}/resources", {"type": "file", "file_id": self.file["id"], "mount_path": "workspace/a b"})
        self.assertEqual("/mnt/session/uploads/workspace/a b", made["mount_path"])
        e = self.refused(409, "POST", f"/v1/sessions/{session['id']}/resources", {"type": "file", "file_id": self.file["id"], "mount_path": "/mnt/session/uploads/data.csv"})
        self.assertIn("mount_path", e.message)
        self.assertEqual("hello", self.ask(session["id"], "cat .session/uploads/data.csv"))

    def test_a_sessions_resources_are_listed_shown_and_removed(self):
        session = self.c.new_session(resources=[{"type": "file", "file_id": self.file["id"]}])
        (first,) = session["resources"]
        self.assertEqual({"id", "type", "file_id", "mount_path", "created_at", "updated_at"}, set(first))
        self.assertEqual(f"/mnt/session/uploads/{self.file['id']}", first["mount_path"])
        path = f"/v1/sessions/{session['id']}"
        self.assertEqual(session["resources"], self.c.get(path)["resources"])
        second = self.c.post(f"{path}/resources", {"type": "file", "file_id": self.file["id"], "mount_path": "/workspace/in/x"})
        self.assertEqual([first, second], self.c.get(path)["resources"])
        page = self.c.get(f"{path}/resources?limit=1")
        self.assertEqual([first], page["data"])
        self.assertEqual(([second], None), (lambda p: (p["data"], p["next_page"]))(self.c.get(f"{path}/resources?limit=1&page={page['next_page']}")))
        self.assertEqual(second, self.c.get(f"{path}/resources/{second['id']}"))
        self.refused(400, "POST", f"{path}/resources/{second['id']}", {"authorization_token": "x"})
        self.refused(409, "DELETE", f"/v1/files/{self.file['id']}")
        self.assertEqual({"id": first["id"], "type": "session_resource_deleted"}, self.c.delete(f"{path}/resources/{first['id']}"))
        self.assertEqual([second], self.c.get(path)["resources"])
        self.refused(404, "GET", f"{path}/resources/{first['id']}")
        self.refused(404, "DELETE", f"{path}/resources/{first['id']}")
        self.refused(404, "GET", "/v1/sessions/sesn_none/resources")
        self.c.delete(f"{path}/resources/{second['id']}")
        self.c.delete(path)

    def test_what_cannot_be_attached_is_refused_by_name(self):
        session = self.c.new_session()["id"]
        here = f"/v1/sessions/{session}/resources"
        file = {"type": "file", "file_id": self.file["id"]}
        self.c.post(here, {**file, "mount_path": "/workspace/d/x"})
        for body, status, words in [
            ({**file, "mount_path": "/workspace/d/x"}, 409, "mount_path"), ({**file, "mount_path": "/workspace/d"}, 409, "mount_path"),
            ({**file, "mount_path": "/workspace/d/x/y"}, 409, "mount_path"), ({"type": "file", "file_id": "file_none"}, 404, "file_id"), ({"type": "file"}, 400, "file_id"),
            ({"type": "github_repository"}, 400, "url: is required"),
            ({"type": "memory_store", "memory_store_id": "memstore_x"}, 400, "only be given when the session is created"), ({"type": "other"}, 400, "type"), ({**file, "x": 1}, 400, "x"),
        ]:  # fmt: skip
            with self.subTest(body=body):
                self.assertIn(words, self.refused(status, "POST", here, body).message)
        hosted = self.c.new_session("self_hosted")["id"]
        e = self.refused(400, "POST", f"/v1/sessions/{hosted}/resources", file)
        self.assertEqual("self_hosted_resources_unsupported", json.loads(e.body)["error"]["details"]["error_code"])
        with self.assertRaises(ApiError) as caught:
            self.c.new_session("self_hosted", resources=[file])
        self.assertEqual(400, caught.exception.status)
        with self.assertRaises(ApiError) as caught:
            self.c.new_session(resources=[file, file])
        self.assertIn("resources[1].mount_path", caught.exception.message)
        with self.assertRaises(ApiError) as caught:
            self.c.new_session(resources=[{"type": "file", "file_id": "file_none"}])
        self.assertIn("resources[0]", caught.exception.message)

    def test_files_are_in_the_sandbox_and_leave_it_when_they_are_removed(self):
        data = os.urandom(700000).hex().encode()
        big = upload(self.c, data, "big.txt")
        session = self.c.new_session(resources=[{"type": "file", "file_id": big["id"], "mount_path": "/workspace/in/big.txt"}])["id"]
        self.assertIn("1400000", self.ask(session, "wc -c < in/big.txt"))
        added = self.c.post(f"/v1/sessions/{session}/resources", {"type": "file", "file_id": self.file["id"]})
        self.assertIn("hello", self.ask(session, f"cat .session/uploads/{self.file['id']}"))
        self.assertIn("444", self.ask(session, f"stat -c %a .session/uploads/{self.file['id']}"))
        self.c.delete(f"/v1/sessions/{session}/resources/{added['id']}")
        self.assertIn("gone", self.ask(session, f"test -e .session/uploads/{self.file['id']} || echo gone"))
        self.assertIn("1400000", self.ask(session, "wc -c < in/big.txt"), "what is still attached stays")
        self.assertIn("mine", self.ask(session, "chmod u+w in/big.txt && echo mine > in/big.txt && cat in/big.txt"))
        self.server.restart()
        self.assertIn("mine", self.ask(session, "cat in/big.txt"), "a later look never overwrites what the agent made of it")

    def test_the_read_tool_finds_uploads_where_the_resource_says(self):
        session = self.c.new_session(resources=[{"type": "file", "file_id": self.file["id"]}])["id"]
        before = len(self.c.events(session))
        self.c.say(session, f"read /mnt/session/uploads/{self.file['id']}")
        events = wait_for("the turn ends", lambda: (lambda new: new if [e for e in new if e["type"] == "session.status_idle"] else None)(self.c.events(session)[before:]))
        results = [e for e in events if e["type"] == "agent.tool_result"]
        self.assertTrue(results and "hello" in results[0]["content"][0]["text"], events)


@unittest.skipUnless(shutil.which("bwrap"), "bubblewrap is not installed")
class OnSrt(Resources):
    """The backends that are a boundary show /mnt/session to commands as well."""

    SANDBOX = "srt"

    def test_commands_find_uploads_where_the_resource_says(self):
        session = self.c.new_session(resources=[{"type": "file", "file_id": self.file["id"]}])["id"]
        self.assertIn("hello", self.ask(session, f"cat /mnt/session/uploads/{self.file['id']}"))


# What does not depend on the backend is asked once.
for name in [n for n in dir(Resources) if n.startswith("test_") and "sandbox" not in n and "read_tool" not in n]:
    setattr(OnSrt, name, None)


if __name__ == "__main__":
    main()
