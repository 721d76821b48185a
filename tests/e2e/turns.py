"""What the tests of turns share: one server on a scripted model endpoint that checks each request, and short words for what they send and look at."""
import json
import os
import signal
import unittest

from api import ApiError
from harness import STOP_S, FakeModel, Mangod, listens, wait_for

TURN_S = 60
# What commands of the tests wait at: a FIFO that nobody writes, for those that are to be killed, and one that pass_gate opens.
NEVER = "mkfifo never; cat never"
GATE = "[ -p go ] || mkfifo go; touch begun; cat go"
IDLE = "session.status_idle"
TERMINATED = "session.status_terminated"
TOOLSET = {"type": "agent_toolset_20260401"}
CUSTOM = {"type": "custom", "name": "lookup", "description": "looks up", "input_schema": {"type": "object"}}


def fake(*lines):
    """A script of tests/support/endpoint-script.h as the text of a message."""
    return "#fake\n" + "\n".join(lines)


def bash(command):
    """The line of a script that calls the tool with it."""
    return "tool bash " + json.dumps({"command": command})


def pass_gate(folders, name="go", timeout=TURN_S):
    """Lets what waits at the FIFO `name` of any of the folders go on: waits for it."""

    def opened():
        for folder in folders():
            try:
                os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK))
                return True
            except OSError:
                pass  # no such FIFO, or nobody reads it yet
        return False

    wait_for(f"a command waits at {name}", opened, timeout)


def stop_while_it_waits(server, folder):
    """A clean stop of a server whose command waits at the gate of the folder: it goes on when the server takes no connection any more. The exit status."""
    server.process.signal(signal.SIGTERM)
    wait_for("the server takes no connection any more", lambda: not listens(server.process.pid, server.port))
    pass_gate(lambda: [folder])
    return server.process.wait(STOP_S)


def text(value):
    return [{"type": "text", "text": value}]


def message(value):
    return {"type": "user.message", "content": text(value)}


def system(value):
    return {"type": "system.message", "content": text(value)}


def interrupt():
    return {"type": "user.interrupt"}


def custom_result(call, value="found", **more):
    return {"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": text(value), **more}


def tool_result(call, value="done", **more):
    return {"type": "user.tool_result", "tool_use_id": call, "content": text(value), **more}


def confirmation(call, result="allow", **more):
    return {"type": "user.tool_confirmation", "tool_use_id": call, "result": result, **more}


def of(events, *kinds):
    return [e for e in events if e["type"] in kinds]


def types(events):
    return [e["type"] for e in events]


def calls(events):
    return [e for e in events if e["type"].endswith("tool_use")]


def results(events):
    return [e for e in events if e["type"].endswith("tool_result")]


def answered(result):
    """The id of the call that a result event answers."""
    return next(result[k] for k in ("tool_use_id", "custom_tool_use_id", "mcp_tool_use_id") if k in result)


def shown(event):
    return "".join(b.get("text", "") for b in event["content"])


def reason(event):
    return event["stop_reason"]["type"]


def turn(client, sid, *events, ends=(IDLE, TERMINATED), timeout=30):
    """Sends and returns the events since, up to the first end."""
    with client.stream(sid, timeout=timeout) as stream:
        client.post(f"/v1/sessions/{sid}/events", {"events": list(events)})
        return stream.until(*ends)


class ModelCase(unittest.TestCase):
    """One server and one model endpoint for the class; the endpoint must never have to refuse a request."""

    OPTIONS = {}

    @classmethod
    def setUpClass(cls):
        cls.model = cls.enterClassContext(FakeModel())
        cls.server = cls.enterClassContext(Mangod(model_url=cls.model.url, **cls.OPTIONS))
        cls.client = cls.server.client

    def tearDown(self):
        self.assertEqual(self.model.refused(), 0, "the endpoint had to refuse a request")

    def rejected(self, status, words, call, *args, **more):
        """The call is answered by an error of this status that has these words; returns the error."""
        with self.assertRaises(ApiError) as caught:
            call(*args, **more)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(words, str(caught.exception))
        return caught.exception


class TurnCase(ModelCase):
    # ---- sessions ----

    def new(self, *tools, environment="cloud", policy=None, **session):
        """A session whose agent has these tools; policy: of the built-in toolset, which is there when it is given."""
        if policy:
            tools += ({**TOOLSET, "default_config": {"permission_policy": {"type": policy}}},)
        agent = self.client.post("/v1/agents", {"name": "a", "model": "m", "tools": list(tools)})["id"]
        name = "e-" + os.urandom(6).hex()
        place = self.client.post("/v1/environments", {"name": name, "config": {"type": environment}})["id"]
        return self.client.post("/v1/sessions", {"agent": agent, "environment_id": place, **session})["id"]

    def send(self, sid, *events):
        return self.client.post(f"/v1/sessions/{sid}/events", {"events": list(events)})["data"]

    def refused(self, status, sid, *events):
        """The error's message; nothing of the request may have been stored."""
        before = self.events(sid)
        error = self.rejected(status, "", self.send, sid, *events)
        self.assertEqual(error.headers.get("x-should-retry"), "false", "a client would try it again")
        self.assertEqual(self.events(sid), before, "a refused request left something")
        return error.message

    def events(self, sid):
        return self.client.events(sid)

    def status(self, sid):
        return self.client.get(f"/v1/sessions/{sid}")["status"]

    # ---- waiting ----

    def until(self, sid, *events, **more):
        """turn() on the server of the class."""
        return turn(self.client, sid, *events, **more)

    def turn(self, sid, words, **more):
        """The same with one message of this text."""
        return self.until(sid, message(words), **more)

    def idle(self, sid, n=1, timeout=30):
        """The events once the session is idle and has said so n times at least."""

        def settled():
            try:
                events = self.events(sid)
            except ApiError as e:  # a test may have taken the database away
                self.assertEqual(e.status, 503, e)
                return None
            return events if events and events[-1]["type"] == IDLE and len(of(events, IDLE)) >= n else None

        return wait_for(f"the session is idle for time {n}", settled, timeout)

    def requested(self, what, n=1):
        """Waits until the endpoint has n requests that hold this text."""
        return wait_for(
            f"the endpoint has {n} requests with {what}", lambda: sum(what in str(r["body"]) for r in self.model.requests()) >= n
        )

    def last_request(self):
        return self.model.requests()[-1]["body"]["messages"]

    def parked(self, n=1, *, tools=(CUSTOM,), after="text done", **session):
        """A session that waits for n results of custom tools: (session, call ids)."""
        sid = self.new(*tools, **session)
        events = self.until(sid, message(fake(*['tool lookup {"n":%d}' % i for i in range(n)], "---", after)))
        self.assertEqual(reason(events[-1]), "requires_action")
        return sid, events[-1]["stop_reason"]["event_ids"]

    def asked(self, *commands, environment="cloud", after="text done"):
        """A session that waits for confirmations of these bash commands: (session, call ids)."""
        sid = self.new(policy="always_ask", environment=environment)
        lines = ['tool bash {"command":"%s"}' % c for c in commands or ("echo hi",)]
        events = self.until(sid, message(fake(*lines, "---", after)))
        return sid, events[-1]["stop_reason"]["event_ids"]

    def assert_goes_on(self, sid):
        events = self.turn(sid, "hello")
        self.assertEqual(reason(events[-1]), "end_turn")
        self.assertTrue(of(events, "agent.message"))
