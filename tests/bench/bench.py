"""What the rows of the benchmarks share: the programs that measure, the servers, and how a reference and the product are compared."""
import collections
import contextlib
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from harness import BUILD, Database, Mangod, free_port, wait_for  # noqa: E402

ROUNDS = 3
MESSAGE = "Please look at the three files that changed since yesterday and tell me which of them nobody calls any more. Be brief."

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


def measured(b, name, *before):
    """What the program `name` of this folder measured, once for all its rows; before: a command in front of it."""

    @contextlib.contextmanager
    def make():
        out = run([*before, sys.executable, os.path.join(HERE, name)], timeout=400)
        yield json.loads(out.strip().split("\n")[-1])

    return b.part(name, make)


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


# ---- measures of several rows ----


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


def first_frame(b):
    out = b.mangod.load("turns", 1)
    return out["first_p50"], out["first_p99"]


def model_call(b):
    body = {"model": "m", "max_tokens": 1024, "stream": True, "messages": [{"role": "user", "content": MESSAGE}]}
    return tool("load", "call", *options(port=b.model, path="/v1/messages", body=json.dumps(body), clients=1, seconds=1))["p50"]


def get_session(product, connections=8):
    return wrk(product.url(f"/v1/sessions/{product.session}"), connections, key=product.mangod.key)
