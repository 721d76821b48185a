"""The states of a session: semantics SM1 to SM3, UP5 (docs/semantics.md)."""
import time

from harness import main, wait_for
from turns import IDLE, TurnCase, custom_result, fake, interrupt, message, of

STATUS = {"session.status_idle": "idle", "session.status_running": "running", "session.status_rescheduled": "rescheduling", "session.status_terminated": "terminated"}


class States(TurnCase):
    def test_sm2_active_time_grows_only_while_the_session_runs(self):
        sid, (call,) = self.parked()
        before = self.client.get(f"/v1/sessions/{sid}")["stats"]["active_seconds"]
        time.sleep(0.5)  # the time that must not be counted
        self.assertEqual(self.client.get(f"/v1/sessions/{sid}")["stats"]["active_seconds"], before)
        self.send(sid, interrupt())
        self.until(sid, message(fake("delay 600", "text done")))
        stats = self.client.get(f"/v1/sessions/{sid}")["stats"]
        self.assertGreaterEqual(stats["active_seconds"], before + 0.6)
        self.assertGreater(stats["duration_seconds"], stats["active_seconds"])
        self.assertTrue(call)

    def test_sm3_the_status_and_the_last_status_event_agree_at_every_moment(self):
        sid = self.new(policy="always_allow")
        look = (
            f"SELECT st.status, (SELECT type FROM events e WHERE e.session_id = '{sid}' AND type LIKE 'session.status%' ORDER BY seq DESC LIMIT 1)"
            f" FROM session_state st WHERE st.session_id = '{sid}'"
        )
        self.send(sid, message(fake("@1 status 529 full", 'tool bash {"command":"sleep 0.2"}', "---", "text done")), message("again"))
        seen = set()

        def over():
            status, last = self.server.database.query(look)[0]
            self.assertEqual(status, STATUS[last])
            seen.add(status)
            return status == "idle"

        wait_for("the turns end", over)
        self.assertIn("rescheduling", seen)
        self.assertTrue(of(self.events(sid), IDLE))

    def test_up5_a_session_that_runs_is_neither_archived_nor_deleted(self):
        sid = self.new()
        path = f"/v1/sessions/{sid}"
        self.send(sid, message(fake("silence")))
        self.rejected(409, "is running and cannot be archived; send a user.interrupt", self.client.post, path + "/archive")
        self.rejected(409, "is running and cannot be deleted; send a user.interrupt", self.client.delete, path)
        self.assertEqual((self.status(sid), of(self.events(sid), IDLE)), ("running", []))
        self.send(sid, interrupt())
        first = self.client.post(path + "/archive")
        self.assertEqual(self.client.post(path + "/archive"), first, "the second time it is archived already")
        self.assertEqual(self.client.delete(path)["type"], "session_deleted")

    def test_sm1_nothing_leaves_terminated(self):
        sid, (call,) = self.parked()
        self.client.post(f"/v1/sessions/{sid}/archive")
        before = self.events(sid)
        for event in (message("x"), interrupt(), custom_result(call)):
            self.refused(409, sid, event)
        self.assertEqual(self.events(sid), before)
        self.assertEqual(self.status(sid), "terminated")


if __name__ == "__main__":
    main()
