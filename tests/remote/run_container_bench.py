"""One command, and a file of 32 MiB in and out: the adapter beside the service's TypeScript client, both against the same service of this machine.

    tests/remote/run_container_bench.py opensandbox | daytona"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from container_services import ready
from rig import HERE, sdk
from sandbox import Driver, label

EXECS, ROUNDS, SIZE = 20, 3, 32 * 1024 * 1024


def median(n, work):
    all_ms = []
    for _ in range(n):
        begun = time.monotonic()
        work()
        all_ms.append((time.monotonic() - begun) * 1000)
    return statistics.median(all_ms)


def adapter(name, env):
    box = label()
    with Driver(name, env) as d:
        d.ok("create", box, d.owner, "open", 0, 0, 0, 0)
        d.sh(box, "echo ready")
        before = d.rss()
        out = {"exec": median(EXECS, lambda: d.sh(box, "echo ready"))}
        out["put"] = median(ROUNDS, lambda: d.ok("stream", box, "big", SIZE))
        out["grown_mib"] = (d.rss() - before) / 2**20
        out["get"] = median(ROUNDS, lambda: d.ok("read", box, "big", 0, SIZE))
        d.ok("destroy", box)
    return out


def main(name):
    (make,) = ready(__file__, name, client=True)
    folder = sdk(name)
    shutil.copy(os.path.join(HERE, "container_bench.mjs"), folder)
    with make() as service:
        argv = ["node", "container_bench.mjs", name, *service.check_words(service.env)[:3]]
        done = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True, timeout=300)
        theirs = json.loads(done.stdout.splitlines()[-1])
        ours = adapter(name, service.env)
    for row in ("exec", "put", "get"):
        print(f"{name} {row}: adapter {ours[row]:.1f} ms, client {theirs[row]:.1f} ms")
    print(f"{name} memory: the adapter's process grew by {ours['grown_mib']:.1f} MiB in the transfer in, the client's reached {theirs['rss_mib']:.0f} MiB")


if __name__ == "__main__":
    if sys.argv[1:2] not in (["opensandbox"], ["daytona"]):
        sys.exit("usage: run_container_bench.py opensandbox|daytona")
    main(sys.argv[1])
