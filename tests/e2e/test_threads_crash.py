"""kill -9 at every commit of a delegation, and two replicas in the middle of one: after it both threads go on, no event is lost, doubled or out of
order, the child is started once and reports once, and its tool's effect happens once at most."""
import os
import signal
import unittest

from harness import Database, FakeModel, Mangod, main, wait_for
from rig import add_boundaries, killed, metrics, words_of
from threads import Team, define, task
from turns import IDLE, TOOLSET, fake, interrupt, message, of, reason, shown

TTL = "2s"
ENV = {"MANGO_NODE_TTL": TTL}
# The coordinator's answers are 1 (the task), 2 (it waits) and 5 (to the report); the child's are 3 (a call) and 4 (its report). Pauses keep that order.
POINTS = [
    ("admission", 1), ("turn.response", 1), ("turn.response", 2), ("turn.response", 3), ("turn.call_started", 1),
    ("turn.call_completed", 1), ("turn.response", 4), ("turn.response", 5),
]  # fmt: skip


def script(effects, give=task, agent="worker"):
    child = ("delay 400", 'tool bash {"command":"echo once >> %s"}' % effects, "---", "text The task is done.")
    return fake(give(agent, *child), "---", "text I have asked.")


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = cls.enterClassContext(FakeModel())

    def tearDown(self):
        self.assertEqual(self.model.refused(), 0, "the endpoint had to refuse a request")

    def finished(self, team, sid):
        """The session's events once it rests and the report was answered."""

        def look():
            events = team.client.events(sid)
            done = events and events[-1]["type"] == IDLE and of(events, "agent.thread_message_received")
            return events if done and team.client.get(f"/v1/sessions/{sid}")["status"] == "idle" else None

        return wait_for("the delegation ends", look, timeout=40)

    def check(self, team, sid, events):
        (child,) = team.children(sid)
        log = team.log(sid, child["id"])
        ids = [e["id"] for e in events + log]
        self.assertEqual(len(ids), len(set(ids)), "an event is there twice")
        self.assertEqual(len(of(events, "session.thread_created")), 1)
        for name in ("agent.thread_message_sent", "agent.thread_message_received"):
            self.assertEqual((len(of(events, name)), len(of(log, name))), (1, 1), name)
        self.assertEqual(len(of(events, IDLE)), 1, "never idle while a thread had something to do")
        self.assertEqual(reason(events[-1]), "end_turn")
        for each in (events, log):
            own = [e for e in each if e["type"].startswith("span.")]
            starts = [e["id"] for e in own if e["type"] == "span.model_request_start"]
            ends = [e["model_request_start_id"] for e in own if e["type"] == "span.model_request_end"]
            self.assertEqual(starts, ends)
            for e in each:
                self.assertIsNotNone(e["processed_at"], e["type"])
        uses, results = of(log, "agent.tool_use"), of(log, "agent.tool_result")
        self.assertEqual([u["id"] for u in uses], [r["tool_use_id"] for r in results])
        return results[0]


class Boundaries(Case):
    def one_boundary(self, point, nth):
        with Database() as db, Mangod(database=db, env=ENV, binary="mangod-test", model_url=self.model.url) as m:
            team, effects = Team(m.client), os.path.join(m.dir, "effects")
            sid = self.session(team)
            m.restart(hooks=f"{point}=kill:{nth}")
            killed(m, point, lambda: m.client.post(f"/v1/sessions/{sid}/events", {"events": [message(self.script(effects))]}), 60)
            if not m.client.events(sid):
                self.assertEqual(point, "admission.before", "an accepted event is gone")
                m.client.post(f"/v1/sessions/{sid}/events", {"events": [message(self.script(effects))]})
            result = self.check(team, sid, self.finished(team, sid))
            lines = words_of(effects)
            self.assertLessEqual(len(lines), 1, "the command ran twice")
            if result.get("is_error"):
                self.assertIn("not run again", shown(result))
            else:
                self.assertEqual(lines, ["once"])


class Crashes(Boundaries):
    def session(self, team):
        return team.session("worker", tools=[TOOLSET])

    def script(self, effects):
        return script(effects)


add_boundaries(Crashes, [(f"{point}.{side}", nth) for point, nth in POINTS for side in ("before", "after")])


class InlineCrashes(Boundaries):
    """An agent that the coordinator defined is there after the kill as it was defined, or its definition is asked for again."""

    def session(self, team):
        lead = team.agent("lead", [TOOLSET], multiagent={"type": "multiagent_20261001", "workflows": {"type": "disabled"}})
        return team.of(lead)

    def script(self, effects):
        return script(effects, define, {"name": "own", "system": "You work.", "tools": ["bash"]})

    def check(self, team, sid, events):
        (child,) = team.children(sid)
        self.assertEqual((child["agent"]["type"], child["agent"]["name"], child["agent"]["system"]), ("inline", "own", "You work."))
        return super().check(team, sid, events)


add_boundaries(InlineCrashes, [("turn.response.before", 1), ("turn.response.after", 1), ("turn.call_started.after", 1)])


class Replicas(Case):
    def pair(self, db):
        a, b = (Mangod(database=db, env=ENV, binary="mangod-test", model_url=self.model.url) for _ in range(2))
        b.key = b.client.key = a.key
        return a, b

    def long_call(self, a, seconds, lead="text I have asked."):
        """A session whose child runs a command at a: (team, session id)."""
        team, flag = Team(a.client), os.path.join(a.dir, "running")
        sid = team.session("worker", tools=[TOOLSET])
        child = ('tool bash {"command":"touch %s; sleep %d; echo done"}' % (flag, seconds), "---", "text The task is done.")
        a.client.post(f"/v1/sessions/{sid}/events", {"events": [message(fake(task("worker", *child), "---", lead))]})
        wait_for("the call runs", lambda: os.path.exists(flag))
        return team, sid

    def test_both_threads_of_a_killed_node_go_on_at_the_other(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                _, sid = self.long_call(a, 60, lead="delay 20000")
                wait_for("the coordinator waits for its model", lambda: Team(a.client).primary(sid)["status"] == "running")
                a.kill()
                team = Team(b.client)
                wait_for("the child's call is answered", lambda: of(team.log(sid, team.child(sid)["id"]), "agent.tool_result"), timeout=30)
                b.client.post(f"/v1/sessions/{sid}/events", {"events": [{**interrupt(), "session_thread_id": team.primary(sid)["id"]}]})
                events = self.finished(team, sid)
                result = of(team.log(sid, team.child(sid)["id"]), "agent.tool_result")[0]
                self.assertIn("not run again", shown(result))
                self.assertIn("The task is done", shown(of(events, "agent.thread_message_received")[0]))

    def test_a_frozen_nodes_late_writes_are_fenced_in_every_thread(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                _, sid = self.long_call(a, 1)
                team = Team(b.client)
                a.process.signal(signal.SIGSTOP)
                try:
                    events = self.finished(team, sid)
                finally:
                    a.process.signal(signal.SIGCONT)
                wait_for("the first node answers again", lambda: a.client.raw("GET", "/readyz")[0] == 200)
                self.check(team, sid, events)
                self.assertEqual(team.client.events(sid), events)

    def test_a_message_at_one_node_starts_the_coordinator_where_its_children_run(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                _, sid = self.long_call(a, 600)
                team = Team(b.client)
                wait_for("the coordinator is idle", lambda: team.primary(sid)["status"] == "idle")
                before = metrics(b.client)["mango_model_requests_total"]
                b.client.post(f"/v1/sessions/{sid}/events", {"events": [message(fake("text Hello while it works."))]})
                wait_for("the coordinator answers", lambda: "Hello while it works" in str(of(team.client.events(sid), "agent.message")))
                self.assertEqual(metrics(b.client)["mango_model_requests_total"], before, "the other node made the request")
                self.assertEqual(team.child(sid)["status"], "running", "the child was not disturbed")
                node = db.query(f"SELECT count(DISTINCT turn_node) FROM session_state WHERE session_id = '{sid}' AND turn_node IS NOT NULL")
                self.assertEqual(node, [["1"]])
                b.client.post(f"/v1/sessions/{sid}/events", {"events": [interrupt()]})
                self.assertEqual(team.client.get(f"/v1/sessions/{sid}")["status"], "idle")

    def test_an_interrupt_at_one_node_stops_a_child_at_the_other(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                _, sid = self.long_call(a, 600)
                team = Team(b.client)
                child = team.child(sid)["id"]
                b.client.post(f"/v1/sessions/{sid}/events", {"events": [{**interrupt(), "session_thread_id": child}]})
                events = self.finished(team, sid)
                self.assertIn("interrupted", shown(of(events, "agent.thread_message_received")[0]))
                wait_for("its command is gone", lambda: metrics(a.client)["mango_turns_running"] == 0)

    def test_a_clean_stop_hands_both_threads_on(self):
        with Database() as db:
            a, b = self.pair(db)
            with a, b:
                _, sid = self.long_call(a, 2)
                self.assertEqual(a.stop(), 0)
                team = Team(b.client)
                self.finished(team, sid)
                result = of(team.log(sid, team.child(sid)["id"]), "agent.tool_result")[0]
                self.assertIn("done", shown(result), "the running call was given the time to end")


if __name__ == "__main__":
    main()
