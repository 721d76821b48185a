"""kill -9 of mangod at commit boundaries, and of dockerd in the middle, with the sandbox `docker`: afterwards no container, volume or process is left that no
binding names, and none that a binding names is gone.

A few of the boundaries of test_sandbox_chaos.py, since each takes 5 s here; MANGO_TEST_CHAOS_ALL=1 runs all of them."""
import threading
import unittest

from docker_rig import OWN, engine_is_back, kill_engine, left, under_engine
from harness import Database, main, wait_for

under_engine(__file__, MANGO_TEST_CHAOS_SANDBOX="docker")

import test_sandbox_chaos as chaos  # noqa: E402  # pylint: disable=wrong-import-position
from test_sandboxes import run, text_of  # noqa: E402  # pylint: disable=wrong-import-position

APART_S = (0.0, 0.15, 0.4)  # between the start of an operation and the kill: in create, in start, in the command


class Witness:
    """The Engine itself says what is there."""

    def setUp(self):
        super().setUp()
        self.assertEqual(left(), [], "left by the test before")

    def there(self, m):
        names = left()  # a container and a volume of the same name for each
        self.assertEqual(sorted(names), sorted(2 * list(set(names))))
        return sorted(set(names))


@chaos.keep_few
class MangodDies(Witness, chaos.Chaos):
    pass


@unittest.skipUnless(OWN, "killing the Engine needs one of our own")
class EngineDies(Witness, chaos.Life):
    def both_die(self, m, after_s, act):
        """act is under way in mangod when it and the Engine are killed."""

        def asked():
            try:
                act()
            except (OSError, chaos.ApiError):
                pass  # the answer was lost with the process

        t = threading.Thread(target=asked)
        t.start()
        t.join(after_s)
        kill_engine()
        m.kill()
        m.process.end()
        t.join()
        engine_is_back()
        m.start()

    def test_in_the_middle_of_a_first_turn(self):
        for after_s in APART_S:
            with Database() as db, self.server(db) as m:
                session, other = m.client.new_session(), m.client.new_session()
                run(m, other, "echo other > file")
                self.both_die(m, after_s, lambda m=m, s=session: self.begin(m, s))
                self.settled(m, session)
                self.assertIn("other", text_of(run(m, other, "cat file")))
                run(m, session, "true")  # the first turn may have ended before it had a sandbox
                self.all_is_owned(m, [session, other])
                self.delete(m, session)
                self.delete(m, other)
                self.nothing_left(m)

    def test_in_the_middle_of_a_delete(self):
        with Database() as db, self.server(db) as m:
            session, other = m.client.new_session(), m.client.new_session()
            self.begin(m, session)
            self.settled(m, session)
            run(m, other, "echo other > file")
            self.both_die(m, APART_S[1], lambda: self.delete(m, session))
            self.delete(m, session)
            wait_for("its row is gone", lambda: len(chaos.Cli(m).lines("sandbox", "list")) == 1, chaos.WAIT_S)
            self.assertIn("other", text_of(run(m, other, "cat file")))
            self.all_is_owned(m, [other])
            self.delete(m, other)
            self.nothing_left(m)

    def test_the_engine_alone_while_a_command_runs(self):
        with Database() as db, self.server(db) as m:
            session = m.client.new_session()
            run(m, session, "echo kept > file")
            m.client.say(session["id"], f"run: sleep {self.mark}")
            wait_for("the command", lambda: chaos.sleepers(self.mark))
            kill_engine()
            self.settled(m, session)
            wait_for("no process is left", lambda: chaos.sleepers(self.mark) == [], chaos.WAIT_S)
            self.assertIn("kept", text_of(run(m, session, "cat file")))
            self.all_is_owned(m, [session])
            self.delete(m, session)
            self.nothing_left(m)


if __name__ == "__main__":
    main()
