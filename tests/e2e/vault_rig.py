"""What tests of credentials share: a server with a keyring, a token endpoint, sessions whose MCP server wants a token."""
import base64
import json
import os
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler

from harness import Mangod
from rig import HttpPeer


def key_text():
    return base64.b64encode(os.urandom(32)).decode()


def write_keyring(path, active, keys):
    with open(path, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
        json.dump({"active_key_id": active, "keys": keys}, f)


class VaultServer(Mangod):
    """A Mangod with a keyring file beside its state; MCP servers and token endpoints of tests are on this host and speak plain HTTP."""

    def __init__(self, keys=None, active="k1", **options):
        env = {"MANGO_MCP_ALLOW_PRIVATE": "1", **options.pop("env", {})}
        super().__init__(env=env, start=False, **options)
        self.keys, self.active = keys or {"k1": key_text()}, active

    def __enter__(self):
        super().__enter__()
        self.keyring = os.path.join(self.dir, "keyring.json")
        self.extra.setdefault("MANGO_VAULT_KEYRING_FILE", self.keyring)
        write_keyring(self.keyring, self.active, self.keys)
        try:
            self.start()
        except BaseException as e:
            self.__exit__(type(e), e, None)
            raise
        return self


class TokenHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        point = self.server.peer
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        form = dict(urllib.parse.parse_qsl(body, strict_parsing=True))
        status, answer = point.answer(form, self.headers.get("authorization"))
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class TokenEndpoint(HttpPeer):
    """Gives access tokens for refresh tokens. rotate: each refresh token is good once. fail: (status, answer) instead. delay_s: of each answer."""

    handler = TokenHandler

    def __init__(self, peer, refresh="refresh-0", rotate=True):
        self.peer, self.good, self.rotate = peer, refresh, rotate
        self.lock, self.forms, self.authorizations, self.issued = threading.Lock(), [], [], []
        self.fail, self.delay_s, self.expires_in = None, 0, 3600

    def __enter__(self):
        super().__enter__()
        self.url = self.base + "/token"
        return self

    def answer(self, form, authorization):
        time.sleep(self.delay_s)
        with self.lock:
            self.forms.append(form)
            self.authorizations.append(authorization)
            if self.fail:
                return self.fail
            if form.get("grant_type") != "refresh_token" or form.get("refresh_token") != self.good:
                return 400, {"error": "invalid_grant", "error_description": f"no such refresh token {form.get('refresh_token')}"}
            token = f"access-{len(self.issued) + 1}-{os.urandom(8).hex()}"
            self.issued.append(token)
            self.peer.tokens.add(token)
            out = {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in}
            if self.rotate:
                self.good = out["refresh_token"] = f"refresh-{len(self.issued)}-{os.urandom(8).hex()}"
            return 200, out


def oauth(peer, point, access="access-0", expires_at=None, auth=None, **refresh):
    return {
        "type": "mcp_oauth",
        "access_token": access,
        "mcp_server_url": peer.url,
        "expires_at": expires_at,
        "refresh": {
            "client_id": "client 1",
            "refresh_token": point.good,
            "token_endpoint": point.url,
            "token_endpoint_auth": auth or {"type": "none"},
            **refresh,
        },
    }


def bearer(peer_url, token):
    return {"type": "static_bearer", "token": token, "mcp_server_url": peer_url}


def new_vault(client, *auths):
    """A vault with these credentials; (vault id, credential ids)."""
    vault = client.post("/v1/vaults", {"display_name": "v"})["id"]
    return vault, [client.post(f"/v1/vaults/{vault}/credentials", {"auth": a})["id"] for a in auths]


def new_session(client, url, *vaults):
    toolset = {"type": "mcp_toolset", "mcp_server_name": "peer", "default_config": {"enabled": True, "permission_policy": {"type": "always_allow"}}}
    agent = {"name": "a", "model": "m", "tools": [toolset], "mcp_servers": [{"type": "url", "name": "peer", "url": url}]}
    agent_id = client.post("/v1/agents", agent)["id"]
    env = client.post("/v1/environments", {"name": f"e{time.monotonic_ns()}", "config": {"type": "cloud"}})["id"]
    return client.post("/v1/sessions", {"agent": agent_id, "environment_id": env, "vault_ids": list(vaults)})["id"]


def turn(client, session, calls=1, timeout=60):
    """The events of a turn that calls the peer's tool."""
    lines = ["#fake", *['tool mcp__peer__echo {"x": "1"}'] * calls, "---", "text done"]
    with client.stream(session, timeout=timeout) as stream:
        client.say(session, "\n".join(lines))
        return stream.until("session.status_idle", "session.status_terminated")
