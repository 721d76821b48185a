"""Many workers that come, stall and vanish at random: every session ends right, no item is served twice at once, no result comes from a dead lease.

MANGO_TEST_WORK_S: seconds of disorder (15); MANGO_TEST_WORK_ITEMS and MANGO_TEST_WORKERS: 80 sessions and 16 workers.
"""
import os
import random
import threading
import time
import unittest

from api import ApiError
from harness import FakeModel, main, wait_for
from rig import replicas
from turns import fake
from work_rig import Worker

SECONDS = int(os.environ.get("MANGO_TEST_WORK_S", 15))
ITEMS = int(os.environ.get("MANGO_TEST_WORK_ITEMS", 80))
WORKERS = int(os.environ.get("MANGO_TEST_WORKERS", 16))
TTL_S = 2


class Careless(threading.Thread):
    """A worker that, at any step, may vanish or sleep past its lease."""

    def __init__(self, clients, environment, seed, calm):
        super().__init__(daemon=True)
        self.clients, self.environment, self.random, self.calm = clients, environment, random.Random(seed), calm
        self.stop, self.served, self.fenced, self.vanished, self.error = threading.Event(), 0, 0, 0, None

    def run(self):
        try:
            while not self.stop.is_set():
                w = Worker(self.random.choice(self.clients), self.environment)
                if w.poll(worker_id=self.name, block_ms=200):
                    self.serve(w)
        except BaseException as e:
            self.error = e

    def chance(self, p):
        return not self.calm.is_set() and self.random.random() < p

    def vanish(self):
        self.vanished += 1
        return True

    def serve(self, w):
        try:
            if self.chance(0.1) and self.vanish():
                return
            w.ack()
            if self.chance(0.1) and self.vanish():
                return
            w.heartbeat()
            self.calls(w)
            w.stop(force=self.random.random() < 0.8)
            self.served += 1
        except ApiError as e:
            if e.status not in (401, 404, 409, 412):
                raise
            self.fenced += 1

    def calls(self, w):
        quiet = 0
        while quiet < 2:  # as a runner's idle window
            if self.chance(0.05) and self.vanish():
                raise ApiError(412, "{}", {})
            if self.chance(0.05):
                time.sleep(TTL_S * 1.3)  # and comes back with a dead lease
            if not w.heartbeat()["lease_extended"]:
                return
            calls = w.open_calls()
            quiet = 0 if calls else quiet + 1
            for call in calls:
                if not self.chance(0.2):
                    w.answer(call, w.id)
            time.sleep(self.random.random() * 0.1)


class Chaos(unittest.TestCase):
    def test_every_session_ends_right_whatever_the_workers_do(self):
        with FakeModel() as model, replicas(model_url=model.url, sandbox=None, env={"MANGO_WORK_TTL": f"{TTL_S}s", "MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX": None}) as (db, nodes):
            clients = [n.client for n in nodes]
            agent = clients[0].post("/v1/agents", {"name": "a", "model": "m", "tools": [{"type": "agent_toolset_20260401"}]})["id"]
            env = clients[0].post("/v1/environments", {"name": "chaos", "config": {"type": "self_hosted"}})["id"]
            sessions = [clients[0].post("/v1/sessions", {"agent": agent, "environment_id": env})["id"] for _ in range(ITEMS)]
            calm = threading.Event()
            workers = [Careless(clients, env, i, calm) for i in range(WORKERS)]
            for w in workers:
                w.start()
            script = fake('tool bash {"command":"one"}', 'tool bash {"command":"two"}', "---", 'tool bash {"command":"three"}', "---", "text done")
            end = time.monotonic() + SECONDS
            for i, s in enumerate(sessions):
                clients[i % 2].say(s, script)
            while time.monotonic() < end:
                clients[0].say(random.choice(sessions), script)
                time.sleep(0.5)
            calm.set()

            def unfinished():
                busy = {s for s, status in db.query("SELECT session_id, status FROM session_state") if status != "idle"}
                return busy.intersection(sessions)

            wait_for("every session ends", lambda: not unfinished(), 90)
            for w in workers:
                w.stop.set()
            for w in workers:
                w.join(20)
                if w.error:
                    raise w.error
            self.check(db, sessions)
            self.assertEqual(model.refused(), 0)
            print(f"served {sum(w.served for w in workers)}, fenced {sum(w.fenced for w in workers)}, vanished {sum(w.vanished for w in workers)}")

    def check(self, db, sessions):
        """Reads the event log and the items, and nothing of what the workers think."""
        n_calls = db.query("SELECT count(*) FROM events WHERE type = 'agent.tool_use'")[0][0]
        once = db.query(
            "SELECT count(*), count(DISTINCT body::json->>'tool_use_id') FROM events WHERE type = 'user.tool_result' AND body::json->>'tool_use_id' IN"
            " (SELECT id FROM events WHERE type = 'agent.tool_use')"
        )[0]
        self.assertEqual(once, [n_calls, n_calls], "every call has exactly one result")
        late = db.query(
            "SELECT e.id FROM events e JOIN work w ON w.id = e.body::json->'content'->0->>'text' WHERE e.type = 'user.tool_result'"
            " AND (e.session_id <> w.session_id OR e.processed_at > w.stopped_at + interval '50 milliseconds' OR w.acknowledged_at IS NULL)"
        )
        self.assertEqual(late, [], "no result comes from an item that is over")
        twice = db.query(
            "SELECT a.id, b.id FROM work a JOIN work b ON b.session_id = a.session_id AND b.id <> a.id WHERE a.acknowledged_at < b.acknowledged_at"
            " AND (a.stopped_at IS NULL OR a.stopped_at > b.acknowledged_at)"
        )
        self.assertEqual(twice, [], "no session has two workers at once")
        self.assertEqual(len(db.query("SELECT DISTINCT session_id FROM work")), len(sessions))


if __name__ == "__main__":
    main()
