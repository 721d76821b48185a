"""Memory stores mounted in cloud sandboxes: what is there, what is taken over with a call's result, what is not and what the agent is told (ME7 to ME11)."""
import hashlib
import json
import os
import shutil
import tempfile
import unittest

from harness import FakeModel, Mangod, main, wait_for
from memory_paths import REFUSED
from rig import killed
from turns import TurnCase, TOOLSET, fake, message, of

HERE = ".session/memory"  # where commands of every backend find it


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Mounts(TurnCase):
    def setUp(self):
        self.store = self.client.post("/v1/memory_stores", {"name": "My Notes!", "description": "about it"})["id"]
        self.path = f"/v1/memory_stores/{self.store}"
        self.slug = "my-notes-"

    # ---- words ----

    def put(self, path, content="x"):
        return self.client.post(f"{self.path}/memories?view=full", {"path": path, "content": content})

    def heads(self):
        return {m["path"]: m["content"] for m in self.client.pages(f"{self.path}/memories?view=full&limit=20")}

    def id_of(self, path):
        return [m["id"] for m in self.client.get(f"{self.path}/memories?limit=100")["data"] if m["path"] == path][0]

    def mounted(self, client=None, **more):
        resource = {"type": "memory_store", "memory_store_id": self.store, **more}
        return self.new(TOOLSET, resources=[resource])

    @staticmethod
    def bash(command):
        return "tool bash " + json.dumps({"command": f"(\n{command}\n)".replace("$M", f"{HERE}/my-notes-")})

    def tools(self, sid, *lines, timeout=60):
        """The texts of the results of one wave."""
        events = self.until(sid, message(fake(*lines, "---", "text done")), timeout=timeout)
        return ["\n".join(b["text"] for b in e["content"]) for e in of(events, "agent.tool_result")]

    def run_in(self, sid, *commands):
        return self.tools(sid, *[self.bash(c) for c in commands])

    def fifo(self):
        folder = tempfile.mkdtemp(prefix="mango-fifo.", dir="/tmp")
        os.chmod(folder, 0o755)
        os.mkfifo(f"{folder}/f")
        self.addCleanup(lambda: (os.unlink(f"{folder}/f"), os.rmdir(folder)))
        return f"{folder}/f"

    def waiting(self, sid, command, meanwhile, *then):
        """The last result of a command that waits in its middle ($WAIT) while something happens, and of waves behind it in the same turn."""
        fifo = self.fifo()
        before = len(self.events(sid))
        waves = [w for c in then for w in ("---", self.bash(c))]
        self.send(sid, message(fake(self.bash(command.replace("$WAIT", f"cat {fifo}")), *waves, "---", "text done")))
        with open(fifo, "w", encoding="utf-8"):  # opens when the command reads
            meanwhile()
        events = wait_for("the turn ends", lambda: (lambda n: n if of(n, "session.status_idle") else None)(self.events(sid)[before:]), 60)
        return "\n".join(b["text"] for b in of(events, "agent.tool_result")[-1]["content"])


class Reading(Mounts):
    def test_a_session_shows_the_mount_and_the_model_is_told_of_it(self):
        other = self.client.post("/v1/memory_stores", {"name": "Ünïcode"})["id"]
        sid = self.new(TOOLSET, resources=[
            {"type": "memory_store", "memory_store_id": self.store, "instructions": "Write \"short\" lines"},
            {"type": "memory_store", "memory_store_id": other, "access": "read_only"},
        ])  # fmt: skip
        shown = self.client.get(f"/v1/sessions/{sid}")["resources"]
        self.assertEqual(["/mnt/memory/my-notes-", "/mnt/memory/-n-code"], [r["mount_path"] for r in shown])
        self.turn(sid, "hello")
        system = json.dumps(self.model.requests()[-1]["body"]["system"], ensure_ascii=False)
        for words in ("/mnt/memory/my-notes-", "My Notes!", "about it", 'Write \\"short\\" lines', "/mnt/memory/-n-code", "you can only read"):
            self.assertIn(words, system)
        plain = self.new(TOOLSET)
        self.turn(plain, "hello")
        self.assertNotIn("memory", json.dumps(self.model.requests()[-1]["body"].get("system", "")))

    def test_the_files_are_the_memories_byte_for_byte(self):
        texts = {"/a.md": "one\n", "/d/e/f": "", "/full": "x" * 102400, "/ odd 'n\"ame$(id)": "\u0000ü\U0001f600\r\n", "/back\\slash": "b", "/-rf": "dash"}
        for path, content in texts.items():
            self.put(path, content)
        sid = self.mounted()
        (out,) = self.run_in(sid, "cd $M && find . -type f -exec sha256sum {} + | sort -k2")
        for content in texts.values():
            self.assertIn(sha(content), out)
        self.assertEqual(len(texts), out.count("./"), out)
        read, found = self.tools(sid, 'tool read {"file_path":"/mnt/memory/my-notes-/a.md"}', self.bash("cat $M/d/e/f | wc -c"))
        self.assertIn("one", read)
        self.assertIn("0", found)
        self.assertEqual(texts, self.heads(), "looking changes nothing")

    def test_what_other_writers_change_is_there_at_the_next_wave(self):
        kept, gone = self.put("/kept", "old"), self.put("/d/gone", "x")
        sid = self.mounted()
        self.assertIn("old", self.run_in(sid, "cat $M/kept")[0])
        self.client.post(f"{self.path}/memories/{kept['id']}", {"content": "new"})
        self.client.delete(f"{self.path}/memories/{gone['id']}")
        self.put("/d", "a file where a folder was")
        self.put("/fresh/x", "fresh")
        (out,) = self.run_in(sid, "cat $M/kept $M/fresh/x $M/d")
        self.assertEqual("newfresha file where a folder was", out.replace("\n", ""))
        change = lambda: self.client.post(f"{self.path}/memories/{kept['id']}", {"content": "newest"})  # noqa: E731
        self.assertIn("newest", self.waiting(sid, "$WAIT", change, "cat $M/kept"), "in the same turn as well")
        self.assertEqual(0, len(self.client.get(f"{self.path}/memory_versions?session_id={sid}")["data"]), "none of it came from the session")


class Writing(Mounts):
    def test_new_changed_and_deleted_files_are_taken_over_with_the_result(self):
        self.put("/changed", "old"), self.put("/deleted", "x"), self.put("/kept", "k")
        sid = self.mounted()
        (out,) = self.run_in(sid, "cd $M && printf new > changed && rm deleted && mkdir -p d/e && printf 'ü' > d/e/f && : > empty")
        self.assertNotIn("[memory]", out)
        self.assertEqual({"/changed": "new", "/kept": "k", "/d/e/f": "ü", "/empty": ""}, self.heads())
        versions = self.client.get(f"{self.path}/memory_versions?session_id={sid}&view=full")["data"]
        self.assertEqual({("modified", "/changed"), ("deleted", "/deleted"), ("created", "/d/e/f"), ("created", "/empty")}, {(v["operation"], v["path"]) for v in versions})
        self.assertEqual({json.dumps({"type": "session_actor", "session_id": sid})}, {json.dumps(v["created_by"]) for v in versions})

    def test_the_file_tools_write_memories(self):
        sid = self.mounted()
        self.tools(
            sid,
            'tool write {"file_path":"/mnt/memory/my-notes-/by/tool.md","content":"first"}',
            'tool edit {"file_path":"/mnt/memory/my-notes-/by/tool.md","old_string":"first","new_string":"second"}',
        )
        self.assertEqual({"/by/tool.md": "second"}, self.heads())
        self.assertEqual(2, len(self.client.get(f"{self.path}/memory_versions")["data"]), "each call's change is a version")

    def test_a_change_that_another_writer_forestalled_is_dropped_and_the_agent_is_told(self):
        ids = {p: self.put(p, "base")["id"] for p in ("/both", "/removed", "/mine")}
        sid = self.mounted()
        self.run_in(sid, "true")

        def others():
            self.client.post(f"{self.path}/memories/{ids['/both']}", {"content": "theirs"})
            self.client.post(f"{self.path}/memories/{ids['/removed']}", {"content": "theirs"})
            self.put("/new", "theirs")

        out = self.waiting(sid, "cd $M; $WAIT; printf ours | tee both mine new >/dev/null; rm removed", others)
        self.assertIn("[memory] /mnt/memory/my-notes-/both: not saved: another writer changed it meanwhile", out)
        self.assertIn("[memory] /mnt/memory/my-notes-/new: not saved: another writer", out)
        self.assertIn("[memory] /mnt/memory/my-notes-/removed: not deleted: another writer", out)
        self.assertNotIn("my-notes-/mine:", out)
        self.assertEqual({"/both": "theirs", "/removed": "theirs", "/new": "theirs", "/mine": "ours"}, self.heads())
        (again,) = self.run_in(sid, "cd $M && cat both removed new mine && printf again > both")
        self.assertEqual("theirstheirstheirsours", again.replace("\n", ""), "the files have the store's heads")
        self.assertEqual("again", self.heads()["/both"])

    @staticmethod
    def background(fifo):
        """A command that leaves a process behind, which writes when write_behind() says so."""
        return f"(cat {fifo} >/dev/null; printf ours > $M/both; echo done > {fifo}) >/dev/null 2>&1 &"

    def write_behind(self, fifo):
        with open(fifo, "w", encoding="utf-8"):
            pass
        with open(fifo, encoding="utf-8") as f:
            self.assertEqual("done", f.read().strip())

    def test_what_is_lost_between_two_turns_is_said_with_the_next_result(self):
        ident = self.put("/both", "base")["id"]
        sid, fifo = self.mounted(), self.fifo()
        self.run_in(sid, self.background(fifo))
        self.client.post(f"{self.path}/memories/{ident}", {"content": "theirs"})
        self.write_behind(fifo)
        first, second = self.run_in(sid, "cat $M/both", "true")
        self.assertIn("theirs", first)
        self.assertIn("both: not saved: another writer changed it meanwhile", first)
        self.assertNotIn("[memory]", second, "it is said once")

    def test_a_file_that_changed_behind_the_last_look_is_not_overwritten_with_what_another_writer_wrote(self):
        ident = self.put("/both", "base")["id"]
        sid, fifo = self.mounted(), self.fifo()
        before = len(self.events(sid))
        self.send(sid, message(fake(self.bash(self.background(fifo)), "---", "delay 2000", self.bash("cat $M/both"), "---", "text done")))
        wait_for("the first result is there", lambda: of(self.events(sid)[before:], "agent.tool_result"), 60)
        self.client.post(f"{self.path}/memories/{ident}", {"content": "theirs"})
        self.write_behind(fifo)
        events = wait_for("the turn ends", lambda: (lambda n: n if of(n, "session.status_idle") else None)(self.events(sid)[before:]), 60)
        (_, result) = of(events, "agent.tool_result")
        self.assertIn("both: not saved: another writer changed it meanwhile", "\n".join(b["text"] for b in result["content"]))
        self.assertEqual({"/both": "theirs"}, self.heads())
        self.assertIn("theirs", self.run_in(sid, "cat $M/both")[0])

    def test_more_changes_than_one_look_takes_over_come_with_the_next_calls_and_nothing_is_deleted(self):
        count = lambda like: int(self.server.database.query(f"SELECT count(*) FROM memories WHERE store_id = '{self.store}' AND content LIKE '{like}'")[0][0])  # noqa: E731
        sid = self.mounted()
        for text in ("one", "two"):
            (out,) = self.run_in(sid, f"cd $M; for i in $(seq 600); do printf {text} > f$i; done")
            self.assertIn("more files have changed than are saved at once", out)
            self.assertEqual(512, count(f'"{text}"'))
            (out,) = self.run_in(sid, "true")
            self.assertNotIn("[memory]", out)
            self.assertEqual((600, 600), (count(f'"{text}"'), count("%")))

    def test_case_91_what_a_read_only_store_takes(self):
        self.put("/a", "theirs"), self.put("/b", "b")
        sid = self.mounted(access="read_only")
        wrote, round_about, edited, out = self.tools(
            sid,
            'tool write {"file_path":"/mnt/memory/my-notes-/new","content":"x"}',
            'tool write {"file_path":".session/memory/../memory/my-notes-/new","content":"x"}',
            'tool edit {"file_path":".session/./memory//my-notes-/a","old_string":"theirs","new_string":"ours"}',
            self.bash("cd $M && rm -f a b && printf ours > a && printf local > mine; cat a"),
        )
        for refused in (wrote, round_about, edited):
            self.assertRegex(refused, "cannot write .*: it is in a memory store that this session may only read")
        self.assertIn("ours", out)
        self.assertIn("/a: not saved: this session may only read the store; the file is put back", out)
        self.assertIn("/b: not saved", out)
        self.assertIn("/mine: not saved: this session may only read the store; the file stays in this sandbox alone", out)
        (after,) = self.run_in(sid, "cd $M && cat a b mine")
        self.assertEqual("theirsblocal", after.replace("\n", "").replace(" ", ""))
        self.assertEqual({"/a": "theirs", "/b": "b"}, self.heads())
        self.client.post(f"{self.path}/memories/{self.id_of('/a')}", {"content": "newer"})
        self.assertIn("newer", self.run_in(sid, "cat $M/a")[0], "what others change comes also where the file is read-only")
        self.assertEqual(3, len(self.client.get(f"{self.path}/memory_versions")["data"]))

    def test_me4_an_archived_store_takes_nothing(self):
        self.put("/a", "old")
        sid = self.mounted()
        self.run_in(sid, "true")
        self.client.post(f"{self.path}/archive")
        out = self.run_in(sid, "printf new > $M/a", "cat $M/a")
        self.assertIn("not saved: the store is archived; the file is put back", out[0])
        self.assertIn("old", out[1])
        self.assertEqual({"/a": "old"}, self.heads())

    def test_me10_what_no_memory_can_be_is_named_once_and_the_rest_is_saved(self):
        sid = self.mounted()
        first, second = self.run_in(
            sid,
            "cd $M && head -c 102401 /dev/zero | tr '\\0' x > big && printf '\\377' > bytes && ln -s good link && mkfifo pipe && printf ok > good"
            " && printf x > \"$(printf 'line\\nbreak')\" && head -c 102400 /dev/zero | tr '\\0' y > full",
            "true",
        )
        for name, why in (("big", "more than the 102400 bytes"), ("bytes", "not valid UTF-8"), ("link", "a link or a special file"), ("pipe", "a link or a special file")):
            self.assertIn(f"[memory] /mnt/memory/my-notes-/{name}: not saved: it", first)
            self.assertIn(why, first)
        self.assertIn("U+000A", first)
        self.assertEqual({"/good", "/full"}, set(self.heads()))
        self.assertNotIn("[memory]", second, "it is said once")
        (third,) = self.run_in(sid, "cd $M && printf small > big && printf '\\376' > bytes")
        self.assertIn("bytes: not saved", third, "another text is another one")
        self.assertNotIn("big: not saved", third)
        self.assertEqual("small", self.heads()["/big"])

    def test_case_92_names_have_the_answer_that_the_api_gives(self):
        sid = self.mounted()
        names = [(p[1:], why) for p, why in REFUSED if p.startswith("/") and "\0" not in p and not any(s in ("", ".", "..") or len(s.encode()) > 255 for s in p[1:].split("/"))]
        self.assertGreater(len(names), 20)
        for at in range(0, len(names), 12):
            some = names[at : at + 12]
            script = "".join(f"mkdir -p -- \"$(dirname -- '{n}')\" && printf x > '{n}'\n" for n, _ in some)
            (out,) = self.run_in(sid, "cd $M\n" + script)
            for name, why in some:
                with self.subTest(repr(name)[:60]):
                    self.assertIn(why, out)
        self.assertEqual({}, self.heads())

    def test_no_memory_is_above_another(self):
        self.put("/a/b", "x")
        sid = self.mounted()
        (out,) = self.run_in(sid, "rm -rf $M/a && printf y > $M/a")
        self.assertNotIn("[memory]", out)
        self.assertEqual({"/a": "y"}, self.heads())
        self.run_in(sid, "rm $M/a && mkdir $M/a && printf z > $M/a/c")
        self.assertEqual({"/a/c": "z"}, self.heads())

    def test_a_store_whose_folder_is_removed_is_put_back(self):
        self.put("/a", "1"), self.put("/b/c", "2")
        sid = self.mounted()
        (out,) = self.run_in(sid, "rm -rf $M")
        self.assertIn("the folder itself was removed, which deletes nothing", out)
        self.assertIn("12", self.run_in(sid, "cat $M/a $M/b/c")[0].replace("\n", ""))
        self.assertEqual({"/a": "1", "/b/c": "2"}, self.heads())
        self.run_in(sid, "rm -rf $M/*")
        self.assertEqual({}, self.heads())

    def test_a_full_store_says_so(self):
        self.server.database.query(
            "INSERT INTO memories (id, store_id, path, version_id, content, content_sha256, content_size, created_at, updated_at)"
            f" SELECT 'mem_full' || i, '{self.store}', '/fill/' || i, 'memver_x', '\"\"', '{sha('')}', 0, now(), now() FROM generate_series(1, 2000) i"
        )
        sid = self.mounted()
        first, second = self.run_in(sid, "ls $M/fill | wc -l; printf x > $M/more", "rm $M/fill/1 && printf y > $M/more")
        self.assertIn("2000", first)
        self.assertIn("more: not saved: the store has 2000 memories", first)
        self.assertNotIn("[memory]", second)
        self.assertEqual(2000, len(self.client.get(f"{self.path}/memories?path_prefix=/fill/&limit=1")["data"]) + 1999)
        self.assertEqual("y", self.client.get(f"{self.path}/memories/{self.id_of_more()}")["content"])

    def id_of_more(self):
        return self.server.database.query(f"SELECT id FROM memories WHERE store_id = '{self.store}' AND path = '/more'")[0][0]

    def test_a_session_that_is_over_lets_its_store_go(self):
        self.put("/a", "1")
        sid = self.mounted()
        self.run_in(sid, "printf 2 > $M/a")
        self.rejected(400, "mounted in session", self.client.delete, self.path)
        self.client.delete(f"/v1/sessions/{sid}")
        wait_for("the store can go", lambda: self.client.raw("DELETE", self.path)[0] == 200)


    def test_sb13_what_a_deleted_session_left_is_written_back_and_no_sandbox_is_made_for_it(self):
        sid, idle = self.mounted(), self.mounted()
        fifo = self.fifo()
        self.run_in(sid, self.background(fifo))
        self.write_behind(fifo)
        self.assertEqual({}, self.heads(), "no call has looked since")
        for session in (sid, idle):
            self.client.delete(f"/v1/sessions/{session}")
        wait_for("the last change is saved", lambda: self.heads() == {"/both": "ours"}, 60)
        self.assertEqual([["0"]], self.server.database.query(f"SELECT count(*) FROM sandbox_intents WHERE session_id = '{idle}'"))


@unittest.skipUnless(shutil.which("bwrap"), "bubblewrap is not installed")
class OnSrt(Mounts):
    """A backend that is a boundary: commands find the stores at their mount paths."""

    OPTIONS = {"sandbox": "srt"}

    def test_commands_find_a_store_where_the_resource_says(self):
        self.put("/a", "old")
        sid = self.mounted()
        read, _ = self.run_in(sid, "cat /mnt/memory/my-notes-/a", "printf new > /mnt/memory/my-notes-/a; rm -f /mnt/memory/none")
        self.assertIn("old", read)
        self.assertEqual({"/a": "new"}, self.heads())


class Crashes(unittest.TestCase):
    """Kill -9 between what a command did to a memory and the commit that takes it over."""

    def crash(self, point):
        with FakeModel() as model, Mangod(model_url=model.url, hooks=f"{point}=kill:2", env={"MANGO_NODE_TTL": "2s"}) as server:
            case = Writing()
            case.model, case.server, case.client = model, server, server.client
            case.setUp()
            m = case.put("/a", "old")
            sid = case.mounted()
            case.run_in(sid, "true")
            killed(server, point, lambda: case.run_in(sid, "printf new > $M/a; rm -f $M/none; printf made > $M/made"))
            wait_for("the turn ends", lambda: server.client.events(sid)[-1]["type"] == "session.status_idle", 60)
            self.assertEqual({"/a": "new", "/made": "made"}, case.heads(), "taken over without another call")
            self.assertIn("newmade", case.run_in(sid, "cat $M/a $M/made")[0])
            operations = [(v["operation"], v["path"]) for v in server.client.get(f"{case.path}/memory_versions?memory_id={m['id']}")["data"]]
            self.assertEqual([("modified", "/a"), ("created", "/a")], operations, "once")
            self.assertEqual(0, model.refused())

    def test_between_the_tool_and_the_look(self):
        self.crash("memory.before_look")

    def test_before_the_commit_of_result_and_change(self):
        self.crash("turn.call_completed.before")

    def test_behind_the_commit_of_result_and_change(self):
        self.crash("turn.call_completed.after")


if __name__ == "__main__":
    main()
