"""kill -9 of mangod at commit boundaries, with the sandbox `srt`: afterwards no folder, process or control group is left that no binding names, and none that a binding
names is gone.

A few of the boundaries of test_sandbox_chaos.py; MANGO_TEST_CHAOS_ALL=1 runs all of them."""
import os

from harness import main, wait_for
from sandbox import host_processes
from srt_rig import groups, need_bubblewrap

os.environ["MANGO_TEST_CHAOS_SANDBOX"] = "srt"

import test_sandbox_chaos as chaos  # noqa: E402  # pylint: disable=wrong-import-position


def setUpModule():
    need_bubblewrap()


@chaos.keep_few
class MangodDies(chaos.Chaos):
    def setUp(self):
        super().setUp()
        self.seen = set()

    def there(self, m):
        now = super().there(m)
        self.seen.update(name.removeprefix("session-") for name in now)
        return now

    def nothing_left(self, m):
        super().nothing_left(m)
        base = os.path.join(m.dir, "state", "srt", "session-")
        self.assertTrue(self.seen, "no sandbox was seen at all")
        wait_for("no bubblewrap is left", lambda: host_processes(base) == [], chaos.WAIT_S)
        wait_for("no control group is left", lambda: [g for box in self.seen for g in groups(box)] == [], chaos.WAIT_S)


if __name__ == "__main__":
    main()
