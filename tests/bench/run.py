#!/usr/bin/env python3
"""The benchmarks: each row of the table is a ratio of mangod to a reference that is taken in the same run, so that it means the same on
another machine. Run by `make bench` (ROWS="1 2 4" selects rows) under tests/support/pg-run --fsync --private --tcp.

Reference and product alternate three times (in rows 60 to 64, once); the table shows the medians. Exit status 1 when a row is below its floor. Everything
listens on loopback or a unix socket and is ended by process id. A row that cannot run here says why and fails.

    MANGO_BENCH_SESSIONS=100000 MANGO_BENCH_EVENTS=20    the stored sessions of row 24 and the events of each
"""
import argparse
import importlib
import os
import re
import resource
import signal
import subprocess
import sys
import time

from bench import ROWS, Bench, run

for part in ("http", "sandbox", "server", "turn", "objects"):
    importlib.import_module("rows_" + part)


def verdict(r):
    reached = lambda limit: r.ratio >= limit if r.higher else r.ratio <= limit
    return "target" if reached(r.target) else "ok" if reached(r.floor) else "BELOW"


def cells(r):
    sign = "≥" if r.higher else "≤"
    return [str(r.row), r.what, r.reference, r.product, f"{r.ratio:.2f}", f"{sign} {r.floor:.3g}", f"{sign} {r.target:.3g}", verdict(r)]


HEAD = ["row", "what", "reference", "product", "ratio", "floor", "target", "verdict"]


def markdown(results):
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    return "\n".join(lines + ["| " + " | ".join(cells(r)) + " |" for r in results])


def show(r):
    print("  ".join(f"{c:{w}}" for c, w in zip(cells(r), (3, 96, 11, 11, 6, 7, 7, 7))), flush=True)


def machine():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    version = run(["psql", "--version"]).split()[2]
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"{len(names)} × {names[0] if names else 'CPU'}, {memory_gb:.0f} GiB, Linux {os.uname().release}, PostgreSQL {version}; load {load}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="numbers, separated by blanks or commas; all without it")
    parser.add_argument("--out", default="", help="a file for the table as Markdown")
    args = parser.parse_args()
    rows = [int(x) for x in re.split(r"[ ,]+", args.rows.strip()) if x] or sorted(ROWS)
    if unknown := [n for n in rows if n not in ROWS]:
        parser.error(f"no row {unknown[0]}; rows: {' '.join(map(str, sorted(ROWS)))}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20000) if hard > 0 else 20000, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(machine(), flush=True)
    results, failed, start = [], [], time.monotonic()
    bench = Bench()
    with bench.stack:
        for n in rows:
            try:
                for result in ROWS[n](bench):
                    results.append(result)
                    show(result)
            except (RuntimeError, AssertionError, subprocess.SubprocessError, OSError) as e:
                failed.append(n)
                print(f"{n}: could not be measured: {e}", flush=True)
    print(f"\n{machine()}; {time.monotonic() - start:.0f} s\n\n{markdown(results)}")
    if args.out:
        with open(args.out, "w") as f:
            f.write(markdown(results) + "\n")
    below = [r for r in results if verdict(r) == "BELOW"]
    print(f"\n{len(results)} rows measured, {sum(verdict(r) == 'target' for r in results)} reach their target, {len(below)} below the floor, "
          f"{len(failed)} not measured")
    sys.exit(1 if below or failed else 0)


if __name__ == "__main__":
    main()
