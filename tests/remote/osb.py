"""OpenSandbox on this machine: its real lifecycle server from PyPI on a real Engine, with images made here. execd and the egress filter are in no
registry: tests/remote/standin has them."""
import json
import os
import tempfile
import urllib.request

from rig import WORK, Service, free_port, image, pip, standin, with_libraries

SERVER = ["opensandbox-server==1.1.1"]
KEY = "osb-test-key-7f3a"
EXECD, EGRESS = "mango-test/execd:own", "mango-test/egress:own"

BOOTSTRAP = """#!/bin/sh
/opt/opensandbox/execd execd >/tmp/execd.log 2>&1 &
"$@" &
wait $!
"""

CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
api_key = "{key}"
max_sandbox_timeout_seconds = 86400
[log]
level = "INFO"
[runtime]
type = "docker"
execd_image = "{execd}"
[store]
type = "sqlite"
path = "{folder}/opensandbox.db"
[docker]
network_mode = "bridge"
publish_host = "127.0.0.1"
[ingress]
mode = "direct"
[egress]
image = "{egress}"
mode = "dns+nft"
readiness_timeout_seconds = 30.0
"""


def make_images(program):
    with tempfile.TemporaryDirectory() as d:
        script = os.path.join(d, "bootstrap.sh")
        with open(script, "w", encoding="ascii") as f:
            f.write(BOOTSTRAP)
        os.chmod(script, 0o755)
        image(EXECD, os.environ["MANGO_DOCKER_IMAGE"], {"/execd": program, "/bootstrap.sh": script})
    image(EGRESS, os.environ["MANGO_DOCKER_IMAGE"], {"/egress": program, **with_libraries("nft")}, 'ENTRYPOINT ["/egress", "egress"]')


class OpenSandbox(Service):
    key, mark, needs_bridge = KEY, "opensandbox.io/id", True
    timer, moved = {"OPEN_SANDBOX_TIMEOUT": "60"}, "/renew-expiration"  # the shortest that the service takes, and the request that moves it
    workspace = ("OPEN_SANDBOX_WORKSPACE", "/workspace")  # the variable and its default

    @staticmethod
    def prepare():
        """All that needs a registry or a compiler; before the network is changed."""
        return pip("opensandbox", SERVER), standin()

    def __init__(self, python, program):
        make_images(program)
        port = free_port()
        self.folder = tempfile.mkdtemp(prefix="opensandbox.", dir=WORK)
        config = os.path.join(self.folder, "config.toml")
        with open(config, "w", encoding="ascii") as f:
            f.write(CONFIG.format(port=port, key=KEY, execd=EXECD, egress=EGRESS, folder=self.folder))
        super().__init__("opensandbox-server", [os.path.join(os.path.dirname(python), "opensandbox-server"), "--config", config], port, {"HOME": self.folder})
        self.env = {
            "OPEN_SANDBOX_DOMAIN": f"127.0.0.1:{port}",
            "OPEN_SANDBOX_API_KEY": KEY,
            "OPEN_SANDBOX_IMAGE": os.environ["MANGO_DOCKER_IMAGE"],
            "OPEN_SANDBOX_TIMEOUT": "3600",
            "OPEN_SANDBOX_MEMORY": "512Mi",
        }

    def ask(self, path, body=None, method=None):
        headers = {"OPEN-SANDBOX-API-KEY": KEY, "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/v1{path}", json.dumps(body).encode() if body else None, headers, method=method), timeout=60) as r:
            text = r.read()
            return json.loads(text) if text else None

    def duplicate(self):
        """A second sandbox with all that names the only one: what a creation leaves whose answer was lost, and that the service has done late."""
        (first,) = self.ask("/sandboxes")["items"]
        like = {k: first[k] for k in ("metadata", "image", "entrypoint")}
        self.ask("/sandboxes", {**like, "timeout": 600, "resourceLimits": {"cpu": "1", "memory": "256Mi"}})

    def ids(self):
        """What the service has, by its own word."""
        return {box["id"] for box in self.ask("/sandboxes")["items"]}

    def end_one(self, box):
        """Behind the server's back."""
        self.ask("/sandboxes/" + box, method="DELETE")

    @staticmethod
    def through(proxy):
        return {"OPEN_SANDBOX_DOMAIN": proxy.fronts[0], "OPEN_SANDBOX_USE_SERVER_PROXY": "true"}

    @staticmethod
    def check_words(env):
        """What the scripts that drive the official client take: address, key, image, and more."""
        return [env["OPEN_SANDBOX_DOMAIN"], KEY, env["OPEN_SANDBOX_IMAGE"], "yes" if "OPEN_SANDBOX_USE_SERVER_PROXY" in env else "no"]
