"""A peer for tests/support/peer-rig: real sockets that behave well or badly, one thread for each connection.

    net-peer.py FOLDER

listens on FOLDER/peer.sock, on a TCP port, on a port with TLS that wants a client certificate (made in FOLDER:
ca.pem, client.pem, client.key), and on the ports of an HTTP proxy and of a SOCKS5 proxy. It prints "NAME PORT" for each, then
"ready". It ends when its standard input does. /facts tells what it has seen.
"""
import collections
import hashlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading

FOLDER = sys.argv[1]
FACTS = collections.Counter()
SEEN = {}
LOCK = threading.Lock()
RELEASE = threading.Event()


def note(name, n=1):
    with LOCK:
        FACTS[name] += n


def certificates():
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=FOLDER, check=True, capture_output=True)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test-ca")
    for name, san in (("server", "DNS:localhost"), ("client", "DNS:client.test")):
        openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        with open(os.path.join(FOLDER, "ext"), "w", encoding="ascii") as f:
            f.write(f"subjectAltName={san}\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem",
                "-days", "2", "-extfile", "ext")


class Closed(Exception):
    pass


class Stream:
    def __init__(self, sock):
        self.sock = sock
        self.buf = b""

    def fill(self):
        got = self.sock.recv(65536)
        if not got:
            raise Closed
        self.buf += got

    def line(self):
        while b"\n" not in self.buf:
            self.fill()
        line, self.buf = self.buf.split(b"\n", 1)
        return line.rstrip(b"\r").decode("latin-1")

    def exactly(self, n):
        while len(self.buf) < n:
            self.fill()
        got, self.buf = self.buf[:n], self.buf[n:]
        return got

    def pieces(self, headers):
        """The pieces of a request's body."""
        if headers.get("transfer-encoding") == "chunked":
            while True:
                size = int(self.line().split(";")[0], 16)
                if size == 0:
                    while self.line():
                        pass
                    return
                yield self.exactly(size)
                self.line()
        left = int(headers.get("content-length", "0"))
        while left > 0:
            if not self.buf:
                self.fill()
            piece = self.exactly(min(left, len(self.buf)))
            left -= len(piece)
            yield piece

    def send(self, data):
        self.sock.sendall(data)

    def answer(self, status, body=b"", extra=""):
        self.send(f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body)


def chunk(data):
    return b"%x\r\n" % len(data) + data + b"\r\n"


def echo_stream(s):
    """Until the other side has no more to say, then a farewell of our own: the half-closed stream must still carry it."""
    if s.buf:
        s.send(s.buf)
    while True:
        got = s.sock.recv(65536)
        if not got:
            break
        s.send(got)
    s.send(b"farewell")
    raise Closed


def flood(s, total):
    """As much as is taken; /facts tells how much that was."""
    s.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = chunk(b"x" * 16000)
    for _ in range(total // 16000):
        s.send(piece)
        note("flooded", 16000)
    s.send(b"0\r\n\r\n")


def serve(s, method, path, headers):
    if path == "/facts":
        with LOCK:
            s.answer(200, json.dumps({**FACTS, **SEEN}).encode())
    elif path == "/echo":
        body = b"".join(s.pieces(headers))
        SEEN["echo"] = {"method": method, "headers": headers}
        s.answer(200, body, "X-Answer: yes\r\n")
    elif path == "/count":
        total, digest = 0, hashlib.sha256()
        for piece in s.pieces(headers):
            total += len(piece)
            digest.update(piece)
        s.answer(200, f"{total} {digest.hexdigest()}".encode())
    elif path == "/deaf":
        note("deaf")
        RELEASE.wait()
        raise Closed
    elif path == "/early":
        s.answer(413, b"too large", "Connection: close\r\n")
        raise Closed
    elif path == "/hang":
        note("hang")
        RELEASE.wait(30)
        raise Closed
    elif path == "/half":
        _ = b"".join(s.pieces(headers))  # a body that comes after the end would break the other side's writing
        s.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
        raise Closed
    elif path == "/busy":
        s.answer(429, b"slow down", "Retry-After: 7\r\n")
    elif path.startswith("/flood/"):
        flood(s, int(path.rsplit("/", 1)[1]))
    elif path == "/endless":
        s.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"all that matters"))
        RELEASE.wait(30)
        raise Closed
    elif path == "/once":
        note("once")
        raise Closed
    elif path == "/upgrade":
        SEEN["upgrade"] = {"headers": headers, "body": b"".join(s.pieces(headers)).decode("latin-1")}
        s.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly ")
        echo_stream(s)
    elif path == "/hijack":
        b"".join(s.pieces(headers))
        s.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n")
        echo_stream(s)
    elif path == "/refuse":
        s.answer(409, b'{"message":"not now"}', "Retry-After: 2\r\n")
    elif path == "/refuse-chunked":
        s.send(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"in ") + chunk(b"pieces") + b"0\r\nX-Trailer: 1\r\n\r\n")
    elif path == "/garbage":
        s.send(b"SSH-2.0-OpenSSH\r\n\r\n")
        raise Closed
    elif path == "/stream-flood":
        s.send(b"HTTP/1.1 101 UPGRADED\r\n\r\n")
        while True:
            s.send(b"y" * 65536)
            note("stream_flooded", 65536)
    else:
        s.answer(404, b"no such path")


def connection(sock):
    note("connections")
    s = Stream(sock)
    try:
        while True:
            method, path, _ = s.line().split(" ", 2)
            headers = {}
            while True:
                line = s.line()
                if not line:
                    break
                name, value = line.split(":", 1)
                headers[name.lower()] = value.strip()
            note("requests")
            serve(s, method, path, headers)
    except (Closed, OSError, ValueError):
        pass
    finally:
        sock.close()


def raw_tls(sock):
    """What comes first decides: a line "RAW" is answered with an echo, anything else is HTTP."""
    first = sock.recv(65536)
    if first.startswith(b"RAW\n"):
        sock.sendall(b"raw:" + first[4:])
        while True:
            got = sock.recv(65536)
            if not got:
                return
            sock.sendall(got)
    back = Stream(sock)
    back.buf = first
    method, path, _ = back.line().split(" ", 2)
    headers = {}
    for line in iter(back.line, ""):
        name, value = line.split(":", 1)
        headers[name.lower()] = value.strip()
    SEEN["client"] = dict(x[0] for x in sock.getpeercert()["subject"]).get("commonName")
    serve(back, method, path, headers)


def tls(sock, context):
    try:
        with context.wrap_socket(sock, server_side=True) as wrapped:
            raw_tls(wrapped)
    except (Closed, OSError):
        pass


def pump(a, b):
    try:
        while True:
            got = a.recv(65536)
            if not got:
                break
            b.sendall(got)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def join(a, b):
    back = threading.Thread(target=pump, args=(b, a), daemon=True)
    back.start()
    pump(a, b)
    back.join()
    a.close()
    b.close()


PORTS = {}


def proxied(sock):
    """An HTTP proxy for whom every name leads to the TCP port here (or, for port 443, to the one with TLS)."""
    s = Stream(sock)
    try:
        method, target, _ = s.line().split(" ", 2)
        rest = []
        for line in iter(s.line, ""):
            rest.append(line)
        SEEN["proxy"] = f"{method} {target}"
        note("proxied")
        if method == "CONNECT":
            up = socket.create_connection(("127.0.0.1", PORTS["tls" if target.endswith(":443") else "tcp"]))
            s.send(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            up = socket.create_connection(("127.0.0.1", PORTS["tcp"]))
            path = "/" + target.split("/", 3)[3]
            up.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *rest, "", ""]).encode())
        up.sendall(s.buf)
        join(sock, up)
    except (Closed, OSError):
        sock.close()


def socksified(sock):
    s = Stream(sock)
    try:
        s.exactly(s.exactly(2)[1])  # the methods that the client offers
        s.send(b"\x05\x00")
        kind = s.exactly(4)[3]
        name = s.exactly(s.exactly(1)[0]).decode() if kind == 3 else s.exactly(4 if kind == 1 else 16).hex()
        port = int.from_bytes(s.exactly(2), "big")
        SEEN["socks"] = f"{name}:{port}"
        up = socket.create_connection(("127.0.0.1", PORTS["tcp"]))
        s.send(b"\x05\x00\x00\x01" + bytes(6))
        join(sock, up)
    except (Closed, OSError):
        sock.close()


def listen(name, address, handler):
    sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    sock.bind(address)
    sock.listen(128)
    if not isinstance(address, str):
        PORTS[name] = sock.getsockname()[1]

    def accept():
        while True:
            got, _ = sock.accept()
            threading.Thread(target=handler, args=(got,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def main():
    certificates()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(FOLDER, "server.pem"), os.path.join(FOLDER, "server.key"))
    context.load_verify_locations(os.path.join(FOLDER, "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    listen("unix", os.path.join(FOLDER, "peer.sock"), connection)
    listen("tcp", ("127.0.0.1", 0), connection)
    listen("tls", ("127.0.0.1", 0), lambda s: tls(s, context))
    listen("proxy", ("127.0.0.1", 0), proxied)
    listen("socks", ("127.0.0.1", 0), socksified)
    for name, port in PORTS.items():
        print(name, port)
    print("ready", flush=True)
    sys.stdin.read()


main()
