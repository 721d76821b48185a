#!/usr/bin/env python3
"""Files of 500 MiB through mangod: upload and download throughput and the server's peak memory, beside cp for the folder, and for an S3 store beside boto3
against the same server. Run under tests/support/pg-run; prints one line for each. MANGO_BENCH_MIB: another size. The S3 server is s3rver, or the
versitygw that MANGO_TEST_VERSITYGW names; botocore and boto3 come from PyPI into the build folder.
"""
import http.client
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from harness import BUILD, Mangod  # noqa: E402
from test_objects import ACCESS, VERSITYGW, Store  # noqa: E402

MIB = 1024 * 1024
SIZE = int(os.environ.get("MANGO_BENCH_MIB", "500")) * MIB - MIB  # a little less than the limit, since the form is counted
PIECE = MIB
BOTO3 = "boto3==1.44.8"
BOUNDARY = "mango-bench"
CLIENT = """
import resource, sys, time, boto3
_, endpoint, key, secret, path = sys.argv
s3 = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name="us-east-1")
t = time.monotonic(); s3.upload_file(path, "mango", "by-boto3"); up = time.monotonic() - t
t = time.monotonic(); s3.download_file("mango", "by-boto3", path + ".back"); down = time.monotonic() - t
s3.delete_object(Bucket="mango", Key="by-boto3")
print(up, down, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def status(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith(name + ":"))


def rate(seconds):
    return f"{SIZE / MIB / seconds:7.0f} MiB/s"


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


def measure(name, server, path):
    up = Peak(server.process.pid)
    ident, up_s = upload(server, path)
    up_mib, down = up.mib(), Peak(server.process.pid)
    down_s = download(server, ident)
    print(f"{name:34} up {rate(up_s)} (peak +{up_mib:.1f} MiB)   down {rate(down_s)} (peak +{down.mib():.1f} MiB)", flush=True)


def boto3_python():
    home = os.path.join(BUILD, "tests", "boto3")
    python = os.path.join(home, "bin", "python")
    if not os.path.exists(os.path.join(home, "done")):
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", BOTO3], check=True)
        with open(os.path.join(home, "done"), "w", encoding="ascii"):
            pass
    return python


def beside_boto3(store, path):
    endpoint = f"http://127.0.0.1:{store.proxy.store}"
    done = subprocess.run([boto3_python(), "-c", CLIENT, endpoint, ACCESS, store.secret, path], capture_output=True, text=True, check=True)
    up_s, down_s, peak = (float(x) for x in done.stdout.split())
    print(f"{'boto3, the same store':34} up {rate(up_s)}   down {rate(down_s)} (the whole process: {peak:.1f} MiB)", flush=True)


def main():
    path = os.path.join(BUILD, "tests", f"bench-object-{os.getpid()}")
    try:
        with open(path, "wb") as f:
            for _ in range(SIZE // MIB):
                f.write(os.urandom(MIB))
        start = time.monotonic()
        subprocess.run(["cp", path, path + ".cp"], check=True)
        subprocess.run(["sync", path + ".cp"], check=True)
        print(f"{'cp, and sync':34} {rate(time.monotonic() - start)}", flush=True)
        with Mangod(sandbox=None) as server:
            measure("mangod, a folder", server, path)
        with Store() as store:
            direct = {**store.env, "MANGO_S3_ENDPOINT": f"http://127.0.0.1:{store.proxy.store}"}  # past the tests' proxy
            with Mangod(env=direct, sandbox=None) as server:
                measure(f"mangod, {'versitygw' if VERSITYGW else 's3rver'}", server, path)
            beside_boto3(store, path)
    finally:
        for name in (path, path + ".cp", path + ".back"):
            if os.path.exists(name):
                os.remove(name)


if __name__ == "__main__":
    main()
