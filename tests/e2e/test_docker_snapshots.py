"""Snapshots of the sandbox `docker` whose taking goes wrong at each of its steps: field case 59. A proxy between plugin and Engine does what a full disk, a broken
connection, somebody who stops the container and a kill -9 of the server do."""
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest

from docker_rig import Boxes, docker, under_engine
from harness import main, wait_for
from sandbox import OK, Driver, label

under_engine(__file__)

# Of a snapshot: a container that never runs, the workspace into it, an image of it.
STEPS = (b"/containers/create?name=mango-template-", b"/archive?path=", b"/commit?container=")


def load(path, name, created):
    """Gives the Engine an image with nothing in it, made at that moment."""
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    config = {"architecture": "amd64", "os": "linux", "created": created}
    config["rootfs"] = {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(empty.getvalue()).hexdigest()]}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        for file, content in (("config.json", json.dumps(config).encode()), ("layer.tar", empty.getvalue()), ("manifest.json", json.dumps(manifest).encode())):
            member = tarfile.TarInfo(file)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    docker("load", "-q", "-i", path)


class Snapshots(Boxes):
    def setUp(self):
        self.on_a_wire()
        super().setUp()
        self.d.ok("write", self.box, "f", "then")
        self.first = self.d.ok("snapshot", self.box)["snapshot"]
        self.addCleanup(lambda: subprocess.run(["docker", "rmi", "-f", self.first], capture_output=True, check=False))
        self.d.ok("write", self.box, "f", "now")

    def begin(self):
        """A command that runs meanwhile."""
        n = self.d.send("exec", self.box, 60000, 0, "mkfifo go; echo begun >begun; cat go; rm go begun; echo whole", "")
        wait_for("the command", lambda: self.d.call("read", self.box, "begun", 0, 100).get("content") == "begun\n")
        return n

    def end(self, n):
        self.d.ok("exec", self.box, 30000, 0, "echo on 1<>go", "")
        done = self.d.wait(n)
        self.assertEqual((done["exited"], done["code"], done["out"]), (True, 0, "on\nwhole\n"), done)

    def spring(self, step, what):
        self.wire.trap, self.wire.sprung = (step, what), 0
        answer = self.d.call("snapshot", self.box)
        self.wire.trap = None
        self.assertGreater(self.wire.sprung, 0, "a step that is none")
        return answer

    def only_the_first_is_left(self):
        """Nothing of the one that failed."""
        self.assertEqual(docker("ps", "-a", "--format", "{{.Names}}"), ["mango-" + self.box])
        self.assertEqual(docker("images", "mango-snapshot", "--format", "{{.Repository}}:{{.Tag}}"), [self.first])
        self.assertEqual(docker("images", "-q", "-f", "dangling=true"), [])

    def the_first_is_valid(self):
        other = label()
        self.d.ok("fork", self.first, other, self.d.owner)
        try:
            self.assertEqual(self.d.out(other, "cat f"), "then")
        finally:
            self.d.ok("destroy", other)

    def test_case_59_a_snapshot_that_fails_at_any_step_leaves_the_one_before_and_nothing_of_its_own(self):
        for step in STEPS:
            for what in ("refused", "before", "after"):
                with self.subTest(step=step, what=what):
                    n = self.begin()
                    answer = self.spring(step, what)
                    if answer["status"] == OK:  # made up for by asking again
                        self.assertNotEqual(what, "refused")
                        self.d.ok("unsnapshot", answer["snapshot"])
                    else:
                        self.assertEqual(answer["snapshot"], "", answer)
                        self.assertIn("no space left" if what == "refused" else "Docker", answer["error"])
                    self.end(n)  # in the sandbox nothing has happened
                    self.assertEqual(self.d.out(self.box, "cat f"), "now")
                    self.only_the_first_is_left()
        self.the_first_is_valid()
        self.d.ok("unsnapshot", self.d.ok("snapshot", self.box)["snapshot"])  # and the next one is taken

    def test_case_59_a_sandbox_that_is_stopped_during_a_snapshot_goes_on_with_the_next_use(self):
        for step in STEPS:
            with self.subTest(step):
                answer = self.spring(step, lambda: docker("kill", "mango-" + self.box))
                if answer["status"] == OK:  # it was whole already, or the sandbox was started again for it
                    self.d.ok("unsnapshot", answer["snapshot"])
                self.until_ok("exec", self.box, 30000, 0, "test $(cat f) = now", "")
                self.only_the_first_is_left()
        self.the_first_is_valid()

    def test_case_59_a_server_that_is_killed_during_a_snapshot_leaves_what_its_next_start_uses(self):
        for step in STEPS:
            with self.subTest(step):
                d = Driver("docker", self.env)
                d.ok("attach", self.box, self.d.owner)
                self.wire.trap = (step, lambda d=d: os.kill(d.process.pid, signal.SIGKILL))
                with self.assertRaises(AssertionError):
                    d.call("snapshot", self.box)
                d.end()
                self.wire.trap = None
                # What a crash leaves, and what the Engine still finishes, has names by which a later start sweeps it.
                left = [n for n in docker("ps", "-a", "--format", "{{.Names}}") if n != "mango-" + self.box]
                self.assertEqual([n for n in left if not n.startswith("mango-template-")], [])
                for name in left:
                    docker("rm", "-f", name)
                self.usable_again(self.d)
                self.assertEqual(self.d.out(self.box, "cat f"), "now")
                self.only_the_first_is_left()
        self.the_first_is_valid()


class Sweep(unittest.TestCase):
    def test_what_a_crash_left_of_snapshots_is_swept_by_a_start_an_hour_later(self):
        layer = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "layer.tar")
        for tag, created in (("old", "2020-01-01T00:00:00Z"), ("new", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))):
            load(layer, "mango-unfinished:" + tag, created)
        Driver("docker").end()
        tags = docker("images", "mango-unfinished", "--format", "{{.Tag}}")
        self.assertEqual(("old" in tags, "new" in tags), (False, True))
        docker("rmi", "mango-unfinished:new")


if __name__ == "__main__":
    main()
