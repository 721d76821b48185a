"""Looks at the signatures of requests to an S3 store as a store does, by botocore's signer: an implementation that shares nothing with ours.

botocore comes from PyPI into the build folder, once. s3rver, the tests' store, takes any signature of the current version.
"""
import datetime
import fcntl
import glob
import hashlib
import importlib
import os
import re
import subprocess
import sys
import unittest
import urllib.parse

from harness import BUILD

BOTOCORE = "botocore==1.44.8"
SKEW_S = 15 * 60  # S3 refuses what was signed by a clock that is more wrong than this
INSTALL_S = 240
AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})")


def venv(package):
    """The folder of a virtual environment with this package ("NAME==VERSION"), made once; a SkipTest where it cannot be had."""
    home = os.path.join(BUILD, "tests", package.split("==")[0])
    folder = os.path.join(home, "venv")
    os.makedirs(home, exist_ok=True)
    with open(os.path.join(home, "stamp"), "a+", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        if f.read() != package:
            pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", package]
            for argv in ([sys.executable, "-m", "venv", folder], pip):
                done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S)
                if done.returncode != 0:
                    raise unittest.SkipTest(f"{package} cannot be installed: {(done.stderr or done.stdout)[-300:]}")
            f.truncate(0)
            f.write(package)
    return folder


def botocore():
    """Its modules auth, awsrequest and credentials."""
    for packages in glob.glob(os.path.join(venv(BOTOCORE), "lib", "python3*", "site-packages")):
        if packages not in sys.path:
            sys.path.append(packages)
    return [importlib.import_module(f"botocore.{name}") for name in ("auth", "awsrequest", "credentials")]


class Verifier:
    def __init__(self, access_key, secret_key, region="us-east-1"):
        auth, self.requests, credentials = botocore()
        self.access_key, self.region = access_key, region
        self.signer = auth.S3SigV4Auth(credentials.Credentials(access_key, secret_key), "s3", region)

    def refuses(self, method, target, headers, body, now=None):
        """Why a store refuses this request, or None. target: path and query as sent. body None: it was not read."""
        given = AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if not given:
            return f"AccessDenied: {headers.get('authorization', 'no authorization')}"
        key, day, region, names, signature = given.groups()
        stamp = headers.get("x-amz-date", "")
        if (key, region, day) != (self.access_key, self.region, stamp[:8]):
            return f"AccessDenied: {key} {region} {day}"
        names = names.split(";")
        needed = {"host", "x-amz-date", "x-amz-content-sha256", *(n.lower() for n in headers if n.lower().startswith("x-amz-"))}
        if names != sorted(names) or not needed <= set(names):
            return f"AccessDenied: signed headers {names}"
        at = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs((now or datetime.datetime.now(datetime.timezone.utc)) - at) > datetime.timedelta(seconds=SKEW_S):
            return "RequestTimeTooSkewed"
        if body is not None and headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            return "XAmzContentSHA256Mismatch"
        if signature != self.signature(method, target, {n: headers.get(n, "") for n in names}, stamp):
            return "SignatureDoesNotMatch"
        return None

    def signature(self, method, target, headers, stamp):
        """The query is taken apart and written anew, as stores do, so that what was encoded in another way does not match."""
        path, _, query = target.partition("?")
        params = urllib.parse.parse_qsl(query, keep_blank_values=True)
        request = self.requests.AWSRequest(method=method, url=f"http://{headers['host']}{path}", headers=headers, params=params)
        request.context["timestamp"] = stamp
        return self.signer.signature(self.signer.string_to_sign(request, self.signer.canonical_request(request)), request)
