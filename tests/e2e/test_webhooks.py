"""Webhooks: every type, signatures, order, tries, addresses, replicas, crashes (semantics WH1; field case 88)."""
import json
import os
import threading
import time
import unittest

from harness import Database, FakeModel, Mangod, main, wait_for
from mcp_peer import McpPeer
from rig import killed, metrics
from threads import Team, task
from turns import CUSTOM, custom_result, fake, message, turn
from vault_rig import TokenEndpoint, new_session, new_vault, oauth
from webhook_rig import LOCAL, Receiver, WebhookServer

MODEL = "claude-haiku-4-5"  # one with a price, for the budget


def new_env(client):
    return client.post("/v1/environments", {"name": "e-" + os.urandom(6).hex(), "config": {"type": "cloud"}})["id"]


def new_agent(client, *tools, model="m"):
    return client.post("/v1/agents", {"name": "a", "model": model, "tools": list(tools)})["id"]


def session(client, *tools, model="m", **more):
    return client.post("/v1/sessions", {"agent": new_agent(client, *tools, model=model), "environment_id": new_env(client), **more})["id"]


def cause_resources(server):
    """Agents, environments, stores, vaults, and their ends."""
    client = server.client
    agent, env = new_agent(client), new_env(client)
    client.post(f"/v1/agents/{agent}", {"version": 1, "name": "b"})
    client.post(f"/v1/agents/{agent}/archive")
    client.post(f"/v1/environments/{env}", {"description": "other"})
    client.post(f"/v1/environments/{env}/archive")
    client.delete(f"/v1/environments/{env}")
    store = client.post("/v1/memory_stores", {"name": "s"})["id"]
    client.post(f"/v1/memory_stores/{store}/archive")
    client.delete(f"/v1/memory_stores/{store}")


def cause_sessions(client):
    sid = session(client, CUSTOM, title="a")
    client.post(f"/v1/sessions/{sid}", {"title": "b"})
    events = turn(client, sid, message(fake('tool lookup {"n":"%s"}' % os.urandom(6).hex(), "---", "@1 status 529 full", "text done")))
    assert events[-1]["stop_reason"]["type"] == "requires_action", events[-1]
    turn(client, sid, custom_result(events[-1]["stop_reason"]["event_ids"][0]))
    rubric = fake('text {"result":"satisfied","explanation":"ok"}', "#end").replace("#fake", "#grade", 1)
    outcome = {"type": "user.define_outcome", "description": fake("text done", "#end"), "rubric": {"type": "text", "content": rubric}}
    turn(client, sid, outcome, timeout=60)
    client.post(f"/v1/sessions/{sid}/archive")
    client.delete(f"/v1/sessions/{sid}")
    return sid


def cause_budget(client):
    sid = session(client, {"type": "agent_toolset_20260401"}, model=MODEL, budget={"type": "limit", "max_list_cost": {"amount": "2", "currency": "USD"}})
    turn(client, sid, message(fake("usage 30000 0", 'tool bash {"command":"true"}', "---", "text done")))
    return sid


def cause_threads(client):
    team = Team(client)
    sid = team.session("worker")
    turn(client, sid, message(fake(task("worker", "text done"), "---", "text sent")))
    child = team.child(sid)["id"]
    team.thread_is(sid, child, "idle")
    wait_for("no thread runs", lambda: client.get(f"/v1/sessions/{sid}")["status"] == "idle")
    client.post(f"/v1/sessions/{sid}/threads/{child}/archive")
    return sid, child


def cause_deployments(server):
    client = server.client
    agent, env = new_agent(client), new_env(client)
    body = {"name": "d", "agent": agent, "environment_id": env, "initial_events": [message("hello")]}
    dep = client.post("/v1/deployments", body)["id"]
    client.post(f"/v1/deployments/{dep}/run")
    client.post(f"/v1/deployments/{dep}", {"name": "e"})
    client.post(f"/v1/deployments/{dep}/pause")
    client.post(f"/v1/deployments/{dep}/unpause")
    client.post(f"/v1/environments/{env}/archive")
    client.post(f"/v1/deployments/{dep}/run")
    client.post(f"/v1/deployments/{dep}/archive")
    # The API removes neither; what an operator removes is told too.
    server.database.query(f"DELETE FROM deployments WHERE id = '{dep}'")
    server.database.query(f"DELETE FROM agent_versions WHERE agent_id = '{agent}'; DELETE FROM agents WHERE id = '{agent}'")


def cause_credentials(client):
    with McpPeer(["echo"]) as peer, TokenEndpoint(peer) as point:
        peer.tokens = {"nobody's"}
        point.fail = (400, {"error": "invalid_grant"})
        vault, (failing,) = new_vault(client, oauth(peer, point))
        turn(client, new_session(client, peer.url, vault), message("hello"))
        client.post(f"/v1/vaults/{vault}/archive")
        client.delete(f"/v1/vaults/{vault}")
        return vault, failing


class Shared(unittest.TestCase):
    """One server for the class; each test ends its webhooks."""

    @classmethod
    def setUpClass(cls):
        cls.model = cls.enterClassContext(FakeModel())
        cls.server = cls.enterClassContext(WebhookServer(model_url=cls.model.url))

    def tearDown(self):
        for hook in self.server.webhooks():
            self.server.mango("webhook", "delete", hook["id"])


class Types(Shared):
    def test_case_88_each_type_is_subscribed_caused_and_received(self):
        server = self.server
        with Receiver() as receiver:
            refused = server.mango("webhook", "create", receiver.url, "--types", "session.exploded", ok=False)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("'session.exploded' is no type of event", refused.stderr)
            types = refused.stderr.split("all, or some of ")[1].split("\n")[0].split(", ")
            self.assertEqual(len(types), 44, types)
            secrets = {t: server.webhook(f"{receiver.url}/{t}", t)[1] for t in types}
            cause_resources(server)
            cause_sessions(server.client)
            budget = cause_budget(server.client)
            threaded, child = cause_threads(server.client)
            cause_deployments(server)
            vault, failing = cause_credentials(server.client)
            for t in types:
                with self.subTest(t):
                    got = receiver.wait(1, t)
                    for n in got:
                        self.assertEqual(n.path, f"/{t}", "a webhook gets what it asked for, and nothing else")
                        self.assertTrue(n.signed_by(secrets[t]))
                        extra = ["session_thread_id"] if t.startswith("session.thread_") else ["vault_id"] if t.startswith("vault_credential.") else []
                        self.assertEqual(sorted(n.data), sorted(["type", "id", "organization_id", "workspace_id", *extra]))
            self.assertEqual(budget, receiver.of("session.budget_reached")[0].subject)
            for t in ("session.thread_created", "session.thread_idled", "session.thread_terminated"):
                told = {(n.subject, n.data["session_thread_id"]) for n in receiver.of(t)}
                self.assertIn((threaded, child), told)
                self.assertTrue(t == "session.thread_idled" or len(told) == 1, "the coordinator's own thread goes idle, and no more")
            (n,) = receiver.of("vault_credential.refresh_failed")
            self.assertEqual((n.subject, n.data["vault_id"]), (failing, vault))
            self.assertEqual([n.subject for n in receiver.of("vault_credential.archived")], [failing], "archived with its vault")
            self.assertEqual([n.subject for n in receiver.of("vault_credential.deleted")], [failing], "deleted with its vault")

    def test_a_session_tells_its_life_in_order_and_no_type_twice_for_one_event(self):
        server = self.server
        with Receiver() as receiver:
            _, secret = server.webhook(receiver.url)
            sid = cause_sessions(server.client)
            receiver.wait(1, "session.deleted", subject=sid)
            got = [n.type.removeprefix("session.") for n in receiver.of(subject=sid)]
            run = ["running", "status_run_started"]
            idle = ["idled", "status_idled"]
            self.assertEqual(got, ["created", "pending", "updated", *run, *idle, "requires_action", *run, "status_rescheduled", *run, *idle,
                                   *run, "outcome_evaluation_ended", *idle, "archived", "status_terminated", "deleted"])
            ids = [n.id for n in receiver.of()]
            self.assertEqual(len(ids), len(set(ids)))
            for n in receiver.of():
                self.assertTrue(n.signed_by(secret))
                self.assertEqual((n.headers["webhook-id"], n.headers["content-type"]), (n.id, "application/json"))
                self.assertLess(abs(int(n.headers["webhook-timestamp"]) - time.time()), 120)

    def test_a_budget_is_told_once_for_each_value(self):
        server = self.server
        with Receiver() as receiver:
            server.webhook(receiver.url, "session.budget_reached,session.status_idled")
            sid = cause_budget(server.client)
            for n, nano in enumerate((20_000_000, 20_000_000, 30_000_000)):
                server.database.query(
                    f"UPDATE session_state SET budget_nano = {nano}, last_seq = last_seq + 1 WHERE session_id = '{sid}';"
                    " INSERT INTO events (session_id, seq, id, type, body, processed_at) SELECT session_id, last_seq, 'sevt_again%d',"
                    " 'session.status_idle', '{\"stop_reason\":{\"type\":\"budget_reached\"}}', now() FROM session_state WHERE session_id = '%s'" % (n, sid)
                )
            receiver.wait(4, "session.status_idled", subject=sid)
            self.assertEqual(len(receiver.wait(2, "session.budget_reached")), 2, "of 2 cents once, of 3 cents once")


class Commands(Shared):
    def test_only_urls_of_public_hosts_with_tls_are_taken(self):
        server = self.server
        public = {"MANGO_WEBHOOK_ALLOW_PRIVATE": "0"}
        for url, says in [
            ("http://hooks.example.com/x", "https://"),
            ("https://hooks.example.com:8443/x", "port 443"),
            ("https://[2001:db8::1]:8443/x", "port 443"),
            ("https://127.0.0.1/x", "127.0.0.1"),
            ("https://169.254.169.254/latest", "169.254.169.254"),
            ("https://[::1]/x", "::1"),
            ("https://user:pass@hooks.example.com/x", "without user"),
            ("https://hooks.example.com/x#y", "fragment"),
            ("ftp://hooks.example.com/x", "https://"),
            ("https://hooks.example.com/" + "x" * 2048, "2048"),
        ]:
            with self.subTest(url[:60]):
                done = server.mango("webhook", "create", url, "--types", "all", ok=False, env=public)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(says, done.stderr)
        self.assertEqual(server.webhooks(), [])
        done = server.mango("webhook", "create", "https://hooks.example.com:443/x?y=1", "--types", "agent.created, agent.updated", env=public)
        self.assertRegex(json.loads(done.stdout)["signing_secret"], r"^whsec_[A-Za-z0-9+/]{43}=$")
        (shown,) = server.webhooks()
        self.assertEqual((shown["url"], shown["event_types"], shown["disabled_at"]), ("https://hooks.example.com:443/x?y=1", ["agent.created", "agent.updated"], None))
        self.assertNotIn("whsec_", json.dumps(shown))
        self.assertEqual(server.mango("webhook", "create", "https://x.example.com", ok=False).returncode, 2, "no type is named")
        done = server.mango("webhook", "create", "https://x.example.com", "--types", "all", ok=False, env={"MANGO_VAULT_KEYRING_FILE": ""})
        self.assertIn("MANGO_VAULT_KEYRING_FILE", done.stderr)
        done = server.mango("webhook", "create", "https://x.example.com", "--types", "all", "--workspace", "wrkspc_none", ok=False)
        self.assertIn("workspace 'wrkspc_none' does not exist", done.stderr)
        for word in ("disable", "delete"):
            self.assertIn("'whk_none' does not exist", server.mango("webhook", word, "whk_none", ok=False).stderr)

    def test_without_an_active_webhook_nothing_is_written_and_no_trigger_runs(self):
        server = self.server
        with Receiver() as receiver:
            self.assertEqual(server.armed()[0], 0)
            before = server.database.query("SELECT count(*) FROM webhook_events")
            new_agent(server.client)
            self.assertEqual(server.database.query("SELECT count(*) FROM webhook_events"), before)
            one, _ = server.webhook(receiver.url, "agent.created")
            two, _ = server.webhook(receiver.url, "environment.created")
            self.assertEqual(server.armed()[0], server.armed()[1])
            server.mango("webhook", "disable", one)
            self.assertEqual(server.armed()[0], server.armed()[1], "the other one needs them")
            server.database.query("ALTER TABLE agents DISABLE TRIGGER mango_webhook")
            server.restart()
            self.assertEqual(server.armed()[0], server.armed()[1], "what a killed command left is mended by the next start")
            new_agent(server.client)
            new_env(server.client)
            self.assertEqual([n.type for n in receiver.wait(1)], ["environment.created"])
            server.mango("webhook", "delete", two)
            self.assertEqual(server.armed()[0], 0)
            self.assertEqual([(w["id"], bool(w["disabled_at"])) for w in server.webhooks()], [(one, True)])

    def test_a_server_looks_for_notices_only_while_a_webhook_is_active(self):
        with WebhookServer(env={"MANGO_NODE_TTL": "3s"}) as server, Receiver() as receiver:

            def scans():
                row = server.database.query("SELECT sum(seq_scan + coalesce(idx_scan, 0)) FROM pg_stat_user_tables WHERE relname = 'webhook_deliveries'")
                return int(row[0][0])

            def some_renewals():
                """Of the node's lease, each after 600 ms or more: the server had the time to look."""
                leases = set()

                def seen():
                    leases.update(row[0] for row in server.database.query("SELECT lease_until FROM nodes"))
                    return len(leases) > 4

                wait_for("the node renews its lease", seen)

            def quiet():
                before = scans()
                some_renewals()
                return scans() == before

            wait_for("it does not look", quiet, 60)
            before = scans()
            hook, _ = server.webhook(receiver.url, "agent.created")
            new_agent(server.client)
            receiver.wait(1)
            server.mango("webhook", "disable", hook)
            wait_for("it does not look any more", quiet, 60)
            self.assertGreater(scans(), before)

    def test_a_disabled_webhook_is_not_told_what_waits(self):
        server = self.server
        with Receiver(lambda _: 500) as receiver:
            hook, _ = server.webhook(receiver.url, "agent.created")
            new_agent(server.client)
            wait_for("a try failed", lambda: server.deliveries(hook) == [["pending", "1", "it answered with status 500"]])
            server.mango("webhook", "disable", hook)
            self.assertEqual(server.deliveries(hook), [["failed", "1", "the webhook was disabled"]])

    def test_signing_keys_follow_the_keyring_and_are_stored_sealed(self):
        with WebhookServer() as server, Receiver() as receiver:
            hook, secret = server.webhook(receiver.url, "agent.created")
            self.assertNotIn(secret.removeprefix("whsec_"), str(server.database.query("SELECT * FROM webhooks")))
            server.mango("vault", "new-key", "k2")
            server.restart()
            self.assertEqual(json.loads(server.mango("vault", "rekey").stdout)["resealed"], 1)
            self.assertEqual(server.database.query("SELECT key_id FROM webhooks"), [["k2"]])
            new_agent(server.client)
            self.assertTrue(receiver.wait(1)[0].signed_by(secret))
            self.assertNotIn(secret, server.log())
            server.extra["MANGO_VAULT_KEYRING_FILE"] = None
            server.stop()
            server.process.end()
            server.start(wait=False)
            self.assertEqual(server.process.wait(60), 78)
            self.assertIn("1 stored webhook is sealed with key 'k2'", server.log())


class Delivery(Shared):
    def test_three_tries_with_the_same_bytes_then_the_next_one_of_the_session(self):
        server, bad = self.server, []
        with Receiver(lambda n: 503 if n.subject in bad else 200) as receiver:
            hook, secret = server.webhook(receiver.url, "session.created,session.archived")
            sid, other = (server.client.post("/v1/sessions", {"agent": new_agent(server.client), "environment_id": new_env(server.client)})["id"] for _ in "ab")
            receiver.wait(2)
            bad.append(sid)
            for s in (sid, other):
                server.client.post(f"/v1/sessions/{s}/archive")
            third = session(server.client)
            bad.append(third)
            receiver.wait(1, "session.archived", subject=other)
            for n, (low, high) in ((1, (5, 30)), (2, (30, 120))):
                receiver.wait(n, "session.archived", subject=sid)
                wait_for(f"try {n} is noted", lambda n=n: ["pending", str(n), "it answered with status 503"] in server.deliveries(hook))
                waits = [float(r[0]) for r in server.database.query(f"SELECT extract(epoch FROM due_at - now()) FROM webhook_deliveries WHERE state = 'pending' AND tries = {n}")]
                for seconds in waits:
                    self.assertTrue(low - 5 < seconds <= high, waits)
                server.hurry()
            receiver.wait(3, "session.archived", subject=sid)
            wait_for("it is given up", lambda: ["failed", "3", "it answered with status 503"] in server.deliveries(hook))
            tries = receiver.of("session.archived", subject=sid)
            self.assertEqual((len(tries), len({t.id for t in tries}), len({t.raw for t in tries})), (3, 1, 1))
            self.assertTrue(all(t.signed_by(secret) for t in tries))
            self.assertGreaterEqual(metrics(server.client)["mango_webhook_tries_total"], 6)

    def test_what_follows_waits_for_what_was_not_delivered(self):
        gate = threading.Event()
        server = self.server
        with Receiver(lambda n: 200 if gate.is_set() or n.type != "agent.created" else 500) as receiver:
            hook, _ = server.webhook(receiver.url, "agent.created,agent.updated,environment.created")
            agent = new_agent(server.client)
            server.client.post(f"/v1/agents/{agent}", {"version": 1, "name": "b"})
            new_env(server.client)
            receiver.wait(1, "environment.created")
            wait_for("the first try is noted", lambda: server.deliveries(hook)[0][:2] == ["pending", "1"])
            wait_for("two wait, as the gauge says", lambda: metrics(server.client)["mango_webhook_pending"] == 2)
            self.assertEqual(receiver.of("agent.updated"), [], "the update would come before what it changes")
            gate.set()
            server.hurry()
            receiver.wait(1, "agent.updated")
            self.assertEqual([n.type for n in receiver.of(subject=agent)], ["agent.created", "agent.created", "agent.updated"])

    def test_a_webhook_that_was_turned_elsewhere_in_the_database_sends_nothing(self):
        server = self.server
        with Receiver() as receiver, Receiver() as thief:
            hook, _ = server.webhook(receiver.url, "agent.created")
            server.database.query(f"UPDATE webhooks SET url = '{thief.url}' WHERE id = '{hook}'")
            new_agent(server.client)
            wait_for("the try failed", lambda: server.deliveries(hook)[0][:2] == ["pending", "1"])
            self.assertIn(hook, server.deliveries(hook)[0][2], "its key opens for its own URL alone")
            self.assertEqual(receiver.of() + thief.of(), [])

    def test_redirects_are_not_followed_and_long_answers_are_not_read(self):
        def answer(n):
            if n.path == "/redirect":
                return 307, {"location": f"{receiver.url}/target"}, b""
            return 200, {}, (b"x" * 65536 for _ in range(100000))

        server = self.server
        with Receiver(answer) as receiver:
            moved, _ = server.webhook(f"{receiver.url}/redirect", "agent.created")
            endless, _ = server.webhook(f"{receiver.url}/endless", "agent.created")
            new_agent(server.client)
            wait_for("the redirect is a failure", lambda: server.deliveries(moved) == [["pending", "1", "it answered with status 307"]])
            wait_for("the endless answer is a success", lambda: server.deliveries(endless) == [["delivered", "1", ""]])
            self.assertEqual({n.path for n in receiver.of()}, {"/redirect", "/endless"})

    def test_names_that_lead_to_private_addresses_are_refused_when_they_are_resolved(self):
        server = self.server
        with Receiver() as receiver:
            named, _ = server.webhook("https://localhost/x", "agent.created")
            plain, _ = server.webhook(f"{receiver.url}/x", "agent.created")
            server.extra["MANGO_WEBHOOK_ALLOW_PRIVATE"] = "0"
            server.restart()
            new_agent(server.client)
            wait_for("both tries are noted", lambda: server.deliveries(named)[0][1] == "1" and server.deliveries(plain)[0][1] == "1")
            self.assertRegex(server.deliveries(named)[0][2], "localhost has no public address")
            self.assertIn("https://", server.deliveries(plain)[0][2])
            self.assertEqual(receiver.of(), [])
            server.extra["MANGO_WEBHOOK_ALLOW_PRIVATE"] = "1"
            server.restart()

    def test_events_that_are_too_old_are_removed(self):
        server = self.server
        with Receiver() as receiver:
            hook, _ = server.webhook(receiver.url, "agent.created")
            new_agent(server.client)
            new_agent(server.client)
            wait_for("both are delivered", lambda: [r[0] for r in server.deliveries(hook)] == ["delivered"] * 2)
            server.database.query("UPDATE webhook_events SET created_at = now() - interval '31 days' WHERE seq = (SELECT min(event_seq) FROM webhook_deliveries WHERE webhook_id = '%s')" % hook)
            server.restart()
            wait_for("the old one is gone", lambda: len(server.deliveries(hook)) == 1)


class Nodes(unittest.TestCase):
    def test_of_two_nodes_one_sends_each_notice(self):
        with Database() as db, WebhookServer(database=db) as a, Receiver() as receiver:
            env = {**LOCAL, "MANGO_VAULT_KEYRING_FILE": a.keyring}
            b = Mangod(database=db, env=env)
            b.key = b.client.key = a.key
            with b:
                a.webhook(receiver.url, "agent.created")
                made = [new_agent(n.client) for _ in range(60) for n in (a, b)]
                got = receiver.wait(len(made))
                self.assertEqual(sorted(n.subject for n in got), sorted(made))
                wait_for("all are noted", lambda: db.query("SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'") == [["0"]])
                self.assertEqual(len(receiver.of()), len(made), "none came twice")

    def one_crash(self, hook, came):
        with Receiver() as receiver, WebhookServer(hooks=f"{hook}=kill") as server:
            made, secret = server.webhook(receiver.url, "agent.created")
            killed(server, hook, lambda: new_agent(server.client))
            self.assertEqual(len(receiver.of()), came)
            self.assertEqual(server.deliveries(made)[0][:2], ["pending", "0"])
            server.database.query("UPDATE webhook_deliveries SET claim_until = now()")  # the dead node's claim is over
            got = receiver.wait(came + 1)
            wait_for("it is noted", lambda: server.deliveries(made)[0][:2] == ["delivered", "1"])
            self.assertEqual(len({n.id for n in got}), 1, "the same id, by which a receiver knows it")
            self.assertTrue(all(n.signed_by(secret) for n in got))

    def test_a_node_that_dies_before_it_sends_leaves_the_notice_to_the_next(self):
        self.one_crash("webhook.claimed", 0)

    def test_a_node_that_dies_after_it_sent_leaves_the_notice_to_the_next(self):
        self.one_crash("webhook.sent", 1)

    def test_a_clean_stop_gives_back_what_was_being_sent(self):
        gate = threading.Event()
        with WebhookServer() as server, Receiver(lambda _: gate.wait(60) and 200) as receiver:
            hook, _ = server.webhook(receiver.url, "agent.created")
            new_agent(server.client)
            receiver.wait(1)
            self.assertEqual(server.stop(), 0)
            self.assertEqual(server.deliveries(hook, "state, tries, claim IS NULL"), [["pending", "0", "t"]])
            gate.set()
            server.process.end()
            server.start()
            wait_for("it is delivered", lambda: server.deliveries(hook)[0][:2] == ["delivered", "1"])


if __name__ == "__main__":
    main()
