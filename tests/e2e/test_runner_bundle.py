"""The worker's bundle in a root that has a shell and nothing else: no C library, no loader, no authorities."""
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import unittest

from harness import BUILD, SRC, Process, main, skip
from worker_rig import IDLE_MS, WorkerCase

MAX = 15 * 1024 * 1024  # bytes

if os.geteuid() != 0:
    skip("a root of its own needs root")
if not shutil.which("busybox"):
    skip("busybox is not installed (Debian: apt-get install busybox-static)")


class Bundle(WorkerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.archive = os.path.join(cls.server.dir, "bundle.tar.gz")
        cls.pack(cls.archive)

    @staticmethod
    def pack(out):
        subprocess.run(
            [os.path.join(SRC, "core", "worker", "runner-bundle"), os.path.join(BUILD, "mango-worker"), os.path.join(BUILD, "plugins", "local", "mango-local-runner"), out],
            check=True,
            capture_output=True,
        )

    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(prefix="mango-bundle.", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.root, True)
        for name in ("bin", "tmp", "work", "dev", "opt"):
            os.mkdir(os.path.join(self.root, name))
        shutil.copy(shutil.which("busybox"), os.path.join(self.root, "bin", "busybox"))
        for name in subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True).stdout.split():
            path = os.path.join(self.root, "bin", name)
            if not os.path.lexists(path):
                os.symlink("busybox", path)
        with tarfile.open(self.archive) as tar:
            tar.extractall(os.path.join(self.root, "opt"), filter="fully_trusted")

    def inside(self, *words):
        """In the root, with a /proc and a /dev of its own that go with it."""
        script = 'mkdir -p "$1/proc" && mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev" && mknod -m 666 "$1/dev/null" c 1 3 && mknod -m 666 "$1/dev/urandom" c 1 9 && exec chroot "$@"'
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", self.root, *words]

    def test_it_is_small_and_the_same_every_time(self):
        self.assertLess(os.path.getsize(self.archive), MAX)
        again = self.archive + ".again"
        self.pack(again)
        with open(self.archive, "rb") as a, open(again, "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_it_starts_from_anywhere(self):
        os.symlink("/opt/mango-worker/mango-worker", os.path.join(self.root, "bin", "mango-worker"))
        for command in (["/opt/mango-worker/mango-worker", "--version"], ["/bin/sh", "-c", "mango-worker --version"], ["/bin/sh", "-c", "cd /opt/mango-worker; ./mango-worker --version"]):
            done = subprocess.run(self.inside(*command), capture_output=True, text=True, timeout=30, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
            self.assertRegex(done.stdout, r"^mango-worker \d", f"{command}: {done.stderr}")

    def test_it_serves_a_session_with_all_six_tools(self):
        env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "ANTHROPIC_BASE_URL": self.url(),
            "ANTHROPIC_ENVIRONMENT_ID": self.environment,
            "ANTHROPIC_ENVIRONMENT_KEY": self.key,
        }
        command = ["/opt/mango-worker/mango-worker", "poll", "--workdir", "/work", "--max-idle", f"{IDLE_MS}ms", "--poll-gap", "100ms"]
        w = Process(self.inside(*command), env, os.path.join(self.folder, "..bundle.log"))
        self.addCleanup(w.end)
        s = self.new()
        events = self.turn(
            s,
            'tool bash {"command":"ls /lib /lib64 /usr 2>&1; echo $((6*7)); X=kept"}',
            'tool write {"file_path":"a.txt","content":"one\\ntwo\\n"}',
            'tool edit {"file_path":"a.txt","old_string":"two","new_string":"three"}',
            'tool read {"file_path":"/work/a.txt"}',
            'tool grep {"pattern":"three"}',
            'tool glob {"pattern":"*.txt"}',
            'tool bash {"command":"echo $X"}',
            "---",
            "text done",
        )
        results = [r[0] for r in self.results(events)]
        self.assertIn("42", results[0])
        self.assertEqual(results[0].count("No such file"), 3, results[0])
        self.assertEqual(results[3], "one\nthree\n")
        self.assertIn("a.txt:2:three", results[4])
        self.assertEqual(results[5:], ["/work/a.txt", "kept"])
        w.signal(signal.SIGTERM)


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    main()
