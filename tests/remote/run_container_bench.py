"""One command, and a file of 32 MiB in and out: the adapter beside the service's TypeScript client, both against the same service of this machine.

    tests/remote/run_container_bench.py opensandbox | daytona"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from rig import HERE, enter_engine, prepared, sdk, under_engine

under_engine(__file__)
import dtn  # noqa: E402
import osb  # noqa: E402
from sandbox import Driver, label  # noqa: E402

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
    python, program = prepared(osb.prepare)
    folder = prepared(lambda: sdk(name))
    shutil.copy(os.path.join(HERE, "container_bench.mjs"), folder)
    enter_engine()
    service = osb.OpenSandbox(python, program) if name == "opensandbox" else dtn.Daytona(program)
    with service:
        at = service.env["OPEN_SANDBOX_DOMAIN"] if name == "opensandbox" else service.env["DAYTONA_API_URL"]
        argv = ["node", "container_bench.mjs", name, at, osb.KEY if name == "opensandbox" else dtn.KEY, os.environ["MANGO_DOCKER_IMAGE"]]
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
