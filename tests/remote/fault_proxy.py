"""A proxy in front of a service that writes down every request, and does one thing wrong to those that it is told to. Addresses of the service in its answers become the
proxy's own."""
import contextlib
import http.client
import http.server
import socket
import threading
import time
import urllib.parse

FAULTS = ("cut", "lost", "delay", "429", "500", "502", "half")
DELAY_S, UPSTREAM_S = 2, 120
PIECE = 65536
# Of one connection, not of what goes over it; the length is counted anew.
OWN = {"connection", "keep-alive", "transfer-encoding", "content-length"}
ANSWERS = {
    "429": (429, "application/json", b'{"statusCode":429,"code":"RATE_LIMITED","message":"slow down"}', {"Retry-After": "1"}),
    "500": (500, "application/json", b'{"statusCode":500,"code":"INTERNAL","message":"out of luck"}', {}),
    "502": (502, "text/html", b"<html><h1>502 Bad Gateway</h1></html>", {}),
}


def quietly(work):
    with contextlib.suppress(OSError):
        work()


class FaultProxy:
    """urls: one front for each of the service's, in their order. log: each request since reset(), with method, path, headers (names in lowercase) and body.

    faults: number of a request (from 0, since reset()) -> what happens to it.

    cut    the connection ends before the service has seen the request
    lost   the service does what it was asked for, and the connection ends instead of the answer
    delay  the request waits
    429    with Retry-After: 1;  500  the service's own;  502  a page of a proxy;  half  the answer breaks off in its middle
    late   the connection ends, and the service gets the request just before the next one to the same path
    N      of a WebSocket: the connection ends when the service has sent so many pieces; half is 3
    """

    def __init__(self, *upstreams):
        self.lock = threading.Lock()
        self.reset()
        self.upstreams = [urllib.parse.urlsplit(u).netloc for u in upstreams]
        self.servers = [self.front(netloc) for netloc in self.upstreams]
        self.fronts = ["127.0.0.1:%d" % s.server_address[1] for s in self.servers]
        self.urls = ["http://" + f for f in self.fronts]
        for s in self.servers:
            threading.Thread(target=s.serve_forever, daemon=True).start()

    def front(self, upstream):
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except (OSError, http.client.HTTPException):
                    self.close_connection = True

            def do_GET(self):
                proxy.serve(self, upstream)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        return server

    def reset(self, faults=None):
        with self.lock:
            self.faults, self.log, self.held = dict(faults or {}), [], {}

    def end(self):
        for s in self.servers:
            s.shutdown()
            s.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    @staticmethod
    def body_of(h):
        if h.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return h.rfile.read(int(h.headers.get("Content-Length") or 0))
        out = b""
        while size := int(h.rfile.readline().split(b";")[0], 16):
            out += h.rfile.read(size)
            h.rfile.readline()
        h.rfile.readline()
        return out

    @staticmethod
    def head(h, status, headers):
        h.send_response_only(status)
        for name, value in headers:
            h.send_header(name, value)
        h.end_headers()

    def serve(self, h, upstream):
        entry = {"method": h.command, "path": h.path, "headers": {k.lower(): v for k, v in h.headers.items()}, "body": b""}
        with self.lock:
            fault = self.faults.get(len(self.log))
            self.log.append(entry)
            held = self.held.pop(h.path, None)
        entry["body"] = self.body_of(h)
        if held:
            with contextlib.closing(http.client.HTTPConnection(upstream, timeout=UPSTREAM_S)) as connection:
                connection.request(held["method"], held["path"], held["body"], held["headers"])
                connection.getresponse().read()
        if fault in ("cut", "late"):
            h.close_connection = True
            with self.lock:
                if fault == "late":
                    self.held[h.path] = entry
            return
        if fault in ANSWERS:
            status, kind, text, more = ANSWERS[fault]
            self.head(h, status, [("Content-Type", kind), ("Content-Length", len(text)), *more.items()])
            h.wfile.write(text)
            return
        if fault == "delay":
            time.sleep(DELAY_S)
        if entry["headers"].get("upgrade", "").lower() == "websocket":
            h.close_connection = True
            self.tunnel(h, upstream, {"half": 3, "lost": 0}.get(fault, fault))
            return
        with contextlib.closing(http.client.HTTPConnection(upstream, timeout=UPSTREAM_S)) as connection:
            self.exchange(connection, h, entry["body"], fault)

    def exchange(self, connection, h, body, fault):
        headers = {k: v for k, v in h.headers.items() if k.lower() not in OWN | {"accept-encoding"}}
        if body or h.command in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(body))
        connection.request(h.command, h.path, body or None, headers)
        answer = connection.getresponse()
        kind = answer.getheader("Content-Type") or ""
        stream = "event-stream" in kind or "connect" in kind
        text = answer.read1(PIECE) if stream else answer.read()
        if fault == "lost":
            h.close_connection = True
            return
        if "json" in kind and not stream:
            for theirs, ours in zip(self.upstreams, self.fronts):
                text = text.replace(theirs.encode(), ours.encode())
        own = [("Connection", "close")] if stream else [("Content-Length", len(text))]
        self.head(h, answer.status, [(k, v) for k, v in answer.getheaders() if k.lower() not in OWN] + own)
        h.close_connection = stream or fault == "half"
        if fault == "half":
            h.wfile.write(text[: len(text) // 2])
            return
        while text:
            h.wfile.write(text)
            text = answer.read1(PIECE) if stream else b""

    @staticmethod
    def tunnel(h, upstream, pieces):
        """Both ways until one side ends, or the service has sent so many pieces; the head of its answer is the first."""
        def back():
            n = 0
            while (pieces in (None, "delay") or n < pieces) and (data := far.recv(PIECE)):
                h.connection.sendall(data)
                n += 1
            if not isinstance(pieces, int):
                return
            for s in (h.connection, far):
                s.shutdown(socket.SHUT_RDWR)

        host, port = upstream.rsplit(":", 1)
        with socket.create_connection((host, int(port)), UPSTREAM_S) as far:
            far.sendall(h.raw_requestline + "".join(f"{k}: {v}\r\n" for k, v in h.headers.items()).encode() + b"\r\n")
            thread = threading.Thread(target=quietly, args=(back,), daemon=True)
            thread.start()
            with contextlib.suppress(OSError):
                while data := h.connection.recv(PIECE):
                    far.sendall(data)
            with contextlib.suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)
            thread.join()
