"""Daytona on this machine: control plane and toolbox are stand-ins (tests/remote/standin), sandboxes are containers of a real Engine."""
import json
import os
import shutil
import tempfile
import urllib.request

from rig import Service, free_port, standin

KEY = "dtn_test_key_5c1e9a"


class Daytona(Service):
    timer, moved = {"DAYTONA_AUTO_PAUSE_MINUTES": "1"}, "/last-activity"  # a short timer, and the request that moves it
    key, mark, ends_within_s = KEY, "daytona.sandbox", 30
    workspace = ("DAYTONA_WORKSPACE", "/home/daytona")  # the variable and its default

    @staticmethod
    def prepare():
        return (standin(),)

    def __init__(self, program):
        port = free_port()
        self.folder = tempfile.mkdtemp(prefix="dtn.", dir="/tmp")  # paths of sockets are short
        super().__init__("daytona-api", [program, "daytona-api", "-port", str(port), "-key", KEY, "-folder", self.folder], port)
        self.env = {
            "DAYTONA_API_URL": self.url + "/api",
            "DAYTONA_API_KEY": KEY,
            "DAYTONA_IMAGE": os.environ["MANGO_DOCKER_IMAGE"],
        }

    def ask(self, path, method="GET"):
        request = urllib.request.Request(f"{self.url}/api/sandbox{path}", None, {"Authorization": "Bearer " + KEY}, method=method)
        with urllib.request.urlopen(request, timeout=60) as r:
            return json.loads(r.read())

    def ids(self):
        """What the service has, by its own word."""
        return {box["id"] for box in self.ask("")["items"]}

    def end_one(self, box):
        """Behind the server's back."""
        self.ask("/" + box, "DELETE")

    @staticmethod
    def through(proxy):
        return {"DAYTONA_API_URL": proxy.urls[0] + "/api"}

    @staticmethod
    def check_words(env):
        """What the scripts that drive the official client take: address, key, image, and more."""
        return [env["DAYTONA_API_URL"], KEY, env["DAYTONA_IMAGE"]]

    def end(self):
        super().end()
        shutil.rmtree(self.folder, ignore_errors=True)
