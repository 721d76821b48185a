#!/usr/bin/env python3
"""Rows 15 to 17, 19 and 20: the backend docker against the same work done by hand through the Engine API. Run by run.py under
tests/support/docker-run; prints one line of JSON. Reference and product alternate three times."""
import http.client
import json
import os
import socket
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from sandbox import Driver, label  # noqa: E402

SOCKET = os.environ["DOCKER_HOST"].removeprefix("unix://")
IMAGE = os.environ["MANGO_DOCKER_IMAGE"]
ROUNDS, EXECS, COMMANDS, BOXES, SECONDS = 3, 10, 200, 8, 3
SCRIPT = "echo ready"
FILE = 100 * 1000 * 1000


class Raw:
    """One kept connection to the Engine."""

    def __init__(self):
        self.http = http.client.HTTPConnection("docker")
        self.http.sock = socket.socket(socket.AF_UNIX)
        self.http.sock.connect(SOCKET)

    def call(self, method, path, body=None):
        self.http.request(method, "/v1.41" + path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = self.http.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:200]}")
        return json.loads(data) if data[:1] in (b"{", b"[") else data

    def make(self):
        host = {"NetworkMode": "none", "CapDrop": ["ALL"], "ReadonlyRootfs": True, "Memory": 1 << 30, "PidsLimit": 256}
        made = self.call("POST", "/containers/create", {"Image": IMAGE, "Cmd": ["/bin/sleep", "1000000"], "HostConfig": host})
        self.call("POST", f"/containers/{made['Id']}/start")
        return made["Id"]

    def exec(self, box):
        made = self.call("POST", f"/containers/{box}/exec", {"AttachStdout": True, "AttachStderr": True, "Cmd": ["/bin/sh", "-c", SCRIPT]})
        out = Raw().call("POST", f"/exec/{made['Id']}/start", {"Detach": False, "Tty": False})
        if b"ready" not in out or self.call("GET", f"/exec/{made['Id']}/json")["ExitCode"] != 0:
            raise RuntimeError("the command failed")

    def remove(self, box):
        self.call("DELETE", f"/containers/{box}?force=1&v=1")


def ms(function, *args):
    start = time.monotonic()
    function(*args)
    return (time.monotonic() - start) * 1000


def raw_rate(boxes):
    done, until = [], time.monotonic() + SECONDS

    def work(box):
        raw = Raw()
        while time.monotonic() < until:
            raw.exec(box)
            done.append(1)

    threads = [threading.Thread(target=work, args=(b,)) for b in boxes]
    start = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return len(done) / (time.monotonic() - start)


def peak(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:")) / 1024


def main():
    raw, rows = Raw(), {k: ([], []) for k in ("15", "16", "17", "19")}
    with Driver("docker") as d:
        first = label()
        d.create(first)  # makes the image
        boxes, raws = [label() for _ in range(BOXES)], [raw.make() for _ in range(BOXES)]
        for b in boxes:
            d.create(b)
            d.out(b, "true")
        for _ in range(ROUNDS):
            rows["15"][0].append(statistics.median(ms(raw.exec, raws[0]) for _ in range(EXECS)))
            rows["15"][1].append(d.ok("time", boxes[0], COMMANDS, SCRIPT)["p50_us"] / 1000)
            once, box = [], label()
            rows["16"][0].append(ms(lambda: raw.exec(once.append(raw.make()) or once[0])))
            raw.remove(once[0])
            rows["16"][1].append(ms(lambda: (d.create(box), d.out(box, SCRIPT))))
            d.ok("destroy", box)
            rows["17"][0].append(raw_rate(raws))
            rows["17"][1].append(d.ok("many", ",".join(boxes), SECONDS, SCRIPT)["per_1000_s"] / 1000)
            pings = d.ok("pings", 500, SOCKET)
            rows["19"][0].append(pings["raw_p50_us"] / 1000)
            rows["19"][1].append(pings["p50_us"] / 1000)
        for b in boxes + [first]:
            d.ok("destroy", b)
        for b in raws:
            raw.remove(b)
    with Driver("docker") as d:
        box = label()
        d.create(box)
        d.ok("stream", box, "small", 100000)
        before = peak(d.process.pid)
        d.ok("stream", box, "big", FILE)
        done = d.ok("read", box, "big", 0, 2 * FILE)
        if done["bytes"] != FILE or done["wrong"]:
            raise RuntimeError("the file came back changed")
        grown = peak(d.process.pid) - before
        d.ok("destroy", box)
    print(json.dumps({**{k: [statistics.median(a), statistics.median(b)] for k, (a, b) in rows.items()}, "20": grown}))


if __name__ == "__main__":
    main()
