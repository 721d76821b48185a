"""`websockets` from PyPI follows 50 sessions on one socket of mangod, is cut off ten times at random points while they run, resumes by cursor, and must
have every event exactly once and in order. MANGO_BASE_URL and MANGO_API_KEY name the server."""
import asyncio
import json
import os
import random
import sys
import time
import urllib.request

import websockets

SESSIONS, MESSAGES, CUTS, DEADLINE_S = 50, 6, 10, 120
BASE = os.environ["MANGO_BASE_URL"]
HEADERS = {"x-api-key": os.environ["MANGO_API_KEY"]}


def api(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = dict(HEADERS, **({"content-type": "application/json"} if data else {}))
    with urllib.request.urlopen(urllib.request.Request(BASE + path, data, headers, method=method), timeout=30) as answer:
        return json.load(answer)


def list_all(session_id):
    out, page = [], ""
    while True:
        got = api("GET", f"/v1/sessions/{session_id}/events?limit=1000{page}")
        out += got["data"]
        if not got["next_page"]:
            return out
        page = f"&page={got['next_page']}"


class Subscription:
    def __init__(self, number, session_id):
        self.number, self.id, self.events = number, session_id, []


async def follow(subs, enough):
    """Reads until enough() and then breaks the connection without a close."""
    async with websockets.connect(
        BASE.replace("http", "ws") + "/v1/stream", subprotocols=["mango.v1"], additional_headers=HEADERS, max_size=None
    ) as socket:
        for s in subs:
            after = s.events[-1]["id"] if s.events else "start"
            await socket.send(json.dumps({"op": "subscribe", "sub": s.number, "session_id": s.id, "after": after, "credit": 100000}))
        while not enough():
            message = json.loads(await asyncio.wait_for(socket.recv(), DEADLINE_S))
            kind = message.get("op") or message.get("type")
            assert kind != "error", message
            if kind == "event":
                subs[message["sub"] - 1].events.append(message["event"])
        socket.transport.abort()


async def drive(s):
    for i in range(MESSAGES):
        event = {"type": "user.message", "content": [{"type": "text", "text": f"number {i}"}]}
        await asyncio.to_thread(api, "POST", f"/v1/sessions/{s.id}/events", {"events": [event]})
        await asyncio.sleep(random.random() * 0.2)


async def main():
    agent = api("POST", "/v1/agents", {"name": "ws", "model": "m"})
    environment = api("POST", "/v1/environments", {"name": f"ws {time.time()}", "config": {"type": "cloud"}})
    make = {"agent": agent["id"], "environment_id": environment["id"]}
    subs = [Subscription(i + 1, api("POST", "/v1/sessions", make)["id"]) for i in range(SESSIONS)]

    def count():
        return sum(len(s.events) for s in subs)

    driving = asyncio.gather(*(drive(s) for s in subs))
    for _ in range(CUTS):
        # At most 1,000 events in all: the turns make 1,200 at least (four a message), so each cut falls while they run.
        limit = count() + random.randint(20, 100)
        await follow(subs, lambda: count() >= limit)
    await driving
    deadline = time.monotonic() + DEADLINE_S
    while any(api("GET", f"/v1/sessions/{s.id}")["status"] != "idle" for s in subs):
        assert time.monotonic() < deadline, "not all sessions became idle in time"
    want = [list_all(s.id) for s in subs]
    total = sum(len(w) for w in want)
    if count() < total:
        await follow(subs, lambda: count() >= total)
    wrong = [s.id for s, w in zip(subs, want) if [e["id"] for e in s.events] != [e["id"] for e in w]]
    for session_id in wrong:
        print(f"not ok - {session_id}")
    print(f"{SESSIONS - len(wrong)} of {SESSIONS} sessions, {total} events, {CUTS} cuts: each event once and in order")
    print(f"{SESSIONS - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


sys.exit(asyncio.run(main()))
