"""Field cases 11, 12, 16, 26, 27 and more: every malformed request of tests/fixtures/bad-requests.json gets its exact status and error type,
and the server's memory and descriptors return to where they were.

    bad_requests.py --url http://HOST:PORT --key KEY [--pid PID]

test_bad_requests.py runs it against a mangod of its own.

Each case: name, method, path, status, type, message (a part of error.message), and at most one body: json, text, base64 or make.
Placeholders such as {agent} stand for objects that the run makes. Without a database of its own the cases of foreign workspaces are left out.
"""
import argparse
import base64
import json
import os
import re
import socket
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from api import Client  # noqa: E402
from harness import wait_for  # noqa: E402

CASES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "bad-requests.json")
TIMEOUT_S = 60
SLOW_S = 45  # the server gives a body 30 s without a byte, headers 10 s
GROWTH = 16 * 1024 * 1024  # bytes of memory that a repeat of the table may add; the allocator keeps some
ENVELOPE = {"type", "error", "request_id"}
LEAKS = re.compile(rb"SELECT |INSERT |UPDATE |libpq|PGRES|/work/|/home/|\.c:\d|0x[0-9a-f]{8}")


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


def read_answer(sock, head_only=False):
    """One HTTP/1.1 answer, by hand: the requests of this file are not ones that http.client would send."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(65536)
        if not part:
            raise AssertionError(f"the connection was closed without an answer, after {data[:200]!r}")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split(" ")[1])
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
    want = 0 if head_only else int(headers.get("content-length", 0))
    while len(body) < want:
        part = sock.recv(65536)
        if not part:
            raise AssertionError("the answer was cut off")
        body += part
    return Answer(status, headers, body)


def made_body(kind, n):
    """Bodies that are too big for the table."""
    if kind == "nest":
        return b'{"name":' + b"[" * n + b"]" * n + b"}"
    if kind == "values":
        return b'{"name":[' + b",".join([b"1"] * n) + b"]}"
    if kind == "spaces":
        return b" " * n
    if kind == "system":
        return json.dumps({"name": "a", "model": "m", "system": "s" * n}).encode()
    return None


class Server:
    """Where the requests go, and the objects that the placeholders name."""

    def __init__(self, host, port, key, pid=None, database=None):
        self.host, self.port, self.key, self.pid, self.database = host, port, key, pid, database
        self.client = Client(port, key, host)
        self.names = {}

    def make_objects(self):
        c, names = self.client, self.names
        toolset = [{"type": "agent_toolset_20260401"}]
        names["agent"] = c.post("/v1/agents", {"name": "bad", "model": "mango-test", "tools": toolset})["id"]
        names["environment"] = c.post("/v1/environments", {"name": "bad", "config": {"type": "cloud"}})["id"]
        names["archived_agent"] = c.post("/v1/agents", {"name": "old", "model": "mango-test"})["id"]
        c.post(f"/v1/agents/{names['archived_agent']}/archive")
        names["archived_environment"] = c.post("/v1/environments", {"name": "old"})["id"]
        c.post(f"/v1/environments/{names['archived_environment']}/archive")
        for name in ("session", "archived_session"):
            made = {"agent": names["agent"], "environment_id": names["environment"], "title": name}
            names[name] = c.post("/v1/sessions", made)["id"]
            c.post(f"/v1/sessions/{names[name]}", {"title": name + " again"})
            c.post(f"/v1/sessions/{names[name]}", {"title": name + " and again"})
        c.post(f"/v1/sessions/{names['archived_session']}/archive")
        page = c.get(f"/v1/sessions/{names['session']}/events?limit=1")
        names["event"] = page["data"][0]["id"]
        names["cursor"] = page["next_page"]
        names["half_cursor"] = page["next_page"][: len(page["next_page"]) // 2]
        names["thread"] = c.get(f"/v1/sessions/{names['session']}/threads")["data"][0]["id"]
        if self.database:
            self.make_foreign()

    def make_foreign(self):
        """Objects of another workspace, which no key of this run may see."""
        names = {"foreign_" + k: p + "_0FOREIGN" for k, p in (("agent", "agent"), ("environment", "env"), ("session", "sesn"))}
        a, e, s = names["foreign_agent"], names["foreign_environment"], names["foreign_session"]
        self.database.query(
            "INSERT INTO workspaces (id, name) VALUES ('wrkspc_other', 'Other');"
            f"INSERT INTO agents (id, workspace_id, latest_version) VALUES ('{a}', 'wrkspc_other', 1);"
            f"INSERT INTO agent_versions (agent_id, version, body) SELECT '{a}', 1, body FROM agent_versions LIMIT 1;"
            f"INSERT INTO environments (id, workspace_id, name, config_type, config) VALUES ('{e}', 'wrkspc_other', 'o', 'self_hosted', '{{}}');"
            "INSERT INTO sessions (id, workspace_id, agent_id, agent_version, agent, environment_id, env_type, env_config)"
            f" SELECT '{s}', 'wrkspc_other', '{a}', 1, agent, '{e}', 'self_hosted', '{{}}' FROM sessions LIMIT 1;"
            f"INSERT INTO session_state (session_id) VALUES ('{s}')"
        )
        self.names.update(names)

    def fill(self, text):
        for name, value in self.names.items():
            text = text.replace("{" + name + "}", value)
        return text

    def connect(self):
        sock = socket.create_connection((self.host, self.port), timeout=TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def memory(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def request_bytes(server, case):
    """The request as it goes over the wire."""
    path, body = server.fill(case["path"]), b""
    headers = {"host": f"{server.host}:{server.port}", "x-api-key": server.key, "connection": "close"}
    kind, n = case.get("make", (None, 0))
    if "json" in case:
        body = server.fill(json.dumps(case["json"])).encode()
    elif "text" in case:
        body = server.fill(case["text"]).encode()
    elif "base64" in case:
        body = base64.b64decode(case["base64"])
    elif kind:
        body = made_body(kind, n) or b""
    if body:
        headers["content-type"] = "application/json"
    if body or case["method"] == "POST":
        headers["content-length"] = str(len(body))
    if kind == "claim":
        headers.update({"content-length": str(n), "content-type": "application/json"})
    if kind == "header":
        headers["x-filler"] = "y" * n
    if kind == "headers":
        headers.update({f"x-filler-{i}": "y" for i in range(n)})
    if kind == "url":
        path += "x" * n
    headers.update(case.get("headers", {}))
    lines = [f"{case['method']} {path} HTTP/1.1"] + [f"{k}: {v}" for k, v in headers.items() if v is not None]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def send(server, case):
    with server.connect() as sock:
        try:
            sock.sendall(request_bytes(server, case))
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all of it was read: the answer is there
        return read_answer(sock, head_only=case.get("no_body", False))


def problems(case, answer):
    """What is wrong with an answer; empty when nothing is."""
    out = []
    if answer.status != case["status"]:
        out.append(f"status {answer.status}, not {case['status']}")
    if not answer.headers.get("request-id", "").startswith("req_"):
        out.append("no request-id header")
    if case.get("no_retry") and answer.headers.get("x-should-retry") != "false":
        out.append("no x-should-retry: false")
    if case.get("no_body"):
        return out
    if not answer.headers.get("content-type", "").startswith("application/json"):
        out.append(f"content-type {answer.headers.get('content-type')}")
    try:
        body = json.loads(answer.body)
        error = body["error"]
    except (ValueError, KeyError, TypeError):
        return out + [f"not an error object: {answer.body[:200]!r}"]
    if set(body) != ENVELOPE or body["type"] != "error":
        out.append(f"envelope {sorted(body)}")
    if body.get("request_id") != answer.headers.get("request-id"):
        out.append("request_id differs from the header")
    if error.get("type") != case["type"]:
        out.append(f"type {error.get('type')}, not {case['type']}")
    if case["message"] not in error.get("message", ""):
        out.append(f"message {error.get('message')!r} does not hold {case['message']!r}")
    if not error.get("message"):
        out.append("no message")
    if "code" in case and error.get("details", {}).get("error_code") != case["code"]:
        out.append(f"error_code {error.get('details')}, not {case['code']}")
    if LEAKS.search(answer.body):
        out.append(f"something of the inside shows: {answer.body[:300]!r}")
    return out


class Slow(threading.Thread):
    """Connections that take their time, running beside the table. Each must end with an answer or a close, none may hang."""

    def __init__(self, name, server, data, statuses, shut=False):
        super().__init__(name=name, daemon=True)
        self.server, self.data, self.statuses, self.shut, self.result = server, data, statuses, shut, "did not end"

    def run(self):
        try:
            with self.server.connect() as sock:
                sock.settimeout(SLOW_S)
                sock.sendall(self.data)
                if self.shut:
                    sock.shutdown(socket.SHUT_WR)
                first = sock.recv(65536)
                status = int(first.split(b" ")[1]) if first else None
                self.result = None if status in self.statuses else f"status {status}, not one of {self.statuses}"
        except (OSError, ValueError, IndexError) as e:
            self.result = None if isinstance(e, ConnectionResetError) and None in self.statuses else repr(e)


def slow_ones(server):
    head = f"POST /v1/agents HTTP/1.1\r\nhost: x\r\nx-api-key: {server.key}\r\ncontent-type: application/json\r\n"
    whole = '{"name":"half-closed","model":"m"}'
    return [
        Slow("a body that stops after a byte", server, (head + "content-length: 100\r\n\r\n{").encode(), {408}),
        Slow("headers that stop", server, head.encode(), {408, None}),
        Slow("a request line that stops", server, b"POST /v1/ag", {408, None}),
        Slow("nothing at all", server, b"", {408, None}),
        Slow("a chunked body that stops", server, (head + "transfer-encoding: chunked\r\n\r\n5\r\n{").encode(), {408}),
        Slow("half-closed after a whole request", server, (head + f"content-length: {len(whole)}\r\n\r\n{whole}").encode(), {200}, shut=True),
        Slow("half-closed in mid-body", server, (head + "content-length: 100\r\n\r\n{").encode(), {400, 408, None}, shut=True),
        Slow("half-closed in the headers", server, head.encode(), {400, 408, None}, shut=True),
    ]


def abandon(server):
    """Connections that vanish at every stage, one of them with a reset."""
    head = f"POST /v1/agents HTTP/1.1\r\nhost: x\r\nx-api-key: {server.key}\r\ncontent-length: 1000000\r\n\r\n".encode()
    for data in (b"", b"GE", head, head + b"{" * 1000, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 100):
        with server.connect() as sock:
            sock.sendall(data)
            if len(data) > 1000:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def run_table(server, cases):
    failures = []
    for case in cases:
        try:
            wrong = problems(case, send(server, case))
        except (OSError, AssertionError) as e:
            wrong = [repr(e)]
        failures += [f"{case['name']}: {w}" for w in wrong]
    return failures


def load_cases(server):
    with open(CASES, encoding="utf-8") as f:
        cases = json.load(f)
    return [c for c in cases if server.database or "{foreign_" not in json.dumps(c)]


def check(server):
    """All failures as text."""
    server.make_objects()
    cases = load_cases(server)
    before = server.client.events(server.names["session"])
    slow = slow_ones(server)
    for t in slow:
        t.start()
    failures = run_table(server, cases)
    for t in slow:
        t.join(SLOW_S + 5)
        if t.result:
            failures.append(f"{t.name}: {t.result}")
    abandon(server)
    if server.client.events(server.names["session"]) != before:
        failures.append("a refused request left something in the session")
    if server.pid:
        failures += check_leaks(server, cases)
    print(f"{len(cases)} requests, {len(slow)} slow ones, {len(failures)} failures")
    return failures


def check_leaks(server, cases):
    """The first run has warmed caches and pools; two more may not add to it."""
    out = []
    descriptors, memory = server.descriptors(), server.memory()
    for _ in range(2):
        run_table(server, cases)
        abandon(server)
    try:
        wait_for("the descriptors are closed", lambda: server.descriptors() <= descriptors, 20, every=0.1)
    except AssertionError:
        out.append(f"descriptors: {descriptors} before, {server.descriptors()} after")
    grown = server.memory() - memory
    with open(f"/proc/{server.pid}/maps", encoding="utf-8") as f:
        sanitized = "asan" in f.read()  # its quarantine keeps what was freed
    if grown > GROWTH and not sanitized:
        out.append(f"memory grew by {grown} bytes")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", required=True, help="base URL of a server that runs")
    parser.add_argument("--key", default=os.environ.get("MANGO_API_KEY"))
    parser.add_argument("--pid", type=int, help="its process, to look at memory and descriptors")
    args = parser.parse_args()
    url = urllib.parse.urlsplit(args.url)
    failures = check(Server(url.hostname, url.port or 80, args.key, args.pid))
    print("\n".join(failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
