"""The two sides for `e2b` and `cube`: the scenario by E2B's official SDK, and by the adapter."""
import subprocess

import envd_rig
from fault_proxy import FaultProxy
from sandbox import Driver, label

# Headers that say something to the service; the rest is the transport's.
HEADERS = {"x-api-key", "authorization", "content-type", "connect-protocol-version", "connect-timeout-ms", "keepalive-ping-interval", "x-access-token", "range",
           "e2b-traffic-access-token", "e2b-sandbox-id", "e2b-sandbox-port", "accept-encoding", "user-agent"}
SECRET = {"x-api-key", "authorization", "x-access-token", "e2b-traffic-access-token", "e2b-sandbox-id", "user-agent", "range"}
IDS = [(r"/(i|snap)[0-9a-f]{16,}", "/ID")]
IGNORED = r"^$"


def prepare(_names, _file):
    envd_rig.need_namespaces()
    envd_rig.scripts()


def by_sdk(folder):
    with envd_rig.Peer("e2b", folder) as peer, FaultProxy(peer.control, peer.data) as proxy:
        done = subprocess.run(["node", "e2b_referee.mjs", *proxy.urls, peer.key], cwd=folder, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        return proxy.log


def by_adapter(name, folder):
    with envd_rig.Peer(name, folder) as peer, FaultProxy(peer.control, peer.data) as proxy:
        with Driver(name, {**peer.env, **envd_rig.through(name, proxy)}) as d:
            box = label()
            d.create(box)
            d.sh(box, "echo out", 20000)
            d.ok("stream", box, "f", 3 << 20)
            d.ok("read", box, "f", 0, 3 << 20)
            d.ok("pause", box)
            d.ok("resume", box)
            d.ok("attach", box, d.owner)
            if name == "e2b":
                d.ok("unsnapshot", d.ok("snapshot", box)["snapshot"])
            d.ok("destroy", box)
        return proxy.log


def requests(name):
    folder = envd_rig.scripts()
    return by_sdk(folder), by_adapter(name, folder)
