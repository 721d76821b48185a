"""Field cases of ownership: who may write, what a stop stops, what a command may see."""
import json
import os
import random
import re
import secrets
import subprocess
import threading
import time
import unittest
from datetime import datetime, timezone

from api import ApiError
from harness import FakeModel, Mangod, Transaction, main, wait_for
from rig import FakeClock, behind, http_ok, metrics, needs_fake_clocks, now, processes, replicas
from turns import NEVER, of, shown

ACCEPT_S = 1.0  # any stop is accepted within that time


def ended(client, sid, turns=1):
    """The events once so many turns have ended; an interrupt of an idle session may follow the last."""
    events = client.events(sid)
    idle = [e for e in of(events, "session.status_idle") if e["stop_reason"]["type"] == "end_turn"]
    return events if len(idle) >= turns else None


def lines(path):
    try:
        with open(path, encoding="ascii") as f:
            return f.read().split("\n")[:-1]
    except FileNotFoundError:
        return []


class Ownership(unittest.TestCase):
    def test_a_lease_that_is_given_up_while_the_database_extends_it_leaves_no_turn_behind(self):
        with Mangod(env={"MANGO_NODE_TTL": "6s"}) as m:
            sid = m.client.new_session()["id"]
            path = os.path.join(m.dir, "ticks")
            m.client.say(sid, f"run: while :; do date +%s.%N >> {path}; sleep 0.1; done")
            wait_for("the command writes", lambda: len(lines(path)) > 2)
            with Transaction(m.database) as hold:
                hold.run("SELECT id FROM nodes FOR UPDATE")
                wait_for("the node gives its lease up", lambda: "all turns of this node are stopped" in m.log(), 20, 0.005)
                hold.run("ROLLBACK")
            events = wait_for("the turn is taken over and ends", lambda: ended(m.client, sid), 60)
            self.assertIn("was interrupted while this call was running", shown(of(events, "agent.tool_result")[0]))

    def test_case_36_a_node_cut_from_the_database_stops_before_another_takes_over(self):
        proxies = []
        with replicas(behind(proxies), lambda _: {}, binary="mangod-test") as (db, [a, b]), proxies[0] as proxy:
            for n in (a, b):
                n.extra["MANGO_NODE_TTL"] = "3s"
                n.restart()
            sid = a.client.new_session()["id"]
            path = os.path.join(a.dir, "ticks")
            a.client.say(sid, f"run: while :; do date +%s.%N >> {path}; sleep 0.1; done")
            wait_for("the command writes", lambda: len(lines(path)) > 2)
            proxy.deaf()
            events = wait_for("the other node ends the turn", lambda: ended(b.client, sid), 40)
            taken = re.search(r"(\S+)Z INFO turn taken over", b.log()).group(1)
            taken = datetime.fromisoformat(taken).replace(tzinfo=timezone.utc).timestamp()
            self.assertLess(float(lines(path)[-1]), taken, "the command outlived the lease")
            self.assertEqual(db.query(f"SELECT count(*) FROM session_state WHERE session_id = '{sid}' AND turn_node IS NULL"), [["1"]])
            proxy.hear()
            probes = [threading.Thread(target=a.client.raw, args=("GET", "/readyz")) for _ in range(8)]
            for p in probes:  # each thread of the server learns by a statement's deadline that its connection is dead
                p.start()
            for p in probes:
                p.join()
            wait_for("the cut node is back", lambda: http_ok(a.client), 10)
            wait_for("it has no turn of its own", lambda: metrics(a.client)["mango_turns_running"] == 0, 20)
            self.assertEqual(a.client.events(sid), events, "nothing was written late")
            self.assertEqual(len(of(events, "agent.tool_result")), 1)
            self.assertTrue(of(events, "agent.tool_result")[0]["is_error"])

    def test_case_37_a_silent_tool_of_three_leases_starts_once_on_a_loaded_machine(self):
        with replicas(env={"MANGO_NODE_TTL": "2s"}) as (_, [a, b]):
            sid = a.client.new_session()["id"]
            path = os.path.join(a.dir, "starts")
            load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count())]
            try:
                a.client.say(sid, f"run: echo start >> {path}; sleep 6; echo done")
                events = wait_for("the turn ends", lambda: ended(b.client, sid), 40)
            finally:
                for p in load:
                    p.kill()
                    p.wait()
            self.assertEqual([shown(e).strip() for e in of(events, "agent.tool_result")], ["done"])
            self.assertEqual(lines(path), ["start"])
            self.assertEqual([metrics(n.client)["mango_turn_takeovers_total"] for n in (a, b)], [0, 0])

    @needs_fake_clocks
    def test_case_35_host_clocks_that_differ_and_jump_decide_nothing(self):
        def skewed(offset):
            def own(_):
                clocks.append(FakeClock(self, offset))
                return {"env": {"MANGO_NODE_TTL": "2s", **clocks[-1].env}}

            return own

        clocks = []
        with replicas(skewed("-1h"), skewed("+0"), skewed("+1h")) as (db, nodes):
            sids = [n.client.new_session()["id"] for n in nodes for _ in range(2)]
            for sid, n in zip(sids, [n for n in nodes for _ in range(2)]):
                n.client.say(sid, f"run: echo {sid} >> {nodes[0].dir}/starts; sleep 5; echo done")
            clocks[2].set("+70m")
            seen = {sid: [] for sid in sids}

            def finished():
                for sid, epoch in db.query("SELECT session_id, turn_epoch FROM session_state"):
                    seen[sid].append(int(epoch))
                return all(ended(nodes[1].client, sid) for sid in sids)

            wait_for("all turns end", finished, 40, 0.2)
            self.assertEqual([metrics(n.client)["mango_turn_takeovers_total"] for n in nodes], [0, 0, 0], "no takeover before the database's deadline")
            self.assertEqual(sorted(lines(f"{nodes[0].dir}/starts")), sorted(sids))
            nodes[0].client.say(sids[0], f"run: touch {nodes[0].dir}/runs; {NEVER}")
            wait_for("the call runs", lambda: os.path.exists(f"{nodes[0].dir}/runs"))
            nodes[0].kill()
            wait_for("a living node takes over", lambda: finished() and ended(nodes[2].client, sids[0], 2), 40, 0.2)
            for epochs in seen.values():
                self.assertEqual(epochs, sorted(epochs), "an epoch went back")


class Stops(unittest.TestCase):
    """States x stops: all sessions are brought into their state, stopped, watched, and looked at again after a restart."""

    STATES = ("tool", "other", "backoff", "gate")
    STOPS = ("interrupt", "delete", "archive")

    def file(self, state, stop):
        return os.path.join(self.nodes[0].dir, f"{state}-{stop}")

    def enter(self, state, stop):
        client, path = self.nodes[0].client, self.file(state, stop)
        policy = {"default_config": {"permission_policy": {"type": "always_ask"}}} if state == "gate" else {}
        agent = client.post("/v1/agents", {"name": "x", "model": "m", "tools": [{"type": "agent_toolset_20260401", **policy}]})["id"]
        environment = client.post("/v1/environments", {"name": f"{state}-{stop}-{time.monotonic_ns()}", "config": {"type": "cloud"}})["id"]
        sid = client.post("/v1/sessions", {"agent": agent, "environment_id": environment})["id"]
        if state == "backoff":
            client.say(sid, f"#fake\nheader retry-after: 3\nstatus 529 {sid}")
        else:
            command = f"trap '' INT TERM HUP QUIT; while :; do echo x >> {path}; sleep 0.05; done"
            client.say(sid, "#fake\ntool bash " + json.dumps({"command": command}) + "\n---\ntext never")
        return sid

    def reached(self, state, stop, sid):
        if state == "backoff":
            return of(self.nodes[0].client.events(sid), "session.status_rescheduled")
        if state == "gate":
            return of(self.nodes[0].client.events(sid), "session.status_idle")
        return len(lines(self.file(state, stop))) > 2

    def timed(self, what, call):
        start = now()
        try:
            return call()
        finally:
            self.assertLess(now() - start, ACCEPT_S, what)

    def stop(self, state, stop, sid):
        client = self.nodes[1 if state == "other" else 0].client
        base = f"/v1/sessions/{sid}"
        if stop != "interrupt" and state != "gate":
            with self.assertRaises(ApiError) as why:  # the contract: a running session is interrupted first
                self.timed("the refusal", lambda: client.delete(base) if stop == "delete" else client.post(base + "/archive"))
            self.assertEqual(why.exception.status, 409)
            self.assertIn("interrupt", why.exception.message)
        if stop == "interrupt" or state != "gate":
            self.timed(f"interrupt in {state}", lambda: client.post(base + "/events", {"events": [{"type": "user.interrupt"}]}))
        if stop == "delete":
            self.timed(f"delete in {state}", lambda: client.delete(base))
        elif stop == "archive":
            self.timed(f"archive in {state}", lambda: client.post(base + "/archive"))

    def outcome(self, stop, sid):
        """What a client sees of the session; fails where the stop did not hold."""
        client = self.nodes[1].client
        if stop == "delete":
            self.assertEqual(client.raw("GET", f"/v1/sessions/{sid}")[0], 404)
            return None
        session, events = client.get(f"/v1/sessions/{sid}"), client.events(sid)
        self.assertEqual(session["status"], "terminated" if stop == "archive" else "idle", json.dumps(events[-6:]))
        uses = [e["id"] for e in of(events, "agent.tool_use")]
        if stop == "interrupt":
            self.assertEqual([e["tool_use_id"] for e in events if e["type"].endswith("tool_result")], uses)
        return [e["id"] for e in events]

    def snapshot(self, sids):
        texts = [json.dumps(r["body"]) for r in self.model.requests()]
        sizes = {key: len(lines(self.file(*key))) for key in sids}
        return {key: (self.outcome(key[1], sid), sizes[key], sum(sid in t for t in texts)) for key, sid in sids.items()}

    def test_case_99_each_stop_in_each_state_is_quick_and_final(self):
        with FakeModel() as self.model, replicas(model_url=self.model.url, env={"MANGO_NODE_TTL": "3s"}) as (_, self.nodes):
            keys = [(state, stop) for state in self.STATES for stop in self.STOPS]
            sids = {key: self.enter(*key) for key in keys}
            for key in keys:
                wait_for(f"{key} is reached", lambda k=key: self.reached(*k, sids[k]))
                self.stop(*key, sids[key])
            marks = [self.file(*key) for key in keys]
            wait_for("no process of a command is left", lambda: not any(m in processes() for m in marks), 10)
            first = self.snapshot(sids)
            time.sleep(4)  # not an assertion: the back-off of 3 s, in which a late retry would show itself
            self.assertEqual(self.snapshot(sids), first, "something ran or wrote after the stop")
            for n in self.nodes:
                n.restart()
            self.assertEqual(self.snapshot(sids), first, "a restart brought something back")
            self.assertEqual(self.model.refused(), 0)
            for key, sid in sids.items():
                if key[1] == "interrupt":
                    self.nodes[1].client.say(sid, "hello")
                    wait_for(f"{key} goes on", lambda s=sid: of(self.nodes[1].client.events(s), "agent.message"))

    def test_case_68_each_call_has_one_result_whenever_the_interrupt_comes(self):
        with FakeModel() as model, Mangod(model_url=model.url) as m:
            errors = []

            def worker(seed):
                rng = random.Random(seed)
                sid = m.client.new_session()["id"]
                try:
                    for turn in range(1, 9):
                        m.client.say(sid, '#fake\ntool bash {"command":"sleep 0.1; echo done"}\ntool bash {"command":"echo two"}\n---\ntext ok')
                        time.sleep(rng.uniform(0.0, 0.4))
                        m.client.post(f"/v1/sessions/{sid}/events", {"events": [{"type": "user.interrupt"}]})
                        events = wait_for("the turn ends", lambda t=turn: ended(m.client, sid, t))
                        uses = [e["id"] for e in of(events, "agent.tool_use")]
                        results = [e["tool_use_id"] for e in events if e["type"].endswith("tool_result")]
                        self.assertEqual(sorted(results), sorted(uses))
                except BaseException as e:
                    errors.append(e)

            threads = [threading.Thread(target=worker, args=(seed,)) for seed in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            if errors:
                raise errors[0]
            self.assertEqual(model.refused(), 0)


class Secrets(unittest.TestCase):
    COMMANDS = (
        "env; set; export -p",
        r"tr '\0' '\n' < /proc/self/environ; tr '\0' '\n' < /proc/$PPID/environ; tr '\0' '\n' < /proc/1/environ",
        "cat /proc/*/cmdline | tr '\\0' '\\n'",
        "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a MANGO",
    )

    def test_case_69_no_secret_reaches_a_command_a_log_the_database_or_an_event(self):
        canary = {n: "canary" + secrets.token_hex(12) for n in ("key", "database", "model", "plugin")}
        with FakeModel() as model, Mangod(model_url=model.url, start=False, env={"MANGO_LOG_LEVEL": "debug"}) as m:
            m.key = m.client.key = canary["key"] + "0123456789abcdef"
            url = m.database.url + ("&" if "?" in m.database.url else "?") + f"password={canary['database']}"
            m.extra.update(MANGO_API_KEY=m.key, MANGO_DATABASE_URL=url, MANGO_MODEL_API_KEY=canary["model"], MANGO_LOCAL_TOKEN=canary["plugin"])
            m.start()
            sid = m.client.new_session()["id"]
            outputs = []
            for command in self.COMMANDS + ("ls -l /proc/self/fd",):
                with m.client.stream(sid) as stream:
                    m.client.say(sid, "#fake\ntool bash " + json.dumps({"command": command}) + "\n---\ntext ok")
                    outputs += [shown(e) for e in of(stream.until("session.status_idle"), "agent.tool_result")]
            self.assertEqual(len(outputs), len(self.COMMANDS) + 1)
            self.assertIn("PATH=", outputs[0])
            self.assertNotIn("MANGO_", outputs[0], "the environment of a command is an allow-list")
            open_fds = [int(x) for x in re.findall(r" (\d+) -> ", outputs[-1])]
            self.assertEqual([fd for fd in open_fds if fd > 3], [], outputs[-1])  # 3: ls reads the folder itself
            tables = [row[0] for row in m.database.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
            kept = "\n".join("|".join(r) for t in tables for r in m.database.query(f"SELECT t::text FROM {t} t"))
            places = {"a command's output": "\n".join(outputs), "the log": m.log(), "the database": kept, "the events": json.dumps(m.client.events(sid))}
            for place, text in places.items():
                for name, value in canary.items():
                    self.assertNotIn(value, text, f"the secret '{name}' is in {place}")


if __name__ == "__main__":
    main()
