"""A session's turn on each backend of this kind: bash, a file, kill -9 of the server, the file again, and nothing left on the service."""
import concurrent.futures
import tempfile
import unittest

import envd_rig
from fault_proxy import FaultProxy
from harness import FakeModel, Mangod, main, wait_for
from outputs_rig import check_outputs
from sandbox import EUNSUPPORTED, Driver, label
from test_sandboxes import run, text_of

envd_rig.need_namespaces()
TIMER_S = 30  # the shortest that the backends take


class Turn(unittest.TestCase):
    def whole(self, flavor):
        with envd_rig.Peer(flavor, envd_rig.scripts()) as peer, Mangod(sandbox=flavor, env={**peer.env, "MANGO_LOG_LEVEL": "debug"}) as m:
            session = m.client.new_session()
            self.assertIn("written", text_of(run(m, session, "echo kept > file; (sleep 600 &); echo written")))
            self.assertEqual([s["state"] for s in peer.sandboxes()], ["running"])
            first = m.process.log()
            m.kill()
            m.start()
            self.assertIn("kept", text_of(run(m, session, "cat file")))
            self.assertEqual(len(peer.sandboxes()), 1)
            peer.duplicate()
            m.client.delete(f"/v1/sessions/{session['id']}")
            wait_for("the service has nothing left", lambda: peer.sandboxes() == [], timeout=40)
            self.assertNotIn(peer.key, first + m.process.log())

    def settled(self, flavor):
        with envd_rig.Peer(flavor, envd_rig.scripts()) as peer, Mangod(sandbox=flavor, env={**peer.env, "MANGO_SANDBOX_ORPHAN_GRACE": "1s"}) as m:
            session = m.client.new_session()
            self.assertIn("written", text_of(run(m, session, "echo kept > file; echo written")))
            bound = [s["sandboxID"] for s in peer.sandboxes()]
            peer.duplicate()
            wait_for("one is left", lambda: len(peer.sandboxes()) < 2, timeout=60)
            self.assertEqual([s["sandboxID"] for s in peer.sandboxes()], bound)
            self.assertIn("kept", text_of(run(m, session, "cat file")))

    def test_a_second_sandbox_of_a_live_session_goes_and_the_first_stays(self):
        for flavor in ("e2b", "cube"):
            with self.subTest(flavor):
                self.settled(flavor)

    def test_a_sandbox_that_was_made_and_cannot_be_used_does_not_stay(self):
        for flavor in ("e2b", "cube"):
            with self.subTest(flavor), envd_rig.Peer(flavor, envd_rig.scripts()) as peer, tempfile.NamedTemporaryFile("w", encoding="ascii") as program:
                program.write("exit 3\n")
                program.flush()
                with Driver(flavor, {**peer.env, f"{flavor.upper()}_RBOX": program.name}) as d:
                    answer = d.call("create", label(), d.owner, "none", 0, 0, 0, 0)
                self.assertEqual(answer["status"], EUNSUPPORTED, answer)
                self.assertIn("our program does not run in the sandbox (exit code 3", answer["error"])
                self.assertEqual(peer.sandboxes(), [])

    def test_case_60_a_running_turn_moves_the_timer_and_an_idle_session_does_not(self):
        """Case 49 too: what keeps a sandbox is a turn, also between its calls, while the model thinks; for longer than the timer."""
        moves = {"e2b": ("POST", "/sandboxes/%s/timeout"), "cube": ("GET", "49983-%s/health")}
        with concurrent.futures.ThreadPoolExecutor(len(moves)) as pool:
            for flavor, done in {f: pool.submit(self.timed, f, *moves[f]) for f in moves}.items():
                with self.subTest(flavor):
                    done.result()

    def timed(self, flavor, method, moved):
        bash = 'tool bash {"command":"echo x >>count; wc -l <count"}'
        with envd_rig.Peer(flavor, envd_rig.scripts()) as peer, FaultProxy(peer.control, peer.data) as proxy, FakeModel() as model:
            env = {**peer.env, **envd_rig.through(flavor, proxy), f"{flavor.upper()}_IDLE_TIMEOUT": f"{TIMER_S}s"}
            with Mangod(sandbox=flavor, model_url=model.url, env=env) as m:
                shown = lambda session, kind: [e for e in m.client.events(session["id"]) if e["type"] == kind]
                states = lambda: {s["sandboxID"]: s["state"] for s in peer.sandboxes()}
                idle, busy = m.client.new_session(), m.client.new_session()
                m.client.say(idle["id"], f"#fake\n{bash}\n---\ntext end")
                wait_for("the first turn ends", lambda: shown(idle, "session.status_idle"), timeout=60)
                (idle_box,) = states()
                m.client.say(busy["id"], f"#fake\n{bash}\n---\ndelay {(TIMER_S + 6) * 1000}\n{bash}\n---\ntext end")
                wait_for("the model thinks", lambda: shown(busy, "agent.tool_result"), timeout=60)
                (busy_box,) = set(states()) - {idle_box}
                quiet = len(proxy.log)
                wait_for("the other one's timer is over", lambda: states()[idle_box] == "paused", timeout=3 * TIMER_S)
                self.assertEqual(states()[busy_box], "running")
                wait_for("the turn ends", lambda: shown(busy, "session.status_idle"), timeout=3 * TIMER_S)
                self.assertEqual([e["content"][0]["text"].strip() for e in shown(busy, "agent.tool_result")], ["1", "2"])
                asked = [(r["method"], r["headers"]["host"].split(".")[0] + r["path"]) for r in proxy.log[quiet:]]
                self.assertGreaterEqual(sum(a[0] == method and a[1].endswith(moved % busy_box) for a in asked), 2, asked)
                self.assertEqual([a for a in asked if a[1].endswith("/connect")], [], "it was never woken")

    def test_case_49_a_sandbox_that_its_timer_ended_is_an_error_and_never_replaced(self):
        for flavor in ("e2b", "cube"):
            with envd_rig.Peer(flavor, envd_rig.scripts()) as peer, Mangod(sandbox=flavor, env=peer.env) as m:
                session = m.client.new_session()
                self.assertIn("made", text_of(run(m, session, "echo kept > file; echo made")))
                peer.end(peer.sandboxes()[0]["sandboxID"])  # what the service does when the timer is over
                for restarted in (False, True):
                    if restarted:
                        m.restart()
                    with self.subTest(flavor, restarted=restarted):
                        self.assertIn("lost", str(run(m, session, "ls file || echo empty")))
                        self.assertEqual([], peer.sandboxes())

    def test_ex14_what_a_command_leaves_as_an_output_is_published_once(self):
        """By the folder's own name: the peer's sandboxes have no /mnt, and their user may make none."""
        with envd_rig.Peer("e2b", envd_rig.scripts()) as peer, Mangod(sandbox="e2b", env=peer.env) as m:
            check_outputs(self, m.client, lambda session, command: run(m, {"id": session}, command), "/workspace/.session/outputs")

    def test_through_e2b(self):
        self.whole("e2b")

    def test_through_cube(self):
        self.whole("cube")


if __name__ == "__main__":
    main()
