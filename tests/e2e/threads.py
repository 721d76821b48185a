"""What the tests of coordinators share: agents with a roster, and their threads."""
import json
import os

from harness import wait_for
from turns import IDLE, TurnCase, fake, of


def task(agent, *script, **more):
    """A line of a script: the coordinator sends an agent a script of its own."""
    return "tool send_to_agent " + json.dumps({"agent_name": agent, "message": fake(*script), **more})


def define(agent, *script, **more):
    """The same with an agent that the coordinator defines for it."""
    return "tool send_to_agent " + json.dumps({"inline_agent": agent, "message": fake(*script), **more})


def say(*script):
    """A line of a child's script: its message is a script for the coordinator."""
    return "text " + fake(*script).replace("\n", "\\n")


class Team:
    """The calls of tests on one client."""

    def __init__(self, client):
        self.client = client

    def agent(self, name, tools=(), **more):
        return self.client.post("/v1/agents", {"name": name, "model": "m", "tools": list(tools), **more})

    def roster(self, *agents):
        return {"type": "coordinator", "agents": [a["id"] for a in agents]}

    def session(self, *names, tools=(), lead_tools=(), environment="cloud", **more):
        """A session of a coordinator whose roster has agents of these names."""
        agents = [self.agent(name, tools) for name in names]
        lead = self.agent("lead", lead_tools, multiagent=self.roster(*agents))
        return self.of(lead, environment, **more)

    def of(self, lead, environment="cloud", **more):
        """A session of an agent, in an environment of its own."""
        place = self.client.post("/v1/environments", {"name": "e-" + os.urandom(6).hex(), "config": {"type": environment}})
        return self.client.post("/v1/sessions", {"agent": lead["id"], "environment_id": place["id"], **more})["id"]

    def threads(self, sid, query=""):
        return self.client.get(f"/v1/sessions/{sid}/threads{query}")["data"]

    def children(self, sid):
        return [t for t in self.threads(sid) if t["parent_thread_id"]]

    def primary(self, sid):
        return next(t for t in self.threads(sid) if not t["parent_thread_id"])

    def log(self, sid, thread):
        """All events of a thread."""
        return self.client.pages(f"/v1/sessions/{sid}/threads/{thread}/events?limit=100")

    def child(self, sid, n=1):
        """The n-th child, once there is one."""
        return wait_for(f"thread {n} is there", lambda: (self.children(sid) + [None] * n)[n - 1])

    def thread_is(self, sid, thread, *statuses, timeout=30):
        def look():
            t = self.client.get(f"/v1/sessions/{sid}/threads/{thread}")
            return t if t["status"] in statuses else None

        return wait_for(f"thread {thread} is {statuses}", look, timeout)


class ThreadCase(TurnCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.team = Team(cls.client)

    def quiet(self, sid, timeout=30):
        """The session's events once no thread runs."""

        def look():
            if self.status(sid) != "idle":
                return None
            events = self.events(sid)
            return events if of(events, IDLE) else None

        return wait_for("no thread of the session runs", look, timeout)
