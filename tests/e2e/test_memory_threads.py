"""Threads of one session that write a memory store at once, in the sandbox that they share: nothing is lost, of theirs or of others, and who changed what others
had changed is told."""
import os

from harness import FakeModel, Mangod, main, wait_for
from test_memory_mounts import Mounts
from threads import Team, task
from turns import TOOLSET, TURN_S, fake, message, of, shown

DONE = ("---", "text done")


class Threads(Mounts):
    def setUp(self):
        super().setUp()
        self.team = Team(self.client)

    def session(self):
        """A session whose coordinator has the agents one and two."""
        return self.team.session("one", "two", tools=[TOOLSET], resources=[{"type": "memory_store", "memory_store_id": self.store}])

    def start(self, sid, **scripts):
        """Agent name -> its script; all at once."""
        self.send(sid, message(fake(*[task(name, *script, *DONE) for name, script in scripts.items()], "---", "text asked")))

    def child(self, sid, name, turns=1):
        """The texts of a child's results, once so many of its turns have ended."""
        thread = wait_for(f"{name} is there", lambda: next((t for t in self.team.children(sid) if t["agent"]["name"] == name), None), TURN_S)["id"]
        wait_for(f"{name} has ended {turns} turns", lambda: len(of(self.team.log(sid, thread), "session.thread_status_idle")) >= turns, TURN_S)
        return [shown(e) for e in of(self.team.log(sid, thread), "agent.tool_result")]

    def texts(self, path):
        """Of the versions of a memory, the first one first."""
        versions = self.client.pages(f"{self.path}/memory_versions?limit=100&view=full")
        return [v["content"] for v in versions[::-1] if v["path"] == path]


class AtOnce(Threads):
    def test_what_two_threads_add_to_one_file_and_to_their_own_is_all_there(self):
        self.put("/both", "start\n")
        sid, rounds = self.session(), range(6)

        def script(name):
            lines = [self.bash(f"cd $M && echo {name}{i} >> both && echo {i} >> {name}") for i in rounds]
            return [x for line in lines for x in (line, "---")][:-1]

        self.start(sid, one=script("one"), two=script("two"))
        for name in ("one", "two"):
            for result in self.child(sid, name):
                self.assertNotIn("[memory]", result)
        heads, own = self.heads(), "".join(f"{i}\n" for i in rounds)
        self.assertEqual((own, own), (heads["/one"], heads["/two"]))
        self.assertEqual({"start", *(f"{n}{i}" for n in ("one", "two") for i in rounds)}, set(heads["/both"].split()))
        versions = self.texts("/both")
        for before, after in zip(versions, versions[1:]):
            self.assertTrue(after.startswith(before), f"{after!r} came behind {before!r}")

    def test_a_file_does_not_change_under_a_command_because_another_threads_call_begins(self):
        self.put("/f", "base"), self.put("/gone", "old")
        again, sid, fifo = self.put("/again", "old"), self.session(), self.fifo()
        self.start(sid, one=[self.bash(f"cd $M; was=$(cat f); rm again gone; cat {fifo}; printf \"$was+one\" > f; printf new > again"), "---", self.bash("cat $M/f")])
        with open(fifo, "w", encoding="utf-8"):  # opens when the command reads
            self.client.post(f"{self.path}/memories/{self.id_of('/f')}", {"content": "theirs"})
            self.start(sid, two=[self.bash("cd $M; printf two > own; echo \"[$(cat f)]\"")])
            (seen,) = self.child(sid, "two")
            self.assertEqual({"/f": "theirs", "/gone": "old", "/again": "old", "/own": "two"}, self.heads(), "what the other command has removed it may make again")
        first, then = self.child(sid, "one")
        self.assertIn("[base]", seen, "the text of the store comes when no command runs that may have read the one before")
        self.assertIn("/f: not saved: another writer changed it meanwhile", first)
        self.assertEqual("theirs", then)
        self.assertEqual({"/f": "theirs", "/again": "new", "/own": "two"}, self.heads())
        self.assertEqual(again["id"], self.id_of("/again"))

    def test_all_whose_commands_ran_hear_of_a_change_that_came_too_late(self):
        self.put("/f", "base")
        sid, fifo = self.session(), self.fifo()
        self.start(sid, one=[self.bash(f"cd $M; printf ours > f; cat {fifo}")])
        with open(fifo, "w", encoding="utf-8"):
            self.client.post(f"{self.path}/memories/{self.id_of('/f')}", {"content": "theirs"})
            self.start(sid, two=[self.bash("true")])
            (two,) = self.child(sid, "two")
        (one,) = self.child(sid, "one")
        self.assertIn("The file gets that text once no call of another thread runs", two)
        self.assertIn("The file has that text now", one)
        self.assertEqual(["base", "theirs"], self.texts("/f"))


class LateCommit(Threads):
    """A call's result is committed long after the files were looked at."""

    @classmethod
    def setUpClass(cls):
        cls.gate = f"/tmp/mango-gate.{os.getpid()}"
        os.mkfifo(cls.gate)
        cls.addClassCleanup(os.unlink, cls.gate)
        cls.model = cls.enterClassContext(FakeModel())
        cls.server = cls.enterClassContext(Mangod(model_url=cls.model.url, hooks="memory.looked=gate:1", env={"MANGO_TEST_HOOK_GATE": cls.gate}))
        cls.client = cls.server.client

    def test_it_does_not_bring_back_what_another_thread_has_changed_since(self):
        self.put("/f", "start"), self.put("/told", "start")
        sid = self.session()
        self.start(sid, one=[self.bash("cd $M; printf one > f; printf one > told; printf one > new")])
        with open(self.gate, encoding="utf-8"):
            pass  # it has looked
        self.client.post(f"{self.path}/memories/{self.id_of('/told')}", {"content": "theirs"})
        self.start(sid, two=[self.bash("cd $M; printf two > f; cat told; rm new"), "---", self.bash("cat $M/told")])
        two = self.child(sid, "two")
        self.assertEqual({"/f": "two", "/told": "theirs"}, self.heads())
        with open(self.gate, "w", encoding="utf-8"):
            pass
        (one,) = self.child(sid, "one")
        self.assertEqual({"/f": "two", "/told": "theirs"}, self.heads())
        self.assertEqual(["start", "one", "two"], self.texts("/f"))
        self.assertIn("/told: not saved: another writer", one)
        self.assertNotIn("/f: not", one)
        self.assertEqual("theirs", two[1])


if __name__ == "__main__":
    main()
