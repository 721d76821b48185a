"""Many mango-worker processes that are killed, frozen and woken at random: every session ends right, no item is served twice at once, no result comes
from a dead lease, no call has two results.

MANGO_TEST_WORK_S: seconds of disorder (15); MANGO_TEST_WORK_ITEMS and MANGO_TEST_WORKERS: 40 sessions and 8 workers. The full run is 600, 500 and 40.
"""
import os
import random
import shutil
import signal
import tempfile
import time
import unittest

from harness import FakeModel, main, wait_for
from rig import replicas
from turns import fake
from worker_rig import MangoWorker, issue

SECONDS = int(os.environ.get("MANGO_TEST_WORK_S", 15))
ITEMS = int(os.environ.get("MANGO_TEST_WORK_ITEMS", 40))
WORKERS = int(os.environ.get("MANGO_TEST_WORKERS", 8))
TTL_S = 3


class Chaos(unittest.TestCase):
    def test_every_session_ends_right_whatever_happens_to_the_workers(self):
        self.folder = tempfile.mkdtemp(prefix="mango-chaos.", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.workers, self.counts, self.random = [], {"killed": 0, "frozen": 0, "stopped": 0}, random.Random(7)
        with FakeModel(record=False) as model, replicas(model_url=model.url, sandbox=None, env={"MANGO_WORK_TTL": f"{TTL_S}s", "MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX": None}) as (db, nodes):
            try:
                self.disorder(db, nodes)
            finally:
                for w in self.workers:
                    w.kill()
            self.assertEqual(model.refused(), 0)

    def start(self):
        url = f"http://127.0.0.1:{self.random.choice(self.nodes).port}"
        return MangoWorker(url, self.environment, self.key, self.folder, "--max-idle", "300ms")

    def disturb(self):
        i = self.random.randrange(len(self.workers))
        w, what = self.workers[i], self.random.random()
        if what < 0.5:
            self.counts["killed"] += 1
            w.kill()
            self.workers[i] = self.start()
        elif what < 0.8:
            self.counts["frozen"] += 1
            w.signal(signal.SIGSTOP)
            self.frozen.append((time.monotonic() + self.random.uniform(0.5, TTL_S * 1.6), w))
        else:
            self.counts["stopped"] += 1
            w.signal(signal.SIGTERM)
            self.workers.append(self.workers.pop(i))
            self.leaving.append(w)
            self.workers[-1] = self.start()

    def wake(self, all_of_them=False):
        now = time.monotonic()
        for due, w in list(self.frozen):
            if due < now or all_of_them:
                self.frozen.remove((due, w))
                if w.process.running():
                    w.signal(signal.SIGCONT)

    def disorder(self, db, nodes):
        self.nodes, self.frozen, self.leaving = nodes, [], []
        clients = [n.client for n in nodes]
        agent = clients[0].post("/v1/agents", {"name": "a", "model": "m", "tools": [{"type": "agent_toolset_20260401"}]})["id"]
        self.environment = clients[0].post("/v1/environments", {"name": "chaos", "config": {"type": "self_hosted"}})["id"]
        self.key = issue(nodes[0], self.environment)
        sessions = [clients[0].post("/v1/sessions", {"agent": agent, "environment_id": self.environment})["id"] for _ in range(ITEMS)]
        script = fake('tool bash {"command":"echo one"}', 'tool bash {"command":"sleep 0.3; echo two"}', "---", 'tool write {"file_path":"f","content":"x"}', "---", "text done")
        self.workers = [self.start() for _ in range(WORKERS)]
        end = time.monotonic() + SECONDS
        for i, s in enumerate(sessions):
            clients[i % 2].say(s, script)
        while time.monotonic() < end:
            self.disturb()
            self.wake()
            if self.random.random() < 0.3:
                clients[0].say(self.random.choice(sessions), script)
            time.sleep(max(0.05, 4 / WORKERS))
        self.wake(all_of_them=True)

        def unfinished():
            busy = {s for s, status in db.query("SELECT session_id, status FROM session_state") if status != "idle"}
            return busy.intersection(sessions)

        wait_for("every session ends", lambda: not unfinished(), 120 + ITEMS // 2, every=0.2)
        self.workers += self.leaving
        self.check(db, len(sessions))
        print(f"{ITEMS} sessions, {WORKERS} workers: {self.counts}, {db.query('SELECT count(*) FROM work')[0][0]} items", flush=True)

    def check(self, db, n_sessions):
        """Reads the event log and the items, and nothing of what the workers think."""
        calls = db.query("SELECT count(*) FROM events WHERE type = 'agent.tool_use'")[0][0]
        once = db.query("SELECT count(*), count(DISTINCT body::json->>'tool_use_id') FROM events WHERE type = 'user.tool_result'")[0]
        self.assertEqual(once, [calls, calls], "every call has exactly one result")
        late = db.query(
            "SELECT e.id FROM events e WHERE e.type = 'user.tool_result' AND NOT EXISTS (SELECT FROM work w WHERE w.session_id = e.session_id"
            " AND w.acknowledged_at <= e.processed_at AND (w.stopped_at IS NULL OR e.processed_at <= w.stopped_at + interval '50 milliseconds'))"
        )
        self.assertEqual(late, [], "no result comes from an item that is over")
        twice = db.query(
            "SELECT a.id, b.id FROM work a JOIN work b ON b.session_id = a.session_id AND b.id <> a.id WHERE a.acknowledged_at < b.acknowledged_at"
            " AND (a.stopped_at IS NULL OR a.stopped_at > b.acknowledged_at)"
        )
        self.assertEqual(twice, [], "no session has two workers at once")
        self.assertEqual(len(db.query("SELECT DISTINCT session_id FROM work")), n_sessions)


if __name__ == "__main__":
    main()
