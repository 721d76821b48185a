"""Every request of a session's life is spoiled in turn: cut before it arrives, answered and never heard of, delayed, 429, 500, a proxy's page, half an answer. The session
still ends right or with one clear error, no command runs twice, and the service is left with nothing.

The end of a start's stream tells each error of the protocol: each is what it is, whether it goes away or stays. And the program's first start comes when it was given up, and put in again. MANGO_TEST_REMOTE_FAULTS=all tries every request of the scenario; the default takes every third, in turns, of each kind, and every sixth for cube, which has the data plane of e2b.
"""
import concurrent.futures
import json
import os
import unittest

import envd_rig
from fault_proxy import ANSWERS, FAULTS, FaultProxy
from harness import main
from sandbox import EDENIED, EGONE, EINVALID, ERETRY, EUNSUPPORTED, OK, Driver, label

envd_rig.need_namespaces()
STEPS = {"e2b": 1, "cube": 1} if os.environ.get("MANGO_TEST_REMOTE_FAULTS") == "all" else {"e2b": 3, "cube": 6}
LANES = 3
# What the end of a stream says -> what another try does not change; None: one is made, and goes well.
ENDS = {
    **dict.fromkeys(("canceled", "unknown", "deadline_exceeded", "not_found", "already_exists", "resource_exhausted", "aborted", "internal", "unavailable", "data_loss", "unauthenticated", "strange"), None),
    **dict.fromkeys(("invalid_argument", "failed_precondition", "out_of_range"), EINVALID),
    "permission_denied": EDENIED,
    "unimplemented": EUNSUPPORTED,
}
STAYS = {"resource_exhausted": ERETRY, "not_found": ERETRY, "unauthenticated": EDENIED, "unavailable": OK}  # OK: it may have run, and nobody knows
TRIES = 8  # of a start
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


    def ends(self, code, stays):
        """A command whose start's stream ends with that error, once or each time."""
        d, box, fault = self.driver, label(), "end " + code
        self.proxy.reset()
        d.create(box)
        self.proxy.reset()
        d.out(box, "true")
        (start,) = [i for i, r in enumerate(self.proxy.log) if r["path"].endswith("/Start")]
        self.proxy.reset({start + 2 * i: fault for i in range(TRIES if stays else 1)})  # a look at the sandbox is in between
        answer = d.call("exec", box, 60000, 0, "echo x >>count; exit 3", "")
        met = [r["path"] for i, r in enumerate(self.proxy.log) if i in self.proxy.faults]
        self.proxy.reset()
        count = d.out(box, "cat count 2>/dev/null || true").split()
        self.proxy.reset()
        d.ok("destroy", box)
        return answer, met, count


def end_of_stream(code, words):
    text = json.dumps({"error": {"code": code, "message": words}}).encode()
    return 200, "application/connect+json", b"\2" + len(text).to_bytes(4, "big") + text, {}


class Faults(unittest.TestCase):
    def test_each_error_at_the_end_of_a_stream_is_what_it_is(self):
        said = "the words of envd"
        ANSWERS.update({"end " + code: end_of_stream(code, said) for code in ENDS})
        with envd_rig.Peer("e2b", envd_rig.scripts()) as peer:
            jobs = [(c, True) for c in STAYS] + [(c, False) for c in ENDS]
            free = [Lane(peer) for _ in range(len(STAYS))]
            self.addCleanup(lambda: [lane.end() for lane in free])
            with concurrent.futures.ThreadPoolExecutor(len(free)) as pool:
                def one(job):
                    lane = free.pop()
                    try:
                        return lane.ends(*job)
                    finally:
                        free.append(lane)
                results = list(pool.map(one, jobs))
            for (code, stays), (answer, met, count) in zip(jobs, results):
                with self.subTest(code, stays=stays):
                    want = STAYS[code] if stays else ENDS[code]
                    self.assertTrue(met and all(p.endswith("/Start") for p in met), met)
                    self.assertEqual(answer["status"], want or OK, answer)
                    if want is None:
                        self.assertEqual((answer["code"], answer["unknown"], count), (3, 0, ["x"]))
                    elif want == OK:
                        self.assertEqual((answer["unknown"], count), (1, []))
                    else:
                        self.assertIn(f"{code}: {said}", answer["error"])
                        self.assertEqual(count, [])
            self.assertEqual(peer.sandboxes(), [])

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
