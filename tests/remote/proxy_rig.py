"""The proxy that writes down and spoils requests (fault_proxy.mjs), for any service over HTTP."""
import json
import subprocess
import urllib.request


class Proxy:
    """urls: the fronts, in the order of the upstreams."""

    def __init__(self, folder, *upstreams):
        self.process = subprocess.Popen(["node", "fault_proxy.mjs", *upstreams], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        *fronts, self.orders = json.loads(self.process.stdout.readline())
        self.urls = [f"http://127.0.0.1:{p}" for p in fronts]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()

    def _order(self, path, method):
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.orders}{path}", method=method), timeout=20) as r:
            return json.load(r)

    def spoil(self, kind="", nth=0):
        self._order(f"/spoil?kind={kind}&nth={nth}", "POST")

    def log(self):
        return self._order("/log", "GET")
