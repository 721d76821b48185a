#!/usr/bin/env python3
"""Rows 40 to 43: the backend e2b against the official TypeScript SDK doing the same against the same peer (tests/remote/envd_peer.mjs). Run by run.py; prints one line
of JSON: row -> [reference, product], medians of three rounds that alternate. Needs root and bubblewrap."""
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("remote", "e2e")]
import envd_rig  # noqa: E402
from sandbox import Driver, label  # noqa: E402

ROUNDS, COMMANDS, FILE = 3, 30, 32 * 1024 * 1024


def by_sdk(peer, folder):
    out = subprocess.run(["node", "e2b_bench.mjs", peer.control, peer.data, peer.key, str(COMMANDS), str(FILE)], cwd=folder, check=True, capture_output=True, text=True, timeout=120)
    return json.loads(out.stdout)


def peak(d):
    with open(f"/proc/{d.process.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:")) * 1024


def by_driver(name, env, commands, size):
    """Median of a command, a file in, the same out, in ms; what the peak of memory grew by in both, in bytes."""
    with Driver(name, env) as d:
        box = label()
        d.create(box, "open")
        d.out(box, "true")
        p50 = float(d.ok("time", box, commands, "echo ready")["p50_us"]) / 1000
        before = peak(d)
        put = d.ok("stream", box, "f", size)["ms"]
        got = d.ok("read", box, "f", 0, size)
        if got["bytes"] != size or got["wrong"]:
            raise RuntimeError(f"other content: {got}")
        grown = peak(d) - before
        d.ok("destroy", box)
        return {"p50": p50, "put": put, "get": got["ms"], "grown": grown}


def main():
    folder, sdk, own = envd_rig.scripts(), [], []
    with envd_rig.Peer("e2b", folder) as peer:
        for _ in range(ROUNDS):
            sdk.append(by_sdk(peer, folder))
            own.append(by_driver("e2b", peer.env, COMMANDS, FILE))
    rows = {40: "p50", 41: "put", 42: "get", 43: "grown"}
    print(json.dumps({n: [statistics.median(r[key] for r in side) for side in (sdk, own)] for n, key in rows.items()}))


if __name__ == "__main__":
    main()
