"""A session's turn on each backend of this kind: bash, a file, kill -9 of the server, the file again, and nothing left on the service."""
import unittest

import envd_rig
from harness import Mangod, main, wait_for
from test_sandboxes import run, text_of

envd_rig.need_namespaces()


class Turn(unittest.TestCase):
    def whole(self, flavor):
        with envd_rig.Peer(flavor, envd_rig.scripts()) as peer, Mangod(sandbox=flavor, env=peer.env) as m:
            session = m.client.new_session()
            self.assertIn("written", text_of(run(m, session, "echo kept > file; (sleep 600 &); echo written")))
            self.assertEqual([s["state"] for s in peer.sandboxes()], ["running"])
            m.kill()
            m.start()
            self.assertIn("kept", text_of(run(m, session, "cat file")))
            self.assertEqual(len(peer.sandboxes()), 1)
            m.client.delete(f"/v1/sessions/{session['id']}")
            wait_for("the service has nothing left", lambda: peer.sandboxes() == [], timeout=40)
            log = m.process.log()
            self.assertNotIn(peer.key, log)

    def test_through_e2b(self):
        self.whole("e2b")

    def test_through_cube(self):
        self.whole("cube")


if __name__ == "__main__":
    main()
