"""Coordinators and their children (semantics TH1 to TH5, SM4, PA7, IN6, AD4, AD8): delegation and reports, independent transcripts, routed answers,
interrupts of one thread and of all, failures, archive, deletion, streams."""
import threading

from api import ApiError
from harness import main, wait_for
from threads import ThreadCase, say, task
from turns import CUSTOM, IDLE, TOOLSET, confirmation, custom_result, fake, interrupt, message, of, reason, shown, system, text, tool_result, types


def with_thread(event, thread):
    return {**event, "session_thread_id": thread}


class Delegation(ThreadCase):
    def test_a_task_goes_to_a_child_and_its_answer_comes_back(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", say("text All is well.")), "---", "text I have asked.")))
        events = self.quiet(sid)
        child = self.team.child(sid)
        primary = self.team.primary(sid)
        self.assertEqual(
            types(events),
            [
                "user.message", "session.thread_status_running", "session.status_running", "span.model_request_start",
                "span.model_request_end", "session.thread_created", "agent.thread_message_sent", "session.thread_status_running",
                "span.model_request_start",
            ] + types(events)[9:],
        )  # fmt: skip
        created, sent = of(events, "session.thread_created")[0], of(events, "agent.thread_message_sent")[0]
        self.assertEqual((created["session_thread_id"], created["agent_name"], created["workflow_run_id"]), (child["id"], "worker", None))
        self.assertEqual((sent["to_session_thread_id"], sent["to_agent_name"]), (child["id"], "worker"))
        report = of(events, "agent.thread_message_received")[0]
        self.assertEqual((report["from_session_thread_id"], report["from_agent_name"]), (child["id"], "worker"))
        self.assertIn("All is well", shown(report))
        self.assertEqual([shown(e) for e in of(events, "agent.message")], ["I have asked.", "All is well."])
        self.assertEqual(len(of(events, IDLE)), 1, "the session was not idle while the child ran")
        self.assertEqual(of(events, "agent.tool_use", "agent.tool_result"), [], "delegation is no client's call")
        for e in events:
            self.assertIsNotNone(e["processed_at"], e["type"])
        log = self.team.log(sid, child["id"])
        self.assertEqual(
            types(log),
            [
                "agent.thread_message_received", "session.thread_status_running", "span.model_request_start", "agent.message",
                "span.model_request_end", "agent.thread_message_sent", "session.thread_status_idle",
            ],
        )  # fmt: skip
        self.assertEqual(log[0]["from_session_thread_id"], primary["id"])
        self.assertNotIn("from_agent_name", log[0], "the primary agent's name is left out")
        self.assertEqual(log[-2]["to_session_thread_id"], primary["id"])
        self.assertEqual(reason(log[-1]), "end_turn")
        self.assertEqual(len({e["id"] for e in events + log}), len(events) + len(log), "no id is in two logs")

    def test_threads_are_shown_with_their_agents_and_usage(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake("usage 100 10", task("worker", "usage 1000 50", "text ok"), "---", "usage 100 10", "text hm")))
        self.quiet(sid)
        session = self.client.get(f"/v1/sessions/{sid}")
        primary, child = self.team.threads(sid)
        self.assertIsNone(primary["parent_thread_id"])
        self.assertEqual(child["parent_thread_id"], primary["id"])
        self.assertEqual(child["agent"]["name"], "worker")
        self.assertNotIn("multiagent", child["agent"])
        self.assertNotIn("multiagent", primary["agent"])
        self.assertEqual(session["agent"]["multiagent"]["agents"], [child["agent"]], "the session has the whole definition")
        for kind in ("input_tokens", "output_tokens"):
            self.assertEqual(session["usage"][kind], primary["usage"][kind] + child["usage"][kind], kind)
        self.assertEqual(child["usage"]["input_tokens"], 1000)
        self.assertEqual((primary["status"], child["status"]), ("idle", "idle"))
        self.assertEqual([t["id"] for t in self.team.threads(sid, "?limit=1")], [primary["id"]])
        page = self.client.get(f"/v1/sessions/{sid}/threads?limit=1")["next_page"]
        self.assertEqual([t["id"] for t in self.team.threads(sid, f"?limit=1&page={page}")], [child["id"]])
        self.assertEqual(self.team.threads(sid, "?statuses=running"), [])

    def test_each_thread_has_a_transcript_of_its_own(self):
        sid = self.team.session("one", "two")
        self.send(
            sid,
            message(fake(task("one", "text apple"), task("two", "text pear"), "---", "text The user's word is plum.")),
        )
        self.quiet(sid)
        by_thread = {}
        for r in self.model.requests():
            body = str(r["body"]["messages"])
            for word in ("apple", "pear"):
                if f"text {word}" in body and "plum" not in body:
                    by_thread[word] = body
        self.assertNotIn("pear", by_thread["apple"])
        self.assertNotIn("apple", by_thread["pear"])
        final = str(self.model.requests()[-1]["body"]["messages"])
        for word in ("apple", "pear", "plum"):
            self.assertIn(word, final, "the coordinator has all of it")

    def test_children_run_at_the_same_time_as_each_other_and_the_coordinator(self):
        sid = self.team.session("one", "two")
        self.send(sid, message(fake(task("one", "delay 1500", "text a"), task("two", "delay 1500", "text b"), "---", "text c")))
        wait_for("both run", lambda: [t["status"] for t in self.team.children(sid)] == ["running", "running"])
        wait_for("the coordinator is idle", lambda: self.team.primary(sid)["status"] == "idle")
        self.assertEqual(self.status(sid), "running", "the session runs while any thread does (SM4)")
        self.quiet(sid)

    def test_reports_that_wait_together_are_one_turn(self):
        sid = self.team.session("one", "two", "three")
        tasks = [task(name, f"text from {name}") for name in ("one", "two", "three")]
        self.send(sid, message(fake(*tasks, "---", "delay 1500", "text asked")))
        events = self.quiet(sid)
        self.assertEqual(len(of(events, "agent.thread_message_received")), 3)
        self.assertEqual(len(of(events, "agent.message")), 2, "the three reports were answered by one message")
        final = str(self.model.requests()[-1]["body"]["messages"])
        for name in ("one", "two", "three"):
            self.assertIn(f"from {name}", final)

    def test_a_follow_up_goes_to_the_same_thread_and_its_memory(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", "text first answer"), "---", "text ok")))
        self.quiet(sid)
        child = self.team.child(sid)
        self.send(sid, message(fake(task("worker", "text second answer", session_thread_id=child["id"]), "---", "text ok")))
        wait_for("the second answer is there", lambda: "second answer" in str(of(self.events(sid), "agent.thread_message_received")))
        self.quiet(sid)
        self.assertEqual(len(self.team.children(sid)), 1)
        asked = next(r for r in self.model.requests() if "text second answer" in str(r["body"]["messages"][-1]) and "agent_message" in str(r["body"]))
        self.assertIn("first answer", str(asked["body"]["messages"]))

    def test_list_agents_names_the_roster_and_the_threads(self):
        sid = self.team.session("worker", "other")
        self.send(sid, message(fake(task("worker", "text ok"), "---", "text asked")))
        self.quiet(sid)
        self.until(sid, message(fake("tool list_agents {}", "---", "text seen")))
        result = str(self.last_request()[-1])
        for word in ("worker", "other", self.team.child(sid)["id"], "end_turn"):
            self.assertIn(word, result)

    def test_what_a_coordinator_asks_in_vain_is_an_error_that_says_why(self):
        sid = self.team.session("worker")
        for line, why in (
            (task("nobody", "text x"), "no agent of this name"),
            (task("worker", "text x", session_thread_id="sthr_none"), "no such thread"),
            ('tool send_to_agent {"agent_name":"worker","message":""}', "not empty"),
        ):
            with self.subTest(why):
                self.until(sid, message(fake(line, "---", "text ok")))
                self.assertIn(why, str(self.last_request()[-1]))
        self.assertEqual(self.team.children(sid), [])

    def test_a_child_cannot_delegate(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", task("worker", "text x"), "---", "text could not"), "---", "text ok")))
        self.quiet(sid)
        self.assertEqual(len(self.team.children(sid)), 1)
        result = of(self.team.log(sid, self.team.child(sid)["id"]), "agent.tool_result")[0]
        self.assertTrue(result["is_error"])

    def test_there_are_at_most_25_threads(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(*[task("worker", "text ok")] * 25, "---", "text done")))
        self.quiet(sid, timeout=60)
        self.assertEqual(len(self.team.children(sid)), 24)
        limit = [r for r in self.model.requests() if "There are 25 threads" in str(r["body"]["messages"][-1])]
        self.assertEqual(len(limit), 1)
        child = self.team.child(sid)
        self.client.post(f"/v1/sessions/{sid}/threads/{child['id']}/archive")
        self.send(sid, message(fake(task("worker", "text ok"), "---", "text done")))
        wait_for("a place was free again", lambda: len(self.team.children(sid)) == 25)
        self.quiet(sid)


class Tools(ThreadCase):
    def test_a_childs_tools_run_in_the_sessions_sandbox(self):
        sid = self.team.session("worker", tools=[TOOLSET], lead_tools=[TOOLSET])
        child = ('tool bash {"command":"pwd > where; cd /tmp; echo 1 > \\"$OLDPWD/made\\""}', "---", say('tool bash {"command":"cat made; pwd"}', "---", "text read"))
        self.send(sid, message(fake(task("worker", *child), "---", "text asked")))
        events = self.quiet(sid)
        own = of(events, "agent.tool_result")
        self.assertEqual(len(own), 1, "the child's call is in its own log alone")
        self.assertIn("1", shown(own[0]))
        self.assertNotIn("/tmp\n", shown(own[0]) + "\n", "each thread has a shell of its own")
        log = self.team.log(sid, self.team.child(sid)["id"])
        self.assertEqual(len(of(log, "agent.tool_use")), 1)
        self.assertNotIn("session_thread_id", of(log, "agent.tool_use")[0])

    def parked(self, tools, *script):
        """A child that waits for a client: (session, child's id, the session's events, the ids that the session waits for)."""
        sid = self.team.session("worker", tools=tools)
        self.send(sid, message(fake(task("worker", *script), "---", "text asked")))
        events = self.quiet(sid)
        self.assertEqual(reason(events[-1]), "requires_action")
        return sid, self.team.child(sid)["id"], events, events[-1]["stop_reason"]["event_ids"]

    def test_a_childs_confirmation_is_asked_for_and_given_at_the_session(self):
        ask = [{**TOOLSET, "default_config": {"permission_policy": {"type": "always_ask"}}}]
        sid, child, events, ids = self.parked(ask, 'tool bash {"command":"echo allowed"}', "---", "text ran it")
        copy = next(e for e in events if e["id"] == ids[0])
        self.assertEqual((copy["type"], copy["session_thread_id"], copy["evaluated_permission"]), ("agent.tool_use", child, "ask"))
        log = self.team.log(sid, child)
        own = of(log, "agent.tool_use")[0]
        self.assertNotEqual(own["id"], copy["id"])
        self.assertEqual(log[-1]["stop_reason"]["event_ids"], [own["id"]])
        shown_idle = [e for e in of(events, "session.thread_status_idle") if e["session_thread_id"] == child][-1]
        self.assertEqual(shown_idle["stop_reason"]["event_ids"], [copy["id"]], "clients of the session see the ids that they can answer")
        (answer,) = self.send(sid, confirmation(copy["id"]))
        self.assertEqual((answer["tool_use_id"], answer["session_thread_id"]), (copy["id"], child))
        events = self.quiet(sid)
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assertEqual(of(events, "agent.tool_result")[0]["tool_use_id"], copy["id"])
        log = self.team.log(sid, child)
        self.assertEqual(of(log, "user.tool_confirmation")[0]["tool_use_id"], own["id"])
        self.assertNotIn("session_thread_id", of(log, "user.tool_confirmation")[0])
        self.assertIn("allowed", shown(of(log, "agent.tool_result")[0]))
        self.assertIn("ran it", shown(of(events, "agent.thread_message_received")[0]))

    def test_a_denial_reaches_the_child(self):
        ask = [{**TOOLSET, "default_config": {"permission_policy": {"type": "always_ask"}}}]
        sid, child, _, ids = self.parked(ask, 'tool bash {"command":"rm -rf /"}', "---", "text understood")
        self.send(sid, confirmation(ids[0], "deny", deny_message="never"))
        self.quiet(sid)
        result = of(self.team.log(sid, child), "agent.tool_result")[0]
        self.assertIn("never", shown(result))
        self.assertTrue(result["is_error"])

    def test_a_childs_custom_tool_is_answered_by_either_id(self):
        for own in (False, True):
            with self.subTest(own_id=own):
                sid, child, _, ids = self.parked([CUSTOM], 'tool lookup {"q":1}', "---", "text got it")
                call = of(self.team.log(sid, child), "agent.custom_tool_use")[0]["id"] if own else ids[0]
                self.send(sid, with_thread(custom_result(call, "blue"), child))
                events = self.quiet(sid)
                self.assertEqual(reason(events[-1]), "end_turn")
                log = self.team.log(sid, child)
                self.assertIn("blue", shown(of(log, "user.custom_tool_result")[0]))
                self.assertEqual(len(of(events, "user.custom_tool_result")), 1)
                again = self.send(sid, custom_result(call, "blue"))
                self.assertEqual(again[0]["id"], of(events, "user.custom_tool_result")[0]["id"], "a repeat gives the first answer")
                self.assertIn("cannot be changed", self.refused(409, sid, custom_result(call, "red")))

    def test_a_wrong_thread_hint_is_refused(self):
        sid, child, _, ids = self.parked([CUSTOM], 'tool lookup {"q":1}', "---", "text got it")
        primary = self.team.primary(sid)["id"]
        self.assertIn(child, self.refused(400, sid, with_thread(custom_result(ids[0]), primary)))
        self.assertIn("no tool call", self.refused(400, sid, custom_result("sevt_none")))

    def test_answers_of_several_threads_in_one_request(self):
        sid = self.team.session("one", "two", tools=[CUSTOM], lead_tools=[CUSTOM])
        script = ('tool lookup {"q":1}', "---", "text got it")
        self.send(sid, message(fake(task("one", *script), task("two", *script), 'tool lookup {"q":0}', "---", "text asked")))
        events = self.quiet(sid)
        ids = events[-1]["stop_reason"]["event_ids"]
        self.assertEqual(len(ids), 3, "the session's idle lists what any thread waits for")
        answers = self.send(sid, *[custom_result(i) for i in ids])
        self.assertEqual([a["custom_tool_use_id"] for a in answers], ids, "one event a draft, in order (AD4)")
        events = self.quiet(sid)
        self.assertEqual(len(of(events, "agent.thread_message_received")), 2)

    def test_partial_answers_leave_the_rest_open(self):
        sid, child, _, ids = self.parked([CUSTOM], 'tool lookup {"q":1}', 'tool lookup {"q":2}')
        self.send(sid, custom_result(ids[1]))
        events = self.quiet(sid)
        self.assertEqual(events[-1]["stop_reason"]["event_ids"], [ids[0]])
        self.send(sid, custom_result(ids[0]), system("be quick"))
        self.quiet(sid)
        self.assertEqual(of(self.team.log(sid, child), "system.message")[0]["content"], text("be quick"), "it went with the result")
        asked = next(r for r in reversed(self.model.requests()) if "be quick" in str(r["body"]))
        self.assertNotIn("text asked", str(asked["body"]["messages"]), "to the child")

    def test_a_workers_calls_of_children_are_shown_and_answered_at_the_session(self):
        sid = self.team.session("worker", tools=[TOOLSET], environment="self_hosted")
        self.send(sid, message(fake(task("worker", 'tool bash {"command":"x"}', "---", "text ran"), "---", "text asked")))
        events = self.quiet(sid)
        (call,) = events[-1]["stop_reason"]["event_ids"]
        self.send(sid, tool_result(call, "output"))
        events = self.quiet(sid)
        self.assertEqual(of(events, "user.tool_result")[0]["tool_use_id"], call)
        self.assertIn("ran", shown(of(events, "agent.thread_message_received")[0]))

    def test_a_message_for_the_coordinator_does_not_wait_for_a_childs_barrier(self):
        sid, _, _, ids = self.parked([CUSTOM], 'tool lookup {"q":1}', "---", "text got it")
        events = self.until(sid, message("hello"))
        self.assertTrue(of(events, "agent.message"))
        self.assertEqual(events[-1]["stop_reason"]["event_ids"], ids, "the idle says again what is waited for")


class Interrupts(ThreadCase):
    def busy(self, *names, lead="text asked"):
        """Children whose model is silent."""
        sid = self.team.session(*names)
        self.send(sid, message(fake(*[task(n, "delay 20000", "text late") for n in names], "---", lead)))
        wait_for("all children run", lambda: [t["status"] for t in self.team.children(sid)] == ["running"] * len(names))
        return sid

    def test_an_interrupt_without_a_thread_stops_all(self):
        sid = self.busy("one", "two", lead="delay 20000")
        wait_for("the coordinator runs", lambda: self.team.primary(sid)["status"] == "running")
        self.send(sid, interrupt())
        self.assertEqual(self.status(sid), "idle", "the interrupt's own commit has stopped everything")
        events = self.events(sid)
        self.assertEqual(len(of(events, IDLE)), 1)
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assertEqual(of(events, "agent.thread_message_received"), [], "nobody is woken by what the user stopped")
        for child in self.team.children(sid):
            self.assertEqual(child["status"], "idle")
            log = self.team.log(sid, child["id"])
            self.assertEqual(len(of(log, "user.interrupt")), 1, "each thread has its own receipt")
            self.assertEqual(reason(log[-1]), "end_turn")
        self.assert_goes_on(sid)

    def test_an_interrupt_of_one_thread_leaves_the_others_and_tells_the_coordinator(self):
        sid = self.busy("one", "two")
        one, two = self.team.children(sid)
        (event,) = self.send(sid, with_thread(interrupt(), one["id"]))
        self.assertEqual(event["session_thread_id"], one["id"])
        self.assertEqual(self.team.thread_is(sid, one["id"], "idle")["status"], "idle")
        self.assertEqual(self.client.get(f"/v1/sessions/{sid}/threads/{two['id']}")["status"], "running")
        wait_for("the coordinator was told", lambda: of(self.events(sid), "agent.thread_message_received"))
        self.assertIn("interrupted", shown(of(self.events(sid), "agent.thread_message_received")[0]))
        self.assertEqual(of(self.team.log(sid, two["id"]), "user.interrupt"), [])
        self.send(sid, interrupt())

    def test_an_interrupt_of_the_coordinator_leaves_its_children(self):
        sid = self.busy("one", lead="delay 20000")
        primary = self.team.primary(sid)["id"]
        wait_for("the coordinator runs", lambda: self.team.primary(sid)["status"] == "running")
        self.send(sid, with_thread(interrupt(), primary))
        self.assertEqual(self.team.primary(sid)["status"], "idle")
        self.assertEqual(self.status(sid), "running", "the child goes on")
        self.assertEqual(of(self.events(sid), IDLE), [])
        self.send(sid, interrupt())
        self.assertEqual(self.status(sid), "idle")

    def test_an_interrupt_of_a_waiting_child_answers_its_calls(self):
        sid = self.team.session("worker", tools=[CUSTOM])
        self.send(sid, message(fake(task("worker", 'tool lookup {"q":1}', "---", "text no"), "---", "text asked")))
        events = self.quiet(sid)
        (call,) = events[-1]["stop_reason"]["event_ids"]
        self.send(sid, with_thread(interrupt(), self.team.child(sid)["id"]))
        events = self.quiet(sid)
        answer = of(events, "user.custom_tool_result")[0]
        self.assertEqual((answer["custom_tool_use_id"], answer["is_error"]), (call, True))
        self.assertEqual(reason(events[-1]), "end_turn")

    def test_threads_that_do_not_exist_or_have_ended_are_refused(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", "text ok"), "---", "text asked")))
        self.quiet(sid)
        child = self.team.child(sid)["id"]
        self.assertIn("no thread", self.refused(400, sid, with_thread(interrupt(), "sthr_none")))
        self.client.post(f"/v1/sessions/{sid}/threads/{child}/archive")
        self.assertIn("has ended", self.refused(409, sid, with_thread(interrupt(), child)))


class Failures(ThreadCase):
    def test_a_child_whose_model_fails_for_good_ends_and_the_coordinator_is_told(self):
        for line, status in (("status 401 no", "terminal"), ("status 500 oops", "exhausted")):
            with self.subTest(line):
                sid = self.team.session("worker")
                self.send(sid, message(fake(task("worker", line), "---", "text asked")))
                events = self.quiet(sid)
                child = self.team.child(sid)
                self.assertEqual(child["status"], "terminated")
                self.assertIn("could not finish", shown(of(events, "agent.thread_message_received")[0]))
                self.assertEqual(of(events, "session.error"), [], "the child's error is in its own log")
                log = self.team.log(sid, child["id"])
                self.assertEqual(of(log, "session.error")[-1]["error"]["retry_status"]["type"], status)
                self.assertEqual(log[-1]["type"], "session.thread_status_terminated")
                self.assertEqual(len(of(events, "session.thread_status_terminated")), 1)
                self.assertEqual(reason(events[-1]), "end_turn")
                self.assert_goes_on(sid)

    def test_a_childs_retry_is_its_own_status(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", "@1 status 529 full", "text at last"), "---", "delay 1500", "text asked")))
        child = self.team.child(sid)["id"]
        self.team.thread_is(sid, child, "rescheduling")
        self.assertEqual(self.status(sid), "running", "the coordinator runs, whatever the child waits for (SM4)")
        events = self.quiet(sid)
        self.assertIn("at last", shown(of(events, "agent.thread_message_received")[0]))
        self.assertEqual(len(of(events, "session.thread_status_rescheduled")), 1)

    def test_a_session_is_rescheduling_when_nothing_but_a_retry_is_left(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", "@1 header retry-after: 2", "@1 status 529 full", "text at last"), "---", "text asked")))
        wait_for("the session is rescheduling", lambda: self.status(sid) == "rescheduling")
        events = self.quiet(sid)
        self.assertEqual(len(of(events, "session.status_rescheduled")), 1)
        self.assertEqual(len(of(events, IDLE)), 1)

    def test_a_coordinator_whose_model_fails_for_good_ends_the_session_and_its_children(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", "delay 20000", "text late"), "---", "status 401 no")))
        events = wait_for("the session has ended", lambda: (lambda e: e if e[-1]["type"] == "session.status_terminated" else None)(self.events(sid)))
        self.assertEqual(len(of(events, "session.thread_status_terminated")), 1)
        self.assertEqual(self.team.child(sid)["status"], "terminated")

    def test_a_child_without_a_last_word_is_reported_all_the_same(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", "think hm", "stop end_turn"), "---", "text asked")))
        events = self.quiet(sid)
        self.assertIn("without a message", shown(of(events, "agent.thread_message_received")[0]))


class Budgets(ThreadCase):
    def test_a_budget_is_held_against_all_threads_and_a_higher_one_resumes_a_child(self):
        def limit(cents):
            return {"type": "limit", "max_list_cost": {"amount": str(cents), "currency": "USD"}}

        model = "claude-haiku-4-5"  # of conf/prices.conf: a dollar for a million tokens in
        worker = self.client.post("/v1/agents", {"name": "worker", "model": model, "tools": [TOOLSET]})
        lead = self.client.post("/v1/agents", {"name": "lead", "model": model, "multiagent": self.team.roster(worker)})
        place = self.client.post("/v1/environments", {"name": "budget", "config": {"type": "cloud"}})["id"]
        sid = self.client.post("/v1/sessions", {"agent": lead["id"], "environment_id": place, "budget": limit(5)})["id"]
        child = ("delay 700", "usage 60000 10", 'tool bash {"command":"echo on"}', "---", "text finished")
        self.send(sid, message(fake(task("worker", *child), "---", "text asked")))
        events = self.quiet(sid)
        self.assertEqual(reason(events[-1]), "budget_reached")
        self.assertEqual(events[-2]["type"], "session.thread_status_idle")
        self.assertEqual(of(events, "session.usage")[-1]["usage"]["list_cost"]["amount"], "6")
        thread = self.team.child(sid)
        self.assertEqual((thread["status"], thread["usage"]["list_cost"]["amount"]), ("idle", "6"))
        self.assertEqual(of(events, "agent.thread_message_received"), [])
        self.client.post(f"/v1/sessions/{sid}", {"budget": limit(100)})
        wait_for("the child has gone on", lambda: of(self.events(sid), "agent.thread_message_received"))
        events = self.quiet(sid)
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assertIn("finished", shown(of(events, "agent.thread_message_received")[0]))


class Ends(ThreadCase):
    def test_archive_ends_a_child_and_only_one_that_does_not_run(self):
        sid = self.team.session("worker", tools=[CUSTOM])
        self.send(sid, message(fake(task("worker", "delay 20000", "text late"), "---", "text asked")))
        child = self.team.child(sid)["id"]
        path = f"/v1/sessions/{sid}/threads/{child}/archive"
        with self.assertRaises(ApiError) as caught:
            self.client.post(path)
        self.assertEqual(caught.exception.status, 409)
        self.send(sid, interrupt())
        archived = self.client.post(path)
        self.assertEqual((archived["status"], archived["archived_at"] is None), ("terminated", False))
        self.assertEqual(self.client.post(path), archived, "twice is fine")
        self.assertEqual(self.team.log(sid, child)[-1]["type"], "session.thread_status_terminated")
        self.assertEqual(self.events(sid)[-1]["type"], "session.thread_status_terminated")
        for thread, status in ((self.team.primary(sid)["id"], 400), ("sthr_none", 404)):
            with self.assertRaises(ApiError) as caught:
                self.client.post(f"/v1/sessions/{sid}/threads/{thread}/archive")
            self.assertEqual(caught.exception.status, status)
        self.assert_goes_on(sid)

    def test_archive_of_a_waiting_child_answers_its_calls_and_tells_the_coordinator(self):
        sid = self.team.session("worker", tools=[CUSTOM])
        self.send(sid, message(fake(task("worker", 'tool lookup {"q":1}', "---", "text no"), "---", "text asked")))
        self.quiet(sid)
        child = self.team.child(sid)["id"]
        self.client.post(f"/v1/sessions/{sid}/threads/{child}/archive")
        events = self.quiet(sid)
        self.assertIn("archived", shown(of(events, "agent.thread_message_received")[0]))
        self.assertTrue(of(events, "user.custom_tool_result")[0]["is_error"])
        self.assertEqual(reason(events[-1]), "end_turn")

    def test_archive_of_the_session_ends_its_children(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", "text ok"), "---", "text asked")))
        self.quiet(sid)
        self.client.post(f"/v1/sessions/{sid}/archive")
        self.assertEqual([t["status"] for t in self.team.threads(sid)], ["terminated", "terminated"])
        self.assertEqual(types(self.events(sid))[-2:], ["session.thread_status_terminated", "session.status_terminated"])

    def test_a_deleted_session_ends_the_streams_of_its_threads(self):
        sid = self.team.session("worker")
        self.send(sid, message(fake(task("worker", "text ok"), "---", "text asked")))
        self.quiet(sid)
        child = self.team.child(sid)["id"]
        with self.stream(sid, child) as stream:
            self.client.delete(f"/v1/sessions/{sid}")
            self.assertEqual(types(stream.until("session.deleted")), ["session.deleted"])
        db = self.server.database
        wait_for("its rows are gone", lambda: db.query(f"SELECT count(*) FROM thread_state WHERE session_id = '{sid}'") == [["0"]])

    def stream(self, sid, thread, query=""):
        from api import Stream

        return Stream(self.client, f"/v1/sessions/{sid}/threads/{thread}/stream{query}", {}, 30)

    def test_streams_of_the_session_and_of_a_thread_are_their_logs_in_order(self):
        sid = self.team.session("worker", tools=[CUSTOM])
        seen = []

        def follow():
            with self.client.stream(sid, query="event_deltas=agent.message") as stream:
                ready.set()
                seen.extend(stream.until(IDLE))

        ready = threading.Event()
        reader = threading.Thread(target=follow)
        reader.start()
        ready.wait(10)
        self.send(sid, message(fake(task("worker", "delay 300", "text secret of the child"), "---", "text asked")))
        child = self.team.child(sid)["id"]
        with self.stream(sid, child, "?after=start&event_deltas=agent.message") as stream:
            own = stream.until("session.thread_status_idle")
        reader.join(30)
        stored = [e for e in seen if not e["type"].startswith("event_")]
        self.assertEqual([e["id"] for e in stored], [e["id"] for e in self.events(sid)])
        mine = [e for e in own if not e["type"].startswith("event_")]
        self.assertEqual([e["id"] for e in mine], [e["id"] for e in self.team.log(sid, child)])
        messages = {e["id"] for e in of(self.events(sid), "agent.message")}
        previews = {e["event"]["id"] for e in of(seen, "event_start")}
        self.assertLessEqual(previews, messages, "the session's stream previews nothing of the child's (ST6)")
        primary = self.team.primary(sid)["id"]
        self.assertEqual(self.team.log(sid, primary), self.events(sid), "the primary thread's log is the session's")


class Rosters(ThreadCase):
    def create(self, status, text_of_error, **body):
        with self.assertRaises(ApiError) as caught:
            self.client.post("/v1/agents", {"name": "lead", "model": "m", **body})
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(text_of_error, caught.exception.message)

    def test_a_roster_is_pinned_to_versions_and_a_session_to_definitions(self):
        worker = self.team.agent("worker", system="first")
        lead = self.team.agent("lead", multiagent={"type": "coordinator", "agents": [worker["id"], {"type": "self"}]})
        self.assertEqual(
            lead["multiagent"],
            {
                "type": "coordinator",
                "agents": [{"type": "agent", "id": worker["id"], "version": 1}, {"type": "agent", "id": lead["id"], "version": 1}],
            },
        )
        self.client.post(f"/v1/agents/{worker['id']}", {"system": "second"})
        place = self.client.post("/v1/environments", {"name": "roster", "config": {"type": "cloud"}})["id"]
        session = self.client.post("/v1/sessions", {"agent": lead["id"], "environment_id": place})
        members = session["agent"]["multiagent"]["agents"]
        self.assertEqual([(m["name"], m["version"], m["system"]) for m in members], [("worker", 1, "first"), ("lead", 1, None)])
        changed = self.client.post(f"/v1/agents/{lead['id']}", {"description": "new"})
        self.assertEqual([a["version"] for a in changed["multiagent"]["agents"]], [1, 2], "itself is always the version at hand")
        same = self.client.post(f"/v1/agents/{lead['id']}", {"multiagent": changed["multiagent"]})
        self.assertEqual(same["version"], 2, "what a read gave may be sent back")
        moved = self.client.post(f"/v1/agents/{lead['id']}", {"multiagent": {"type": "coordinator", "agents": [worker["id"]]}})
        self.assertEqual(moved["multiagent"]["agents"], [{"type": "agent", "id": worker["id"], "version": 2}])
        self.assertIsNone(self.client.post(f"/v1/agents/{lead['id']}", {"multiagent": None})["multiagent"])

    def test_the_newer_form_is_merged(self):
        a, b = self.team.agent("a"), self.team.agent("b")
        off = {"type": "disabled"}
        given = {"type": "multiagent_20261001", "workflows": off, "subagents": {"type": "enabled", "inline_agents": off, "predefined_agents": [a["id"]]}}
        lead = self.team.agent("lead", multiagent=given)
        self.assertEqual(lead["multiagent"]["advisor"], off)
        self.assertEqual(lead["multiagent"]["subagents"]["predefined_agents"], [{"type": "agent", "id": a["id"], "version": 1}])
        path = f"/v1/agents/{lead['id']}"
        change = {"type": "multiagent_20261001", "subagents": {"type": "enabled", "predefined_agents": [b["id"]]}}
        self.assertEqual(
            self.client.post(path, {"multiagent": change})["multiagent"]["subagents"]["predefined_agents"],
            [{"type": "agent", "id": b["id"], "version": 1}],
        )
        with self.assertRaises(ApiError):
            self.client.post(path, {"multiagent": {"type": "multiagent_20261001", "workflows": None}})
        place = self.client.post("/v1/environments", {"name": "newer", "config": {"type": "cloud"}})["id"]
        sid = self.client.post("/v1/sessions", {"agent": lead["id"], "environment_id": place})["id"]
        self.send(sid, message(fake(task("b", "text ok"), "---", "text asked")))
        self.quiet(sid)
        self.assertEqual(self.team.child(sid)["agent"]["name"], "b")
        off_again = self.client.post(path, {"multiagent": {"type": "multiagent_20261001", "subagents": off}})
        self.assertEqual(off_again["multiagent"]["subagents"], off)

    def test_what_a_roster_cannot_be(self):
        worker, twin = self.team.agent("worker"), self.team.agent("worker")
        lead = self.team.agent("lead", multiagent=self.team.roster(worker))
        gone = self.team.agent("gone")
        self.client.post(f"/v1/agents/{gone['id']}/archive")

        def roster(*agents):
            return {"type": "coordinator", "agents": list(agents)}

        self.create(400, "multiagent.agents[0]: agent 'agent_none' does not exist", multiagent=roster("agent_none"))
        self.create(400, "has no version 7", multiagent=roster({"type": "agent", "id": worker["id"], "version": 7}))
        self.create(400, "multiagent.agents[1]: the same agent as multiagent.agents[0]", multiagent=roster(worker["id"], worker["id"]))
        self.create(400, "same name", multiagent=roster(worker["id"], twin["id"]))
        self.create(400, "multiagent configuration of its own", multiagent=roster(lead["id"]))
        self.create(400, "is archived", multiagent=roster(gone["id"]))
        self.create(400, "at most 20", multiagent=roster(*[worker["id"]] * 21))
        self.create(400, "the same agent", multiagent=roster({"type": "self"}, {"type": "self"}))
        self.client.post(f"/v1/agents/{worker['id']}/archive")
        place = self.client.post("/v1/environments", {"name": "late", "config": {"type": "cloud"}})["id"]
        with self.assertRaises(ApiError) as caught:
            self.client.post("/v1/sessions", {"agent": lead["id"], "environment_id": place})
        self.assertIn("is archived", caught.exception.message)


if __name__ == "__main__":
    main()
