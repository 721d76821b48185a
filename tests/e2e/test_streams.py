"""Field cases of the event streams at the level of the system: real replicas, real sockets, a real nginx, broken paths."""
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

from harness import Mangod, free_port, main, wait_for
from rig import CuttingReader, Namespace, SlowReaders, SseSocket, WsSocket, behind, fill, ids_of, mark, metrics, now, replicas, rss, sanitized
from ws import Closed, WebSocket

REPAIR_S = 2.0  # documented: no event is later than that, whatever became of the wake-ups
MARGIN_S = 1.0  # of a loaded machine


def paced(client, session_id, posts, each, pause):
    """`posts` POSTs of `each` events, one every `pause` seconds."""
    start = now()
    for i in range(posts):
        mark(client, session_id, each)
        time.sleep(max(0, start + (i + 1) * pause - now()))


class Streams(unittest.TestCase):
    def test_case_13_no_gap_and_no_repeat_between_history_and_live_at_any_cut(self):
        with replicas() as (_, nodes):
            clients = [n.client for n in nodes]
            sid = clients[0].new_session(tools=False)["id"]
            readers = [CuttingReader(kind, clients[i % 2 :] + clients[: i % 2], sid, i, 240, 2 * 150 * 20) for i in range(3) for kind in (SseSocket, WsSocket)]
            for r in readers:
                r.start()
            writers = [threading.Thread(target=paced, args=(c, sid, 150, 20, 0.04)) for c in clients]
            for w in writers:
                w.start()
            for w in writers:
                w.join()
            stored = ids_of(clients[1], sid)
            self.assertEqual(len(stored), 2 * 150 * 20)
            for r in readers:
                self.assertEqual(r.result(), stored, f"{r.kind.__name__} after {r.cuts} cuts")
                self.assertGreater(r.cuts, 20)

    def test_case_14_a_lost_wake_up_or_listener_delays_an_event_by_the_documented_time_at_most(self):
        proxies = []
        with replicas(lambda _: {}, behind(proxies)) as (db, [a, b]), proxies[0] as proxy:
            sid = a.client.new_session(tools=False)["id"]
            reader = SseSocket(b.client, sid, "start")

            def arrives():
                start = now()
                ident = mark(a.client, sid)["data"][0]["id"]
                self.assertEqual(reader.next_id(), ident)
                self.assertLess(now() - start, REPAIR_S + MARGIN_S)

            arrives()
            for _ in range(4):
                killed = db.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ 'mango_events' AND pid <> pg_backend_pid()")
                self.assertTrue(killed)
                arrives()
            wait_for("the listener is back", lambda: metrics(b.client)["mango_notify_reconnects_total"] >= 1, 10)
            self.assertGreaterEqual(metrics(b.client)["mango_wakeup_repairs_total"], 1)
            self.assertEqual(proxy.deaf(lambda head: b"LISTEN mango_events" in head), 1)
            before = metrics(b.client)["mango_notify_reconnects_total"]
            for _ in range(4):
                arrives()
            wait_for("the deaf listener is replaced", lambda: metrics(b.client)["mango_notify_reconnects_total"] > before, 15)
            reader.close()

    def test_case_15_a_reader_never_passes_an_event_that_is_not_committed_yet(self):
        with replicas(lambda _: {"hooks": "admission.before=sleep2000:1"}, lambda _: {}) as (db, [a, b]):
            sid = b.client.new_session(tools=False)["id"]
            readers = [SseSocket(n.client, sid, "start") for n in (a, b)]
            lists, stop = [], threading.Event()

            def poll():
                while not stop.wait(0.05):
                    lists.append(ids_of(b.client, sid))

            first = threading.Thread(target=mark, args=(a.client, sid))
            poller = threading.Thread(target=poll)
            first.start()
            held = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
            wait_for("the lower event waits before its commit", lambda: db.query(held))
            poller.start()
            higher = mark(b.client, sid)["data"][0]["id"]
            first.join()
            stored = ids_of(b.client, sid)
            stop.set()
            poller.join()
            self.assertEqual(len(stored), 2)
            self.assertEqual(stored[1], higher)
            for r in readers:
                self.assertEqual([r.next_id(), r.next_id()], stored)
                r.close()
            for seen in lists:
                self.assertEqual(seen, stored[: len(seen)], "a list showed the higher event before the lower one")

    def test_case_18_no_stream_is_silent_for_longer_than_the_setting(self):
        with Mangod(env={"MANGO_KEEPALIVE": "2s"}) as m:
            session = m.client.new_session()["id"]
            sse = SseSocket(m.client, session)
            single = WsSocket(m.client, session).ws
            many = WebSocket("127.0.0.1", m.port, "/v1/stream", m.client.headers(), "mango.v1")
            self.assertEqual(many.receive_json()["ping_interval_ms"], 2000)
            m.client.say(session, "run: sleep 9")
            gaps = {"sse": 0.0, "ws": 0.0, "mango.v1": 0.0}

            def watch(name, sock):
                end, last = now() + 8, now()
                sock.settimeout(10)
                while now() < end:
                    self.assertTrue(sock.recv(65536))  # no pong is sent back: that takes 20 s to matter
                    gaps[name] = max(gaps[name], now() - last)
                    last = now()

            threads = [threading.Thread(target=watch, args=x) for x in (("sse", sse.sock), ("ws", single.sock), ("mango.v1", many.sock))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            for name, gap in gaps.items():
                self.assertGreater(gap, 0, name)
                self.assertLess(gap, 2.0 + 0.5, f"{name} was silent")
        with Mangod() as m, WebSocket("127.0.0.1", m.port, "/v1/stream", m.client.headers(), "mango.v1") as ws:
            self.assertLessEqual(ws.receive_json()["ping_interval_ms"], 10000, "the default is what middleboxes allow")

    def test_case_20_connections_whose_path_broke_are_closed_and_freed(self):
        with Namespace() as net, Mangod(start=False) as m:
            m.extra.update(MANGO_LISTEN=f"0.0.0.0:{m.port}", MANGO_KEEPALIVE="2s")
            m.start()
            sid, quiet = (m.client.new_session(tools=False)["id"] for _ in range(2))

            def measure():
                x = metrics(m.client)
                x["fds"] = x["process_open_fds"] - len(m.database.query("SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"))
                return x

            start = measure()

            def connect():
                there = type(m.client)(m.port, m.key, net.address)
                return [WsSocket(there, quiet), WsSocket(there, sid, "start"), SseSocket(there, sid, "start"), SseSocket(there, quiet)]

            streams = net.inside(connect)
            ident = mark(m.client, sid)["data"][0]["id"]
            self.assertEqual([streams[1].next_id(), streams[2].next_id()], [ident] * 2)
            self.assertEqual(metrics(m.client)["mango_http_connections"], start["mango_http_connections"] + 4)
            net.drop()
            cut = now()
            fill(m.database, sid, 2000, 2000)  # data that waits, more than the sockets' buffers take
            mark(m.client, sid)

            def closed():
                x = measure()
                return x["mango_websockets"] == 0 and x["mango_sse_streams"] == 0 and x

            end = wait_for("all four are closed", closed, 42, 0.2)
            self.assertLess(now() - cut, 42)
            self.assertEqual(end["fds"], start["fds"])
            if not sanitized(m.process.pid):
                self.assertLess(end["process_resident_memory_bytes"], start["process_resident_memory_bytes"] + 12 * 2**20)

    def test_case_21_slow_readers_cost_little_hurt_nobody_and_lose_nothing(self):
        with Mangod() as m:
            sid = m.client.new_session(tools=False)["id"]
            fill(m.database, sid, 10000, 2000)
            stored = [row[0] for row in m.database.query(f"SELECT id FROM events WHERE session_id = '{sid}' ORDER BY seq")]

            def fast():
                readers = [kind(m.client, sid, "start") for kind in (SseSocket, WsSocket)]
                start, took = now(), []
                for r in readers:
                    self.assertEqual([r.next_id() for _ in stored], stored)
                    took.append(now() - start)
                    r.close()
                return max(took)

            alone = fast()
            before = rss(m.process.pid)
            slow = [SseSocket(m.client, sid, "start", rcvbuf=4096).sock for _ in range(50)]  # small: each KB that is read shows at the server
            crowd = SlowReaders(slow, 1024)
            crowd.start()
            stalled = WsSocket(m.client, sid, "start", timeout=240)  # reads nothing at all
            try:
                self.assertLess(fast(), 2 * alone + MARGIN_S, "slow readers held up the fast ones")
                peak = 0

                def stalled_closed():
                    nonlocal peak
                    peak = max(peak, rss(m.process.pid))
                    return metrics(m.client)["mango_stream_slow_closed_total"] >= 1

                # 30 s after the last progress; its kernel may take a little more now and then as it packs what waits.
                wait_for("the reader that takes nothing is closed", stalled_closed, 150, 0.2)
                if not sanitized(m.process.pid):
                    self.assertLess(peak - before, 51 * 128 * 1024 + 8 * 2**20, "bytes for 51 slow readers")
                self.assertEqual(crowd.closed, 0, "a reader that takes 1 KB/s is slow, not stuck")
            finally:
                crowd.end()
            got = []
            with self.assertRaises(Closed) as why:
                while True:
                    got.append(json.loads(stalled.ws.receive())["id"])
            self.assertEqual(why.exception.code, 1013)
            again = WsSocket(m.client, sid, got[-1])
            got += [again.next_id() for _ in stored[len(got) :]]
            self.assertEqual(got, stored)
            again.close()


class Nginx:
    """A real nginx in front of a mangod."""

    CONF = """
daemon off; master_process off; pid %(dir)s/pid; error_log %(dir)s/error.log;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path %(dir)s/body; proxy_temp_path %(dir)s/proxy; fastcgi_temp_path %(dir)s/f; uwsgi_temp_path %(dir)s/u; scgi_temp_path %(dir)s/s;
    gzip on; gzip_types *; gzip_min_length 0; gzip_proxied any;
    server { listen 127.0.0.1:%(port)d; location / { proxy_pass http://127.0.0.1:%(to)d; proxy_http_version %(version)s; } }
}
"""

    def __init__(self, m, version):
        self.m, self.version, self.port = m, version, free_port()

    def __enter__(self):
        self.dir = os.path.join(self.m.dir, f"nginx-{self.version}")
        os.mkdir(self.dir)
        conf = os.path.join(self.dir, "nginx.conf")
        with open(conf, "w", encoding="ascii") as f:
            f.write(self.CONF % {"dir": self.dir, "port": self.port, "to": self.m.port, "version": self.version})
        self.process = subprocess.Popen([shutil.which("nginx", path="/usr/sbin:/usr/bin"), "-c", conf, "-p", self.dir], stderr=subprocess.DEVNULL)
        wait_for("nginx answers", lambda: self.process.poll() is not None or self.answers())
        return self

    def answers(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@unittest.skipUnless(shutil.which("nginx", path="/usr/sbin:/usr/bin"), "nginx is not installed (Debian: apt-get install nginx-light)")
class BehindNginx(unittest.TestCase):
    def test_case_17_each_event_passes_a_buffering_and_compressing_proxy_within_a_second(self):
        with Mangod() as m, Nginx(m, "1.1") as proxy:
            client = type(m.client)(proxy.port, m.key)
            sid = client.new_session(tools=False)["id"]
            client.headers = lambda extra=None, plain=client.headers: {**plain(extra), "Accept-Encoding": "gzip"}
            with client.stream(sid) as stream:
                head = {k.lower(): v for k, v in stream.answer.getheaders()}
                self.assertEqual(head["content-type"], "text/event-stream")
                self.assertIn("no-transform", head["cache-control"])
                self.assertEqual(head.get("content-encoding", "identity"), "identity")
                self.assertNotIn("content-length", head)
                events = iter(stream)
                for _ in range(4):
                    start = now()
                    ident = mark(m.client, sid)["data"][0]["id"]
                    self.assertEqual(next(events)["id"], ident)
                    self.assertLess(now() - start, 1.0)
                    time.sleep(0.5)

    def test_case_17_http_1_0_upstream_is_told_what_to_change(self):
        with Mangod() as m, Nginx(m, "1.0") as proxy:
            client = type(m.client)(proxy.port, m.key)
            sid = client.new_session(tools=False)["id"]
            status, _, body = client.raw("GET", f"/v1/sessions/{sid}/events/stream", timeout=5)
            self.assertGreaterEqual(status, 400)
            self.assertIn("proxy_http_version 1.1", json.loads(body)["error"]["message"])
            self.assertEqual(client.raw("GET", f"/v1/sessions/{sid}/events")[0], 200)


if __name__ == "__main__":
    main()
