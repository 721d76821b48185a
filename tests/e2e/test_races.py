"""Interrupt races: random interleavings of messages, interrupts, answers and model completions on two replicas of which one is killed (kill -9) and started
again all the while. race_checker.py judges each session by its event list and its transcript alone.

    MANGO_RACES=10000        interleavings (default 150); each is one session with a plan of its own
    MANGO_RACE_SEED=N        seed of all plans (default: a new one, which a failure prints)
    MANGO_RACE_FIRST=I       the first plan: with MANGO_RACES=1 that plan alone
    MANGO_RACE_SESSIONS=40   sessions at the same time

A plan (what is sent, to which replica, after how many milliseconds) follows from the seed and its number; when the processes run is the machine's affair,
so a rare race may need the plan several times: MANGO_RACE_REPEAT=100 plays each plan so often."""
import collections
import http.client
import json
import os
import random
import tempfile
import threading
import time
import unittest

import race_checker
from api import ApiError
from harness import FakeModel, main
from rig import replicas, words_of
from turns import CUSTOM, confirmation, custom_result, interrupt, text, tool_result

RACES = int(os.environ.get("MANGO_RACES") or 150)
SEED = int(os.environ.get("MANGO_RACE_SEED") or random.SystemRandom().randrange(1 << 32))
FIRST = int(os.environ.get("MANGO_RACE_FIRST") or 0)
REPEAT = int(os.environ.get("MANGO_RACE_REPEAT") or 1)
AT_ONCE = int(os.environ.get("MANGO_RACE_SESSIONS") or 40)
TTL = "2s"
SETTLE_S = 60  # until a session is at rest: several takeovers and back-offs on a loaded machine
OPEN = ("requires_action",)
BROKEN = (ConnectionError, TimeoutError, http.client.HTTPException, OSError)
KINDS = ("custom", "custom", "ask", "server", "self_hosted", "mixed")


# ---- plans ----


def script(rng, token, kind, effects):
    """What the model does with a message: rounds of calls, hold-ups and failures on the way, then the answer."""

    def call(r, j):
        name = f"{token}.{r}.{j}"
        if kind == "custom" or (kind == "mixed" and rng.random() < 0.5):
            return 'tool lookup {"k":"%s"}' % name
        return 'tool bash {"command":"echo %s >> %s; sleep 0.0%d"}' % (name, effects, rng.randrange(6))

    def before():
        chance = rng.random()
        if chance < 0.1:
            return ["@1 status 529 full"]
        if chance < 0.15:
            return ["text half", "@1 close"] if rng.random() < 0.5 else ["@1 reset"]
        return [f"delay {rng.randrange(150)}"] if chance < 0.6 else []

    stages = []
    for r in range(rng.choice((0, 1, 1, 2))):
        stages.append(before() + [call(r, j) for j in range(rng.choice((1, 1, 2, 3)))])
    stages.append(before() + [f"text a:{token}"])
    return f"<m:{token}>\n#fake\n" + "\n---\n".join("\n".join(s) for s in stages)


class Plan:
    """What a client does with one session; the same for the same seed and number."""

    def __init__(self, seed, number, effects):
        rng = self.rng = random.Random(f"{seed}:{number}")
        self.number, self.kind = number, rng.choice(KINDS)
        self.tokens = 0
        self.steps = []
        for i in range(rng.randrange(4, 10)):
            what = "message" if i == 0 else rng.choices(("message", "interrupt", "answer", "both", "answers"), (3, 3, 5, 2, 1))[0]
            step = {"after": rng.choice((0, 0, 5, 20, 60, 150)), "node": rng.randrange(2), "what": what}
            if what in ("message", "both"):
                step["text"] = self.message(effects)
            self.steps.append(step)

    def message(self, effects):
        self.tokens += 1
        return script(self.rng, f"s{self.number}.{self.tokens}", self.kind, effects)


# ---- a client ----


class Client:
    """Plays one plan. accepted: ids of events that the server said it had taken."""

    def __init__(self, arena, plan):
        self.arena, self.plan, self.accepted = arena, plan, []
        self.rng = random.Random(f"{SEED}:{plan.number}:answers")
        self.sid = None

    def call(self, node, method, path, body=None):
        """The answer, or None when it is not known what became of the request."""
        try:
            return self.arena.nodes[node].client.call(method, path, body)
        except ApiError as e:
            if e.status in (400, 409):
                return {"refused": e.message}
            if e.status in (503, 429):
                return None
            raise
        except BROKEN:
            return None

    def surely(self, method, path, body=None):
        """Of a request that may be repeated: the first answer that comes, of whichever node."""
        for node in (self.rng.randrange(2), 0, 1) * 200:
            out = self.call(node, method, path, body)
            if out is not None:
                return out
            time.sleep(0.05)
        raise AssertionError("no replica answers")

    def send(self, node, *events):
        out = self.call(node, "POST", f"/v1/sessions/{self.sid}/events", {"events": list(events)})
        for event in (out or {}).get("data", []):
            self.accepted.append(event["id"])

    def events(self, node=None):
        out, page = [], ""
        while True:
            path = f"/v1/sessions/{self.sid}/events?limit=1000{page}"
            answer = self.surely("GET", path) if node is None else self.call(node, "GET", path)
            if answer is None:
                return None
            out += answer["data"]
            if not answer["next_page"]:
                return out
            page = f"&page={answer['next_page']}"

    def answers(self, events):
        """An answer to each open call that may take one; now and then one that may not."""
        done = {race_checker.answered(e) for e in events if e["type"] in race_checker.RESULTS}
        allowed = {e["tool_use_id"] for e in events if e["type"] == "user.tool_confirmation"}
        for e in events:
            if e["type"] not in race_checker.CALLS or e["id"] in done:
                continue
            if e["type"] == "agent.custom_tool_use":
                yield custom_result(e["id"], f"r:{e['id']}")
            elif e.get("evaluated_permission") == "ask" and e["id"] not in allowed:
                verdict = self.rng.choice(("allow", "allow", "deny"))
                yield confirmation(e["id"], verdict)
            elif self.plan.kind == "self_hosted" or self.rng.random() < 0.1:
                yield tool_result(e["id"], f"r:{e['id']}")

    def step(self, step):
        time.sleep(step["after"] / 1000)  # the plan's timing, not an assertion
        node, what = step["node"], step["what"]
        if what == "interrupt":
            self.send(node, interrupt())
        elif what == "message":
            self.send(node, {"type": "user.message", "content": text(step["text"])})
        elif what == "both":
            both = [interrupt(), {"type": "user.message", "content": text(step["text"])}]
            self.send(node, *(both if self.rng.random() < 0.7 else both[::-1]))
        else:
            found = list(self.answers(self.events(node) or []))
            self.rng.shuffle(found)
            if what == "answers" and found:
                self.send(node, *found)
            for event in found[: self.rng.randrange(1, 4)] if what == "answer" else ():
                self.send(node, event)
                if self.rng.random() < 0.3:
                    self.send(1 - node, event)  # the same again, by the other door

    def at_rest(self, events):
        last = next((e for e in reversed(events) if e["type"] in race_checker.STATUSES), None)
        idle = last["type"] == "session.status_idle" and last["stop_reason"]["type"] not in OPEN if last else True
        return idle and all(e["processed_at"] for e in events)

    def settle(self):
        """Answers what is open until the session is at rest."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            events = self.events()
            if self.at_rest(events):
                return events
            if time.monotonic() > deadline:
                return events  # the checker says what it waits for
            for event in self.answers(events):
                self.send(self.rng.randrange(2), event)
            time.sleep(0.1)

    def play(self):
        self.sid = self.surely("POST", "/v1/sessions", self.arena.session(self.plan.kind))["id"]
        for step in self.plan.steps:
            self.step(step)
        return self.settle()


# ---- the arena ----


class Arena:
    def __init__(self, db, nodes, model):
        self.db, self.nodes, self.model = db, nodes, model
        self.effects = os.path.join(nodes[0].dir, "effects")
        self.lock = threading.Lock()
        self.waiting = [FIRST + i for i in range(RACES) for _ in range(REPEAT)]
        self.bad, self.done, self.kills = [], 0, 0
        self.seen = collections.Counter()  # what the plans have met: a run that met nothing proves nothing
        c = nodes[0].client
        toolset = {"type": "agent_toolset_20260401"}
        ask = {**toolset, "default_config": {"permission_policy": {"type": "always_ask"}}}
        self.agents = {
            k: c.post("/v1/agents", {"name": k, "model": "m", "tools": [CUSTOM, ask if k in ("ask", "mixed") else toolset]})["id"] for k in set(KINDS)
        }
        self.places = {t: c.post("/v1/environments", {"name": t, "config": {"type": t}})["id"] for t in ("cloud", "self_hosted")}

    def session(self, kind):
        return {"agent": self.agents[kind], "environment_id": self.places["self_hosted" if kind == "self_hosted" else "cloud"]}

    def transcript(self, sid):
        rows = self.db.query(f"SELECT json_agg(json_build_array(role, content) ORDER BY ordinal) FROM transcript WHERE session_id = '{sid}'")
        found = "|".join(rows[0]) if rows else ""
        return [(role, json.loads(content)) for role, content in json.loads(found or "[]")]

    def judge(self, client, events):
        bad = race_checker.check(events, self.transcript(client.sid))
        ids = {e["id"] for e in events}
        bad += [f"lost input: {i} was accepted and is not in the log" for i in client.accepted if i not in ids]
        return bad

    def one(self, number):
        client = Client(self, Plan(SEED, number, self.effects))
        try:
            events = client.play()
            bad = self.judge(client, events)
        except Exception as e:  # a plan that breaks is a finding like any other
            events, bad = [], [f"broken: {type(e).__name__}: {e}"]
        with self.lock:
            self.done += 1
            self.seen.update(met(events))
            if bad:
                self.bad.append((number, client.sid, bad, events))

    def worker(self):
        while True:
            with self.lock:
                if not self.waiting or len(self.bad) >= 5:
                    return
                number = self.waiting.pop(0)
            self.one(number)

    def killer(self, workers):
        """Kills one replica or the other, and brings it back."""
        rng = random.Random(f"{SEED}:kills")
        while any(w.is_alive() for w in workers):
            until = time.monotonic() + rng.uniform(1.5, 5)
            while time.monotonic() < until and any(w.is_alive() for w in workers):
                workers[0].join(0.05)
                time.sleep(0.02)
            node = self.nodes[rng.randrange(2)]
            node.kill()
            self.kills += 1
            node.process.end()
            node.start()

    def run(self):
        workers = [threading.Thread(target=self.worker) for _ in range(min(AT_ONCE, len(self.waiting)))]
        for w in workers:
            w.start()
        self.killer(workers)
        for w in workers:
            w.join()


def met(events):
    """Names of what happened in a session."""
    for n, e in enumerate(events):
        if e["type"] in race_checker.CALLS:
            yield "calls"
        if e["type"] == "user.interrupt" and n + 1 < len(events) and events[n + 1]["type"] in race_checker.RESULTS + ("span.model_request_end", "session.status_idle"):
            yield "interrupts of a turn"
        if e["type"] == "session.status_idle" and e["stop_reason"]["type"] == "requires_action":
            yield "barriers"
        if e["type"] in race_checker.RESULTS and "result was lost" in str(e.get("content")):
            yield "ambiguous calls"
        if e["type"] == "session.status_rescheduled":
            yield "retries"


def report(number, sid, bad, events):
    lines = [f"plan {number} of seed {SEED}, session {sid}: MANGO_RACE_SEED={SEED} MANGO_RACE_FIRST={number} MANGO_RACES=1 MANGO_RACE_REPEAT=100"]
    lines += ["  " + b for b in bad[:10]]
    for e in events:
        rest = {k: v for k, v in e.items() if k not in ("id", "type", "processed_at", "model_usage")}
        lines.append(f"    {e['id'][-6:]} {e['type']} {json.dumps(rest)[:160]}{'' if e['processed_at'] else ' UNREAD'}")
    return "\n".join(lines)


class Races(unittest.TestCase):
    def test_no_interleaving_breaks_a_rule(self):
        print(f"seed {SEED}, {RACES} plans from {FIRST}", flush=True)
        start = time.monotonic()
        shared = self.enterContext(tempfile.TemporaryDirectory(prefix="mango-races.", dir="/tmp"))  # of mode 0700, as `local` wants it
        env = {"MANGO_NODE_TTL": TTL, "MANGO_LOCAL_BASE_DIR": shared}
        with FakeModel(record=False) as model, replicas(model_url=model.url, binary="mangod-test", env=env) as (db, nodes):
            arena = Arena(db, nodes, model)
            arena.run()
            took = time.monotonic() - start
            print(f"{arena.done} interleavings, {arena.kills} kills, {took:.0f} s; {dict(arena.seen)}", flush=True)
            if arena.bad:
                self.fail("\n".join(report(*b) for b in arena.bad))
            self.assertEqual(model.refused(), 0, "the endpoint had to refuse a request")
            names = words_of(arena.effects)
            if RACES >= 100:
                for what in ("calls", "barriers", "interrupts of a turn", "retries"):
                    self.assertGreater(arena.seen[what], 0, what)
            if REPEAT == 1:
                self.assertEqual(sorted(n for n in set(names) if names.count(n) > 1), [], "a command ran twice")


if __name__ == "__main__":
    main()
