"""Field case 24: sockets by the hundred lose their replica in a rolling restart and all come back, on one event loop of this process."""
import asyncio
import base64
import json
import os
import resource
import struct
import threading
import unittest

from harness import main
from rig import POOL_MAX, SMALL_POOL, mark, now, replicas

SOCKETS, SUBSCRIPTIONS, SESSIONS = 300, 3, 30
LIVE_S = 30


class Socket:
    """One client of mango.v1: three subscriptions that resume with the last id they saw, at the other replica after a cut."""

    def __init__(self, ports, headers, sessions, number):
        self.ports, self.headers, self.number = ports, headers, number
        self.sessions = [sessions[(number + i * 7) % len(sessions)] for i in range(SUBSCRIPTIONS)]
        self.seen = [[] for _ in self.sessions]
        self.live = [False] * SUBSCRIPTIONS
        self.byes, self.connects = [], 0

    async def run(self):
        while True:
            delay = 0.1
            try:
                delay = await self.connection()
            except (OSError, asyncio.IncompleteReadError, ConnectionError):
                pass
            self.live = [False] * SUBSCRIPTIONS
            await asyncio.sleep(delay)

    async def connection(self):
        """Until the server closes; returns how long it asked to wait."""
        port = self.ports[(self.number + self.connects) % len(self.ports)]
        self.connects += 1
        reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            key = base64.b64encode(os.urandom(16)).decode()
            lines = ["GET /v1/stream HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}"]
            lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mango.v1"] + [f"{n}: {v}" for n, v in self.headers.items()]
            self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 101 " not in head.split(b"\r\n")[0] + b" ":
                raise ConnectionError(head)
            for i, session in enumerate(self.sessions):
                after = self.seen[i][-1] if self.seen[i] else "start"
                self.say({"op": "subscribe", "sub": i, "session_id": session, "after": after, "credit": 100000})
            return await self.messages(reader)
        finally:
            self.writer.close()

    async def messages(self, reader):
        wait = 0.1
        while True:
            first, n = await reader.readexactly(2)
            if n == 126:
                (n,) = struct.unpack(">H", await reader.readexactly(2))
            elif n == 127:
                (n,) = struct.unpack(">Q", await reader.readexactly(8))
            payload = await reader.readexactly(n)
            if first & 15 == 8:
                return wait
            if first & 15 == 9:
                self.frame(10, payload)
            elif first & 15 == 1:
                message = json.loads(payload)
                if message["op"] == "bye":
                    wait = message["reconnect_in_ms"] / 1000
                    self.byes.append(wait)
                elif message["op"] == "event":
                    self.seen[message["sub"]].append(message["event"]["id"])
                elif message["op"] == "live":
                    self.live[message["sub"]] = True
                elif message["op"] == "error":
                    raise AssertionError(message)

    def say(self, message):
        self.frame(1, json.dumps(message).encode())

    def frame(self, opcode, payload):
        n = len(payload)
        head = bytes([0x80 | opcode, 0x80 | n]) if n < 126 else bytes([0x80 | opcode, 0xFE]) + struct.pack(">H", n)
        self.writer.write(head + bytes(4) + payload)  # a mask of zeros


class ReconnectStorm(unittest.TestCase):
    def sockets(self, nodes, sessions):
        """The clients, on an event loop of their own thread."""
        clients = [Socket([n.port for n in nodes], nodes[0].client.headers(), sessions, i) for i in range(SOCKETS)]
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        tasks = [asyncio.run_coroutine_threadsafe(c.run(), loop) for c in clients]

        async def finish():
            running = asyncio.all_tasks() - {asyncio.current_task()}
            for t in running:
                t.cancel()
            await asyncio.gather(*running, return_exceptions=True)

        def end():
            asyncio.run_coroutine_threadsafe(finish(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

        self.addCleanup(end)
        return clients, tasks

    def all_live(self, clients, tasks, db, since):
        while not all(all(c.live) for c in clients):
            for t in tasks:
                if t.done():
                    t.result()
            self.assertLess(now() - since, LIVE_S, f"{sum(all(c.live) for c in clients)} of {SOCKETS} sockets are live")
            count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'mangod'"
            self.peak = max(self.peak, int(db.query(count)[0][0]))

    def test_case_24_a_rolling_restart_spreads_the_return_and_loses_nothing(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
        self.peak = 0
        with replicas(env=SMALL_POOL) as (db, nodes):
            sessions = [nodes[0].client.new_session(tools=False)["id"] for _ in range(SESSIONS)]
            clients, tasks = self.sockets(nodes, sessions)
            self.all_live(clients, tasks, db, now())
            for node, other in zip(nodes, reversed(nodes)):
                start = now()
                for c in clients:
                    c.byes.clear()
                self.assertEqual(node.stop(), 0)
                for s in sessions:
                    mark(other.client, s)
                node.process.end()
                node.start()
                delays = [d for c in clients for d in c.byes]
                self.assertGreater(len(delays), SOCKETS // 4)
                for half in (min(delays), max(delays)):
                    near = sum(abs(d - half) < 0.25 for d in delays)
                    self.assertLess(near, len(delays) / 3, "all come back at one moment")
                self.all_live(clients, tasks, db, start)
            stored = {s: [mark(nodes[0].client, s)["data"][0]["id"]] for s in sessions}
            for s in sessions:
                stored[s] = [e["id"] for e in nodes[1].client.events(s)]
            end = now() + LIVE_S
            while any(c.seen[i] != stored[s] for c in clients for i, s in enumerate(c.sessions)):
                self.assertLess(now(), end, "a subscription has a gap or a repeat")
            self.assertLessEqual(self.peak, 2 * POOL_MAX)


if __name__ == "__main__":
    main()
