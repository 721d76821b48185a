"""An MCP server for tests that can misbehave: Streamable HTTP by hand.

    with McpPeer() as peer:
        peer.url, peer.calls            # what tools/call got, in order
        peer.listing = "hang"           # how tools/list behaves
"""
import base64
import json
import struct
import threading
import zlib
from http.server import BaseHTTPRequestHandler

from rig import HttpPeer


def png(width=2, height=2):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def text(*parts):
    return {"content": [{"type": "text", "text": p} for p in parts]}


OBJECT = {"type": "object", "properties": {"x": {"type": "string"}}}
TOOLS = ["echo", "hang", "flood", "drop", "large", "image", "bad_image", "audio", "malformed", "fail", "gone", "progress", "structured", "no_result", "expire"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # head and body in one packet

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def result(self, ident, result, **headers):
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}).encode(), **headers)

    def error(self, ident, code, message):
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": message}}).encode())

    def stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, message):
        self.wfile.write(b"data: " + json.dumps(message).encode() + b"\n\n")
        self.wfile.flush()

    def hang(self):
        self.server.peer.stopped.wait(120)
        self.close_connection = True

    # ---- methods of HTTP ----

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        self.server.peer.deleted.append(self.headers.get("mcp-session-id"))
        self.answer(200)

    def do_POST(self):
        peer = self.server.peer
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, ident, params = body.get("method"), body.get("id"), body.get("params", {})
        with peer.lock:
            peer.requests.append((method, params, self.headers.get("mcp-session-id")))
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        with peer.lock:
            peer.authorizations.append((method, token))
        if peer.tokens is not None and token not in peer.tokens:
            return self.answer(401, json.dumps({"error": "invalid_token", "error_description": f"no good: {token}"}).encode(), www_authenticate="Bearer")
        if ident is None:
            return self.answer(202)
        if method == "initialize":
            return self.initialize(peer, ident)
        if self.headers.get("mcp-session-id") not in peer.sessions:
            return self.answer(404, b"no such session", "text/plain")
        if method == "tools/list":
            return self.list(peer, ident, params)
        if method == "tools/call":
            peer.calls.append((params["name"], params.get("arguments")))
            return getattr(self, "call_" + params["name"], self.call_unknown)(peer, ident, params)
        return self.error(ident, -32601, "unknown method")

    def initialize(self, peer, ident):
        if peer.listing == "401":
            return self.answer(401, b'{"error":"invalid_token","error_description":"no token"}', www_authenticate="Bearer")
        if peer.listing == "500":
            return self.answer(500, b"oops", "text/plain")
        if peer.listing == "html":
            return self.answer(200, b"<h1>Welcome</h1>", "text/html")
        session = f"session-{len(peer.sessions) + 1}"
        peer.sessions.add(session)
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "peer", "version": "1"}}
        return self.result(ident, result, mcp_session_id=session)

    def list(self, peer, ident, params):
        if peer.listing == "hang":
            return self.hang()
        if peer.listing == "endless":
            return self.result(ident, {"tools": [], "nextCursor": "more"})
        tools = [{"name": n, "description": f"Does {n}", "inputSchema": OBJECT} for n in peer.tools]
        if peer.listing == "lies":
            tools += [
                {"name": "banana", "inputSchema": {"type": "banana"}},
                {"name": "list", "inputSchema": ["x"]},
                {"name": "deep", "inputSchema": {"type": "object", "properties": {"a b": {"type": "nothing"}}}},
                {"name": "echo", "inputSchema": OBJECT},
                {"name": "x" * 500, "inputSchema": OBJECT},
                {"description": "no name"},
                "no tool at all",
            ]
        half = len(tools) // 2
        if params.get("cursor"):
            return self.result(ident, {"tools": tools[half:]})
        return self.result(ident, {"tools": tools[:half], "nextCursor": "half"})

    # ---- tools ----

    def call_unknown(self, _peer, ident, params):
        self.error(ident, -32602, f"Tool {params['name']} not found")

    call_gone = call_unknown

    def call_echo(self, _peer, ident, params):
        self.result(ident, text(json.dumps(params.get("arguments"))))

    def call_fail(self, _peer, ident, _params):
        self.result(ident, {**text("it went wrong"), "isError": True})

    def call_hang(self, _peer, _ident, _params):
        self.hang()

    def call_drop(self, _peer, _ident, _params):
        self.close_connection = True

    def call_flood(self, peer, _ident, _params):
        self.stream()
        line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 4000}})
        try:
            while not peer.stopped.is_set():
                self.wfile.write(b"data: " + line.encode() + b"\n\n")
        except OSError:
            peer.cut.set()

    def call_large(self, _peer, ident, _params):
        self.result(ident, text("begin " + "line of text\n" * 25000 + "end"))

    def call_image(self, _peer, ident, _params):
        self.result(ident, {"content": [{"type": "image", "data": base64.b64encode(png()).decode(), "mimeType": "image/png"}]})

    def call_bad_image(self, _peer, ident, _params):
        self.result(ident, {"content": [{"type": "image", "data": base64.b64encode(b"no png").decode(), "mimeType": "image/png"}]})

    def call_audio(self, _peer, ident, _params):
        self.result(ident, {"content": [{"type": "audio", "data": base64.b64encode(b"RIFFdata").decode(), "mimeType": "audio/wav"}]})

    def call_malformed(self, _peer, _ident, _params):
        self.answer(200, b'{"jsonrpc":"2.0","id":')

    def call_no_result(self, _peer, ident, _params):
        self.result(ident, {"content": "not an array"})

    def call_structured(self, _peer, ident, _params):
        self.answer(200, b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"n":9007199254740993,"d":0.10}}}' % ident)

    def call_progress(self, peer, ident, params):
        self.stream()
        for i in range(6):
            if peer.stopped.wait(0.25):  # the call's own slowness is what is tested: each pause is below the server's limit, all together are above it
                return
            self.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": params["_meta"]["progressToken"], "progress": i}})
        self.event({"jsonrpc": "2.0", "id": ident, "result": text("made it")})

    def call_expire(self, peer, ident, _params):
        """The first time, the server has just forgotten its sessions."""
        if not peer.expired:
            peer.expired = True
            peer.sessions.clear()
            return self.answer(404, b"gone", "text/plain")
        return self.result(ident, text("after the new session"))


class McpPeer(HttpPeer):
    handler = Handler

    def __init__(self, tools=None):
        self.tools, self.listing = list(tools or TOOLS), "ok"
        self.lock, self.stopped, self.cut = threading.Lock(), threading.Event(), threading.Event()
        self.tokens, self.authorizations = None, []  # a set: every request needs one of these bearer tokens
        self.requests, self.calls, self.deleted, self.sessions, self.expired = [], [], [], set(), False

    def __enter__(self):
        super().__enter__()
        self.url = self.base + "/mcp"
        return self

    def __exit__(self, *exc):
        self.stopped.set()
        super().__exit__(*exc)

    def methods(self):
        with self.lock:
            return [m for m, _, _ in self.requests]
