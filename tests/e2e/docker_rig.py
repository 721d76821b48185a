"""What the tests of the sandbox `docker` share: a real Engine, its own command line as the witness, a sandbox to try things in."""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from harness import SRC, wait_for
from sandbox import OK, Driver, host_processes, label


def under_engine(file, **variables):
    """Runs this test again under tests/support/docker-run, unless it does so already."""
    if not os.environ.get("MANGO_TEST_DOCKER"):
        run = os.path.join(SRC, "tests", "support", "docker-run")
        os.execve(run, [run, sys.executable, os.path.abspath(file), *sys.argv[1:]], {**os.environ, **variables})


def docker(*words):
    """What the Engine's own command line says: the witness, beside what is tested."""
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True, timeout=60).stdout.split()


def left():
    """Names of containers and volumes of sandboxes."""
    return docker("ps", "-a", "--filter", "label=io.mango.label", "--format", "{{.Names}}") + docker(
        "volume", "ls", "--filter", "label=io.mango.label", "--format", "{{.Name}}"
    )


OWN = os.environ.get("MANGO_TEST_DOCKER") == "own"


def waits(marker, command="cat {}"):
    """A command that reads a FIFO that nobody writes, until it is killed. The FIFO's name, a number, is how its processes are found."""
    return f"mkfifo {marker} 2>/dev/null; {command.replace('{}', marker)}"


REFUSED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 44\r\n\r\n" + b'{"message":"write: no space left on device"}'


class Wire:
    """A socket between a plugin and the Engine, whose connections can be cut.

    trap: (bytes in the head of a request, what happens to each that has them). "refused": the Engine's words for a full disk; "before": the connection ends and the
    Engine sees nothing of it; "after": it ends instead of the answer; or a function, which is called first, and the request passes."""

    def __init__(self, path):
        self.path, self.pairs, self.trap, self.sprung, self.server = path, [], None, 0, socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
            self.pairs.append((near, far))
            lost = threading.Event()  # what the Engine says from now on
            for a, b, up in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pump, args=(a, b, up, lost), daemon=True).start()

    def _pump(self, a, b, up, lost):
        try:
            while data := a.recv(65536):
                if up and self.trap and self.trap[0] in data:
                    self._spring(a, lost, self.trap[1])
                elif not up and lost.is_set():
                    break
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
            if lost.is_set():
                b.close()
        except OSError:
            pass

    def _spring(self, near, lost, what):
        """Raises where the request ends here."""
        self.sprung += 1
        if callable(what):
            what()
        elif what == "after":
            lost.set()
        else:
            if what == "refused":
                near.sendall(REFUSED)
            near.shutdown(socket.SHUT_RDWR)
            raise OSError(what)

    def cut(self):
        pairs, self.pairs = self.pairs, []  # those of now: the plugin connects again at once
        for pair in pairs:
            for s in pair:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
                s.close()

    def close(self):
        self.server.close()
        self.cut()
        os.unlink(self.path)


def dockerd():
    """The process of the Engine."""

    def pids():
        return [p for p in host_processes(os.environ["DOCKER_HOST"]) if os.path.basename(os.readlink(f"/proc/{p}/exe")) == "dockerd"]

    return wait_for("one dockerd", lambda: (lambda found: found[0] if len(found) == 1 else None)(pids()))


def kill_engine():
    """docker-run starts it again."""
    os.kill(dockerd(), signal.SIGKILL)


def engine_is_back():
    """Answers again; what it still does for a container of before is its own affair."""
    wait_for("the Engine", lambda: subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0, 60, 0.2)


class Boxes(unittest.TestCase):
    """A driver with one sandbox."""

    limits, env = {}, {}

    def setUp(self):
        self.d = Driver("docker", self.env)
        self.addCleanup(self.d.end)
        self.box = label()
        self.addCleanup(lambda: subprocess.run(["docker", "rm", "-f", "mango-" + self.box], capture_output=True, check=False))
        self.made = self.d.create(self.box, **self.limits)
        self.addCleanup(self.end_box)

    def on_a_wire(self):
        """Before setUp: the driver's way to the Engine is self.wire."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="mango-wire.", dir="/tmp"))
        self.wire = Wire(os.path.join(folder, "docker.sock"))
        self.addCleanup(self.wire.close)
        self.env = {"MANGO_DOCKER_HOST": "unix://" + self.wire.path}

    def end_box(self):
        if self.d.process.poll() is None:
            self.d.ok("destroy", self.box)
            self.assertEqual([n for n in left() if self.box in n], [])

    def until_ok(self, *words):
        """Again and again, as the reconciler does it."""
        answers = []

        def done():
            answers.append(self.d.call(*words))
            return answers[-1]["status"] == OK

        try:
            wait_for(words[0], done, 60, 0.2)
        except AssertionError:
            raise AssertionError(f"{words}: {answers[-1]}") from None

    def usable(self, d=None):
        """The sandbox answers and its files are what they were."""
        self.assertEqual((d or self.d).out(self.box, "echo still here"), "still here")

    def usable_again(self, d):
        """A command that meets the takeover may have an unknown end, never a wrong one; the next is answered."""
        wait_for("an answer", lambda: d.sh(self.box, "echo still here")["out"].strip() == "still here")

    def alone(self):
        """Nothing runs in the container but ours."""
        return self.d.out(self.box, "ps -eo args --no-headers | grep -v -e '^/.mango/box' -e '^ps -eo' -e '^/bin/sh -c ps' -e '^grep'; true") == ""
