"""The ways to a service, by the variables of each of the four backends: IPv6, certificates of one's own, proxies of HTTP and SOCKS that are given the service's name."""
import contextlib
import http.server
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

from rig import WORK
from harness import main
from sandbox import OK, Driver

NAME = "service.invalid"  # resolved by nobody but the proxies here
KEY = "key-of-the-ways-3d1f"
# backend -> address of its API at a host, other settings, prefix of the settings of the way
BACKENDS = {
    "e2b": ("E2B_API_URL", "https://%s", {"E2B_API_KEY": KEY}, "E2B"),
    "cube": ("CUBE_API_URL", "https://%s", {"CUBE_API_KEY": KEY, "CUBE_TEMPLATE_ID": "base"}, "CUBE_HTTP"),
    "opensandbox": ("OPEN_SANDBOX_DOMAIN", "https://%s", {"OPEN_SANDBOX_API_KEY": KEY}, "OPEN_SANDBOX"),
    "daytona": ("DAYTONA_API_URL", "https://%s/api", {"DAYTONA_API_KEY": KEY}, "DAYTONA"),
}


class Service(http.server.BaseHTTPRequestHandler):
    """Answers as each API does when it is asked for its health."""

    def do_GET(self):
        self.server.seen.append((self.path, str(self.headers)))
        status, text = 200, b"[]"
        if self.path.startswith("/v1/"):
            status, text = 404, b'{"code":"SANDBOX_NOT_FOUND","message":"there is none"}'
        elif self.path.startswith("/api/"):
            text = b'{"items":[],"nextCursor":null}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class SixServer(http.server.ThreadingHTTPServer):
    address_family, daemon_threads = socket.AF_INET6, True


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

    def health(self, backend, host, **way):
        """The answer to the question whether the service is well, and what the service was asked."""
        variable, url, env, prefix = BACKENDS[backend]
        self.server.seen.clear()
        with Driver(backend, {**env, variable: url % host, **{f"{prefix}_{k}": v for k, v in way.items()}}) as d:
            answer = d.call("health")
        self.assertNotIn(KEY, str(answer))
        return answer, list(self.server.seen)

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


if __name__ == "__main__":
    main()
