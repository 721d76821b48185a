"""Daytona on this machine: control plane and toolbox are stand-ins (tests/remote/standin), sandboxes are containers of a real Engine."""
import os
import shutil
import tempfile

from rig import Service, free_port, standin

KEY = "dtn_test_key_5c1e9a"


class Daytona(Service):
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
