"""mango-worker supervise with the launcher `docker` on a real Engine, which tests/support/docker-run starts. The image of the boxes holds busybox and
nothing else: the worker comes with its own loader and libraries."""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

from docker_rig import OWN, docker, dockerd, under_engine

under_engine(__file__)

from harness import BUILD, SRC, main, wait_for  # noqa: E402
from launcher_rig import Launchers, memory  # noqa: E402
from worker_rig import GATE, bash  # noqa: E402

IMAGE = "mango-test:busybox"
RELAY = """
import socket, sys, threading
def pump(a, b):
    try:
        while (d := a.recv(65536)):
            b.sendall(d)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", int(sys.argv[1])))
l.listen(64)
print("ready", flush=True)
while True:
    c, _ = l.accept()
    u = socket.socket(socket.AF_UNIX)
    u.connect(sys.argv[2])
    for a, b in ((c, u), (u, c)):
        threading.Thread(target=pump, args=(a, b), daemon=True).start()
"""


def import_image():
    """busybox by all its names, and the folders that an image has."""
    with tempfile.TemporaryDirectory() as root:
        for name in ("bin", "etc", "tmp", "proc", "sys", "dev", "usr/bin"):
            os.makedirs(os.path.join(root, name))
        shutil.copy(shutil.which("busybox"), os.path.join(root, "bin", "busybox"))
        for name in subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True).stdout.split():
            path = os.path.join(root, "bin", name)
            if not os.path.lexists(path):
                os.symlink("busybox", path)
        with open(os.path.join(root, "etc", "passwd"), "w", encoding="ascii") as f:
            f.write("root:x:0:0:root:/root:/bin/sh\n")
        tar = subprocess.run(["tar", "-C", root, "--owner=0", "--group=0", "-cf", "-", "."], check=True, capture_output=True).stdout
        subprocess.run(["docker", "import", "-", IMAGE], input=tar, check=True, capture_output=True, timeout=60)


class Relay:
    """The Engine of the tests has a network of its own: its boxes reach mangod through a socket in its folder."""

    def __init__(self, port):
        self.path = os.path.join(os.environ["MANGO_TEST_DOCKER_DIR"], f"relay-{port}")
        self.port = port
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()
        self.inner = subprocess.Popen(["nsenter", "-n", "-t", str(dockerd()), sys.executable, "-c", RELAY, str(port), self.path], stdout=subprocess.PIPE, text=True)
        assert self.inner.stdout.readline().strip() == "ready"

    def accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.join, args=(c,), daemon=True).start()

    def join(self, inside):
        try:
            outside = socket.create_connection(("127.0.0.1", self.port), 5)
        except OSError:
            inside.close()
            return

        def pump(a, b):
            try:
                while data := a.recv(65536):
                    b.sendall(data)
            except OSError:
                pass
            for s in (a, b):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        with inside, outside:
            back = threading.Thread(target=pump, args=(inside, outside), daemon=True)
            back.start()
            pump(outside, inside)
            back.join()

    def close(self):
        self.inner.kill()
        self.inner.wait()
        self.inner.stdout.close()
        self.listener.close()
        os.unlink(self.path)


class DockerLauncher(Launchers.Case):
    LAUNCHER = "docker"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bundle = os.path.join(cls.server.dir, "bundle.tar.gz")
        subprocess.run(
            [os.path.join(SRC, "core", "worker", "runner-bundle"), os.path.join(BUILD, "mango-worker"), os.path.join(BUILD, "plugins", "local", "mango-local-runner"), cls.bundle],
            check=True,
            capture_output=True,
        )
        import_image()
        if OWN:
            relay = Relay(cls.server.port)
            cls.addClassCleanup(relay.close)

    def reach(self, port):
        if OWN:
            self.addCleanup(Relay(port).close)

    def settings(self):
        return {
            "DOCKER_HOST": os.environ["DOCKER_HOST"],
            "MANGO_DOCKER_NETWORK": "host",
            "MANGO_DOCKER_WORKER": self.bundle,
            "MANGO_BOX_IMAGE": IMAGE,
        }

    def containers(self):
        """(Id, name, process id) of each box that runs."""
        out = []
        for box in docker("ps", "--no-trunc", "--filter", "label=io.mango.kind=work", "--format", "{{.ID}}"):
            try:
                name, pid = docker("inspect", "--format", "{{.Name}} {{.State.Pid}}", box)
            except subprocess.CalledProcessError:
                continue  # gone in between
            out.append((box, name, int(pid)))
        return out

    def boxes(self):
        out = {}
        for box, name, _ in self.containers():
            out.setdefault(name, []).append(box)
        return out

    def workspaces(self):
        """As the Engine sees them: its mounts are its own."""
        names = docker("volume", "ls", "--filter", "name=mango-work-", "--format", "{{.Name}}")
        root = f"/proc/{dockerd()}/root"
        return [root + docker("volume", "inspect", "--format", "{{.Mountpoint}}", n)[0] for n in names]

    def the_box(self):
        return wait_for("one box", lambda: (lambda c: c if len(c) == 1 else None)(self.containers()))[0]

    def kill_box(self):
        docker("kill", self.the_box()[0])

    def stop_box(self):
        box, _, _ = self.the_box()
        docker("kill", "-s", "STOP", box)
        return lambda: subprocess.run(["docker", "kill", "-s", "CONT", box], capture_output=True, check=False)

    def host_pids(self, box):
        """Processes of the container as this machine counts them."""
        out = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cgroup", encoding="ascii") as f:
                    if box in f.read():
                        out.append(int(pid))
            except OSError:
                pass
        return out

    def look_into(self, pid, key):
        for what in ("environ", "cmdline"):
            with open(f"/proc/{pid}/{what}", "rb") as f:
                self.assertNotIn(key, f.read(), what)
        self.assertNotIn(key, memory(pid), f"memory of {pid}")

    def look_for_key(self):
        box, _, _ = self.the_box()
        key = self.key
        self.assertNotIn(key, " ".join(docker("inspect", box)))
        pids = self.host_pids(box)
        self.assertGreaterEqual(len(pids), 3, "the worker, its runner, the shell")
        for pid in pids:
            self.look_into(pid, key.encode())
        # Every file of the box: its root, its volume, its memory file systems.
        done = subprocess.run(["grep", "-rlFI", key, *(f"/proc/{pids[0]}/root/{d}" for d in ("workspace", "tmp", "run", "var", "etc", ".mango"))], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "")

    def clean(self):
        for box in docker("ps", "-aq", "--filter", "label=io.mango.kind=work"):
            subprocess.run(["docker", "rm", "-f", box], capture_output=True, check=False)
        for name in docker("volume", "ls", "--filter", "name=mango-work-", "--format", "{{.Name}}"):
            subprocess.run(["docker", "volume", "rm", "-f", name], capture_output=True, check=False)

    # ---- what only containers have ----

    def test_it_passes_the_conformance_suite(self):
        env = {**os.environ, "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable"), **self.settings(), "MANGO_DOCKER_IMAGE": IMAGE}
        done = subprocess.run([os.path.join(BUILD, "mango"), "conformance", "docker", "--launcher"], env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("\n1..9\n", done.stdout)
        self.assertEqual(self.workspaces(), [])

    def test_a_box_is_held(self):
        self.supervise()
        s = self.new()
        self.say(s, bash(f"id -u; touch /x 2>&1; grep CapEff /proc/self/status; {GATE}"), "---", "text done")
        self.started(s, "begun")
        box, _, _ = self.the_box()
        show = lambda form: docker("inspect", "--format", form, box)[0]  # noqa: E731
        self.assertEqual(show("{{.HostConfig.ReadonlyRootfs}}"), "true")
        self.assertEqual(show("{{.HostConfig.CapDrop}}"), "[ALL]")
        self.assertEqual(show("{{.HostConfig.Memory}}"), "1073741824")
        self.assertEqual(show("{{.HostConfig.PidsLimit}}"), "256")
        self.assertEqual(show("{{.HostConfig.NanoCpus}}"), "1000000000")
        self.assertIn("no-new-privileges:true", show("{{.HostConfig.SecurityOpt}}"))
        self.assertEqual(len(docker("inspect", "--format", "{{range .Mounts}}{{.Name}} {{end}}", box)), 1)
        self.pass_gate()
        out = self.results(self.wait_end(s))[0][0]
        self.assertIn("10001", out)
        self.assertIn("Read-only file system", out)
        self.assertIn("CapEff:\t0000000000000000", out)

    def test_the_image_has_no_libc(self):
        self.supervise()
        s = self.new()
        out = self.results(self.turn(s, 'tool bash {"command":"ls /lib /lib64 2>&1; ls /bin | wc -l; cat /proc/1/environ 2>&1; cat /proc/1/mem 2>&1 | head -c 1; echo $0"}', "---", "text done"))[0][0]
        self.assertIn("/lib: No such file", out)
        self.assertIn("'/proc/1/environ': Permission denied", out)
        self.assertNotIn("ANTHROPIC", out)

    def test_case_61_orphans_leave_no_zombies(self):
        self.supervise()
        s = self.new()
        made = "i=0; while [ $i -lt 300 ]; do (sleep 0.01 &); i=$((i+1)); done"
        seen = "n=99; while [ $n -ge 10 ]; do n=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '); done; echo zombies: $n"
        self.assertIn("zombies: ", self.results(self.turn(s, bash(f"{made}; {seen}"), "---", "text done"))[0][0])

    def test_a_box_that_is_gone_leaves_its_volume_alone(self):
        w = self.supervise()
        s = self.new()
        self.turn(s, 'tool bash {"command":"true"}', "---", "text done")
        self.wait_left(s)
        self.wait_no_box()
        self.assertEqual(docker("ps", "-aq", "--filter", "label=io.mango.kind=work"), [])
        self.assertEqual(len(self.workspaces()), 1, "the workspace stays for the next item")
        self.assertEqual(w.end(), 0)
        self.assertEqual(self.supervise("--forget", s).process.wait(60), 0)
        self.assertEqual(self.workspaces(), [])


if __name__ == "__main__":
    main()
