"""Repositories of sessions: git over HTTPS from a host with an authority of its own, tokens, what cannot be had, crashes, and where a token must not be."""
import base64
import glob
import json
import os
import pathlib
import shutil
import stat
import subprocess
import unittest

from api import ApiError
from harness import main, wait_for
from repository_rig import GitHost, RepositoryServer, errors, git, said
from vault_rig import key_text, write_keyring
from webhook_rig import mango

TOKEN = "ghp_" + os.urandom(12).hex()
KIND = {"type": "github_repository"}
SANDBOX = os.environ.get("MANGO_TEST_REPOSITORY_SANDBOX", "local")
BACKEND_SETTINGS = ("DOCKER_HOST", "MANGO_DOCKER_IMAGE")
SHORT_LEASE = {"MANGO_NODE_TTL": "4s"}  # who was killed is soon known to be


def setUpModule():
    WithHost.host = unittest.enterModuleContext(GitHost())
    WithHost.s = unittest.enterModuleContext(RepositoryServer(WithHost.host, sandbox=SANDBOX, env={**SHORT_LEASE, **{n: os.environ.get(n) for n in BACKEND_SETTINGS}}))
    WithHost.c = WithHost.s.client


class WithHost(unittest.TestCase):
    """One host and one server for all: what a test changes of them it changes back."""

    def refused(self, status, *call):
        with self.assertRaises(ApiError) as caught:
            self.c.call(*call)
        self.assertEqual(status, caught.exception.status, caught.exception)
        return caught.exception

    def lacks(self, events, kind, *words):
        """The turn's one error is of this kind, has the words, and the model was told the same; its text."""
        (error,) = errors(events)
        self.assertEqual((kind, {"type": "retrying"}), (error["type"], error["retry_status"]), error)
        for word in words:
            self.assertIn(word, error["message"])
        self.assertIn(error["message"], said(events))
        return error


class Api(WithHost):
    def setUp(self):
        self.session = self.c.new_session()["id"]
        self.here = f"/v1/sessions/{self.session}/resources"

    def test_a_repository_is_created_added_listed_shown_rotated_and_deleted(self):
        url = self.host.url("none")
        checkout = {"type": "branch", "name": "a/b"}
        session = self.c.new_session(resources=[{**KIND, "url": url + ".git", "authorization_token": TOKEN, "checkout": checkout}])
        (first,) = session["resources"]
        self.assertEqual({"id", "type", "url", "mount_path", "checkout", "created_at", "updated_at"}, set(first))
        self.assertEqual(("github_repository", url + ".git", "/workspace/none", checkout), tuple(first[k] for k in ("type", "url", "mount_path", "checkout")))
        here = f"/v1/sessions/{session['id']}/resources"
        second = self.c.post(here, {**KIND, "url": url + "/", "mount_path": "/workspace/x/y", "checkout": None, "authorization_token": None})
        self.assertEqual((None, "/workspace/x/y"), (second["checkout"], second["mount_path"]))
        self.assertEqual([first, second], self.c.get(here)["data"])
        self.assertEqual([first, second], self.c.get(f"/v1/sessions/{session['id']}")["resources"])
        rotated = self.c.post(f"{here}/{first['id']}", {"authorization_token": "other"})
        self.assertEqual({k: v for k, v in first.items() if k != "updated_at"}, {k: v for k, v in rotated.items() if k != "updated_at"})
        self.assertGreater(rotated["updated_at"], first["updated_at"])
        self.assertEqual([rotated, second], self.c.get(f"/v1/sessions/{session['id']}")["resources"])
        self.assertEqual({"id": first["id"], "type": "session_resource_deleted"}, self.c.delete(f"{here}/{first['id']}"))
        self.assertEqual([second], self.c.get(here)["data"])
        self.refused(404, "POST", f"{here}/{first['id']}", {"authorization_token": "x"})

    def test_what_is_wrong_is_named(self):
        url, sha = self.host.url("r"), "a" * 40
        self.c.post(self.here, {**KIND, "url": url, "mount_path": "/workspace/taken"})
        bad = [({"url": u}, 400, "url") for u in (
            "", "r", "http://localhost/a/b", "git@github.com:a/b.git", "ssh://git@github.com/a/b", "file:///etc", "https://", "https:///a/b", "https://u@github.com/a/b", "https://u:p@github.com/a/b",
            "https://github.com/a/b?x=1", "https://github.com/a/b#x", "https://github.com/a b", "https://github.com/é", "https://github.com/" + "a" * 2048, "ext::sh -c id", "-u", "https://github.com\\@x/y",
            "https://github.com:x/a/b", "https://github.com:99999/a/b",
        )]  # fmt: skip
        bad += [({"checkout": {"type": "branch", "name": b}}, 400, "checkout.name") for b in (
            "", "-b", "a..b", "a b", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b", "a.", "a/", "/a", "a//b", ".a", "a/.b", "a.lock", "a.lock/b", "@", "a@{0}", "a\u0000", "a\n", "x" * 245, "HEAD",
        )]  # fmt: skip
        bad += [({"checkout": {"type": "commit", "sha": x}}, 400, "checkout.sha") for x in ("", "HEAD", "a" * 39, "a" * 41, "g" * 40, "--upload-pack=x")]
        bad += [({"mount_path": p}, 400, "mount_path") for p in ("r", "/workspace", "/etc/x", "/workspace/../x", "/workspace/.session/x", "/workspace/skills", "/workspace/a\n")]
        bad += [({"authorization_token": t}, 400, "authorization_token") for t in ("", "a b", "a\nb", "é", "x" * 8193)]
        bad += [
            ({"checkout": {"type": "tag", "name": "v1"}}, 400, "checkout.type"), ({"checkout": {"name": "v1"}}, 400, "checkout.type"), ({"checkout": {"type": "branch"}}, 400, "checkout.name"),
            ({"checkout": {"type": "commit", "name": "x", "sha": sha}}, 400, "name"), ({"checkout": "main"}, 400, "checkout"), ({"file_id": "file_x"}, 400, "file_id"), ({"url": 1}, 400, "url"),
            ({"mount_path": "/workspace/taken"}, 409, "mount_path"), ({"mount_path": "/workspace/taken/x"}, 409, "mount_path"), ({"url": self.host.url("")}, 400, "mount_path: is required"),
            ({"url": self.host.url("skills")}, 400, "mount_path: is required"), ({"url": self.host.url("..")}, 400, "mount_path: is required"), ({"url": self.host.url(".git")}, 400, "mount_path: is required"),
        ]  # fmt: skip
        for body, status, word in bad:
            with self.subTest(body=body):
                e = self.refused(status, "POST", self.here, {**KIND, "url": url, **body})
                self.assertIn(word, e.message)
        self.assertIn("url", self.refused(400, "POST", self.here, KIND).message)
        for body in ({}, {"authorization_token": ""}, {"authorization_token": None}, {"authorization_token": 1}, {"authorization_token": "x", "url": url}):
            with self.subTest(update=body):
                (resource,) = self.c.get(self.here)["data"]
                self.refused(400, "POST", f"{self.here}/{resource['id']}", body)

    def test_a_session_has_at_most_16_and_places_do_not_meet(self):
        many = [{**KIND, "url": self.host.url(f"r{i}")} for i in range(17)]
        with self.assertRaises(ApiError) as caught:
            self.c.new_session(resources=many)
        self.assertIn("16 repositories", caught.exception.message)
        self.assertEqual(16, len(self.c.new_session(resources=many[:16])["resources"]))
        with self.assertRaises(ApiError) as caught:
            self.c.new_session(resources=[many[0], many[0]])
        self.assertIn("resources[1].mount_path", caught.exception.message)

    def test_a_self_hosted_session_has_none(self):
        hosted = self.c.new_session("self_hosted")["id"]
        e = self.refused(400, "POST", f"/v1/sessions/{hosted}/resources", {**KIND, "url": self.host.url("r")})
        self.assertEqual("self_hosted_resources_unsupported", json.loads(e.body)["error"]["details"]["error_code"])
        with self.assertRaises(ApiError) as caught:
            self.c.new_session("self_hosted", resources=[{**KIND, "url": self.host.url("r")}])
        self.assertEqual(400, caught.exception.status)

    def test_an_archived_session_keeps_no_token(self):
        session = self.c.new_session(resources=[{**KIND, "url": self.host.url("r"), "authorization_token": TOKEN}])["id"]
        count = f"SELECT count(*) FROM session_resources WHERE session_id = '{session}' AND secret IS NOT NULL"
        self.assertEqual("1", self.s.database.query(count)[0][0])
        self.c.post(f"/v1/sessions/{session}/archive")
        self.assertEqual("0", self.s.database.query(count)[0][0])


class Fetching(WithHost):
    def test_the_default_branch_comes_with_its_history(self):
        self.host.new("plain", {"README.md": "first\n", "bin/run": "#!/bin/sh\necho runs\n", "a b/ü.txt": "odd\n", "link": ("README.md",), "sub/link": ("../README.md",)})
        os.chmod(os.path.join(self.host.path("plain"), "bin/run"), 0o755)
        newest = self.host.commit("plain", {"README.md": "second\n"})
        session = self.s.session("plain")["id"]
        events = self.s.turn(session, "(cd plain && cat README.md link sub/link 'a b/ü.txt' && bin/run && stat -c %a README.md bin/run && ls -A .git)")
        self.assertEqual([], errors(events))
        self.assertTrue(said(events).startswith("second\nsecond\nsecond\nodd\nruns\n644\n755\n"), said(events))
        self.assertNotIn("hooks", said(events))
        if shutil.which("git"):  # of the sandbox: with docker the image has none
            known = self.s.ask(session, "command -v git >/dev/null || echo none; git -C plain status --porcelain=v1 -b; git -C plain log --format=%H; git -C plain remote -v")
            if not known.startswith("none"):
                self.assertTrue(known.startswith(f"## main...origin/main\n{newest}\n"), known)
                self.assertIn(f"origin\t{self.host.url('plain')} (fetch)", known)
        self.assertIn("plain", self.s.ask(session, "ls; ls -A .session"))
        self.assertNotIn(".tar", self.s.ask(session, "ls -A .session"))

    def test_a_branch_and_a_commit_are_checked_out(self):
        first = self.host.new("many", {"f": "1\n"})
        self.host.commit("many", {"f": "2\n"})
        side = self.host.commit("many", {"f": "side\n"}, branch="feature/x")
        git(self.host.path("many"), "tag", "v1", first)
        resources = [
            {**KIND, "url": self.host.url("many"), "mount_path": "/workspace/in/branch", "checkout": {"type": "branch", "name": "feature/x"}},
            {**KIND, "url": self.host.url("many"), "mount_path": "/workspace/old", "checkout": {"type": "commit", "sha": first}},
            {**KIND, "url": self.host.url("many"), "mount_path": "/mnt/session/uploads/other", "checkout": {"type": "commit", "sha": side.upper()}},
        ]
        session = self.c.new_session(resources=resources)["id"]
        events = self.s.turn(session, "cat in/branch/f old/f .session/uploads/other/f in/branch/.git/HEAD old/.git/HEAD")
        self.assertEqual(([], f"side\n1\nside\nref: refs/heads/feature/x\n{first}"), (errors(events), said(events)))
        wanted = (({"type": "branch", "name": "gone"}, "no branch 'gone'"), ({"type": "branch", "name": "v1"}, "no branch 'v1'"), ({"type": "commit", "sha": "b" * 40}, "no commit bbbb"))
        resources = [{**KIND, "url": self.host.url("many"), "checkout": checkout, "mount_path": f"/workspace/{i}"} for i, (checkout, _) in enumerate(wanted)]
        found = errors(self.s.turn(self.c.new_session(resources=resources)["id"], "ls"))
        for (_, words), error in zip(wanted, found, strict=True):
            self.assertEqual("repository_checkout_error", error["type"])
            self.assertIn(words, error["message"])

    def test_a_private_one_needs_its_token_and_a_new_token_counts_from_the_next_call(self):
        self.host.new("private", token=TOKEN)
        url = self.host.url("private")
        session = self.s.session("private")
        events = self.s.turn(session["id"], "ls")
        error = self.lacks(events, "repository_authentication_error", url, session["resources"][0]["id"], "set an authorization_token")
        self.assertEqual(url, error["repository_url"])
        here = f"/v1/sessions/{session['id']}/resources/{session['resources'][0]['id']}"
        self.c.post(here, {"authorization_token": "wrong-" + TOKEN})
        self.lacks(self.s.turn(session["id"], "ls"), "repository_authentication_error", "does not accept the authorization_token")
        self.c.post(here, {"authorization_token": TOKEN})
        events = self.s.turn(session["id"], "cat private/README.md")
        self.assertEqual(([], "this is private"), (errors(events), said(events).strip()))
        seen = len(self.host.seen)
        self.c.post(here, {"authorization_token": "third"})
        self.assertEqual("this is private", self.s.ask(session["id"], "cat private/README.md").strip())
        self.assertEqual(seen, len(self.host.seen), "what is there is not fetched again")

    def test_what_cannot_be_had_is_told_once_a_turn_and_the_session_goes_on(self):
        self.host.new("plain2")
        self.host.statuses.update({"forbidden": 403, "moved": 301, "broken": 500})
        wanted = (
            (self.host.url("forbidden"), "repository_forbidden_error", "set one that may read it"), (self.host.url("absent"), "repository_not_found_error", "mend the URL"),
            (self.host.url("moved"), "repository_clone_error", "redirects"), (self.host.url("broken"), "repository_clone_error", "500"),
            ("https://localhost:1/x", "repository_clone_error", "connect"),
        )  # fmt: skip
        urls = [url for url, _, _ in wanted] + [self.host.url("plain2")]
        session = self.c.new_session(resources=[{**KIND, "url": url} for url in urls])["id"]
        events = self.s.turn(session, "echo first; cat plain2/README.md")
        self.assertTrue(said(events).startswith("first\nthis is plain2"), said(events))
        for (url, kind, words), error in zip(wanted, errors(events), strict=True):
            with self.subTest(url=url):
                self.assertEqual((url, kind, {"type": "retrying"}), (error["repository_url"], error["type"], error["retry_status"]))
                self.assertIn(words, error["message"])
                self.assertIn(error["message"], said(events))
        before = len(self.c.events(session))
        self.c.say(session, "run: echo 1\nrun: echo 2")
        again = self.s.rest_of_turn(session, before)
        self.assertEqual(len(wanted), len(errors(again)), "once a turn, whatever its calls")
        self.assertNotIn("Note:", said(again))

    def test_the_agents_work_stays_and_what_is_added_later_comes_before_the_next_call(self):
        self.host.new("one")
        self.host.new("two")
        session = self.s.session("one")["id"]
        here = f"/v1/sessions/{session}/resources"
        self.assertIn("mine", self.s.ask(session, "echo mine > one/README.md; echo x > one/new; cat one/README.md"))
        added = self.c.post(here, {**KIND, "url": self.host.url("two")})
        self.assertIn("this is two", self.s.ask(session, "cat two/README.md"))
        self.s.ask(session, "rm .session/mounts")  # as when a crash came before it was written
        seen = len(self.host.seen)
        self.s.restart()
        self.assertEqual("mine x this is two", " ".join(self.s.ask(session, "cat one/README.md one/new two/README.md").split()))
        self.assertEqual(seen, len(self.host.seen), "what is there is not fetched again")
        self.c.delete(f"{here}/{added['id']}")
        self.assertIn("gone", self.s.ask(session, "test -e two || echo gone; cat one/README.md"))
        self.s.ask(session, "mkdir -p two; echo own > two/file; mkdir three")
        taken = self.c.post(here, {**KIND, "url": self.host.url("two")})
        self.lacks(self.s.turn(session, "cat two/file"), "repository_checkout_error", "something else is there")
        self.c.delete(f"{here}/{taken['id']}")
        self.assertIn("own", self.s.ask(session, "cat two/file"), "what was never put there is not taken out")
        self.c.post(here, {**KIND, "url": self.host.url("two"), "mount_path": "/workspace/three"})
        self.assertIn("this is two", self.s.ask(session, "cat three/README.md"), "an empty folder is no obstacle")

    def test_an_empty_repository_is_an_empty_folder(self):
        os.makedirs(self.host.path("empty"))
        git(self.host.path("empty"), "init", "--quiet", "--initial-branch=main", ".")
        events = self.s.turn(self.s.session("empty")["id"], "ls -A empty")
        self.assertEqual(([], ".git"), (errors(events), said(events)))


@unittest.skipUnless(shutil.which("bwrap"), "bubblewrap is not installed")
class OnSrt(WithHost):
    def test_a_repository_comes_into_a_sandbox_that_is_a_boundary(self):
        self.host.new("bound", token=TOKEN)
        with RepositoryServer(self.host, sandbox="srt") as s:
            events = s.turn(s.session("bound", authorization_token=TOKEN)["id"], "cat bound/README.md /workspace/bound/.git/HEAD; touch bound/new && echo writable")
            self.assertEqual(([], "this is bound\nref: refs/heads/main\nwritable"), (errors(events), said(events).strip()))


class Hostile(WithHost):
    def test_names_and_links_in_a_repository_do_not_leave_its_folder(self):
        outside = os.path.join(self.host.dir, "outside")
        path = self.host.path("evil")
        self.host.new("evil", {"abs": (outside,), "up": ("../../../..",), ".gitattributes": "* filter=evil\n", "f": "text\n"})
        blob = git(path, "hash-object", "-w", "--stdin", data=b"#!/bin/sh\n")
        names, resources = (b"..", b".git", b"../escape", b"/tmp/escape", b".GIT", b"git~1"), []
        inner = git(path, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=b"100755 escape\0" + bytes.fromhex(blob))
        for i, name in enumerate(names):
            mode, what = (b"40000", inner) if i < 2 else (b"100755", blob)
            tree = git(path, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=mode + b" " + name + b"\0" + bytes.fromhex(what))
            git(path, "update-ref", f"refs/heads/h{i}", git(path, "commit-tree", tree, "-m", "x"))
            resources.append({**KIND, "url": self.host.url("evil"), "checkout": {"type": "branch", "name": f"h{i}"}, "mount_path": f"/workspace/deep/evil{i}"})
        events = self.s.turn(self.c.new_session(resources=resources)["id"], "find . -name 'escape*'; ls deep")
        self.assertFalse([line for line in said(events).split("\n") if line.endswith("escape")], said(events))
        self.assertEqual(["repository_clone_error"] * len(names), [e["type"] for e in errors(events)], errors(events))
        session = self.s.session("evil")["id"]
        self.assertEqual("text", self.s.ask(session, "cat evil/f; test -L evil/abs && test -L evil/up || echo no links").strip())
        self.assertFalse(os.path.exists(outside) or os.path.exists("/tmp/escape"))
        self.assertEqual([], glob.glob(os.path.join(self.s.dir, "state", "**", "escape*"), recursive=True))

    def test_one_that_is_too_large_is_refused_before_it_is_unpacked(self):
        """A tree costs its host little: many names of one small file."""
        self.host.new("large")
        path = self.host.path("large")
        for branch, size, n in (("many", 1, 100001), ("bytes", 8000, 66000)):
            blob = git(path, "hash-object", "-w", "--stdin", data=b"x" * size)
            tree = git(path, "mktree", data=b"".join(b"100644 blob %s\t%06d\n" % (blob.encode(), i) for i in range(n)))
            git(path, "update-ref", f"refs/heads/{branch}", git(path, "commit-tree", tree, "-m", "x"))
        resources = [{**KIND, "url": self.host.url("large"), "checkout": {"type": "branch", "name": b}, "mount_path": f"/workspace/{b}"} for b in ("many", "bytes")]
        found = errors(self.s.turn(self.c.new_session(resources=resources)["id"], "ls"))
        self.assertEqual(["repository_clone_error"] * 2, [e["type"] for e in found], found)
        for error in found:
            self.assertIn("100000 files and 500 MiB", error["message"])

    def test_a_link_in_the_sandbox_and_submodules_lead_nowhere(self):
        self.host.new("target")
        self.host.new("parent")
        path = self.host.path("parent")
        with open(os.path.join(path, ".gitmodules"), "w", encoding="ascii") as f:
            f.write(f'[submodule "t"]\n\tpath = t\n\turl = {self.host.url("target")}\n')
        commit = git(self.host.path("target"), "rev-parse", "HEAD")
        git(path, "update-index", "--add", "--cacheinfo", f"160000,{commit},t")
        self.host.commit("parent", {})
        session = self.s.session("parent")["id"]
        self.assertIn(".gitmodules", self.s.ask(session, "ls -A parent"))
        self.assertFalse([path for _, path, _ in self.host.seen if path.startswith("/target")])

    def test_private_addresses_are_refused_where_the_operator_does_not_allow_them(self):
        with RepositoryServer(self.host, env={"MANGO_REPOSITORY_ALLOW_PRIVATE": "0"}) as s:
            for address in ("127.0.0.1", "10.1.2.3", "[::1]", "169.254.169.254", "[::ffff:127.0.0.1]", "127.1", "2130706433", "0x7f000001"):
                with self.subTest(address=address), self.assertRaises(ApiError) as caught:
                    s.client.new_session(resources=[{**KIND, "url": f"https://{address}/a/b"}])
                self.assertIn("url: leads to a private or local address", caught.exception.message)
            before = len(self.host.seen)
            for url in (self.host.url("r"), self.host.url("r", "localhost.")):
                with self.subTest(url=url):
                    session = s.client.new_session(resources=[{**KIND, "url": url}])["id"]
                    (error,) = errors(s.turn(session, "ls"))
                    self.assertEqual("repository_clone_error", error["type"])
                    self.assertIn("MANGO_REPOSITORY_ALLOW_PRIVATE", error["message"])
            self.assertEqual(before, len(self.host.seen))

    def test_a_certificate_of_a_stranger_is_refused(self):
        with RepositoryServer(self.host, env={"MANGO_REPOSITORY_CA_FILE": None}) as s:
            (error,) = errors(s.turn(s.session("r")["id"], "ls"))
            self.assertIn("certificate", error["message"])


def processes():
    """pid -> (command line, environment) of every process that can be read."""
    out = {}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit():
                out[int(entry)] = tuple(pathlib.Path(f"/proc/{entry}/{name}").read_bytes() for name in ("cmdline", "environ"))
        except OSError:
            pass
    return out


def files_with(folder, needles):
    found = []
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                text = pathlib.Path(path).read_bytes()
                found += [path for n in needles if n in text]
    return found


class Crashes(WithHost):
    def setUp(self):
        self.addCleanup(self.host.gate.set)
        if not os.path.exists(self.host.path("slow")):
            self.host.new("slow")

    def waiting(self, session):
        """The session's fetch has come to the host, and waits there."""
        seen = len(self.host.seen)
        self.host.gate.clear()
        self.c.say(session, "run: cat slow/README.md")
        wait_for("git asks the host", lambda: len(self.host.seen) > seen)

    def gits(self):
        return [pid for pid, (line, _) in processes().items() if b"git" in line and self.host.url("slow").encode() in line]

    def left(self):
        return os.listdir(os.path.join(self.s.dir, "state", "repositories"))

    def test_a_server_that_is_killed_while_it_fetches_begins_anew(self):
        session = self.s.session("slow")["id"]
        self.waiting(session)
        self.assertTrue(self.gits() and self.left())
        self.assertTrue(any(b"git-remote-https" in processes()[pid][0] for pid in self.gits()), "git's helper talks to the host")
        self.s.kill()
        wait_for("git and its helper end with their server, while the host says nothing", lambda: not self.gits(), 10)
        self.host.gate.set()
        self.s.process.end()
        self.s.start()
        events = self.s.rest_of_turn(session, 0)
        self.assertEqual(([], "this is slow"), (errors(events), said(events).strip()))
        wait_for("nothing is left of the first try", lambda: not self.left())

    def test_a_server_that_is_killed_before_it_puts_a_repository_in_begins_anew(self):
        self.host.new("half")
        with RepositoryServer(self.host, hooks="repository.before_put=kill", env=SHORT_LEASE) as s:
            session = s.session("half")["id"]
            s.client.say(session, "run: cat half/README.md")
            s.process.wait(60)
            s.process.end()
            s.hooks = None
            s.start()
            events = s.rest_of_turn(session, 0)
            self.assertEqual(([], "this is half"), (errors(events), said(events).strip()))
            self.assertEqual("", s.ask(session, "ls -A .session | grep repository").replace("exit 1", "").strip())

    def test_an_interrupt_ends_git(self):
        session = self.s.session("slow")["id"]
        self.waiting(session)
        self.c.post(f"/v1/sessions/{session}/events", {"events": [{"type": "user.interrupt"}]})
        wait_for("git is ended", lambda: not self.gits())
        self.host.gate.set()
        wait_for("its folder goes", lambda: not self.left())
        self.assertEqual("this is slow", self.s.ask(session, "cat slow/README.md").strip())


class Deployments(WithHost):
    """A deployment keeps the tokens of its repositories sealed, for the sessions that it makes."""

    def deployment(self, client, *resources):
        agent = client.post("/v1/agents", {"name": "a", "model": "m", "tools": [{"type": "agent_toolset_20260401"}]})["id"]
        env = client.post("/v1/environments", {"name": f"e{os.urandom(8).hex()}", "config": {"type": "cloud"}})["id"]
        event = {"type": "user.message", "content": [{"type": "text", "text": "run: cat */README.md"}]}
        return client.post("/v1/deployments", {"name": "d", "agent": agent, "environment_id": env, "initial_events": [event], "resources": list(resources)})

    def run_of(self, deployment):
        """The events of the session of a run by hand."""
        session = self.c.post(f"/v1/deployments/{deployment['id']}/run", {})["session_id"]
        return self.s.rest_of_turn(session, 0)

    def sealed(self, deployment):
        return self.s.database.query(f"SELECT key_id, secret FROM deployments WHERE id = '{deployment['id']}'")[0]

    def rekey(self):
        key = "k" + os.urandom(4).hex()
        self.s.keys[key] = key_text()
        write_keyring(self.s.keyring, key, self.s.keys)
        self.s.restart()
        self.assertGreaterEqual(json.loads(mango(self.s, "vault", "rekey").stdout)["resealed"], 1)
        return key

    def test_a_token_is_sealed_opens_the_repository_for_each_session_and_is_replaced_with_the_resources(self):
        if not os.path.exists(self.host.path("deployed")):
            self.host.new("deployed", token=TOKEN), self.host.new("open")
        private, public = {**KIND, "url": self.host.url("deployed")}, {**KIND, "url": self.host.url("open"), "checkout": {"type": "branch", "name": "main"}}
        made = self.deployment(self.c, public, {**private, "authorization_token": TOKEN, "mount_path": "/workspace/here"})
        here = f"/v1/deployments/{made['id']}"
        shown = [public, {**private, "mount_path": "/workspace/here"}]
        self.assertEqual((shown, shown), (made["resources"], self.c.get(here)["resources"]))
        key, secret = self.sealed(made)
        self.assertTrue(key and secret)
        self.assertEqual((shown, [key, secret]), (self.c.post(here, {"name": "e"})["resources"], self.sealed(made)))
        new_key = self.rekey()
        self.assertEqual(new_key, self.sealed(made)[0])
        events = self.run_of(made)
        self.assertEqual(([], "this is deployed\nthis is open"), (errors(events), said(events).strip()))
        dump = subprocess.run(["pg_dump", self.s.database.url], check=True, capture_output=True, timeout=60).stdout
        for name, text in (("events", json.dumps(events).encode()), ("log", self.s.log().encode()), ("database", dump)):
            self.assertNotIn(TOKEN.encode(), text, name)
        self.c.post(here, {"resources": [{**private, "authorization_token": "wrong-" + TOKEN}]})
        self.lacks(self.run_of(made), "repository_authentication_error", "does not accept the authorization_token")
        self.c.post(here, {"resources": [private]})
        self.assertEqual(["", ""], self.sealed(made), "the new resources have none")
        self.lacks(self.run_of(made), "repository_authentication_error", "set an authorization_token")

    def test_an_archived_one_keeps_no_token_and_a_copied_one_opens_nothing(self):
        private = {**KIND, "url": self.host.url("r"), "authorization_token": TOKEN}
        one, two = self.deployment(self.c, private), self.deployment(self.c, private)
        key, secret = self.sealed(one)
        self.s.database.query(f"UPDATE deployments SET key_id = '{key}', secret = '{secret}' WHERE id = '{two['id']}'")
        self.assertIn("was copied from another one", self.refused(500, "POST", f"/v1/deployments/{two['id']}/run", {}).message)
        self.c.post(f"/v1/deployments/{one['id']}/archive")
        self.c.post(f"/v1/deployments/{two['id']}/archive")
        self.assertEqual((["", ""], ["", ""]), (self.sealed(one), self.sealed(two)))

    def test_what_is_wrong_with_a_token_is_named(self):
        for token in ("", "a b", "x" * 8193):
            with self.assertRaises(ApiError) as caught:
                self.deployment(self.c, {**KIND, "url": self.host.url("r")}, {**KIND, "url": self.host.url("s"), "authorization_token": token})
            self.assertEqual(400, caught.exception.status)
            self.assertIn("resources[1].authorization_token", caught.exception.message)


class Secrets(WithHost):
    def test_a_token_is_nowhere_but_at_the_host(self):
        self.host.new("secret", token=TOKEN)
        needles = [TOKEN.encode(), base64.b64encode(f"x-access-token:{TOKEN}".encode())]
        session = self.s.session("secret", authorization_token=TOKEN)
        answers = json.dumps(session)
        seen = len(self.host.seen)
        self.host.gate.clear()
        self.c.say(session["id"], "run: env; cat secret/.git/config")
        wait_for("git asks the host", lambda: len(self.host.seen) > seen)
        running = processes()
        self.assertTrue([line for line, _ in running.values() if b"clone" in line and b"/secret" in line])
        own = {os.getpid()}
        found = [pid for pid, texts in running.items() if pid not in own and any(n in t for n in needles for t in texts)]
        self.assertEqual([], found, "no command line and no environment has it")
        self.assertEqual([], files_with(os.path.join(self.s.dir, "state"), needles))
        self.host.gate.set()
        events = self.s.rest_of_turn(session["id"], 0)
        self.assertEqual([], errors(events))
        self.assertIn(self.host.url("secret"), said(events))
        self.assertTrue([a for _, _, a in self.host.seen if a and a.endswith(needles[1].decode())], "the host got it")
        wrong = self.s.session("secret", authorization_token=TOKEN + "x", mount_path="/workspace/wrong")
        refused = self.s.turn(wrong["id"], "ls")
        self.assertEqual(1, len(errors(refused)))
        here = f"/v1/sessions/{session['id']}/resources"
        answers += json.dumps([events, refused, self.c.get(here), self.c.post(f"{here}/{session['resources'][0]['id']}", {"authorization_token": TOKEN})])
        with self.assertRaises(ApiError) as caught:
            self.c.post(here, {**KIND, "url": self.host.url("secret"), "authorization_token": TOKEN, "x": TOKEN})
        answers += caught.exception.body
        dump = subprocess.run(["pg_dump", self.s.database.url], check=True, capture_output=True, timeout=60).stdout
        for name, text in (("answers and events", answers.encode()), ("log", self.s.log().encode()), ("database", dump)):
            for needle in needles:
                self.assertNotIn(needle, text, name)
        self.assertEqual([], files_with(self.s.dir, needles), "neither the sandbox nor the state has it")

    def test_a_changed_key_opens_what_is_sealed_anew(self):
        self.host.new("keys", token=TOKEN)
        session = self.s.session("keys", authorization_token=TOKEN)["id"]
        write_keyring(self.s.keyring, "k2", {**self.s.keys, "k2": key_text()})
        self.s.restart()
        resealed = json.loads(mango(self.s, "vault", "rekey").stdout)
        self.assertGreaterEqual(resealed["resealed"], 1)
        with open(self.s.keyring, encoding="ascii") as f:
            keys = json.load(f)["keys"]
        write_keyring(self.s.keyring, "k2", {"k2": keys["k2"]})
        self.s.restart()
        self.assertIn("this is keys", self.s.ask(session, "cat keys/README.md"))

    def test_without_a_keyring_no_token_is_taken(self):
        with RepositoryServer(self.host, env={"MANGO_VAULT_KEYRING_FILE": None}) as s:
            with self.assertRaises(ApiError) as caught:
                s.session("r", authorization_token=TOKEN)
            self.assertEqual("vault_keyring_missing", json.loads(caught.exception.body)["error"]["details"]["error_code"])
            with self.assertRaises(ApiError) as caught:
                Deployments.deployment(self, s.client, {**KIND, "url": self.host.url("r"), "authorization_token": TOKEN})
            self.assertEqual("vault_keyring_missing", json.loads(caught.exception.body)["error"]["details"]["error_code"])
            session = s.session("r")
            with self.assertRaises(ApiError) as caught:
                s.client.post(f"/v1/sessions/{session['id']}/resources/{session['resources'][0]['id']}", {"authorization_token": TOKEN})
            self.assertEqual("vault_keyring_missing", json.loads(caught.exception.body)["error"]["details"]["error_code"])


if __name__ == "__main__":
    main()
