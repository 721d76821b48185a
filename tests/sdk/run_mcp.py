"""Runs mangod against a server of the official MCP TypeScript SDK: what works there, and its faults. MANGO_TEST_SDK as in sdk_rig.py."""
import json
import os
import subprocess
import sys
import time
import urllib.request

import sdk_rig as sdk
from harness import SKIPPED, main, wait_for
from turns import IDLE, ModelCase, confirmation, fake, interrupt, message, of, turn

WORK = os.path.join(sdk.WORK, "mcp")


def prepare():
    """True when the packages are there."""
    sdk.copy(["package.json", "server.mjs"], os.path.join(sdk.HERE, "mcp"), WORK)
    SdkServer.node = sdk.install_npm("the MCP SDK", WORK) and sdk.install_node()
    return SdkServer.node


class SdkServer:
    node = None  # prepare() sets it

    def __enter__(self):
        self.process = subprocess.Popen([self.node, "server.mjs"], cwd=WORK, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().split()
        if line[:1] != ["port"]:
            raise AssertionError(f"the server of the MCP SDK did not start: {line}")
        self.url = f"http://127.0.0.1:{line[1]}"
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def control(self, **what):
        data = json.dumps(what).encode() if what else None
        with urllib.request.urlopen(urllib.request.Request(self.url + "/control", data=data), timeout=10) as answer:
            return json.load(answer)


class McpSdk(ModelCase):
    OPTIONS = {"database": None, "env": {"MANGO_MCP_ALLOW_PRIVATE": "1", "MANGO_MCP_TIMEOUT": "2s"}}

    def setUp(self):
        self.peer = SdkServer()
        self.peer.__enter__()
        self.addCleanup(self.peer.__exit__)

    def session(self, path="/mcp", policy="always_allow"):
        agent = {
            "name": "mcp",
            "model": "m",
            "mcp_servers": [{"type": "url", "name": "sdk", "url": self.peer.url + path}],
            "tools": [
                {"type": "mcp_toolset", "mcp_server_name": "sdk", "default_config": {"permission_policy": {"type": policy}}},
                {"type": "agent_toolset_20260401"},
            ],
        }
        agent_id = self.client.post("/v1/agents", agent)["id"]
        env = self.client.post("/v1/environments", {"name": f"e-{time.monotonic_ns()}", "config": {"type": "cloud"}})["id"]
        return self.client.post("/v1/sessions", {"agent": agent_id, "environment_id": env})["id"]

    def turn(self, session_id, *calls):
        script = fake(*(f"tool mcp__sdk__{name} {json.dumps(arguments)}" for name, arguments in calls), "---", "text done")
        return turn(self.client, session_id, message(script), timeout=60)

    def one(self, tool, arguments=None, session=None, path="/mcp"):
        events = self.turn(session or self.session(path), (tool, arguments or {}))
        results = of(events, "agent.mcp_tool_result")
        self.assertEqual(len(results), 1, events)
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")
        return results[0]

    def text(self, result):
        return result["content"][0]["text"]

    def test_calls_work_with_streams_with_json_and_without_sessions(self):
        for path in ("/mcp", "/json", "/open"):
            with self.subTest(path):
                result = self.one("echo", {"x": "hällo"}, path=path)
                self.assertFalse(result["is_error"], result)
                self.assertEqual(json.loads(self.text(result)), {"x": "hällo"})

    def test_the_tools_and_their_schemas_reach_the_model(self):
        self.one("echo")
        tools = {t["name"]: t for t in self.model.requests()[-1]["body"]["tools"]}
        self.assertEqual(tools["mcp__sdk__add"]["input_schema"]["required"], ["a", "b"])
        self.assertEqual(tools["mcp__sdk__add"]["description"], "Does add")

    def test_structured_content_is_shown_once(self):
        result = self.one("add", {"a": 2, "b": 40})
        self.assertEqual([b["text"] for b in result["content"]], ['{"sum":42}'])

    def test_input_that_the_server_refuses_is_an_error_result(self):
        result = self.one("add", {"a": "two"})
        self.assertTrue(result["is_error"])
        self.assertIn("Input validation error", self.text(result))

    def test_an_exception_of_a_tool_is_an_error_result(self):
        result = self.one("throws")
        self.assertTrue(result["is_error"])
        self.assertIn("it broke", self.text(result))

    def test_images_sounds_resources_and_links(self):
        content = self.one("parts")["content"]
        self.assertEqual([b["type"] for b in content], ["image", "text", "text", "text"])
        self.assertIn("saved as", content[1]["text"])
        self.assertEqual(content[2]["text"], "[resource file:///notes.txt, text/plain]\nthe notes")
        self.assertIn("[resource link big.csv: file:///big.csv, text/csv]", content[3]["text"])

    def test_a_large_result_becomes_a_file(self):
        text = self.text(self.one("large"))
        self.assertLess(len(text), 20000)
        self.assertIn(".mango-tool-results/", text)

    def test_a_confirmation_comes_before_the_call(self):
        sid = self.session(policy="always_ask")
        events = self.turn(sid, ("echo", {"x": "1"}))
        use = of(events, "agent.mcp_tool_use")[0]
        self.assertEqual(self.peer.control()["called"], [])
        events = turn(self.client, sid, confirmation(use["id"]), timeout=60)
        self.assertFalse(of(events, "agent.mcp_tool_result")[0]["is_error"])
        self.assertEqual(self.peer.control()["called"], ["echo"])

    def test_progress_keeps_a_slow_call_alive(self):
        self.assertEqual(self.text(self.one("slow")), "slowly done")  # 2.4 s, and without progress 2 s are the limit

    def test_a_stream_that_the_server_closes_is_resumed(self):
        self.assertEqual(self.text(self.one("poll")), "after the reconnect")
        seen = self.peer.control()
        self.assertEqual((seen["called"], seen["resumed"] > 0), (["poll"], True))

    def test_a_call_that_hangs_is_given_up_and_cancelled(self):
        result = self.one("hang")
        self.assertIn("may or may not have taken effect", self.text(result))
        wait_for("the server is told", lambda: self.peer.control()["cancelled"] == ["hang"])
        self.assertEqual(self.peer.control()["called"], ["hang"])

    def test_an_interrupt_cancels_the_call(self):
        sid = self.session()
        self.one("echo", session=sid)
        with self.client.stream(sid, timeout=60) as stream:
            self.client.say(sid, fake("tool mcp__sdk__hang {}", "---", "text never"))
            wait_for("the call is on its way", lambda: "hang" in self.peer.control()["called"])
            self.client.post(f"/v1/sessions/{sid}/events", {"events": [interrupt()]})
            events = stream.until(IDLE)
        self.assertIn("Interrupted", self.text(of(events, "agent.mcp_tool_result")[0]))
        wait_for("the server is told", lambda: self.peer.control()["cancelled"] == ["hang"])

    def test_a_flood_is_cut(self):
        result = self.one("flood")
        self.assertIn("more messages than one answer may have", self.text(result))

    def test_a_server_that_asks_for_a_model_is_refused_and_goes_on(self):
        self.assertIn("refused", self.text(self.one("sampling")))

    def test_a_server_killed_in_the_middle_of_a_call_leaves_it_ambiguous(self):
        sid = self.session()
        result = self.one("exit", session=sid)
        self.assertIn("may or may not have taken effect", self.text(result))
        self.assertIn("did not run the call", self.text(self.one("echo", session=sid)))

    def test_sessions_that_the_server_forgot_are_opened_again(self):
        sid = self.session()
        self.one("echo", session=sid)
        self.peer.control(forget=True)
        self.assertFalse(self.one("echo", session=sid)["is_error"])
        seen = self.peer.control()
        self.assertEqual((seen["initialized"], seen["called"]), (2, ["echo", "echo"]))

    def test_a_tool_that_went_away_in_between_is_an_error_result(self):
        sid = self.session()
        self.assertEqual(self.text(self.one("renamed", session=sid)), "still here")
        self.one("renames", session=sid)
        result = self.one("renamed", session=sid)
        self.assertTrue(result["is_error"])
        self.assertIn("renamed", self.text(result))

    def test_schemas_that_no_endpoint_takes_are_replaced_and_a_false_result_is_contained(self):
        result = self.one("banana", path="/lies")
        self.assertTrue(result["is_error"])
        tools = {t["name"]: t for t in self.model.requests()[-1]["body"]["tools"]}
        for name in ("banana", "either"):
            self.assertEqual(tools[f"mcp__sdk__{name}"]["input_schema"], {"type": "object"})

    def test_a_deleted_session_ends_the_servers_session(self):
        sid = self.session()
        self.one("echo", session=sid)
        self.client.delete(f"/v1/sessions/{sid}")
        wait_for("the server's session is closed", lambda: self.peer.control()["closed"] == 1)


if __name__ == "__main__":
    if not sdk.asked("installs the MCP SDK from npm"):
        sys.exit(SKIPPED)
    ready = prepare()
    status = sdk.cannot_begin(ready, not ready)
    if status is not None:
        sys.exit(status)
    main()
