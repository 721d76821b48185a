"""mango-worker prepares what a session has before its tools run: skills and memory stores, and brings the stores' folders and the stores together."""
import contextlib
import glob
import json
import os
import signal
import threading
import time

from harness import main, wait_for
from recorder import Body, Cut, Recorder, Status
from test_files import TYPE, multipart
from test_skills import GOOD, NEW, archive, hostile_archives
from worker_rig import NEVER, TURN_S, WorkerCase, bash

MARKER = ".anthropic-memory-store"
MEMORIES = r"/memory_stores/[^/]+/memories"
HOSTILE = [  # of the server's own corpus, those that only look into the archive's form
    "is no archive", "is a tar", "is cut at 40", "has the member '../x'", "has the member '/x'", "has the member 'greeting/../x'", "has a name with NUL", "has a member of the mode 120777",
    "has a member of the mode 20666", "has a link and a file through it", "has two top folders", "has a file that is a folder", "is a bomb of zeros", "has a wrong checksum", "is encrypted", "has 1,001 files",
]  # fmt: skip


def told(requests):
    """Those by which a worker asks for memories, or tells of its session."""
    return [r for r in requests if "memories" in r.path or r.path.endswith(("/events", "/stop", "/fail"))]


class Case(WorkerCase):
    def setUp(self):
        super().setUp()
        self.net = self.enterContext(Recorder(self.server.port))

    def begin(self, *args, **more):
        return self.start("--max-idle", "300ms", *args, base_url=self.net.url, **more)

    def skill(self, *files):
        status, _, text = self.client.raw("POST", "/v1/skills", multipart(*[("files[]", n, c) for n, c in files or (GOOD,)]), {**TYPE, **NEW})
        self.assertEqual(status, 200, text)
        return {"type": "custom", "skill_id": json.loads(text)["id"]}

    def store(self, name, **memories):
        """A store of that name with memories PATH=TEXT, in which __ stands for a slash."""
        made = self.client.post("/v1/memory_stores", {"name": name})["id"]
        for path, text in memories.items():
            self.put(made, "/" + path.replace("__", "/"), text)
        return made

    def put(self, store, path, text):
        for m in self.memories(store, whole=True):
            if m["path"] == path:
                return self.client.post(f"/v1/memory_stores/{store}/memories/{m['id']}", {"content": text})
        return self.client.post(f"/v1/memory_stores/{store}/memories", {"path": path, "content": text})

    def memories(self, store, whole=False):
        data = self.client.get(f"/v1/memory_stores/{store}/memories?view=full&limit=20")["data"]
        return data if whole else {m["path"]: m["content"] for m in data}

    def operations(self, store):
        """What was done in it, the newest first."""
        return [v["operation"] for v in self.client.get(f"/v1/memory_stores/{store}/memory_versions")["data"]]

    def session(self, *script, skills=(), stores=(), access="read_write"):
        agent = self.client.post("/v1/agents", {"name": "a", "model": "m", "tools": [{"type": "agent_toolset_20260401"}], "skills": list(skills)})["id"]
        resources = [{"type": "memory_store", "memory_store_id": s, "access": access} for s in stores]
        made = self.client.post("/v1/sessions", {"agent": agent, "environment_id": self.environment, "resources": resources})["id"]
        if script:
            self.say(made, *script)
        return made

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, text, *parts):
        with open(self.path(*parts), "w", encoding="utf-8") as f:
            f.write(text)

    def ended_with(self, session):
        """The error that ended a session."""
        events = wait_for("the session is ended", lambda: (lambda e: e if e[-1]["type"] == "session.status_terminated" else None)(self.events(session)), TURN_S)
        return next(e["error"] for e in events if e["type"] == "session.error")

    def ran(self, session, *script):
        """The text of the only result of a turn, which is none of an error."""
        results = self.results(self.turn(session, *script, "---", "text done"))
        self.assertEqual([r[1] for r in results], [False] * len(results), results)
        return results[-1][0]


class Skills(Case):
    def test_they_are_there_before_the_first_tool_and_gone_at_the_end(self):
        other = ("other-one/SKILL.md", GOOD[1].replace(b"greeting", b"other-one"))
        skills = [self.skill(GOOD, ("greeting/deep/er/tool.sh", b"echo \0\xff\n"), ("greeting/\u00e9mile.md", b"")), self.skill(other)]
        os.makedirs(self.path("skills", "greeting", "of an earlier item"))
        self.begin()
        s = self.session(skills=skills)
        seen = self.ran(s, bash("cd skills; find . | LC_ALL=C sort; stat -c '%a %n' greeting greeting/deep greeting/SKILL.md; od -An -tx1 greeting/deep/er/tool.sh"))
        self.assertEqual(
            seen.split("\n"),
            [".", "./greeting", "./greeting/SKILL.md", "./greeting/deep", "./greeting/deep/er", "./greeting/deep/er/tool.sh", "./greeting/\u00e9mile.md", "./other-one", "./other-one/SKILL.md",
             "700 greeting", "700 greeting/deep", "644 greeting/SKILL.md", " 65 63 68 6f 20 00 ff 0a"],
        )  # fmt: skip
        self.assertEqual(self.ran(s, 'tool read {"file_path":"skills/greeting/SKILL.md"}').strip(), GOOD[1].decode().strip())
        self.wait_left(s)
        self.assertEqual(os.listdir(self.path("skills")), [])

    def test_modes_of_an_archive_count_for_execution_alone(self):
        self.net.on("GET", "/content", Body(archive(GOOD, ("greeting/run", b"#!/bin/sh\necho ran", 0o106777), ("greeting/not", b"x", 0o100200))))
        self.begin()
        self.assertEqual(self.ran(self.session(skills=[self.skill()]), bash("skills/greeting/run; stat -c %a skills/greeting/*")), "ran\n644\n644\n755")

    def test_case_89_a_hostile_archive_ends_the_session_with_the_member_named(self):
        wanted = [h for h in hostile_archives() if h[0] in HOSTILE]
        self.assertEqual(len(wanted), len(HOSTILE))
        skill = self.skill()
        self.begin()
        for what, data, words in wanted:
            with self.subTest(what=what):
                self.net.clear()
                self.net.on("GET", "/content", Body(data))
                error = self.ended_with(self.session(bash("touch ran"), "---", "text done", skills=[skill]))
                self.assertEqual((error["type"], error["retry_status"]["type"]), ("session_input_failed_error", "terminal"))
                self.assertRegex(error["message"], f"skill {skill['skill_id']}, version [0-9]+: files: .*({words.removeprefix('files: ')})")
        self.assertEqual(self.net.seen("GET", "/events/stream"), [])
        self.assertEqual([p for p in glob.glob(self.path("**"), recursive=True) if os.path.isfile(p)], [])
        self.assertEqual(set(w["state"] for w in self.items()), {"stopped"})

    def test_a_server_without_fail_has_the_item_stopped(self):
        self.net.on("GET", "/content", Body(b"no zip"))
        self.net.on("POST", "/fail$", Status(404))
        w = self.begin("--drain")
        s = self.session("text never", skills=[self.skill()])
        wait_for("the item is stopped", lambda: self.net.seen("POST", "/stop$") and self.states(s)[-1] == "stopped", TURN_S)
        w.kill()
        self.assertIn("is no zip file", w.log())

    def test_a_name_that_no_folder_can_have_gives_way_to_the_id(self):
        skill = self.skill()
        version = self.client.get(f"/v1/skills/{skill['skill_id']}")["latest_version_id"]
        self.net.on("GET", r"/versions/[^/]+$", Body(json.dumps({"id": version, "name": ".."}).encode(), "application/json"))
        self.begin()
        self.assertEqual(self.ran(self.session(skills=[skill]), bash("ls skills; ls skills/*")), skill["skill_id"] + "\nSKILL.md")

    def test_one_that_cannot_be_had_is_left_out(self):
        self.net.on("GET", "/content", Status(404))
        self.begin()
        two = [self.skill(), self.skill(("other-one/SKILL.md", GOOD[1].replace(b"greeting", b"other-one")))]
        self.assertEqual(self.ran(self.session(skills=two), bash("ls skills")), "other-one")

    def test_a_link_in_the_workspace_leads_nowhere(self):
        outside = self.path("outside")
        os.makedirs(os.path.join(outside, "greeting"))
        os.symlink("outside", self.path("skills"))
        self.begin()
        s = self.session(skills=[self.skill()])
        self.assertEqual(self.ran(s, bash("ls -A outside/greeting; echo end")), "end")
        self.wait_left(s)
        os.unlink(self.path("skills"))
        os.makedirs(self.path("skills"))
        os.symlink("../outside/greeting", self.path("skills", "greeting"))
        s = self.session(skills=[self.skill()])
        self.assertEqual(self.ran(s, bash("ls -A outside/greeting; ls skills/greeting")), "SKILL.md")
        self.wait_left(s)
        self.assertEqual(os.listdir(os.path.join(outside, "greeting")), [])


class Memory(Case):
    def test_the_folder_is_the_store_and_the_store_becomes_the_folder(self):
        store = self.store("My Notes", a="one", deep__er__b="two", gone="x", keep="\u00e9")
        self.begin()
        s = self.session(stores=[store])
        seen = self.ran(s, bash("cd 'memory/My Notes'; find . | LC_ALL=C sort; stat -c %a . deep a; cat a deep/er/b"))
        self.assertEqual(seen.split("\n"), [".", "./" + MARKER, "./a", "./deep", "./deep/er", "./deep/er/b", "./gone", "./keep", "700", "700", "600", "onetwo"])
        self.ran(s, bash("cd 'memory/My Notes'; echo -n changed > a; rm gone; mkdir new; echo -n n > new/file"), 'tool write {"file_path":"memory/My Notes/by tool","content":"t"}')
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "changed", "/deep/er/b": "two", "/keep": "\u00e9", "/new/file": "n", "/by tool": "t"})
        self.assertEqual(os.listdir(self.path("memory")), [])

    def test_case_88_more_than_a_page_is_downloaded_whole(self):
        store = self.store("many")
        for i in range(45):
            self.client.post(f"/v1/memory_stores/{store}/memories", {"path": f"/m{i}", "content": str(i)})
        self.begin()
        self.assertEqual(self.ran(self.session(stores=[store]), bash("ls memory/many | wc -l; cat memory/many/m44")), "45\n44")

    def test_me7_a_read_only_store_is_never_changed(self):
        store = self.store("fixed", a="one", b="two")
        self.begin("--memory-sync", "100ms")
        s = self.session(stores=[store], access="read_only")
        events = self.turn(s, 'tool write {"file_path":"memory/fixed/a","content":"by tool"}', 
                           'tool edit {"file_path":"%s/memory/fixed/a","old_string":"one","new_string":"x"}' % self.folder, bash("ln -s memory/fixed link"),
                           'tool write {"file_path":"link/a","content":"by tool"}', 'tool read {"file_path":"memory/fixed/a"}', bash("cd memory/fixed; echo -n by bash > a; rm b; echo > c"), "---", "text done")  # fmt: skip
        self.assertEqual([r[1] for r in self.results(events)], [True, True, False, True, False, False], self.results(events))
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "one", "/b": "two"})
        self.assertEqual([r for r in self.net.seen("", MEMORIES) if r.method != "GET"], [])

    def test_both_sides_see_each_other_between_calls(self):
        store = self.store("shared", a="one", b="both", c="dropped")
        self.begin("--memory-sync", "100ms")
        s = self.session(stores=[store])
        self.ran(s, bash("echo -n mine > memory/shared/b; echo -n new > memory/shared/d; sleep 0.2"))
        wait_for("the new file is in the store", lambda: self.memories(store).get("/d") == "new" and self.memories(store)["/b"] == "mine", TURN_S)
        self.put(store, "/a", "from the API")
        self.put(store, "/e", "fresh")
        (c,) = (m for m in self.memories(store, whole=True) if m["path"] == "/c")
        self.client.delete(f"/v1/memory_stores/{store}/memories/{c['id']}")
        before = self.passes()
        self.ran(s, bash("sleep 0.2"))
        wait_for("a pass is over", lambda: self.passes() > before, TURN_S)
        wait_for("the folder has what the store has", lambda: not os.path.exists(self.path("memory/shared/c")) and os.path.exists(self.path("memory/shared/e")) and self.read("memory/shared/a") == "from the API", TURN_S)

    def test_what_both_changed_is_the_stores(self):
        store = self.store("shared", a="one")
        self.begin()
        s = self.session(stores=[store])
        self.ran(s, bash("echo -n mine > memory/shared/a"))
        self.put(store, "/a", "theirs")
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "theirs"})

    @contextlib.contextmanager
    def answers_lost(self, behind=lambda: None):
        """Of what is sent to a store, until the worker gives up; `behind` is called when the first one is on its way."""
        self.net.on("POST", MEMORIES, Cut("after", behind), *[Cut("after")] * 99)
        w = self.begin()
        yield
        wait_for("a send is given up", lambda: "a memory could not be sent" in w.log(), TURN_S)
        self.net.clear()

    def test_an_answer_that_is_lost_makes_no_second_version(self):
        store = self.store("shared", a="one")
        with self.answers_lost():
            s = self.session(stores=[store])
            self.ran(s, bash("echo -n two > memory/shared/a"))
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "two"})
        self.assertEqual(self.operations(store), ["modified", "created"])

    def test_what_was_written_behind_a_lost_answer_is_sent_over_it(self):
        store = self.store("shared", a="one")
        with self.answers_lost(lambda: self.write("three", "memory", "shared", "a")):
            s = self.session(stores=[store])
            self.ran(s, bash("echo -n two > memory/shared/a"))
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "three"})
        self.assertEqual(self.operations(store), ["modified", "modified", "created"])

    def test_a_server_that_is_away_at_the_end_gets_the_changes_when_it_is_back(self):
        store = self.store("shared", a="one")
        self.net.on("POST", MEMORIES, *[Status(503, retry_after_ms="10")] * 9)  # three passes of three tries each
        self.begin()
        s = self.session(stores=[store])
        self.ran(s, bash("echo -n two > memory/shared/a"))
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "two"})

    def test_an_emptied_folder_is_no_wish_to_delete_everything(self):
        store = self.store("shared", a="one", b="two")
        self.begin("--memory-sync", "100ms")
        s = self.session(stores=[store])
        self.ran(s, bash("rm -rf memory/shared; sleep 0.2"))
        wait_for("it is downloaded again", lambda: os.path.exists(self.path("memory/shared/b")), TURN_S)
        self.ran(s, bash("rm memory/shared/*; sleep 0.2"))
        wait_for("and again", lambda: os.path.exists(self.path("memory/shared/b")), TURN_S)
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "one", "/b": "two"})

    def passes(self):
        return len(self.net.seen("GET", MEMORIES + r"\?view=basic"))

    def test_files_that_are_gone_take_a_part_of_the_memories_along_and_only_at_the_end(self):
        store = self.store("shared", **{f"m{i:02}": "x" for i in range(12)})
        w = self.begin("--memory-sync", "100ms")
        s = self.session(stores=[store])
        self.ran(s, bash("cd memory/shared; rm m0*; sleep 0.2"))
        wait_for("a pass is over", lambda: self.passes() > 0, TURN_S)
        before = self.passes()
        self.ran(s, bash("sleep 0.2"))
        wait_for("a second pass is over", lambda: self.passes() > before, TURN_S)
        self.assertEqual(len(self.memories(store)), 12)
        self.wait_left(s)
        self.assertEqual(len(self.memories(store)), 12 - 8)
        self.assertIn("more files of a memory store are gone than one pass may delete", w.log())

    def test_a_content_that_is_not_the_one_named_is_no_file(self):
        store = self.store("shared", a="one")
        (memory,) = self.memories(store, whole=True)
        self.net.on("GET", MEMORIES + r"\?view=full", Body(json.dumps({"data": [{**memory, "content": "another"}], "next_page": None}).encode(), "application/json"))
        w = self.begin()
        s = self.session(stores=[store])
        self.assertEqual(self.ran(s, bash("ls memory/shared; echo end")), "end")
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "one"})
        self.assertIn("not the one whose SHA-256 the server names", w.log())

    def test_a_folder_that_lost_its_marker_is_left_as_it_is(self):
        store = self.store("shared", a="one", b="two")
        self.begin()
        s = self.session(stores=[store])
        self.ran(s, bash(f"cd memory/shared; rm {MARKER} a; echo -n mine > b"))
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "one", "/b": "two"})
        self.assertEqual(self.read("memory/shared/b"), "mine")
        error = self.ended_with(self.session("text never", stores=[store]))
        self.assertIn("there is something at " + self.path("memory/shared"), error["message"])
        self.assertEqual(self.read("memory/shared/b"), "mine")

    def test_what_can_be_no_memory_stays_and_blocks_nothing(self):
        store = self.store("shared", a="one")
        w = self.begin("--memory-sync", "100ms")
        s = self.session(stores=[store])
        self.ran(s, bash("cd memory/shared; head -c 102401 /dev/zero > big; printf '\\377' > binary; ln -s /etc/passwd link; ln -s /etc dir; mkfifo pipe; echo > \"$(printf 'a\\nb')\"; echo -n fine > ok; sleep 0.2"))
        self.ran(s, bash("sleep 0.2"))
        self.wait_left(s)
        self.assertEqual(self.memories(store), {"/a": "one", "/ok": "fine"})
        self.assertEqual(len(self.net.seen("POST", MEMORIES)), 1)
        self.assertEqual(w.log().count("is refused as a memory"), 2, "each is named once")

    def test_a_shutdown_pushes_what_is_changed_and_deletes_nothing(self):
        store = self.store("shared", a="one", b="two")
        w = self.begin()
        s = self.session(bash(f"cd memory/shared; rm b; echo -n changed > a; echo -n new > c; cd ../..; {NEVER}"), "---", "text done", stores=[store])
        self.there("never")
        w.end()
        self.assertEqual(self.memories(store), {"/a": "changed", "/b": "two", "/c": "new"})
        self.assertEqual(os.listdir(self.path("memory")), [])
        self.assertTrue(self.net.seen("POST", "/stop$")[-1].at > self.net.seen("POST", MEMORIES)[-1].at, "the item is held until the memories are safe")
        self.check_pairs(s)

    def test_a_lost_lease_sends_nothing(self):
        store = self.store("shared", a="one")
        w = self.begin()
        s = self.session(bash(f"echo -n changed > memory/shared/a; {NEVER}"), "---", "text done", stores=[store])
        self.there("never")
        self.net.on("POST", "/heartbeat", *[Status(412)] * 9)
        wait_for("the lease is lost", lambda: "lease lost" in w.log(), TURN_S)
        wait_for("the folder is removed", lambda: not os.path.exists(self.path("memory/shared")), TURN_S)
        w.signal(signal.SIGKILL)
        self.assertEqual(told(self.net.seen("POST")), [])
        self.assertEqual(self.memories(store), {"/a": "one"})
        self.client.post(f"/v1/sessions/{s}/events", {"events": [{"type": "user.interrupt"}]})

    def test_after_a_standstill_nothing_is_sent_before_the_lease_is_known(self):
        """The worker is frozen while it waits for more work, for longer than its lease lasts: then its last pass is due, and the heartbeat hangs."""
        idle_s, thaw = self.TTL_S + 1, threading.Event()
        self.addCleanup(thaw.set)
        store = self.store("shared", a="one")
        w = self.start("--max-idle", f"{idle_s}s", base_url=self.net.url)
        s = self.session(stores=[store])
        self.ran(s, bash("echo -n changed > memory/shared/a"))
        w.signal(signal.SIGSTOP)
        over = time.monotonic() + idle_s
        self.net.on("POST", "/heartbeat", *[Cut("before", thaw.wait)] * 9)
        wait_for("lease and idle time are over", lambda: time.monotonic() > over, idle_s + 30)
        before = len(self.net.seen())
        w.signal(signal.SIGCONT)
        wait_for("the lease is given up", lambda: "lease assumed lost" in w.log(), TURN_S)
        wait_for("the folder is removed", lambda: not os.path.exists(self.path("memory/shared")), TURN_S)
        self.assertEqual(told(self.net.seen()[before:]), [])
        self.assertEqual(self.memories(store), {"/a": "one"})

    def test_what_a_killed_worker_left_is_made_anew(self):
        store = self.store("shared", a="one")
        first = self.begin()
        s = self.session(bash(f"mkfifo once 2>/dev/null && {{ echo -n half > memory/shared/a; {NEVER}; }}; cat memory/shared/a"), "---", "text done", stores=[store], skills=[self.skill()])
        self.there("never")
        first.kill()
        self.assertEqual(self.read("memory/shared/a"), "half")
        self.begin()
        self.assertEqual(self.results(self.wait_end(s)), [("one", False)])
        self.wait_left(s)
        self.assertEqual((os.listdir(self.path("memory")), os.listdir(self.path("skills"))), ([], []))

    def test_a_second_session_waits_for_the_folder_of_the_first(self):
        store = self.store("shared", a="one")
        self.begin()
        second = self.begin()
        s = self.session(bash(f"echo -n first > memory/shared/a; {NEVER}"), "---", "text done", stores=[store])
        self.there("never")
        t = self.session(bash("cat memory/shared/a"), "---", "text done", stores=[store])
        wait_for("the other worker waits", lambda: any("waits for a memory store" in w.log() for w in self.workers), TURN_S)
        self.client.post(f"/v1/sessions/{s}/events", {"events": [{"type": "user.interrupt"}]})
        self.assertEqual(self.results(self.wait_end(t)), [("first", False)])
        self.assertTrue(second.process.running())

    def test_a_store_that_cannot_be_read_fails_the_item_and_is_tried_again(self):
        store = self.store("shared", a="one")
        self.net.on("GET", MEMORIES, *[Status(500, retry_after_ms="10")] * 3)
        self.begin()
        s = self.session(bash("cat memory/shared/a"), "---", "text done", stores=[store])
        self.assertEqual(self.results(self.wait_end(s)), [("one", False)])
        self.assertGreater(len(self.items(s)), 1)

    def test_sync_can_be_turned_off(self):
        self.begin("--memory-sync", "0")
        self.assertEqual(self.ran(self.session(stores=[self.store("shared", a="one")]), bash("ls -d memory 2>/dev/null; echo end")), "end")
        self.assertEqual(self.net.seen("GET", "memory_stores"), [])


if __name__ == "__main__":
    main()
