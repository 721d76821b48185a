"""Every request of a session's life is spoiled in turn: cut before it arrives, answered and never heard of, delayed, 429, 500, a proxy's page, half an answer. The session
still ends right or with one clear error, no command runs twice, and the service is left with nothing.

And the program's first start comes when it was given up, and put in again. MANGO_TEST_REMOTE_FAULTS=all tries every request of the scenario; the default takes every third, in turns, of each kind, and every sixth for cube, which has the data plane of e2b.
"""
import concurrent.futures
import os
import unittest

import envd_rig
from fault_proxy import FAULTS, FaultProxy
from harness import main
from sandbox import EGONE, ERETRY, OK, Driver, label

envd_rig.need_namespaces()
STEPS = {"e2b": 1, "cube": 1} if os.environ.get("MANGO_TEST_REMOTE_FAULTS") == "all" else {"e2b": 3, "cube": 6}
LANES = 3
ERRORS = {ERETRY, -4, -5, -8}  # transient, quota, invalid, internal: said, and final for this call


class Lane:
    """One proxy and one process with the plugin loaded."""

    def __init__(self, peer):
        self.peer = peer
        self.proxy = FaultProxy(peer.control, peer.data)
        self.driver = Driver(peer.flavor, {**peer.env, **envd_rig.through(peer.flavor, self.proxy)})

    def end(self):
        self.driver.end()
        self.proxy.end()

    def scenario(self, kind, nth):
        """What went wrong, in words; empty when all is right."""
        d, box, wrong, said = self.driver, label(), [], []

        def call(*words):
            answer = d.call(*words, timeout=60)
            if answer["status"] != OK:
                said.append(f"{words[0]}: {answer}")
                if answer["status"] not in ERRORS or not answer.get("error"):
                    wrong.append(f"no clear error: {answer}")
                if self.peer.key in str(answer):
                    wrong.append("the key is shown")
            return answer

        self.proxy.reset({nth: kind})
        if call("create", box, d.owner, "none", 0, 0, 0, 0)["status"] == OK:
            first = call("exec", box, 20000, 0, "echo x >>count; echo out; echo err >&2; exit 3", "")
            if first["status"] == OK and (first["unknown"] or (first["code"], first["out"], first["err"]) != (3, "out\n", "err\n")):
                wrong.append(f"a wrong result: {first}")
            wrote = call("write", box, "dir/f", "content")
            read = call("read", box, "dir/f", 0, 100)
            if wrote["status"] == OK and read["status"] == OK and read["content"] != "content":
                wrong.append(f"other content: {read}")
            again = call("attach", box, d.owner)
            count = call("exec", box, 20000, 0, "wc -l <count", "")
            if again["status"] == OK and first["status"] == OK and count["status"] == OK and count["out"].strip() != "1":
                wrong.append(f"the command ran {count['out'].strip()} times")
        if len(said) > 1:
            wrong.append(f"more than one error: {said}")
        self.proxy.reset()
        for _ in range(2):  # the core repeats it until it is done
            gone = d.call("destroy", box, timeout=60)
        if gone["status"] not in (OK, EGONE):
            wrong.append(f"destroy: {gone}")
        if any(s["metadata"].get("io.mango.label") == box for s in self.peer.sandboxes()):
            wrong.append("a sandbox is left")
        return [f"{kind} of request {nth}: {w}" for w in wrong], said

    def requests(self):
        wrong, said = self.scenario(None, 0)
        if wrong or said:
            raise AssertionError(wrong + said)
        self.proxy.reset()
        d, box = self.driver, label()
        d.create(box)
        for words in (["exec", box, 20000, 0, "true", ""], ["write", box, "f", "x"], ["read", box, "f", 0, 9], ["attach", box, d.owner], ["exec", box, 20000, 0, "true", ""]):
            d.ok(*words)
        n, start = len(self.proxy.log), next(i for i, r in enumerate(self.proxy.log) if r["path"].endswith("/Start"))
        d.ok("destroy", box)
        return n, start


class Faults(unittest.TestCase):
    def test_a_spoiled_request_neither_doubles_a_command_nor_leaves_a_sandbox(self):
        for flavor in STEPS:
            with self.subTest(flavor):
                self.every_request(flavor)

    def every_request(self, flavor):
        with envd_rig.Peer(flavor, envd_rig.scripts()) as peer:
            lanes = [Lane(peer) for _ in range(LANES)]
            self.addCleanup(lambda: [lane.end() for lane in lanes])
            n, start = lanes[0].requests()
            self.assertGreater(n, 8)
            todo = [(kind, i) for k, kind in enumerate(FAULTS) for i in range(n) if (i + k) % STEPS[flavor] == 0] + [("late", start)]
            free = list(lanes)
            with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
                def one(job):
                    lane = free.pop()
                    try:
                        return lane.scenario(*job)
                    finally:
                        free.append(lane)
                results = list(pool.map(one, todo))
            wrong = [w for r in results for w in r[0]]
            errors = [f"{job}: {r[1]}" for job, r in zip(todo, results) if r[1]]
            print(f"{flavor}: {len(todo)} spoiled requests of {n} in a life, {len(errors)} of them shown as an error:", *errors, sep="\n")
            self.assertEqual(wrong, [])
            self.assertEqual(peer.sandboxes(), [])


if __name__ == "__main__":
    main()
