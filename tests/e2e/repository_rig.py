"""What tests of repositories share: a host of git repositories (git http-backend behind HTTPS with an authority of its own), and servers that trust it."""
import base64
import os
import shutil
import ssl
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler

from harness import wait_for
from rig import HttpPeer
from vault_rig import VaultServer

BACKEND = "/usr/lib/git-core/git-http-backend"
WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}


def git(folder, *words, data=None):
    """What git says in this folder; no settings of the machine's."""
    env = {"PATH": os.environ["PATH"], "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1", **WHO}
    done = subprocess.run(["git", "-C", folder, *words], env=env, input=data, capture_output=True, timeout=60, check=False)
    if done.returncode:
        raise AssertionError(f"git {' '.join(words)}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode(errors="replace").strip()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        out = b""
        while size := int(self.rfile.readline(), 16):
            out += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return out

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self):
        host, data = self.server.peer, self.body()
        path, _, query = self.path.partition("?")
        name = path.split("/")[1]
        host.seen.append((self.command, self.path, self.headers.get("authorization")))
        host.gate.wait(120)
        if name in host.statuses:
            return self.answer(host.statuses[name], location=host.url("plain"))
        token = host.tokens.get(name)
        if token and self.headers.get("authorization") != "Basic " + base64.b64encode(f"x-access-token:{token}".encode()).decode():
            return self.answer(401, www_authenticate='Basic realm="git"')
        env = {
            "PATH": os.environ["PATH"], "HOME": host.dir, "GIT_CONFIG_NOSYSTEM": "1", "GIT_PROJECT_ROOT": host.dir, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(data)),
            "HTTP_GIT_PROTOCOL": self.headers.get("git-protocol", ""), "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
        }  # fmt: skip
        done = subprocess.run([BACKEND], env=env, input=data, capture_output=True, timeout=60, check=False)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(fields.pop("Status", "200").split()[0])
        fields.pop("Content-Length", None)
        return self.answer(status, rest, **fields)

    do_GET = do_POST = serve


class GitHost(HttpPeer):
    """https://localhost:PORT/NAME. tokens: NAME -> the one that may read it; statuses: NAME -> an answer instead; gate: cleared, requests wait."""

    handler = Handler

    def __init__(self):
        self.tokens, self.statuses, self.seen, self.gate = {}, {}, [], threading.Event()

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="mango-git.", dir="/tmp")
        self.ca = os.path.join(self.dir, "ca.pem")
        key = os.path.join(self.dir, "key.pem")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", self.ca],
            check=True, capture_output=True,
        )  # fmt: skip
        super().__enter__()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.gate.set()
        return self

    def __exit__(self, *_):
        self.gate.set()
        super().__exit__()
        shutil.rmtree(self.dir, ignore_errors=True)

    def url(self, name, host="localhost"):
        return f"https://{host}:{self.server.server_port}/{name}"

    def path(self, name):
        return os.path.join(self.dir, name)

    def new(self, name, files=None, token=None):
        """A repository with one commit on main; its id."""
        path = self.path(name)
        os.makedirs(path)
        git(path, "init", "--quiet", "--initial-branch=main", ".")
        if token:
            self.tokens[name] = token
        return self.commit(name, files or {"README.md": f"this is {name}\n"})

    def commit(self, name, files, branch=None):
        """A commit more, on this branch; its id."""
        path = self.path(name)
        if branch:
            git(path, "checkout", "--quiet", "-b", branch)
        for file, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(path, file)), exist_ok=True)
            if isinstance(text, tuple):
                os.symlink(text[0], os.path.join(path, file))
            else:
                with open(os.path.join(path, file), "w", encoding="utf-8") as f:
                    f.write(text)
        git(path, "add", "--all", "--force")
        git(path, "commit", "--quiet", "-m", "a commit")
        commit = git(path, "rev-parse", "HEAD")
        if branch:
            git(path, "checkout", "--quiet", "main")
        return commit


class RepositoryServer(VaultServer):
    """A Mangod with a keyring that trusts the host, and may reach it on this machine."""

    def __init__(self, host, **options):
        env = {"MANGO_REPOSITORY_ALLOW_PRIVATE": "1", "MANGO_REPOSITORY_CA_FILE": host.ca, **options.pop("env", {})}
        super().__init__(env=env, **options)
        self.host = host

    def session(self, name, **resource):
        """A session with this repository of the host."""
        return self.client.new_session(resources=[{"type": "github_repository", "url": self.host.url(name), **resource}])

    def turn(self, session, command, timeout=60):
        """The events of a turn in which the agent runs a command."""
        before = len(self.client.events(session))
        self.client.say(session, f"run: {command}")
        return self.rest_of_turn(session, before, timeout)

    def rest_of_turn(self, session, before, timeout=60):
        def done():
            new = self.client.events(session)[before:]
            return new if [e for e in new if e["type"] == "session.status_idle"] else None

        return wait_for("the turn ends", done, timeout)

    def ask(self, session, command, timeout=60):
        """The command's output."""
        return said(self.turn(session, command, timeout))


def said(events):
    """The text of the last tool result."""
    results = [e for e in events if e["type"] == "agent.tool_result"]
    return "\n".join(b["text"] for b in results[-1]["content"]) if results else None


def errors(events):
    return [e["error"] for e in events if e["type"] == "session.error"]
