"""mango-worker against mangod: tools, confirmations, the lease, the ends. The proxy that cuts and delays is in test_worker_network.py."""
import json
import os
import signal
import time

from harness import BUILD, main, wait_for
from rig import fill
from worker_rig import ENDS_THE_SECOND_TIME, GATE, IDLE_MS, NEVER, TURN_S, WorkerCase, bash


class Serving(WorkerCase):
    def test_all_six_tools(self):
        self.start()
        d, s = self.folder, self.new()
        events = self.turn(
            s,
            'tool write {"file_path":"%s/a.txt","content":"one\\ntwo\\n"}' % d,
            'tool bash {"command":"cd /; echo $((6*7)); X=kept"}',
            "---",
            'tool edit {"file_path":"a.txt","old_string":"two","new_string":"three"}',
            'tool read {"file_path":"%s/a.txt"}' % d,
            'tool grep {"pattern":"three","path":"%s"}' % d,
            'tool glob {"pattern":"*.txt"}',
            'tool bash {"command":"echo $X; pwd"}',
            "---",
            "text all six",
        )
        results = self.results(events)
        self.assertFalse(any(r[1] for r in results), results)
        self.assertEqual(self.read("a.txt"), "one\nthree\n")
        self.assertEqual([results[1][0], results[6][0]], ["42", "kept\n/"])
        self.assertIn("three", results[3][0])
        self.assertIn("a.txt:2:three", results[4][0])
        self.assertEqual(results[5][0], d + "/a.txt")
        self.wait_left(s)

    def test_tools_see_nothing_of_what_the_worker_was_told(self):
        w = self.start()
        s = self.new()
        results = self.results(self.turn(s, 'tool bash {"command":"env; cat /proc/$PPID/environ /proc/%d/environ /proc/%d/cmdline | tr \'\\\\0\' \'\\\\n\'; echo end"}' % (w.process.pid, w.process.pid), "---", "text done"))
        self.assertIn("end", results[0][0])
        self.assertNotIn(self.key, results[0][0])
        self.assertNotIn("ANTHROPIC_ENVIRONMENT_KEY=" + self.key[:8], results[0][0])

    def test_a_confirmation_allows_one_call_and_denies_another(self):
        self.start()
        s = self.new(default_config={"permission_policy": {"type": "always_ask"}})
        self.say(s, 'tool bash {"command":"echo confirmed; echo x >> ran"}', 'tool bash {"command":"echo x >> denied"}', "---", "text done")
        ids = self.wait_end(s, reason="requires_action")[-1]["stop_reason"]["event_ids"]
        self.assertEqual(len(ids), 2)
        self.wait_held(s, IDLE_MS / 1000)  # held calls put the end of the idle session off
        self.assertFalse(os.path.exists(os.path.join(self.folder, "ran")))
        self.send(s, {"type": "user.tool_confirmation", "tool_use_id": ids[0], "result": "allow"}, {"type": "user.tool_confirmation", "tool_use_id": ids[1], "result": "deny"})
        results = {e["tool_use_id"]: e for e in self.wait_end(s) if e["type"].endswith("tool_result")}
        self.assertIn("confirmed", results[ids[0]]["content"][0]["text"])
        self.assertEqual((results[ids[1]]["type"], results[ids[1]]["is_error"]), ("agent.tool_result", True))
        self.assertEqual(self.read("ran"), "x\n")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "denied")))
        self.check_pairs(s)

    def test_a_confirmation_that_came_while_no_worker_was_there_counts(self):
        s = self.new(default_config={"permission_policy": {"type": "always_ask"}})
        self.say(s, 'tool bash {"command":"echo confirmed"}', "---", "text done")
        ids = self.wait_end(s, reason="requires_action")[-1]["stop_reason"]["event_ids"]
        self.send(s, {"type": "user.tool_confirmation", "tool_use_id": ids[0], "result": "allow"})
        self.start()
        self.assertEqual(self.results(self.wait_end(s)), [("confirmed", False)])

    def test_messages_in_the_idle_window_and_after_it(self):
        self.start()
        s = self.new()
        for i in range(3):  # at once, near the end of the window, and when the worker has left
            self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo message %d"}' % i, "---", "text done")), [(f"message {i}", False)])
            if i == 0:
                time.sleep(IDLE_MS / 1000 * 0.95)  # where the race is: whichever side wins, it is served
            else:
                self.wait_left(s)

    def test_case_10_several_gates_in_one_answer(self):
        self.start()
        s = self.new(configs=[{"name": "bash", "permission_policy": {"type": "always_ask"}}])
        self.say(s, *('tool bash {"command":"echo gate %d"}' % i for i in range(3)), 'tool write {"file_path":"free","content":"x"}', "---", "text done")
        ids = wait_for("three gates wait", lambda: (lambda e: e["stop_reason"]["event_ids"] if len(e["stop_reason"].get("event_ids", [])) == 3 else None)(self.wait_end(s, reason="requires_action")[-1]))
        self.there("free")
        for i, verdict in ((1, "allow"), (0, "deny"), (2, "allow")):
            self.send(s, {"type": "user.tool_confirmation", "tool_use_id": ids[i], "result": verdict})
        results = {e["tool_use_id"]: e for e in self.wait_end(s) if e["type"].endswith("tool_result")}
        self.assertEqual([results[i]["content"][0]["text"] for i in (ids[1], ids[2])], ["gate 1", "gate 2"])
        self.assertTrue(results[ids[0]]["is_error"])
        self.check_pairs(s)

    def test_a_history_of_over_1000_events(self):
        s = self.new()
        fill(self.server.database, s, 2300, 100)
        self.start()
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo behind 2300"}', "---", "text done")), [("behind 2300", False)])

    def test_a_session_that_is_terminated_or_deleted_is_left_at_once(self):
        self.start()
        s = self.new()
        self.turn(s, "text hello")
        self.client.post(f"/v1/sessions/{s}/archive")
        self.wait_left(s)


class Ends(WorkerCase):
    def test_case_03_a_call_that_an_interrupt_kills_is_ended_and_not_run_again(self):
        self.start()
        s = self.new()
        self.say(s, bash(f"echo x >> counter; {NEVER}; echo y >> counter"), "---", "text never")
        self.there("never")
        self.send(s, {"type": "user.interrupt"})
        self.wait_end(s)
        self.nobody_waits()
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo next"}', "---", "text done"))[-1], ("next", False))
        self.wait_left(s)
        self.turn(s, "text a fresh runner reads the history")
        self.assertEqual(self.read("counter"), "x\n")
        self.check_pairs(s)

    def test_a_lost_lease_goes_to_a_second_worker_and_the_first_is_fenced(self):
        first = self.start()
        s = self.new()
        self.say(s, bash("echo run >> runs; [ -p go ] || mkfifo go; touch begun; read line < go; echo done"), "---", "text done")
        self.there("begun")
        first.signal(signal.SIGSTOP)
        self.start()
        wait_for("the second runs it too", lambda: self.read("runs") == "run\nrun\n", TURN_S)
        gate = os.open(os.path.join(self.folder, "go"), os.O_RDWR)  # held: who opens it late finds its line too
        self.addCleanup(os.close, gate)
        os.write(gate, b"\n\n")
        self.wait_end(s)
        first.signal(signal.SIGCONT)
        wait_for("the first notices", lambda: "lease lost" in first.log(), 20)
        self.check_pairs(s)
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo on"}', "---", "text done"))[-1], ("on", False))
        self.assertGreaterEqual(len(self.items(s)), 2)
        self.assertEqual(first.end(), 0)

    def test_a_shutdown_in_mid_tool_sends_the_error_result_and_stops_the_item(self):
        w = self.start()
        s = self.new()
        self.say(s, bash(f"{NEVER}; touch ended"), "---", "text told")
        self.there("never")
        began = time.monotonic()
        self.assertEqual(w.end(), 0)
        self.assertLess(time.monotonic() - began, 30)
        results = self.results(self.wait_end(s))
        self.assertEqual([r[1] for r in results], [True])
        self.assertIn("shut down", results[0][0])
        self.assertNotIn("active", self.states(s))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "ended")))

    def test_an_idle_worker_ends_at_once(self):
        w = self.start()
        wait_for("it polls", lambda: "polling" in w.log())
        began = time.monotonic()
        self.assertEqual(w.end(), 0)
        self.assertLess(time.monotonic() - began, 5)

    def test_a_graceful_stop_by_the_operator_ends_the_service_of_the_session(self):
        self.start()
        s = self.new()
        self.say(s, bash(f"echo x >> runs; {NEVER}"), "---", "text told")
        self.there("never")
        item = self.items(s)[0]["id"]
        self.client.post(f"/v1/environments/{self.environment}/work/{item}/stop", {})
        results = self.results(self.wait_end(s))
        self.assertIn("shut down", results[0][0])
        self.assertEqual(self.read("runs"), "x\n")

    def test_drain_serves_what_there_is_and_ends(self):
        sessions = [self.new() for _ in range(3)]
        for s in sessions:
            self.say(s, 'tool bash {"command":"echo drained"}', "---", "text done")
        w = self.start("--drain")
        self.assertEqual(w.wait(60), 0)
        for s in sessions:
            self.assertEqual(self.results(self.wait_end(s)), [("drained", False)])

    def test_a_claim_that_nobody_acknowledged_is_taken_by_a_second_worker(self):
        s = self.new()
        self.say(s, 'tool bash {"command":"echo mine"}', "---", "text done")
        path = f"/v1/environments/{self.environment}/work/poll"
        stale = wait_for("a claim that is never acknowledged", lambda: self.client.get(path))
        self.start("--reclaim-older-than", "200ms")
        self.assertEqual(self.results(self.wait_end(s)), [("mine", False)])
        self.assertNotIn(stale["id"], [w["id"] for w in self.items(s) if w["acknowledged_at"]])

    def test_a_worker_that_is_killed_leaves_the_session_to_the_next(self):
        w = self.start()
        s = self.new()
        self.say(s, bash(ENDS_THE_SECOND_TIME), "---", "text done")
        self.there("never")
        w.kill()
        self.start()
        self.wait_end(s)
        self.check_pairs(s)

    def test_case_37_a_tool_outlives_the_lease_three_times(self):
        self.start()
        s = self.new()
        self.say(s, bash(f"echo x >> runs; {GATE}; echo late"), "---", "text done")
        self.there("begun")
        self.wait_held(s, 3 * self.TTL_S)
        self.pass_gate()
        self.assertEqual(self.results(self.wait_end(s)), [("late", False)])
        self.assertEqual(self.read("runs"), "x\n")
        self.assertEqual(len(self.items(s)), 1, "one item served it all")

    def test_case_38_heartbeats_are_not_starved_by_a_tool(self):
        self.start()
        s = self.new()
        hungry = "for i in 1 2 3 4 5 6; do timeout %d sh -c 'while :; do :; done' & done; wait; echo fed" % (2 * self.TTL_S)
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"%s"}' % hungry, "---", "text done")), [("fed", False)])
        self.assertEqual(len(self.items(s)), 1, "the lease was never lost")

    def test_a_wrong_key_ends_the_worker_with_78_and_the_servers_words(self):
        w = self.start(key="mango-wrong")
        self.assertEqual(w.wait(), 78)
        self.assertIn("401", w.log())
        w = self.start(key=None)
        self.assertEqual(w.wait(), 78)
        self.assertIn("ANTHROPIC_ENVIRONMENT_KEY", w.log())


class Program(WorkerCase):
    """libmango-worker in a program of its own."""

    def test_custom_tools_in_c(self):
        self.start(program="drive-worker")
        s = self.new()
        events = self.turn(s, 'tool weather {"city":"Bonn"}', "tool picture {}", "tool fails {}", "tool silent {}", "---", "text done")
        results = [e for e in events if e["type"] == "user.custom_tool_result"]
        self.assertEqual(len(results), 4)
        self.assertTrue(results[0]["content"][0]["text"].startswith('sunny in {"city":"Bonn"}, asked by ' + results[0]["custom_tool_use_id"] + " of " + s))
        self.assertEqual([b["type"] for b in results[1]["content"]], ["text", "image"])
        self.assertEqual((results[2]["content"][0]["text"], results[2]["is_error"]), ("it broke", True))
        self.assertEqual((results[3]["content"][0]["text"], results[3]["is_error"]), ("(no output)", False))

    def test_a_tool_of_another_client_is_left_to_it(self):
        self.start(program="drive-worker")
        s = self.new()
        self.say(s, "tool elsewhere {}", 'tool weather {"city":"Ulm"}', "---", "text done")
        events = self.wait_end(s, reason="requires_action")
        call = next(e for e in events if e["type"] == "agent.custom_tool_use" and e["name"] == "elsewhere")
        wait_for("the worker's own is answered", lambda: self.wait_end(s, reason="requires_action")[-1]["stop_reason"]["event_ids"] == [call["id"]])
        self.send(s, {"type": "user.custom_tool_result", "custom_tool_use_id": call["id"], "content": [{"type": "text", "text": "by me"}]})
        self.wait_end(s)
        self.check_pairs(s)

    def test_a_tool_that_takes_too_long_is_cancelled(self):
        self.start(program="drive-worker")
        s = self.new()
        results = self.results(self.turn(s, "tool slow {}", "---", "text done"))
        self.assertEqual(results, [("slow did not end within 1 s and was stopped", True)])

    def test_a_tool_of_the_program_replaces_a_built_in_one(self):
        self.start(program="drive-worker", env={"WORKER_OWN_BASH": "1"})
        s = self.new()
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo"}', 'tool write {"file_path":"w","content":"x"}', "---", "text done"))[0], ("a shell of the program's own", False))
        self.assertEqual(self.read("w"), "x")


class HandedOver(WorkerCase):
    """run, and poll --on-work."""

    def script(self, *lines):
        path = os.path.join(self.folder, "..on-work")
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + "\n".join(lines) + "\n")
        os.chmod(path, 0o755)
        return path

    def worker_path(self):
        return os.path.join(BUILD, "mango-worker")

    def test_a_script_gets_the_item_and_runs_the_worker_without_the_key(self):
        script = self.script(f"cd {self.folder}", "env > ..script-env", "cat > ..item", f"exec {self.worker_path()} run --workdir {self.folder} --max-idle 500ms")
        w = self.start("--on-work", script, env={"ANTHROPIC_WORK_LAST_HEARTBEAT": "another item's"})
        s = self.new()
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo by the script"}', "---", "text done")), [("by the script", False)])
        self.wait_left(s)
        self.assertIn("runs tool=bash", w.log())
        env = self.read("..script-env")
        self.assertNotIn(self.key, env)
        self.assertNotIn("LAST_HEARTBEAT", env)
        self.assertIn(f"ANTHROPIC_SESSION_ID={s}", env)
        self.assertEqual(json.loads(self.read("..item"))["data"]["id"], s)

    def test_case_06_a_script_that_does_not_wait_for_its_child_loses_nothing(self):
        # The child begins when the script has ended, and with it the only writer of the FIFO.
        over = os.path.join(self.folder, "..over")
        script = self.script(f"mkfifo {over}", f"(cat {over}; exec {self.worker_path()} run --workdir {self.folder} --max-idle 500ms) &", f"exec 9> {over}", "exit 0")
        w = self.start("--on-work", script)
        s = self.new()
        self.assertEqual(self.results(self.turn(s, 'tool bash {"command":"echo late but served"}', "---", "text done")), [("late but served", False)])
        self.assertNotIn("was over before", w.log())

    def test_case_06_a_child_whose_item_was_stopped_says_so_and_ends_with_3(self):
        s = self.new()
        self.say(s, 'tool bash {"command":"echo served after all"}', "---", "text done")
        path = f"/v1/environments/{self.environment}/work"
        item = wait_for("a claim", lambda: self.client.get(path + "/poll"))
        self.client.post(f"{path}/{item['id']}/ack")
        self.client.post(f"{path}/{item['id']}/stop", {"force": True})
        env = {"ANTHROPIC_WORK_ID": item["id"], "ANTHROPIC_SESSION_ID": s, "ANTHROPIC_WORK_SECRET": item["secret"], "ANTHROPIC_ENVIRONMENT_KEY": None}
        child = self.start(command="run", env=env)
        self.assertEqual(child.wait(), 3)
        self.assertIn("over before its first heartbeat", child.log())
        self.assertIn("supervise", child.log())
        self.assertNotIn(item["secret"], child.log())
        self.start()
        self.assertEqual(self.results(self.wait_end(s)), [("served after all", False)])

    def claimed(self, session):
        """An item of the session that a dispatcher claimed, acknowledged and sent the first heartbeat of: its environment for `run`, and that heartbeat's time."""
        path = f"/v1/environments/{self.environment}/work"
        item = wait_for("a claim", lambda: self.client.get(path + "/poll"))
        self.client.post(f"{path}/{item['id']}/ack")
        beat = self.client.post(f"{path}/{item['id']}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT")["last_heartbeat"]
        return {"ANTHROPIC_WORK_ID": item["id"], "ANTHROPIC_SESSION_ID": session, "ANTHROPIC_WORK_SECRET": item["secret"], "ANTHROPIC_ENVIRONMENT_KEY": None}, beat

    def test_run_goes_on_with_a_lease_that_its_dispatcher_began(self):
        s = self.new()
        self.say(s, 'tool bash {"command":"echo went on"}', "---", "text done")
        env, beat = self.claimed(s)
        late = self.start(command="run", env={**env, "ANTHROPIC_WORK_LAST_HEARTBEAT": "2026-01-01T00:00:00.000000Z"})
        self.assertEqual(late.wait(), 3)  # a time that was never one of the lease's: fenced, and nothing was sent
        self.start("--max-idle", "300ms", command="run", env={**env, "ANTHROPIC_WORK_LAST_HEARTBEAT": beat})
        self.assertEqual(self.results(self.wait_end(s)), [("went on", False)])

    def test_run_names_what_is_missing(self):
        w = self.start(command="run")
        self.assertEqual(w.wait(), 78)
        self.assertIn("ANTHROPIC_SESSION_ID", w.log())

    def test_a_script_that_cannot_be_run_ends_the_poller(self):
        w = self.start("--on-work", "/nonexistent/script")
        s = self.new()
        self.say(s, "text hello")
        self.assertEqual(w.wait(), 78)
        self.assertIn("/nonexistent/script cannot be run", w.log())


if __name__ == "__main__":
    main()
