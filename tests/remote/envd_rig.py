"""Backends `e2b` and `cube` against a peer of this machine: control plane and envd from the published specification (envd_peer.mjs), with real processes and files.

The peer needs root and bubblewrap, since every sandbox has namespaces of its own. MANGO_E2B_PEER=CONTROL_URL,DATA_URL,KEY[,TEMPLATE] (MANGO_CUBE_PEER for the other)
names another peer: then nothing is started here, and what looks into the peer's own files is left out.
"""
import json
import os
import shutil
import subprocess
import tempfile
import threading
import urllib.request

from rig import HERE, WORK, conformance, give_up, npm, prepared

PACKAGES = ["@bufbuild/protobuf@2.10.0", "@connectrpc/connect@2.1.0", "@connectrpc/connect-node@2.1.0", "e2b@2.51.0"]
START_S = 60


def need_namespaces():
    if os.geteuid() != 0 or not shutil.which("bwrap"):
        give_up("the sandboxes of the peer need root and bubblewrap")


def scripts():
    """The folder with the packages and, beside them, the scripts that use them."""
    folder = prepared(lambda: npm("envd", PACKAGES))
    for name in os.listdir(HERE):
        if name.endswith(".mjs"):
            copy = os.path.join(folder, f"{name}.{os.getpid()}.{threading.get_ident()}")
            shutil.copy(os.path.join(HERE, name), copy)
            os.replace(copy, os.path.join(folder, name))  # another test may read it now
    return folder


class Peer:
    """env: what the plugin needs to find it. The end of the block ends every sandbox."""

    def __init__(self, flavor, folder):
        self.flavor, self.process, self.folder = flavor, None, None
        own = os.environ.get(f"MANGO_{flavor.upper()}_PEER")
        if own:
            self.control, self.data, self.key, *template = own.split(",")
            self.template = template[0] if template else "base"
        else:
            self.folder = tempfile.mkdtemp(prefix="envd.", dir=WORK)
            with open(os.path.join(WORK, f"envd-{flavor}.log"), "w", encoding="utf-8") as log:
                self.process = subprocess.Popen(["node", "envd_peer.mjs", flavor, self.folder], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"the peer did not start: {log.name}")
            at = json.loads(line)
            self.control, self.data, self.key, self.template = f"http://127.0.0.1:{at['control']}", f"http://127.0.0.1:{at['data']}", at["key"], "base"
        node, port = self.data.split("//")[1].rsplit(":", 1)
        self.env = (
            {"E2B_API_URL": self.control, "E2B_SANDBOX_URL": self.data, "E2B_API_KEY": self.key, "E2B_TEMPLATE_ID": self.template}
            if flavor == "e2b"
            else {"CUBE_API_URL": self.control, "CUBE_PROXY_NODE_IP": node, "CUBE_PROXY_PORT_HTTP": port, "CUBE_API_KEY": self.key, "CUBE_TEMPLATE_ID": self.template}
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, method, path, body=None):
        headers = {"X-API-Key": self.key} if self.flavor == "e2b" else {"Authorization": f"Bearer {self.key}"}
        data = json.dumps(body).encode() if body else None
        if data:
            headers["Content-Type"] = "application/json"
        with urllib.request.urlopen(urllib.request.Request(self.control + path, data, headers, method=method), timeout=20) as r:
            return r.read()

    def sandboxes(self):
        """What the service has, by its own word."""
        return json.loads(self.ask("GET", "/v2/sandboxes?state=running,paused"))

    def duplicate(self):
        """A second sandbox with all that names the only one: what a creation leaves whose answer was lost, and that the service has done late."""
        (first,) = self.sandboxes()
        body = {"templateID": self.template, "timeout": 300, "metadata": first["metadata"]}
        self.ask("POST", "/v2/sandboxes" if self.flavor == "e2b" else "/sandboxes", body)

    def end(self, sandbox):
        """Ends one behind the server's back."""
        self.ask("DELETE", f"/sandboxes/{sandbox}")


def through(flavor, proxy):
    """What sends the plugin through a proxy before control plane and data plane."""
    control, data = proxy.urls
    if flavor == "e2b":
        return {"E2B_API_URL": control, "E2B_SANDBOX_URL": data}
    return {"CUBE_API_URL": control, "CUBE_PROXY_PORT_HTTP": data.rsplit(":", 1)[1]}


def run_suite(test, flavor):
    with Peer(flavor, scripts()) as peer:
        test.assertNotIn(peer.key, conformance(test, flavor, peer.env, 500))
        test.assertEqual(peer.sandboxes(), [])
