"""Field cases of PostgreSQL and of the state folder at the level of the system."""
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from api import ApiError
from harness import Database, FakeModel, Mangod, Transaction, main, wait_for
from rig import POOL_MAX, SMALL_POOL, SseSocket, behind, http_ok, ids_of, mark, metrics, now, replicas
from turns import GATE, stop_while_it_waits

EXIT_CONFIG, EXIT_IN_USE = 78, 75  # docs/operating.md
STATEMENT_BOUND_S = 30  # a request behind a database that went deaf: one statement's deadline, and one connect for those that queued
FAILOVER_S = 10
QUEUE_ITEMS = int(os.environ.get("MANGO_TEST_QUEUE_ITEMS", "30000"))  # of case 30; its text says 200,000


def queued(environment, name, n):
    """SQL that queues items of no session, which only a replica's role may: no trigger looks."""
    return (
        "SET session_replication_role = replica; INSERT INTO work (id, workspace_id, environment_id, session_id)"
        f" SELECT 'work_{name}' || i, 'wrkspc_default', '{environment}', 'sesn_{name}' || i FROM generate_series(1, {n}) i;"
    )


def claims(db, client, environment, n):
    """n claims by polls, one after the other."""
    name = os.urandom(4).hex() + "_"
    db.query(queued(environment, name, n))
    for _ in range(n):
        item = client.get(f"/v1/environments/{environment}/work/poll")
        assert item["id"].startswith("work_" + name), item


def index_entries_read(db):
    """By scans of the queue so far. Backends tell once a second: what a short run has read may be missing."""
    return int(db.query("SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'work'")[0][0])


def try_mark(client, session_id):
    """(status, headers, seconds) of one POST of an event."""
    start = now()
    body = json.dumps({"events": [{"type": "user.interrupt"}]})
    status, headers, _ = client.raw("POST", f"/v1/sessions/{session_id}/events", body, {"content-type": "application/json"}, timeout=90)
    return status, headers, now() - start


class Load:
    """Threads that append events until they are told to stop; any failure is kept."""

    def __init__(self, client, sessions):
        self.stop, self.latencies, self.errors = threading.Event(), [], []
        self.threads = [threading.Thread(target=self._run, args=(client, s), daemon=True) for s in sessions]
        for t in self.threads:
            t.start()

    def _run(self, client, session_id):
        while not self.stop.is_set():
            try:
                status, _, took = try_mark(client, session_id)
                if status != 200:
                    raise AssertionError(f"status {status}")
                self.latencies.append(took)
            except BaseException as e:
                self.errors.append(e)
                return

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join()
        if self.errors:
            raise self.errors[0]
        return self.latencies


class Cluster:
    """A PostgreSQL of the test's own, which it may stop."""

    def __init__(self, max_connections=100):
        self.max_connections, self.process = max_connections, None

    def __enter__(self):
        places = [os.environ.get("MANGO_POSTGRES_BIN", "")] + [f"/usr/lib/postgresql/{v}/bin" for v in (17, 16, 15)]
        self.bin = next((p for p in places if p and os.access(f"{p}/initdb", os.X_OK)), None)
        if not self.bin:
            raise unittest.SkipTest("no PostgreSQL server is installed")
        self.dir = tempfile.mkdtemp(prefix="mango-e2e-pg.", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.user = {}
        if os.getuid() == 0:
            who = pwd.getpwnam("postgres")
            os.chown(self.dir, who.pw_uid, who.pw_gid)
            self.user = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
        args = [f"{self.bin}/initdb", "-D", f"{self.dir}/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        subprocess.run(args, check=True, capture_output=True, cwd="/", **self.user)
        self.start()
        self.saved = os.environ.get("MANGO_TEST_DATABASE_URL")
        os.environ["MANGO_TEST_DATABASE_URL"] = f"postgresql:///postgres?host={self.dir}&port=5432&user=postgres"
        return self

    def start(self):
        settings = ["listen_addresses=", f"unix_socket_directories={self.dir}", "fsync=off", f"max_connections={self.max_connections}"]
        args = [f"{self.bin}/postgres", "-D", f"{self.dir}/data"] + [x for s in settings for x in ("-c", s)]
        with open(f"{self.dir}/log", "ab") as log:
            self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **self.user)
        wait_for("the cluster answers", lambda: subprocess.run([f"{self.bin}/pg_isready", "-q", "-h", self.dir], check=False).returncode == 0)

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)  # at once, as a crash
        self.process.wait(30)

    def __exit__(self, *_):
        os.environ["MANGO_TEST_DATABASE_URL"] = self.saved or ""
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


WATCH = """DO $$ DECLARE until timestamptz := clock_timestamp() + interval '4 seconds'; BEGIN
CREATE TABLE seen (query text, notifier bool);
WHILE clock_timestamp() < until LOOP
  PERFORM pg_stat_clear_snapshot();
  INSERT INTO seen SELECT query, query ~ 'pg_notify' FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND wait_event_type = 'Lock' AND wait_event = 'object';
  PERFORM pg_sleep(0.001);
END LOOP; END $$"""


class DatabaseCases(unittest.TestCase):
    def test_case_27_nul_in_any_text_wedges_nothing_and_comes_back_as_it_was(self):
        with FakeModel() as model, Mangod(model_url=model.url) as m:
            sid = m.client.new_session()["id"]
            with m.client.stream(sid) as stream:
                m.client.say(sid, '#fake\ntool bash {"command":"printf \'W\\\\0s\\\\0l\\\\0\'"}\n---\ntext done')
                seen = stream.until("session.status_idle")
            result = next(e for e in seen if e["type"] == "agent.tool_result")
            self.assertFalse(result.get("is_error"))
            stored = next(e for e in m.client.events(sid) if e["type"] == "agent.tool_result")
            self.assertEqual(stored, result)
            text = result["content"][0]["text"]
            self.assertIn("W", text)
            self.assertIn("l", text)
            shown = model.requests()[-1]["body"]["messages"][-1]["content"][0]["content"]
            self.assertEqual(shown if isinstance(shown, str) else shown[0]["text"], text)
            with m.client.stream(sid) as stream:
                try:
                    m.client.say(sid, "a\0b")
                except ApiError as e:
                    self.assertEqual(e.status, 400)
                    self.assertIn("text", e.message)
                else:
                    sent = stream.until("session.status_idle")[0]
                    self.assertEqual(sent["content"][0]["text"], "a\0b")
                    self.assertIn("a\0b", json.dumps(model.requests()[-1]["body"]).replace("\\u0000", "\0"))
            self.assertEqual(model.refused(), 0)
            with self.assertRaises(ApiError) as why:
                m.client.new_session(metadata={"k": "a\0b"})
            self.assertEqual(why.exception.status, 400)
            self.assertIn("metadata", why.exception.message)

    def test_case_28_no_event_transaction_waits_for_the_notification_lock(self):
        with replicas() as (db, nodes):
            sessions = [[n.client.new_session(tools=False)["id"] for _ in range(4)] for n in nodes]
            loads = [Load(n.client, s) for n, s in zip(nodes, sessions)]
            db.query(WATCH)
            done = sum(len(load.end()) for load in loads)
            self.assertGreater(done, 100)
            self.assertEqual(db.query("SELECT query FROM seen WHERE NOT notifier"), [])
            for n in nodes:
                self.assertGreater(metrics(n.client)["mango_wakeups_sent_total"], 0, "the replicas do wake each other")

    def test_case_29_a_frozen_replica_slows_no_commit_of_the_living_one(self):
        with replicas() as (db, [a, b]):
            sid = a.client.new_session(tools=False)["id"]
            reader = SseSocket(b.client, sid, "start")
            listeners = "FROM pg_stat_activity WHERE datname = current_database() AND query ~ 'mango_events'"
            b.process.signal(signal.SIGSTOP)
            try:
                load = Load(a.client, [sid, sid])
                end = now() + 6
                while now() < end:
                    self.assertEqual(db.query(f"SELECT state {listeners} AND xact_start < now() - interval '1 second'"), [])
                latencies = sorted(load.end())
            finally:
                b.process.signal(signal.SIGCONT)
            self.assertLess(latencies[-1], 1.0)
            self.assertLess(metrics(a.client)["mango_notification_queue_usage"], 0.01)
            stored = ids_of(a.client, sid)
            self.assertEqual([reader.next_id() for _ in stored], stored)
            reader.close()

    def test_case_30_claims_stay_quick_while_an_old_transaction_keeps_dead_rows(self):
        with Database() as db, Mangod(database=db, sandbox=None) as m:
            environment = m.client.new_session(environment="self_hosted", tools=False)["environment_id"]
            with Transaction(db, "BEGIN ISOLATION LEVEL REPEATABLE READ") as hold:
                hold.run("SELECT count(*) FROM work")  # its snapshot keeps what dies from now on
                pid = int(hold.run("SELECT pg_backend_pid()")[0])
                # Items that came and went.
                db.query(
                    queued(environment, "x", QUEUE_ITEMS) + "UPDATE work SET polled_at = clock_timestamp() WHERE id LIKE 'work_x%';"
                    "UPDATE work SET state = 'stopped', stopped_at = clock_timestamp(), stop_cause = 'stop' WHERE id LIKE 'work_x%'"
                )
                # The beginning of the queue is looked for beside the polls; from the second look on it is behind what is dead. A claim that
                # walks over the dead rows reads an entry for each of them.
                def stay_quick(n=200):
                    start = index_entries_read(db)
                    claims(db, m.client, environment, n)
                    return index_entries_read(db) - start < n * QUEUE_ITEMS / 3

                wait_for("claims do not read what is dead", stay_quick, timeout=60, every=0.5)
                seen = metrics(m.client)
                self.assertEqual(pid, seen["mango_database_oldest_transaction_pid"])
                self.assertGreater(seen["mango_database_oldest_transaction_seconds"], 0)

    def test_case_31_a_database_that_became_read_only_is_left_and_found_again(self):
        with Mangod() as m:
            sid = m.client.new_session(tools=False)["id"]
            name = m.database.name

            def flip(word):
                sql = f"ALTER DATABASE {name} {word}; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
                m.database._psql(m.database.server, sql)

            flip("SET default_transaction_read_only = on")
            wait_for("/readyz says no", lambda: m.client.raw("GET", "/readyz")[0] == 503, 10)
            for _ in range(8):
                status, headers, _ = try_mark(m.client, sid)
                self.assertEqual(status, 503)
                self.assertIn("retry-after", headers)
            before = ids_of_rows(m.database, sid)
            flip("RESET default_transaction_read_only")
            wait_for("writes work again", lambda: try_mark(m.client, sid)[0] == 200, FAILOVER_S)
            wait_for("/readyz says yes", lambda: http_ok(m.client), FAILOVER_S)
            self.assertEqual(ids_of_rows(m.database, sid), before + 1)

    def test_case_33_a_deaf_database_ends_each_request_in_bounded_time(self):
        proxies = []
        with replicas(behind(proxies)) as (_, [m]), proxies[0] as proxy:
            sids = [m.client.new_session(tools=False)["id"] for _ in range(8)]
            for sid in sids:
                mark(m.client, sid)
            proxy.deaf()
            answers = []
            threads = [threading.Thread(target=lambda s=s: answers.append(try_mark(m.client, s))) for s in sids]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual([a[0] for a in answers], [503] * len(sids))
            self.assertLess(max(a[2] for a in answers), STATEMENT_BOUND_S)
            self.assertTrue(all("retry-after" in a[1] for a in answers))
            self.assertEqual(m.client.raw("GET", "/healthz")[0], 200)
            proxy.hear()
            for sid in sids:
                wait_for("work resumes without a restart", lambda s=sid: try_mark(m.client, s)[0] == 200, FAILOVER_S)

    def test_case_34_restarts_of_the_database_storm_nothing(self):
        with Cluster(max_connections=40) as cluster, replicas(env=SMALL_POOL) as (db, nodes):
            sid = nodes[0].client.new_session(tools=False)["id"]
            streams = [SseSocket(n.client, sid, "start", timeout=120) for n in nodes for _ in range(10)]
            peak = 0
            for _ in range(3):
                cluster.stop()
                for n in nodes:
                    status, headers, took = try_mark(n.client, sid)
                    self.assertEqual(status, 503)
                    self.assertIn("retry-after", headers)
                    self.assertLess(took, 10)
                cluster.start()
                for _ in range(20):
                    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mangod'"
                    peak = max(peak, int(db.query(count)[0][0]))
            back = now()
            for n in nodes:
                wait_for("writes work again", lambda n=n: try_mark(n.client, sid)[0] == 200, 15)
            self.assertLess(now() - back, 15)
            stored = ids_of(nodes[0].client, sid)
            for s in streams:
                self.assertEqual([s.next_id() for _ in stored], stored)
                s.close()
            self.assertLess(now() - back, 15)
            self.assertLessEqual(peak, 2 * POOL_MAX)


def ids_of_rows(db, session_id):
    return int(db.query(f"SELECT count(*) FROM events WHERE session_id = '{session_id}'")[0][0])


class StateFolder(unittest.TestCase):
    def refused(self, m, path, status, *words):
        m.extra["MANGO_STATE_DIR"] = path
        m.start(wait=False)
        self.assertEqual(m.process.wait(), status, m.log())
        lines = [line for line in m.log().split("\n") if line.startswith("mangod: ")]
        self.assertEqual(len(lines), 1, m.log())
        for word in words:
            self.assertIn(word, lines[0])
        m.process.end()
        os.remove(m.process.log_path)

    def test_case_97_a_folder_that_is_not_safe_is_refused_with_one_line(self):
        with Mangod(database=None, start=False) as m:
            real, link, open_, foreign = (os.path.join(m.dir, n) for n in ("real", "link", "open", "foreign"))
            os.mkdir(real, 0o700)
            os.symlink(real, link)
            self.refused(m, link, EXIT_CONFIG, link)
            os.mkdir(open_)
            os.chmod(open_, 0o777)
            self.refused(m, os.path.join(open_, "state"), EXIT_CONFIG, open_)
            if os.getuid() == 0:
                os.mkdir(foreign, 0o700)
                os.chown(foreign, 65534, 65534)
                self.refused(m, foreign, EXIT_CONFIG, foreign)
            with open(os.path.join(m.dir, "precious"), "w", encoding="ascii") as f:
                f.write("text")
            os.symlink(f.name, os.path.join(real, "mangod.pid"))
            self.refused(m, real, EXIT_CONFIG, real)
            self.assertEqual(os.path.getsize(f.name), 4, "the pid file's target was truncated")

    def test_case_97_one_server_a_folder_and_a_killed_ones_folder_is_taken_over(self):
        with Mangod(database=None) as m, Mangod(database=None, start=False) as second:
            sid = m.client.new_session(tools=False)["id"]
            self.refused(second, os.path.join(m.dir, "state"), EXIT_IN_USE, os.path.join(m.dir, "state"))
            m.kill()
            m.process.end()
            m.start()  # over the stale pid file and socket, and the database that may still run
            self.assertEqual(m.client.get(f"/v1/sessions/{sid}")["status"], "idle")
            self.assertEqual(m.stop(), 0)

    def test_case_97_a_folder_name_with_spaces(self):
        with Mangod(database=None, start=False) as m:
            m.extra["MANGO_STATE_DIR"] = os.path.join(m.dir, "a state's folder")
            m.start()
            m.client.new_session(tools=False)
            self.assertEqual(m.stop(), 0)


class Upgrade(unittest.TestCase):
    def test_case_100_a_stopped_servers_turns_and_gates_go_on(self):
        with Mangod() as m:
            busy, gated = m.client.new_session()["id"], self.gated_session(m.client)
            m.client.say(busy, f"run: cd {m.dir}; {GATE}; echo whole")
            m.client.say(gated, "run: echo later")
            gate = wait_for("the gate is open", lambda: next((e for e in m.client.events(gated) if e["type"] == "agent.tool_use"), None))
            wait_for("the command runs", lambda: os.path.exists(os.path.join(m.dir, "begun")))
            self.assertEqual(stop_while_it_waits(m, m.dir), 0)
            m.restart()
            events = wait_for("the turn ends", lambda: self.ended(m.client, busy))
            self.assertEqual([e["content"][0]["text"].strip() for e in events if e["type"] == "agent.tool_result"], ["whole"])
            confirm = {"type": "user.tool_confirmation", "tool_use_id": gate["id"], "result": "allow"}
            m.client.post(f"/v1/sessions/{gated}/events", {"events": [confirm]})
            events = wait_for("the gated turn ends", lambda: self.ended(m.client, gated))
            self.assertEqual([e["content"][0]["text"].strip() for e in events if e["type"] == "agent.tool_result"], ["later"])

    @staticmethod
    def ended(client, sid):
        events = client.events(sid)
        last = events[-1]
        return events if last["type"] == "session.status_idle" and last["stop_reason"]["type"] == "end_turn" else None

    @staticmethod
    def gated_session(client):
        tools = [{"type": "agent_toolset_20260401", "default_config": {"permission_policy": {"type": "always_ask"}}}]
        agent = client.post("/v1/agents", {"name": "gated", "model": "mango-test", "tools": tools})["id"]
        environment = client.post("/v1/environments", {"name": f"gated-{time.monotonic_ns()}", "config": {"type": "cloud"}})["id"]
        return client.post("/v1/sessions", {"agent": agent, "environment_id": environment})["id"]

    def test_case_100_a_newer_database_is_refused_with_both_versions(self):
        with Mangod() as m:
            self.assertEqual(m.stop(), 0)
            own = m.database.query("SELECT max(version) FROM schema_migrations")[0][0]
            m.database.query("INSERT INTO schema_migrations (version, name, sha256) VALUES (987, 'later', repeat('0', 64))")
            m.process.end()
            m.start(wait=False)
            self.assertEqual(m.process.wait(), EXIT_CONFIG)
            line = m.log().strip().split("\n")[-1]
            self.assertIn("987", line)
            self.assertIn(f"version {own}", line)

    def test_case_100_a_migration_killed_half_way_leaves_the_old_state(self):
        with Database() as db, Mangod(database=db, hooks="migrate.before_commit=kill:1", start=False) as m:
            m.start(wait=False)
            self.assertEqual(m.process.wait(), -signal.SIGKILL)
            self.assertEqual(db.query("SELECT 1 FROM pg_tables WHERE schemaname = 'public' AND tablename = 'sessions'"), [])
            m.process.end()
            m.hooks = None
            m.start()
            m.client.new_session(tools=False)


if __name__ == "__main__":
    main()
