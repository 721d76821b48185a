"""What tests of webhooks share: who receives, how a signature is checked by hand, and the operator's commands."""
import base64
import hashlib
import hmac
import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler

from harness import BUILD, wait_for
from rig import HttpPeer
from vault_rig import VaultServer

LOCAL = {"MANGO_WEBHOOK_ALLOW_PRIVATE": "1"}


class Notice:
    """One request that came. headers: lower-case names."""

    def __init__(self, path, headers, raw):
        self.path, self.headers, self.raw = path, headers, raw
        self.body = json.loads(raw)
        self.id, self.data = self.body["id"], self.body["data"]
        self.type, self.subject = self.data["type"], self.data["id"]

    def signed_by(self, secret):
        """The signature of Standard Webhooks, made anew."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        text = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.raw
        mine = "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
        return self.headers["webhook-signature"] == mine


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["content-length"]))
        notice = Notice(self.path, {k.lower(): v for k, v in self.headers.items()}, raw)
        self.server.peer.take(notice, self)


class Receiver(HttpPeer):
    """answer: a function of a notice that gives a status, or (status, headers, body); body may be an iterator of pieces. It may block."""

    handler = Handler

    def __init__(self, answer=lambda _: 204):
        self.answer, self.lock, self.notices = answer, threading.Lock(), []

    def __enter__(self):
        super().__enter__()
        self.url = self.base
        return self

    def take(self, notice, handler):
        with self.lock:
            self.notices.append(notice)
        said = self.answer(notice)
        status, headers, body = said if isinstance(said, tuple) else (said, {}, b"")
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        if isinstance(body, bytes):
            handler.send_header("content-length", str(len(body)))
            body = [body]
        else:
            handler.send_header("connection", "close")
            handler.close_connection = True
        handler.end_headers()
        try:
            for piece in body:
                handler.wfile.write(piece)
        except OSError:
            pass  # the sender has read enough

    def of(self, *types, subject=None):
        with self.lock:
            return [n for n in self.notices if (not types or n.type in types) and subject in (None, n.subject)]

    def wait(self, n, *types, subject=None, timeout=60):
        """The notices of these types once there are n."""

        def there():
            got = self.of(*types, subject=subject)
            return got if len(got) >= n else None

        return wait_for(f"{n} notices of {types or 'any type'} came; there are {[x.type for x in self.of()]}", there, timeout)


def mango(server, *words, ok=True, env=None):
    """A command of the operator of this Mangod."""
    argv = [os.path.join(BUILD, "mango"), *words]
    done = subprocess.run(argv, env={**server.environment(), **(env or {})}, capture_output=True, text=True, timeout=60)
    if ok and done.returncode != 0:
        raise AssertionError(f"mango {' '.join(words)}: status {done.returncode}: {done.stderr}")
    return done


def new_webhook(server, url, types="all"):
    """(id, signing secret) of a new one."""
    made = json.loads(mango(server, "webhook", "create", url, "--types", types).stdout)
    return made["id"], made["signing_secret"]


class WebhookServer(VaultServer):
    """A Mangod with a keyring whose webhooks may be on this host."""

    def __init__(self, **options):
        super().__init__(env={**LOCAL, **options.pop("env", {})}, **options)

    def mango(self, *words, **options):
        return mango(self, *words, **options)

    def webhook(self, url, types="all"):
        return new_webhook(self, url, types)

    def webhooks(self):
        return [json.loads(line) for line in self.mango("webhook", "list").stdout.splitlines()]

    def deliveries(self, webhook, columns="state, tries, coalesce(last_error, '')"):
        return self.database.query(f"SELECT {columns} FROM webhook_deliveries WHERE webhook_id = '{webhook}' ORDER BY event_seq")

    def hurry(self):
        """What waits for another try is due, as if time had passed."""
        self.database.query("UPDATE webhook_deliveries SET due_at = now() WHERE state = 'pending'")

    def armed(self):
        """How many of the triggers are enabled, and how many there are."""
        row = self.database.query("SELECT count(*) FILTER (WHERE tgenabled <> 'D'), count(*) FROM pg_trigger WHERE tgname LIKE 'mango_webhook%'")
        return tuple(int(x) for x in row[0])
