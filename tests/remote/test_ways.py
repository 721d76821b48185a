"""The ways to a service, by the variables of each of the four backends: IPv6, certificates of one's own, proxies of HTTP and SOCKS that are given the service's name; a
service whose clock is an hour off, and one whose TLS is slow or never comes. And what is told of the keys when a service tells all that it was told."""
import concurrent.futures
import contextlib
import email.utils
import http.server
import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from rig import WORK
from harness import Mangod, main, wait_for
from sandbox import ERETRY, ETIMEOUT, OK, Driver, label

NAME = "service.invalid"  # resolved by nobody but the proxies here
KEY = "key-of-the-ways-3d1f"
BUSY_S = 2  # a service asks to be left alone for so long
PIECE_S = 0.1  # between two pieces of a slow handshake
# backend -> address of its API at a host, other settings, prefix of the settings of the way
BACKENDS = {
    "e2b": ("E2B_API_URL", "https://%s", {"E2B_API_KEY": KEY}, "E2B"),
    "cube": ("CUBE_API_URL", "https://%s", {"CUBE_API_KEY": KEY, "CUBE_TEMPLATE_ID": "base"}, "CUBE_HTTP"),
    "opensandbox": ("OPEN_SANDBOX_DOMAIN", "https://%s", {"OPEN_SANDBOX_API_KEY": KEY}, "OPEN_SANDBOX"),
    "daytona": ("DAYTONA_API_URL", "https://%s/api", {"DAYTONA_API_KEY": KEY}, "DAYTONA"),
}


class Service(http.server.BaseHTTPRequestHandler):
    """Answers as each API does when it is asked for its health."""

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate((timestamp or time.time()) + self.server.skew_s, usegmt=True)

    def busy(self):
        """Once for each that asks: too much now; again at a time of this clock."""
        asks = self.headers.get("Authorization"), self.path
        if self.server.busy is None or asks in self.server.busy:
            return False
        self.server.busy.add(asks)
        self.send_response(429)
        self.send_header("Retry-After", self.date_time_string(time.time() + BUSY_S))
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def do_GET(self):
        self.server.seen.append((self.path, str(self.headers)))
        if self.server.indiscreet:
            self.tell_all()
            return
        if self.busy():
            return
        status, text = 200, b"[]"
        if self.path.startswith("/v1/sandboxes?"):
            text = b'{"items":[],"pagination":{"page":1,"pageSize":100,"totalItems":0,"totalPages":0,"hasNextPage":false}}'
        elif self.path.startswith("/v1/"):
            status, text = 404, b'{"code":"SANDBOX_NOT_FOUND","message":"there is none"}'
        elif self.path.startswith("/api/"):
            text = b'{"items":[],"nextCursor":null}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def tell_all(self):
        """A refusal with all that it was asked with, wherever words are looked for."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = " ".join(f"{k}: {v}" for k, v in self.headers.items())
        text = json.dumps({"statusCode": self.server.indiscreet, "code": said, "message": said, "error": said, "detail": said}).encode()
        self.send_response(self.server.indiscreet, said)
        for name, value in (("X-Request-Id", said), ("Content-Type", "application/json"), ("Content-Length", str(len(text)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET

    def log_message(self, *_):
        pass


class SixServer(http.server.ThreadingHTTPServer):
    address_family, daemon_threads = socket.AF_INET6, True
    skew_s, busy, indiscreet = 0, None, 0


class Slow:
    """A way to an address that lets each piece of the service's first ones wait, or after the client's first words nothing at all."""

    def __init__(self, to, first):
        self.to, self.first, self.heard = to, first, 0
        self.listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
        self.at = "[::1]:%d" % self.listener.getsockname()[1]
        threading.Thread(target=Proxy.accept, args=(self,), daemon=True).start()

    def serve(self, near):
        with contextlib.suppress(OSError), near, socket.create_connection(self.to) as far:
            far.sendall(near.recv(65536))
            self.heard += 1
            if self.first == 0:
                near.recv(65536)  # until the other side gives up
                return
            back = threading.Thread(target=self.slowly, args=(far, near), daemon=True)
            back.start()
            Proxy.pump(near, far)
            back.join()

    def slowly(self, far, near):
        with contextlib.suppress(OSError):
            for _ in range(self.first):
                time.sleep(PIECE_S)
                near.sendall(far.recv(200))
        Proxy.pump(far, near)

    def end(self):
        self.listener.close()


class Proxy:
    """One that leads everything to one address. names: what it was asked for."""

    def __init__(self, kind, to):
        self.kind, self.to, self.names = kind, to, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "%s://127.0.0.1:%d" % (kind, self.listener.getsockname()[1])
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def serve(self, near):
        with contextlib.suppress(OSError, IndexError), near, near.makefile("rb", 0) as f:
            self.names.append(self.connect_line(near, f) if self.kind == "http" else self.socks(near, f))
            with socket.create_connection(self.to) as far:
                back = threading.Thread(target=self.pump, args=(far, near), daemon=True)
                back.start()
                self.pump(near, far)
                back.join()

    @staticmethod
    def connect_line(near, f):
        line = f.readline().split()
        while f.readline() not in (b"\r\n", b""):
            pass
        near.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        return " ".join(w.decode() for w in line[:2])

    @staticmethod
    def socks(near, f):
        f.read(f.read(2)[1])
        near.sendall(b"\5\0")
        kind = f.read(4)[3]
        name = f.read(f.read(1)[0]).decode() if kind == 3 else f"an address of kind {kind}"
        port = int.from_bytes(f.read(2), "big")
        near.sendall(b"\5\0\0\1\0\0\0\0\0\0")
        return f"{name}:{port}"

    @staticmethod
    def pump(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)

    def end(self):
        self.listener.close()


class Ways(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.makedirs(WORK, exist_ok=True)
        cls.folder = tempfile.mkdtemp(prefix="ways.", dir=WORK)
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.ca, key = (os.path.join(cls.folder, n) for n in ("ca.pem", "key.pem"))
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=ways"]
        subprocess.run([*new, "-addext", f"subjectAltName=IP:::1,DNS:{NAME}", "-keyout", key, "-out", cls.ca], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cls.ca, key)
        cls.server = SixServer(("::1", 0), Service)
        cls.server.seen, cls.port = [], cls.server.server_address[1]
        cls.server.socket = context.wrap_socket(cls.server.socket, server_side=True)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)

    def health(self, backend, host, ask=("health",), **way):
        """The answer to the question whether the service is well, or to another one, and what the service was asked."""
        variable, url, env, prefix = BACKENDS[backend]
        self.server.seen.clear()
        with Driver(backend, {**env, variable: url % host, **{f"{prefix}_{k}": v for k, v in way.items()}}) as d:
            answer = d.call(*ask)
        self.assertNotIn(KEY, str(answer))
        return answer, list(self.server.seen)

    @staticmethod
    def at_once(work):
        with concurrent.futures.ThreadPoolExecutor(len(BACKENDS)) as pool:
            return dict(zip(BACKENDS, pool.map(work, BACKENDS)))

    def timed(self, *words, **way):
        begun = time.monotonic()
        answer, _ = self.health(*words, **way)
        return answer, time.monotonic() - begun

    def well(self, backend, host, **way):
        answer, seen = self.health(backend, host, CA_FILE=self.ca, **way)
        self.assertEqual(answer["status"], OK, answer)
        self.assertIn(KEY, seen[-1][1])

    def test_over_ipv6_with_a_certificate_of_ones_own_and_not_without_it(self):
        for backend in BACKENDS:
            with self.subTest(backend):
                self.well(backend, f"[::1]:{self.port}")
                answer, seen = self.health(backend, f"[::1]:{self.port}")
                self.assertNotEqual(answer["status"], OK)
                self.assertTrue(answer["error"])
                self.assertEqual(seen, [], "nothing is told to one who is not trusted")

    def test_through_proxies_that_are_given_the_name(self):
        for kind, asked in (("http", f"CONNECT {NAME}:{self.port}"), ("socks5", f"{NAME}:{self.port}")):
            proxy = Proxy(kind, ("::1", self.port))
            self.addCleanup(proxy.end)
            for backend in BACKENDS:
                with self.subTest(backend, kind=kind):
                    proxy.names.clear()
                    self.well(backend, f"{NAME}:{self.port}", PROXY=proxy.url)
                    self.assertEqual(set(proxy.names), {asked})

    def test_a_time_to_come_back_counts_by_the_services_own_clock(self):
        self.addCleanup(setattr, self.server, "skew_s", 0)
        self.addCleanup(setattr, self.server, "busy", None)
        for self.server.skew_s in (3600, -3600):
            self.server.busy = set()
            for backend, (answer, seconds) in self.at_once(lambda backend: self.timed(backend, f"[::1]:{self.port}", ("list", label()), CA_FILE=self.ca)).items():
                with self.subTest(backend, skew_s=self.server.skew_s):
                    self.assertEqual(answer["status"], OK, answer)
                    self.assertGreater(seconds, BUSY_S - 1, "a date has no fractions")
            self.assertEqual(len(self.server.busy), len(BACKENDS), "each was refused once")

    def test_a_slow_handshake_is_waited_for(self):
        for backend in BACKENDS:
            with self.subTest(backend):
                way = Slow(("::1", self.port), 6)
                self.addCleanup(way.end)
                self.well(backend, way.at)

    def test_a_handshake_that_stops_is_given_up_with_the_reason(self):
        way = Slow(("::1", self.port), 0)
        self.addCleanup(way.end)
        for backend, (answer, seen) in self.at_once(lambda backend: self.health(backend, way.at, CA_FILE=self.ca)).items():
            with self.subTest(backend):
                self.assertIn(answer["status"], (ERETRY, ETIMEOUT), "nothing is said of what it has")
                self.assertTrue(answer["error"])
                self.assertEqual(seen, [])
        self.assertGreaterEqual(way.heard, len(BACKENDS))

    def test_no_line_of_the_log_and_no_event_shows_a_key_that_a_service_gives_back(self):
        self.addCleanup(setattr, self.server, "indiscreet", 0)
        for backend, (variable, url, env, prefix) in BACKENDS.items():
            env = {**env, variable: url % f"[::1]:{self.port}", f"{prefix}_CA_FILE": self.ca, "MANGO_LOG_LEVEL": "debug"}
            for status in (401, 500):
                self.server.indiscreet = status
                self.server.seen.clear()
                with self.subTest(backend, status=status), Mangod(sandbox=backend, env=env) as m:
                    session = m.client.new_session()["id"]
                    m.client.say(session, "run: true")
                    wait_for("it to be told", lambda: f"(HTTP {status})" in m.log() and "turn" in m.log(), 60)
                    self.assertTrue(any(KEY in headers for _, headers in self.server.seen), "it was given the key")
                    self.assertNotIn(KEY, m.log() + str(m.client.events(session)) + str(m.client.get(f"/v1/sessions/{session}")))
                    self.assertIn("***", m.log(), "what it gave back was passed on, without the key")


if __name__ == "__main__":
    main()
