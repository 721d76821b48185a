#!/usr/bin/env python3
"""Rows 60 to 64: a file through mangod, up and down, beside cp for the folder, and for an S3 store beside boto3 against the same server; and what the server's
peak memory grows by. Run by run.py; prints a line of JSON: row -> [reference, product], and, without a store, "missing": why. MANGO_BENCH_MIB: another
size, at most 500. The S3 server is s3rver, or the versitygw that MANGO_TEST_VERSITYGW names; botocore and boto3 come from PyPI into the build folder.
"""
import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from harness import BUILD, Mangod  # noqa: E402
from sigv4 import venv  # noqa: E402
from test_objects import ACCESS, Store  # noqa: E402

MIB = 1024 * 1024
SIZE = int(os.environ.get("MANGO_BENCH_MIB", "200")) * MIB - MIB  # a little less than a limit of 500 MiB, since the form is counted
PIECE = MIB
BOTO3 = "boto3==1.44.8"
BOUNDARY = "mango-bench"
CLIENT = """
import sys, time, boto3
_, endpoint, key, secret, path = sys.argv
s3 = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name="us-east-1")
t = time.monotonic(); s3.upload_file(path, "mango", "by-boto3"); up = time.monotonic() - t
t = time.monotonic(); s3.download_file("mango", "by-boto3", path + ".back"); down = time.monotonic() - t
s3.delete_object(Bucket="mango", Key="by-boto3")
print(up, down)
"""


def status(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith(name + ":"))


class Peak:
    """The growth of a process's resident memory, at its highest."""

    def __init__(self, pid):
        self.pid = pid
        with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as f:
            f.write("5")
        self.before = status(pid, "VmRSS")

    def mib(self):
        return status(self.pid, "VmHWM") - self.before


def upload(server, path):
    """The id of the file, and how long it took."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="big.bin"\r\n\r\n'.encode()
    tail = f"\r\n--{BOUNDARY}--\r\n".encode()
    conn = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    start = time.monotonic()
    conn.putrequest("POST", "/v1/files")
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}", "content-length": len(head) + SIZE + len(tail), "x-api-key": server.key}
    for name, value in headers.items():
        conn.putheader(name, str(value))
    conn.endheaders(head)
    with open(path, "rb") as f:
        while piece := f.read(PIECE):
            conn.send(piece)
    conn.send(tail)
    answer = conn.getresponse()
    text = answer.read().decode()
    if answer.status != 200:
        raise SystemExit(f"the upload was answered with {answer.status}: {text}")
    return text.split('"id":"')[1].split('"')[0], time.monotonic() - start


def download(server, ident):
    conn = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    start, n = time.monotonic(), 0
    conn.request("GET", f"/v1/files/{ident}/content", headers={"x-api-key": server.key})
    answer = conn.getresponse()
    buffer = bytearray(PIECE)
    while got := answer.readinto(buffer):
        n += got
    assert n == SIZE, n
    return time.monotonic() - start


def measure(server, path):
    """Seconds up and down, and MiB of the peak of the upload."""
    peak = Peak(server.process.pid)
    ident, up_s = upload(server, path)
    grown = peak.mib()
    return up_s, download(server, ident), grown


def by_boto3(store, path):
    argv = [os.path.join(venv(BOTO3), "bin", "python"), "-c", CLIENT, f"http://127.0.0.1:{store.proxy.store}", ACCESS, store.secret, path]
    return (float(x) for x in subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())


def copy(path):
    start = time.monotonic()
    subprocess.run(["cp", path, path + ".cp"], check=True)
    subprocess.run(["sync", path + ".cp"], check=True)
    return time.monotonic() - start


def rows(path):
    with open(path, "wb") as f:
        for _ in range(SIZE // MIB):
            f.write(os.urandom(MIB))
    cp_s = copy(path)
    with Mangod(sandbox=None) as server:
        up_s, down_s, _ = measure(server, path)
    out = {60: [SIZE / MIB / cp_s, SIZE / MIB / up_s], 61: [SIZE / MIB / cp_s, SIZE / MIB / down_s]}
    try:
        return {**out, **store_rows(path)}
    except unittest.SkipTest as why:
        return {**out, "missing": str(why)}


def store_rows(path):
    """A SkipTest where the server or its client cannot be had."""
    with Store() as store:
        direct = {**store.env, "MANGO_S3_ENDPOINT": f"http://127.0.0.1:{store.proxy.store}"}  # past the tests' proxy
        with Mangod(env=direct, sandbox=None) as server:
            store_up_s, store_down_s, grown = measure(server, path)
        their_up_s, their_down_s = by_boto3(store, path)
    return {62: [SIZE / MIB / their_up_s, SIZE / MIB / store_up_s], 63: [SIZE / MIB / their_down_s, SIZE / MIB / store_down_s], 64: [None, grown]}


def main():
    path = os.path.join(BUILD, "tests", f"bench-object-{os.getpid()}")
    try:
        print(json.dumps(rows(path)))
    finally:
        for name in (path, path + ".cp", path + ".back"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(name)


if __name__ == "__main__":
    main()
