"""The sandbox `docker` behind a proxy that cuts its connections to the Engine."""
import os
import socket
import tempfile
import threading

from docker_rig import Boxes, under_engine
from harness import main, wait_for
from sandbox import OK

under_engine(__file__)


class Cutter:
    """A socket in front of the Engine's. cut() ends what is open, without a word."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mango-cut.", dir="/tmp")
        self.path = os.path.join(self.folder.name, "docker.sock")
        self.engine = os.environ["DOCKER_HOST"].removeprefix("unix://")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.lock, self.open = threading.Lock(), []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.engine)
            with self.lock:
                self.open += [client, server]
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

    @staticmethod
    def copy(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        with self.lock:
            for s in self.open:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                s.close()
            self.open.clear()

    def close(self):
        self.listener.close()
        self.cut()
        self.folder.cleanup()


class Cut(Boxes):
    def setUp(self):
        self.cutter = Cutter()
        self.addCleanup(self.cutter.close)
        self.env = {"MANGO_DOCKER_HOST": "unix://" + self.cutter.path}
        super().setUp()

    def test_case_57_a_cut_stream_is_no_success_and_nothing_starts_twice(self):
        n = self.d.send("exec", self.box, 60000, 0, "echo started >>count; sleep 3; echo ended >>count; echo whole", "")
        wait_for("the command", lambda: self.d.call("read", self.box, "count", 0, 100).get("content") == "started\n")
        self.cutter.cut()
        done = self.d.wait(n)
        if done["status"] == OK and not done["unknown"]:  # the stream was taken up again
            self.assertEqual((done["exited"], done["code"], done["out"]), (True, 0, "whole\n"), done)
        else:
            self.assertFalse(done["exited"], done)
        self.until_ok("exec", self.box, 30000, 0, "true", "")
        self.assertEqual(self.d.out(self.box, "grep -c started count"), "1")

    def test_case_47_the_end_of_a_stream_is_never_success(self):
        for script in ("echo half; sleep 30", "exec sleep 30", "sleep 30 | cat"):
            n = self.d.send("exec", self.box, 60000, 0, f"touch begun; {script}", "")
            wait_for("the command", lambda: self.d.call("stat", self.box, "begun", 0)["status"] == OK)
            self.cutter.cut()
            done = self.d.wait(n)
            self.assertFalse(done["status"] == OK and done["exited"] and done["code"] == 0, (script, done))
            self.until_ok("exec", self.box, 30000, 0, "rm -f begun", "")


if __name__ == "__main__":
    main()
