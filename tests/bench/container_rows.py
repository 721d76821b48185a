#!/usr/bin/env python3
"""Rows 50 to 57: the backends daytona and opensandbox, each against the service's official TypeScript client doing the same against the same service of this machine
(tests/remote/dtn.py, osb.py). Run by run.py; prints one line of JSON: row -> [reference, product], medians of three rounds that alternate. Names on the
command line: only these services. Needs root, docker.io and npm."""
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REMOTE = os.path.join(HERE, "..", "remote")
sys.path[:0] = [REMOTE, os.path.join(HERE, "..", "e2e")]
from container_services import ready  # noqa: E402
from remote_rows import by_driver  # noqa: E402
from rig import sdk  # noqa: E402

ROUNDS, COMMANDS, FILE = 3, 20, 32 * 1024 * 1024
FIRST = {"daytona": 50, "opensandbox": 54}
KEYS = ("p50", "put", "get", "grown")


def by_client(name, service, folder):
    words = [name, *service.check_words(service.env)[:3], str(COMMANDS), str(FILE)]
    out = subprocess.run(["node", "container_bench.mjs", *words], cwd=folder, check=True, capture_output=True, text=True, timeout=120)
    return json.loads(out.stdout.splitlines()[-1])


def measure(name, make):
    folder, theirs, own = sdk(name), [], []
    shutil.copy(os.path.join(REMOTE, "container_bench.mjs"), folder)
    with make() as service:
        for _ in range(ROUNDS):
            theirs.append(by_client(name, service, folder))
            own.append(by_driver(name, service.env, COMMANDS, FILE))
    return {FIRST[name] + i: [statistics.median(r[key] for r in side) for side in (theirs, own)] for i, key in enumerate(KEYS)}


def main():
    names = sys.argv[1:] or list(FIRST)
    rows = {}
    for name, make in zip(names, ready(__file__, *names, client=True)):
        rows.update(measure(name, make))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
