"""Outcomes: the agent works, a grader judges by the rubric, the agent revises (semantics 7.3, AD5, IN9; contract 4.1 and 4.2)."""
import json
import unittest

import turns
from harness import Mangod, main, wait_for
from turns import IDLE, TERMINATED, TOOLSET, TurnCase, interrupt, message, of

START, ONGOING, END = ("span.outcome_evaluation_" + x for x in ("start", "ongoing", "end"))


def fake(*lines):
    """A script with an end: the grader reads it too, with its own behind it."""
    return turns.fake(*lines, "#end")


def grade(*lines):
    return fake(*lines).replace("#fake", "#grade", 1)


def verdict(result, why):
    return "text " + json.dumps({"result": result, "explanation": why})


class Outcomes(TurnCase):
    """The description holds the agent's script, the rubric that of the grader."""

    def define(self, sid, rubric, description="a haiku", **more):
        return self.send(sid, self.outcome(rubric, description, **more))

    @staticmethod
    def outcome(rubric, description="a haiku", **more):
        return {"type": "user.define_outcome", "description": description, "rubric": {"type": "text", "content": rubric}, **more}

    def course(self, sid, rubric, **more):
        with self.client.stream(sid, timeout=60) as stream:
            answer = self.define(sid, rubric, **more)
            return answer[0], stream.until(IDLE, TERMINATED)

    def evaluations(self, sid):
        return self.client.get(f"/v1/sessions/{sid}")["outcome_evaluations"]

    def test_a_satisfied_outcome_ends_the_turn(self):
        sid = self.new()
        event, events = self.course(sid, grade(verdict("satisfied", "Five, seven, five.")))
        self.assertRegex(event["outcome_id"], "^outc_")
        self.assertIsNotNone(event["processed_at"], "AD8: set on receipt")
        self.assertEqual(event["max_iterations"], 3)
        start, end = of(events, START)[0], of(events, END)[0]
        self.assertEqual((start["outcome_id"], start["iteration"]), (event["outcome_id"], 0))
        self.assertEqual(end["outcome_evaluation_start_id"], start["id"])
        self.assertEqual((end["result"], end["explanation"], end["iteration"]), ("satisfied", "Five, seven, five.", 0))
        self.assertGreater(end["usage"]["input_tokens"], 0)
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        self.assertEqual(len(of(events, "agent.message")), 1, "the verdict is no message of the agent")
        (shown,) = self.evaluations(sid)
        self.assertEqual(shown["outcome_id"], event["outcome_id"])
        self.assertEqual((shown["type"], shown["description"], shown["iteration"], shown["result"], shown["explanation"]),
                         ("outcome_evaluation", "a haiku", 0, "satisfied", "Five, seven, five."))
        self.assertRegex(shown["completed_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")

    def test_ou1_the_grader_has_no_tools_few_tokens_and_the_agents_model(self):
        sid = self.new(TOOLSET)
        self.course(sid, grade(verdict("satisfied", "ok")), description="grader-request-check")
        asked = [r["body"] for r in self.model.requests() if "grader-request-check" in str(r["body"])]
        self.assertEqual(len(asked), 2, "one request of the agent, one of the grader")
        agent, grader = asked
        self.assertTrue(agent["tools"])
        self.assertNotIn("tools", grader)
        self.assertGreater(agent["max_tokens"], 1024)
        self.assertEqual(grader["max_tokens"], 1024)
        self.assertEqual((grader["model"], agent["model"]), ("m", "m"))

    def test_ou3_a_revision_reads_why_and_is_judged_again(self):
        sid = self.new()
        rubric = grade("@1 " + verdict("needs_revision", "The second line has eight."), "+1 " + verdict("satisfied", "Now it is right."))
        event, events = self.course(sid, rubric)
        self.assertEqual([(e["iteration"], e["result"]) for e in of(events, END)], [(0, "needs_revision"), (1, "satisfied")])
        self.assertEqual([e["iteration"] for e in of(events, START)], [0, 1])
        self.assertEqual(len(of(events, "agent.message")), 2)
        self.assertIn('<evaluation result="needs_revision">', of(events, "agent.message")[1]["content"][0]["text"], "what the agent answers")
        self.assertIn("The second line has eight.", json.dumps(self.model.requests()), "and was told")
        self.assertEqual(len(of(events, IDLE)), 1, "one idle, at the end")
        self.assertEqual((self.evaluations(sid)[0]["result"], self.evaluations(sid)[0]["iteration"]), ("satisfied", 1))

    def test_ou3_the_last_cycle_is_followed_by_one_turn_that_nobody_grades(self):
        sid = self.new()
        _, events = self.course(sid, grade(verdict("needs_revision", "no")), max_iterations=2)
        self.assertEqual([e["result"] for e in of(events, END)], ["needs_revision", "max_iterations_reached"])
        self.assertEqual(len(of(events, "agent.message")), 3)
        last = [e["type"] for e in events].index(END, [e["type"] for e in events].index(END) + 1)
        self.assertIn("agent.message", [e["type"] for e in events[last:]])
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        self.assertEqual(self.evaluations(sid)[0]["result"], "max_iterations_reached")

    def test_ou1_an_answer_that_is_no_verdict_fails_the_outcome(self):
        for words in ("text well done!", "text [1]", 'text {"result":"great","explanation":"x"}', 'text {"result":"satisfied"}', "stop refusal"):
            with self.subTest(words):
                sid = self.new()
                _, events = self.course(sid, grade(words))
                self.assertEqual(of(events, END)[-1]["result"], "failed")
                self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
                self.assertEqual(self.status(sid), "idle")

    def test_a_verdict_in_a_fence_is_read(self):
        sid = self.new()
        _, events = self.course(sid, grade('text ```json\\n{"result":"satisfied","explanation":"ok"}\\n```'))
        self.assertEqual(of(events, END)[-1]["result"], "satisfied")

    def test_the_agents_tools_run_before_the_evaluation_and_the_grader_reads_what_they_gave(self):
        sid = self.new(TOOLSET)
        script = fake('tool bash {"command":"echo forty-two"}', "---", "text done")
        _, events = self.course(sid, grade(verdict("satisfied", "ok")), description=script)
        kinds = [e["type"] for e in events]
        self.assertLess(kinds.index("agent.tool_result"), kinds.index(START))
        self.assertIn("forty-two", json.dumps(self.model.requests()))

    def test_ad5_one_outcome_at_a_time(self):
        sid = self.new()
        a = self.outcome(grade(verdict("satisfied", "ok")), description=fake("delay 3000", "text done"))
        self.assertIn("one user.define_outcome", self.refused(400, sid, a, a))
        self.send(sid, a)
        self.rejected(409, "another outcome", self.send, sid, a)
        self.send(sid, interrupt())
        self.send(sid, self.outcome(grade(verdict("satisfied", "ok"))))
        wait_for("the second is satisfied", lambda: [e["result"] for e in self.evaluations(sid)] == ["interrupted", "satisfied"])

    def test_in9_an_interrupt_ends_the_outcome_with_an_empty_start(self):
        sid = self.new()
        self.define(sid, grade(verdict("satisfied", "ok")), description=fake("delay 20000", "text done"))
        with self.client.stream(sid) as stream:
            self.send(sid, interrupt())
            events = stream.until(IDLE)
        (end,) = of(events, END)
        self.assertEqual((end["result"], end["outcome_evaluation_start_id"]), ("interrupted", ""))
        self.assertEqual(self.evaluations(sid)[0]["result"], "interrupted")
        self.assertEqual(len(of(self.client.events(sid), IDLE)), 1)

    def test_in9_an_interrupt_during_the_evaluation_names_its_start(self):
        sid = self.new()
        with self.client.stream(sid) as stream:
            self.define(sid, grade("delay 20000", verdict("satisfied", "ok")))
            start = stream.until(START)[-1]
            self.assertEqual(self.evaluations(sid)[0]["result"], "evaluating")
            self.send(sid, interrupt())
            events = stream.until(IDLE)
        self.assertEqual(of(events, END)[0]["outcome_evaluation_start_id"], start["id"])
        self.assertEqual(of(events, END)[0]["result"], "interrupted")

    def test_messages_and_an_outcome_are_worked_on_in_their_order(self):
        sid = self.new()
        with self.client.stream(sid, timeout=60) as stream:
            self.client.say(sid, fake("delay 1000", "text first"))
            self.send(sid, message(fake("text second")),
                      self.outcome(grade(verdict("satisfied", "ok")), description=fake("text third")),
                      message(fake("text fourth")))
            events = stream.until(IDLE)
        self.assertEqual([e["content"][0]["text"] for e in of(events, "agent.message")], ["first", "second", "third", "fourth"])
        self.assertEqual(of(events, END)[0]["result"], "satisfied", "what waits is answered first, then the work is judged")

    def test_a_failed_turn_fails_the_outcome(self):
        sid = self.new()
        _, events = self.course(sid, grade(verdict("satisfied", "ok")), description=fake("status 400 bad"))
        self.assertEqual(of(events, END)[0]["result"], "failed")
        self.assertEqual(self.evaluations(sid)[0]["result"], "failed")

    def test_ou2_a_grader_that_fails_for_a_moment_is_asked_again(self):
        sid = self.new()
        _, events = self.course(sid, grade("@1 status 529 full", verdict("satisfied", "ok")))
        self.assertEqual(len(of(events, START)), 1)
        self.assertEqual(of(events, END)[0]["result"], "satisfied")
        self.assertEqual(len(of(events, "session.status_rescheduled")), 1)

    def test_an_outcome_survives_kill_9(self):
        sid = self.new()
        with self.client.stream(sid) as stream:
            self.define(sid, grade("@1 delay 30000", verdict("satisfied", "ok")))
            stream.until(START)
        self.server.kill()
        self.server.restart()
        wait_for("the evaluation is made again", lambda: self.evaluations(sid)[0]["result"] == "satisfied", 60)
        events = self.client.events(sid)
        self.assertEqual((len(of(events, START)), len(of(events, END))), (1, 1))

    def test_ou5_grader_tokens_count_as_usage(self):
        sid = self.new()
        self.course(sid, grade("usage 1000 1", verdict("satisfied", "ok")), description=fake("usage 10 1", "text done"))
        self.assertEqual(self.client.get(f"/v1/sessions/{sid}")["usage"]["input_tokens"], 1010)

    def test_initial_events_may_define_an_outcome(self):
        sid = self.new(initial_events=[self.outcome(grade(verdict("satisfied", "ok")))])
        wait_for("it is satisfied", lambda: [e["result"] for e in self.evaluations(sid)] == ["satisfied"])

    def test_a_bad_outcome_names_its_place(self):
        sid = self.new()
        for change, words in (
            ({"description": ""}, "events[0].description"),
            ({"description": None}, "events[0].description"),
            ({"rubric": "text"}, "events[0].rubric"),
            ({"rubric": {"type": "text"}}, "events[0].rubric.content"),
            ({"rubric": {"type": "file"}}, "events[0].rubric.file_id"),
            ({"rubric": {"type": "text", "content": "x" * 262145}}, "events[0].rubric.content"),
            ({"rubric": {"type": "text", "content": "x", "y": 1}}, "events[0].rubric.y"),
            ({"max_iterations": 0}, "events[0].max_iterations"),
            ({"max_iterations": 21}, "events[0].max_iterations"),
            ({"max_iterations": "3"}, "events[0].max_iterations"),
            ({"outcome_id": "outc_1"}, "events[0].outcome_id"),
        ):
            with self.subTest(change):
                self.assertIn(words, self.refused(400, sid, {**self.outcome("x"), **change}))


class Offline(unittest.TestCase):
    def test_the_offline_model_grades_too(self):
        with Mangod(database=None) as m:
            sid = m.client.new_session()["id"]
            event = Outcomes.outcome("anything", description="list the files here and count them")
            m.client.post(f"/v1/sessions/{sid}/events", {"events": [event]})
            wait_for("it is satisfied", lambda: [e["result"] for e in m.client.get(f"/v1/sessions/{sid}")["outcome_evaluations"]] == ["satisfied"])


if __name__ == "__main__":
    main()
