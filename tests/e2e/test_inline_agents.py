"""Agents that a coordinator defines itself when it gives a task (multiagent_20261001, inline_agents): a thread of their own with the definition as its
agent, tools that are some of the coordinator's with their policies, and everything else as with the agents of a roster."""
import json

from harness import main, wait_for
from threads import ThreadCase, define, task
from turns import CUSTOM, IDLE, TOOLSET, confirmation, custom_result, fake, interrupt, message, of, reason, shown

OFF, ON = {"type": "disabled"}, {"type": "enabled"}
ASK = {**TOOLSET, "configs": [{"name": "bash", "permission_policy": {"type": "always_ask"}}]}


class InlineCase(ThreadCase):
    def setUp(self):
        self.model.client.delete("/requests")

    def lead(self, *tools, saved=(), subagents=None, **more):
        members = {"subagents": {**ON, "predefined_agents": [a["id"] for a in saved]}} if saved else {"subagents": subagents} if subagents else {}
        return self.team.agent("lead", tools, multiagent={"type": "multiagent_20261001", "workflows": OFF, **members}, **more)

    def results(self):
        """What the coordinator's calls brought, as its model read it."""
        return [b for b in self.last_request()[-1]["content"] if b["type"] == "tool_result"]

    def request_of(self, system):
        """The first request of an agent with this system prompt."""
        return next(r["body"] for r in self.model.requests() if system in json.dumps(r["body"].get("system", "")))


class Definitions(InlineCase):
    def test_a_thread_runs_by_the_definition_that_made_it(self):
        lead = self.lead(TOOLSET, CUSTOM, system="You lead.")
        self.assertEqual(lead["multiagent"]["subagents"], {**ON, "inline_agents": ON, "predefined_agents": []})
        self.assertEqual(self.client.post(f"/v1/agents/{lead['id']}", {"multiagent": lead["multiagent"]})["version"], 1, "what a read gave may be sent back")
        sid = self.team.of(lead)
        self.assertEqual(self.client.get(f"/v1/sessions/{sid}")["agent"]["multiagent"], lead["multiagent"])
        self.send(sid, message(fake(define({"name": "digger", "description": "digs", "system": "You dig.", "tools": ["read"]}, "text Gold."), "---", "text asked")))
        events = self.quiet(sid)
        primary, child = self.team.threads(sid)
        own = {k: v for k, v in primary["agent"].items() if k not in ("id", "version")}
        tools = child["agent"].pop("tools")
        del own["tools"]
        self.assertEqual(child["agent"], {**own, "type": "inline", "name": "digger", "description": "digs", "system": "You dig."})
        self.assertEqual([(t["default_config"]["enabled"], [c["name"] for c in t["configs"]]) for t in tools], [(False, ["read"])])
        self.assertEqual(of(events, "session.thread_created")[0]["agent_name"], "digger")
        self.assertEqual(of(events, "agent.thread_message_received")[0]["from_agent_name"], "digger")
        self.assertIn("Gold.", shown(of(events, "agent.thread_message_received")[0]))
        request = self.request_of("You dig.")
        self.assertEqual(([t["name"] for t in request["tools"]], request["model"]), (["read"], "m"))
        self.assertEqual([t["name"] for t in self.request_of("You lead.")["tools"]][-3:], ["lookup", "list_agents", "send_to_agent"])

    def test_its_thread_is_continued_by_its_id_and_keeps_its_memory(self):
        sid = self.team.of(self.lead())
        self.send(sid, message(fake(define({"system": "You dig."}, "text First."), "---", "text asked")))
        self.quiet(sid)
        child = self.team.child(sid)
        self.assertEqual(child["agent"]["name"], "inline-1", "the server gives a name where there is none")
        more = {"message": fake("text Second."), "session_thread_id": child["id"]}
        self.send(sid, message(fake("tool send_to_agent " + json.dumps(more), "---", "text asked again")))
        wait_for("the second answer is there", lambda: "Second." in str(of(self.events(sid), "agent.thread_message_received")))
        self.quiet(sid)
        self.assertEqual(len(self.team.children(sid)), 1)
        again = [r["body"] for r in self.model.requests() if "You dig." in str(r["body"].get("system", ""))][-1]
        self.assertIn("First.", str(again["messages"]))
        self.until(sid, message(fake("tool list_agents {}", "---", "text seen")))
        self.assertIn(child["id"], str(self.results()))

    def test_saved_agents_are_called_by_their_names_beside_them(self):
        sid = self.team.of(self.lead(CUSTOM, saved=[self.team.agent("worker", model="w")]))
        self.send(sid, message(fake(task("worker", "text a"), define({"system": "x", "model": "w"}, "text b"), "---", "text asked")))
        self.quiet(sid)
        saved, own = self.team.children(sid)
        self.assertEqual((saved["agent"]["type"], saved["agent"]["name"]), ("agent", "worker"))
        self.assertEqual((own["agent"]["type"], own["agent"]["model"]), ("inline", saved["agent"]["model"]))

    def test_what_cannot_be_defined_is_an_error_that_says_why_and_makes_no_thread(self):
        sid = self.team.of(self.lead(CUSTOM, saved=[self.team.agent("worker")]))
        good = {"system": "s"}
        lines = (
            (define({}, "x"), "inline_agent.system: is required"),
            (define({**good, "tools": ["bash"]}, "x"), "'bash' is none of your tools"),
            (define({**good, "model": "huge"}, "x"), "'huge' is no model of this session, which are: m"),
            (define({**good, "name": "worker"}, "x"), "is the name of another agent"),
            (define(good, "x", agent_name="worker"), "exclude each other"),
            (define(good, "x", session_thread_id="sthr_none"), "inline_agent is for a new thread"),
            (task("nobody", "x"), "inline_agent defines one"),
        )
        self.until(sid, message(fake(*(line for line, _ in lines), "---", "text ok")))
        for result, (_, why) in zip(self.results(), lines, strict=True):
            self.assertIn(why, str(result["content"]))
            self.assertTrue(result["is_error"])
        self.assertEqual(self.team.children(sid), [])

    def test_only_a_coordinator_that_may_defines_agents(self):
        worker = self.team.agent("worker")
        sid = self.team.of(self.lead(subagents={**ON, "inline_agents": OFF, "predefined_agents": [worker["id"]]}))
        self.until(sid, message(fake(define({"system": "s"}, "x"), "---", "text ok")))
        self.assertIn("you cannot define agents", str(self.results()))
        self.assertNotIn("inline_agent", str(self.model.requests()[-1]["body"]["tools"]))
        sid = self.team.of(self.lead())
        self.send(sid, message(fake(define({"system": "s"}, define({"system": "s"}, "x"), "---", "text could not"), "---", "text ok")))
        self.quiet(sid)
        (child,) = self.team.children(sid)
        self.assertTrue(of(self.team.log(sid, child["id"]), "agent.tool_result")[0]["is_error"])

    def test_an_update_merges_the_switch(self):
        worker = self.team.agent("worker")
        lead = self.lead(saved=[worker])

        def change(subagents):
            return self.client.post(f"/v1/agents/{lead['id']}", {"multiagent": {"type": "multiagent_20261001", "subagents": subagents}})["multiagent"]["subagents"]

        refs = [{"type": "agent", "id": worker["id"], "version": 1}]
        self.assertEqual(change({**ON, "inline_agents": OFF}), {**ON, "inline_agents": OFF, "predefined_agents": refs})
        self.assertEqual(change(ON)["inline_agents"], OFF, "what is left out stays")
        self.assertEqual(change({**ON, "inline_agents": None})["inline_agents"], ON, "null is the default")
        self.assertEqual(change({**ON, "predefined_agents": []}), {**ON, "inline_agents": ON, "predefined_agents": []})
        path, both = f"/v1/agents/{lead['id']}", {"type": "multiagent_20261001", "subagents": {**ON, "inline_agents": OFF}}
        self.rejected(400, "must name at least one agent while inline_agents are disabled", self.client.post, path, {"multiagent": both})
        self.assertEqual((change(OFF), change(ON)), (OFF, {**ON, "inline_agents": ON, "predefined_agents": []}))


class Threads(InlineCase):
    def test_its_calls_wait_by_the_coordinators_policies_and_are_answered_at_the_session(self):
        sid = self.team.of(self.lead(ASK, CUSTOM))
        script = ('tool bash {"command":"echo allowed"}', 'tool lookup {"q":1}', "---", "text ran both")
        self.send(sid, message(fake(define({"system": "s", "tools": ["lookup", "bash"]}, *script), "---", "text asked")))
        events = self.quiet(sid)
        self.assertEqual(reason(events[-1]), "requires_action")
        child = self.team.child(sid)["id"]
        bash, lookup = (next(e for e in events if e["id"] == i) for i in events[-1]["stop_reason"]["event_ids"])
        self.assertEqual((bash["evaluated_permission"], {e["session_thread_id"] for e in (bash, lookup)}), ("ask", {child}))
        self.send(sid, confirmation(bash["id"]), custom_result(lookup["id"], "blue"))
        events = self.quiet(sid)
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assertIn("ran both", shown(of(events, "agent.thread_message_received")[0]))
        self.assertIn("allowed", shown(of(self.team.log(sid, child), "agent.tool_result")[0]))

    def test_it_is_interrupted_and_archived_as_any(self):
        sid = self.team.of(self.lead())
        self.send(sid, message(fake(define({"name": "slow", "system": "s"}, "silence"), define({"system": "s"}, "silence"), "---", "text asked")))
        wait_for("both are asked", lambda: [t["status"] for t in self.team.children(sid)] == ["running"] * 2)
        one, two = (t["id"] for t in self.team.children(sid))
        self.send(sid, {**interrupt(), "session_thread_id": one})
        wait_for("the coordinator hears of it", lambda: "interrupted" in str(of(self.events(sid), "agent.thread_message_received")))
        self.assertEqual(self.client.get(f"/v1/sessions/{sid}/threads/{two}")["status"], "running")
        self.send(sid, interrupt())
        self.assertEqual(self.status(sid), "idle")
        self.assertEqual(self.client.post(f"/v1/sessions/{sid}/threads/{one}/archive")["agent"]["name"], "slow")
        self.assertEqual([t["status"] for t in self.team.children(sid)], ["terminated", "idle"])
        self.assert_goes_on(sid)

    def test_its_cost_is_the_coordinators(self):
        model = "claude-haiku-4-5"  # of conf/prices.conf: a dollar for a million tokens in
        limit = {"type": "limit", "max_list_cost": {"amount": "5", "currency": "USD"}}
        sid = self.team.of(self.lead(model=model), budget=limit)
        self.send(sid, message(fake(define({"system": "s"}, "usage 60000 10", "text dear"), "---", "text asked")))
        events = wait_for("the budget stops it", lambda: (e := self.events(sid)) and e[-1]["type"] == IDLE and reason(e[-1]) == "budget_reached" and e)
        self.assertEqual(of(events, "session.usage")[-1]["usage"]["list_cost"]["amount"], "6")


if __name__ == "__main__":
    main()
