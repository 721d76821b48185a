"""Daytona on this machine: control plane and toolbox are stand-ins (tests/remote/standin), sandboxes are containers of a real Engine."""
import os
import shutil
import subprocess
import tempfile

from rig import Service, free_port, standin

KEY = "dtn_test_key_5c1e9a"


def prepare():
    return standin()


class Daytona(Service):
    """The server; env is what the plugin needs to find it."""

    def __init__(self, program):
        port = free_port()
        self.folder = tempfile.mkdtemp(prefix="dtn.", dir="/tmp")  # paths of sockets are short
        super().__init__("daytona-api", [program, "daytona-api", "-port", str(port), "-key", KEY, "-folder", self.folder], port)
        self.env = {
            "DAYTONA_API_URL": f"http://127.0.0.1:{port}/api",
            "DAYTONA_API_KEY": KEY,
            "DAYTONA_IMAGE": os.environ["MANGO_DOCKER_IMAGE"],
        }

    @staticmethod
    def left():
        """What of the service is on the Engine: the witness beside the service's own list."""
        out = subprocess.run(["docker", "ps", "-a", "--filter", "label=daytona.sandbox", "--format", "{{.Names}} {{.Status}}"], check=True, capture_output=True, text=True).stdout
        return out.split("\n")[:-1]

    def end(self):
        super().end()
        shutil.rmtree(self.folder, ignore_errors=True)
