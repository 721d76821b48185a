"""Drives a sandbox plugin directly: tests/support/drive-sandbox.c."""
import http.server
import json
import os
import secrets
import subprocess
import threading

from harness import BUILD

OK, ERETRY, EGONE, EDENIED, EQUOTA, EINVALID, ECANCELED, ETIMEOUT, EINTERNAL, ENOENT, EUNSUPPORTED = 0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10


def label():
    return secrets.token_hex(16)


def command_lines():
    """(id, words) of each process of this machine but this one; sandboxes are no secret to their host."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
        except OSError:
            continue  # ended in between
        if int(pid) != os.getpid():
            yield int(pid), words


def host_processes(marker):
    """Ids of processes with the marker anywhere in their command line."""
    return [pid for pid, words in command_lines() if any(marker in w for w in words)]


def host_words(marker):
    """Ids of processes with the marker as a word of their command line."""
    return [pid for pid, words in command_lines() if marker in words]


class Hello(http.server.BaseHTTPRequestHandler):
    """A web server outside of the sandboxes."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from outside\n")

    def log_message(self, *_):
        pass


class Driver:
    """One process that has the plugin loaded, as a mangod has it. end() is a kill -9."""

    def __init__(self, name, env=None, prefix=()):
        self.process = subprocess.Popen(
            [*prefix, os.path.join(BUILD, "tests", "support", "drive-sandbox"), os.path.join(BUILD, "plugins", "loadable"), name],
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self.process.stdout.readline() != "ready\n":
            said = self.process.stderr.read()
            self.process.wait()
            for f in (self.process.stdin, self.process.stdout, self.process.stderr):
                f.close()
            raise AssertionError(said)
        self.lock, self.answers, self.n, self.owner = threading.Condition(), {}, 0, label()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def _read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            with self.lock:
                self.answers[answer["n"]] = answer
                self.lock.notify_all()
        with self.lock:
            self.answers[None] = True
            self.lock.notify_all()

    def send(self, *words):
        """Begins a request; its number is for wait()."""
        with self.lock:
            self.n += 1
            n = self.n
            self.process.stdin.write(f"{n} " + " ".join(self._word(w) for w in words) + "\n")
            self.process.stdin.flush()
        return n

    @staticmethod
    def _word(w):
        return "".join(c if c.isalnum() and c.isascii() or c in "_./=," else "".join(f"%{b:02X}" for b in c.encode()) for c in str(w)) or "-"

    def wait(self, n, timeout=120):
        with self.lock:
            if not self.lock.wait_for(lambda: n in self.answers or None in self.answers, timeout):
                raise AssertionError(f"request {n} was not answered within {timeout} s")
            if n not in self.answers:
                raise AssertionError(f"drive-sandbox has ended: {self.process.stderr.read()}")
            return self.answers.pop(n)

    def call(self, *words, timeout=120):
        return self.wait(self.send(*words), timeout)

    def ok(self, *words, timeout=120):
        answer = self.call(*words, timeout=timeout)
        if answer["status"] != OK:
            raise AssertionError(f"{words}: {answer}")
        return answer

    def create(self, box, network="none", memory=0, cpu=0, pids=0, disk=0):
        return self.ok("create", box, self.owner, network, memory, cpu, pids, disk)

    def attach(self, box):
        return self.call("attach", box, self.owner)

    def sh(self, box, script, limit_ms=60000, stdin="", max_output=0):
        return self.ok("exec", box, limit_ms, max_output, script, stdin)

    def out(self, box, script):
        done = self.sh(box, script)
        if done["code"] != 0:
            raise AssertionError(f"{script}: {done}")
        return done["out"].strip()

    def cancel(self, n):
        with self.lock:
            self.process.stdin.write(f"cancel {n}\n")
            self.process.stdin.flush()

    def rss(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) * 1024

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.thread.join(10)
        for f in (self.process.stdin, self.process.stdout, self.process.stderr):
            f.close()
