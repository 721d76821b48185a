"""Rows 15 to 20, 27 and 40 to 57: sandboxes, and what a plugin costs."""
import os
import statistics
import tempfile

from bench import BUILD, ROUNDS, Result, measured, median, ratio, row, run, tool
from harness import SRC


def plugins():
    return os.path.join(BUILD, "plugins", "loadable")


@row(18)
def local_command(b):
    def once():
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="mango-bench-local.") as folder:
            out = tool("local", "command", plugins(), folder, 300)
            return out["spawn_p50"], out["local_p50"]

    ref, got = median([once() for _ in range(ROUNDS)])
    yield ratio(18, "command in the backend local, p50, of posix_spawn `sh -c`", ref, got, " ms", 3, 1.5, False)


@row(27)
def plugin_call(b):
    folder = os.path.join(b.dir, "plugins")
    os.makedirs(folder, exist_ok=True)
    so = os.path.join(folder, "smallest.so")
    run(["cc", "-std=gnu17", "-O2", "-shared", "-fPIC", f"-I{SRC}/plugin-api", os.path.join(SRC, "tests/abi/smallest.c"), "-o", so])
    once = lambda: tool("local", "call", folder, "smallest", 2000000)
    out = [once() for _ in range(ROUNDS)]
    ref, got = (statistics.median(o[name] for o in out) for name in ("direct_ns", "plugin_ns"))
    added = (got - ref) / 1000
    yield Result(27, "time that a call through the plugin interface adds", f"{ref:.1f} ns", f"{got:.1f} ns", added, 2, 0.5, False)


# ---- rows that a program of their service measures ----


def docker(b):
    return measured(b, "docker_rows.py", os.path.join(SRC, "tests/support/docker-run"))


def service_row(number, measure, what, unit, floor, target, higher=False, scale=1):
    @row(number)
    def one(b):
        ref, got = (n / scale for n in measure(b)[str(number)])
        yield ratio(number, what, ref, got, unit, floor, target, higher)


service_row(15, docker, "command in a live sandbox of docker, p50, of an exec through the Engine API", " ms", 0.5, 0.08)
service_row(16, docker, "first command of a sandbox of docker, of create, start and exec by hand", " ms", 1.15, 1.05)
service_row(17, docker, "commands in 8 sandboxes of docker, of execs through the Engine API", "/s", 3, 20, higher=True)
service_row(19, docker, "call of a service by an adapter (the Engine's ping), p50, of the same by a libcurl handle that is kept", " ms", 5, 2)


@row(20)
def docker_file(b):
    grown = docker(b)["20"]
    yield Result(20, "100 MB into a sandbox of docker and back: growth of peak memory, MB", "100 MB", f"{grown:.1f} MB", grown, 8, 2, False)


def client_rows(first, service, program, floor, target):
    """Rows first to first + 3: an adapter beside the official client of its service."""
    measure = lambda b: measured(b, program)
    service_row(first, measure, f"command in a live sandbox of {service}, p50, of the official client's", " ms", floor, target)
    service_row(first + 1, measure, f"32 MiB into a sandbox of {service}, of the official client's", " ms", 1.1, 0.8)
    service_row(first + 2, measure, f"32 MiB out of a sandbox of {service}, of the official client's", " ms", 1.1, 0.8)
    service_row(first + 3, measure, "the same both ways: growth of peak memory, of the official client's", " MB", 0.1, 0.02, scale=1e6)


client_rows(40, "e2b", "remote_rows.py", 1.1, 0.8)
client_rows(50, "daytona", "container_rows.py", 2.5, 1)
client_rows(54, "opensandbox", "container_rows.py", 2.5, 1)
