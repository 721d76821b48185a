"""MCP toolsets: discovery, calls, permissions, results, and servers that hang, flood, lie or vanish (semantics MC1 to MC7; redirects and names are in
tests/unit/test-mcp-client.c and test-mcp-result.c)."""
import json
import time

from api import ApiError
from harness import Mangod, main, wait_for
from mcp_peer import McpPeer
from turns import IDLE, ModelCase, fake, message, of, turn

TIMEOUT_S = 1.0  # MANGO_MCP_TIMEOUT of these servers: a hanging one is given up after it


def call(tool, arguments=None):
    return f"tool mcp__peer__{tool} {json.dumps(arguments or {})}"


def allow(**more):
    return {"enabled": True, "permission_policy": {"type": "always_allow"}, **more}


class Mcp(ModelCase):
    OPTIONS = {"env": {"MANGO_MCP_ALLOW_PRIVATE": "1", "MANGO_MCP_TIMEOUT": f"{int(TIMEOUT_S * 1000)}ms"}}

    def setUp(self):
        self.peer = McpPeer()
        self.peer.__enter__()
        self.addCleanup(self.peer.__exit__)

    def agent(self, toolset=None, url=None, builtin=True, servers=None):
        tools = [{"type": "mcp_toolset", "mcp_server_name": "peer", **(toolset if toolset is not None else {"default_config": allow()})}]
        if builtin:
            tools.append({"type": "agent_toolset_20260401"})
        return {"name": "test", "model": "m", "tools": tools, "mcp_servers": servers or [{"type": "url", "name": "peer", "url": url or self.peer.url}]}

    def session(self, environment="cloud", **agent):
        agent_id = self.client.post("/v1/agents", self.agent(**agent))["id"]
        env = self.client.post("/v1/environments", {"name": f"e-{time.monotonic_ns()}", "config": {"type": environment}})["id"]
        return self.client.post("/v1/sessions", {"agent": agent_id, "environment_id": env})["id"]

    def turn(self, session_id, words, timeout=40):
        return self.send(session_id, message(words), timeout)

    def send(self, session_id, event, timeout=40):
        return turn(self.client, session_id, event, timeout=timeout)

    def one(self, tool, arguments=None, session=None, **agent):
        """A call and its result event."""
        events = self.turn(session or self.session(**agent), fake(call(tool, arguments), "---", "text done"))
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn", events)
        results = of(events, "agent.mcp_tool_result")
        self.assertEqual(len(results), 1, events)
        return of(events, "agent.mcp_tool_use")[0], results[0], events

    # ---- the ordinary way ----

    def test_a_call_is_made_and_its_events_are_the_contracts(self):
        use, result, events = self.one("echo", {"x": "ä"})
        self.assertEqual((use["name"], use["mcp_server_name"], use["input"]), ("echo", "peer", {"x": "ä"}))
        self.assertEqual((use["evaluated_permission"], use["evaluation"]), ("allow", {"type": "always_allow"}))
        self.assertEqual((result["mcp_tool_use_id"], result["is_error"]), (use["id"], False))
        self.assertEqual(json.loads(result["content"][0]["text"]), {"x": "ä"})
        self.assertFalse(of(events, "agent.tool_use"))
        self.assertEqual(self.peer.methods(), ["initialize", "notifications/initialized", "tools/list", "tools/list", "tools/call"])

    def test_mc4_mc5_the_tools_of_all_pages_are_shown_to_the_model_once_per_session(self):
        sid = self.session()
        self.one("echo", session=sid)
        self.one("echo", session=sid)
        self.assertEqual(self.peer.methods().count("tools/list"), 2, "the pages of one listing")
        self.assertEqual(self.peer.methods().count("initialize"), 1)
        names = [t["name"] for t in self.model.requests()[-1]["body"]["tools"]]
        self.assertEqual([n for n in names if n.startswith("mcp__")], [f"mcp__peer__{t}" for t in self.peer.tools])
        self.assertIn("bash", names)

    def test_tools_are_enabled_and_allowed_one_by_one(self):
        toolset = {"default_config": {"enabled": False}, "configs": [{"name": "echo", **allow()}, {"name": "fail", "enabled": True}]}
        sid = self.session(toolset=toolset)
        events = self.turn(sid, fake(call("echo"), call("fail"), call("hang"), "---", "text done"))
        uses = of(events, "agent.mcp_tool_use")
        self.assertEqual([u["evaluated_permission"] for u in uses], ["allow", "ask", "deny"])
        self.assertNotIn("evaluation", uses[2])
        self.assertEqual(events[-1]["stop_reason"], {"type": "requires_action", "event_ids": [uses[1]["id"]]})
        denied = [r for r in of(events, "agent.mcp_tool_result") if r["mcp_tool_use_id"] == uses[2]["id"]]
        self.assertTrue(denied[0]["is_error"])
        names = [t["name"] for t in self.model.requests()[-1]["body"]["tools"] if t["name"].startswith("mcp__")]
        self.assertEqual(names, ["mcp__peer__echo", "mcp__peer__fail"])
        self.assertNotIn("hang", [name for name, _ in self.peer.calls])

    def test_pa11_unsaid_means_always_ask_and_a_confirmation_makes_the_call(self):
        sid = self.session(toolset={})
        events = self.turn(sid, fake(call("echo", {"n": 1}), "---", "text done"))
        use = of(events, "agent.mcp_tool_use")[0]
        self.assertEqual(use["evaluated_permission"], "ask")
        self.assertEqual(events[-1]["stop_reason"]["event_ids"], [use["id"]])
        self.assertEqual(self.peer.calls, [])
        events = self.send(sid, {"type": "user.tool_confirmation", "tool_use_id": use["id"], "result": "allow"})
        self.assertEqual(of(events, "agent.mcp_tool_result")[0]["mcp_tool_use_id"], use["id"])
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        self.assertEqual(self.peer.calls, [("echo", {"n": 1})])

    def test_a_denied_call_is_never_made(self):
        sid = self.session(toolset={})
        use = of(self.turn(sid, fake(call("echo"), "---", "text done")), "agent.mcp_tool_use")[0]
        deny = {"type": "user.tool_confirmation", "tool_use_id": use["id"], "result": "deny", "deny_message": "not today"}
        events = self.send(sid, deny)
        result = of(events, "agent.mcp_tool_result")[0]
        self.assertTrue(result["is_error"])
        self.assertIn("not today", result["content"][0]["text"])
        self.assertEqual(self.peer.calls, [])

    def test_self_hosted_sessions_have_their_mcp_calls_made_by_the_server(self):
        _, result, _ = self.one("echo", {"a": 1}, environment="self_hosted")
        self.assertFalse(result["is_error"])
        _, result, _ = self.one("large", environment="self_hosted")
        self.assertIn("no access to the workspace", result["content"][0]["text"])
        self.assertLess(len(result["content"][0]["text"]), 20000)

    def test_mcp_calls_need_no_sandbox(self):
        with Mangod(model_url=self.model.url, sandbox="", env={"MANGO_MCP_ALLOW_PRIVATE": "1"}) as server:
            agent_id = server.client.post("/v1/agents", self.agent(builtin=False))["id"]
            env = server.client.post("/v1/environments", {"name": "e", "config": {"type": "cloud"}})["id"]
            sid = server.client.post("/v1/sessions", {"agent": agent_id, "environment_id": env})["id"]
            with server.client.stream(sid) as stream:
                server.client.say(sid, fake(call("echo"), call("audio"), "---", "text done"))
                events = stream.until(IDLE)
        results = of(events, "agent.mcp_tool_result")
        self.assertFalse(results[0]["is_error"])
        self.assertIn("left out", results[1]["content"][0]["text"])

    def test_mcp_and_sandbox_calls_mix_in_one_answer(self):
        events = self.turn(self.session(), fake(call("echo"), 'tool bash {"command":"echo between"}', call("echo"), "---", "text done"))
        self.assertEqual(len(of(events, "agent.mcp_tool_result")), 2)
        self.assertIn("between", of(events, "agent.tool_result")[0]["content"][0]["text"])
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")

    # ---- results ----

    def test_mc7_a_large_result_is_kept_as_a_file_that_the_tools_can_read(self):
        sid = self.session()
        _, result, _ = self.one("large", session=sid)
        text = result["content"][0]["text"]
        self.assertLess(len(text), 20000)
        self.assertTrue(text.startswith("begin ") and text.endswith("end"))
        path = text.split("is in the file ")[1].split("]")[0]
        events = self.turn(sid, fake("tool bash %s" % json.dumps({"command": f"wc -c < {path}; tail -c 3 {path}"}), "---", "text done"))
        self.assertEqual(of(events, "agent.tool_result")[0]["content"][0]["text"].split(), [str(6 + 13 * 25000 + 3), "end"])

    def test_mc7_case_82_images_are_checked_and_other_parts_become_files(self):
        _, result, _ = self.one("image")
        self.assertEqual(result["content"][0]["source"]["media_type"], "image/png")
        _, result, _ = self.one("bad_image")
        self.assertIn("not a png image", result["content"][0]["text"])
        sid = self.session()
        _, result, _ = self.one("audio", session=sid)
        path = result["content"][0]["text"].split("saved as ")[1].rstrip("]")
        events = self.turn(sid, fake("tool bash %s" % json.dumps({"command": f"cat {path}"}), "---", "text done"))
        self.assertIn("RIFFdata", of(events, "agent.tool_result")[0]["content"][0]["text"])

    def test_structured_content_keeps_its_numbers(self):
        _, result, _ = self.one("structured")
        self.assertEqual(result["content"][0]["text"], '{"n":9007199254740993,"d":0.10}')

    def test_errors_of_a_tool_are_error_results(self):
        _, result, _ = self.one("fail")
        self.assertEqual((result["is_error"], result["content"][0]["text"]), (True, "it went wrong"))

    # ---- servers that cannot be used ----

    def failing_listing(self, listing, error, part):
        self.peer.listing = listing
        sid = self.session()
        events = self.turn(sid, fake("text Without its tools then."))
        errors = of(events, "session.error")
        self.assertEqual(len(errors), 1, events)
        self.assertEqual((errors[0]["error"]["type"], errors[0]["error"]["mcp_server_name"]), (error, "peer"))
        self.assertEqual(errors[0]["error"]["retry_status"], {"type": "exhausted"})
        self.assertIn(part, errors[0]["error"]["message"])
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn", "the turn goes on without the tools")
        self.peer.listing = "ok"
        self.one("echo", session=sid)  # the next turn asks again

    def test_mc5_mc6_a_server_that_fails_is_an_event_and_the_turn_goes_on(self):
        for listing, error, part in (
            ("401", "mcp_authentication_failed_error", "no token"),
            ("500", "mcp_connection_failed_error", "status 500"),
            ("html", "mcp_connection_failed_error", "neither JSON nor an event stream"),
            ("hang", "mcp_connection_failed_error", "no whole answer within"),
            ("endless", "mcp_connection_failed_error", "64 pages"),
        ):
            with self.subTest(listing):
                self.failing_listing(listing, error, part)

    def test_one_server_that_hangs_does_not_cost_the_tools_of_another(self):
        with McpPeer(["echo"]) as other:
            self.peer.listing = "hang"
            servers = [{"type": "url", "name": "peer", "url": self.peer.url}, {"type": "url", "name": "other", "url": other.url}]
            agent = self.agent(servers=servers)
            agent["tools"].append({"type": "mcp_toolset", "mcp_server_name": "other", "default_config": allow()})
            agent_id = self.client.post("/v1/agents", agent)["id"]
            env = self.client.post("/v1/environments", {"name": f"e-{time.monotonic_ns()}", "config": {"type": "cloud"}})["id"]
            sid = self.client.post("/v1/sessions", {"agent": agent_id, "environment_id": env})["id"]
            events = self.turn(sid, fake("tool mcp__other__echo {}", "---", "text done"))
        self.assertEqual(of(events, "agent.mcp_tool_use")[0]["mcp_server_name"], "other")
        self.assertEqual(len(of(events, "session.error")), 1)
        self.assertEqual(len(of(events, "agent.mcp_tool_result")), 1)

    def test_a_server_that_lies_about_its_schemas_poisons_no_request(self):
        self.peer.listing = "lies"
        self.one("echo")
        tools = {t["name"]: t for t in self.model.requests()[-1]["body"]["tools"] if t["name"].startswith("mcp__")}
        self.assertEqual(len(tools), len(self.peer.tools) + 3)
        for name in ("banana", "list", "deep"):
            self.assertEqual(tools[f"mcp__peer__{name}"]["input_schema"], {"type": "object"})
            self.assertIn("could not be used", tools[f"mcp__peer__{name}"]["description"])

    def test_mc2_private_addresses_are_refused_unless_the_operator_allows_them(self):
        with Mangod(model_url=self.model.url) as server:
            agent_id = server.client.post("/v1/agents", self.agent())["id"]
            env = server.client.post("/v1/environments", {"name": "e", "config": {"type": "cloud"}})["id"]
            sid = server.client.post("/v1/sessions", {"agent": agent_id, "environment_id": env})["id"]
            with server.client.stream(sid) as stream:
                server.client.say(sid, fake("text fine"))
                events = stream.until(IDLE)
        self.assertIn("MANGO_MCP_ALLOW_PRIVATE", of(events, "session.error")[0]["error"]["message"])
        self.assertEqual(self.peer.requests, [])

    def test_credentials_in_a_url_are_refused_by_name(self):
        with self.assertRaises(ApiError) as e:
            self.client.post("/v1/agents", self.agent(url="https://user:secret@mcp.example/"))
        self.assertEqual(e.exception.status, 400)
        self.assertIn("mcp_servers[0].url", e.exception.message)
        self.assertNotIn("secret", e.exception.message)

    # ---- calls that fail ----

    def test_mc1_calls_to_a_misbehaving_server_become_error_results_and_are_made_once(self):
        for tool, part in (
            ("drop", "may or may not have taken effect"),
            ("malformed", "may or may not have taken effect"),
            ("hang", "may or may not have taken effect"),
            ("flood", "may or may not have taken effect"),
            ("no_result", "its result cannot be used"),
            ("gone", "Tool gone not found"),
        ):
            with self.subTest(tool):
                self.peer.calls.clear()
                _, result, _ = self.one(tool)
                self.assertTrue(result["is_error"])
                self.assertIn(part, result["content"][0]["text"])
                self.assertEqual(len(self.peer.calls), 1)
        wait_for("the flood is cut", self.peer.cut.is_set)

    def test_a_server_that_is_gone_did_not_run_the_call(self):
        sid = self.session()
        self.one("echo", session=sid)
        self.peer.server.shutdown()
        self.peer.server.server_close()
        _, result, events = self.one("echo", session=sid)
        self.assertIn("did not run the call", result["content"][0]["text"])
        self.assertEqual(of(events, "session.error")[0]["error"]["type"], "mcp_connection_failed_error")

    def test_progress_keeps_a_slow_call_alive(self):
        _, result, _ = self.one("progress")  # 1.5 s, and the limit without progress is 1 s
        self.assertEqual(result["content"][0]["text"], "made it")

    def test_an_expired_session_is_opened_again(self):
        sid = self.session()
        _, result, _ = self.one("expire", session=sid)
        self.assertEqual(result["content"][0]["text"], "after the new session")
        self.assertEqual(self.peer.methods().count("initialize"), 2)

    def test_an_interrupt_cancels_the_call_and_tells_the_server(self):
        with Mangod(model_url=self.model.url, env={"MANGO_MCP_ALLOW_PRIVATE": "1"}) as server:
            agent_id = server.client.post("/v1/agents", self.agent())["id"]
            env = server.client.post("/v1/environments", {"name": "e", "config": {"type": "cloud"}})["id"]
            sid = server.client.post("/v1/sessions", {"agent": agent_id, "environment_id": env})["id"]
            with server.client.stream(sid) as stream:
                server.client.say(sid, fake(call("hang"), "---", "text never"))
                wait_for("the call is on its way", lambda: self.peer.calls)
                began = time.monotonic()
                server.client.post(f"/v1/sessions/{sid}/events", {"events": [{"type": "user.interrupt"}]})
                events = stream.until(IDLE)
            self.assertLess(time.monotonic() - began, 5)
            result = of(events, "agent.mcp_tool_result")[0]
            self.assertTrue(result["is_error"])
            self.assertIn("Interrupted", result["content"][0]["text"])
            wait_for("the server is told", lambda: "notifications/cancelled" in self.peer.methods())

    # ---- the life of links and snapshots ----

    def test_a_deleted_session_ends_the_servers_session(self):
        sid = self.session()
        self.one("echo", session=sid)
        self.client.delete(f"/v1/sessions/{sid}")
        wait_for("the server is told", lambda: self.peer.deleted == ["session-1"])

    def test_up3_changed_servers_are_listed_anew_and_the_tools_of_the_old_are_gone(self):
        sid = self.session()
        self.one("echo", session=sid)
        with McpPeer(["other"]) as second:
            update = self.agent(servers=[{"type": "url", "name": "peer", "url": second.url}])
            self.client.post(f"/v1/sessions/{sid}", {"agent": {"tools": update["tools"], "mcp_servers": update["mcp_servers"]}})
            events = self.turn(sid, fake(call("echo"), "---", "text done"))
        self.assertEqual(len(self.peer.calls), 1)
        self.assertEqual(second.calls, [])
        self.assertFalse(of(events, "agent.mcp_tool_use"))
        self.assertIn("no tool of this name", of(events, "agent.tool_result")[0]["content"][0]["text"])

    def test_a_snapshot_survives_a_restart_and_a_started_call_is_ambiguous_after_a_crash(self):
        env = {"MANGO_MCP_ALLOW_PRIVATE": "1", "MANGO_NODE_TTL": "2s"}
        with Mangod(model_url=self.model.url, env=env) as server:
            agent_id = server.client.post("/v1/agents", self.agent())["id"]
            envid = server.client.post("/v1/environments", {"name": "e", "config": {"type": "cloud"}})["id"]
            sid = server.client.post("/v1/sessions", {"agent": agent_id, "environment_id": envid})["id"]
            server.client.say(sid, fake(call("hang"), "---", "text after the crash"))
            wait_for("the call is on its way", lambda: self.peer.calls)
            server.kill()
            server.process.end()
            self.peer.tools = ["something_else"]
            server.start()

            def ended():
                events = server.client.events(sid)
                return events if events[-1]["type"] == IDLE else None

            events = wait_for("the turn ends", ended)
            self.assertIn("its result was lost", of(events, "agent.mcp_tool_result")[0]["content"][0]["text"])
            self.assertEqual(len(self.peer.calls), 1, "it is never made again")
            with server.client.stream(sid) as stream:
                server.client.say(sid, fake(call("echo"), "---", "text done"))
                events = stream.until(IDLE)
            self.assertFalse(of(events, "agent.mcp_tool_result")[0]["is_error"])
            self.assertEqual(self.peer.methods().count("tools/list"), 2, "the snapshot was kept")


    def test_a_childs_mcp_call_is_confirmed_at_the_session(self):
        child = self.client.post("/v1/agents", {**self.agent(toolset={}, builtin=False), "name": "helper"})
        roster = {"type": "coordinator", "agents": [child["id"]]}
        lead = self.client.post("/v1/agents", {"name": "lead", "model": "m", "multiagent": roster})
        env = self.client.post("/v1/environments", {"name": f"e-{time.monotonic_ns()}", "config": {"type": "cloud"}})["id"]
        sid = self.client.post("/v1/sessions", {"agent": lead["id"], "environment_id": env})["id"]
        task = {"agent_name": "helper", "message": fake(call("echo", {"c": 1}), "---", "text echoed")}
        self.client.say(sid, fake("tool send_to_agent " + json.dumps(task), "---", "text sent"))

        def asked():
            uses = of(self.client.events(sid), "agent.mcp_tool_use")
            return uses[0] if uses else None

        use = wait_for("the child's call is shown at the session", asked)
        self.assertEqual((use["name"], use["mcp_server_name"], use["evaluated_permission"]), ("echo", "peer", "ask"))
        self.assertTrue(use["session_thread_id"])
        self.assertEqual(self.peer.calls, [])
        allow = {"type": "user.tool_confirmation", "tool_use_id": use["id"], "result": "allow"}
        self.client.post(f"/v1/sessions/{sid}/events", {"events": [allow]})
        result = wait_for("its result", lambda: of(self.client.events(sid), "agent.mcp_tool_result"))[0]
        self.assertEqual((result["mcp_tool_use_id"], result["is_error"]), (use["id"], False))
        self.assertEqual(self.peer.calls, [("echo", {"c": 1})])
        wait_for("the session is idle", lambda: self.client.get(f"/v1/sessions/{sid}")["status"] == "idle")

    def test_kill_at_each_commit_of_a_call(self):
        for point, ambiguous in (
            ("turn.mcp_listed.before", False),
            ("turn.mcp_listed.after", False),
            ("turn.call_started.after", True),
            ("turn.call_completed.before", True),
        ):
            with self.subTest(point):
                self.killed_at(point, ambiguous)

    def killed_at(self, point, ambiguous):
        env = {"MANGO_MCP_ALLOW_PRIVATE": "1", "MANGO_NODE_TTL": "2s"}
        self.peer.calls.clear()
        with Mangod(model_url=self.model.url, env=env, binary="mangod-test", hooks=f"{point}=kill:1") as server:
            agent_id = server.client.post("/v1/agents", self.agent(builtin=False))["id"]
            envid = server.client.post("/v1/environments", {"name": "e", "config": {"type": "cloud"}})["id"]
            sid = server.client.post("/v1/sessions", {"agent": agent_id, "environment_id": envid})["id"]
            server.client.say(sid, fake(call("echo"), "---", "text done"))
            server.process.wait()
            server.process.end()
            server.hooks = None
            server.start()
            events = wait_for("the turn ends", lambda: (lambda ev: ev if ev[-1]["type"] == IDLE else None)(server.client.events(sid)))
        results = of(events, "agent.mcp_tool_result")
        self.assertEqual(len(results), 1)
        self.assertEqual(results[0]["is_error"], ambiguous)
        self.assertLessEqual(len(self.peer.calls), 1, "a call is never made twice")


if __name__ == "__main__":
    main()
