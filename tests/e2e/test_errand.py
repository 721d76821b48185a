"""`mango-rbox` as a service starts it. `errand`: a command's folder becomes that of the next one, with nothing of the one before. Both of its ways: what comes again after a lost
answer, content on its way out that is a second name of an old file, and a kill when those who watched the command are dead."""
import base64
import fcntl
import json
import os
import secrets
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

from harness import BUILD, main, wait_for

PROGRAM = os.path.join(BUILD, "plugins", "loadable", "mango-rbox")
HELLO, RUN, WAIT, KILL, READ = 1, 2, 3, 4, 5  # common/errand/errand.h
WAIT_MS = 60000
LARGE = 2 * 1024 * 1024  # bytes: more than either way tells inline


def number(v):
    return struct.pack("<Q", v)


def text(s):
    return number(len(s)) + s.encode()


def parent(pid):
    """0: it is dead."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            state, ppid = f.read().rpartition(")")[2].split()[:2]
    except OSError:
        return 0
    return 0 if state == "Z" else int(ppid)


class InRoot(unittest.TestCase):
    SLEEPER = "echo $$ >pid.new; mv pid.new pid; exec sleep 1000"

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="errand.", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.root)

    def old_file(self):
        """A large one that was last written before anything is kept."""
        path = os.path.join(self.root, "old")
        with open(path, "wb") as f:
            f.truncate(LARGE)
        os.utime(path, (1, 1))
        return os.stat(path).st_ino

    def orphan(self):
        """Its process, once those that watch the sleeper have died without a chance to end it."""
        path = os.path.join(self.root, "pid")
        wait_for("the command", lambda: os.path.exists(path))
        with open(path, encoding="ascii") as f:
            pid = int(f.read())
        self.addCleanup(lambda: parent(pid) and os.kill(pid, signal.SIGKILL))
        reaper = parent(pid)
        watchers = [parent(reaper), reaper]
        for sent in (signal.SIGSTOP, signal.SIGKILL):
            for w in watchers:
                os.kill(w, sent)
        wait_for("their end", lambda: not any(parent(w) for w in watchers))
        self.assertNotEqual(parent(pid), 0)
        return pid


class Errand(InRoot):
    def setUp(self):
        super().setUp()
        os.mkdir(os.path.join(self.root, ".mango"), 0o700)

    def path(self, *names):
        return os.path.join(self.root, ".mango", *names)

    def errand(self, op, forget, body, program=PROGRAM):
        """(stdout of the command, its stderr, the last line)"""
        request = number(op) + text(self.root) + number(len(forget)) + b"".join(text("run-" + i) for i in forget) + body
        argv = [program, "errand", base64.b64encode(request).decode()]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
        said, last = {"o": b"", "e": b""}, ""
        for line in done.stdout.splitlines():
            self.assertTrue(line.startswith("mango:"), line)
            words = line[6:].split(" ")
            if words[0] in said:
                self.assertEqual(int(words[1]), len(said[words[0]]))
                said[words[0]] += base64.b64decode(words[2] + "===")
            else:
                last = line[6:]
        return said["o"].decode(), said["e"].decode(), last

    def run_it(self, script, forget=(), ms=WAIT_MS):
        name = secrets.token_hex(16)
        body = text(name) + number(0) + number(0) + number(ms) + number(0)
        body += number(0) + number(0) + text("") + text("") + number(3) + text("/bin/sh") + text("-c") + text(script) + number(1) + text("MANGO_RUN=" + name)
        return name, *self.errand(RUN, forget, body)

    def wait(self, name, ms=WAIT_MS):
        return self.errand(WAIT, (), text(name) + number(0) + number(0) + number(ms) + number(0))

    def settle(self, name):
        """Until the folder's lock is nobody's."""
        with open(self.path("run-" + name, "lock"), "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)

    def inode(self, name):
        return os.stat(self.path("run-" + name, "lock")).st_ino

    def test_a_command_takes_over_the_folder_of_a_forgotten_one_and_nothing_of_what_it_said(self):
        first, out, err, last = self.run_it("echo much; echo more >&2; exit 3")
        self.assertEqual((out, err, last[:5]), ("much\n", "more\n", ". x 3"))
        inode = self.inode(first)
        self.settle(first)
        second, out, err, last = self.run_it(":", [first])
        self.assertEqual((out, err, last[:9]), ("", "", ". x 0 0 0"))
        self.assertEqual(self.inode(second), inode)
        self.assertEqual(os.listdir(self.path()), ["run-" + second])
        self.settle(second)
        third, out, err, last = self.run_it("echo a; kill -9 $$", [second])
        self.assertEqual((out, err, last[:5]), ("a\n", "", ". s 9"))
        self.assertEqual(self.wait(third), (out, err, last), "it is told as often as it is asked")

    def test_what_a_command_has_left_behind_says_nothing_in_the_next_one(self):
        for name in ("go", "gone"):
            os.mkfifo(os.path.join(self.root, name))
        first, out, _, last = self.run_it("{ read x <go; echo late; echo >gone; } & echo now")
        self.assertEqual((out, last[:5]), ("now\n", ". x 0"))
        self.settle(first)
        _, out, err, last = self.run_it("echo >go; read x <gone; echo next", [first])
        self.assertEqual((out, err, last[:5]), ("next\n", "", ". x 0"))

    def test_a_folder_that_somebody_holds_is_not_taken_over(self):
        first, *_ = self.run_it("echo first")
        inode = self.inode(first)
        with open(self.path("run-" + first, "lock"), "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            second, out, _, last = self.run_it("echo second", [first])
            self.assertEqual((out, last[:5]), ("second\n", ". x 0"))
            self.assertNotEqual(self.inode(second), inode)
        self.assertEqual(os.listdir(self.path()), ["run-" + second])

    def test_a_command_that_outlives_its_first_wait_is_waited_for_by_the_next(self):
        os.mkfifo(os.path.join(self.root, "go"))
        name, out, _, last = self.run_it("echo begun; read x <go; echo over", ms=0)
        self.assertIn(out, ("", "begun\n"))
        self.assertEqual(last, "~")
        with open(os.path.join(self.root, "go"), "w", encoding="ascii"):
            pass
        out, _, last = self.wait(name)
        self.assertEqual((out, last[:5]), ("begun\nover\n", ". x 0"))

    def test_content_on_its_way_out_outlives_the_sweep_of_a_server_that_comes_back(self):
        inode = self.old_file()
        *_, last = self.errand(READ, (), text("old") + number(0) + number(LARGE))
        staged = last.split(" ")[1]
        self.assertTrue(staged.startswith("out-"), last)
        name = "errand-" + "0" * 16
        shutil.copy(PROGRAM, self.path(name))
        self.assertEqual(self.errand(HELLO, (), text(name), self.path(name))[2], "k")
        self.assertEqual(os.stat(self.path(staged)).st_ino, inode)

    def test_a_command_whose_supervisor_is_dead_is_killed_by_its_mark(self):
        name, *_, last = self.run_it(self.SLEEPER, ms=0)
        self.assertEqual(last, "~")
        pid = self.orphan()
        self.assertEqual(self.errand(KILL, (), text(name) + number(0))[2][:3], ". c")
        wait_for("the command's end", lambda: parent(pid) == 0)


class Box(InRoot):
    """The frames of the other way: kind, length, bytes."""

    def box(self, *words):
        out = subprocess.run([PROGRAM, words[0], self.root, *words[1:]], check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120).stdout
        while out:
            kind, n = struct.unpack(">cI", out[:5])
            frame, out = out[5 : 5 + n], out[5 + n :]
        self.assertEqual(kind, b"r")
        return json.loads(frame)

    def path(self, *names):
        return os.path.join(self.root, ".mango-run", *names)

    def test_a_put_that_comes_again_after_a_lost_answer_is_done_also_when_it_made_the_file_read_only(self):
        self.box("hello")
        with open(self.path("id.in"), "w", encoding="ascii") as f:
            f.write("new")
        for _ in range(2):
            self.assertEqual(self.box("put", "id", str(0o444), "f"), {"how": "done"})
        self.assertEqual(os.stat(os.path.join(self.root, "f")).st_mode & 0o7777, 0o444)
        with open(self.path("other.in"), "w", encoding="ascii") as f:
            f.write("newer")
        refused = self.box("put", "other", "0", "f")
        self.assertEqual((refused["how"], refused["text"]), ("failed", "is read-only; change its mode first"))
        with open(os.path.join(self.root, "f"), encoding="ascii") as f:
            self.assertEqual(f.read(), "new")
        self.assertEqual(os.listdir(self.path()), ["id.put"])

    def test_content_on_its_way_out_outlives_the_sweep_of_a_command(self):
        inode = self.old_file()
        self.assertTrue(self.box("read", "id", "0", str(LARGE), "old")["staged"])
        self.assertEqual(self.box("run", "command", "0", "0", "0", "0", "", "0", "/bin/true")["how"], "exited")
        self.assertEqual(os.stat(self.path("id.out")).st_ino, inode)

    def test_a_command_whose_watcher_is_dead_is_killed_by_its_mark(self):
        words = [PROGRAM, "run", self.root, "command", "0", "0", "0", "0", "", "0", "/bin/sh", "-c", self.SLEEPER]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
            pid = self.orphan()
        self.assertEqual(self.box("kill", "command"), {"how": "lost"})
        wait_for("the command's end", lambda: parent(pid) == 0)


if __name__ == "__main__":
    main()
