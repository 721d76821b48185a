"""Budgets: what a session may cost, counted with the price list and kept at each model request (field case 86, semantics UP4, AD15, TU4, BU1 to BU3)."""
from harness import main, wait_for
from turns import IDLE, TOOLSET, TurnCase, confirmation, custom_result, fake, interrupt, reason, types

MODEL = "claude-haiku-4-5"  # of conf/prices.conf: a dollar for a million tokens in, five out
ECHO = 'tool bash {"command":"echo ran >> ran"}'


def limit(cents):
    return {"type": "limit", "max_list_cost": {"amount": str(cents), "currency": "USD"}}


class Budgets(TurnCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.environment = cls.client.post("/v1/environments", {"name": "budgets", "config": {"type": "cloud"}})["id"]
        cls.agent = cls.new_agent(MODEL)

    @classmethod
    def new_agent(cls, model, policy="always_allow"):
        tools = [{**TOOLSET, "default_config": {"permission_policy": {"type": policy}}},
                 {"type": "custom", "name": "ask", "description": "asks", "input_schema": {"type": "object"}}]
        return cls.client.post("/v1/agents", {"name": "budgets", "model": model, "tools": tools})["id"]

    def new(self, agent=None, **session):
        return self.client.post("/v1/sessions", {"agent": agent or self.agent, "environment_id": self.environment, **session})["id"]

    def session(self, sid):
        return self.client.get(f"/v1/sessions/{sid}")

    def update(self, sid, budget):
        return self.client.post(f"/v1/sessions/{sid}", {"budget": budget})

    def raised(self, sid, budget):
        """The events from the change of the budget to the end of the turn that it resumes."""
        with self.client.stream(sid) as stream:
            self.assertEqual(self.update(sid, budget)["budget"], budget)
            return stream.until(IDLE)

    def used_up(self, *more):
        """A session of 2 cents whose first request, with a tool call, costs 3."""
        sid = self.new(budget=limit(2))
        return sid, self.turn(sid, fake("usage 30000 0", ECHO, "---", "text done", *more))

    def test_case_86_a_turn_that_crosses_the_budget_ends_at_the_next_request(self):
        sid, events = self.used_up()
        self.assertEqual(types(events)[-2:], ["session.usage", IDLE], "usage comes just before the idle")
        self.assertEqual(events[-1]["stop_reason"], {"type": "budget_reached"})
        self.assertEqual(types(events).count("span.model_request_start"), 1)
        self.assertIn("agent.tool_result", types(events), "the tools of the request that was paid for run")
        self.assertEqual(events[-2]["usage"]["list_cost"], {"amount": "3", "currency": "USD"})
        self.assertEqual(events[-2]["usage"]["input_tokens"], 30000)
        self.assertEqual(events[-2]["budget"], limit(2))
        got = self.session(sid)
        self.assertEqual((got["status"], got["budget"], got["usage"]["list_cost"]["amount"]), ("idle", limit(2), "3"))

    def test_case_86_only_answers_and_interrupts_are_taken_and_a_higher_budget_resumes(self):
        sid, _ = self.used_up()
        self.rejected(400, "only user.interrupt, user.tool_confirmation", self.client.say, sid, "hello")
        before = len(self.client.events(sid))
        self.send(sid, interrupt())
        self.assertEqual(types(self.client.events(sid))[before:], ["user.interrupt"], "an interrupt has no effect")
        self.rejected(400, "budget_not_raised", self.update, sid, limit(3))
        self.rejected(400, "budget_not_raised", self.update, sid, limit(1))
        events = self.raised(sid, limit(4))
        self.assertEqual(types(events)[:2], ["session.updated", "session.status_running"])
        self.assertEqual(events[0]["budget"], limit(4))
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assertEqual([e["content"][0]["text"] for e in events if e["type"] == "agent.message"], ["done"])

    def test_case_86_null_removes_the_budget_for_good_and_resumes(self):
        sid, _ = self.used_up()
        events = self.raised(sid, None)
        self.assertIsNone(events[0]["budget"])
        self.assertEqual(reason(events[-1]), "end_turn")
        self.rejected(400, "budget_create_only", self.update, sid, limit(100))
        self.assertIsNone(self.update(sid, None)["budget"], "null where there is none changes nothing")

    def test_case_86_a_budget_cannot_be_added_later(self):
        sid = self.new()
        self.rejected(400, "budget_create_only", self.update, sid, limit(100))
        self.assertIsNone(self.session(sid)["budget"])

    def test_case_86_answers_are_taken_and_the_turn_then_waits(self):
        sid = self.new(budget=limit(2))
        events = self.turn(sid, fake("usage 30000 0", "tool ask {}", "---", "text done"))
        self.assertEqual(reason(events[-1]), "requires_action", "what the client must do comes first")
        events = self.until(sid, custom_result(events[-1]["stop_reason"]["event_ids"][0], "yes"))
        self.assertEqual(types(events)[-2:], ["session.usage", IDLE])
        self.assertEqual(reason(events[-1]), "budget_reached")
        self.assertEqual(reason(self.raised(sid, limit(50))[-1]), "end_turn")

    def test_case_86_confirmations_are_taken_and_the_tool_runs(self):
        sid = self.new(self.new_agent(MODEL, "always_ask"), budget=limit(2))
        events = self.turn(sid, fake("usage 30000 0", ECHO, "---", "text done"))
        events = self.until(sid, confirmation(events[-1]["stop_reason"]["event_ids"][0]))
        self.assertIn("agent.tool_result", types(events))
        self.assertEqual(reason(events[-1]), "budget_reached")

    def test_case_86_sums_are_exact_and_the_last_cent_counts(self):
        sid = self.new(budget=limit(2))
        self.assertEqual(reason(self.turn(sid, fake("usage 19999 0", "text one"))[-1]), "end_turn")
        self.assertEqual(self.session(sid)["usage"]["list_cost"]["amount"], "1", "whole cents that are spent")
        events = self.turn(sid, fake("usage 1 0", "text two"))
        self.assertEqual(reason(events[-1]), "budget_reached", "exactly two cents are two cents")
        self.rejected(400, "budget is used up", self.client.say, sid, "more")

    def test_cache_prices_count(self):
        sid = self.new(budget=limit(100))
        self.turn(sid, fake("usage 0 0 1000000 80000", "text one"))  # 10 cents read, 10 cents written
        self.assertEqual(self.session(sid)["usage"]["list_cost"]["amount"], "20")

    def test_a_model_without_a_price_cannot_have_a_budget_and_shows_no_cost(self):
        agent = self.new_agent("mango-unpriced")
        self.rejected(400, "model_not_budgetable", lambda: self.new(agent, budget=limit(2)))
        sid = self.new(agent)
        self.assertEqual(self.session(sid)["usage"]["list_cost"], {"amount": "0", "currency": "USD"})
        self.turn(sid, fake("usage 10 1", "text one"))
        self.assertIsNone(self.session(sid)["usage"]["list_cost"])

    def test_a_paused_turn_survives_a_restart(self):
        sid, _ = self.used_up()
        self.server.kill()
        self.server.restart()
        self.assertEqual(self.session(sid)["status"], "idle")
        self.assertEqual(reason(self.raised(sid, limit(50))[-1]), "end_turn")

    def test_a_paused_session_can_be_archived_and_deleted(self):
        sid, _ = self.used_up()
        self.client.post(f"/v1/sessions/{sid}/archive", {})
        self.assertEqual(self.session(sid)["status"], "terminated")
        self.rejected(409, "archived", self.update, sid, limit(50))
        sid, _ = self.used_up()
        self.client.delete(f"/v1/sessions/{sid}")
        wait_for("the row is gone", lambda: not self.server.database.query(f"SELECT id FROM sessions WHERE id = '{sid}'"))

    def test_case_11_a_bad_budget_names_its_place(self):
        for budget, words in (
            ({}, "budget.type"),
            ({"type": "limit"}, "budget.max_list_cost"),
            ({"type": "soft", "max_list_cost": {"amount": "1", "currency": "USD"}}, "budget.type"),
            ({"type": "limit", "max_list_cost": {"amount": 5, "currency": "USD"}}, "budget.max_list_cost.amount"),
            ({"type": "limit", "max_list_cost": {"amount": "0", "currency": "USD"}}, "budget.max_list_cost.amount"),
            ({"type": "limit", "max_list_cost": {"amount": "05", "currency": "USD"}}, "budget.max_list_cost.amount"),
            ({"type": "limit", "max_list_cost": {"amount": "1.5", "currency": "USD"}}, "budget.max_list_cost.amount"),
            ({"type": "limit", "max_list_cost": {"amount": "-5", "currency": "USD"}}, "budget.max_list_cost.amount"),
            ({"type": "limit", "max_list_cost": {"amount": "1" * 12, "currency": "USD"}}, "budget.max_list_cost.amount"),
            ({"type": "limit", "max_list_cost": {"amount": "5", "currency": "EUR"}}, "budget.max_list_cost.currency"),
            ({"type": "limit", "max_list_cost": {"amount": "5", "currency": "USD"}, "x": 1}, "budget.x"),
        ):
            with self.subTest(budget):
                self.rejected(400, words, lambda: self.new(budget=budget))


if __name__ == "__main__":
    main()
