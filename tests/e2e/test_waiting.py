"""No session can be wedged: what is waited for shows with its age, a call that never comes back has a deadline, and an operator can settle a session whatever
state it is in."""
import json
import os
import subprocess
import time
import unittest

from harness import BUILD, FakeModel, Mangod, main, wait_for
from turns import IDLE, NEVER, TurnCase, bash, custom_result, fake, interrupt, message, of, reason, results, shown

MANGO = os.path.join(BUILD, "mango")


def gauges(client, name):
    """reason -> value of a gauge with reasons."""
    status, _, body = client.raw("GET", "/metrics")
    assert status == 200, status
    lines = [x for x in body.decode().splitlines() if x.startswith(name + "{")]
    return {x.split('"')[1]: float(x.rsplit(" ", 1)[1]) for x in lines}


class Waiting(TurnCase):
    def waiting(self, sid):
        return self.client.get(f"/v1/sessions/{sid}/waiting")

    def cli(self, *args, status=0):
        env = {**self.server.environment(), "MANGO_BASE_URL": f"http://127.0.0.1:{self.server.port}"}
        done = subprocess.run([MANGO, *args], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def sql(self, statement):
        self.server.database.query(statement)

    def test_each_reason_has_a_count_and_the_age_of_the_oldest(self):
        slow, (gate,), (_, (custom,)) = self.new(), self.asked()[1], self.parked()
        self.send(slow, message(fake("delay 60000", "text never")))
        tool = self.new(policy="always_allow")
        self.send(tool, message(fake(bash(NEVER), "---", "text ok")))
        late = self.new()
        self.until(late, message(fake("header retry-after: 30", "status 529 full")), ends=("session.status_rescheduled",))
        wait_for("the tool runs", lambda: self.waiting(tool)["calls"] and self.waiting(tool)["calls"][0]["waits_for"] == "tool")
        counts, ages = gauges(self.client, "mango_waiting"), gauges(self.client, "mango_waiting_oldest_seconds")
        self.assertEqual(set(counts), {"model", "tool", "backoff", "confirmation", "client_result"})
        self.assertEqual(set(ages), set(counts))
        for name in counts:
            self.assertGreaterEqual(counts[name], 1, name)
            self.assertGreater(ages[name], 0, name)
            self.assertLess(ages[name], 60, name)
        self.assertTrue(gate and custom)
        for sid in (slow, tool, late):
            self.send(sid, interrupt())

    def test_a_session_says_what_it_waits_for_and_since_when(self):
        sid, ids = self.parked(2)
        self.send(sid, message("behind"))
        idle = of(self.events(sid), IDLE)[-1]
        seen = self.waiting(sid)
        self.assertEqual([(c["event_id"], c["name"], c["waits_for"], c["deadline"]) for c in seen["calls"]], [(i, "lookup", "client_result", None) for i in ids])
        self.assertEqual((seen["status"], seen["step"], seen["queued_messages"]), ("idle", "action", 1))
        self.assertLessEqual(abs(float(seen["calls"][0]["since"][17:26]) - float(idle["processed_at"][17:26])), 1)
        shown_session = json.loads(self.cli("session", "show", sid, "--format", "json"))
        self.assertEqual(shown_session["waiting"], seen)
        self.assertEqual(shown_session["id"], sid)
        self.send(sid, custom_result(ids[0]), custom_result(ids[1]))
        self.idle(sid, 2)
        rest = self.waiting(sid)
        self.assertEqual((rest["step"], rest["since"], rest["calls"], rest["queued_messages"]), ("none", None, [], 0))

    def test_a_running_call_shows_its_deadline(self):
        sid = self.new(policy="always_allow")
        self.send(sid, message(fake('tool bash {"command":"%s","timeout_ms":90000}' % NEVER, "---", "text ok")))
        call = wait_for("the call runs", lambda: next((c for c in self.waiting(sid)["calls"] if c["waits_for"] == "tool"), None))
        self.assertIsNotNone(call["since"])
        self.assertGreater(call["deadline"], call["since"])
        self.send(sid, interrupt())

    # ---- unwedge ----

    def settle(self, sid):
        self.cli("session", "unwedge", sid, status=3)
        out = json.loads(self.cli("session", "unwedge", sid, "--yes", "--format", "json").splitlines()[-1])
        self.assertTrue(out["changed"])
        events = self.events(sid)
        self.assertEqual((events[-1]["type"], reason(events[-1])), (IDLE, "retries_exhausted"))
        self.assertIn("operator", of(events, "session.error")[-1]["error"]["message"])
        self.assertTrue(all(e["processed_at"] for e in events))
        self.assertEqual(self.status(sid), "idle")
        self.assertFalse(self.client.post(f"/v1/sessions/{sid}/unwedge")["changed"], "the second time there is nothing to do")
        self.assertEqual(self.events(sid), events)
        self.assert_goes_on(sid)
        return out["settled_calls"], events

    def test_unwedge_shows_and_settles_a_barrier_and_what_waits_behind_it(self):
        sid, ids = self.parked(2)
        self.send(sid, message("behind the barrier"))
        self.assertIn(ids[1], self.cli("session", "unwedge", sid, "--format", "text", status=3))
        n, events = self.settle(sid)
        self.assertEqual(n, 2)
        self.assertEqual([e["custom_tool_use_id"] for e in results(events)], ids)
        self.assertIn("behind the barrier", str(self.last_request()), "what waited was kept")

    def test_unwedge_settles_a_running_call_and_frees_the_session(self):
        sid = self.new(policy="always_allow")
        self.send(sid, message(fake(bash(NEVER), "---", "text ok")))
        wait_for("the call runs", lambda: self.waiting(sid)["calls"])
        n, events = self.settle(sid)
        self.assertEqual((n, len(results(events))), (1, 1))

    def test_unwedge_mends_rows_that_no_step_would_look_at(self):
        states = {
            "running without a turn": "UPDATE session_state SET status = 'running' WHERE session_id = '%s'",
            "a count of messages that are not there": "UPDATE session_state SET queued_inputs = 2 WHERE session_id = '%s'",
            "a call of an old round": "UPDATE tool_calls SET state = 'started', result = NULL, result_event = NULL WHERE session_id = '%s'",
            "an unread message behind the trigger": "UPDATE events SET processed_at = NULL WHERE seq = 1 AND session_id = '%s'",
            "a turn that nobody owns": "UPDATE session_state SET turn_step = 'action', open_actions = 1 WHERE session_id = '%s'",
        }
        for what, statement in states.items():
            with self.subTest(what):
                sid = self.new(policy="always_allow")
                self.until(sid, message(fake('tool bash {"command":"echo hi"}', "---", "text ok")))
                self.sql(statement % sid)
                self.settle(sid)

    def test_unwedge_leaves_a_session_at_rest_alone(self):
        sid = self.new()
        self.until(sid, message("hello"))
        before = self.events(sid)
        self.cli("session", "unwedge", sid)
        self.assertEqual(self.client.post(f"/v1/sessions/{sid}/unwedge"), {"type": "session_unwedged", "session_id": sid, "changed": False, "settled_calls": 0})
        self.assertEqual(self.events(sid), before)
        self.client.post(f"/v1/sessions/{sid}/archive")
        self.assertEqual(self.client.raw("POST", f"/v1/sessions/{sid}/unwedge", b"")[0], 409)


class Deadlines(unittest.TestCase):
    def test_a_tool_that_never_returns_ends_by_its_deadline(self):
        with FakeModel() as model, Mangod(model_url=model.url, hooks="tool.run=sleep3600000:1", env={"MANGO_TOOL_GRACE": "1s"}) as m:
            sid = m.client.new_session()["id"]
            start = time.monotonic()
            with m.client.stream(sid) as stream:
                m.client.say(sid, fake('tool bash {"command":"echo one","timeout_ms":500}', 'tool bash {"command":"echo two"}', "---", "text done"))
                events = stream.until(IDLE)
            self.assertLess(time.monotonic() - start, 10)
            first, second = of(events, "agent.tool_result")
            self.assertTrue(first["is_error"])
            self.assertIn("did not answer by the call's deadline", shown(first))
            self.assertEqual(shown(second).strip(), "two", "the turn went on with the next call")
            self.assertEqual(reason(events[-1]), "end_turn")
            with m.client.stream(sid) as stream:
                m.client.say(sid, fake('tool bash {"command":"echo three"}', "---", "text done"))
                self.assertEqual(shown(of(stream.until(IDLE), "agent.tool_result")[0]).strip(), "three")
            self.assertIn("mango_tool_calls_overdue_total 1", m.client.raw("GET", "/metrics")[2].decode())
            self.assertEqual(model.refused(), 0)

    def test_a_turn_that_left_without_a_word_is_stopped(self):
        with FakeModel() as model, Mangod(model_url=model.url, env={"MANGO_NODE_TTL": "3s"}) as m:
            sid = m.client.new_session()["id"]
            flag = os.path.join(m.dir, "ticks")
            m.client.say(sid, fake('tool bash {"command":"while :; do echo x >> %s; sleep 0.05; done"}' % flag, "---", "text never"))
            wait_for("the command runs", lambda: os.path.exists(flag))
            m.database.query(f"UPDATE session_state SET turn_epoch = turn_epoch + 1, turn_node = NULL, turn_step = 'none', status = 'idle' WHERE session_id = '{sid}'")

            def still():
                size = os.path.getsize(flag)
                time.sleep(0.3)
                return os.path.getsize(flag) == size

            wait_for("the command is stopped without any wake-up", still, 5)


if __name__ == "__main__":
    main()
