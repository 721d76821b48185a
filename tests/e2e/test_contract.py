"""The contract as a client sees it: every documented field takes effect, lists walk without gap or repeat, streams begin where they were told to."""
import json
import threading
import unittest
import urllib.parse

from api import ApiError, Client
from harness import Mangod, main, wait_for
from ws import HandshakeError, WebSocket

TOOLSET = {
    "type": "agent_toolset_20260401",
    "default_config": {"enabled": True, "permission_policy": {"type": "always_allow"}},
    "configs": [{"type": "bash", "name": "bash", "enabled": True, "permission_policy": {"type": "always_ask"}}],
}
CUSTOM = {"type": "custom", "name": "lookup", "description": "looks up", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}
TIMES = {"created_at", "updated_at", "archived_at"}
AGENT_MEMBERS = {"id", "type", "version", "name", "description", "system", "model", "tools", "mcp_servers", "skills", "multiagent", "execution_identity"}
SESSION_MEMBERS = {
    "id", "type", "agent", "environment_id", "status", "title", "metadata", "resources", "vault_ids", "outcome_evaluations", "stats", "usage", "budget",
    "deployment_id",
}  # fmt: skip


def text(value):
    return {"type": "user.message", "content": [{"type": "text", "text": value}]}


class Contract(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Mangod(sandbox=None)
        cls.server.__enter__()
        cls.c = cls.server.client

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def agent(self, **fields):
        return self.c.post("/v1/agents", {"name": "a", "model": "mango-test", **fields})

    def environment(self, **fields):
        return self.c.post("/v1/environments", {"name": "e", **fields})

    def session(self, agent=None, environment=None, **fields):
        made = {"agent": agent or self.agent()["id"], "environment_id": environment or self.environment(config={"type": "cloud"})["id"]}
        return self.c.post("/v1/sessions", {**made, **fields})

    def refused(self, status, *call):
        with self.assertRaises(ApiError) as caught:
            self.c.call(*call)
        self.assertEqual(status, caught.exception.status, caught.exception)
        return caught.exception

    def idle(self, session_id):
        return wait_for("the session is idle", lambda: (lambda s: s if s["status"] == "idle" else None)(self.c.get(f"/v1/sessions/{session_id}")))

    # ---- fields ----

    def test_case_11_each_field_of_an_agent_takes_effect(self):
        cases = [
            ({"name": "n"}, "n"),
            ({"description": "d"}, "d"),
            ({"description": None}, None),
            ({"system": "s\u0000é"}, "s\u0000é"),
            ({"model": "m"}, {"id": "m", "speed": "standard"}),
            ({"model": {"id": "m", "effort": "high", "speed": "fast", "inference_geo": "eu"}},
             {"id": "m", "effort": {"type": "high"}, "speed": "fast", "inference_geo": "eu"}),
            ({"tools": [TOOLSET, CUSTOM]}, [TOOLSET, CUSTOM]),
            ({"tools": None}, []),
            ({"skills": []}, []),
            ({"metadata": {"k": "v"}}, {"k": "v"}),
            ({"multiagent": None}, None),
            ({"execution_identity": {"type": "service_account"}}, {"type": "service_account"}),
            ({"execution_identity": None}, {"type": "service_account"}),
        ]  # fmt: skip
        for fields, shown in cases:
            with self.subTest(fields=fields):
                made = self.agent(**fields)
                (name,) = fields
                self.assertEqual(shown, made[name])
                self.assertEqual(AGENT_MEMBERS | {"metadata"} | TIMES, set(made))
                self.assertEqual(made, self.c.get(f"/v1/agents/{made['id']}"))

    def test_case_11_each_field_of_an_environment_takes_effect(self):
        limited = {"type": "limited", "allowed_hosts": ["*.example.com"], "allow_mcp_servers": True, "allow_package_managers": True}
        packages = {"apt": ["jq"], "cargo": [], "gem": [], "go": [], "npm": [], "pip": ["requests==2"], "type": "packages"}
        cloud = {"type": "cloud", "networking": limited, "packages": packages}
        for fields, shown in [
            ({"name": "n"}, "n"),
            ({"description": "d"}, "d"),
            ({"config": cloud}, cloud),
            ({"config": {"type": "self_hosted"}}, {"type": "self_hosted"}),
            ({"config": None}, {"type": "self_hosted"}),
            ({"metadata": {"k": "v"}}, {"k": "v"}),
            ({"scope": "organization"}, "organization"),
        ]:
            with self.subTest(fields=fields):
                made = self.environment(**fields)
                (name,) = fields
                self.assertEqual(shown, made[name])
                self.assertEqual({"id", "type", "name", "description", "config", "metadata", "scope"} | TIMES, set(made))

    def test_case_11_each_field_of_a_session_takes_effect(self):
        agent = self.agent(system="s", tools=[TOOLSET], metadata={"k": "v"})
        updated = self.c.post(f"/v1/agents/{agent['id']}", {"system": "t"})
        overrides = {"type": "agent_with_overrides", "id": agent["id"], "version": 1, "model": "other", "system": None, "tools": [CUSTOM]}
        plain = self.session(agent["id"])
        self.assertEqual(SESSION_MEMBERS | TIMES, set(plain))
        self.assertEqual({k: updated[k] for k in AGENT_MEMBERS}, plain["agent"])
        self.assertEqual("idle", plain["status"])
        self.assertEqual(1, self.session({"type": "agent", "id": agent["id"], "version": 1})["agent"]["version"])
        other = self.session(overrides)["agent"]
        self.assertEqual(({"id": "other", "speed": "standard"}, None, [CUSTOM], 1), (other["model"], other["system"], other["tools"], other["version"]))
        self.assertEqual("t", self.session(title="t")["title"])
        self.assertEqual({"k": "v"}, self.session(metadata={"k": "v"})["metadata"])
        for name in ("resources", "vault_ids"):
            self.assertEqual([], self.session(**{name: []})[name])
        running = self.session(initial_events=[text("one"), text("two")])
        self.assertEqual("running", running["status"])
        self.idle(running["id"])
        sent = [e for e in self.c.events(running["id"]) if e["type"] == "user.message"]
        self.assertEqual(["one", "two"], [e["content"][0]["text"] for e in sent])

    def test_case_27_nul_comes_back_as_it_was_sent(self):
        session = self.session()
        sent = self.c.say(session["id"], "a\u0000b")["data"][0]
        self.assertEqual("a\u0000b", sent["content"][0]["text"])
        self.idle(session["id"])
        self.assertEqual(sent["content"], self.c.events(session["id"])[0]["content"])

    # ---- objects ----

    def test_an_agent_gets_a_version_only_when_it_changes(self):
        a = self.agent(metadata={"k": "v"})
        self.assertEqual(1, self.c.post(f"/v1/agents/{a['id']}", {"name": "a", "metadata": {"k": "v"}})["version"])
        b = self.c.post(f"/v1/agents/{a['id']}", {"version": 1, "name": "b", "metadata": {"k": None, "l": "w"}})
        self.assertEqual((2, "b", {"l": "w"}), (b["version"], b["name"], b["metadata"]))
        e = self.refused(409, "POST", f"/v1/agents/{a['id']}", {"version": 1, "name": "c"})
        self.assertEqual("false", e.headers.get("x-should-retry"))
        self.assertEqual("a", self.c.get(f"/v1/agents/{a['id']}?version=1")["name"])
        self.assertEqual([2, 1], [x["version"] for x in self.c.get(f"/v1/agents/{a['id']}/versions")["data"]])
        archived = self.c.post(f"/v1/agents/{a['id']}/archive")
        self.assertIsNotNone(archived["archived_at"])
        self.assertEqual(archived, self.c.post(f"/v1/agents/{a['id']}/archive", {}))
        self.assertNotIn(a["id"], [x["id"] for x in self.walk("/v1/agents?limit=100")])
        self.assertIn(a["id"], [x["id"] for x in self.walk("/v1/agents?limit=100&include_archived=true")])

    def test_many_updates_at_once_make_one_version_each(self):
        a = self.agent()
        threads = [threading.Thread(target=self.c.post, args=(f"/v1/agents/{a['id']}", {"name": f"n{i}"})) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        versions = self.c.get(f"/v1/agents/{a['id']}/versions")["data"]
        self.assertEqual(list(range(9, 0, -1)), [v["version"] for v in versions])
        self.assertEqual(9, len({v["name"] for v in versions}))

    def test_an_environment_is_deleted_only_when_no_session_uses_it(self):
        e = self.environment(config={"type": "cloud"})
        s = self.session(environment=e["id"])
        self.refused(409, "DELETE", f"/v1/environments/{e['id']}")
        self.c.post(f"/v1/environments/{e['id']}/archive")
        self.assertEqual("environment_archived", json.loads(self.refused(400, "POST", f"/v1/environments/{e['id']}", {"name": "x"}).body)["error"]["details"]["error_code"])
        self.assertEqual({"id": s["id"], "type": "session_deleted"}, self.c.delete(f"/v1/sessions/{s['id']}"))
        self.refused(404, "GET", f"/v1/sessions/{s['id']}")
        self.assertEqual({"id": e["id"], "type": "environment_deleted"}, self.c.delete(f"/v1/environments/{e['id']}"))
        unused = self.environment()
        self.assertEqual({"id": unused["id"], "type": "environment_deleted"}, self.c.delete(f"/v1/environments/{unused['id']}"))

    def test_an_update_of_a_session_writes_one_event_with_what_changed(self):
        s = self.session(title="t", metadata={"k": "v"})
        path = f"/v1/sessions/{s['id']}"
        self.assertEqual(s["updated_at"], self.c.post(path, {"title": "t", "metadata": {"k": "v"}})["updated_at"])
        self.assertEqual([], self.c.events(s["id"]))
        self.assertEqual(("u", {}), (lambda x: (x["title"], x["metadata"]))(self.c.post(path, {"title": "u", "metadata": {"k": None}})))
        self.c.post(path, {"agent": {"tools": [CUSTOM]}})
        self.c.post(path, {"title": None})
        events = self.c.events(s["id"])
        self.assertEqual([{"title": "u", "metadata": {}}, "agent", {"title": None}],
                         [{k: v for k, v in e.items() if k not in ("id", "type", "processed_at")} if "agent" not in e else "agent" for e in events])  # fmt: skip
        self.assertEqual([CUSTOM], events[1]["agent"]["tools"])
        self.assertTrue(all(e["type"] == "session.updated" and e["processed_at"] for e in events))

    def test_a_session_that_waits_for_a_tool_keeps_its_tools_and_may_be_archived(self):
        agent = self.agent(tools=[{"type": "agent_toolset_20260401"}])
        s = self.session(agent["id"], self.environment(config={"type": "self_hosted"})["id"])
        self.c.say(s["id"], "run: true")
        wait_for("the call waits", lambda: [e for e in self.c.events(s["id"]) if e["type"] == "agent.tool_use"])
        self.assertEqual("running", self.c.get(f"/v1/sessions/{s['id']}")["status"], "a worker's call is nothing that a client must act on")
        self.refused(409, "POST", f"/v1/sessions/{s['id']}", {"agent": {"tools": []}})
        self.c.post(f"/v1/sessions/{s['id']}", {"title": "still"})
        done = self.c.post(f"/v1/sessions/{s['id']}/archive")
        self.assertEqual("terminated", done["status"])
        self.assertEqual(done["archived_at"], self.c.post(f"/v1/sessions/{s['id']}/archive")["archived_at"])
        types = [e["type"] for e in self.c.events(s["id"])]
        self.assertEqual(types.count("agent.tool_use"), types.count("user.tool_result"), "an archived session leaves no open call")
        self.assertEqual("session.status_terminated", types[-1])
        self.refused(409, "POST", f"/v1/sessions/{s['id']}/events", {"events": [text("x")]})
        self.c.delete(f"/v1/sessions/{s['id']}")

    def test_a_deleted_session_ends_its_streams(self):
        s = self.session()
        with self.c.stream(s["id"]) as stream:
            self.c.delete(f"/v1/sessions/{s['id']}")
            self.assertEqual("session.deleted", stream.until("session.deleted")[-1]["type"])
            self.assertEqual([], list(stream))

    def test_each_session_has_its_primary_thread(self):
        s = self.session()
        (thread,) = self.c.get(f"/v1/sessions/{s['id']}/threads")["data"]
        self.assertEqual(("session_thread", s["id"], None, "idle"), tuple(thread[k] for k in ("type", "session_id", "parent_thread_id", "status")))
        self.assertNotIn("multiagent", thread["agent"])
        path = f"/v1/sessions/{s['id']}/threads/{thread['id']}"
        self.assertEqual(thread["id"], self.c.get(path)["id"])
        self.assertEqual([], self.c.get(f"/v1/sessions/{s['id']}/threads?statuses%5B%5D=running")["data"])
        self.c.post(f"/v1/sessions/{s['id']}", {"title": "t"})
        self.assertEqual(self.c.events(s["id"]), self.c.get(path + "/events")["data"])

    # ---- lists ----

    def walk(self, path):
        out, page = [], None
        while True:
            answer = self.c.get(path + (f"&page={urllib.parse.quote(page)}" if page else ""))
            out += answer["data"]
            page = answer["next_page"]
            if page:
                self.assertTrue(answer["data"], "an empty page has no cursor")
            else:
                return out

    def test_lists_walk_without_gap_or_repeat(self):
        agent, environment = self.agent()["id"], self.environment(config={"type": "cloud"})["id"]
        made = [self.session(agent, environment, title=str(i))["id"] for i in range(11)]
        for limit in (1, 2, 5, 11, 100):
            self.assertEqual(made[::-1], [s["id"] for s in self.walk(f"/v1/sessions?agent_id={agent}&limit={limit}")])
            self.assertEqual(made, [s["id"] for s in self.walk(f"/v1/sessions?agent_id={agent}&order=asc&limit={limit}")])
        for kind in ("agents", "environments"):
            for _ in range(4):
                self.agent() if kind == "agents" else self.environment()
            ids = [x["id"] for x in self.walk(f"/v1/{kind}?limit=3")]
            self.assertEqual(len(ids), len(set(ids)))
            self.assertEqual(ids, [x["id"] for x in self.walk(f"/v1/{kind}?limit=100")])

    def test_the_session_list_goes_both_ways(self):
        agent, environment = self.agent()["id"], self.environment(config={"type": "cloud"})["id"]
        made = [self.session(agent, environment)["id"] for i in range(7)][::-1]
        path = f"/v1/sessions?agent_id={agent}&limit=3"
        first = self.c.get(path)
        self.assertIsNone(first["prev_page"])
        second = self.c.get(f"{path}&page={first['next_page']}")
        third = self.c.get(f"{path}&page={second['next_page']}")
        self.assertIsNone(third["next_page"])
        self.assertEqual(made, [s["id"] for p in (first, second, third) for s in p["data"]])
        back = self.c.get(f"{path}&page={third['prev_page']}")
        self.assertEqual([s["id"] for s in second["data"]], [s["id"] for s in back["data"]])
        start = self.c.get(f"{path}&page={back['prev_page']}")
        self.assertEqual([s["id"] for s in first["data"]], [s["id"] for s in start["data"]])
        self.assertIsNone(start["prev_page"])
        self.assertEqual([s["id"] for s in second["data"]], [s["id"] for s in self.c.get(f"{path}&page={start['next_page']}")["data"]])

    def test_every_filter_of_the_session_list_filters(self):
        agent, environment = self.agent()["id"], self.environment(config={"type": "cloud"})["id"]
        old = self.session({"type": "agent", "id": agent, "version": 1}, environment)
        self.c.post(f"/v1/agents/{agent}", {"name": "b"})
        new = self.session(agent, environment)
        self.c.post(f"/v1/sessions/{old['id']}/archive")
        both = [new["id"], old["id"]]
        at = urllib.parse.quote(new["created_at"])
        for query, ids in [
            ("", [new["id"]]),
            ("&include_archived=true", both),
            ("&include_archived=true&agent_version=1", [old["id"]]),
            ("&agent_version=2", [new["id"]]),
            ("&include_archived=true&statuses%5B%5D=terminated", [old["id"]]),
            ("&include_archived=true&statuses=idle&statuses=terminated", both),
            ("&statuses%5B%5D=running", []),
            ("&deployment_id=dep_1", []),
            ("&memory_store_id=memstore_1", []),
            (f"&include_archived=true&created_at%5Bgte%5D={at}", [new["id"]]),
            (f"&include_archived=true&created_at%5Bgt%5D={at}", []),
            (f"&include_archived=true&created_at%5Blt%5D={at}", [old["id"]]),
            (f"&include_archived=true&created_at%5Blte%5D={at}", both),
        ]:
            with self.subTest(query=query):
                self.assertEqual(ids, [s["id"] for s in self.c.get(f"/v1/sessions?agent_id={agent}{query}")["data"]])

    def test_case_12_a_walk_back_over_growing_events_has_no_gap(self):
        s = self.session()
        path = f"/v1/sessions/{s['id']}"
        for i in range(60):
            self.c.post(path, {"title": f"t{i}"})
        stop = threading.Event()

        def grow():
            i = 0
            while not stop.is_set():
                self.c.post(path, {"title": f"more{i}"})
                i += 1

        grower = threading.Thread(target=grow)
        grower.start()
        try:
            back = self.walk(f"{path}/events?order=desc&limit=10&types%5B%5D=session.updated")
        finally:
            stop.set()
            grower.join()
        titles = [e["title"] for e in self.c.events(s["id"])]
        start = titles.index(back[0]["title"])
        self.assertEqual(titles[: start + 1][::-1], [e["title"] for e in back])

    def test_events_are_filtered_by_type_and_time(self):
        s = self.session()
        self.c.say(s["id"], "hello")
        self.idle(s["id"])
        events = self.c.events(s["id"])
        path = f"/v1/sessions/{s['id']}/events?limit=1000"
        self.assertEqual([e for e in events if e["type"] in ("user.message", "agent.message")], self.c.get(path + "&types%5B%5D=user.message&types=agent.message")["data"])
        self.assertEqual(events[::-1], self.c.get(path + "&order=desc")["data"])
        last = urllib.parse.quote(events[-1]["processed_at"])
        self.assertEqual([e for e in events if e["processed_at"] < events[-1]["processed_at"]], self.c.get(f"{path}&created_at%5Blt%5D={last}")["data"])
        self.assertEqual([e for e in events if e["processed_at"] >= events[-1]["processed_at"]], self.c.get(f"{path}&created_at%5Bgte%5D={last}")["data"])

    def test_a_page_of_events_is_bounded_in_bytes(self):
        s = self.session()
        sent = [self.c.say(s["id"], chr(97 + i) * (7 * 1024 * 1024))["data"][0]["id"] for i in range(4)]
        status, _, first = self.c.raw("GET", f"/v1/sessions/{s['id']}/events?types=user.message")
        self.assertEqual(200, status)
        self.assertLess(len(first), 32 * 1024 * 1024)
        self.assertEqual(sent, [e["id"] for e in self.walk(f"/v1/sessions/{s['id']}/events?types=user.message")])

    # ---- streams ----

    def test_case_16_a_stream_begins_where_it_was_told_to(self):
        s = self.session()
        path = f"/v1/sessions/{s['id']}"
        for i in range(5):
            self.c.post(path, {"title": f"t{i}"})
        ids = [e["id"] for e in self.c.events(s["id"])]
        foreign = self.session()
        self.c.post(f"/v1/sessions/{foreign['id']}", {"title": "x"})
        other = self.c.events(foreign["id"])[0]["id"]

        def follow(after=None, query=""):
            with self.c.stream(s["id"], after=after, query=query) as stream:
                made = self.c.post(path, {"title": f"{after}{query}"})["title"]
                out = []
                for event in stream:
                    out.append(event["id"])
                    if event.get("title") == made:
                        return out[:-1]

        self.assertEqual([], follow())
        self.assertEqual([], follow(query="after="))
        now = [e["id"] for e in self.c.events(s["id"])]
        self.assertEqual(now, follow(query="after=start"))
        self.assertEqual([e["id"] for e in self.c.events(s["id"])][2:], follow(after=ids[1]))
        self.assertEqual([e["id"] for e in self.c.events(s["id"])][4:], follow(query=f"after={ids[3]}"))
        self.assertEqual([e["id"] for e in self.c.events(s["id"])][5:], follow(after=ids[4], query=f"after={ids[0]}"), "the header knows better")
        for bad in (other, "sevt_00000000000000000000000000", "x y"):
            with self.assertRaises(ApiError) as caught:
                self.c.stream(s["id"], query="after=" + urllib.parse.quote(bad))
            self.assertEqual((400, "invalid_request_error"), (caught.exception.status, caught.exception.type))

    def test_a_ticket_opens_one_socket(self):
        s = self.session()
        ticket = self.c.post("/v1/stream/tickets")
        self.assertEqual("stream_ticket", ticket["type"])
        path = f"/v1/sessions/{s['id']}/events/ws?ticket={ticket['ticket']}"
        with WebSocket("127.0.0.1", self.server.port, path) as ws:
            self.c.post(f"/v1/sessions/{s['id']}", {"title": "t"})
            self.assertEqual("session.updated", ws.receive_json(10)["type"])
        with self.assertRaises(HandshakeError) as caught:
            WebSocket("127.0.0.1", self.server.port, path)
        self.assertEqual(401, caught.exception.status)

    def test_a_send_with_the_same_key_is_done_once(self):
        s = self.session()
        send = {"op": "send", "ref": 1, "session_id": s["id"], "events": [text("once"), text("twice")], "idempotency_key": "k-1"}
        acks = []
        for _ in range(2):
            with WebSocket("127.0.0.1", self.server.port, "/v1/stream", {"x-api-key": self.server.key}, "mango.v1") as ws:
                ws.send(send)
                ws.send(dict(send, ref=2))
                acks += [m["event_ids"] for m in ws.until(lambda m: m.get("ref") == 2) if m.get("op") == "ack"]
        self.assertEqual(4, len(acks))
        self.assertEqual(1, len({tuple(a) for a in acks}))
        self.idle(s["id"])
        self.assertEqual(acks[0], [e["id"] for e in self.c.events(s["id"]) if e["type"] == "user.message"])

    # ---- dialects and description ----

    def test_both_dialects_are_understood(self):
        key = self.server.key
        for headers in (
            {"x-api-key": key, "anthropic-version": "2023-06-01", "anthropic-beta": "files-api-2025-04-14,managed-agents-2026-04-01"},
            {"x-api-key": None, "authorization": f"Bearer {key}", "anthropic-version": "2026-10-21"},
            {"x-api-key": None, "authorization": f"bearer  {key}", "anthropic-version": None},
            {"x-api-key": "wrong", "authorization": f"Bearer {key}", "anthropic-version": "1999-01-01"},
        ):
            for path in ("/v1/agents", "/v1/agents?beta=true", "/v1/sessions?beta=true&limit=1"):
                status, answer, body = self.c.raw("GET", path, headers=headers)
                self.assertEqual(200, status, body)
                self.assertTrue(answer["content-type"].startswith("application/json"))
                self.assertTrue(answer["request-id"].startswith("req_"))

    def test_the_description_is_whole(self):
        status, _, body = Client(self.server.port, None).raw("GET", "/openapi.json", headers={"x-api-key": None})
        self.assertEqual(200, status)
        api = json.loads(body)
        names = set(api["components"]["schemas"])

        def refs(value):
            if isinstance(value, dict):
                for k, v in value.items():
                    yield from [v] if k == "$ref" else refs(v)
            elif isinstance(value, list):
                for v in value:
                    yield from refs(v)

        for ref in refs(api):
            self.assertIn(ref.removeprefix("#/components/schemas/"), names)
        operations = [(path, method, o) for path, item in api["paths"].items() for method, o in item.items()]
        ids = [o["operationId"] for _, _, o in operations]
        self.assertEqual(len(ids), len(set(ids)))
        for path, method, o in operations:
            declared = {p["name"] for p in o["parameters"] if p["in"] == "path"}
            self.assertEqual({part[1:-1] for part in path.split("/") if part.startswith("{")}, declared, path)
            real = path.replace("{", "").replace("}", "")
            status = self.c.raw(method.upper(), real)[0]
            self.assertNotEqual(405, status, (method, path))


if __name__ == "__main__":
    main()
