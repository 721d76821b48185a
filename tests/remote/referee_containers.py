"""The two sides for `daytona` and `opensandbox`: what the official client's check does, and the same things by the adapter."""
import subprocess

from container_services import ready
from fault_proxy import FaultProxy
from rig import sdk
from sandbox import Driver, label

HEADERS = {"open-sandbox-api-key", "authorization", "x-daytona-sdk-version", "x-daytona-source", "content-type", "range"}
SECRET = {"open-sandbox-api-key", "authorization", "x-daytona-sdk-version", "x-daytona-source", "range"}
IDS = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"/sandbox/(mango|sdk-check)-[0-9a-f]+", "/sandbox/NAME"),
]
IGNORED = r"socket\.io|/metrics/events"  # the clients' telemetry, whenever it comes
services = {}


def prepare(names, file):
    services.update(zip(names, ready(file, *names, client=True)))


def by_adapter(name, env):
    box = label()
    with Driver(name, env) as d:
        d.ok("create", box, d.owner, "open", 0, 0, 0, 0)
        d.sh(box, "echo out; echo warn >&2; exit 3")
        d.ok("stream", box, "sub/f.txt", 300000)
        d.ok("read", box, "sub/f.txt", 0, 1000000)
        d.ok("destroy", box)


def requests(name):
    with services[name]() as service, FaultProxy(service.url) as proxy:
        env = {**service.env, **service.through(proxy)}
        subprocess.run(["node", name + "_sdk_check.mjs", *service.check_words(env)], cwd=sdk(name), check=True, timeout=120)
        theirs = proxy.log
        proxy.reset()
        by_adapter(name, env)
        return theirs, proxy.log
