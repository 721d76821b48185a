"""Skills: bundles that are taken and hostile ones that are not, immutable versions, pins of sessions, and the files as sandboxes and workers see them."""
import io
import json
import os
import stat
import struct
import unittest
import zipfile

from api import ApiError
from harness import FakeModel, Mangod, main, wait_for
from test_files import TYPE, multipart
from work_rig import Worker

NEW = {"anthropic-version": "2026-10-21"}
MD = b"---\nname: greeting\ndescription: Greets people.\n---\n# Greeting\nSay hello.\n"


def skill_md(name="greeting", description="Greets people.", body=b"x"):
    return f"---\nname: {name}\ndescription: {description}\n---\n".encode() + body


def archive(*members, method=zipfile.ZIP_DEFLATED):
    """A zip of (name, content) or (name, content, unix mode) members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for m in members:
            info = zipfile.ZipInfo("placeholder" if isinstance(m[0], bytes) or not m[0] else m[0])
            info.filename = m[0]
            info.create_system = 3
            info.compress_type = method
            if len(m) > 2:
                info.external_attr = m[2] << 16
            z.writestr(info, m[1])
    return out.getvalue()


def rename(data, old, new):
    """The same archive with a member's name overwritten byte for byte, in both heads."""
    assert len(old) == len(new) and data.count(old) >= 2, (old, new)
    return data.replace(old, new)


def patched(data, signature, offset, value, nth=0):
    """The archive with bytes of its nth head with that signature overwritten."""
    at = -1
    for _ in range(nth + 1):
        at = data.index(signature, at + 1)
    return data[: at + offset] + value + data[at + offset + len(value) :]


GOOD = ("greeting/SKILL.md", MD)
LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


def hostile_archives():
    """(what, archive, words of the refusal)"""
    small = archive(GOOD)
    yield "is no archive", b"hello", "is no zip file"
    yield "is empty", b"", "is no zip file"
    yield "is an empty archive", archive(), "is no zip file"
    yield "is a tar", b"greeting/SKILL.md" + b"\0" * 500, "is no zip file"
    yield "is a gzip", b"\x1f\x8b\x08" + b"\0" * 50, "is no zip file"
    yield "has words before it", b"MZ" + small, "is no zip file"
    for cut in (4, 20, 40, len(small) // 2, len(small) - 30, len(small) - 22, len(small) - 10, len(small) - 1):
        yield f"is cut at {cut}", small[:cut], "is damaged"
    for path in [
        "../x", "/x", "C:\\x", "a\\..\\b", "greeting/../x", "greeting/../../x", "greeting/./x", "./greeting/x", "greeting//x", "//greeting/x", "greeting/..", "..", ".",
        "greeting/a\\b", "\\\\host\\x", "C:/x", "greeting/x:y", "greeting/x.", "greeting/x ", "greeting/ x", "greeting/\u202ex", "greeting/a\u2028b", "greeting/a\nb", "greeting/a\tb",
        "greeting/a\u0085b", "greeting/a\u007fb", "greeting/" + "x" * 256, "greeting/" + "a/" * 600 + "b", "../greeting/SKILL.md", "greeting/a/../../../etc/passwd", "~/../x",
        "greeting/...", "greeting/a/./b", "/etc/passwd", "greeting/\u200fx", "greeting/\u2066x",
    ]:  # fmt: skip
        yield f"has the member {path[:40]!r}", archive(GOOD, (path, b"x")), "files: '"
    yield "has a name that is not UTF-8", rename(archive(GOOD, ("greeting/AAAA", b"x")), b"greeting/AAAA", b"greeting/\xff\xfe\xed\xa0"), "is not UTF-8"
    yield "has a name with NUL", rename(archive(GOOD, ("greeting/AAAA", b"x")), b"greeting/AAAA", b"greeting/A\0AA"), "files: "
    for kind, words in [
        (stat.S_IFLNK | 0o777, "is a symbolic link"), (stat.S_IFCHR | 0o666, "special file"), (stat.S_IFBLK | 0o666, "special file"), (stat.S_IFIFO | 0o666, "special file"),
        (stat.S_IFSOCK | 0o666, "special file"), (stat.S_IFDIR | 0o755, "is a folder by its name or its mode"),
    ]:  # fmt: skip
        yield f"has a member of the mode {kind:o}", archive(GOOD, ("greeting/x", b"/etc/passwd", kind)), words
    yield "has a link and a file through it", archive(GOOD, ("greeting/l", b"/etc", stat.S_IFLNK | 0o777), ("greeting/l/passwd", b"x")), "is a symbolic link"
    yield "has a folder that is a file by its mode", archive(GOOD, ("greeting/d/", b"", stat.S_IFREG | 0o644)), "is a folder by its name or its mode"
    yield "has a folder with content", archive(GOOD, ("greeting/d/", b"x")), "is a folder with content"
    yield "has no SKILL.md", archive(("greeting/README.md", b"x")), "'greeting/SKILL.md' is missing"
    yield "has SKILL.md without a folder", archive(("SKILL.md", MD)), "must lie in the one top folder"
    yield "has skill.md in small letters", archive(("greeting/skill.md", MD)), "'greeting/SKILL.md' is missing"
    yield "has SKILL.md a level too deep", archive(("greeting/a/SKILL.md", MD)), "'greeting/SKILL.md' is missing"
    yield "has two top folders", archive(GOOD, ("other/x", b"x")), "lies in another top folder"
    yield "has two skills", archive(GOOD, ("other/SKILL.md", MD)), "lies in another top folder"
    yield "has a file beside the top folder", archive(GOOD, ("x", b"x")), "must lie in the one top folder"
    yield "has another top folder than its name", archive(("other/SKILL.md", MD)), "must have the skill's name"
    yield "has a file twice", rename(archive(GOOD, ("greeting/a", b"x"), ("greeting/b", b"y")), b"greeting/b", b"greeting/a"), "is there twice|is damaged"
    yield "has a file that is a folder", archive(GOOD, ("greeting/a", b"x"), ("greeting/a/b", b"y")), "is a file and a folder"
    yield "has twins by case", archive(GOOD, ("greeting/A.md", b"x"), ("greeting/a.md", b"y")), "are one file"
    yield "has SKILL.md twice by case", archive(GOOD, ("greeting/skill.md", b"y")), "are one file"
    yield "has twins by normal form", archive(GOOD, ("greeting/\u00e9", b"x"), ("greeting/e\u0301", b"y")), "are one file"
    yield "has twins by a ligature", archive(GOOD, ("greeting/\ufb01le", b"x"), ("greeting/file", b"y")), "are one file"
    yield "has twins by width", archive(GOOD, ("greeting/\uff41", b"x"), ("greeting/a", b"y")), "are one file"
    yield "has twins by sharp s", archive(GOOD, ("greeting/stra\u00dfe", b"x"), ("greeting/STRASSE", b"y")), "are one file"
    yield "has twins in folders", archive(GOOD, ("greeting/Dir/x", b"x"), ("greeting/dir/x", b"y")), "are one file"
    yield "is a bomb of 1 GiB by its sizes", patched(patched(small, LOCAL, 22, struct.pack("<I", 1 << 30)), CENTRAL, 24, struct.pack("<I", 1 << 30)), "files: "
    yield "is a bomb of zeros", archive(GOOD, ("greeting/z", b"\0" * 40_000_000)), "larger than 30000000 bytes"
    yield "is a bomb of many zeros", archive(GOOD, *[(f"greeting/{i}", b"\0" * 9_000_000) for i in range(4)]), "larger than 30000000 bytes"
    yield "says fewer bytes than it has", patched(patched(archive(GOOD, ("greeting/z", b"\0" * 100000)), LOCAL, 22, struct.pack("<I", 10), 1), CENTRAL, 24, struct.pack("<I", 10), 1), "files: "
    yield "says more bytes than it has", patched(patched(archive(GOOD, ("greeting/z", b"x" * 100)), LOCAL, 22, struct.pack("<I", 5000), 1), CENTRAL, 24, struct.pack("<I", 5000), 1), "files: "
    yield "has a wrong checksum", patched(patched(archive(GOOD, ("greeting/z", b"x" * 100)), LOCAL, 14, b"\1\2\3\4", 1), CENTRAL, 16, b"\1\2\3\4", 1), "files: "
    yield "has heads that disagree on a name", small.replace(b"greeting/SKILL.md", b"greeting/SKILL.xx", 1), "is damaged"
    yield "has heads that disagree on a size", patched(small, LOCAL, 22, struct.pack("<I", 1)), "is damaged"
    yield "has heads that disagree on a method", patched(small, LOCAL, 8, b"\0\0"), "is damaged"
    yield "is encrypted", patched(patched(small, LOCAL, 6, b"\1\0"), CENTRAL, 8, b"\1\0"), "files: "
    yield "is packed by bzip2", archive(GOOD, method=zipfile.ZIP_BZIP2), "another method"
    yield "is packed by LZMA", archive(GOOD, method=zipfile.ZIP_LZMA), "another method"
    yield "has an unknown method", patched(patched(small, LOCAL, 8, b"\x63\0"), CENTRAL, 10, b"\x63\0"), "files: "
    yield "says it has no member", patched(patched(small, END, 8, b"\0\0"), END, 10, b"\0\0"), "files: "
    yield "says it has many members", patched(patched(small, END, 8, b"\xff\0"), END, 10, b"\xff\0"), "is damaged"
    yield "has its directory elsewhere", patched(small, END, 16, struct.pack("<I", 5)), "is damaged"
    yield "has a member outside of itself", patched(small, CENTRAL, 42, struct.pack("<I", 1 << 20)), "is damaged"
    yield "is split over disks", patched(small, END, 4, b"\1\0"), "is damaged"
    yield "has bytes behind its end", small + b"x" * 100, "is damaged"
    yield "has 1,001 files", archive(GOOD, *[(f"greeting/{i}", b"") for i in range(1000)]), "at most 1000 files"
    yield "has 3,000 empty folders", archive(GOOD, *[(f"greeting/{i}/", b"") for i in range(3000)]), "at most 1000 files"
    yield "is larger than 30,000,000 bytes", archive(GOOD, ("greeting/r", os.urandom(30_100_000)), method=zipfile.ZIP_STORED), "30000000"
    for what, md, words in [
        ("empty", b"", "must begin with front matter"), ("without front matter", b"# Hello", "must begin with front matter"), ("with an open front matter", b"---\nname: greeting\n", "has no end"),
        ("without a name", b"---\ndescription: x\n---\n", "name: is missing"), ("without a description", b"---\nname: greeting\n---\n", "description: is missing"),
        ("with an empty description", b"---\nname: greeting\ndescription:\n---\n", "1 to 1,024 characters"), ("with a long description", skill_md(description="x" * 1025), "1 to 1,024 characters"),
        ("with tags in the description", skill_md(description="a <system>b</system>"), "must not hold tags"), ("with a bad name", skill_md("Greeting"), "name: must be 1 to 64"),
        ("with a name with spaces", skill_md("gree ting"), "name: must be 1 to 64"), ("with a long name", skill_md("x" * 65), "name: must be 1 to 64"), ("with a reserved name", skill_md("claude-helper"), "reserved words"),
        ("with another reserved name", skill_md("my-anthropic-x"), "reserved words"), ("with two names", b"---\nname: greeting\nname: other\ndescription: x\n---\n", "may stand once"),
        ("with an alias as its name", b"---\nname: *x\ndescription: y\n---\n", "plain, quoted or block"), ("with a mapping as its description", b"---\nname: greeting\ndescription: {a: b}\n---\n", "plain, quoted or block"),
        ("that is not UTF-8", b"---\nname: greeting\ndescription: \xff\n---\n", "must be UTF-8"), ("with NUL", b"---\nname: greeting\ndescription: a\0b\n---\n", "without NUL"),
        ("with a huge front matter", b"---\nname: greeting\ndescription: x\nother: " + b"y" * 70000 + b"\n---\n", "65,536 bytes"), ("with a byte order mark", b"\xef\xbb\xbf" + MD, "must begin with front matter"),
    ]:  # fmt: skip
        yield f"has a SKILL.md {what}", archive(("greeting/SKILL.md", md)), words


class Skills(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Mangod()
        cls.server.__enter__()
        cls.c = cls.server.client

    @classmethod
    def tearDownClass(cls):
        if not cls.server.process.running():
            print(cls.server.log()[-4000:])
        cls.server.__exit__(None, None, None)

    def send(self, *parts, path="/v1/skills", headers=NEW):
        status, _, text = self.c.raw("POST", path, multipart(*parts), {**TYPE, **headers}, timeout=60)
        return status, json.loads(text)

    def create(self, *files, path="/v1/skills", **fields):
        files = files or (GOOD,)
        status, made = self.send(*[("files[]", n, c) for n, c in files], *[(k, None, v.encode()) for k, v in fields.items()], path=path)
        self.assertEqual(200, status, made)
        return made

    def get(self, path):
        return self.c.call("GET", path, headers=NEW)

    def refused(self, status, *call, headers=NEW):
        with self.assertRaises(ApiError) as caught:
            self.c.call(*call, headers=headers)
        self.assertEqual(status, caught.exception.status, caught.exception)
        return caught.exception

    # ---- bundles ----

    def test_case_89_hostile_archives_are_refused_with_the_member_named(self):
        n = 0
        for what, data, words in hostile_archives():
            n += 1
            with self.subTest(what=what):
                status, answer = self.send(("files[]", "skill.zip", data))
                self.assertEqual((400, "invalid_request_error"), (status, answer["error"]["type"]), answer)
                self.assertTrue(any(w in answer["error"]["message"] for w in words.split("|")), answer["error"]["message"])
        self.assertGreaterEqual(n, 80)
        self.assertEqual([], self.server.database.query("SELECT 1 FROM skills WHERE display_name = 'skill'"))
        wait_for("nothing is left of them", lambda: not [r for r in self.server.database.query("SELECT state FROM objects") if r[0] != "ready"])

    def test_a_bundle_is_the_same_by_parts_and_by_archive(self):
        files = [("greeting/b/c.txt", b"c" * 1000), GOOD, ("greeting/a.sh", b"#!/bin/sh\n"), ("greeting/empty", b"")]
        contents = []
        for made in (
            self.create(*files),
            self.create(*reversed(files)),
            self.create(("x.zip", archive(*files))),
            self.create(("x.zip", archive(("greeting/", b""), ("greeting/b/", b"", stat.S_IFDIR | 0o755), *files, method=zipfile.ZIP_STORED))),
        ):
            status, headers, body = self.c.raw("GET", f"/v1/skills/{made['id']}/versions/{made['latest_version_id']}/content")
            self.assertEqual((200, "application/zip"), (status, headers["content-type"]))
            contents.append(body)
        self.assertEqual(1, len(set(contents)), "the same files give the same archive")
        with zipfile.ZipFile(io.BytesIO(contents[0])) as z:
            self.assertIsNone(z.testzip())
            self.assertEqual(sorted(n for n, _ in files), z.namelist())
            for name, content in files:
                self.assertEqual(content, z.read(name))
                self.assertEqual(stat.S_IFREG | 0o644, z.getinfo(name).external_attr >> 16)

    def test_front_matter_in_every_form_that_people_write(self):
        for head, name, description in [
            (b"name: greeting\ndescription: a b", "greeting", "a b"), (b"description: 'it''s'\nname: \"greeting\"", "greeting", "it's"),
            (b"name: greeting\ndescription: >\n  a\n  b\nlicense: MIT", "greeting", "a b"), (b"name: greeting\ndescription: |\n  a\n  b", "greeting", "a\nb"),
            (b"name: greeting\nmetadata:\n  name: other\n  x: [1, 2]\ndescription: \"a \\\"b\\\"\"", "greeting", 'a "b"'), (b"name: greeting\r\ndescription: a\r", "greeting", "a"),
            ("name: greeting\ndescription: é <5 and > 3".encode(), "greeting", "é <5 and > 3"),
        ]:  # fmt: skip
            with self.subTest(head=head):
                made = self.create(("greeting/SKILL.md", b"---\n" + head + b"\n---\nbody"))
                version = self.get(f"/v1/skills/{made['id']}/versions/latest")
                self.assertEqual((name, description), (version["name"], version["description"]))
        self.create(("My_Skill/SKILL.md", skill_md("my-skill")))

    # ---- objects of both dialects ----

    def test_a_skill_has_the_shape_of_the_callers_dialect(self):
        made = self.create(display_name="Greeter")
        self.assertEqual({"id", "type", "display_name", "display_title", "latest_version_id", "latest_version", "source", "created_at", "updated_at"}, set(made))
        self.assertEqual(("skill", "Greeter", {"type": "custom"}), (made["type"], made["display_name"], made["source"]))
        self.assertTrue(made["latest_version_id"].isdigit())
        old = self.c.call("GET", f"/v1/skills/{made['id']}", headers={**NEW, "anthropic-beta": "skills-2025-10-02"})
        self.assertEqual(("custom", made["latest_version_id"], "Greeter"), (old["source"], old["latest_version"], old["display_title"]))
        self.assertEqual("custom", self.c.get(f"/v1/skills/{made['id']}")["source"])
        self.assertEqual("greeting", self.create()["display_name"], "the bundle's name where none is given")
        for title in ("x" * 256, "", "a\tb"):
            self.assertEqual(400, self.send(("files[]", *GOOD), ("display_name", None, title.encode()))[0])
        self.assertEqual(400, self.send(("other", *GOOD))[0])

    def test_versions_grow_never_change_and_resolve_latest(self):
        made = self.create()
        path = f"/v1/skills/{made['id']}"
        first = self.get(f"{path}/versions/{made['latest_version_id']}")
        self.assertEqual({"id", "type", "version", "skill_id", "name", "description", "directory", "created_at"}, set(first))
        self.assertEqual((first["id"], "skill_version", "greeting"), (first["version"], first["type"], first["directory"]))
        ids = [first["id"]] + [self.create(("greeting/SKILL.md", skill_md(description=f"v{i}")), path=f"{path}/versions")["id"] for i in range(4)]
        self.assertEqual(sorted(ids, key=int), ids)
        self.assertEqual(ids[-1], self.get(f"{path}/versions/latest")["id"])
        self.assertEqual(ids[-1], self.get(path)["latest_version_id"])
        page = self.get(f"{path}/versions?limit=3")
        rest = self.get(f"{path}/versions?limit=3&page={page['next_page']}")
        self.assertEqual(ids[::-1], [v["id"] for v in page["data"] + rest["data"]])
        self.assertEqual(first, self.get(f"{path}/versions/{first['id']}"))
        self.refused(400, "GET", f"{path}/versions/latest/content")
        self.refused(404, "GET", f"{path}/versions/1")
        self.refused(404, "GET", f"{path}/versions/abc")
        self.refused(404, "GET", "/v1/skills/skill_none")
        self.assertEqual({"id": ids[0], "type": "skill_version_deleted"}, self.c.call("DELETE", f"{path}/versions/{ids[0]}", headers=NEW))
        self.refused(404, "GET", f"{path}/versions/{ids[0]}")
        self.refused(409, "DELETE", path, headers={"anthropic-beta": "skills-2025-10-02"})
        self.assertEqual({"id": made["id"], "type": "skill_deleted"}, self.c.call("DELETE", path, headers=NEW))
        self.refused(404, "GET", path)
        self.assertEqual(404, self.send(("files[]", *GOOD), path="/v1/skills/skill_none/versions")[0])

    def test_the_list_walks_without_gap_and_knows_sources(self):
        made = [self.create()["id"] for _ in range(5)][::-1]
        page = self.get("/v1/skills?limit=2")
        walked = page["data"]
        while page["next_page"]:
            page = self.get(f"/v1/skills?limit=2&page={page['next_page']}")
            walked += page["data"]
        self.assertEqual(made, [s["id"] for s in walked if s["id"] in made])
        self.assertEqual([], [s for s in self.get("/v1/skills?source=anthropic")["data"] if s["id"] in made])
        self.assertTrue(self.get("/v1/skills?source=custom&limit=1")["data"])
        self.refused(400, "GET", "/v1/skills?source=x")

    # ---- sessions ----

    def agent(self, skills, **fields):
        return self.c.post("/v1/agents", {"name": "a", "model": "mango-test", "tools": [{"type": "agent_toolset_20260401"}], "skills": skills, **fields})

    def session(self, agent, kind="cloud"):
        environment = self.c.post("/v1/environments", {"name": "e", "config": {"type": kind}})["id"]
        return self.c.post("/v1/sessions", {"agent": agent["id"], "environment_id": environment})

    def ask(self, session_id, command):
        before = len(self.c.events(session_id))
        self.c.say(session_id, f"run: {command}")

        def done():
            new = self.c.events(session_id)[before:]
            return new if [e for e in new if e["type"] == "session.status_idle"] else None

        results = [e for e in wait_for("the turn ends", done) if e["type"] == "agent.tool_result"]
        return results[-1]["content"][0]["text"]

    def test_a_session_holds_the_version_it_was_made_with(self):
        made = self.create(GOOD, ("greeting/data/x.txt", b"first"))
        agent = self.agent([{"type": "custom", "skill_id": made["id"]}])
        self.assertEqual([{"type": "custom", "skill_id": made["id"], "version": "latest"}], agent["skills"])
        session = self.session(agent)
        self.assertEqual([{"type": "custom", "skill_id": made["id"], "version": made["latest_version_id"]}], session["agent"]["skills"])
        self.create(("greeting/SKILL.md", skill_md()), ("greeting/data/x.txt", b"second"), path=f"/v1/skills/{made['id']}/versions")
        self.assertIn("first", self.ask(session["id"], "cat skills/greeting/data/x.txt"))
        self.assertIn("Say hello", self.ask(session["id"], "cat skills/greeting/SKILL.md"))
        self.refused(409, "DELETE", f"/v1/skills/{made['id']}/versions/{made['latest_version_id']}")
        self.refused(409, "DELETE", f"/v1/skills/{made['id']}")
        self.assertIn("second", self.ask(self.session(agent)["id"], "cat skills/greeting/data/x.txt"))

    def test_a_skill_of_the_vendors_is_there_once_the_operator_imports_it(self):
        made = self.create(("xlsx/SKILL.md", skill_md("xlsx")), source="anthropic")
        self.assertEqual(("xlsx", {"type": "anthropic"}), (made["id"], made["source"]))
        self.assertEqual("anthropic", self.c.get("/v1/skills/xlsx")["source"])
        agent = self.agent([{"type": "anthropic", "skill_id": "xlsx"}])
        again = self.create(("xlsx/SKILL.md", skill_md("xlsx", body=b"newer")), source="anthropic")
        self.assertEqual("xlsx", again["id"])
        self.assertGreater(int(again["latest_version_id"]), int(made["latest_version_id"]))
        self.assertIn("xlsx", [s["id"] for s in self.get("/v1/skills?source=anthropic")["data"]])
        self.assertNotIn("xlsx", [s["id"] for s in self.get("/v1/skills?source=custom&limit=100")["data"]])
        session = self.session(agent)
        self.assertEqual([{"type": "anthropic", "skill_id": "xlsx", "version": again["latest_version_id"]}], session["agent"]["skills"])
        self.assertIn("newer", self.ask(session["id"], "cat skills/xlsx/SKILL.md"))
        status, answer = self.send(("files[]", *GOOD), ("source", None, b"other"))
        self.assertEqual((400, "source: must be custom or anthropic"), (status, answer["error"]["message"]))

    def test_what_an_agent_cannot_have_is_refused_by_name(self):
        one, two = self.create(), self.create()
        for skills, words in [
            ([{"type": "anthropic", "skill_id": "skill_pptx"}], "skills[0].skill_id"), ([{"type": "custom", "skill_id": "pptx"}], "skills[0].skill_id"), ([{"type": "custom"}], "skills[0].skill_id"), ([{"type": "custom", "skill_id": "x", "version": "v1"}], "skills[0].version"),
            ([{"type": "custom", "skill_id": "x", "y": 1}], "y"), ("x", "skills"), ([1], "skills[0]"),
        ]:  # fmt: skip
            with self.subTest(skills=skills), self.assertRaises(ApiError) as caught:
                self.agent(skills)
            self.assertEqual(400, caught.exception.status)
            self.assertIn(words, caught.exception.message)
        for skills, status, words in [
            ([{"type": "custom", "skill_id": "skill_none"}], 404, "skill_none"), ([{"type": "anthropic", "skill_id": "pptx"}], 404, "import it with POST /v1/skills"), ([{"type": "custom", "skill_id": one["id"], "version": "1"}], 404, "version"),
            ([{"type": "custom", "skill_id": s["id"]} for s in (one, two)], 400, "have the name 'greeting'"),
        ]:  # fmt: skip
            with self.subTest(skills=skills), self.assertRaises(ApiError) as caught:
                self.session(self.agent(skills))
            self.assertEqual(status, caught.exception.status, caught.exception)
            self.assertIn(words, caught.exception.message)

    def test_a_workers_token_reads_the_skills_of_its_session_and_no_others(self):
        held, other = self.create(), self.create()
        session = self.session(self.agent([{"type": "custom", "skill_id": held["id"]}]), "self_hosted")
        self.c.say(session["id"], "run: true")
        worker = Worker(self.c, session["environment_id"])
        worker.claim()
        (skill,) = worker.client.get(f"/v1/sessions/{session['id']}")["agent"]["skills"]
        path = f"/v1/skills/{skill['skill_id']}/versions"
        self.assertEqual("greeting", worker.client.get(f"{path}/{skill['version']}")["name"])
        self.assertEqual(1, len(worker.client.get(path)["data"]))
        status, _, body = worker.client.raw("GET", f"{path}/{skill['version']}/content")
        self.assertEqual((200, b"PK\x03\x04"), (status, body[:4]))
        self.assertEqual(403, worker.client.raw("GET", f"/v1/skills/{other['id']}/versions")[0])
        self.assertEqual(403, worker.client.raw("DELETE", f"{path}/{skill['version']}")[0])
        self.assertEqual(403, worker.client.raw("GET", "/v1/skills")[0])
        worker.stop()
        self.assertEqual(401, worker.client.raw("GET", path)[0])

    def test_the_model_is_told_of_each_skill_and_where_it_is(self):
        with FakeModel() as model, Mangod(model_url=model.url) as m:
            _, _, text = m.client.raw("POST", "/v1/skills", multipart(("files[]", *GOOD)), {**TYPE, **NEW})
            made = json.loads(text)
            agent = m.client.post("/v1/agents", {"name": "a", "model": "m", "system": "Be kind.", "skills": [{"type": "custom", "skill_id": made["id"]}]})
            environment = m.client.post("/v1/environments", {"name": "e", "config": {"type": "cloud"}})["id"]
            session = m.client.post("/v1/sessions", {"agent": agent["id"], "environment_id": environment})["id"]
            m.client.say(session, "hello")
            request = wait_for("the model is asked", model.requests)[0]
            self.assertIn("Be kind.", json.dumps(request))
            self.assertIn("greeting (skills/greeting/SKILL.md): Greets people.", json.dumps(request))


if __name__ == "__main__":
    main()
