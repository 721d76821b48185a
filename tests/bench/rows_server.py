"""Rows 21 to 26: start, memory, a crash, stored sessions, the work queue, and doing nothing."""
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import time

from bench import BUILD, ROUNDS, Product, Result, alternate, cpu_s, fill, get_session, held_streams, options, pgbench, ratio, row, rss_mb, run, server
from bench import tool, wait_for
from rig import metrics

SESSIONS = int(os.environ.get("MANGO_BENCH_SESSIONS") or 100000)
EVENTS = int(os.environ.get("MANGO_BENCH_EVENTS") or 20)


def ready_ms(m):
    """Starts m and waits for /readyz; ms from the start of the process."""

    def ready():
        with contextlib.suppress(OSError):
            return m.client.raw("GET", "/readyz", timeout=5)[0] == 200
        if not m.process.running():
            raise RuntimeError(m.log())
        return False

    start = time.monotonic()
    m.start(wait=False)
    wait_for("mangod is ready", ready, 60, every=0.001)
    return (time.monotonic() - start) * 1000


def psql_ms(b):
    start = time.monotonic()
    b.reference.query("SELECT 1")
    return (time.monotonic() - start) * 1000


@row(21)
def start_up(b):
    with b.new_mangod(start=False) as m:
        m.start()
        product = Product(m)

        def restart():
            if m.process.running():
                m.stop()
            return ready_ms(m)

        ref, got = alternate(lambda: psql_ms(b), restart)
        yield ratio(21, "start to ready, of `psql -c 'select 1'`", ref, got, " ms", 5, 2, False)
        fill(product, 10000, 20)
        ref, got = alternate(lambda: psql_ms(b), restart)
        yield ratio(21, "the same with 10,000 sessions", ref, got, " ms", 10, 3, False)


@row(22)
def memory(b):
    with server([os.path.join(BUILD, "tests/bench/lwsfan")]) as (_, pid):
        ref = f"{rss_mb(pid):.1f} MB"
    with b.new_mangod() as m:
        mb = rss_mb(m.process.pid)
        yield Result(22, "memory after the start (libwebsockets alone for scale)", ref, f"{mb:.1f} MB", mb, 20, 12, False)
        Product(m).load("turns", 16, 3)
        mb = rss_mb(m.process.pid)
        yield Result(22, "memory after row 2", ref, f"{mb:.1f} MB", mb, 60, 25, False)


BROKEN_LOGS = """
WITH e AS (SELECT session_id, count(*) n, max(seq) top, count(*) FILTER (WHERE type = 'user.message') asked,
                  count(*) FILTER (WHERE type = 'agent.message') answered, count(*) FILTER (WHERE type = 'session.status_idle') idle,
                  (array_agg(type ORDER BY seq DESC))[1] last
           FROM events GROUP BY session_id)
SELECT count(*) FROM session_state s JOIN e USING (session_id)
WHERE e.n <> s.last_seq OR e.top <> s.last_seq OR asked <> answered OR asked <> idle OR last <> 'session.status_idle'
"""


@row(23)
def crash(b):
    lease = 3.0
    took = []
    for _ in range(ROUNDS):
        with b.new_mangod(env={"MANGO_NODE_TTL": f"{lease:.0f}s"}) as m:
            product = Product(m)
            argv = ["load", "turns", *product.where(), *options(agent=product.agent, environment=product.environment, clients=16, seconds=20)]
            load = subprocess.Popen(
                [os.path.join(BUILD, "tests/bench", argv[0]), *map(str, argv[1:])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                busy = "SELECT count(*) FROM session_state WHERE turn_step <> 'none'"
                asked = "SELECT count(*) FROM events WHERE type = 'user.message'"
                wait_for("turns run", lambda: int(m.database.query(asked)[0][0]) > 100)
                m.kill()
                start = time.monotonic()
                m.process.end()
                m.start()
                wait_for("every session is idle again", lambda: m.database.query(busy)[0][0] == "0", 30)
                took.append(time.monotonic() - start)
            finally:
                load.kill()
                load.wait()
            broken = m.database.query(BROKEN_LOGS)[0][0]
            if broken != "0":
                raise RuntimeError(f"{broken} sessions lost or doubled events")
    got = statistics.median(took)
    what = "kill -9 in row 2 until every session is idle again, of the lease"
    yield ratio(23, what, lease, got, " s", (1.5 * lease + 1) / lease, 1.1, False)


@row(24)
def stored_sessions(b):
    with b.new_mangod() as full, b.new_mangod() as empty:
        full, empty = Product(full), Product(empty)
        fill(full, SESSIONS, EVENTS)
        full.mangod.database.query("CHECKPOINT")
        what = f"{SESSIONS:,} stored sessions of {EVENTS} events: {{}}, of an empty database"
        ref, got = alternate(lambda: empty.load("create", 8)["per_s"], lambda: full.load("create", 8)["per_s"])
        yield ratio(24, what.format("row 1"), ref, got, "/s", 0.7, 0.9)
        frame = lambda p: p.load("turns", 1)["first_p50"]
        ref, got = alternate(lambda: frame(empty), lambda: frame(full))
        yield Result(24, what.format("row 4"), f"{ref:.2f} ms", f"{got:.2f} ms", ref / got, 0.7, 0.9, True)
        ref, got = alternate(lambda: get_session(empty), lambda: get_session(full))
        yield ratio(24, what.format("row 11"), ref, got, "/s", 0.7, 0.9)


QUEUE = """
INSERT INTO sessions (id, workspace_id, agent_id, agent_version, agent, environment_id, env_type, env_config)
    SELECT 'sesn_queue' || g, workspace_id, agent_id, agent_version, agent, environment_id, env_type, env_config
    FROM sessions, generate_series(1, {n}) g WHERE id = '{session}';
INSERT INTO session_state (session_id) SELECT 'sesn_queue' || g FROM generate_series(1, {n}) g;
INSERT INTO work (id, workspace_id, environment_id, session_id) SELECT 'work_queue' || g, workspace_id, environment_id, 'sesn_queue' || g
    FROM sessions, generate_series(1, {n}) g WHERE id = '{session}';
"""


@contextlib.contextmanager
def work_queue(b, n):
    """(mangod, what the tool needs): a server with a self_hosted environment, n items and a key for its workers."""
    with b.new_mangod() as m:
        session = m.client.new_session(environment="self_hosted", tools=False)
        key = json.loads(run([os.path.join(BUILD, "mango"), "api-key", "create", "--environment", session["environment_id"], "bench"], env=m.environment()))
        if n:
            m.database.query(QUEUE.format(n=n, session=session["id"]))
            m.database.query("VACUUM ANALYZE work")
            m.database.query("VACUUM ANALYZE session_state")
        yield m, options(port=m.port, key=key["key"], environment=session["environment_id"])


@row(25)
def work_cycles(b):
    with work_queue(b, 100000) as (_, where):
        cycle = lambda: tool("work", "cycle", *where, *options(clients=16, seconds=2))["per_s"]
        ref, got = alternate(lambda: pgbench(b.reference, "full", 16)[0], cycle)
    yield ratio(25, "poll, ack, heartbeat and stop of a work item, 16 workers, of four-round-trip commits", ref, got, "/s", 0.15, 0.3)


def answered(m):
    """How many requests the server has answered."""
    return metrics(m.client)["mango_http_requests_total"]


def idle_pollers(b, seconds, n=1000):
    first = 10  # s at most until each has polled once: a pause of 1 to 3 s and 1 s for the poll, on a loaded machine
    with work_queue(b, 0) as (m, where):
        argv = [os.path.join(BUILD, "tests/bench/work"), "idle", *map(str, [*where, *options(clients=n, seconds=first + seconds)])]
        start, looks = answered(m), itertools.count(1)  # a look is a request too
        p = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        wait_for("the first polls are past", lambda: answered(m) - start - next(looks) >= n, first, every=0.1)
        before = cpu_s(m.process.pid)
        time.sleep(seconds)  # measured
        share = (cpu_s(m.process.pid) - before) / seconds * 100
        if p.wait(30) != 0:
            raise RuntimeError("the pollers failed")
    return share


@row(26)
def idle_cost(b):
    seconds = 20
    with b.new_mangod() as m:
        product = Product(m)
        fill(product, 1000, 20)
        with held_streams(product, 5000):
            wait_for("the server has all streams", lambda: metrics(m.client)["mango_sse_streams"] == 5000)
            before = cpu_s(m.process.pid)
            time.sleep(seconds)  # the row's subject is what happens when nothing does
            share = (cpu_s(m.process.pid) - before) / seconds * 100
    what = f"CPU of 5,000 idle streams and 1,000 idle sessions over {seconds} s"
    yield Result(26, what, "one core", f"{share:.1f} %", share, 5, 2, False)
    share = idle_pollers(b, seconds)
    yield Result(26, f"CPU of 1,000 workers that poll an empty queue over {seconds} s", "one core", f"{share:.1f} %", share, 10, 5, False)
