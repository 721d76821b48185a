"""The official TypeScript client as the referee: the same things are asked for by it and by the adapter through one recording proxy in front of the same
service, and the requests are laid side by side: method and path, query, members of JSON bodies, parts of forms, headers that matter.

    tests/remote/run_container_referee.py opensandbox | daytona

Every difference stands in EXPECTED with its reason; another one fails."""
import json
import re
import subprocess
import sys
import urllib.parse

from rig import enter_engine, prepared, sdk, under_engine

under_engine(__file__)
import dtn  # noqa: E402
import osb  # noqa: E402
from fault_proxy import FaultProxy  # noqa: E402
from sandbox import Driver, label  # noqa: E402

HEADERS = {"open-sandbox-api-key", "authorization", "x-daytona-sdk-version", "x-daytona-source", "content-type", "range"}
IDS = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "{id}"),
    (r"/sandbox/(mango|sdk-check)-[0-9a-f]+", "/sandbox/{name}"),
]
# service -> what may differ: "METHOD PATH" for a request that only one side makes, "METHOD PATH: what" for a part of one that both make.
EXPECTED = {
    "opensandbox": {
        "GET /v1/sandboxes": "the adapter looks before and after each creation: the service has no key for idempotent creation",
        "GET /v1/sandboxes/{id}": "the adapter waits for the state Running and compares the label",
        "POST /v1/sandboxes: +member extensions": "the client sends its empty defaults",
        "POST /v1/sandboxes: +member env": "the client sends its empty defaults",
        "POST /v1/sandboxes: +member secureAccess": "the client sends its empty defaults",
        "GET /v1/sandboxes/{id}/endpoints/18080": "the client asks for the filter's address although there is none",
        "GET /v1/sandboxes/{id}/proxy/44772/files/info": "the adapter's stat is mango-errand's",
        "POST /v1/sandboxes/{id}/proxy/44772/command: -member timeout": "the adapter never starts what nothing ends",
        "POST /v1/metrics/events": "the client's telemetry",
        **{
            f"{at}: +header open-sandbox-api-key": "what goes to a sandbox does not carry the service's key: without the proxy the sandbox would see it"
            for at in (
                "GET /v1/sandboxes/{id}/proxy/44772/ping",
                "GET /v1/sandboxes/{id}/proxy/44772/files/download",
                "POST /v1/sandboxes/{id}/proxy/44772/command",
                "POST /v1/sandboxes/{id}/proxy/44772/files/upload",
            )
        },
    },
    "daytona": {
        "GET /api/sandbox/{name}": "the adapter looks under its name before a creation; the client makes",
        "POST /api/sandbox: +member env": "the client sends its empty defaults",
        "POST /toolbox/{id}/files/bulk-download": "the adapter takes one file, and a part of it: GET /files/download with Range",
        "GET /toolbox/{id}/files/download": "see bulk-download",
        "GET /toolbox/{id}/files/info": "the adapter's stat is mango-errand's",
        "POST /toolbox/{id}/process/execute: +member cwd": "mango-errand opens the folder",
        "GET /api/sandbox": "a list for the reconciler, not part of this scenario",
        "POST /api/sandbox/{id}/stop": "the client's check stops and starts",
        "POST /api/sandbox/{id}/start": "the client's check stops and starts",
    },
}


def shape(record):
    method, path, headers, body = record
    at, _, query = path.partition("?")
    for pattern, name in IDS:
        at = re.sub(pattern, name, at)
    kind = headers.get("Content-Type", headers.get("content-type", ""))
    parts = {"query " + k for k in urllib.parse.parse_qs(query)}
    parts |= {"header " + k.lower() for k in headers if k.lower() in HEADERS}
    if kind.startswith("application/json") and body:
        parts |= {"member " + k for k in json.loads(body)} if body.strip().startswith(b"{") else set()
    if kind.startswith("multipart/"):
        parts |= {"part " + n.decode() for n in re.findall(rb'form-data; name="?([^";\r\n]+)', body)}
    return f"{method} {at}", parts


def shapes(records):
    out = {}
    for r in records:
        name, parts = shape(r)
        if "socket.io" not in name:
            out.setdefault(name, set()).update(parts)
    return out


def by_adapter(name, env):
    box = label()
    with Driver(name, env) as d:
        d.ok("create", box, d.owner, "open", 0, 0, 0, 0)
        d.sh(box, "echo out; echo warn >&2; exit 3")
        d.ok("stream", box, "sub/f.txt", 300000)
        d.ok("read", box, "sub/f.txt", 0, 1000000)
        d.ok("destroy", box)


def differences(theirs, ours):
    for name in sorted(set(theirs) | set(ours)):
        if name not in theirs or name not in ours:
            yield name, f"{name}   [only {'the client' if name in theirs else 'the adapter'}]"
            continue
        for part in sorted(theirs[name] ^ ours[name]):
            sign = "+" if part in theirs[name] else "-"
            yield f"{name}: {sign}{part}", f"{name}: {part}   [only {'the client' if sign == '+' else 'the adapter'}]"


def main(name):
    python, program = prepared(osb.prepare)
    folder = prepared(lambda: sdk(name))
    enter_engine()
    service = osb.OpenSandbox(python, program) if name == "opensandbox" else dtn.Daytona(program)
    with service:
        proxy = FaultProxy(service.port)
        if name == "opensandbox":
            env = {**service.env, "OPEN_SANDBOX_DOMAIN": f"127.0.0.1:{proxy.own}", "OPEN_SANDBOX_USE_SERVER_PROXY": "true"}
            argv = [env["OPEN_SANDBOX_DOMAIN"], osb.KEY, env["OPEN_SANDBOX_IMAGE"], "yes"]
        else:
            env = {**service.env, "DAYTONA_API_URL": f"http://127.0.0.1:{proxy.own}/api"}
            argv = [env["DAYTONA_API_URL"], dtn.KEY, env["DAYTONA_IMAGE"]]
        subprocess.run(["node", name + "_sdk_check.mjs", *argv], cwd=folder, check=True, timeout=120)
        theirs = shapes(proxy.recorded)
        proxy.reset()
        by_adapter(name, env)
        ours = shapes(proxy.recorded)
        proxy.end()
    new = 0
    for key, line in differences(theirs, ours):
        why = EXPECTED[name].get(key)
        new += why is None
        print(f"{'differs' if why else 'NEW    '}  {line}{'   ' + why if why else ''}")
    print(f"{len(set(theirs) & set(ours))} requests alike but for what is above; {new} differences without a reason")
    return 1 if new else 0


if __name__ == "__main__":
    if sys.argv[1:2] not in (["opensandbox"], ["daytona"]):
        sys.exit("usage: run_container_referee.py opensandbox|daytona")
    sys.exit(main(sys.argv[1]))
