"""A proxy in front of a service that does one thing wrong, to one request. Addresses of the service in its answers become the proxy's own."""
import contextlib
import http.client
import http.server
import threading
import time

FAULTS = ("cut", "lost", "delay", "429", "500", "502", "half")


class FaultProxy:
    """faults: number of a request (from 0, since reset()) -> what happens to it.

    cut    the connection ends before the service has seen the request
    lost   the service does what it was asked for, and the connection ends instead of the answer
    delay  the request waits for two seconds
    429    with Retry-After: 1;  500  the service's own;  502  a page of a proxy;  half  the answer breaks off in its middle
    """

    def __init__(self, port):
        self.port, self.lock = port, threading.Lock()
        self.reset()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except (OSError, http.client.HTTPException):
                    self.close_connection = True

            def do_GET(self):
                proxy.serve(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.own = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self, faults=None):
        with self.lock:
            self.faults, self.seen, self.recorded = dict(faults or {}), [], []

    def end(self):
        self.server.shutdown()
        self.server.server_close()

    def next(self, what):
        with self.lock:
            self.seen.append(what)
            return self.faults.get(len(self.seen) - 1)

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
    def answer(h, status, kind, text, **headers):
        h.send_response(status)
        h.send_header("Content-Type", kind)
        h.send_header("Content-Length", str(len(text)))
        for name, value in headers.items():
            h.send_header(name.replace("_", "-"), value)
        h.end_headers()
        h.wfile.write(text)

    def serve(self, h):
        fault = self.next(f"{h.command} {h.path.split('?')[0]}")
        body = self.body_of(h)
        with self.lock:
            self.recorded.append((h.command, h.path, dict(h.headers.items()), body))
        if fault == "cut":
            h.close_connection = True
            return
        if fault == "429":
            self.answer(h, 429, "application/json", b'{"statusCode":429,"code":"RATE_LIMITED","message":"slow down"}', Retry_After="1")
            return
        if fault == "500":
            self.answer(h, 500, "application/json", b'{"statusCode":500,"code":"INTERNAL","message":"out of luck"}')
            return
        if fault == "502":
            self.answer(h, 502, "text/html", b"<html><h1>502 Bad Gateway</h1></html>")
            return
        if fault == "delay":
            time.sleep(2)
        self.forward(h, body, fault)

    def forward(self, h, body, fault):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as upstream:
            self.exchange(upstream, h, body, fault)

    def exchange(self, upstream, h, body, fault):
        headers = {k: v for k, v in h.headers.items() if k.lower() not in ("connection", "transfer-encoding", "content-length", "accept-encoding")}
        if body or h.command in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(body))
        upstream.request(h.command, h.path, body or None, headers)
        answer = upstream.getresponse()
        stream = "event-stream" in (answer.getheader("Content-Type") or "")
        if fault == "lost":
            answer.read()
            h.close_connection = True
            return
        if stream and not fault:
            self.pass_stream(h, answer)
            return
        text = answer.read()
        if "json" in (answer.getheader("Content-Type") or ""):
            text = text.replace(f"127.0.0.1:{self.port}".encode(), f"127.0.0.1:{self.own}".encode())
        h.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() in ("content-type", "content-range", "date", "retry-after"):
                h.send_header(name, value)
        h.send_header("Content-Length", str(len(text)))
        h.end_headers()
        if fault == "half":
            h.wfile.write(text[: len(text) // 2])
            h.wfile.flush()
            h.close_connection = True
            return
        h.wfile.write(text)

    @staticmethod
    def pass_stream(h, answer):
        h.send_response(answer.status)
        h.send_header("Content-Type", answer.getheader("Content-Type"))
        h.send_header("Connection", "close")
        h.end_headers()
        while piece := answer.read1(65536):
            h.wfile.write(piece)
            h.wfile.flush()
        h.close_connection = True
