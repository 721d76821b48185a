"""web_search and web_fetch: declared to the model endpoint as its own tools, shown as events, kept byte for byte, never a barrier."""
from harness import FakeModel, Mangod, main
from turns import IDLE, TOOLSET, TurnCase, confirmation, fake, message, of, tool_result, turn

USE = '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}'
HITS = (
    '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://a.example/x",'
    '"title":"A \\u00e9","encrypted_content":"RW5j==","page_age":null,"n":1.50}]}'
)
CITED = (
    '{"type":"text","text":"It is so.","citations":[{"type":"web_search_result_location","url":"https://a.example/x",'
    '"encrypted_index":"SWR4","cited_text":"so"}]}'
)
FAILED = '{"type":"web_fetch_tool_result","tool_use_id":"srvtoolu_2","content":{"type":"web_fetch_tool_result_error","error_code":"url_not_accessible"}}'
FETCH = '{"type":"server_tool_use","id":"srvtoolu_2","name":"web_fetch","input":{"url":"https://a.example/x"}}'


class ServerTools(TurnCase):
    def web(self, configs, environment="cloud"):
        return self.new({**TOOLSET, "configs": configs}, environment=environment)

    def declared(self):
        return [t for t in self.model.requests()[-1]["body"]["tools"] if "type" in t]

    WEB = [{"name": "web_search"}, {"name": "web_fetch"}]

    def test_they_are_declared_with_their_settings_as_the_endpoints_own(self):
        place = {"type": "approximate", "country": "DE", "city": "Bonn"}
        only = {"type": "only", "tools": [{"type": "tool_reference", "name": "bash"}]}
        sources = {"user_input": {"type": "none"}, "client_tool_results": only}
        sid = self.web(
            [
                {"name": "web_search", "blocked_domains": ["bad.example"], "user_location": place},
                {"name": "web_fetch", "allowed_domains": ["a.example"], "max_content_tokens": 9000, "url_sources": {"user_input": "none", "client_tool_results": only}},
            ]
        )
        self.turn(sid, fake("text ok"))
        mark = {"cache_control": {"type": "ephemeral"}}
        self.assertEqual(
            self.declared(),
            [
                {"type": "web_fetch_20250910", "name": "web_fetch", "allowed_domains": ["a.example"], "max_content_tokens": 9000, "url_sources": sources, "citations": {"enabled": True}},
                {"type": "web_search_20250305", "name": "web_search", "blocked_domains": ["bad.example"], "user_location": place, **mark},
            ],
        )
        self.assertIn("web-fetch-2025-09-10", self.model.requests()[-1]["headers"]["anthropic-beta"])

    def test_on_by_default_means_only_where_the_endpoint_is_known_to_run_them(self):
        self.turn(self.web([]), fake("text ok"))
        self.assertEqual(self.declared(), [])
        self.turn(self.web([{"name": "web_search", "enabled": False}]), fake("text ok"))
        self.assertEqual(self.declared(), [])
        for mode, names in (("on", ["web_fetch", "web_search"]), ("off", [])):
            with self.subTest(mode), FakeModel() as model, Mangod(model_url=model.url, env={"MANGO_MODEL_WEB_TOOLS": mode}) as server:
                sid = server.client.new_session()["id"]
                turn(server.client, sid, message("hello"))
                self.assertEqual([t["name"] for t in model.requests()[-1]["body"]["tools"] if "type" in t], names)

    def test_their_blocks_come_back_byte_for_byte_and_show_as_a_call_with_its_result(self):
        sid = self.web(self.WEB)
        events = self.turn(sid, fake("text I look.", "block " + USE, "block " + HITS, "block " + CITED, "usage 10 5"))
        kinds = [e["type"] for e in events if e["type"].startswith("agent.")]
        self.assertEqual(kinds, ["agent.message", "agent.tool_use", "agent.tool_result", "agent.message"])
        use, result = of(events, "agent.tool_use")[0], of(events, "agent.tool_result")[0]
        self.assertEqual((use["name"], use["evaluated_permission"]), ("web_search", "allow"))
        self.assertEqual(result["tool_use_id"], use["id"])
        self.assertEqual(result["content"][0]["type"], "search_result")
        self.assertEqual(result["content"][0]["source"], "https://a.example/x")
        self.assertNotIn("encrypted", str(result))
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        row = self.server.database.query(f"SELECT content FROM transcript WHERE session_id = '{sid}' AND role = 'assistant'")
        stored = "|".join(row[0])
        for block in (USE, HITS, CITED):
            self.assertIn(block, stored)
        self.turn(sid, fake("text more"))
        content = self.model.requests()[-1]["body"]["messages"][1]["content"]
        self.assertEqual([b["type"] for b in content], ["text", "server_tool_use", "web_search_tool_result", "text"])

    def test_a_failed_fetch_is_an_error_result(self):
        sid = self.web(self.WEB)
        events = self.turn(sid, fake("block " + FETCH, "block " + FAILED, "text no"))
        result = of(events, "agent.tool_result")[0]
        self.assertTrue(result["is_error"])
        self.assertEqual(result["content"], [{"type": "text", "text": "url_not_accessible"}])

    def test_a_paused_turn_goes_on_and_the_result_of_the_next_answer_belongs_to_the_call_of_the_first(self):
        sid = self.web(self.WEB)
        self.model.client.post("/script", {"responses": ["block %s\nstop pause_turn" % USE, "block %s\ntext found" % HITS]})
        events = self.turn(sid, "search for it")
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        use, result = of(events, "agent.tool_use")[0], of(events, "agent.tool_result")[0]
        self.assertEqual(result["tool_use_id"], use["id"])
        last = self.model.requests()[-1]["body"]["messages"]
        self.assertEqual(last[-1]["role"], "assistant", "the paused answer is sent back as it is")
        self.turn(sid, fake("text more"))

    def test_a_turn_that_pauses_for_ever_ends_and_leaves_a_legal_transcript(self):
        sid = self.web(self.WEB)
        pauses = ["block %s\nstop pause_turn" % USE.replace("srvtoolu_1", "srvtoolu_p%d" % i) for i in range(6)]
        self.model.client.post("/script", {"responses": pauses})
        events = self.turn(sid, "search for it")
        self.assertEqual(len(of(events, "span.model_request_start")), 6)
        self.assertEqual(events[-1]["type"], IDLE)
        self.turn(sid, fake("text more"))

    def test_a_client_style_call_to_one_is_answered_before_anything_runs(self):
        for environment in ("cloud", "self_hosted"):
            with self.subTest(environment):
                sid = self.web(self.WEB, environment)
                events = self.turn(sid, fake('tool web_search {"query":"x"}', 'cut-tool web_fetch {"url', "---", "text I see."))
                results = of(events, "agent.tool_result")
                self.assertEqual([r["is_error"] for r in results], [True, True])
                self.assertIn("the model endpoint runs web tools itself", results[0]["content"][0]["text"])
                self.assertEqual([u["evaluated_permission"] for u in of(events, "agent.tool_use")], ["deny", "deny"])
                self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")

    def test_self_hosted_no_barrier_opens_and_no_client_may_answer(self):
        sid = self.web(self.WEB, "self_hosted")
        events = self.turn(sid, fake("block " + USE, "block " + HITS, "text found"))
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        use = of(events, "agent.tool_use")[0]["id"]
        for event in (tool_result(use), confirmation(use)):
            self.assertIn("this session has no tool call", self.refused(400, sid, event))


if __name__ == "__main__":
    main()
