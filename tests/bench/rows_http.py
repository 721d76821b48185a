"""Rows 1 to 14: sessions, turns, streams and reads over HTTP."""
import json
import os

from bench import BUILD, Product, Result, alternate, certificate, connects, durable_commits, fill, first_frame, get_session, held_streams, model_call
from bench import options, pgbench, ratio, row, server, tool, wait_for, wrk

CLIENTS = (1, 8, 32)
NOTIFY_WINDOW_MS = 5  # MG_NOTIFY_BATCH_MS: news of one server to the others are gathered so long at most


@row(1)
def sessions_created(b):
    for n in CLIENTS:
        ref, got = alternate(lambda: pgbench(b.reference, "two", n)[0], lambda: b.mangod.load("create", n)["per_s"])
        yield ratio(1, f"sessions created, {n} client{'s' * (n > 1)}, of two-row commits", ref, got, "/s", 0.25, 0.45)


def commits_per_turn(b, clients, seconds):
    out, commits = durable_commits(b.mangod.mangod.database, lambda: b.mangod.load("turns", clients, seconds))
    return out["per_s"], commits / out["turns"]


@row(2)
def turns(b):
    ref, (per_s, k) = alternate(lambda: pgbench(b.reference, "full", 16, 3)[0], lambda: commits_per_turn(b, 16, 3))
    k = round(k)
    what = f"turns of 16 sessions × {k} commits, of four-round-trip commits ({per_s:.0f} turns/s)"
    yield ratio(2, what, ref, per_s * k, "/s", 0.20, 0.50)


@row(3)
def commits(b):
    _, k = commits_per_turn(b, 1, 2)
    yield Result(3, "durable commits per turn", "", f"{k:.2f}", k, 5, 2.05, False)


def notify(b):
    out = tool("notify", b.reference.url, 3000)
    return out["p50"], out["p99"]


@row(4)
def post_to_frame(b):
    ref, got = alternate(lambda: notify(b), lambda: first_frame(b))
    yield ratio(4, "POST to first SSE frame, p50, of insert + notify", ref[0], got[0], " ms", 6, 3, False)
    yield ratio(4, "the same, p99", ref[1], got[1], " ms", 10, 5, False)


@row(5)
def turn_latency(b):
    turn = lambda: (b.mangod.load("turns", 1)["turn_p50"], model_call(b))
    ref, (whole, model) = alternate(lambda: pgbench(b.reference, "full", 1)[1], turn)
    what = f"turn minus {model:.2f} ms of model, p50, of a four-round-trip commit"
    yield ratio(5, what, ref, whole - model, " ms", 12, 6, False)


@row(6)
def two_replicas(b):
    """A turn is posted to one server and followed on another one of the same database, against row 4 on one."""
    one, other = b.mangod.mangod, b.new_mangod(database=b.mangod.mangod.database)
    other.key = one.key  # each start revokes the key that another MANGO_API_KEY issued
    with other:
        across = lambda: b.mangod.load("turns", 1, **{"stream-port": other.port})["first_p50"]
        ref, got = alternate(lambda: first_frame(b)[0], across)
    allowed = 1.5 * ref + NOTIFY_WINDOW_MS
    what = f"POST on one server to first SSE frame on another, p50, of 1.5 × the same on one ({ref:.2f} ms) + {NOTIFY_WINDOW_MS} ms"
    yield ratio(6, what, allowed, got, " ms", (3 * ref + NOTIFY_WINDOW_MS) / allowed, 1, False)


def fan_reference(streams, rounds):
    with server([os.path.join(BUILD, "tests/bench/epfan")]) as (port, pid):
        return tool("fan", *options(port=port, pid=pid, path="/sse", trigger="GET /pub", streams=streams, rounds=rounds))


@row(7)
def fan_out(b):
    for n, rounds in ((1000, 40), (5000, 15)):
        ref, got = alternate(
            lambda: fan_reference(n, rounds)["last_p50"],
            lambda: tool("fan", *b.mangod.fan_options(), *options(streams=n, rounds=rounds))["last_p50"],
        )
        yield ratio(7, f"an event of 220 bytes to {n:,} streams, last receiver, of a bare epoll loop", ref, got, " ms", 3, 1.8, False)


@row(8)
def slow_readers(b):
    n, slow = 1000, 10
    new = b.mangod.new_session
    each = lambda session, **more: tool("fan", *b.mangod.fan_options(session), *options(streams=n, rounds=40, **more))["each_p99"]

    def stuffed():
        session = new()
        event = {"type": "user.message", "content": [{"type": "text", "text": "x" * 40000}]}  # a turn's six events, 80 kB
        stuff = f"POST /v1/sessions/{session}/events {json.dumps({'events': [event]})}"
        return each(session, slow=slow, stuff=stuff, stuffing=5, **{"stuff-events": 6})

    plain = lambda: each(new())
    ref, got = alternate(plain, stuffed)
    yield ratio(8, f"{n:,} streams, p99, with {slow} that do not read, of without", ref, got, " ms", 2, 1.1, False)


def per_stream_kb(out, n):
    return (out["rss_kb"] - out["rss_before_kb"]) / n


@row(9)
def stream_memory(b):
    n = 5000

    def reference():
        with server([os.path.join(BUILD, "tests/bench/lwsfan")]) as (port, pid):
            return per_stream_kb(tool("fan", *options(port=port, pid=pid, path="/sse", streams=n)), n)

    def product():
        with b.new_mangod() as m:
            return per_stream_kb(tool("fan", *Product(m).fan_options(), *options(streams=n)), n)

    ref, got = alternate(reference, product)
    yield ratio(9, f"memory of an idle stream of {n:,}, of libwebsockets alone", ref, got, " kB", 2, 1.3, False)


@row(10)
def idle_streams(b):
    def held():
        with held_streams(b.mangod, 5000):
            return get_session(b.mangod)

    ref, got = alternate(lambda: get_session(b.mangod), held)
    yield ratio(10, "GET session with 5,000 idle streams, of without", ref, got, "/s", 0.5, 0.7)


@row(11)
def read_session(b):
    ref, got = alternate(lambda: pgbench(b.reference, "read", 8)[0], lambda: get_session(b.mangod))
    yield ratio(11, "GET session, 8 clients, of a read by key", ref, got, "/s", 0.25, 0.5)


@row(12)
def list_events(b):
    fill(b.mangod, 1, 100, "one", "x" * 160)
    path = "/v1/sessions/sesn_one0000000000/events?limit=100"
    answer = len(b.mangod.mangod.client.raw("GET", path)[2])
    size = "SELECT sum(8 + length(type) + length(data::text)) FROM (SELECT * FROM ev WHERE session_id = md5('1')::uuid ORDER BY seq LIMIT 100) x"
    page = int(b.reference.query(size)[0][0])
    ref, got = alternate(
        lambda: pgbench(b.reference, "list", 8)[0] * page / 1e6,
        lambda: wrk(b.mangod.url(path), 8, key=b.mangod.mangod.key) * answer / 1e6,
    )
    yield ratio(12, "list 100 events, 8 clients, of the same query", ref, got, " MB/s", 0.4, 0.7)


@row(13)
def healthz(b):
    ref, got = alternate(lambda: wrk(f"http://127.0.0.1:{b.nginx[0]}/", 16), lambda: wrk(b.mangod.url("/healthz"), 16))
    yield ratio(13, "/healthz, 16 connections, of nginx `return 200`", ref, got, "/s", 0.3, 0.5)


@row(14)
def tls(b):
    cert, key = certificate(b.dir)
    with b.new_mangod(env={"MANGO_TLS_CERT": cert, "MANGO_TLS_KEY": key}, start=False) as m:
        m.start(wait=False)
        wait_for("mangod takes connections", lambda: connects(m.port))
        url = f"https://127.0.0.1:{m.port}/healthz"
        ref, got = alternate(lambda: wrk(b.mangod.url("/healthz"), 16), lambda: wrk(url, 16))
        yield ratio(14, "/healthz over TLS, kept connections, of plain HTTP", ref, got, "/s", 0.5, 0.65)
        plain = f"https://127.0.0.1:{b.nginx[1]}/"
        ref, got = alternate(lambda: wrk(plain, 16, close=True), lambda: wrk(url, 16, close=True))
        yield ratio(14, "new TLS connections, of nginx", ref, got, "/s", 0.7, 1.0)
