"""The advisor of a coordinator (semantics TH1, TH6, TJ8): one request without tools in a thread of its own, whose text is the result of the call; billed
once, stopped with what asked, and never asked again for a call that a crash found started."""
import json
import unittest

from harness import Database, FakeModel, Mangod, main, wait_for
from rig import add_boundaries, killed
from threads import Team, ThreadCase
from turns import CUSTOM, GATE, IDLE, TOOLSET, bash, custom_result, fake, interrupt, message, of, pass_gate, reason, shown

ADVISOR = {"type": "advisor", "model": "adviser"}
NAME = "anthropic.advisor"
OFF = {"type": "disabled"}


def ask(*script):
    """A line of a script: the question to the advisor is a script of its own."""
    return "tool advisor " + json.dumps({"question": fake(*script)})


def consult(client, *tools, form=None, agents=(), model="m", **session):
    """A session of a coordinator that has an advisor."""
    multiagent = form or {"type": "coordinator", "agents": [ADVISOR, *agents]}
    lead = client.post("/v1/agents", {"name": "lead", "model": model, "tools": list(tools), "multiagent": multiagent})
    return Team(client).of(lead, **session)


class AdvisorCase(ThreadCase):
    def asked(self):
        """The requests that an advisor got."""
        return [r["body"] for r in self.model.requests() if r["body"]["model"] == "adviser"]

    def answer(self):
        """The result of the call, as the coordinator's model read it."""
        return next(b for b in self.last_request()[-1]["content"] if b["type"] == "tool_result")

    def setUp(self):
        self.model.client.delete("/requests")


class Advice(AdvisorCase):
    def test_its_text_is_the_result_of_the_call_and_its_thread_ends_by_itself(self):
        sid = consult(self.client)
        self.send(sid, message(fake("usage 100 10", ask("usage 1000 50", "text Use the second way."), "---", "usage 100 10", "text I did.")))
        events = self.quiet(sid)
        primary, child = self.team.threads(sid)
        self.assertEqual((child["agent"], child["status"]), (ADVISOR, "terminated"))
        self.assertEqual(child["parent_thread_id"], primary["id"])
        created, sent, received = (of(events, f"{t}")[0] for t in ("session.thread_created", "agent.thread_message_sent", "agent.thread_message_received"))
        self.assertEqual((created["session_thread_id"], created["agent_name"], sent["to_agent_name"], received["from_agent_name"]), (child["id"], NAME, NAME, NAME))
        self.assertEqual(shown(received), "Use the second way.")
        self.assertEqual([shown(e) for e in of(events, "agent.message")], ["I did."])
        self.assertEqual((len(of(events, IDLE)), reason(events[-1])), (1, "end_turn"))
        self.assertEqual(of(events, "agent.tool_use", "agent.tool_result"), [])
        (request,) = self.asked()
        self.assertEqual((request["max_tokens"], "tools" in request), (2048, False))
        self.assertIn("call of advisor", request["messages"][0]["content"][0]["text"], "it reads the conversation")
        self.assertIn("Use the second way.", str(self.answer()["content"]))
        self.assertFalse(self.answer().get("is_error", False))
        log = self.team.log(sid, child["id"])
        self.assertEqual(log[-1]["type"], "session.thread_status_terminated")
        self.assertEqual(len(of(log, "span.model_request_end")), 1)
        for e in events + log:
            self.assertIsNotNone(e["processed_at"], e["type"])
        usage = self.client.get(f"/v1/sessions/{sid}")["usage"]
        self.assertEqual((child["usage"]["input_tokens"], usage["input_tokens"], usage["output_tokens"]), (1000, 1200, 70))
        self.assert_goes_on(sid)

    def test_the_newer_form_has_one_too(self):
        form = {"type": "multiagent_20261001", "workflows": OFF, "subagents": OFF, "advisor": {"type": "enabled", "model": "adviser"}}
        sid = consult(self.client, form=form)
        self.assertEqual(self.client.get(f"/v1/sessions/{sid}")["agent"]["multiagent"]["advisor"], form["advisor"])
        self.send(sid, message(fake(ask("text Yes."), "---", "text I see.")))
        self.quiet(sid)
        self.assertIn("Yes.", str(self.answer()))
        tools = [t["name"] for t in self.model.requests()[-1]["body"]["tools"]]
        self.assertEqual(tools, ["advisor"], "without agents there is nobody to send a task to")

    def test_the_newer_form_is_merged(self):
        lead = self.team.agent("lead", multiagent={"type": "multiagent_20261001", "workflows": OFF, "subagents": OFF, "advisor": {"type": "enabled", "model": "a"}})

        def change(**members):
            return self.client.post(f"/v1/agents/{lead['id']}", {"multiagent": {"type": "multiagent_20261001", **members}})["multiagent"]["advisor"]

        self.assertEqual(change(subagents=OFF), {"type": "enabled", "model": "a"})
        self.assertEqual(change(advisor={"type": "enabled"}), {"type": "enabled", "model": "a"})
        self.assertEqual(change(advisor={"type": "enabled", "model": "b"}), {"type": "enabled", "model": "b"})
        self.assertEqual(change(advisor=None), OFF)

    def test_it_keeps_its_place_in_the_roster_and_is_no_agent(self):
        agents = [self.team.agent(f"a{i}")["id"] for i in range(20)]
        lead = self.team.agent("lead", multiagent={"type": "coordinator", "agents": [agents[0], ADVISOR, *agents[1:]]})
        self.assertEqual((lead["multiagent"]["agents"][1], len(lead["multiagent"]["agents"])), (ADVISOR, 21))
        same = self.client.post(f"/v1/agents/{lead['id']}", {"multiagent": lead["multiagent"]})
        self.assertEqual(same["version"], 1, "what a read gave may be sent back")
        sid = consult(self.client, agents=[agents[0]])
        self.until(sid, message(fake("tool list_agents {}", 'tool send_to_agent {"agent_name":"","message":"x"}', "---", "text seen")))
        results = str(self.last_request()[-1])
        self.assertNotIn("adviser", results)
        self.assertIn("no agent of this name", results)

    def test_what_an_advisor_cannot_be(self):
        named = self.team.agent(NAME)["id"]
        tool = {**CUSTOM, "name": "advisor"}
        for words, agents, tools in (
            ("multiagent.agents[1]: a second advisor", [ADVISOR, ADVISOR], []),
            ("multiagent.agents[0].model: is required", [{"type": "advisor"}], []),
            ("multiagent.agents[0].model", [{"type": "advisor", "model": ""}], []),
            ("multiagent.agents[0].version: unknown field", [{**ADVISOR, "version": 1}], []),
            (f"multiagent.agents[0]: no agent of a roster may be called {NAME}", [named], []),
            ("custom tool may not be called 'advisor'", [self.team.agent("w")["id"], ADVISOR], [tool]),
        ):
            body = {"name": "lead", "model": "m", "tools": tools, "multiagent": {"type": "coordinator", "agents": agents}}
            with self.subTest(words):
                self.rejected(400, words, self.client.post, "/v1/agents", body)

    def test_a_question_that_cannot_be_asked_is_an_error_that_says_why(self):
        sid = consult(self.client)
        self.until(sid, message(fake('tool advisor {"question":""}', "---", "text ok")))
        self.assertTrue(self.answer()["is_error"])
        self.assertIn("not empty", str(self.answer()))
        self.assertEqual(self.team.children(sid), [])

    def test_two_questions_and_the_other_calls_of_an_answer_are_one_wave(self):
        sid = consult(self.client, TOOLSET, CUSTOM)
        self.send(sid, message(fake(ask("text one"), bash("echo ran"), 'tool lookup {"q":1}', ask("text two"), "---", "text all")))
        events = self.quiet(sid)
        self.assertEqual(reason(events[-1]), "requires_action")
        self.send(sid, custom_result(events[-1]["stop_reason"]["event_ids"][0]))
        wait_for("the turn ends", lambda: "all" in str(of(self.events(sid), "agent.message")))
        results = [str(b["content"]) for b in self.last_request()[-1]["content"]]
        for result, words in zip(results, ("one", "ran", "found", "two")):
            self.assertIn(words, result)
        self.assertEqual([c["status"] for c in self.team.children(sid)], ["terminated"] * 2)

    def test_a_command_that_runs_longer_than_the_advisor_ends_the_wave(self):
        sid = consult(self.client, TOOLSET)
        self.send(sid, message(fake(ask("text quick"), bash(f"cd {self.server.dir}; {GATE}"), "---", "text both")))
        wait_for("the advisor has answered", lambda: of(self.events(sid), "session.thread_status_terminated"))
        pass_gate(lambda: [self.server.dir])
        self.quiet(sid)
        self.assertIn("quick", str(self.last_request()[-1]))

    def test_an_answer_that_was_cut_is_its_answer(self):
        sid = consult(self.client)
        self.send(sid, message(fake(ask("text As far as", "stop max_tokens"), "---", "text ok")))
        self.quiet(sid)
        self.assertIn("As far as", str(self.answer()))
        self.assertEqual(len(self.asked()), 1)


class Failures(AdvisorCase):
    def test_a_failure_is_an_error_result_and_the_turn_goes_on(self):
        for line, requests, words in (
            ("status 401 no", 1, "could not answer"),
            ("status 500 oops", 4, "could not answer"),
            ("stop refusal", 1, "declined"),
            ("think hm", 1, "without a text"),
        ):
            with self.subTest(line):
                self.model.client.delete("/requests")
                sid = consult(self.client)
                self.send(sid, message(fake(ask(line), "---", "text On my own.")))
                events = self.quiet(sid, timeout=60)
                self.assertTrue(self.answer()["is_error"])
                self.assertIn(words, str(self.answer()))
                self.assertLessEqual(len(self.asked()), requests)
                self.assertEqual(self.team.child(sid)["status"], "terminated")
                self.assertEqual(reason(events[-1]), "end_turn")
                self.assertEqual(of(events, "session.error"), [])

    def test_a_retry_is_its_own(self):
        sid = consult(self.client)
        self.send(sid, message(fake(ask("@1 status 529 full", "text at last"), "---", "text ok")))
        self.quiet(sid)
        self.assertIn("at last", str(self.answer()))
        self.assertEqual(len(of(self.team.log(sid, self.team.child(sid)["id"]), "session.thread_status_rescheduled")), 1)


class Interrupts(AdvisorCase):
    def busy(self):
        sid = consult(self.client)
        self.send(sid, message(fake(ask("silence"), "---", "text later")))
        wait_for("the advisor is asked", self.asked)
        return sid, self.team.child(sid)["id"]

    def test_an_interrupt_of_the_session_or_of_the_coordinator_ends_it_without_a_word(self):
        for alone in (False, True):
            with self.subTest(coordinator_alone=alone):
                self.model.client.delete("/requests")
                sid, child = self.busy()
                target = {"session_thread_id": self.team.primary(sid)["id"]} if alone else {}
                self.send(sid, {**interrupt(), **target})
                self.assertEqual(self.status(sid), "idle")
                events = self.events(sid)
                self.assertEqual(len(of(events, IDLE)), 1)
                self.assertEqual(of(events, "agent.thread_message_received"), [])
                self.assertEqual(len(of(events, "span.model_request_start")), 1)
                self.assertEqual(self.team.child(sid)["status"], "terminated")
                self.assert_goes_on(sid)

    def test_an_interrupt_of_it_alone_is_an_error_result(self):
        sid, child = self.busy()
        self.send(sid, {**interrupt(), "session_thread_id": child})
        events = self.quiet(sid)
        self.assertIn("stopped the advisor", str(self.answer()))
        self.assertEqual([shown(e) for e in of(events, "agent.message")], ["later"])
        self.assertEqual(self.team.child(sid)["status"], "terminated")

    def test_a_deleted_session_leaves_nothing(self):
        sid, _ = self.busy()
        self.send(sid, interrupt())
        self.client.post(f"/v1/sessions/{sid}/archive")
        self.client.delete(f"/v1/sessions/{sid}")
        wait_for("its rows are gone", lambda: self.server.database.query(f"SELECT count(*) FROM thread_state WHERE session_id = '{sid}'") == [["0"]])


class Budgets(AdvisorCase):
    def test_its_cost_counts_against_the_budget_once(self):
        model = "claude-haiku-4-5"  # of conf/prices.conf: a dollar for a million tokens in
        form = {"type": "coordinator", "agents": [{"type": "advisor", "model": model}]}
        limit = {"type": "limit", "max_list_cost": {"amount": "5", "currency": "USD"}}
        sid = consult(self.client, form=form, model=model, budget=limit)
        self.send(sid, message(fake(ask("usage 60000 10", "text dear"), "---", "text after")))
        events = self.quiet(sid)
        self.assertEqual(reason(events[-1]), "budget_reached")
        self.assertEqual(of(events, "session.usage")[-1]["usage"]["list_cost"]["amount"], "6")
        self.assertEqual(self.team.child(sid)["status"], "terminated")
        self.client.post(f"/v1/sessions/{sid}", {"budget": {**limit, "max_list_cost": {"amount": "100", "currency": "USD"}}})
        wait_for("the turn goes on", lambda: "after" in str(of(self.events(sid), "agent.message")))
        place = self.client.post("/v1/environments", {"name": "dear", "config": {"type": "cloud"}})["id"]
        unpriced = self.client.post("/v1/agents", {"name": "l", "model": model, "multiagent": {"type": "coordinator", "agents": [ADVISOR]}})["id"]
        self.rejected(400, "model_not_budgetable", self.client.post, "/v1/sessions", {"agent": unpriced, "environment_id": place, "budget": limit})


TTL = "2s"
# The answers are 1 (the call), 2 (the advisor's) and 3 (to the result).
POINTS = [("turn.response", 1), ("turn.response", 2), ("turn.response", 3)]


class Crashes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = cls.enterClassContext(FakeModel())

    def one_boundary(self, point, nth):
        self.model.client.delete("/requests")
        with Database() as db, Mangod(database=db, env={"MANGO_NODE_TTL": TTL}, binary="mangod-test", model_url=self.model.url) as m:
            team = Team(m.client)
            sid = consult(m.client)
            script = fake("usage 100 10", ask("usage 1000 10", "text Advice."), "---", "usage 100 10", "text Done.")
            m.restart(hooks=f"{point}=kill:{nth}")
            killed(m, point, lambda: m.client.post(f"/v1/sessions/{sid}/events", {"events": [message(script)]}), 60)

            def look():
                events = m.client.events(sid)
                return events if events[-1]["type"] == IDLE and of(events, "agent.message") else None

            events = wait_for("the turn ends", look, timeout=60)
            (child,) = team.children(sid)
            log = team.log(sid, child["id"])
            self.assertEqual(child["status"], "terminated")
            self.assertEqual(len(of(events, IDLE)), 1)
            for name in ("agent.thread_message_sent", "agent.thread_message_received"):
                self.assertEqual((len(of(events, name)), len(of(log, name))), (1, 1), name)
            asked = [r for r in self.model.requests() if r["body"]["model"] == "adviser"]
            lost = (point, nth) in (("turn.response.after", 1), ("turn.response.before", 2))
            result = shown(of(events, "agent.thread_message_received")[0])
            self.assertIn("was lost" if lost else "Advice.", result)
            self.assertLessEqual(len(asked), 1, "the advisor was asked again")
            self.assertEqual(child["usage"]["input_tokens"], 0 if lost else 1000)
            self.assertEqual(m.client.get(f"/v1/sessions/{sid}")["usage"]["input_tokens"], child["usage"]["input_tokens"] + 200)
            self.assertEqual(self.model.refused(), 0, "the endpoint had to refuse a request")


add_boundaries(Crashes, [(f"{point}.{side}", nth) for point, nth in POINTS for side in ("before", "after")])


if __name__ == "__main__":
    main()
