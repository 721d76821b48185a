"""A worker by hand and what the tests of the work queue share."""
import base64
import json
from api import Client
from harness import wait_for
from turns import IDLE, ModelCase

BASH = 'tool bash {"command":"echo hi"}'


class Worker:
    """A worker by hand: polls with a key, acts with the token that the poll gave it."""

    def __init__(self, client, environment, key=None):
        self.environment = environment
        self.poller = Client(client.port, key or client.key)
        self.client, self.work, self.beat = None, None, None

    def path(self, *rest):
        return "/".join([f"/v1/environments/{self.environment}/work", *rest])

    def poll(self, worker_id="hand", **query):
        query = "&".join(f"{k}={v}" for k, v in query.items())
        self.work = self.poller.call("GET", self.path("poll") + (f"?{query}" if query else ""), headers={"Anthropic-Worker-ID": worker_id})
        if self.work:
            secret = self.work["secret"]
            self.token = json.loads(base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4)))["sessions_token"]
            self.client = Client(self.poller.port, self.token)
            self.id, self.session, self.beat = self.work["id"], self.work["data"]["id"], "NO_HEARTBEAT"
        return self.work

    def poll_until(self, timeout=20, **query):
        return wait_for("the poll hands out work", lambda: self.poll(**query), timeout, every=0.05)

    def ack(self):
        return self.poller.post(self.path(self.id, "ack"))

    def heartbeat(self, expected=None, ttl=None):
        query = f"expected_last_heartbeat={expected or self.beat}" + (f"&desired_ttl_seconds={ttl}" if ttl else "")
        answer = self.client.post(self.path(self.id, "heartbeat") + "?" + query)
        if answer["lease_extended"]:
            self.beat = answer["last_heartbeat"]
        return answer

    def stop(self, force=True):
        return self.client.post(self.path(self.id, "stop"), {"force": force})

    def fail(self, **body):
        return self.client.post(self.path(self.id, "fail"), body)

    def claim(self, ttl=None, **query):
        """Poll, ack, first heartbeat."""
        self.poll_until(**query)
        self.ack()
        self.heartbeat(ttl=ttl)
        return self

    def events(self):
        return self.client.events(self.session)

    def open_calls(self):
        events = self.events()
        answered = {e.get("tool_use_id") or e.get("custom_tool_use_id") for e in events if e["type"].endswith("tool_result")}
        return [e for e in events if e["type"] in ("agent.tool_use", "agent.custom_tool_use") and e["id"] not in answered]

    def answer(self, call, text="done", is_error=False):
        custom = call["type"] == "agent.custom_tool_use"
        event = {
            "type": "user.custom_tool_result" if custom else "user.tool_result",
            "custom_tool_use_id" if custom else "tool_use_id": call["id"],
            "content": [{"type": "text", "text": text}],
            "is_error": is_error,
        }
        return self.client.post(f"/v1/sessions/{self.session}/events", {"events": [event]})

    def wait_calls(self, n=1):
        return wait_for(f"{n} open calls", lambda: (lambda c: c if len(c) >= n else None)(self.open_calls()))


class Base(ModelCase):
    def session(self, text=None, **session):
        s = self.client.new_session(environment="self_hosted", **session)
        if text:
            self.client.say(s["id"], text)
        return s

    def worker(self, session):
        return Worker(self.client, session["environment_id"])

    def refused(self, status, function, *args, **kwargs):
        return self.rejected(status, "", function, *args, **kwargs)

    def status(self, session):
        return self.client.get(f"/v1/sessions/{session['id']}")["status"]

    def wait_idle(self, session, reason="end_turn"):
        def idle():
            events = self.client.events(session["id"])
            return events if events[-1]["type"] == IDLE and events[-1]["stop_reason"]["type"] == reason else None

        return wait_for(f"the session is idle with {reason}", idle)
