"""The two sides for `e2b` and `cube`: the scenario by E2B's official SDK, and by the adapter."""
import base64
import json
import re
import subprocess
import urllib.parse

import envd_rig
from proxy_rig import Proxy
from sandbox import Driver, label

# Headers that say something to the service; the rest is the transport's.
HEADERS = {"x-api-key", "authorization", "content-type", "connect-protocol-version", "connect-timeout-ms", "keepalive-ping-interval", "x-access-token", "range",
           "e2b-traffic-access-token", "e2b-sandbox-id", "e2b-sandbox-port", "accept-encoding", "user-agent"}
SECRET = {"x-api-key", "authorization", "x-access-token", "e2b-traffic-access-token", "e2b-sandbox-id", "user-agent", "range"}


def by_sdk(folder):
    with envd_rig.Peer("e2b", folder) as peer, Proxy(folder, peer.control, peer.data) as proxy:
        done = subprocess.run(["node", "e2b_referee.mjs", *proxy.urls, peer.key], cwd=folder, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        return proxy.log()


def by_adapter(name, folder):
    with envd_rig.Peer(name, folder) as peer, Proxy(folder, peer.control, peer.data) as proxy:
        env = dict(peer.env)
        if name == "e2b":
            env.update(E2B_API_URL=proxy.urls[0], E2B_SANDBOX_URL=proxy.urls[1])
        else:
            env.update(CUBE_API_URL=proxy.urls[0], CUBE_PROXY_PORT_HTTP=proxy.urls[1].rsplit(":", 1)[1])
        with Driver(name, env) as d:
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
        return proxy.log()


def requests(name):
    folder = envd_rig.scripts()
    return by_sdk(folder), by_adapter(name, folder)


def fields(value, at):
    """The paths of a JSON value, without what stands in them. Maps with keys of the user's own are one."""
    if isinstance(value, dict) and not at.endswith((".metadata", ".envs")):
        for k, v in value.items():
            yield from fields(v, f"{at}.{k}")
    else:
        yield f"{at}: {type(value).__name__}"


def facts(entry):
    """(operation, what can be said about the request)."""
    path, _, query = entry["path"].partition("?")
    path = re.sub(r"/(i|snap)[0-9a-f]{16,}", "/ID", path)
    operation = f"{entry['method']} {path.removeprefix('/v2')}"
    said = {"path " + path} | {f"query {k}" for k in dict(urllib.parse.parse_qsl(query, keep_blank_values=True))}
    for k, v in entry["headers"].items():
        if k in HEADERS:
            said.add(f"header {k}" if k in SECRET else f"header {k}: {re.sub('boundary=.*', 'boundary', v)}")
    body = base64.b64decode(entry.get("body") or "")
    kind = entry["headers"].get("content-type", "")
    if kind.startswith("application/connect+json"):
        body = body[5:]
    if "json" in kind and body:
        said.update(fields(json.loads(body), "body"))
    return operation, said
