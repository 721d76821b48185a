"""What the field-case tests share: two replicas, a database proxy that can go deaf, readers that cut and resume, a namespace with a broken path."""
import contextlib
import ctypes
import glob
import http.client
import http.server
import os
import random
import re
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse

from api import ApiError
from harness import STOP_S, Database, Mangod, sanitizer
from ws import Closed, WebSocket

SMALL_POOL = {"MANGO_REQUEST_THREADS": "4", "MANGO_ENGINE_THREADS": "4"}
POOL_MAX = 4 + 4 + 7  # database connections of such a replica: docs/operating.md


FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None)


def needs_fake_clocks(test):
    test = unittest.skipIf(sanitizer(), "libfaketime takes calls from the sanitizer: ThreadSanitizer reports a double lock, AddressSanitizer must be the first library")(test)
    return unittest.skipUnless(FAKETIME, "libfaketime is not installed (Debian: apt-get install faketime)")(test)


class FakeClock:
    """The wall clock of a server: env of its Mangod. set("+1h") makes it jump, at once."""

    def __init__(self, case, offset="+0"):
        self.path = os.path.join("/tmp", "mango-e2e-clock." + secrets.token_hex(6))
        self.set(offset)
        case.addCleanup(os.remove, self.path)
        self.env = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": self.path, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}

    def set(self, offset):
        with open(self.path, "w", encoding="ascii") as f:
            f.write(offset)


def behind(proxies):
    """A replica whose database is behind a PgProxy, which is appended to the list; for replicas()."""

    def own(db):
        proxies.append(PgProxy(db).start())
        return {"env": {"MANGO_DATABASE_URL": proxies[-1].url, **SMALL_POOL}}

    return own


@contextlib.contextmanager
def replicas(*each, **options):
    """(database, [Mangod...]) with one key. Each replica: a function of the database that gives its own options, or none for two of a kind."""
    with contextlib.ExitStack() as stack:
        db = stack.enter_context(Database())
        nodes = [Mangod(database=db, **{**options, **own(db)}) for own in each or (lambda _: {},) * 2]
        for node in nodes:
            node.key = node.client.key = nodes[0].key
            stack.enter_context(node)
        yield db, nodes


def metrics(client):
    """name -> sum of its samples."""
    out = {}
    status, _, text = client.raw("GET", "/metrics")
    assert status == 200, status
    for line in text.decode().splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            out[name] = out.get(name, 0) + float(value)
    return out


def rss(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def sanitized(pid):
    """Whether the process runs under a sanitizer, whose quarantine keeps what was freed: its memory says nothing then."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        maps = f.read()
    return "libasan" in maps or "libtsan" in maps


def mark(client, session_id, n=1):
    """n stored events and no turn: interrupts of an idle session."""
    return client.post(f"/v1/sessions/{session_id}/events", {"events": [{"type": "user.interrupt"}] * n})


def fill(db, session_id, n, size):
    """n events of about size bytes behind the API's back; returns their ids in order."""
    db.query(
        "INSERT INTO events (session_id, seq, id, type, body, processed_at) SELECT '%s', st.last_seq + i, 'sevt_fill' || lpad(i::text, 24, '0'),"
        " 'agent.message', '{\"id\":\"sevt_fill' || lpad(i::text, 24, '0') || '\",\"type\":\"agent.message\",\"content\":[{\"type\":\"text\",\"text\":\"'"
        " || repeat('x', %d) || '\"}]}', now() FROM session_state st, generate_series(1, %d) i WHERE st.session_id = '%s'"
        % (session_id, size, n, session_id)
    )
    db.query(f"UPDATE session_state SET last_seq = last_seq + {n} WHERE session_id = '{session_id}'")
    return ["sevt_fill%024d" % i for i in range(1, n + 1)]


def ids_of(client, session_id):
    return [e["id"] for e in client.events(session_id)]


# ---- servers that the tested one calls ----


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients that hang up, or are killed, are part of the tests."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(*_)


class HttpPeer:
    """An HTTP server of a test, on a free port of this host within the with block. Its handlers find it as self.server.peer."""

    handler = None

    def __enter__(self):
        self.server = QuietServer(("127.0.0.1", 0), self.handler)
        self.server.peer = self
        self.base = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


# ---- crashes ----


def killed(mangod, point, act, timeout=STOP_S):
    """act() ends the server at a hook; it is there again afterwards, without hooks."""
    try:
        act()
    except (OSError, ApiError):
        pass  # the answer was lost with the process
    status = mangod.process.wait(timeout)
    assert status == -signal.SIGKILL, f"{point} was never passed: the server ended with status {status}"
    mangod.process.end()
    mangod.hooks = None
    mangod.start()


def add_boundaries(case, points):
    """A test of the class for each (hook, how many times it is passed until the kill): case.one_boundary does it."""

    def add(point, nth):
        def test(self):
            self.one_boundary(point, nth)

        test.__name__ = f"test_kill_at_{point.replace('.', '_')}_{nth}"
        setattr(case, test.__name__, test)

    for point, nth in points:
        add(point, nth)


def words_of(path):
    """What commands wrote into a file so far."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return f.read().split()


def processes():
    """The command lines of all processes of this machine, one a line."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                out.append(f.read().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            pass  # ended in between
    return "\n".join(out)


# ---- readers ----


class SseSocket:
    """Ids of a raw SSE stream: quick, and it can be cut at any byte."""

    def __init__(self, client, session_id, after=None, timeout=60, rcvbuf=0, port=None):
        self.sock = socket.socket()
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(timeout)
        self.sock.connect((client.host, port or client.port))
        resume = f"Last-Event-ID: {after}\r\n" if after else ""
        self.sock.sendall(
            f"GET /v1/sessions/{session_id}/events/stream HTTP/1.1\r\nHost: x\r\nx-api-key: {client.key}\r\n{resume}\r\n".encode()
        )
        self.file = self.sock.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline().strip():
            pass

    def next_id(self):
        """The id of the next stored event; None at the end."""
        for line in self.file:
            if line.startswith(b"id: "):
                ident = line[4:].strip().decode()
                while self.file.readline().strip():  # an event counts when it is whole
                    pass
                return ident
        return None

    def close(self):
        self.file.close()
        self.sock.close()


class WsSocket:
    def __init__(self, client, session_id, after=None, timeout=60):
        query = f"?after={after}" if after else ""
        self.ws = WebSocket(client.host, client.port, f"/v1/sessions/{session_id}/events/ws{query}", client.headers(), timeout=timeout)

    def next_id(self):
        try:
            return re.search(r'"id":"([^"]+)"', self.ws.receive()).group(1)
        except Closed:
            return None

    def close(self):
        self.ws.abort()


class CuttingReader(threading.Thread):
    """Collects `total` ids; cuts its connection at random and resumes at another replica."""

    def __init__(self, kind, clients, session_id, seed, every, total):
        super().__init__(daemon=True)
        self.kind, self.clients, self.session_id, self.random, self.every = kind, clients, session_id, random.Random(seed), every
        self.total = total
        self.ids, self.cuts, self.error = [], 0, None

    def run(self):
        try:
            while len(self.ids) < self.total:
                self.one_connection()
        except BaseException as e:
            self.error = e

    def one_connection(self):
        stream = self.kind(self.clients[self.cuts % len(self.clients)], self.session_id, self.ids[-1] if self.ids else "start")
        try:
            for _ in range(self.random.randint(1, self.every)):
                ident = stream.next_id()
                if ident is None:
                    return
                self.ids.append(ident)
                if len(self.ids) == self.total:
                    return
        finally:
            self.cuts += 1
            stream.close()

    def result(self, timeout=60):
        self.join(timeout)
        if self.error:
            raise self.error
        if self.is_alive():
            raise AssertionError(f"{self.kind.__name__}: {len(self.ids)} of {self.total} events after {timeout} s")
        return self.ids


class SlowReaders(threading.Thread):
    """Takes up to `rate` bytes a second from each of its sockets, on one thread; one that the machine holds up takes what is due."""

    def __init__(self, socks, rate):
        super().__init__(daemon=True)
        self.socks, self.rate, self.stopped, self.closed = list(socks), rate, threading.Event(), 0

    def run(self):
        last = time.monotonic()
        while not self.stopped.wait(1.0):
            last, due = time.monotonic(), int(self.rate * max(1.0, time.monotonic() - last))
            for s in list(self.socks):
                try:
                    s.settimeout(0)
                    if s.recv(due) == b"":
                        raise ConnectionError
                except BlockingIOError:
                    pass
                except OSError:
                    self.closed += 1
                    self.socks.remove(s)

    def end(self):
        self.stopped.set()
        self.join()
        for s in self.socks:
            s.close()


# ---- a database behind a path that can break ----


class Pipe:
    def __init__(self, client, server):
        self.client, self.server, self.deaf, self.head = client, server, False, b""


class PgProxy:
    """TCP in front of the test cluster's unix socket. deaf(): bytes of all or some connections vanish in both directions, as on a path that drops;
    new connections are accepted and hear nothing. cut(): all connections are reset."""

    def __init__(self, db):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(db.url).query)
        host, port = query["host"][0], query.get("port", ["5432"])[0]
        if not host.startswith("/"):
            raise unittest.SkipTest("the proxy needs a cluster on a unix socket")
        self.target = f"{host}/.s.PGSQL.{port}"
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self.listener.getsockname()[1]
        self.url = f"postgresql://{query['user'][0]}@127.0.0.1:{self.port}/{db.name}?sslmode=disable"
        self.lock, self.pipes, self.all_deaf, self.ended, self.accepted = threading.Lock(), [], False, False, 0
        self.selector = selectors.DefaultSelector()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        return self

    def start(self):
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()
        self.cut()
        self.listener.close()

    def _run(self):
        while not self.ended:
            for key, _ in self.selector.select(0.05):
                if key.data is None:
                    self._accept()
                else:
                    self._copy(key.fileobj, key.data)

    def _accept(self):
        client, _ = self.listener.accept()
        self.accepted += 1
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self.target)
        except OSError:
            client.close()
            server.close()
            return
        pipe = Pipe(client, server)
        with self.lock:
            pipe.deaf = self.all_deaf
            self.pipes.append(pipe)
        self.selector.register(client, selectors.EVENT_READ, pipe)
        self.selector.register(server, selectors.EVENT_READ, pipe)

    def _copy(self, source, pipe):
        try:
            data = source.recv(65536)
            if data and pipe.deaf:
                return  # swallowed
            if data:
                if source is pipe.client and len(pipe.head) < 65536:
                    pipe.head += data
                (pipe.server if source is pipe.client else pipe.client).sendall(data)
                return
        except OSError:
            pass
        if pipe.deaf and source is pipe.server:
            self.selector.unregister(source)  # the client hears nothing of it
        else:
            self._drop(pipe)

    def _drop(self, pipe):
        with self.lock:
            if pipe in self.pipes:
                self.pipes.remove(pipe)
        for s in (pipe.client, pipe.server):
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(s)
            s.close()

    def deaf(self, test=None):
        """Without a test all connections, later ones too; else those of whose first bytes it is true. Returns how many."""
        with self.lock:
            hit = [p for p in self.pipes if test is None or test(p.head)]
            for p in hit:
                p.deaf = True
            self.all_deaf = self.all_deaf or test is None
        return len(hit)

    def hear(self):
        """The path works again for new connections; those that lost bytes stay dead, as a NAT's do."""
        with self.lock:
            self.all_deaf = False

    def cut(self):
        with self.lock:
            pipes, self.pipes = self.pipes, []
        for p in pipes:
            for s in (p.client, p.server):
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)


# ---- a client behind a path that can break ----


class Namespace:
    """A network namespace with one path to this one; drop() makes the path lose every packet."""

    CLONE_NEWNET = 0x40000000

    def __enter__(self):
        tag = secrets.token_hex(3)
        self.name, self.outer, self.inner = f"mango-{tag}", f"mgo{tag}", f"mgi{tag}"
        net = random.randrange(256)
        self.address, peer = f"169.254.{net}.1", f"169.254.{net}.2"
        self.peer = peer
        try:
            self._ip("netns", "add", self.name)
        except (OSError, subprocess.CalledProcessError) as e:
            raise unittest.SkipTest("no network namespace can be made here (root and ip are needed)") from e
        try:
            self._ip("link", "add", self.outer, "type", "veth", "peer", "name", self.inner, "netns", self.name)
            self._ip("addr", "add", f"{self.address}/30", "dev", self.outer)
            self._ip("link", "set", self.outer, "up")
            self._ip("-n", self.name, "addr", "add", f"{peer}/30", "dev", self.inner)
            self._ip("-n", self.name, "link", "set", self.inner, "address", "02:00:00:00:00:02", "up")
            self._ip("neigh", "replace", peer, "lladdr", "02:00:00:00:00:02", "dev", self.outer, "nud", "permanent")
        except subprocess.CalledProcessError as e:
            self.__exit__()
            raise unittest.SkipTest(f"no veth pair can be made here: {e.stderr.decode().strip()}") from e
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)

    @staticmethod
    def _ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def inside(self, function):
        """Runs function in the namespace, on a thread of its own; sockets that it makes stay there."""
        out, libc = {}, ctypes.CDLL(None, use_errno=True)

        def run():
            try:
                with open(f"/run/netns/{self.name}", "rb") as f:
                    if libc.setns(f.fileno(), self.CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
                out["value"] = function()
            except BaseException as e:
                out["error"] = e

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if "error" in out:
            raise out["error"]
        return out["value"]

    def drop(self):
        """The client's address is gone: what the server sends reaches an interface that takes nothing, and no answer, not even a reset, comes back."""
        self._ip("-n", self.name, "addr", "del", f"{self.peer}/30", "dev", self.inner)


def http_ok(client):
    """True when the server is ready."""
    try:
        return client.raw("GET", "/readyz", timeout=10)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def now():
    return time.monotonic()
