#!/usr/bin/env python3
"""The command line `mango` against real servers: conversations, following a session over restarts, keys, doctor."""
import json
import os
import signal
import subprocess
import threading
import unittest

from harness import BUILD, Database, FakeModel, Mangod, main, wait_for
from turns import NEVER

MANGO = os.path.join(BUILD, "mango")
RUN_S = 60


class Cli:
    """Runs mango with a server's own environment."""

    def __init__(self, server, **env):
        self.env = server.environment()
        self.env["MANGO_BASE_URL"] = f"http://127.0.0.1:{server.port}"
        self.env.update(env)

    def __call__(self, *args, stdin=None, status=0, timeout=RUN_S, before=()):
        done = subprocess.run([*before, MANGO, *args], env=self.env, input=stdin, capture_output=True, text=True, timeout=timeout)
        if status is not None and done.returncode != status:
            raise AssertionError(f"mango {args}: status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}")
        return done

    def lines(self, *args, **more):
        return [json.loads(line) for line in self(*args, **more).stdout.splitlines()]

    def start(self, *args):
        return subprocess.Popen([MANGO, *args], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Reader:
    """Collects the JSON lines of a running mango."""

    def __init__(self, process):
        self.process, self.events = process, []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def ids(self):
        return [e["id"] for e in self.events]

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)
        self.thread.join(20)
        self.process.stdout.close()
        errors = self.process.stderr.read()
        self.process.stderr.close()
        return errors


class Conversations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Mangod()
        cls.server.__enter__()
        cls.addClassCleanup(cls.close)
        cls.cli = Cli(cls.server)

    @classmethod
    def close(cls):
        ended = None if cls.server.process.running() else cls.server.process.popen.returncode
        cls.server.__exit__(AssertionError if ended is not None else None, None, None)
        assert ended is None, f"mangod ended with status {ended}"

    def test_run_prints_json_lines_and_ends_with_the_turn(self):
        events = self.cli.lines("run", "list the files here and count them")
        types = [e["type"] for e in events]
        self.assertEqual(types[0], "user.message")
        self.assertEqual(types[-1], "session.status_idle")
        self.assertIn("agent.tool_use", types)
        self.assertIn("agent.tool_result", types)
        self.assertEqual(len(types), len({e["id"] for e in events}))

    def test_run_prints_text_for_people(self):
        out = self.cli("run", "--format", "text", "run: echo from-the-tool").stdout
        self.assertIn("> bash  echo from-the-tool", out)
        self.assertIn("  | from-the-tool", out)
        self.assertIn("idle  end_turn", out)

    def test_run_puts_away_what_it_made(self):
        def listed():
            return [{o["id"] for o in self.cli.lines(kind, "list", "--limit", "1000")} for kind in ("agent", "environment", "session")]

        before = listed()
        self.cli("run", "hello")
        self.assertEqual(listed(), before)

    def test_run_keeps_and_goes_on(self):
        done = self.cli("run", "--keep", "run: cd /tmp; export word=mango")
        session = done.stderr.split("--session ")[1].split()[0]
        events = self.cli.lines("run", "--session", session, "run: echo $word in $PWD")
        self.assertEqual(events[0]["type"], "user.message")
        result = next(e for e in events if e["type"] == "agent.tool_result")
        self.assertEqual(result["content"][0]["text"], "mango in /tmp")
        self.cli("session", "delete", session)
        self.cli("session", "show", session, status=1)

    def test_run_reads_standard_input(self):
        events = self.cli.lines("run", "-", stdin="run: echo piped")
        self.assertEqual(events[0]["content"][0]["text"], "run: echo piped")
        self.cli("run", "-", stdin="  \n", status=2)

    def test_interrupt_ends_the_turn_with_status_4(self):
        process = self.cli.start("run", f"run: {NEVER}")
        reader = Reader(process)
        wait_for("the tool runs", lambda: any(e["type"] == "agent.tool_use" for e in reader.events))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 4)
        reader.thread.join(10)
        self.assertEqual(reader.events[-1]["type"], "session.status_idle")
        process.stdout.close()
        process.stderr.close()

    def test_requires_action_ends_with_status_3_and_keeps_the_session(self):
        agent = self.server.client.post(
            "/v1/agents",
            {
                "name": "careful",
                "model": "mango-offline",
                "tools": [{"type": "agent_toolset_20260401", "default_config": {"permission_policy": {"type": "always_ask"}}}],
            },
        )
        done = self.cli("run", "--agent", agent["id"], "run: echo x", status=3)
        self.assertIn("kept session", done.stderr)
        self.assertIn("requires_action", done.stdout)
        session = done.stderr.split("--session ")[1].split()[0]
        self.cli("session", "interrupt", session)
        wait_for("it is idle", lambda: self.cli.lines("session", "show", session)[0]["status"] == "idle")
        self.cli("session", "delete", session)

    def test_session_commands(self):
        session = self.server.client.new_session()["id"]
        sent = self.cli.lines("session", "send", session, "hello")[0]["id"]
        wait_for("the answer", lambda: "session.status_idle" in [e["type"] for e in self.cli.lines("session", "events", session)])
        events = self.cli.lines("session", "events", session, "--limit", "1000")
        self.assertEqual(events[0]["id"], sent)
        newest = self.cli.lines("session", "events", session, "--newest", "--limit", "1")
        self.assertEqual(newest, [events[-1]])
        self.assertIn(session, self.cli("session", "list", "--format", "text").stdout)
        self.assertEqual(self.cli.lines("session", "archive", session)[0]["id"], session)

    def test_pages_are_walked(self):
        for i in range(120):
            self.server.client.post("/v1/environments", {"name": f"many {i}"})
        self.assertEqual(len(self.cli.lines("environment", "list", "--limit", "110")), 110)
        for e in self.cli.lines("environment", "list", "--limit", "1000"):
            self.server.client.delete(f"/v1/environments/{e['id']}")

    def test_proxies_of_the_environment_are_not_used(self):
        away = "http://127.0.0.1:1"
        Cli(self.server, http_proxy=away, https_proxy=away)("run", "hello")

    def test_text_of_others_cannot_drive_the_terminal(self):
        out = self.cli("run", "--format", "text", "say \x1b[31mred\x1b]0;title\x07").stdout
        self.assertNotIn("\x1b", out)
        self.assertNotIn("\x07", out)

    def test_failures_have_their_status_and_say_what_to_do(self):
        self.assertIn("does not exist", self.cli("session", "show", "sesn_nope", status=1).stderr)
        self.assertIn("does not exist", self.cli("session", "stream", "sesn_nope", "--after", "start", status=1).stderr)
        self.assertIn("refuses the API key", Cli(self.server, MANGO_API_KEY="wrong")("session", "stream", "sesn_x", "--after", "start", status=1).stderr)
        self.assertIn("invalid API key", Cli(self.server, MANGO_API_KEY="wrong")("agent", "list", status=1).stderr)
        away = Cli(self.server, MANGO_BASE_URL="http://127.0.0.1:1")
        self.assertIn("Is mangod running there?", away("run", "x", status=1).stderr)
        self.assertIn("MANGO_API_KEY", Cli(self.server, MANGO_API_KEY="")("agent", "list", status=1).stderr)
        for args in (["run"], ["run", "a", "b"], ["run", "--nope", "a"], ["session"], ["nope"], ["session", "show", "a/b"], ["run", "--session", "s", "--agent", "a", "x"]):
            self.cli(*args, status=2)

    def test_each_command_has_help(self):
        overview = self.cli("--help").stdout
        for line in overview.splitlines():
            words = line.split("  ")[1].split() if line.startswith("  ") else []
            words = [w for w in words if w.islower() and not w.startswith("[")]
            if words:
                self.assertIn("Usage: mango " + " ".join(words), self.cli(*words, "--help").stdout)


class Streaming(unittest.TestCase):
    def test_a_stream_resumes_after_a_killed_server_without_loss_or_repeat(self):
        with Mangod(env={"MANGO_NODE_TTL": "2s"}) as m:
            cli = Cli(m)
            session = m.client.new_session()["id"]
            reader = Reader(cli.start("session", "stream", session, "--after", "start"))
            for round_number in range(3):
                cli("session", "send", session, f"run: echo round {round_number}")
                wait_for("the turn", lambda: m.client.events(session)[-1]["type"] == "session.status_idle", timeout=40)
                wait_for("the stream has begun", lambda: reader.events)  # a server that was never there is an error, not a loss
                m.kill() if round_number < 2 else m.stop()
                m.restart()
            cli("session", "send", session, "hello")
            wait_for("the last turn", lambda: m.client.events(session)[-1]["type"] == "session.status_idle", timeout=40)
            stored = [e["id"] for e in m.client.events(session)]
            wait_for("the stream has all", lambda: len(reader.events) >= len(stored))
            errors = reader.end()
            self.assertEqual(reader.process.returncode, 4)
            self.assertEqual(reader.ids(), stored)
            self.assertIn("tries again in", errors)

    def test_a_cursor_gives_what_comes_behind_it(self):
        with Mangod() as m:
            cli = Cli(m)
            session = m.client.new_session()["id"]
            cli("session", "send", session, "hello")
            wait_for("the turn", lambda: (m.client.events(session) or [{"type": ""}])[-1]["type"] == "session.status_idle")
            stored = [e["id"] for e in m.client.events(session)]
            for after, want in (("start", stored), (stored[2], stored[3:])):
                reader = Reader(cli.start("session", "stream", session, "--after", after))
                wait_for("history", lambda: len(reader.events) >= len(want))
                reader.end()
                self.assertEqual(reader.ids(), want)
            reader = Reader(cli.start("session", "stream", session, "--after", stored[-2]))
            wait_for("it is connected", lambda: reader.events)
            cli("session", "delete", session)
            self.assertEqual(reader.process.wait(20), 0)
            reader.thread.join(10)
            reader.process.stdout.close()
            reader.process.stderr.close()

    def test_many_events_need_credit_again(self):
        with Mangod() as m:
            cli = Cli(m)
            session = m.client.new_session()["id"]
            for _ in range(12):
                m.client.post(
                    f"/v1/sessions/{session}/events",
                    {"events": [{"type": "user.message", "content": [{"type": "text", "text": "hello"}]}] * 100},
                )
            wait_for("all are processed", lambda: m.client.get(f"/v1/sessions/{session}")["status"] == "idle", timeout=60)
            stored = [e["id"] for e in m.client.events(session)]
            self.assertGreater(len(stored), 1200)
            reader = Reader(cli.start("session", "stream", session, "--after", "start"))
            wait_for("all events", lambda: len(reader.events) >= len(stored), timeout=60)
            reader.end()
            self.assertEqual(reader.ids(), stored)


class Administration(unittest.TestCase):
    def test_keys_on_the_database_of_a_running_server(self):
        with Mangod() as m:
            cli = Cli(m)
            made = cli.lines("api-key", "create", "laptop")[0]
            cli_with = Cli(m, MANGO_API_KEY=made["key"])
            self.assertEqual(cli_with.lines("agent", "list"), [])
            listed = next(k for k in cli.lines("api-key", "list") if k["id"] == made["id"])
            self.assertEqual((listed["name"], listed["hint"], listed["revoked_at"]), ("laptop", made["key"][-4:], None))
            self.assertNotIn(made["key"], json.dumps(cli.lines("api-key", "list")))
            cli("api-key", "revoke", made["id"])
            wait_for("the key is refused", lambda: cli_with("agent", "list", status=None).returncode == 1, timeout=5)
            cli("api-key", "revoke", "key_nope", status=1)

    def test_the_first_key_is_made_before_the_first_start(self):
        m = Mangod(database=None, env={"MANGO_API_KEY": None}, start=False)
        with m:
            cli = Cli(m)
            key = cli("api-key", "create", "--format", "text").stdout.strip()
            self.assertTrue(key.startswith("mango_"))
            m.client.key = key
            m.start()
            self.assertEqual(m.client.get("/v1/agents")["data"], [])
            # The private database of the running server is found.
            self.assertEqual(len(cli.lines("api-key", "list")), 1)
            self.assertEqual(cli.lines("migrate", "--check")[0]["now"], cli.lines("migrate", "--check")[0]["newest"])

    def test_doctor_is_content_with_a_running_server(self):
        with Mangod() as m:
            found = {f["check"]: f for f in Cli(m).lines("doctor")}
            for check in ("database", "schema", "write", "keys", "clock", "plugins", "model", "loop", "git", "server"):
                self.assertEqual(found[check]["status"], "ok", found[check])
            self.assertEqual(found["sandbox"]["status"], "warn")
            self.assertIn("no isolation boundary", found["sandbox"]["text"])

    def test_doctor_says_that_repositories_need_git(self):
        with Mangod() as m:
            hide = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount --bind /dev/null "$(command -v git)" && exec "$@"', "sh"]
            found = {f["check"]: f for f in Cli(m).lines("doctor", before=hide)}
            self.assertEqual("warn", found["git"]["status"])
            self.assertIn("cannot fetch repositories: it needs git 2.37 or newer", found["git"]["text"])
            self.assertIn("apt-get install git", found["git"]["fix"])

    def doctor_model(self, model, scripts, status=0, **env):
        with Mangod(model_url=model.url, env=env) as m:
            model.client.post("/script", {"responses": ['body application/json {"data":[{"id":"some-model"}]}', *scripts]})
            return {f["check"]: f for f in Cli(m).lines("doctor", "--model", status=status)}

    def test_doctor_model_asks_the_endpoint_for_what_turns_need(self):
        with FakeModel("--window", 200000, "--key", "test-key-of-the-model") as model:
            call = 'text I look.\ntool lookup {"key":"harbour"}'
            found = self.doctor_model(model, ["text one two three four five six seven eight nine ten eleven", call], MANGO_MODEL_WINDOW="150000")
            for check in ("model", "window", "stream", "usage", "tools", "cache", "errors", "key"):
                self.assertEqual(found[check]["status"], "ok", found[check])
            self.assertIn("some-model is taken to have a window of 150000", found["window"]["text"])
            bodies = [r["body"] for r in model.requests() if r["method"] == "POST" and r["path"] == "/v1/messages"]
            self.assertEqual(bodies[2]["messages"][-1]["content"][0]["type"], "tool_result")

    def test_doctor_model_names_what_an_endpoint_lacks(self):
        with FakeModel() as model:
            scripts = ["chunk 1000\nusage 0 0\ntext all at once", "text I do not call tools", "text yes", "text yes", "text fine", "text hello"]
            found = self.doctor_model(model, scripts, status=1)
            for check, finding in {"stream": "warn", "usage": "warn", "tools": "bad", "cache": "warn", "errors": "warn", "key": "warn"}.items():
                self.assertEqual(found[check]["status"], finding, found[check])
                self.assertTrue(found[check]["fix"])
            found = self.doctor_model(model, ["status 529 full"] * 8, status=1)
            self.assertEqual([found[c]["status"] for c in ("stream", "tools", "cache")], ["bad"] * 3)

    def test_doctor_names_each_fault_and_its_cure(self):
        with Mangod() as m:
            cases = [
                ({"MANGO_DATABASE_URL": "postgresql://127.0.0.1:1/x"}, "database", "MANGO_DATABASE_URL"),
                ({"MANGO_SANDBOX": "nope"}, "sandbox", "docs/"),
                ({"MANGO_PLUGIN_DIR": "/nonexistent"}, "plugins", "MANGO_PLUGIN_DIR"),
                ({"MANGO_MODEL_BASE_URL": "http://127.0.0.1:1"}, "model", "MANGO_MODEL_BASE_URL"),
                ({"MANGO_MODEL_BASE_URL": "http://127.0.0.1:1"}, "sandbox", "MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX"),
                ({"MANGO_STATE_DIR": "/etc/passwd"}, "state", "MANGO_STATE_DIR"),
            ]
            for env, check, cure in cases:
                found = {f["check"]: f for f in Cli(m, **env).lines("doctor", status=1)}
                self.assertEqual(found[check]["status"], "bad", found[check])
                self.assertIn(cure, found[check]["fix"])
            away = {f["check"]: f for f in Cli(m, MANGO_BASE_URL="http://127.0.0.1:1").lines("doctor")}
            self.assertEqual(away["server"]["status"], "warn")

    def test_doctor_sees_a_read_only_and_an_empty_database(self):
        with Database() as db, Mangod(database=db, start=False) as m:
            found = {f["check"]: f for f in Cli(m).lines("doctor")}
            self.assertEqual(found["schema"]["status"], "warn")
            self.assertIn("mango migrate", found["schema"]["fix"])
            self.assertEqual(Cli(m)("migrate", "--check", status=1).returncode, 1)
            Cli(m)("migrate")
            found = {f["check"]: f for f in Cli(m).lines("doctor", status=1)}
            self.assertEqual(found["keys"]["status"], "bad")
            self.assertIn("mango api-key create", found["keys"]["fix"])
            Cli(m)("api-key", "create")
            db.query(f"ALTER DATABASE {db.name} SET default_transaction_read_only = on")
            found = {f["check"]: f for f in Cli(m).lines("doctor", status=1)}
            bad = [f for f in found.values() if f["status"] == "bad"]
            self.assertEqual([f["check"] for f in bad], ["write"] if "write" in found else ["database"])

    def test_conformance_prints_tap(self):
        with Mangod(start=False) as m:
            out = Cli(m)("conformance", "local", "--only", "health").stdout
            self.assertIn("TAP version 13", out)
            self.assertIn("\nok ", out)
            self.assertIn("Bail out!", Cli(m)("conformance", "nope", status=1).stdout)

    def test_plugins_are_listed_without_loading_them(self):
        with Mangod() as m:
            cli = Cli(m)
            local = next(p for p in cli.lines("plugin", "list") if p.get("name") == "local")
            self.assertTrue(local["ok"])
            self.assertEqual(cli.lines("plugin", "info", local["path"])[0]["abi"], local["abi"])
            broken = os.path.join(m.dir, "broken.so")
            with open(broken, "w", encoding="ascii") as f:
                f.write("no object file")
            self.assertIn("ELF", cli("plugin", "info", broken, status=1).stderr)
            self.assertIn("/bin/ls", cli("plugin", "info", "/bin/ls", status=1).stderr)


if __name__ == "__main__":
    main()
