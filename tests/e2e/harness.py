"""Starts what an end-to-end test needs: mangod (or mangod-test, whose hooks can kill it at a named point), a database, a fake model.

    with Mangod() as m:              # a database of its own on the server of MANGO_TEST_DATABASE_URL
        session = m.client.new_session()
    with Mangod(database=None):      # the embedded database
    with Database() as db, Mangod(database=db) as a, Mangod(database=db) as b:   # two replicas

Processes are killed and folders removed at the end of the `with`, whatever happened; a failed test prints the server's log.
Waits have deadlines; nothing is asserted by a sleep.
"""
import functools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from api import Client  # noqa: E402

SRC = os.environ.get("MANGO_TEST_SRCDIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("MANGO_TEST_BUILDDIR") or os.path.join(SRC, "build")
START_S = 60  # seconds from start to ready: initdb on a loaded machine with sanitizers
STOP_S = 30
SKIPPED = 77  # automake's exit code


@functools.cache
def sanitizer():
    """Of the build: b"libtsan", b"libasan" or None."""
    with open(os.path.join(BUILD, "mangod"), "rb") as binary:
        text = binary.read()
    return next((name for name in (b"libtsan", b"libasan") if name in text), None)


def wait_for(what, test, timeout=30, every=0.02):
    """Waits until test() gives something true and returns it; fails after the deadline and says what was missing."""
    timeout *= 4 if sanitizer() else 1  # so much slower the instrumented code is
    deadline = time.monotonic() + timeout
    while True:
        value = test()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(every)


PORTS = range(10000, 32768)  # below the kernel's ephemeral ports: no client socket of another test can take one that a server left


def free_port():
    """A port that nobody listens on now. Another test may still take it before we do: Mangod.start looks whose it is."""
    for _ in range(100):
        port = PORTS[secrets.randbelow(len(PORTS))]
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise AssertionError(f"no free port found in {PORTS}")


def listens(pid, port):
    """Whether that very process listens on the port: an answer alone may be a stranger's."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as f:
                rows = [line.split() for line in f][1:]
        except OSError:
            continue
        inodes |= {f"socket:[{r[9]}]" for r in rows if r[3] == "0A" and int(r[1].rsplit(":", 1)[1], 16) == port}
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for fd in descriptors:
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}") in inodes:
                return True
        except OSError:
            pass  # closed in between
    return False


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def main():
    """unittest.main with automake's exit codes."""
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    if result.testsRun and len(result.skipped) == result.testsRun:
        sys.exit(SKIPPED)
    sys.exit(0 if result.wasSuccessful() else 1)


class Database:
    """A new database on the server of MANGO_TEST_DATABASE_URL; mangod brings the schema."""

    def __init__(self):
        self.server = os.environ.get("MANGO_TEST_DATABASE_URL")
        if not self.server:
            raise unittest.SkipTest("MANGO_TEST_DATABASE_URL is not set; run under tests/support/pg-run")
        self.name = "mango_e2e_" + secrets.token_hex(6)
        parts = urllib.parse.urlsplit(self.server)
        self.url = f"{parts.scheme}://{parts.netloc}/{self.name}" + (f"?{parts.query}" if parts.query else "")

    def __enter__(self):
        self._psql(self.server, f"CREATE DATABASE {self.name}")
        return self

    def __exit__(self, *_):
        self._psql(self.server, f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

    @staticmethod
    def _psql(url, sql):
        done = subprocess.run(
            ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise AssertionError(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def query(self, sql):
        """The rows as a list of lists of text."""
        out = self._psql(self.url, sql)
        return [line.split("|") for line in out.split("\n")] if out else []


class Transaction:
    """One of another client, open to its own COMMIT or ROLLBACK, or to the block's end, which gives it up."""

    DONE = "done."

    def __init__(self, database, begin="BEGIN"):
        argv = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database.url]
        self.psql = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.run(begin)

    def run(self, sql):
        """The lines that it gives."""
        self.psql.stdin.write(f"{sql};\n\\echo {self.DONE}\n")
        self.psql.stdin.flush()
        lines = []
        while (line := self.psql.stdout.readline()) != self.DONE + "\n":
            if not line:
                raise AssertionError(f"psql ended in: {sql}")
            lines.append(line.rstrip("\n"))
        return lines

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.psql.kill()
        self.psql.communicate()



class Process:
    """A server of ours with its log in a file."""

    def __init__(self, argv, env, log_path, cwd=None):
        self.log_path = log_path
        self.log_file = open(log_path, "ab")
        self.popen = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=subprocess.STDOUT, start_new_session=True
        )

    @property
    def pid(self):
        return self.popen.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def running(self):
        return self.popen.poll() is None

    def wait(self, timeout=STOP_S):
        return self.popen.wait(timeout)

    def signal(self, number):
        self.popen.send_signal(number)

    def end(self):
        """For cleaning up: never leaves a process, not even of its process group."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait()
        self.log_file.close()


class FakeModel:
    """The scripted Messages endpoint (tests/support/endpoint-script.h). args: its options. record: requests() lists what came."""

    def __init__(self, *args, record=True):
        self.options = [*map(str, args), *([] if record else ["--no-record"])]

    def __enter__(self):
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "tests", "support", "fake-model"), *self.options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        word, port = self.process.stdout.readline().split()
        assert word == "port", word
        self.client = Client(int(port), "unused")
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def requests(self):
        return self.client.get("/requests")

    def stats(self):
        return self.client.get("/stats")

    def refused(self):
        """How many requests broke a rule of the real API (pairing of calls and results, roles, empty text)."""
        return self.client.get("/stats")["refused"]


_OWN = object()


class Mangod:
    """A mangod. database: a Database, None for the embedded one, or left out for a new one of its own."""

    def __init__(self, database=_OWN, hooks=None, env=None, binary=None, sandbox="local", model_url=None, start=True):
        self.own_database = database is _OWN
        self.database = Database() if self.own_database else database
        self.hooks, self.extra, self.sandbox, self.model_url = hooks, dict(env or {}), sandbox, model_url
        name = binary or ("mangod-test" if hooks else "mangod")
        self.binary = os.path.join(BUILD, "tests", name) if name == "mangod-test" else os.path.join(BUILD, name)
        self.key = "mango-" + secrets.token_hex(16)
        self.port = free_port()
        self.client = Client(self.port, self.key)
        self.process = None
        self.start_at_enter = start
        self.runs = 0

    def __enter__(self):
        if not os.access(self.binary, os.X_OK):
            raise AssertionError(f"{self.binary} is not built")
        self.dir = tempfile.mkdtemp(prefix="mango-e2e.", dir="/tmp")
        os.chmod(self.dir, 0o755)  # the embedded database runs as another user where we are root
        if self.own_database:
            self.database.__enter__()
        try:
            if self.start_at_enter:
                self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, *_):
        if self.process:
            if kind and not issubclass(kind, unittest.SkipTest):
                print(f"--- log of {os.path.basename(self.binary)} on port {self.port}, {self.runs} run(s)", file=sys.stderr)
                print("\n".join(self.process.log().split("\n")[-60:]), file=sys.stderr)
            if self.database is None and self.process.running():
                self.process.signal(signal.SIGTERM)  # so that its PostgreSQL ends too
                try:
                    self.process.wait()
                except subprocess.TimeoutExpired:
                    pass
            self.process.end()
        if self.own_database:
            self.database.__exit__()
        shutil.rmtree(self.dir, ignore_errors=True)

    def environment(self):
        out = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": self.dir,
            "TMPDIR": self.dir,
            "LANG": "C.UTF-8",
            "MANGO_LISTEN": f"127.0.0.1:{self.port}",
            "MANGO_STATE_DIR": os.path.join(self.dir, "state"),
            "MANGO_API_KEY": self.key,
            "MANGO_SANDBOX": self.sandbox,
            "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable"),
            "MANGO_MIGRATIONS_DIR": os.path.join(SRC, "migrations"),
            "MANGO_PRICES_FILE": os.path.join(SRC, "conf", "prices.conf"),
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                out[name] = os.environ[name]
        if self.database:
            out["MANGO_DATABASE_URL"] = self.database.url
        if self.model_url:
            out["MANGO_MODEL_BASE_URL"] = self.model_url
            out["MANGO_MODEL_API_KEY"] = "test-key-of-the-model"
            out["MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX"] = "1"
        if self.hooks:
            out["MANGO_TEST_HOOKS"] = self.hooks
        out.update(self.extra)
        return {name: value for name, value in out.items() if value is not None}

    def start(self, wait=True):
        self.runs += 1
        log = os.path.join(self.dir, "mangod.log")
        self.process = Process([self.binary], self.environment(), log)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout=START_S):
        def ready():
            if not self.process.running():
                raise AssertionError(f"mangod ended with status {self.process.popen.returncode}:\n{self.process.log()[-4000:]}")
            if not listens(self.process.pid, self.port):
                return False
            try:
                return self.client.raw("GET", "/readyz", timeout=5)[0] == 200
            except OSError:
                return False

        wait_for(f"mangod answers on port {self.port}", ready, timeout)

    def kill(self):
        """kill -9, as a crash does."""
        self.process.signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout=STOP_S):
        """SIGTERM; returns the exit status."""
        self.process.signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def restart(self, hooks=None):
        self.hooks = hooks
        if self.process.running():
            self.stop()
        self.process.end()
        return self.start()

    def log(self):
        return self.process.log()
