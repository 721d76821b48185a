"""Deployments: schedules with time zones, runs by hand, one session for a slot on however many nodes (semantics DE1 to DE7)."""
import datetime
import json
import time
import unittest

from api import ApiError
from harness import Mangod, main, wait_for
from rig import replicas

MESSAGE = {"type": "user.message", "content": [{"type": "text", "text": "hello"}]}
FIELDS = [
    "agent", "archived_at", "budget", "created_at", "description", "environment_id", "id", "initial_events", "metadata", "name", "paused_reason", "resources",
    "schedule", "status", "type", "updated_at", "vault_ids",
]


def cron(expression, zone="UTC"):
    return {"type": "cron", "expression": expression, "timezone": zone}


def at(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Mangod()
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__, None, None, None)
        cls.client = cls.server.client

    def body(self, client=None, **more):
        client = client or self.client
        agent = client.post("/v1/agents", {"name": "a", "model": "m"})["id"]
        env = client.post("/v1/environments", {"name": f"e{time.monotonic_ns()}", "config": {"type": "cloud"}})["id"]
        return {"name": "d", "agent": agent, "environment_id": env, "initial_events": [MESSAGE], **more}

    def make(self, **more):
        return self.client.post("/v1/deployments", self.body(**more))

    def due(self, deployment, database=None, count=1):
        """Puts its next slot into the past, as if time had passed."""
        (database or self.server.database).query(
            f"UPDATE deployments SET next_run_at = date_trunc('second', now()) - interval '{count} seconds' WHERE id = '{deployment}'"
        )

    def runs(self, deployment, query="", client=None):
        return (client or self.client).get(f"/v1/deployment_runs?deployment_id={deployment}{query}")["data"]

    def refused(self, status, text, method, path, body=None):
        with self.assertRaises(ApiError) as e:
            self.client.call(method, path, body)
        self.assertEqual(e.exception.status, status, e.exception.message)
        self.assertIn(text, e.exception.message)


class Resources(Case):
    def test_a_deployment_is_what_the_contract_says(self):
        vault = self.client.post("/v1/vaults", {"display_name": "v"})["id"]
        budget = {"type": "limit", "max_list_cost": {"amount": "2500", "currency": "USD"}}
        body = self.body(description="daily", metadata={"a": "b"}, vault_ids=[vault], schedule=cron("0 9 * * 1-5", "Europe/Berlin"))
        made = self.client.post("/v1/deployments", body)
        self.assertEqual(sorted(made), FIELDS)
        self.assertEqual((made["type"], made["name"], made["description"], made["status"], made["paused_reason"]), ("deployment", "d", "daily", "active", None))
        self.assertEqual(made["agent"], {"type": "agent", "id": body["agent"], "version": 1})
        self.assertEqual((made["initial_events"], made["resources"], made["vault_ids"], made["budget"]), ([MESSAGE], [], [vault], None))
        times = made["schedule"]["upcoming_runs_at"]
        self.assertEqual(sorted(made["schedule"]), ["expression", "last_run_at", "timezone", "type", "upcoming_runs_at"])
        self.assertEqual(len(times), 5)
        self.assertTrue(all(at(t).minute == 0 and at(t).hour in (7, 8) and at(t).weekday() < 5 for t in times), times)
        self.assertEqual(times, sorted(times))
        path = f"/v1/deployments/{made['id']}"
        self.assertEqual(self.client.get(path), made)
        changed = self.client.post(path, {"schedule": None, "vault_ids": None, "metadata": {"a": None}, "description": None, "name": "n"})
        self.assertEqual((changed["schedule"], changed["vault_ids"], changed["metadata"], changed["description"], changed["name"]), (None, [], {}, None, "n"))
        self.refused(400, "model_not_budgetable", "POST", "/v1/sessions", {"agent": body["agent"], "environment_id": body["environment_id"], "budget": budget})
        self.assertEqual(self.client.post(path, {"budget": budget})["budget"], budget)

    def test_the_agents_version_is_pinned(self):
        made = self.make()
        self.client.post(f"/v1/agents/{made['agent']['id']}", {"system": "changed"})
        run = self.client.post(f"/v1/deployments/{made['id']}/run")
        self.assertEqual(self.client.get(f"/v1/sessions/{run['session_id']}")["agent"]["version"], 1)
        again = self.client.post(f"/v1/deployments/{made['id']}", {"agent": made["agent"]["id"]})
        self.assertEqual(again["agent"]["version"], 2)

    def test_bad_bodies_are_refused_with_the_field(self):
        good = self.body()
        cases = [
            ({"name": None}, "name"), ({"name": ""}, "name"), ({"agent": None}, "agent"), ({"environment_id": "env x"}, "environment_id"),
            ({"agent": {"type": "agent_with_overrides", "id": "agent_x"}}, "agent"), ({"initial_events": []}, "initial_events"),
            ({"initial_events": [MESSAGE] * 51}, "initial_events"), ({"initial_events": [{"type": "user.interrupt"}]}, "initial_events[0]"),
            ({"initial_events": [{"type": "system.message", "content": [{"type": "text", "text": "x"}]}]}, "initial_events[0]"),
            ({"vault_ids": ["a b"]}, "vault_ids[0]"), ({"resources": {}}, "resources"), ({"metadata": {"k": 1}}, "metadata"), ({"budget": 5}, "budget"),
            ({"title": "x"}, "title"), ({"schedule": {"type": "interval"}}, "schedule.type"), ({"schedule": cron("@daily")}, "schedule.expression"),
            ({"schedule": cron("0 0 30 2 *")}, "no time within five years"), ({"schedule": cron("* * * * *", "Mars/Olympus")}, "schedule.timezone"),
            ({"schedule": cron("* * * * *", "CET-1")}, "schedule.timezone"), ({"schedule": cron("* * * * *", "../etc/passwd")}, "schedule.timezone"),
        ]
        for change, text in cases:
            with self.subTest(json.dumps(change)[:80]):
                self.refused(400, text, "POST", "/v1/deployments", {**good, **change})
        self.refused(404, "agent", "POST", "/v1/deployments", {**good, "agent": "agent_nothing"})
        self.refused(404, "vault_ids[0]", "POST", "/v1/deployments", {**good, "vault_ids": ["vlt_nothing"]})
        self.refused(404, "does not exist", "GET", "/v1/deployments/depl_x")
        self.refused(404, "does not exist", "GET", "/v1/deployment_runs/drun_x")
        for query, text in [("status=archived", "status"), ("status=active&include_archived=true", "include_archived"), ("limit=101", "limit")]:
            self.refused(400, text, "GET", f"/v1/deployments?{query}")
        for query, text in [("trigger_type=cron", "trigger_type"), ("has_error=1", "has_error"), ("limit=1001", "limit")]:
            self.refused(400, text, "GET", f"/v1/deployment_runs?{query}")

    def test_lists_and_filters(self):
        made = [self.make()["id"] for _ in range(3)]
        self.client.post(f"/v1/deployments/{made[0]}/pause")
        self.client.post(f"/v1/deployments/{made[1]}/archive")
        ids = lambda query: [d["id"] for d in self.client.get(f"/v1/deployments?limit=100{query}")["data"] if d["id"] in made]  # noqa: E731
        self.assertEqual(ids(""), [made[2], made[0]])
        self.assertEqual(ids("&include_archived=true"), made[::-1])
        self.assertEqual((ids("&status=paused"), ids("&status=active")), ([made[0]], [made[2]]))
        agent = self.client.get(f"/v1/deployments/{made[2]}")["agent"]["id"]
        self.assertEqual(ids(f"&agent_id={agent}"), [made[2]])

    def test_de5_pause_archive(self):
        made = self.make(schedule=cron("* * * * *"))
        path = f"/v1/deployments/{made['id']}"
        paused = self.client.post(f"{path}/pause")
        self.assertEqual((paused["status"], paused["paused_reason"]), ("paused", {"type": "manual"}))
        self.assertEqual(len(paused["schedule"]["upcoming_runs_at"]), 5, "what it would do")
        self.due(made["id"], count=600)
        active = self.client.post(f"{path}/unpause")
        self.assertEqual((active["status"], active["paused_reason"]), ("active", None))
        self.assertGreater(active["schedule"]["upcoming_runs_at"][0], active["updated_at"], "nothing is made up")
        archived = self.client.post(f"{path}/archive")
        self.assertEqual((archived["status"], archived["schedule"]["upcoming_runs_at"]), ("active", []))
        self.assertIsNotNone(archived["archived_at"])
        for action in ("/run", "/pause", "/unpause", ""):
            self.refused(400, "archived", "POST", path + action, {} if not action else None)
        self.assertEqual(self.runs(made["id"]), [])


class Runs(Case):
    def test_a_run_by_hand_makes_a_session_with_its_events(self):
        made = self.make(metadata={"k": "v"}, initial_events=[MESSAGE, {"type": "system.message", "content": [{"type": "text", "text": "be brief"}]}])
        run = self.client.post(f"/v1/deployments/{made['id']}/run")
        self.assertEqual(sorted(run), ["agent", "created_at", "deployment_id", "error", "id", "session_id", "trigger_context", "type"])
        self.assertEqual((run["type"], run["trigger_context"], run["error"], run["agent"]), ("deployment_run", {"type": "manual"}, None, made["agent"]))
        session = self.client.get(f"/v1/sessions/{run['session_id']}")
        self.assertEqual((session["deployment_id"], session["metadata"]), (made["id"], {"k": "v"}))
        self.assertEqual([e["type"] for e in self.client.events(run["session_id"])][:2], ["user.message", "system.message"])
        self.assertEqual(self.client.get(f"/v1/deployment_runs/{run['id']}"), run)
        self.assertEqual([s["id"] for s in self.client.get(f"/v1/sessions?deployment_id={made['id']}")["data"]], [run["session_id"]])
        self.assertEqual(self.runs(made["id"], "&trigger_type=manual&has_error=false"), [run])
        self.assertEqual((self.runs(made["id"], "&trigger_type=schedule"), self.runs(made["id"], "&has_error=true")), ([], []))

    def test_de7_a_session_that_cannot_be_made_is_a_run_with_its_error(self):
        vault = self.client.post("/v1/vaults", {"display_name": "v"})["id"]
        for change, want in [("agent", "agent_archived_error"), ("environment", "environment_archived_error"), ("vault", "vault_archived_error"), ("no vault", "vault_not_found_error")]:
            with self.subTest(change):
                own = self.client.post("/v1/vaults", {"display_name": "v"})["id"]
                made = self.make(vault_ids=[vault, own], schedule=cron("* * * * *"))
                if change == "no vault":
                    self.client.delete(f"/v1/vaults/{own}")
                else:
                    path = {"agent": f"agents/{made['agent']['id']}", "environment": f"environments/{made['environment_id']}", "vault": f"vaults/{own}"}[change]
                    self.client.post(f"/v1/{path}/archive")
                run = self.client.post(f"/v1/deployments/{made['id']}/run")
                self.assertEqual((run["session_id"], run["error"]["type"]), (None, want))
                self.assertTrue(run["error"]["message"])
                self.assertEqual(self.client.get(f"/v1/deployments/{made['id']}")["status"], "active", "a run by hand pauses nothing")
                self.due(made["id"])
                wait_for("the scheduled run", lambda: self.runs(made["id"], "&trigger_type=schedule&has_error=true"))
                paused = self.client.get(f"/v1/deployments/{made['id']}")
                self.assertEqual((paused["status"], paused["paused_reason"]), ("paused", {"type": "error", "error": {"type": want}}))

    def test_de3_a_slot_that_is_due_is_run_and_the_next_one_planned(self):
        made = self.make(schedule=cron("*/5 * * * *", "America/New_York"))
        self.due(made["id"], count=3600)
        (run,) = wait_for("the run", lambda: self.runs(made["id"]))
        self.assertEqual(run["trigger_context"]["type"], "schedule")
        self.assertIn("scheduled_at", run["trigger_context"])
        self.assertIsNotNone(run["session_id"])
        after = self.client.get(f"/v1/deployments/{made['id']}")
        self.assertIsNotNone(after["schedule"]["last_run_at"])
        self.assertGreater(after["schedule"]["upcoming_runs_at"][0], run["created_at"], "hours that were missed are one run")
        self.assertEqual(len(self.runs(made["id"])), 1)

    def test_case_87_the_times_that_are_shown_are_those_of_the_zone(self):
        for zone, expression, hours in [("Europe/Berlin", "30 2 * * *", {0, 1}), ("America/New_York", "30 2 * * *", {6, 7}), ("Australia/Lord_Howe", "15 2 * * *", {15}), ("UTC", "30 2 * * *", {2})]:
            with self.subTest(zone):
                times = self.make(schedule=cron(expression, zone))["schedule"]["upcoming_runs_at"]
                self.assertEqual({at(t).hour for t in times} - hours, set(), times)
        leap = self.make(schedule=cron("0 0 29 2 *"))["schedule"]["upcoming_runs_at"]
        self.assertTrue(leap and all(at(t).month == 2 and at(t).day == 29 for t in leap), leap)

    def test_de2_a_slot_that_was_run_is_not_run_again(self):
        made = self.make(schedule=cron("0 0 1 1 *"))
        slot = (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=10)).isoformat()
        query = self.server.database.query
        for _ in range(2):
            query(f"UPDATE deployments SET next_run_at = '{slot}' WHERE id = '{made['id']}'")
            wait_for("it is planned anew", lambda: query(f"SELECT next_run_at > now() FROM deployments WHERE id = '{made['id']}'") == [["t"]])
        self.assertEqual(len(self.runs(made["id"])), 1)
        self.assertEqual(query(f"SELECT count(*) FROM sessions WHERE deployment_id = '{made['id']}'"), [["1"]])


class Replicas(Case):
    def test_de2_each_slot_is_run_once_by_two_nodes(self):
        with replicas() as (db, nodes):
            client = nodes[0].client
            body = self.body(client, schedule=cron("* * * * *"))
            made = [client.post("/v1/deployments", {**body, "name": f"d{i}"})["id"] for i in range(30)]
            for count in (3, 2, 1):
                db.query(f"UPDATE deployments SET next_run_at = date_trunc('second', now()) - interval '{count} seconds'")
                wait_for("all ran", lambda: db.query("SELECT count(*) FROM deployments WHERE next_run_at <= now()") == [["0"]])
            rows = db.query("SELECT deployment_id, count(*), count(session_id) FROM deployment_runs WHERE scheduled_at IS NOT NULL GROUP BY 1")
            self.assertEqual({r[0] for r in rows}, set(made))
            self.assertTrue(all(3 <= int(r[1]) == int(r[2]) <= 4 for r in rows), rows)  # 4: a minute began meanwhile
            self.assertEqual(db.query("SELECT count(*) FROM sessions"), db.query("SELECT count(*) FROM deployment_runs"))

    def test_de2_a_node_that_dies_with_a_claim_leaves_the_slot_to_another(self):
        with replicas() as (db, nodes):
            client = nodes[0].client
            made = client.post("/v1/deployments", self.body(client, schedule=cron("0 0 1 1 *")))["id"]
            db.query(f"UPDATE deployments SET next_run_at = now() - interval '1 hour', claim = 'dead', claim_until = now() + interval '2 seconds' WHERE id = '{made}'")
            (run,) = wait_for("the other node runs it", lambda: self.runs(made, client=client))
            self.assertIsNotNone(run["session_id"])


if __name__ == "__main__":
    main()
