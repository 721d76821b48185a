#!/usr/bin/env python3
"""The benchmarks: each row of the table is a ratio of mangod to a reference that is taken in the same run, so that it means the same on
another machine. Run by `make bench` (ROWS="1 2 4" selects rows) under tests/support/pg-run --fsync --private --tcp.

Reference and product alternate three times (in rows 60 to 64, once); the table shows the medians. Exit status 1 when a row is below its floor. Everything
listens on loopback or a unix socket and is ended by process id. A row that cannot run here says why and fails.

    MANGO_BENCH_SESSIONS=100000 MANGO_BENCH_EVENTS=20    the stored sessions of row 24 and the events of each
"""
import argparse
import collections
import contextlib
import http.client
import itertools
import json
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from harness import BUILD, SRC, Database, Mangod, free_port, wait_for  # noqa: E402
from rig import metrics  # noqa: E402

ROUNDS = 3
NOTIFY_WINDOW_MS = 5  # MG_NOTIFY_BATCH_MS: news of one server to the others are gathered so long at most
CLIENTS = (1, 8, 32)
MESSAGE = "Please look at the three files that changed since yesterday and tell me which of them nobody calls any more. Be brief."
SESSIONS = int(os.environ.get("MANGO_BENCH_SESSIONS") or 100000)
EVENTS = int(os.environ.get("MANGO_BENCH_EVENTS") or 20)

Result = collections.namedtuple("Result", "row what reference product ratio floor target higher")


# ---- programs that measure ----


def run(argv, timeout=120, **more):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)[:200]}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def tool(name, *args, **more):
    """A program of this folder that prints one line of JSON."""
    return json.loads(run([os.path.join(BUILD, "tests/bench", name), *map(str, args)], **more))


def options(**values):
    return [word for name, value in values.items() for word in ("--" + name, value)]


def pgbench(database, name, clients, seconds=2):
    """(transactions/s, average ms)"""
    out = run(
        ["pgbench", "-n", "-M", "prepared", "-j", "2", "-c", str(clients), "-T", str(seconds)]
        + ["-f", os.path.join(HERE, "sql", name + ".sql"), database.url]
    )
    return float(re.search(r"tps = ([\d.]+)", out).group(1)), float(re.search(r"latency average = ([\d.]+)", out).group(1))


def wrk(url, connections, seconds=2, key=None, close=False):
    """Requests/s; an answer other than 2xx is a failure."""
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
    if key:
        argv += ["-H", f"x-api-key: {key}"]
    if close:
        argv += ["-H", "connection: close"]
    out = run(argv + [url])
    if "Non-2xx" in out:
        raise RuntimeError(f"wrk {url}: {out}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))


@contextlib.contextmanager
def server(argv, **more):
    """A server of ours that prints "port N"; ended by its id. Yields (port, pid)."""
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, **more)
    try:
        line = p.stdout.readline()
        if not line.startswith("port "):
            raise RuntimeError(f"{argv[0]} did not start")
        yield int(line.split()[1]), p.pid
    finally:
        p.terminate()
        try:
            p.wait(5)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        p.stdout.close()


def rss_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) / 1024


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- what the rows share ----


class Bench:
    """Started when first asked for; ended with the run."""

    def __init__(self):
        self.stack = contextlib.ExitStack()
        self.parts = {}

    def part(self, name, make):
        if name not in self.parts:
            self.parts[name] = self.stack.enter_context(make())
        return self.parts[name]

    @property
    def dir(self):
        return self.part("dir", lambda: tempfile.TemporaryDirectory(prefix="mango-bench.", dir="/tmp"))

    @property
    def reference(self):
        """A database with the tables of the references."""

        @contextlib.contextmanager
        def make():
            with Database() as db:
                run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", db.url, "-f", os.path.join(HERE, "sql/schema.sql")])
                yield db

        return self.part("reference", make)

    @property
    def model(self):
        make = lambda: server([os.path.join(BUILD, "tests/support/fake-model"), "--no-record"])
        return self.part("model", make)[0]

    def new_mangod(self, **more):
        return Mangod(model_url=f"http://127.0.0.1:{self.model}", **more)

    @property
    def mangod(self):
        """The server that most rows use, with an agent and an environment."""

        @contextlib.contextmanager
        def make():
            with self.new_mangod() as m:
                yield Product(m)

        return self.part("mangod", make)

    @property
    def nginx(self):
        return self.part("nginx", lambda: nginx(self.dir))


class Product:
    """A running mangod and how the tools reach it."""

    def __init__(self, mangod):
        self.mangod = mangod
        session = mangod.client.new_session(tools=False)
        self.session, self.agent, self.environment = session["id"], session["agent"]["id"], session["environment_id"]

    def where(self):
        return options(port=self.mangod.port, key=self.mangod.key)

    def load(self, mode, clients, seconds=2, **more):
        return tool("load", mode, *self.where(), *options(agent=self.agent, environment=self.environment, clients=clients, seconds=seconds, **more))

    def url(self, path):
        return f"http://127.0.0.1:{self.mangod.port}{path}"

    def fan_options(self, session=None):
        """A stream of a session, and a trigger that puts one event of about 200 bytes on it, in one commit."""
        path = f"/v1/sessions/{session or self.session}/events"
        trigger = f'POST {path} {{"events":[{{"type":"user.interrupt"}}]}}'
        return [*self.where(), *options(path=path + "/stream", trigger=trigger, pid=self.mangod.process.pid)]

    def new_session(self):
        return self.mangod.client.post("/v1/sessions", {"agent": self.agent, "environment_id": self.environment})["id"]


def certificate(folder):
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    if not os.path.exists(cert):
        run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
            + ["-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"]
        )
    return cert, key


NGINX = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; keepalive_requests 1000000; client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2;
    fastcgi_temp_path {dir}/t3; uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5; ssl_protocols TLSv1.3;
    ssl_certificate {cert}; ssl_certificate_key {key};
    server {{ listen 127.0.0.1:{port}; location / {{ return 200 '{{"ok":true,"x":1}}'; }} }}
    server {{ listen 127.0.0.1:{tls} ssl; location / {{ return 200 '{{"ok":true,"x":1}}'; }} }}
}}
"""


@contextlib.contextmanager
def nginx(folder):
    """(port, TLS port) of an nginx of our own with one worker."""
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    if not os.access(binary, os.X_OK):
        raise RuntimeError("nginx is not installed (Debian: apt-get install nginx-light)")
    cert, key = certificate(folder)
    port, tls = free_port(), free_port()
    conf = os.path.join(folder, "nginx.conf")
    with open(conf, "w") as f:
        f.write(NGINX.format(dir=folder, cert=cert, key=key, port=port, tls=tls))
    p = subprocess.Popen([binary, "-p", folder, "-c", conf], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for("nginx answers", lambda: p.poll() is None and connects(port), 10)
        yield port, tls
    finally:
        p.terminate()
        p.wait(10)


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


@contextlib.contextmanager
def held_streams(product, n):
    """n idle streams on one session for as long as the block runs."""
    argv = [os.path.join(BUILD, "tests/bench/fan"), *map(str, [*product.fan_options(), *options(streams=n, hold=1)])]
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if p.stdout.readline().strip() != "open":
            raise RuntimeError(f"{n} streams did not open")
        yield
    finally:
        p.stdin.close()
        p.wait(30)
        p.stdout.close()


def alternate(reference, product, rounds=ROUNDS):
    """Medians of both; each gives a number or a tuple of numbers."""
    got = ([], [])
    for _ in range(rounds):
        got[0].append(reference())
        got[1].append(product())
    return tuple(median(values) for values in got)


def median(values):
    if isinstance(values[0], tuple):
        return tuple(statistics.median(v) for v in zip(*values))
    return statistics.median(values)


# ---- rows ----

ROWS = {}


def row(number):
    return lambda fn: ROWS.setdefault(number, fn)


def ratio(number, what, reference, product, unit, floor, target, higher=True):
    return Result(number, what, f"{shown(reference)}{unit}", f"{shown(product)}{unit}", product / reference, floor, target, higher)


def shown(n):
    return f"{n:,.0f}" if n >= 100 else f"{n:.1f}" if n >= 10 else f"{n:.2f}"


@row(1)
def sessions_created(b):
    for n in CLIENTS:
        ref, got = alternate(lambda: pgbench(b.reference, "two", n)[0], lambda: b.mangod.load("create", n)["per_s"])
        yield ratio(1, f"sessions created, {n} client{'s' * (n > 1)}, of two-row commits", ref, got, "/s", 0.25, 0.45)


def durable_commits(database, fn):
    """(what fn gives, commits that wrote to the log meanwhile)"""
    database.query("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
    here = "SELECT pg_current_wal_insert_lsn()"
    before = database.query(here)[0][0]
    out = fn()
    after = database.query(here)[0][0]
    database.query("SELECT pg_switch_wal()")  # flushes, so that the reader finds all of it
    count = (
        f"SELECT count(*) FROM pg_get_wal_records_info('{before}', '{after}') "
        "WHERE resource_manager = 'Transaction' AND record_type LIKE 'COMMIT%'"
    )
    return out, int(database.query(count)[0][0])


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


def first_frame(b):
    out = b.mangod.load("turns", 1)
    return out["first_p50"], out["first_p99"]


def notify(b):
    out = tool("notify", b.reference.url, 3000)
    return out["p50"], out["p99"]


@row(4)
def post_to_frame(b):
    ref, got = alternate(lambda: notify(b), lambda: first_frame(b))
    yield ratio(4, "POST to first SSE frame, p50, of insert + notify", ref[0], got[0], " ms", 6, 3, False)
    yield ratio(4, "the same, p99", ref[1], got[1], " ms", 10, 5, False)


def model_call(b):
    body = {"model": "m", "max_tokens": 1024, "stream": True, "messages": [{"role": "user", "content": MESSAGE}]}
    return tool("load", "call", *options(port=b.model, path="/v1/messages", body=json.dumps(body), clients=1, seconds=1))["p50"]


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


def get_session(product, connections=8):
    return wrk(product.url(f"/v1/sessions/{product.session}"), connections, key=product.mangod.key)


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


def plugins():
    return os.path.join(BUILD, "plugins", "loadable")


def docker(b):
    """What tests/bench/docker_rows.py measured, once for all its rows."""

    @contextlib.contextmanager
    def make():
        out = run([os.path.join(SRC, "tests/support/docker-run"), sys.executable, os.path.join(HERE, "docker_rows.py")], timeout=400)
        yield json.loads(out.strip().split("\n")[-1])

    return b.part("docker", make)


@row(15)
def docker_command(b):
    ref, got = docker(b)["15"]
    yield ratio(15, "command in a live sandbox of docker, p50, of an exec through the Engine API", ref, got, " ms", 0.5, 0.08, False)


@row(16)
def docker_first_command(b):
    ref, got = docker(b)["16"]
    yield ratio(16, "first command of a sandbox of docker, of create, start and exec by hand", ref, got, " ms", 1.15, 1.05, False)


@row(17)
def docker_commands(b):
    ref, got = docker(b)["17"]
    yield ratio(17, "commands in 8 sandboxes of docker, of execs through the Engine API", ref, got, "/s", 3, 20)


@row(19)
def docker_call(b):
    ref, got = docker(b)["19"]
    yield ratio(19, "call of a service by an adapter (the Engine's ping), p50, of the same by a libcurl handle that is kept", ref, got, " ms", 5, 2, False)


@row(20)
def docker_file(b):
    grown = docker(b)["20"]
    yield Result(20, "100 MB into a sandbox of docker and back: growth of peak memory, MB", "100 MB", f"{grown:.1f} MB", grown, 8, 2, False)


@row(18)
def local_command(b):
    def once():
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="mango-bench-local.") as folder:
            out = tool("local", "command", plugins(), folder, 300)
            return out["spawn_p50"], out["local_p50"]

    ref, got = median([once() for _ in range(ROUNDS)])
    yield ratio(18, "command in the backend local, p50, of posix_spawn `sh -c`", ref, got, " ms", 3, 1.5, False)


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


FILL = """
INSERT INTO sessions (id, workspace_id, agent_id, agent_version, agent, environment_id, env_type, env_config)
    SELECT 'sesn_{name}' || lpad(g::text, 10, '0'), s.workspace_id, s.agent_id, s.agent_version, s.agent, s.environment_id, s.env_type,
           s.env_config FROM generate_series({first}, {last}) g, sessions s WHERE s.id = '{session}';
INSERT INTO session_state (session_id, last_seq)
    SELECT 'sesn_{name}' || lpad(g::text, 10, '0'), {events} FROM generate_series({first}, {last}) g;
INSERT INTO events (session_id, seq, id, type, body, processed_at)
    SELECT 'sesn_{name}' || lpad(g::text, 10, '0'), n, i, 'agent.message',
           '{{"id":"' || i || '","type":"agent.message","content":[{{"type":"text","text":"{text}"}}]}}', now()
    FROM generate_series({first}, {last}) g, generate_series(1, {events}) n,
         LATERAL (SELECT 'sevt_{name}' || lpad(g::text, 8, '0') || lpad(n::text, 4, '0')) x(i);
"""


def fill(product, sessions, events, name="fill", text="I looked at the three files.", step=10000):
    """Stores sessions with so many events each."""
    for first in range(0, sessions, step):
        last = min(first + step, sessions) - 1
        product.mangod.database.query(FILL.format(first=first, last=last, events=events, session=product.session, name=name, text=text))
    product.mangod.database.query("VACUUM ANALYZE sessions")
    product.mangod.database.query("VACUUM ANALYZE session_state")
    product.mangod.database.query("VACUUM ANALYZE events")


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


@row(27)
def plugin_call(b):
    folder = os.path.join(b.dir, "plugins")
    os.makedirs(folder, exist_ok=True)
    so = os.path.join(folder, "smallest.so")
    run(["cc", "-std=gnu17", "-O2", "-shared", "-fPIC", f"-I{SRC}/plugin-api", os.path.join(SRC, "tests/abi/smallest.c"), "-o", so])
    once = lambda: tool("local", "call", folder, "smallest", 2000000)
    out = [once() for _ in range(ROUNDS)]
    ref, got = (statistics.median(o[name] for o in out) for name in ("direct_ns", "plugin_ns"))
    added = (got - ref) / 1000
    yield Result(27, "time that a call through the plugin interface adds", f"{ref:.1f} ns", f"{got:.1f} ns", added, 2, 0.5, False)


# ---- tools, answers, waiting: what a turn does besides answering ----


def body(text):
    return json.dumps({"events": [{"type": "user.message", "content": [{"type": "text", "text": text}]}]})


TOOL_TURN = '#fake\ntool bash {"command":"echo x"}\n---\ntext done'


@row(28)
def tool_turns(b):
    with b.new_mangod() as m:
        product = Product(m)
        agent = m.client.new_session()["agent"]["id"]  # with the built-in tools
        where = [*product.where(), *options(agent=agent, environment=product.environment, clients=16, sessions=1, body=body(TOOL_TURN))]
        tool("load", "turns", *where, *options(seconds=2))  # sandboxes are made

        def once():
            out, n = durable_commits(m.database, lambda: tool("load", "turns", *where, *options(seconds=3)))
            return out["per_s"], n / out["turns"]

        ref, (per_s, k) = alternate(lambda: pgbench(b.reference, "full", 16, 3)[0], once)
        k = round(k)
        what = f"turns with a tool call, 16 sessions × {k} commits, of four-round-trip commits ({per_s:.0f} turns/s)"
        yield ratio(28, what, ref, per_s * k, "/s", 0.20, 0.40)


CUSTOM = {"type": "custom", "name": "look", "description": "Looks.", "input_schema": {"type": "object"}}


@row(29)
def resume_latency(b):
    client = b.mangod.mangod.client
    agent = client.post("/v1/agents", {"name": "custom", "model": "m", "tools": [CUSTOM]})["id"]
    once = lambda: tool("resume", *b.mangod.where(), *options(agent=agent, environment=b.mangod.environment, answers=300))
    ref, got = alternate(lambda: pgbench(b.reference, "full", 1)[1], lambda: (once()["p50"], model_call(b)))
    what = f"a client's answer to the end of its turn, minus {got[1]:.2f} ms of model, p50, of a four-round-trip commit"
    yield ratio(29, what, ref, got[0] - got[1], " ms", 12, 6, False)


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def post_all(product, sessions, text):
    """One session after another, each with a first message."""
    connection = http.client.HTTPConnection("127.0.0.1", product.mangod.port, timeout=30)
    event = {"type": "user.message", "content": [{"type": "text", "text": text}]}
    content = json.dumps({"agent": product.agent, "environment_id": product.environment, "initial_events": [event]})
    for _ in range(sessions):
        connection.request("POST", "/v1/sessions", content, {"x-api-key": product.mangod.key, "content-type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {answer.read()[:300]}")
        answer.read()
    connection.close()


def waiting(product):
    return int(product.mangod.database.query("SELECT count(*) FROM session_state WHERE turn_step = 'model'")[0][0])


@row(30)
def waiting_turns(b):
    n, model_s = 1000, 5
    with b.new_mangod() as m:
        product = Product(m)
        pid = m.process.pid
        product.load("turns", 16, 3)  # heaps and pools have their size
        post_all(product, 100, "#fake\ndelay 60000\ntext late")
        few, before = threads(pid), rss_mb(pid)
        post_all(product, n, "#fake\ndelay 60000\ntext late")
        if waiting(product) != n + 100:
            raise RuntimeError(f"{waiting(product)} turns wait, not {n + 100}")
        many, kb = threads(pid), (rss_mb(pid) - before) * 1024 / n
    yield Result(30, f"threads while {n:,} more turns wait for a model, of before", str(few), str(many), many / few, 1.1, 1.0, False)
    yield Result(30, "memory of a turn that waits for a model", "", f"{kb:.1f} kB", kb, 60, 40, False)
    with b.new_mangod() as m:
        product = Product(m)
        text = f"#fake\ndelay {model_s * 1000}\ntext well"
        where = [*product.where(), *options(agent=product.agent, environment=product.environment, clients=n, sessions=1, body=body(text))]
        seconds, turns = 4 * model_s + 2, 4  # whole turns: the fifth cannot end in that time
        per_s = tool("load", "turns", *where, *options(seconds=seconds))["per_s"]
    what = f"turns/s of {n:,} sessions on a model that takes {model_s} s, of what it allows"
    yield ratio(30, what, n * turns / seconds, per_s, "/s", 0.7, 0.9)


# ---- the table ----


def verdict(r):
    reached = lambda limit: r.ratio >= limit if r.higher else r.ratio <= limit
    return "target" if reached(r.target) else "ok" if reached(r.floor) else "BELOW"


def cells(r):
    sign = "≥" if r.higher else "≤"
    return [str(r.row), r.what, r.reference, r.product, f"{r.ratio:.2f}", f"{sign} {r.floor:.3g}", f"{sign} {r.target:.3g}", verdict(r)]


HEAD = ["row", "what", "reference", "product", "ratio", "floor", "target", "verdict"]


def markdown(results):
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    return "\n".join(lines + ["| " + " | ".join(cells(r)) + " |" for r in results])


def show(r):
    print("  ".join(f"{c:{w}}" for c, w in zip(cells(r), (3, 96, 11, 11, 6, 7, 7, 7))), flush=True)


def machine():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    version = run(["psql", "--version"]).split()[2]
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"{len(names)} × {names[0] if names else 'CPU'}, {memory_gb:.0f} GiB, Linux {os.uname().release}, PostgreSQL {version}; load {load}"


def remote(b):
    """What tests/bench/remote_rows.py measured, once for all its rows."""

    @contextlib.contextmanager
    def make():
        out = run([sys.executable, os.path.join(HERE, "remote_rows.py")], timeout=300)
        yield json.loads(out.strip().split("\n")[-1])

    return b.part("remote", make)


@row(40)
def remote_command(b):
    ref, got = remote(b)["40"]
    yield ratio(40, "command in a live sandbox of e2b, p50, of the official SDK's", ref, got, " ms", 1.1, 0.8, False)


@row(41)
def remote_put(b):
    ref, got = remote(b)["41"]
    yield ratio(41, "32 MiB into a sandbox of e2b, of the official SDK's", ref, got, " ms", 1.1, 0.8, False)


@row(42)
def remote_get(b):
    ref, got = remote(b)["42"]
    yield ratio(42, "32 MiB out of a sandbox of e2b, of the official SDK's", ref, got, " ms", 1.1, 0.8, False)


@row(43)
def remote_memory(b):
    ref, got = (n / 1e6 for n in remote(b)["43"])
    yield ratio(43, "the same both ways: growth of peak memory, of the official SDK's", ref, got, " MB", 0.1, 0.02, False)


def containers(b):
    """What tests/bench/container_rows.py measured, once for all its rows."""

    @contextlib.contextmanager
    def make():
        out = run([sys.executable, os.path.join(HERE, "container_rows.py")], timeout=400)
        yield json.loads(out.strip().split("\n")[-1])

    return b.part("containers", make)


def container_rows(first, service):
    """Rows first to first + 3, of one service."""

    @row(first)
    def container_command(b):
        ref, got = containers(b)[str(first)]
        yield ratio(first, f"command in a live sandbox of {service}, p50, of the official client's", ref, got, " ms", 2.5, 1, False)

    @row(first + 1)
    def container_put(b):
        ref, got = containers(b)[str(first + 1)]
        yield ratio(first + 1, f"32 MiB into a sandbox of {service}, of the official client's", ref, got, " ms", 1.1, 0.8, False)

    @row(first + 2)
    def container_get(b):
        ref, got = containers(b)[str(first + 2)]
        yield ratio(first + 2, f"32 MiB out of a sandbox of {service}, of the official client's", ref, got, " ms", 1.1, 0.8, False)

    @row(first + 3)
    def container_memory(b):
        ref, got = (n / 1e6 for n in containers(b)[str(first + 3)])
        yield ratio(first + 3, "the same both ways: growth of peak memory, of the official client's", ref, got, " MB", 0.1, 0.02, False)


container_rows(50, "daytona")
container_rows(54, "opensandbox")


def objects(b):
    """What tests/bench/objects.py measured, once for all its rows."""

    @contextlib.contextmanager
    def make():
        out = run([sys.executable, os.path.join(HERE, "objects.py")], timeout=400)
        yield json.loads(out.strip().split("\n")[-1])

    return b.part("objects", make)


@row(60)
def folder_up(b):
    ref, got = objects(b)["60"]
    yield ratio(60, "a file up into the folder, synced, of cp and sync", ref, got, " MiB/s", 0.15, 0.5)


@row(61)
def folder_down(b):
    ref, got = objects(b)["61"]
    yield ratio(61, "the same file down, of cp and sync", ref, got, " MiB/s", 0.7, 1)


@row(62)
def store_up(b):
    ref, got = objects(b)["62"]
    yield ratio(62, "a file up into an S3 store, of boto3's ten threads to the same", ref, got, " MiB/s", 0.4, 0.8)


@row(63)
def store_down(b):
    ref, got = objects(b)["63"]
    yield ratio(63, "the same file down, of boto3's", ref, got, " MiB/s", 0.7, 1)


@row(64)
def store_memory(b):
    _, got = objects(b)["64"]
    yield Result(64, "growth of peak memory in an upload to the S3 store", "", f"{got:.1f} MiB", got, 12, 8, False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="numbers, separated by blanks or commas; all without it")
    parser.add_argument("--out", default="", help="a file for the table as Markdown")
    args = parser.parse_args()
    rows = [int(x) for x in re.split(r"[ ,]+", args.rows.strip()) if x] or sorted(ROWS)
    if unknown := [n for n in rows if n not in ROWS]:
        parser.error(f"no row {unknown[0]}; rows: {' '.join(map(str, sorted(ROWS)))}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20000) if hard > 0 else 20000, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(machine(), flush=True)
    results, failed, start = [], [], time.monotonic()
    bench = Bench()
    with bench.stack:
        for n in rows:
            try:
                for result in ROWS[n](bench):
                    results.append(result)
                    show(result)
            except (RuntimeError, AssertionError, subprocess.SubprocessError, OSError) as e:
                failed.append(n)
                print(f"{n}: {ROWS[n].__name__} could not be measured: {e}", flush=True)
    print(f"\n{machine()}; {time.monotonic() - start:.0f} s\n\n{markdown(results)}")
    if args.out:
        with open(args.out, "w") as f:
            f.write(markdown(results) + "\n")
    below = [r for r in results if verdict(r) == "BELOW"]
    print(f"\n{len(results)} rows measured, {sum(verdict(r) == 'target' for r in results)} reach their target, {len(below)} below the floor, "
          f"{len(failed)} not measured")
    sys.exit(1 if below or failed else 0)


if __name__ == "__main__":
    main()
