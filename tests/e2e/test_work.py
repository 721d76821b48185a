"""The work queue: claims, leases, ends, and what a session gets of them. Who may call what is in test_work_credentials.py, the workers of the SDKs are
in tests/sdk."""
import concurrent.futures
import json
import threading
import time
import unittest

from harness import Mangod, main, wait_for
from rig import metrics, replicas
from turns import IDLE, fake, types
from work_rig import BASH, Base, Worker


class Queue(Base):
    OPTIONS = {"env": {"MANGO_WORK_TTL": "60s"}}

    def test_a_message_queues_work_and_a_worker_serves_its_calls(self):
        s = self.session(fake(BASH, "---", "text it said hi"))
        w = self.worker(s)
        work = w.poll_until()
        self.assertEqual(work["data"], {"type": "session", "id": s["id"]})
        self.assertEqual((work["type"], work["state"], work["acknowledged_at"]), ("work", "queued", None))
        acked = w.ack()
        self.assertEqual((acked["state"], acked["secret"]), ("starting", None))
        self.assertEqual(w.ack(), acked, "a repeated ack is answered alike")
        beat = w.heartbeat()
        self.assertEqual((beat["type"], beat["state"], beat["lease_extended"], beat["ttl_seconds"]), ("work_heartbeat", "active", True, 60))
        call = w.wait_calls()[0]
        self.assertEqual(call["evaluated_permission"], "allow")
        self.assertEqual(self.status(s), "running", "a call that a worker runs is nobody else's business")
        w.answer(call, "hi")
        events = self.wait_idle(s)
        self.assertNotIn("requires_action", json.dumps(events))
        self.assertEqual([e["content"][0]["text"] for e in events if e["type"] == "agent.message"], ["it said hi"])
        stopped = w.stop()
        self.assertEqual((stopped["state"], stopped["id"]), ("stopped", w.id))
        self.assertEqual(w.stop(), stopped, "a repeated stop is answered alike")
        self.assertIsNone(w.poll())

    # ---- polls ----

    def test_an_empty_poll_is_200_with_json_null(self):
        s = self.session()
        status, headers, body = self.client.raw("GET", f"/v1/environments/{s['environment_id']}/work/poll")
        self.assertEqual((status, headers["content-type"], body), (200, "application/json", b"null"))

    def test_a_waiting_poll_is_woken_by_the_commit_that_queues_the_work(self):
        s = self.session()
        w = self.worker(s)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for _ in range(3):  # one that misses its time polls again, as a worker does
                polled = pool.submit(w.poll, block_ms=999)
                wait_for("the poll waits", lambda: metrics(self.client)["mango_http_parked"] >= 1, every=0.01)
                began = time.monotonic()
                self.client.say(s["id"], "hello")
                if polled.result(20):
                    break
            self.assertTrue(w.work)
            self.assertLess(time.monotonic() - began, 0.9, "it was woken, its time was not over")

    def test_a_waiting_poll_ends_with_null_when_its_time_is_over(self):
        s = self.session()
        began = time.monotonic()
        self.assertIsNone(self.worker(s).poll(block_ms=300))
        self.assertGreaterEqual(time.monotonic() - began, 0.25)

    def test_items_are_handed_out_oldest_first_and_each_once(self):
        agent = self.client.post("/v1/agents", {"name": "a", "model": "m"})["id"]
        env = self.client.post("/v1/environments", {"name": f"e{time.monotonic_ns()}", "config": {"type": "self_hosted"}})["id"]
        sessions = [self.client.post("/v1/sessions", {"agent": agent, "environment_id": env})["id"] for _ in range(12)]
        for s in sessions:
            self.client.say(s, "hello")
        stats = self.client.get(f"/v1/environments/{env}/work/stats")
        self.assertEqual((stats["depth"], stats["pending"]), (12, 0))
        first = Worker(self.client, env).poll()
        self.assertEqual(first["data"]["id"], sessions[0])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = [w["data"]["id"] for w in pool.map(lambda _: Worker(self.client, env).poll(), range(16)) if w]
        self.assertEqual(sorted(got), sorted(sessions[1:]))
        stats = self.client.get(f"/v1/environments/{env}/work/stats")
        self.assertEqual((stats["type"], stats["depth"], stats["pending"], stats["oldest_queued_at"]), ("work_queue_stats", 0, 12, None))
        self.assertEqual(stats["workers_polling"], 1)

    def test_a_claim_without_an_ack_goes_to_another_poller_under_a_new_id(self):
        s = self.session(fake(BASH, "---", "text done"))
        first, second = self.worker(s), self.worker(s)
        first.poll_until()
        self.assertIsNone(second.poll(), "5 s are not over")
        second.poll_until(reclaim_older_than_ms=0)
        self.assertNotEqual(second.id, first.id)
        e = self.refused(409, first.ack)
        self.assertEqual(e.headers.get("x-should-retry"), "false")
        second.ack()
        second.heartbeat()
        self.assertEqual(first.stop()["state"], "stopped", "it is over already")
        e = self.refused(412, first.heartbeat)
        details = json.loads(e.body)["error"]["details"]
        self.assertEqual(details["error_code"], "heartbeat_precondition_failed")
        self.assertEqual(details["current_state"]["state"], "stopped")
        second.answer(second.wait_calls()[0])
        self.wait_idle(s)
        self.assertEqual(second.heartbeat()["state"], "active")

    # ---- heartbeats ----

    def test_a_heartbeat_is_compared_byte_for_byte_and_its_repetition_is_known(self):
        s = self.session("hello")
        w = self.worker(s)
        w.poll_until()
        e = self.refused(412, w.heartbeat)
        self.assertEqual(json.loads(e.body)["error"]["details"]["current_state"]["state"], "queued")
        w.ack()
        first = w.heartbeat()
        again = w.heartbeat(expected="NO_HEARTBEAT")
        self.assertEqual((again["last_heartbeat"], again["lease_extended"]), (first["last_heartbeat"], True), "the answer was lost")
        second = w.heartbeat()
        self.assertGreater(second["last_heartbeat"], first["last_heartbeat"])
        for wrong in ("NO_HEARTBEAT", second["last_heartbeat"][:-1] + "0Z", "2020-01-01T00:00:00.000000Z", "yesterday"):
            with self.subTest(wrong):
                e = self.refused(412, w.heartbeat, expected=wrong)
                state = json.loads(e.body)["error"]["details"]["current_state"]
                self.assertEqual(state, {"state": "active", "ttl_seconds": 60, "last_heartbeat": second["last_heartbeat"], "lease_extended": False})
        self.assertEqual(w.client.post(w.path(w.id, "heartbeat"))["state"], "active", "without an expectation")

    def test_a_lease_is_capped_at_five_minutes(self):
        w = self.worker(self.session("hello"))
        w.poll_until()
        w.ack()
        self.assertEqual(w.heartbeat(ttl=7)["ttl_seconds"], 7)
        self.assertEqual(w.heartbeat(ttl=100000)["ttl_seconds"], 300)

    # ---- ends ----

    def test_a_message_in_the_idle_window_gets_a_successor_with_the_stop(self):
        s = self.session("hello")
        w = self.worker(s).claim()
        self.wait_idle(s)
        self.client.say(s["id"], fake(BASH, "---", "text second"))
        self.assertIsNone(w.poller.get(w.path("poll")), "the session has a worker")
        w.stop()
        next_ = self.worker(s)
        self.assertTrue(next_.poll(), "it was queued with the stop")
        self.assertNotEqual(next_.id, w.id)
        next_.ack()
        next_.heartbeat()
        next_.answer(next_.wait_calls()[0])
        self.wait_idle(s)
        next_.stop()
        self.assertIsNone(next_.poll(), "nothing is left to do")

    def test_a_stop_that_leaves_a_call_open_queues_a_successor(self):
        s = self.session(fake(BASH, "---", "text done"))
        w = self.worker(s).claim()
        w.wait_calls()
        w.stop()
        next_ = self.worker(s).claim()
        next_.answer(next_.wait_calls()[0])
        self.wait_idle(s)

    def test_a_graceful_stop_is_told_at_the_next_heartbeat(self):
        s = self.session(fake(BASH, "---", "text done"))
        w = self.worker(s).claim()
        call = w.wait_calls()[0]
        stopping = self.client.post(w.path(w.id, "stop"), {})
        self.assertEqual(stopping["state"], "stopping")
        self.assertEqual(self.client.post(w.path(w.id, "stop"))["stop_requested_at"], stopping["stop_requested_at"])
        self.assertIsNone(self.worker(s).poll(), "its worker has not left yet")
        beat = w.heartbeat(expected="NO_HEARTBEAT")
        self.assertEqual((beat["state"], beat["lease_extended"]), ("stopping", False), "nothing is compared any more")
        w.answer(call)  # within its time
        w.stop()
        self.wait_idle(s)
        self.assertEqual(w.heartbeat()["state"], "stopped")
        self.refused(401, w.client.get, f"/v1/sessions/{s['id']}")

    def test_case_7_work_of_a_session_that_is_over_is_never_handed_out(self):
        for end in ("archive", "delete"):
            for state in ("queued", "claimed", "starting", "active"):
                with self.subTest(f"{end} {state}"):
                    s = self.session(fake(BASH, "---", "text done"))
                    w = self.worker(s)
                    wait_for("a call is open", lambda: "agent.tool_use" in types(self.client.events(s["id"])))
                    if state != "queued":
                        w.poll_until()
                    if state in ("starting", "active"):
                        w.ack()
                    if state == "active":
                        w.heartbeat()
                    path = f"/v1/sessions/{s['id']}"
                    self.client.post(path + "/archive") if end == "archive" else self.client.delete(path)
                    stats = self.client.get(w.path("stats"))
                    self.assertEqual((stats["depth"], stats["pending"]), (0, 0))
                    self.assertIsNone(self.worker(s).poll(reclaim_older_than_ms=0))
                    if state == "active" and end == "archive":
                        self.assertEqual(w.heartbeat()["state"], "stopped")

    def test_a_failure_ends_item_and_session_in_one(self):
        s = self.session(fake(BASH))
        w = self.worker(s).claim()
        w.wait_calls()
        self.assertEqual(w.fail(message="the skill cannot be unpacked")["state"], "stopped")
        events = self.client.events(s["id"])
        error = [e["error"] for e in events if e["type"] == "session.error"][-1]
        self.assertEqual((error["type"], error["message"], error["retry_status"]["type"]), ("session_input_failed_error", "the skill cannot be unpacked", "terminal"))
        self.assertEqual((events[-1]["type"], self.status(s)), ("session.status_terminated", "terminated"))
        self.assertEqual(self.refused(409, w.fail, message="again").headers.get("x-should-retry"), "false")
        self.assertIsNone(self.worker(s).poll())

    def test_a_token_whose_item_went_with_its_session_is_nobodys(self):
        s = self.session(fake(BASH))
        w = self.worker(s).claim()
        w.wait_calls()
        self.client.delete(f"/v1/sessions/{s['id']}")
        wait_for("the item is gone", lambda: not self.client.get(w.path())["data"])
        by_token = Worker(w.client, w.environment, w.token)
        by_token.id = w.id
        for call in (w.heartbeat, w.stop, by_token.ack, lambda: w.fail(message="late"), lambda: w.fail(requeue=True)):
            self.rejected(401, "no work item has it", call)

    def test_a_poller_gives_an_item_back(self):
        s = self.session(fake(BASH, "---", "text done"))
        w = self.worker(s)
        w.poll_until()
        self.assertEqual(w.fail(requeue=True)["state"], "stopped")
        next_ = self.worker(s).claim()
        self.assertNotEqual(next_.id, w.id)
        next_.answer(next_.wait_calls()[0])
        self.wait_idle(s)

    # ---- calls ----

    def test_case_2_a_result_before_its_confirmation_is_refused_and_the_call_is_offered_after_it(self):
        agent = {"name": "careful", "model": "m", "tools": [{"type": "agent_toolset_20260401", "default_config": {"permission_policy": {"type": "always_ask"}}}]}
        agent = self.client.post("/v1/agents", agent)["id"]
        env = self.client.post("/v1/environments", {"name": f"e{time.monotonic_ns()}", "config": {"type": "self_hosted"}})["id"]
        for verdict in ("allow", "deny"):
            with self.subTest(verdict):
                s = self.client.post("/v1/sessions", {"agent": agent, "environment_id": env})
                self.client.say(s["id"], fake(BASH, "---", "text done"))
                w = self.worker(s).claim()
                call = w.wait_calls()[0]
                self.assertEqual(call["evaluated_permission"], "ask")
                idle = wait_for("the client must act", lambda: [e for e in self.client.events(s["id"]) if e["type"] == IDLE])
                self.assertEqual(idle[-1]["stop_reason"], {"type": "requires_action", "event_ids": [call["id"]]})
                e = self.refused(400, w.answer, call)
                self.assertIn(call["id"], e.message)
                self.assertIn("user.tool_confirmation", e.message)
                w.stop()
                self.assertIsNone(self.worker(s).poll(), "there is nothing for a worker yet")
                event = {"type": "user.tool_confirmation", "tool_use_id": call["id"], "result": verdict}
                self.client.post(f"/v1/sessions/{s['id']}/events", {"events": [event]})
                if verdict == "deny":
                    self.wait_idle(s)
                    self.assertIn("agent.tool_result", types(self.client.events(s["id"])))
                    continue
                self.assertEqual(self.status(s), "running")
                next_ = self.worker(s).claim()
                next_.answer(call)
                self.wait_idle(s)
                next_.stop()

    def test_case_3_an_interrupt_answers_what_the_worker_runs(self):
        s = self.session(fake(BASH))
        w = self.worker(s).claim()
        call = w.wait_calls()[0]
        self.client.post(f"/v1/sessions/{s['id']}/events", {"events": [{"type": "user.interrupt"}]})
        self.wait_idle(s)
        self.assertEqual(w.open_calls(), [], "runners look for a user.tool_result")
        self.assertEqual([e["is_error"] for e in w.events() if e["type"] == "user.tool_result"], [True])
        e = self.refused(409, w.answer, call)
        self.assertEqual(e.headers.get("x-should-retry"), "false")

    def test_case_4_a_result_sent_again_is_harmless(self):
        s = self.session(fake(BASH, "---", "text done"))
        w = self.worker(s).claim()
        call = w.wait_calls()[0]
        first = w.answer(call, "one")["data"][0]["id"]
        self.assertEqual(w.answer(call, "one")["data"][0]["id"], first)
        self.assertEqual(self.refused(409, w.answer, call, "two").headers.get("x-should-retry"), "false")
        self.wait_idle(s)
        self.assertEqual(types(w.events()).count("user.tool_result"), 1)

    def test_a_custom_tool_is_a_clients_or_the_workers(self):
        tool = {"type": "custom", "name": "weather", "description": "d", "input_schema": {"type": "object"}}
        agent = self.client.post("/v1/agents", {"name": "a", "model": "m", "tools": [tool]})["id"]
        env = self.client.post("/v1/environments", {"name": f"e{time.monotonic_ns()}", "config": {"type": "self_hosted"}})["id"]
        s = self.client.post("/v1/sessions", {"agent": agent, "environment_id": env})
        self.client.say(s["id"], fake('tool weather {"city":"Bonn"}', "---", "text sunny"))
        w = self.worker(s).claim()
        call = w.wait_calls()[0]
        self.wait_idle(s, "requires_action")
        w.answer(call)
        self.wait_idle(s)

    # ---- the rest of the contract ----

    def test_list_read_and_metadata_show_no_secret(self):
        s = self.session("hello")
        w = self.worker(s)
        w.poll_until()
        path = w.path(w.id)
        self.assertEqual(self.client.get(path)["secret"], None)
        self.assertEqual(self.client.post(path, {"metadata": {"a": "1", "b": "2"}})["metadata"], {"a": "1", "b": "2"})
        self.assertEqual(self.client.post(path, {"metadata": {"a": None, "b": "", "c": "3"}})["metadata"], {"c": "3"})
        self.assertEqual(json.loads(self.refused(400, self.client.post, path, {"metadata": {"k" * 65: "v"}}).body)["error"]["details"]["error_code"], "invalid_metadata")
        page = self.client.get(w.path() + "?limit=10")
        self.assertEqual(([x["id"] for x in page["data"]], page["next_page"]), ([w.id], None))
        w.ack()
        w.fail(requeue=True)
        page = self.client.get(w.path() + "?limit=1")
        self.assertEqual(page["data"][0]["metadata"], {"c": "3"}, "a successor keeps it")
        self.assertEqual([x["id"] for x in self.client.get(w.path() + f"?limit=1&page={page['next_page']}")["data"]], [w.id])

    def test_no_token_is_stored_or_logged(self):
        w = self.worker(self.session(fake(BASH, "---", "text done"))).claim()
        w.answer(w.wait_calls()[0])
        w.stop()
        rows = self.server.database.query("SELECT w::text FROM work w") + self.server.database.query("SELECT e::text FROM events e")
        for place in (json.dumps(rows), self.server.log()):
            self.assertNotIn(w.token[11:], place)
            self.assertNotIn(w.work["secret"], place)

    def test_metrics_tell_of_the_queue(self):
        w = self.worker(self.session("hello")).claim()
        text = self.client.raw("GET", "/metrics")[2].decode()
        for name in ('mango_work_items{state="leased"}', "mango_work_oldest_age_seconds", "mango_work_pollers", "mango_work_claims_total", "mango_work_reclaims_total",
                     "mango_work_claim_wait_seconds_count", "mango_http_parked"):  # fmt: skip
            self.assertIn(name, text)
        w.stop()


class Leases(Base):
    """A server whose leases end soon."""

    OPTIONS = {"env": {"MANGO_WORK_TTL": "2s", "MANGO_CALL_TIMEOUT": "0s"}}

    def test_case_5_acknowledged_work_that_nobody_runs_is_offered_again(self):
        s = self.session("one")
        dead = self.worker(s)
        dead.poll_until()
        dead.ack()
        self.client.say(s["id"], "two")
        self.client.say(s["id"], "three")
        next_ = self.worker(s)
        self.assertIsNone(next_.poll(reclaim_older_than_ms=0), "its lease runs from the ack")
        next_.poll_until(timeout=10)
        self.assertNotEqual((next_.id, next_.token), (dead.id, dead.token))
        self.assertIsNone(next_.work["latest_heartbeat_at"])
        next_.ack()
        next_.heartbeat(ttl=60)
        self.refused(412, dead.heartbeat)
        self.assertEqual(dead.stop()["state"], "stopped")
        self.assertEqual(next_.heartbeat()["state"], "active", "the late stop hurts nobody")
        self.wait_idle(s)
        said = [e["content"][0]["text"] for e in self.client.events(s["id"]) if e["type"] == "user.message"]
        self.assertEqual(said, ["one", "two", "three"])
        self.assertEqual(metrics(self.client)["mango_work_expired_total"] >= 1, True)

    def test_a_worker_that_wakes_after_its_lease_is_fenced_and_its_stream_ends(self):
        s = self.session(fake(BASH, "---", "text done"))
        slow = self.worker(s).claim()
        call = slow.wait_calls()[0]
        with slow.client.stream(s["id"], timeout=30) as stream:
            for _ in stream.frames():  # to its end
                pass
        self.refused(401, slow.answer, call)
        self.refused(401, slow.client.get, f"/v1/sessions/{s['id']}")
        next_ = self.worker(s).claim(ttl=60)
        next_.answer(next_.wait_calls()[0], "of the second")
        self.wait_idle(s)
        results = [e for e in next_.events() if e["type"] == "user.tool_result"]
        self.assertEqual([r["content"][0]["text"] for r in results], ["of the second"])

    def test_a_lease_is_kept_by_heartbeats(self):
        s = self.session("hello")
        w = self.worker(s).claim()
        end = time.monotonic() + 4
        while time.monotonic() < end:
            self.assertTrue(w.heartbeat()["lease_extended"])
            time.sleep(0.5)
        self.assertEqual(self.client.get(w.path(w.id))["state"], "active")

    def test_the_end_of_a_graceful_stop_comes_with_the_lease(self):
        s = self.session(fake(BASH, "---", "text done"))
        w = self.worker(s).claim()
        w.wait_calls()
        self.client.post(w.path(w.id, "stop"), {})
        next_ = self.worker(s).claim(ttl=60)
        self.assertEqual(self.client.get(w.path(w.id))["state"], "stopped")
        next_.answer(next_.wait_calls()[0])
        self.wait_idle(s)


class Servers(unittest.TestCase):
    """More than one server, or one that changes."""

    def test_a_poll_on_one_node_is_woken_by_another_and_a_claims_end_closes_the_streams_of_both(self):
        with replicas(sandbox=None) as (_, (a, b)):
            s = a.client.new_session(environment="self_hosted")
            w = Worker(b.client, s["environment_id"])
            with concurrent.futures.ThreadPoolExecutor() as pool:
                for _ in range(5):
                    polled = pool.submit(w.poll, block_ms=999)
                    wait_for("the poll waits", lambda: metrics(b.client)["mango_http_parked"] >= 1 or polled.done(), every=0.01)
                    began = time.monotonic()
                    if not polled.done():
                        a.client.say(s["id"], "hello")
                    if polled.result(20):
                        break
            self.assertTrue(w.work)
            self.assertLess(time.monotonic() - began, 0.9)
            w.ack()
            w.heartbeat()
            with w.client.stream(s["id"], timeout=20) as stream:
                a.client.post(w.path(w.id, "stop"), {"force": True})
                for _ in stream.frames():
                    pass

    def test_an_item_that_was_claimed_before_a_restart_keeps_working_after_it(self):
        with Mangod(sandbox=None) as server:
            s = server.client.new_session(environment="self_hosted")
            server.client.say(s["id"], "run: echo hi")
            w = Worker(server.client, s["environment_id"]).claim()
            call = w.wait_calls()[0]
            server.restart()
            self.assertTrue(w.heartbeat()["lease_extended"])
            w.answer(call)
            wait_for("the turn ends", lambda: types(w.events())[-1] == IDLE)

    def test_calls_that_no_worker_answers_are_given_up(self):
        with Mangod(sandbox=None, env={"MANGO_CALL_TIMEOUT": "2s"}) as server:
            s = server.client.new_session(environment="self_hosted")
            server.client.say(s["id"], "run: echo hi")
            wait_for("the turn ends", lambda: types(server.client.events(s["id"]))[-1] == IDLE)
            events = server.client.events(s["id"])
            result = [e for e in events if e["type"] == "user.tool_result"][0]
            self.assertTrue(result["is_error"])
            self.assertIn("MANGO_CALL_TIMEOUT", result["content"][0]["text"])
            self.assertEqual(metrics(server.client)["mango_call_timeouts_total"], 1)

    def test_pollers_that_wait_hold_no_thread_and_no_connection(self):
        n = 300
        with Mangod(sandbox=None, env={"MANGO_REQUEST_THREADS": "2", "MANGO_ENGINE_THREADS": "2"}) as server:
            s = server.client.new_session(environment="self_hosted")
            found, stop = [], threading.Event()

            def poll(i):
                w = Worker(server.client, s["environment_id"])
                while not stop.is_set() and not found:
                    if w.poll(worker_id=f"w{i}", block_ms=999):
                        found.append(w)

            with concurrent.futures.ThreadPoolExecutor(n) as pool:
                jobs = [pool.submit(poll, i) for i in range(n)]
                wait_for("most of them wait", lambda: metrics(server.client)["mango_http_parked"] > n * 0.5)
                for _ in range(20):
                    self.assertEqual(server.client.get(f"/v1/sessions/{s['id']}")["status"], "idle")
                busy = server.database.query(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{server.database.name}'")[0][0]
                self.assertLessEqual(int(busy), 2 + 2 + 8)
                server.client.say(s["id"], "hello")
                wait_for("one of them has it", lambda: found)
                stop.set()
                for job in jobs:
                    job.result(30)
            self.assertEqual(len(found), 1)


if __name__ == "__main__":
    main()
