"""The sandbox `docker` behind a proxy that cuts its connections to the Engine."""
from docker_rig import Boxes, under_engine
from harness import main, wait_for
from sandbox import OK

under_engine(__file__)


class Cut(Boxes):
    def setUp(self):
        self.on_a_wire()
        super().setUp()

    def test_case_57_a_cut_stream_is_no_success_and_nothing_starts_twice(self):
        n = self.d.send("exec", self.box, 60000, 0, "echo started >>count; sleep 3; echo ended >>count; echo whole", "")
        wait_for("the command", lambda: self.d.call("read", self.box, "count", 0, 100).get("content") == "started\n")
        self.wire.cut()
        done = self.d.wait(n)
        if done["status"] == OK and not done["unknown"]:  # the stream was taken up again
            self.assertEqual((done["exited"], done["code"], done["out"]), (True, 0, "whole\n"), done)
        else:
            self.assertFalse(done["exited"], done)
        self.until_ok("exec", self.box, 30000, 0, "true", "")
        self.assertEqual(self.d.out(self.box, "grep -c started count"), "1")

    def test_case_47_the_end_of_a_stream_is_never_success(self):
        for script in ("echo half; sleep 30", "exec sleep 30", "sleep 30 | cat"):
            n = self.d.send("exec", self.box, 60000, 0, f"touch begun; {script}", "")
            wait_for("the command", lambda: self.d.call("stat", self.box, "begun", 0)["status"] == OK)
            self.wire.cut()
            done = self.d.wait(n)
            self.assertFalse(done["status"] == OK and done["exited"] and done["code"] == 0, (script, done))
            self.until_ok("exec", self.box, 30000, 0, "rm -f begun", "")


if __name__ == "__main__":
    main()
