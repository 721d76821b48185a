"""Who may call what: every endpoint of /openapi.json against every kind of credential, with the exact status of each cell."""
import http.client
import json
import os
import re
import subprocess
import time
import unittest

from api import ApiError, Client
from harness import BUILD, Mangod, main, wait_for
from work_rig import Worker

# The columns of the tables.
WHO = ["none", "api", "other", "env", "env_other", "token", "rotated", "stopped"]
NAMES = {
    "none": "no credential",
    "api": "an API key of the workspace",
    "other": "an API key of another workspace",
    "env": "the environment's key",
    "env_other": "another environment's key",
    "token": "the token of the item that holds the session",
    "rotated": "the token of a claim that another poller took over",
    "stopped": "the token of an item that was stopped",
}

# Below /v1/environments/{id}/work. The state is the item's when the call comes: queued (not polled), claimed (polled) or active.
WORK = [
    # method, path, body, state, none api other env env_other token rotated stopped
    ("GET", "/poll", None, "queued", 401, 200, 404, 200, 403, 403, 401, 401),
    ("GET", "/stats", None, "active", 401, 200, 404, 200, 403, 403, 401, 401),
    ("GET", "", None, "active", 401, 200, 404, 403, 403, 403, 401, 401),
    ("GET", "/{work}", None, "active", 401, 200, 404, 403, 403, 403, 401, 401),
    ("POST", "/{work}", {"metadata": {"a": "b"}}, "active", 401, 200, 404, 403, 403, 403, 401, 401),
    ("POST", "/{work}/ack", None, "claimed", 401, 200, 404, 200, 403, 200, 409, 409),
    ("POST", "/{work}/heartbeat", None, "active", 401, 200, 404, 403, 403, 200, 412, 200),
    ("POST", "/{work}/stop", {"force": True}, "active", 401, 200, 404, 403, 403, 200, 200, 200),
    ("POST", "/{work}/fail", {"requeue": True}, "active", 401, 200, 404, 403, 403, 200, 409, 409),
]
RESULT, MESSAGE = "a result", "a message"
SESSION = [
    ("GET", "", None, "active", 401, 200, 404, 403, 403, 200, 401, 401),
    ("GET", "/events", None, "active", 401, 200, 404, 403, 403, 200, 401, 401),
    ("GET", "/events/stream", None, "active", 401, 200, 404, 403, 403, 200, 401, 401),
    ("POST", "/events", RESULT, "active", 401, 200, 404, 403, 403, 200, 401, 401),
    ("POST", "/events", MESSAGE, "active", 401, 200, 404, 403, 403, 403, 401, 401),
]
# With MANGO_WORK_ALLOW_ENVIRONMENT_KEY=1, for a key of the environment, while a worker holds the session and when none does.
ALLOWED = [
    ("GET", "work", "", None, 200, 200),
    ("POST", "work", "/{work}/heartbeat", None, 200, 412),
    ("POST", "work", "/{work}/stop", {"force": True}, 200, 200),
    ("POST", "work", "/{work}/fail", {"requeue": True}, 200, 409),
    ("GET", "work", "/{work}", None, 403, 403),
    ("GET", "session", "", None, 200, 403),
    ("GET", "session", "/events", None, 200, 403),
    ("GET", "session", "/events/stream", None, 200, 403),
    ("POST", "session", "/events", RESULT, 200, 403),
    ("POST", "session", "/events", MESSAGE, 403, 403),
]
PUBLIC = {"/healthz", "/readyz", "/openapi.json"}
# Of all other endpoints: what they are is in their own tests; here, that nobody but an API key gets in.
REST = {"none": 401, "env": 403, "env_other": 403, "token": 403, "rotated": 401, "stopped": 401}


class Fixture:
    """A server with two workspaces, two environments and their keys, and items in each state."""

    def __init__(self, **env):
        self.server = Mangod(sandbox=None, env=env)

    def __enter__(self):
        self.server.__enter__()
        self.client = self.server.client
        self.agent = self.client.post("/v1/agents", {"name": "a", "model": "m", "tools": [{"type": "agent_toolset_20260401"}]})["id"]
        self.env, self.env2 = self.environment(), self.environment()
        self.server.database.query("INSERT INTO workspaces (id, name) VALUES ('wrkspc_other', 'Other')")
        self.keys = {
            "none": None,
            "api": self.client.key,
            "other": self.issue("--workspace", "wrkspc_other"),
            "env": self.issue("--environment", self.env),
            "env_other": self.issue("--environment", self.env2),
        }
        return self

    def __exit__(self, *exc):
        return self.server.__exit__(*exc)

    def environment(self):
        return self.client.post("/v1/environments", {"name": f"e{time.monotonic_ns()}", "config": {"type": "self_hosted"}})["id"]

    def mango(self, *words):
        done = subprocess.run([os.path.join(BUILD, "mango"), *words], env=self.server.environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def mango_lines(self, *words):
        done = subprocess.run([os.path.join(BUILD, "mango"), *words], env=self.server.environment(), capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def issue(self, *options):
        return self.mango("api-key", "create", *options, "test")["key"]

    def session(self):
        """One with an open call of a worker."""
        s = self.client.post("/v1/sessions", {"agent": self.agent, "environment_id": self.env})["id"]
        self.client.say(s, "run: true")
        wait_for("its call is open", lambda: [e for e in self.client.events(s) if e["type"] == "agent.tool_use"])
        return s

    def empty(self):
        """Nothing is queued for the next claim to get instead."""
        w = Worker(self.client, self.env)
        while w.poll(reclaim_older_than_ms=0):
            self.client.post(f"/v1/sessions/{w.session}/events", {"events": [{"type": "user.interrupt"}]})
            w.stop()

    def item(self, state):
        """A worker whose item is in this state; its session has an open call."""
        self.empty()
        w = Worker(self.client, self.env)
        session = self.session()
        if state == "queued":
            w.session, w.id = session, "work_none"
            return w
        w.poll_until()
        assert w.session == session
        if state in ("active", "stopped"):
            w.ack()
            w.heartbeat()
        if state == "stopped":
            w.stop()
        if state == "rotated":
            Worker(self.client, self.env).poll_until(reclaim_older_than_ms=0)
        return w

    def cell(self, who, state):
        """(worker, key) with which the call of a cell is made."""
        if who in ("rotated", "stopped"):
            w = self.item(who)
            return w, w.token
        if who == "token" and state == "queued":
            w = self.item("active")
            return w, w.token
        w = self.item(state)
        return w, w.token if who == "token" else self.keys[who]


def events_of(w, client, kind):
    if kind == MESSAGE:
        return {"events": [{"type": "user.message", "content": [{"type": "text", "text": "hi"}]}]}
    calls = [e["id"] for e in client.events(w.session) if e["type"] == "agent.tool_use"]
    return {"events": [{"type": "user.tool_result", "tool_use_id": calls[0], "content": []}]}


def call(f, w, key, method, base, path, body):
    """The status of one call."""
    path = (f"/v1/environments/{w.environment}/work" if base == "work" else f"/v1/sessions/{w.session}") + path.replace("{work}", w.id)
    if body in (RESULT, MESSAGE):
        body = events_of(w, f.client, body)
    client = Client(f.client.port, key)
    if path.endswith("/stream"):
        conn = http.client.HTTPConnection(client.host, client.port, timeout=20)
        conn.request(method, path, headers=client.headers())
        answer = conn.getresponse()
        conn.close()
        return answer.status, ""
    data = None if body is None else json.dumps(body).encode()
    status, _, text = client.raw(method, path, data, {"content-type": "application/json"} if data else {})
    return status, text.decode()


class Matrix(unittest.TestCase):
    maxDiff = None

    def check_table(self, f, base, table):
        for method, path, body, state, *statuses in table:
            for who, want in zip(WHO, statuses):
                with self.subTest(f"{method} {base}{path} {body if isinstance(body, str) else ''} with {NAMES[who]}"):
                    w, key = f.cell(who, state)
                    got, text = call(f, w, key, method, base, path, body)
                    self.assertEqual(got, want, text)

    def test_case_08_a_workers_endpoints_take_exactly_these_credentials(self):
        with Fixture() as f:
            self.check_table(f, "work", WORK)
            self.check_table(f, "session", SESSION)
            w, other = f.item("active"), f.session()
            for path in (f"/v1/sessions/{other}", f"/v1/sessions/{other}/events"):
                self.assertEqual(Client(f.client.port, w.token).raw("GET", path)[0], 403, "a token is for its own session")
            second = Worker(f.client, f.env)
            second.poll_until()
            for action in ("ack", "heartbeat", "stop"):
                self.assertEqual(Client(f.client.port, w.token).raw("POST", second.path(second.id, action))[0], 403, "and for its own item")
            for type_ in ("user.interrupt", "user.tool_confirmation", "system.message"):
                event = {"type": type_, "tool_use_id": "sevt_x", "result": "allow"} if "confirmation" in type_ else {"type": type_}
                if type_ == "system.message":
                    event["content"] = [{"type": "text", "text": "x"}]
                    event = [{"type": "user.tool_result", "tool_use_id": "sevt_x"}, event]
                body = json.dumps({"events": event if isinstance(event, list) else [event]}).encode()
                status, _, text = Client(f.client.port, w.token).raw("POST", f"/v1/sessions/{w.session}/events", body, {"content-type": "application/json"})
                self.assertEqual((status, type_ in text.decode()), (403, True), text)

    def test_case_08_a_refusal_names_what_is_accepted_and_an_item_survives_an_upgrade(self):
        with Fixture() as f:
            w = f.item("active")
            body = events_of(w, f.client, RESULT)
            with self.assertRaises(ApiError) as caught:
                Client(f.client.port, f.keys["env"]).post(f"/v1/sessions/{w.session}/events", body)
            self.assertIn("work item", caught.exception.message)
            self.assertIn("secret", caught.exception.message)
            f.server.restart()  # an upgrade, as the worker sees it
            self.assertTrue(w.heartbeat()["lease_extended"])
            made = w.client.post(f"/v1/sessions/{w.session}/events", body)
            self.assertEqual("user.tool_result", made["data"][0]["type"])
            self.assertEqual([], w.open_calls())

    def test_where_the_operator_lets_environment_keys_act_for_sessions(self):
        with Fixture(MANGO_WORK_ALLOW_ENVIRONMENT_KEY="1") as f:
            for method, base, path, body, held, free in ALLOWED:
                for state, want in (("active", held), ("rotated" if "work" == base and path else "stopped", free)):
                    with self.subTest(f"{method} {base}{path} {body if isinstance(body, str) else ''} while the item is {state}"):
                        w = f.item(state)
                        got, text = call(f, w, f.keys["env"], method, base, path, body)
                        self.assertEqual(got, want, text)
                        w = f.item("active")
                        self.assertEqual(call(f, w, f.keys["env_other"], method, base, path, body)[0], 403, "of another environment, never")

    def test_every_other_endpoint_takes_api_keys_only(self):
        own = {("GET" if m == "GET" else "POST", f"/v1/environments/{{environment_id}}/work{p}".replace("{work}", "{work_id}")) for m, p, *_ in WORK}
        own |= {(m, f"/v1/sessions/{{session_id}}{p}") for m, p, *_ in SESSION}
        with Fixture() as f:
            live, rotated, stopped = f.item("active"), f.item("rotated"), f.item("stopped")
            keys = {**f.keys, "token": live.token, "rotated": rotated.token, "stopped": stopped.token}
            paths = f.client.get("/openapi.json")["paths"]
            self.assertEqual([p for p in own if p[1] not in paths or p[0].lower() not in paths[p[1]]], [])
            for template, methods in paths.items():
                path = template.replace("{environment_id}", f.env).replace("{session_id}", live.session).replace("{work_id}", live.id)
                path = re.sub(r"\{[^}]*\}", "id_of_nothing", path)
                for method in methods:
                    if template in PUBLIC or template == "/v1/stream" or template.endswith("/ws") or (method.upper(), template) in own:
                        continue
                    for who, want in REST.items():
                        with self.subTest(f"{method.upper()} {template} with {NAMES[who]}"):
                            body = b"{}" if method == "post" else None
                            status, _, text = Client(f.client.port, keys[who]).raw(method.upper(), path, body, {"content-type": "application/json"} if body else {})
                            self.assertEqual(status, want, text)
            for template in PUBLIC:
                self.assertEqual(Client(f.client.port, None).raw("GET", template)[0], 200)
            upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==", "sec-websocket-protocol": "mango.v1"}
            for path in ("/v1/stream", f"/v1/sessions/{live.session}/events/ws"):
                for who, want in REST.items():
                    self.assertEqual(Client(f.client.port, keys[who]).raw("GET", path, None, upgrade)[0], want, f"{path} with {NAMES[who]}")


class Keys(unittest.TestCase):
    def test_a_revoked_environment_key_claims_nothing_at_once_and_leaves_acknowledged_items_alone(self):
        with Fixture() as f:
            made = f.mango("api-key", "create", "--environment", f.env, "fleeting")
            held, claimed = Worker(f.client, f.env, made["key"]), Worker(f.client, f.env, made["key"])
            f.session()
            held.claim()
            f.session()
            claimed.poll_until()
            f.session()
            f.mango("api-key", "revoke", made["id"])
            for call_ in (claimed.ack, held.poll):
                with self.assertRaises(Exception) as e:
                    call_()
                self.assertEqual(e.exception.status, 401, e.exception.message)
            self.assertEqual(f.client.get(f"/v1/environments/{f.env}/work/stats")["depth"], 1)
            held.client, held.work = Client(f.client.port, held.token), None
            self.assertTrue(held.heartbeat()["lease_extended"])
            held.answer(held.wait_calls()[0])
            self.assertIn("environment_id", [k for k in f.mango_lines("api-key", "list") if k["id"] == made["id"]][0])


if __name__ == "__main__":
    main()
