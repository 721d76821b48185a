"""An HTTP proxy in front of a server that records what clients ask, and that can fail, cut or delay chosen requests.

    with Recorder(port) as r:                       # r.url is for the client
        r.on("POST", r"/events$", Status(500), Cut("after"), times=...)

A rule's actions are used up in order by the requests that it fits; behind them requests pass.
"""
import http.client
import http.server
import re
import socket
import socketserver
import threading
import time

DROPPED = {"connection", "transfer-encoding", "keep-alive"}


class Pass:
    """Passes it on."""

    def __repr__(self):
        return "pass"


class Status:
    """Answers itself."""

    def __init__(self, status, error="api_error", **headers):
        self.status, self.error, self.headers = status, error, {k.replace("_", "-"): v for k, v in headers.items()}

    def text(self):
        return b'{"type":"error","error":{"type":"%s","message":"by the proxy"},"request_id":"req_proxy"}' % self.error.encode()

    def __repr__(self):
        return f"status {self.status}"


class Body:
    """Answers 200 with these bytes instead of the server's."""

    def __init__(self, content, kind="application/zip"):
        self.content, self.kind = content, kind

    def __repr__(self):
        return f"{len(self.content)} other bytes"


class Cut:
    """Cuts the connection: `before` the server sees the request, or `after` it has answered; first calls do()."""

    def __init__(self, when, do=lambda: None):
        self.when, self.do = when, do

    def __repr__(self):
        return f"cut {self.when}"


class Slow:
    """Passes it on after a pause."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __repr__(self):
        return f"slow {self.seconds}"


class CutStream:
    """Passes it on, and cuts the answer after so many bytes of its body, or when `event` is set."""

    def __init__(self, event):
        self.event = event

    def __repr__(self):
        return "cut stream"


class Request:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body, self.status, self.action = method, path, headers, body, None, None
        self.at = time.monotonic()

    def __repr__(self):
        return f"{self.method} {self.path} -> {self.status}"


class Recorder:
    def __init__(self, port):
        self.upstream, self.requests, self.rules, self.lock = port, [], [], threading.Lock()

    def on(self, method, pattern, *actions):
        with self.lock:
            self.rules.append((method, re.compile(pattern), list(actions)))

    def pick(self, request):
        with self.lock:
            self.requests.append(request)
            for method, pattern, actions in self.rules:
                if actions and method == request.method and pattern.search(request.path):
                    request.action = actions.pop(0)
                    return request.action
        return Pass()

    def seen(self, method="", pattern=""):
        with self.lock:
            return [r for r in self.requests if r.method.startswith(method) and re.search(pattern, r.path)]

    def clear(self):
        with self.lock:
            self.requests, self.rules = [], []

    def __enter__(self):
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                recorder.serve(self)

            do_POST = do_DELETE = do_GET

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads, request_queue_size = True, 128

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    # ---- one request ----

    def serve(self, h):
        body = h.rfile.read(int(h.headers.get("content-length") or 0))
        request = Request(h.command, h.path, dict((k.lower(), v) for k, v in h.headers.items()), body)
        action = self.pick(request)
        if isinstance(action, Status):
            return self.answer(h, request, action.status, action.text(), {"content-type": "application/json", **action.headers})
        if isinstance(action, Body):
            return self.answer(h, request, 200, action.content, {"content-type": action.kind})
        if isinstance(action, Slow):
            time.sleep(action.seconds)
        if isinstance(action, Cut) and action.when == "before":
            action.do()
            return self.cut(h)
        up = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=120)
        try:
            up.request(request.method, request.path, body=body or None, headers={**{k: v for k, v in request.headers.items() if k not in DROPPED and k != "host"}, **({} if body or request.method == "GET" else {"content-length": "0"})})
            self.relay(h, request, up.getresponse(), action)
        except OSError:
            self.cut(h)
        finally:
            up.close()

    def answer(self, h, request, status, text, headers):
        request.status = status
        h.send_response(status)
        for name, value in {"content-length": str(len(text)), **headers}.items():
            h.send_header(name, value)
        h.end_headers()
        h.wfile.write(text)

    def cut(self, h):
        h.close_connection = True
        try:
            h.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def relay(self, h, request, answer, action):
        stream = answer.getheader("content-type", "").startswith("text/event-stream")
        if isinstance(action, Cut):
            if not stream:
                answer.read()
            request.status = answer.status
            action.do()
            return self.cut(h)
        request.status = answer.status
        h.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in DROPPED and not (stream and name.lower() == "content-length"):
                h.send_header(name, value)
        if stream:
            h.send_header("connection", "close")
            h.end_headers()
            return self.pump(h, answer, action)
        text = answer.read()
        if answer.getheader("content-length") is None:
            h.send_header("content-length", str(len(text)))
        h.end_headers()
        h.wfile.write(text)

    def pump(self, h, answer, action):
        h.close_connection = True
        cut = action.event if isinstance(action, CutStream) else None
        if cut:
            threading.Thread(target=lambda: (cut.wait(), self.cut(h)), daemon=True).start()
        while True:
            piece = answer.read1(65536)
            if not piece or (cut and cut.is_set()):
                return self.cut(h)
            h.wfile.write(piece)
            h.wfile.flush()
