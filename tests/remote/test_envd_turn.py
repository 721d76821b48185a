"""A session's turn on each backend of this kind: bash, a file, kill -9 of the server, the file again, and nothing left on the service."""
import tempfile
import unittest

import envd_rig
from harness import FakeModel, Mangod, main, wait_for
from outputs_rig import check_outputs
from sandbox import EUNSUPPORTED, Driver, label
from test_sandboxes import run, text_of

envd_rig.need_namespaces()


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
        """Case 49 too: what keeps a sandbox is a turn, also between its calls, while the model thinks."""
        bash = 'tool bash {"command":"echo done"}'
        with envd_rig.Peer("e2b", envd_rig.scripts()) as peer, FakeModel() as model:
            with Mangod(sandbox="e2b", model_url=model.url, env={**peer.env, "E2B_IDLE_TIMEOUT": "30s"}) as m:
                ends = lambda: {s["sandboxID"]: s["endAt"] for s in peer.sandboxes()}
                last = lambda session: (m.client.events(session["id"]) or [{"type": ""}])[-1]["type"]
                idle, busy = m.client.new_session(), m.client.new_session()
                m.client.say(idle["id"], f"#fake\n{bash}\n---\ntext end")
                wait_for("the first turn ends", lambda: last(idle) == "session.status_idle", timeout=40)
                (idle_box,) = ends()
                m.client.say(busy["id"], f"#fake\n{bash}\n---\ndelay 60000\ntext end")
                wait_for("the model thinks", lambda: last(busy) == "span.model_request_start" and len(ends()) == 2, timeout=40)
                before = ends()
                (busy_box,) = set(before) - {idle_box}
                wait_for("its timer is moved", lambda: ends()[busy_box] > before[busy_box], timeout=25)
                self.assertEqual(ends()[idle_box], before[idle_box])

    def test_case_49_a_sandbox_that_its_timer_ended_is_an_error_and_never_replaced(self):
        with envd_rig.Peer("e2b", envd_rig.scripts()) as peer, Mangod(sandbox="e2b", env=peer.env) as m:
            session = m.client.new_session()
            self.assertIn("made", text_of(run(m, session, "echo kept > file; echo made")))
            peer.end(peer.sandboxes()[0]["sandboxID"])  # what the service does when the timer is over
            for restarted in (False, True):
                if restarted:
                    m.restart()
                with self.subTest(restarted=restarted):
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
