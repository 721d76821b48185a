"""The sandbox `docker` where mango-box does not run: commands by execs of the Engine; and images for another processor, which an emulator runs or nobody.

An emulator is tried where MANGO_TEST_ARM64_BUSYBOX names a static busybox for arm64 (of Debian's busybox-static:arm64), qemu-user-static is installed and
this kernel has binfmt_misc."""
import io
import json
import os
import struct
import subprocess
import tarfile
import tempfile
import time
import unittest

from docker_rig import OWN, Boxes, Wire, docker, left, under_engine
from harness import main, wait_for
from sandbox import ECANCELED, EDENIED, EINVALID, EUNSUPPORTED, OK, Driver, host_processes, label

under_engine(__file__)

BUSYBOX, EMULATOR = os.environ.get("MANGO_TEST_ARM64_BUSYBOX"), "/usr/lib/binfmt.d/qemu-aarch64.conf"


def arm64_program():
    """The head of one, which is enough for a kernel to see that it is not its own."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, 0x400000, 64, 0, 0, 64, 56, 0, 64, 0, 0)


def add(tar, name, content, mode=0o755, link=None):
    info = tarfile.TarInfo(name)
    info.mode, info.size = mode, len(content)
    if link:
        info.type, info.linkname = tarfile.SYMTYPE, link
    tar.addfile(info, io.BytesIO(content))


def load_image(name, shell):
    """An image for linux/arm64 whose programs are all `shell`."""
    layer, image = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add(tar, "bin/busybox", shell)
        for applet in ("sh", "ls", "cat", "id", "uname", "grep", "find", "head", "tail", "wc", "stat", "mkdir", "mv", "rm", "rmdir", "readlink", "chmod", "sleep", "tar", "dd", "env"):
            add(tar, "bin/" + applet, b"", link="busybox")
        for folder in ("tmp", "etc", "proc", "dev", "sys"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
    digest = subprocess.run(["sha256sum"], input=layer.getvalue(), capture_output=True, check=True).stdout.split()[0].decode()
    config = {"architecture": "arm64", "os": "linux", "config": {"Env": ["PATH=/bin"]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]}}
    with tarfile.open(fileobj=image, mode="w") as tar:
        add(tar, "layer.tar", layer.getvalue(), 0o644)
        add(tar, "config.json", json.dumps(config).encode(), 0o644)
        add(tar, "manifest.json", json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode(), 0o644)
    subprocess.run(["docker", "load", "-q"], input=image.getvalue(), check=True, capture_output=True)


class WithoutBox(Boxes):
    limits, env = {"pids": 60}, {"MANGO_DOCKER_RUNNER": "exec"}

    def test_nothing_of_ours_runs_in_the_container(self):
        self.usable()
        self.assertEqual(self.d.out(self.box, "ps -eo args --no-headers | grep -c '/[.]mango/'; true"), "0")
        self.assertNotIn("/.mango/box", docker("inspect", "-f", "{{.Path}}", "mango-" + self.box))
        self.assertEqual(self.d.out(self.box, "id -u; pwd"), "10001\n/workspace")

    def test_case_54_a_limit_or_a_cancel_leaves_no_process(self):
        done = self.d.sh(self.box, "while :; do :; done", limit_ms=2000)
        self.assertTrue(done["timed_out"], done)
        n = self.d.send("exec", self.box, 60000, 0, "setsid sleep 7314.25 & env -i sleep 7314.25 | sleep 7314.25", "")
        wait_for("the pipeline", lambda: self.d.out(self.box, "ps ax | grep -c '[s]leep 7314.25'; true") >= "3")
        self.d.cancel(n)
        self.assertEqual(self.d.wait(n)["status"], ECANCELED)
        self.assertEqual(host_processes("7314.25"), [])
        self.usable()

    def test_a_fork_bomb_that_leaves_no_room_for_the_kill_ends_with_its_container(self):
        self.d.ok("write", self.box, "kept", "content")
        done = self.d.sh(self.box, "bash -c 'f() { f | f & }; f; while :; do :; done'", limit_ms=3000)
        self.assertTrue(done["timed_out"], done)
        wait_for("all of it to be gone", lambda: self.d.call("exec", self.box, 20000, 0, "ps -eo args --no-headers | grep -c '^bash -c'; true", "")["out"].strip() == "0", 60)
        self.assertEqual(self.d.ok("read", self.box, "kept", 0, 100)["content"], "content")

    def test_case_61_orphans_leave_no_zombies(self):
        self.d.sh(self.box, "i=0; while [ $i -lt 30 ]; do (sleep 0.01 &); i=$((i+1)); done; sleep 0.3")
        wait_for("no zombies", lambda: int(self.d.out(self.box, "ps -eo stat --no-headers | grep -c '^Z'; true")) < 10)

    def test_another_server_takes_over_what_a_killed_one_left(self):
        self.d.ok("write", self.box, "kept", "content")
        self.d.send("exec", self.box, 60000, 0, "sleep 7315.25", "")
        wait_for("the command", lambda: host_processes("7315.25"))
        self.d.end()
        with Driver("docker") as d:  # one that has mango-box leaves the container as it was made
            self.assertEqual(d.call("attach", self.box, label())["identity"], self.made["identity"])
            self.assertEqual(d.ok("read", self.box, "kept", 0, 100)["content"], "content")
            wait_for("the old command's end", lambda: not host_processes("7315.25"), 10)
            self.assertEqual(d.out(self.box, "ls -A | grep -v '^kept$'; true"), "")
            d.ok("destroy", self.box)

    def test_a_container_that_stopped_is_started_again(self):
        self.d.ok("write", self.box, "kept", "content")
        docker("kill", "mango-" + self.box)
        self.assertEqual(self.d.out(self.box, "cat kept"), "content")
        docker("rm", "-f", "mango-" + self.box)
        self.assertEqual(self.d.call("exec", self.box, 10000, 0, "true", "")["status"], -2)

    def test_a_pause_is_told_and_a_snapshot_begins_another(self):
        self.d.ok("write", self.box, "f", "then")
        self.d.ok("pause", self.box)
        self.assertEqual(self.d.call("exec", self.box, 10000, 0, "true", "")["status"], EINVALID)
        self.d.ok("resume", self.box)
        name, other = self.d.ok("snapshot", self.box)["snapshot"], label()
        self.d.ok("write", self.box, "f", "now")
        self.d.ok("fork", name, other, self.d.owner)
        self.assertEqual(self.d.out(other, "cat f"), "then")
        self.d.ok("destroy", other)
        self.d.ok("unsnapshot", name)

    def test_a_destroy_ends_what_runs(self):
        n = self.d.send("exec", self.box, 60000, 0, "sleep 7316.25", "")
        wait_for("the command", lambda: host_processes("7316.25"))
        self.d.ok("destroy", self.box)
        done = self.d.wait(n, 20)
        self.assertTrue(done["status"] == -2 or done["unknown"], done)

    def test_paths_out_of_the_workspace_are_refused(self):
        self.d.sh(self.box, "ln -s /etc out; ln -s /etc/passwd file")
        for path in ("out/passwd", "file", "../x", "/etc/passwd"):
            self.assertEqual(self.d.call("read", self.box, path, 0, 100)["status"], EDENIED, path)
            self.assertEqual(self.d.call("write", self.box, path, "x")["status"], EDENIED, path)


    def test_input_and_output_go_both_ways_at_once(self):
        given = "".join(f"line {i} of what goes in\n" for i in range(20000))
        self.assertEqual(self.d.sh(self.box, "cat", stdin=given)["out"], given)
        self.assertEqual(self.d.sh(self.box, "exit 6", stdin=given)["code"], 6)
        self.assertEqual(self.d.sh(self.box, "head -c 4; cat >/dev/null", stdin=given)["out"], "line")


class CutStream(unittest.TestCase):
    def test_case_57_a_command_whose_stream_is_cut_is_never_started_again(self):
        for runner in ("box", "exec"):
            box, wire = label(), Wire(f"/tmp/mango-wire.{os.getpid()}")
            self.addCleanup(lambda b=box: subprocess.run(["docker", "rm", "-f", "mango-" + b], capture_output=True, check=False))
            try:
                with Driver("docker", {"MANGO_DOCKER_RUNNER": runner, "MANGO_DOCKER_HOST": "unix://" + wire.path}) as d:
                    d.create(box)
                    n = d.send("exec", box, 60000, 0, "echo started >>counter; echo half; sleep 7318.25; echo whole", "")
                    wait_for("the command", lambda: host_processes("7318.25"))
                    wire.cut()
                    done = d.wait(n, 30)
                    self.assertTrue(done["unknown"] and not done["exited"], done)
                    self.assertNotIn("whole", done["out"])
                    wait_for(f"its end with {runner}", lambda: not host_processes("7318.25"), 15)
                    wait_for("the next command", lambda b=box, d=d: d.call("exec", b, 20000, 0, "true", "")["code"] == 0, 30)
                    self.assertEqual(d.out(box, "cat counter"), "started")
                    d.ok("destroy", box)
            finally:
                wire.close()


class WhoRuns(unittest.TestCase):
    def test_a_setting_that_is_none_is_told(self):
        with self.assertRaises(AssertionError) as e:
            Driver("docker", {"MANGO_DOCKER_RUNNER": "never"})
        self.assertIn("auto, box or exec", str(e.exception))

    def with_box(self, content, runner, box):
        with tempfile.NamedTemporaryFile(prefix="mango-box.") as f:
            f.write(content)
            f.flush()
            with Driver("docker", {"MANGO_DOCKER_BOX": f.name, "MANGO_DOCKER_RUNNER": runner}) as d:
                done = d.call("create", box, d.owner, "none", 0, 0, 0, 0)
                if done["status"] == OK:
                    self.assertEqual(d.out(box, "echo by the Engine"), "by the Engine")
                d.ok("destroy", box)
                return done

    def test_a_mango_box_that_cannot_run_is_done_without(self):
        for content in (arm64_program(), b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\x00" + bytes(100), b"no program"):
            box = label()
            self.assertEqual(self.with_box(content, "auto", box)["status"], OK)
            done = self.with_box(content, "box", box)
            self.assertLess(done["status"], 0)
            self.assertIn("MANGO_DOCKER_RUNNER", done["error"])
            self.assertEqual([n for n in left() if box in n], [])


class Foreign(unittest.TestCase):
    """An image for linux/arm64 on an Engine of another kind."""

    @classmethod
    def setUpClass(cls):
        if docker("version", "-f", "{{.Server.Arch}}") == ["arm64"]:
            raise unittest.SkipTest("arm64 is this machine's own")
        load_image("mango-test:arm64", arm64_program())

    def test_without_an_emulator_the_refusal_says_what_to_do(self):
        for runner in ("auto", "exec"):
            box = label()
            with Driver("docker", {"MANGO_DOCKER_IMAGE": "mango-test:arm64", "MANGO_DOCKER_RUNNER": runner}) as d:
                done = d.call("create", box, d.owner, "none", 0, 0, 0, 0)
                self.assertEqual(done["status"], EUNSUPPORTED, done)
                for word in ("mango-test:arm64", "linux/arm64", "linux/" + docker("version", "-f", "{{.Server.Arch}}")[0], "qemu-user-static"):
                    self.assertIn(word, done["error"])
                self.assertEqual([n for n in left() if box in n], [], "nothing is left of it")

    @unittest.skipUnless(BUSYBOX and OWN and os.path.exists(EMULATOR), "no emulator is tried: MANGO_TEST_ARM64_BUSYBOX or qemu-user-static is missing")
    def test_with_an_emulator_it_runs(self):
        with open(BUSYBOX, "rb") as f:
            load_image("mango-test:arm64-busybox", f.read())
        with tempfile.TemporaryDirectory() as mnt:
            subprocess.run(["mount", "-t", "binfmt_misc", "none", mnt], check=True)
            name = f"mango-test-{os.getpid()}"
            try:
                with open(EMULATOR, "rb") as f, open(os.path.join(mnt, "register"), "wb") as to:
                    to.write(f.read().strip().replace(b":qemu-aarch64:", b":" + name.encode() + b":"))
                self.run_foreign()
            finally:
                with open(os.path.join(mnt, name), "wb") as f:
                    f.write(b"-1")
                subprocess.run(["umount", mnt], check=True)

    def run_foreign(self):
        for runner in ("auto", "exec"):
            box = label()
            with Driver("docker", {"MANGO_DOCKER_IMAGE": "mango-test:arm64-busybox", "MANGO_DOCKER_RUNNER": runner}) as d:
                d.create(box)
                self.assertEqual(d.out(box, "uname -m; id -u"), "aarch64\n10001")
                d.ok("write", box, "a/f", "content")
                self.assertEqual(d.ok("read", box, "a/f", 2, 3)["content"], "nte")
                self.assertEqual(d.ok("stat", box, "a/f", 0)["size"], 7)
                self.assertEqual(d.sh(box, "exit 7")["code"], 7)
                start = time.monotonic()
                done = d.sh(box, "/bin/sleep 7317", limit_ms=1500)
                self.assertTrue(done["timed_out"], done)
                self.assertLess(time.monotonic() - start, 20)
                wait_for("its end", lambda: not host_processes("7317"), 10)
                d.ok("destroy", box)


if __name__ == "__main__":
    main()
