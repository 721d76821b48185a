"""Compares mango-worker with the official TypeScript worker, request by request: both serve the same sessions of a mangod through a recording proxy that
fails, cuts and delays the same requests. Order, method, path, the headers that matter and the bodies must be the same, but for the table ALLOWED.

What is needed comes from npm into the build folder, as in sdk_rig.py; MANGO_TEST_SDK must be set. MANGO_TEST_COMPARE=all runs every scenario, NAME,NAME some.
"""
import concurrent.futures
import json
import os
import re
import sys

import sdk_rig as sdk
from harness import SKIPPED, Database, FakeModel, Mangod, wait_for
from recorder import Cut, Recorder, Slow, Status
from rig import fill
from sdk_rig import OfficialWorker
from turns import fake
from worker_rig import IDLE_MS, MangoWorker, Sessions, issue

TTL_S, TURN_S = 6, 90
WORK = r"/work/[^/?]+/"

# Headers that matter: what a server decides by. The others are the transport's and the SDK's telemetry.
HEADERS = ["authorization", "x-api-key", "anthropic-version", "anthropic-beta", "anthropic-worker-id", "accept", "content-type", "x-stainless-helper"]

# Where the two may differ, and why.
ALLOWED = {
    "user-agent, x-stainless-* but x-stainless-helper": "they name the SDK, its runtime and its attempt; mango-worker names itself",
    "accept-encoding, accept-language, connection, host, sec-fetch-mode": "the transport's",
    "the number of polls and of further heartbeats": "a matter of time; the first of each is compared",
    "the number of repeats of what failed": "both repeat it; how often within the same time depends on the jitter of the pauses",
    "session beside the first heartbeat": "the official worker asks for both at once; mango-worker waits for the heartbeat's verdict, and without the lease never asks",
    "words of results": "the tools' own; those of mango-worker are the words of a cloud session of Mango",
    "shutdown: a send": "the official worker leaves the call open, and the next worker runs it again; mango-worker sends the error result: nothing runs twice",
    "interrupt: no send": "the official worker lets the tool end and sends a result that is refused; mango-worker ends the tool as soon as the interrupt has answered its call",
}


def without_first(kind):
    def change(kinds):
        at = kinds.index(kind) if kind in kinds else len(kinds)
        return kinds[:at] + kinds[at + 1 :]

    return change


def without_fenced(kinds):
    """Without what the official worker begins beside a heartbeat that is refused, however far it gets."""
    first = kinds.index("beat") + 1
    return kinds[:first] + kinds[kinds.index("ack", first) :]


# Scenario -> (side that has more, what is taken out of its order before the two are compared); the reasons are above.
MORE = {
    "412 at once": ("official", without_fenced),
    "heartbeat is refused": ("official", without_first("session")),
    "shutdown": ("mango", without_first("send")),
    "interrupt": ("official", without_first("send")),
}


KINDS = [
    ("GET", r"/work/poll", "poll"),
    ("POST", WORK + "ack$", "ack"),
    ("POST", WORK + "heartbeat", "beat"),
    ("POST", WORK + "stop$", "stop"),
    ("GET", r"/sessions/[^/]+$", "session"),
    ("GET", r"/events/stream", "stream"),
    ("GET", r"/events\?", "list"),
    ("POST", r"/events$", "send"),
]


def kind(r):
    for method, pattern, name in KINDS:
        if r.method == method and re.search(pattern, r.path):
            return name
    return f"{r.method} {r.path}"


class Side(Sessions):
    """One worker behind a proxy of its own, on an environment of its own."""

    TURN_S = TURN_S

    def __init__(self, name, server, database, start):
        self.name, self.server, self.start, self.client = name, server, start, server.client
        self.folder = os.path.join(server.dir, f"compare-{name}")
        os.makedirs(self.folder)
        self.environment = self.client.post("/v1/environments", {"name": f"compare {name}", "config": {"type": "self_hosted"}})["id"]
        self.key = issue(server, self.environment)
        self.net = Recorder(server.port).__enter__()
        self.worker = None

    def begin(self, *rules):
        """A fresh worker for each scenario: nothing of the one before is in its requests."""
        self.end()
        self.wait_left()
        self.net.clear()
        for rule in rules:
            self.net.on(*rule())
        self.worker = self.start(self.net.url, self.environment, self.key, self.folder)

    def end(self):
        if self.worker:
            self.worker.end()
            self.worker.kill()
        self.worker = None

    def close(self):
        if self.worker:
            self.worker.kill()
        self.net.__exit__()

    def new(self, **toolset):
        weather = {"type": "custom", "name": "weather", "description": "d", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
        agent = self.client.post("/v1/agents", {"name": self.name, "model": "m", "tools": [{"type": "agent_toolset_20260401", **toolset}, weather]})["id"]
        return self.client.post("/v1/sessions", {"agent": agent, "environment_id": self.environment})["id"]

    def wait_left(self):
        """No worker has an item; a new one may wait."""
        wait_for(f"the worker leaves ({self.name})", lambda: not {"starting", "active", "stopping"} & set(self.states()), 60)

    # ---- what was recorded ----

    def normal(self, r):
        """A request without what differs by nature: ids, tokens, times."""
        path = re.sub(r"(work|sesn|env|sevt)_[A-Za-z0-9]+", r"\1_ID", r.path)
        path = re.sub(r"page=[^&]+", "page=CURSOR", path)
        path = re.sub(r"expected_last_heartbeat=(?!NO_HEARTBEAT)[^&]+", "expected_last_heartbeat=TIME", path)
        headers = {h: r.headers[h] for h in HEADERS if h in r.headers}
        if "authorization" in headers:
            headers["authorization"] = "environment key" if headers["authorization"] == f"Bearer {self.key}" else "item token" if headers["authorization"].startswith("Bearer ") else headers["authorization"]
        if "anthropic-worker-id" in headers:
            headers["anthropic-worker-id"] = "ID"
        if "content-type" in headers:
            headers["content-type"] = headers["content-type"].split(";")[0]
        body = json.loads(r.body) if r.body else None
        for event in (body or {}).get("events", []):
            for block in event.get("content", []):
                block["text"] = "(words)" if block.get("text") else block.get("text")
        text = re.sub(r"sevt_[A-Za-z0-9]+", "sevt_ID", json.dumps(body))
        return {"request": f"{r.method} {path}", "headers": headers, "body": text}

    def trace(self):
        """The requests in order: the first poll and the first heartbeat of each item, and of others each that follows another one."""
        out, beaten, polled, last = [], set(), False, None
        for r in self.net.seen():
            k = kind(r)
            if k == "poll":
                if not polled:
                    out.append((k, self.normal(r)))
                polled = True
                continue
            if k == "beat":
                item = r.path.split("/")[5]
                if item in beaten:
                    continue
                beaten.add(item)
            same = (k, r.path, r.body)
            if same != last:  # else it is a repeat of what failed
                out.append((k, self.normal(r)))
            last = same
        return out


def in_order(name, side, trace):
    """The kinds in their order, after what may differ."""
    kinds = []
    for k, _ in trace:
        if k == "beat" and side.name == "official" and "ack" in kinds:  # sent beside what follows the ack, whenever it gets there
            kinds.insert(len(kinds) - kinds[::-1].index("ack"), k)
        else:
            kinds.append(k)
    who, change = MORE.get(name, (None, None))
    return change(kinds) if who == side.name else kinds


def compare(name, sides):
    """Complaints about one scenario."""
    traces = [s.trace() for s in sides]
    a, b = (in_order(name, s, t) for s, t in zip(sides, traces))
    if a != b:
        return [f"{name}: order: {sides[0].name}: {' '.join(a)}; {sides[1].name}: {' '.join(b)}"]
    wrong = []
    for k in dict.fromkeys(a):
        x, y = ([n for kk, n in t if kk == k] for t in traces)
        for one, other in zip(x, y):
            wrong += [f"{name}: {what} of {k}: {sides[0].name}: {one[what]}; {sides[1].name}: {other[what]}" for what in one if one[what] != other[what]]
    return wrong


# ---- scenarios: each gets one side, does the same on both ----


def one_call(side):
    side.turn(side.new(), 'tool bash {"command":"echo compared"}', "---", "text done")
    side.wait_left()


def six_tools(side):
    d = side.folder
    side.turn(
        side.new(), 'tool write {"file_path":"a.txt","content":"one\\ntwo\\n"}', "---", 'tool edit {"file_path":"a.txt","old_string":"two","new_string":"three"}',
        "---", 'tool read {"file_path":"a.txt"}', 'tool bash {"command":"cat a.txt; false"}', "---", "text done",
    )  # fmt: skip
    side.wait_left()
    assert os.path.exists(os.path.join(d, "a.txt"))


def a_custom_tool(side):
    side.turn(side.new(), 'tool weather {"city":"Bonn"}', "---", "text done")
    side.wait_left()


def a_confirmation(side):
    s = side.new(default_config={"permission_policy": {"type": "always_ask"}})
    side.client.say(s, fake('tool bash {"command":"echo yes"}', 'tool bash {"command":"echo no"}', "---", "text done"))
    ids = side.wait_end(s, reason="requires_action")[-1]["stop_reason"]["event_ids"]
    side.client.post(f"/v1/sessions/{s}/events", {"events": [{"type": "user.tool_confirmation", "tool_use_id": i, "result": r} for i, r in zip(ids, ("allow", "deny"))]})
    side.wait_end(s)
    side.wait_left()


def two_turns(side):
    s = side.new()
    side.turn(s, 'tool bash {"command":"echo first"}', "---", "text done")
    side.turn(s, 'tool bash {"command":"echo second"}', "---", "text done")
    side.wait_left()


def a_long_history(side):
    s = side.new()
    side.server.fill(s)
    one = 'tool bash {"command":"echo behind it"}'
    side.turn(s, one, "---", "text done")
    side.wait_left()


def running_call(side):
    s = side.new()
    side.client.say(s, fake('tool bash {"command":"touch runs; sleep 4"}', "---", "text done"))
    path = os.path.join(side.folder, "runs")
    wait_for("the tool runs", lambda: os.path.exists(path), TURN_S)
    os.unlink(path)
    return s


def a_shutdown(side):
    running_call(side)
    side.end()


def an_interrupt(side):
    s = running_call(side)
    side.client.post(f"/v1/sessions/{s}/events", {"events": [{"type": "user.interrupt"}]})
    side.wait_end(s)
    side.wait_left()


def nothing(side):
    wait_for("it polls", lambda: side.net.seen("GET", "/work/poll"), 30)


BUSY = dict(retry_after_ms="20")
SCENARIOS = [
    ("one call", one_call),
    ("six tools", six_tools),
    ("custom tool", a_custom_tool),
    ("confirmation", a_confirmation),
    ("two turns", two_turns),
    ("long history", a_long_history),
    ("polls fail", one_call, lambda: ("GET", "/work/poll", Status(500, **BUSY), Cut("before"), Status(429, **BUSY))),
    ("ack fails", one_call, lambda: ("POST", WORK + "ack", Status(503, **BUSY), Cut("after"))),
    ("ack is refused", one_call, lambda: ("POST", WORK + "ack", Status(409, x_should_retry="false"))),
    ("first heartbeat fails", one_call, lambda: ("POST", WORK + "heartbeat", Status(500, **BUSY), Cut("before"))),
    ("412 at once", one_call, lambda: ("POST", WORK + "heartbeat", Status(412))),
    ("heartbeat is refused", one_call, lambda: ("POST", WORK + "heartbeat", Status(403))),
    ("session fails", one_call, lambda: ("GET", r"/sessions/[^/]+$", Status(500, **BUSY), Cut("before"))),
    ("session is gone", one_call, lambda: ("GET", r"/sessions/[^/]+$", Status(404))),
    ("stream fails", one_call, lambda: ("GET", "/events/stream", Status(503, **BUSY), Cut("before"))),
    ("stream is refused", one_call, lambda: ("GET", "/events/stream", Status(403))),
    ("list fails", one_call, lambda: ("GET", r"/events\?", Status(500, **BUSY), Cut("after"))),
    ("send fails", one_call, lambda: ("POST", r"/events$", Status(500, **BUSY), Status(429, **BUSY))),
    ("send's answer is lost", one_call, lambda: ("POST", r"/events$", Cut("after"))),
    ("slow server", one_call, lambda: ("POST", r"/events$", Slow(2)), lambda: ("GET", r"/sessions/[^/]+$", Slow(2)), lambda: ("GET", "/events/stream", Slow(2))),
    ("stop fails", one_call, lambda: ("POST", WORK + "stop", Status(500, **BUSY), Cut("after"))),
    ("nothing to do", nothing),
    ("interrupt", an_interrupt),
    ("shutdown", a_shutdown),
]  # fmt: skip
SHORT = "one call,custom tool,confirmation,412 at once,stream fails,send fails,interrupt,shutdown"


def main():
    if not sdk.asked("installs the official worker from npm"):
        return SKIPPED
    node = sdk.install_typescript() and sdk.install_node()
    status = sdk.cannot_begin(node, not node)
    if status is not None:
        return status
    wanted = os.environ.get("MANGO_TEST_COMPARE", SHORT)
    wanted = [name for name, *_ in SCENARIOS] if wanted == "all" else wanted.split(",")
    failed = passed = 0
    with Database() as db, FakeModel() as model, Mangod(database=db, model_url=model.url, sandbox=None, env={"MANGO_WORK_TTL": f"{TTL_S}s", "MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX": None}) as server:
        server.fill = lambda session: fill(db, session, 1300, 100)
        weather = {"program": "drive-worker", "env": {"WORKER_IDLE_MS": str(IDLE_MS)}}
        sides = [
            Side("official", server, db, lambda *a: OfficialWorker([node, "worker.mjs", sdk.TYPESCRIPT[0]], *a)),
            Side("mango", server, db, lambda url, e, k, f: MangoWorker(url, e, k, f, **weather)),
        ]
        pool = concurrent.futures.ThreadPoolExecutor(2)
        try:
            for name, do, *rules in SCENARIOS:
                if name not in wanted:
                    continue
                wrong = []
                try:
                    list(pool.map(lambda side: (side.begin(*rules), do(side)), sides))
                    wrong = compare(name, sides)
                except AssertionError as e:
                    wrong = [f"{name}: {e}"]
                    for side in sides:
                        print(f"--- {side.name}: {[(kind(r), r.status, r.action) for r in side.net.seen() if kind(r) != 'poll'][-40:]}")
                        print((side.worker.log() if side.worker else "")[-1500:])
                failed += bool(wrong)
                passed += not wrong
                print("\n".join(f"not ok - {w}" for w in wrong) or f"ok - {name}: {' '.join(k for k, _ in sides[0].trace())}", flush=True)
        finally:
            for side in sides:
                side.close()
    return sdk.finish(passed, failed, more=f"; {len(ALLOWED)} kinds of differences are allowed, with their reasons in {os.path.basename(__file__)}")


if __name__ == "__main__":
    sys.exit(main())
