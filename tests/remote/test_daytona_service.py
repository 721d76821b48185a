"""`MANGO_SANDBOX=daytona mangod` on stand-ins of the service, and behind a proxy that fails: container_services.py. And the terminal over which commands go that
follow each other: it is only ever a shorter way."""
import secrets
import unittest

from container_services import OfService, ready
from docker_rig import waits
from fault_proxy import FaultProxy
from harness import main, wait_for
from sandbox import ECANCELED, OK, Driver, host_words, label

(MAKE,) = ready(__file__, "daytona")
TERMINAL = "/process/pty/create-connect"
PIECES = 9  # of what the service sends until the third command over the terminal has ended, and more


class Daytona(OfService, unittest.TestCase):
    name, make = "daytona", staticmethod(MAKE)

    def asked(self, proxy, part):
        return sum(part in r["path"] for r in proxy.log)

    def boxed(self):
        """A proxy before the service, a process with the plugin, a sandbox."""
        proxy = FaultProxy(self.service.url)
        self.addCleanup(proxy.end)
        d, box = Driver(self.name, {**self.service.env, **self.service.through(proxy)}), label()
        self.addCleanup(d.end)
        d.create(box, "open")
        self.addCleanup(d.ok, "destroy", box)
        return proxy, d, box

    def test_commands_that_follow_each_other_cost_no_request_and_find_the_same_surroundings(self):
        proxy, d, box = self.boxed()
        before = len(proxy.log)
        told = [d.sh(box, r"env | grep -v '^\(SHLVL\|_\|[A-Z_]*_RUN\)='; ulimit -a; umask; trap; printf '\000\377\r\n' | od -c; cat; echo err >&2; exit 3") for _ in range(5)]
        self.assertEqual(told[0]["code"], 3)
        for one in told[1:]:
            self.assertEqual([one[k] for k in ("code", "out", "err", "unknown")], [told[0][k] for k in ("code", "out", "err", "unknown")])
        paths = [r["path"].partition("?")[0].rpartition("/toolbox")[2].partition("/")[2].partition("/")[2] for r in proxy.log[before:]]
        self.assertEqual(paths, ["process/execute", "process/pty/create-connect"])
        self.assertEqual(len(d.sh(box, "head -c 3000000 /dev/zero")["out"]), 3000000, "what is too much for lines is fetched")
        self.assertEqual(self.asked(proxy, TERMINAL), 1)

    def test_a_command_over_the_terminal_is_cancelled_with_all_that_it_has_started(self):
        proxy, d, box = self.boxed()
        for _ in range(3):
            d.out(box, "true")
        self.assertEqual(self.asked(proxy, TERMINAL), 1)
        marker = str(secrets.randbits(60))
        n = d.send("exec", box, 60000, 0, waits(marker, "setsid cat {} & cat {}"), "")
        wait_for("both to run", lambda: len(host_words(marker)) == 2, 60)
        self.assertEqual(d.out(box, "echo meanwhile"), "meanwhile", "the terminal is busy: another way is taken")
        d.cancel(n)
        self.assertEqual(d.wait(n)["status"], ECANCELED)
        self.assertEqual(host_words(marker), [])
        self.assertEqual(d.out(box, "echo on"), "on")

    def test_a_terminal_that_breaks_off_after_each_piece_loses_and_repeats_nothing(self):
        proxy, d, box = self.boxed()
        for pieces in range(PIECES):
            with self.subTest(pieces):
                d.ok("attach", box, d.owner)  # what has failed before is forgotten
                d.out(box, "echo 1 >count")
                proxy.reset({0: pieces})
                for i in (2, 3, 4):
                    done = d.call("exec", box, 60000, 0, f"echo {i} >>count; echo out {i}; echo err {i} >&2; exit {i}", "")
                    self.assertEqual([done[k] for k in ("status", "code", "out", "err")], [OK, i, f"out {i}\n", f"err {i}\n"])
                self.assertEqual(d.out(box, "cat count").split(), ["1", "2", "3", "4"])
                self.assertIn(TERMINAL, proxy.log[0]["path"])
                self.assertEqual(self.asked(proxy, TERMINAL), 1, "one that has failed is not tried again at once")

    def test_a_service_without_terminals_is_asked_for_one_and_gets_requests(self):
        proxy, d, box = self.boxed()
        for fault in ("cut", "500", "502", "429"):
            with self.subTest(fault):
                d.ok("attach", box, d.owner)
                d.out(box, "true")
                proxy.reset({0: fault})
                self.assertEqual([d.out(box, f"echo {i}") for i in range(4)], ["0", "1", "2", "3"])
                self.assertIn(TERMINAL, proxy.log[0]["path"])
                self.assertEqual(self.asked(proxy, "/execute"), 4)


if __name__ == "__main__":
    main()
