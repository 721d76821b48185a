"""A small client of Mango's HTTP API for the end-to-end tests: JSON calls and the SSE stream, standard library only."""
import http.client
import json
import socket
import time

CALL_S = 30  # seconds that any call may take; every wait of a test has a deadline


class ApiError(Exception):
    """An answer outside of 2xx."""

    def __init__(self, status, body, headers):
        self.status, self.body, self.headers = status, body, headers
        try:
            error = json.loads(body)["error"]
            self.type, self.message = error["type"], error["message"]
        except (ValueError, KeyError, TypeError):
            self.type, self.message = None, body[:500]
        super().__init__(f"{status} {self.type}: {self.message}")


class Client:
    def __init__(self, port, key, host="127.0.0.1"):
        self.host, self.port, self.key = host, port, key

    def headers(self, extra=None):
        out = {"x-api-key": self.key, "anthropic-version": "2023-06-01"}
        out.update(extra or {})
        return {name: value for name, value in out.items() if value is not None}

    def raw(self, method, path, body=None, headers=None, timeout=CALL_S):
        """(status, headers, body bytes), whatever the status."""
        conn = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            conn.request(method, path, body=body, headers=self.headers(headers))
            answer = conn.getresponse()
            return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read()
        finally:
            conn.close()

    def call(self, method, path, body=None, headers=None):
        data = None if body is None else json.dumps(body).encode()
        head = {} if data is None else {"content-type": "application/json"}
        head.update(headers or {})
        status, answer_headers, text = self.raw(method, path, data, head)
        if status >= 300:
            raise ApiError(status, text.decode(errors="replace"), answer_headers)
        return json.loads(text) if text else None

    def get(self, path):
        return self.call("GET", path)

    def post(self, path, body=None):
        return self.call("POST", path, body)

    def delete(self, path):
        return self.call("DELETE", path)

    def pages(self, path):
        """All items of a list, page by page. path: with its query."""
        out, page = [], ""
        while page is not None:
            answer = self.get(path + (f"&page={page}" if page else ""))
            out, page = out + answer["data"], answer["next_page"]
        return out

    # What nearly every test needs.

    def new_session(self, environment="cloud", tools=True, **session):
        """An agent, an environment and a session on them; returns the session."""
        agent = {"name": "test", "model": "mango-test"}
        if tools:
            agent["tools"] = [{"type": "agent_toolset_20260401"}]
        agent_id = self.post("/v1/agents", agent)["id"]
        config = {"type": environment}
        environment_id = self.post("/v1/environments", {"name": f"env-{time.monotonic_ns()}", "config": config})["id"]
        return self.post("/v1/sessions", {"agent": agent_id, "environment_id": environment_id, **session})

    def say(self, session_id, text):
        event = {"type": "user.message", "content": [{"type": "text", "text": text}]}
        return self.post(f"/v1/sessions/{session_id}/events", {"events": [event]})

    def events(self, session_id, order="asc"):
        """All stored events of a session."""
        return self.pages(f"/v1/sessions/{session_id}/events?limit=100&order={order}")

    def stream(self, session_id, after=None, timeout=CALL_S, query=""):
        path = f"/v1/sessions/{session_id}/events/stream"
        if query:
            path += "?" + query
        return Stream(self, path, {"last-event-id": after} if after else {}, timeout)


class Stream:
    """An open SSE stream; iterate over its events. Comments and pings are left out."""

    def __init__(self, client, path, headers, timeout):
        self.deadline = time.monotonic() + timeout
        self.conn = http.client.HTTPConnection(client.host, client.port, timeout=timeout)
        self.conn.request("GET", path, headers=client.headers(headers))
        self.answer = self.conn.getresponse()
        self.status = self.answer.status
        self.last_id = None
        if self.status != 200:
            raise ApiError(self.status, self.answer.read().decode(errors="replace"), dict(self.answer.getheaders()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.conn.close()

    def frames(self):
        """(event name, id, data text) of each frame as it came; ends with the connection."""
        name, ident, data = None, None, []
        while True:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the stream brought nothing more in time")
            if self.conn.sock:
                self.conn.sock.settimeout(left)
            try:
                line = self.answer.readline()
            except socket.timeout as e:
                raise TimeoutError("the stream brought nothing more in time") from e
            if not line:
                return
            line = line.decode().rstrip("\r\n")
            if not line:
                if data:
                    yield name, ident, "\n".join(data)
                name, ident, data = None, None, []
                continue
            field, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if field == "event":
                name = value
            elif field == "id":
                ident = value
            elif field == "data":
                data.append(value)

    def __iter__(self):
        for name, ident, data in self.frames():
            if ident:
                self.last_id = ident
            if name != "ping":
                yield json.loads(data)

    def until(self, *types):
        """Events up to the first one of these types, that one included."""
        out = []
        for event in self:
            out.append(event)
            if event["type"] in types:
                return out
        raise ConnectionError(f"the stream ended before {' or '.join(types)}; it brought {[e['type'] for e in out]}")
