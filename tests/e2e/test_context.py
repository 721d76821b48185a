"""The context of a long session: it never outgrows the model's window, it keeps what was said, and the endpoint's cache keeps working."""
import base64
import contextlib
import os
import re
import struct
import unittest

from harness import FakeModel, Mangod, main, wait_for
from test_resources import upload
from turns import IDLE, TOOLSET, fake, message, of, text, tool_result, turn

WINDOW = 32000
TURNS = int(os.environ.get("MANGO_TEST_CONTEXT_TURNS") or 400)


class Context(unittest.TestCase):
    def turn(self, client, sid, words):
        return turn(client, sid, message(words))

    @contextlib.contextmanager
    def server(self, *options, record=True, **env):
        """A server of the test's own, since it learns of windows, and its endpoint, which must never have to refuse a request."""
        with FakeModel(*options, record=record) as model, Mangod(model_url=model.url, env=env) as server:
            yield model, server
            self.assertEqual(model.refused(), 0, "the endpoint had to refuse a request")

    def windowed(self, window=WINDOW):
        """The same for many turns: the endpoint has a window and keeps no requests."""
        return self.enterContext(self.server("--window", window, record=False, MANGO_MODEL_WINDOW=str(WINDOW), MANGO_NODE_TTL="2s"))

    def answer(self, events):
        return of(events, "agent.message")[-1]["content"][0]["text"]

    def test_400_turns_with_tools_stay_in_the_window_and_keep_their_facts(self):
        model, server = self.windowed()
        client = server.client
        sid = client.new_session()["id"]
        self.turn(client, sid, "FACT harbour=Valdez-17 and FACT cargo=tin-4711\n" + fake("text noted"))
        compacted = 0
        for i in range(TURNS):
            events = self.turn(client, sid, fake('tool bash {"command":"head -c 2000 /dev/zero | tr \'\\\\0\' x; echo %d"}' % i, "---", "text turn %d" % i))
            self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn", events)
            self.assertEqual(self.answer(events), "turn %d" % i)
            compacted += len(of(events, "agent.thread_context_compacted"))
            self.assertEqual(len(of(events, "span.model_request_start")), len(of(events, "span.model_request_end")))
        self.assertEqual(self.answer(self.turn(client, sid, fake("recall harbour"))), "harbour=Valdez-17")
        self.assertEqual(self.answer(self.turn(client, sid, fake("recall cargo"))), "cargo=tin-4711")
        stats = model.stats()
        self.assertGreaterEqual(compacted, TURNS // 60)
        self.assertEqual(stats["too_long"], 0)
        self.assertLessEqual(stats["largest"], WINDOW)
        read = stats["input"] + stats["cache_read"] + stats["cache_made"]
        self.assertGreater(stats["cache_read"] / read, 0.8, stats)
        usage = client.get(f"/v1/sessions/{sid}")["usage"]
        self.assertEqual(usage["cache_read_input_tokens"], stats["cache_read"])
        rows = server.database.query(f"SELECT count(*), count(DISTINCT ordinal), max(ordinal) FROM transcript WHERE session_id = '{sid}'")
        self.assertEqual(len(set(rows[0])), 1, "the transcript is whole")
        print(f"# {compacted} compactions, largest {stats['largest']}, cached {stats['cache_read'] / read:.3f}")

    def fill(self, client, sid, turns, size=2000):
        for i in range(turns):
            events = self.turn(client, sid, fake("text %s %d" % ("y" * size, i)))
            self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn", events)
        return events

    def test_a_file_that_a_message_names_counts_before_it_is_sent(self):
        model, server = self.windowed(26000)
        sid = server.client.new_session(tools=False)["id"]
        self.fill(server.client, sid, 11, 2500)
        source = {"type": "file", "file_id": upload(server.client, b"z" * 56000)["id"]}
        events = turn(server.client, sid, {"type": "user.message", "content": [*text(fake("text read")), {"type": "document", "source": source}]})
        self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn", events)
        self.assertEqual(len(of(events, "agent.thread_context_compacted")), 1)
        self.assertEqual(model.stats()["too_long"], 0)

    def test_case_83_a_refusal_at_60_percent_of_the_window_compacts_once_and_bounds_what_follows(self):
        model, server = self.windowed(19000)
        client = server.client
        sid = client.new_session(tools=False)["id"]
        self.turn(client, sid, "FACT quay=north-9\n" + fake("text noted"))
        for i in range(60):
            events = self.turn(client, sid, fake("text %s" % ("y" * 1500)))
            self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn", events)
            self.assertEqual(of(events, "session.error"), [])
            if model.stats()["too_long"]:
                break
        self.assertEqual([e["is_error"] for e in of(events, "span.model_request_end")], [True, False, False])
        self.assertEqual(len(of(events, "agent.thread_context_compacted")), 1)
        self.fill(client, sid, 40, 1500)
        self.assertEqual(model.stats()["too_long"], 1, "the refusal bounds all later requests")
        self.assertEqual(self.answer(self.turn(client, sid, fake("recall quay"))), "quay=north-9")

    def test_case_83_still_too_long_ends_the_turn_with_an_error_and_the_session_goes_on(self):
        with self.server() as (model, server):
            client = server.client
            sid = client.new_session(tools=False)["id"]
            self.turn(client, sid, fake("text one"))
            self.turn(client, sid, fake("text two"))
            model.client.post("/script", {"responses": ["too-long", "text Notes: none", "too-long"]})
            events = self.turn(client, sid, "hello")
            self.assertEqual(len(of(events, "span.model_request_start")), 3, "the request, the summary, the request again")
            error = of(events, "session.error")[-1]["error"]
            self.assertEqual((error["type"], error["retry_status"]["type"]), ("compaction_limit_reached_error", "exhausted"))
            self.assertEqual(events[-1]["stop_reason"]["type"], "retries_exhausted")
            events = self.turn(client, sid, fake("text three"))
            self.assertEqual(self.answer(events), "three")

    def test_a_summary_that_is_refused_as_too_long_is_replaced_by_an_extract(self):
        with self.server() as (model, server):
            client = server.client
            sid = client.new_session(tools=False)["id"]
            self.turn(client, sid, "the password is swordfish")
            self.turn(client, sid, fake("text two"))
            model.client.post("/script", {"responses": ["too-long", "too-long", "text well"]})
            events = self.turn(client, sid, "hello")
            self.assertEqual(self.answer(events), "well")
            self.assertEqual(len(of(events, "agent.thread_context_compacted")), 1)
            first = model.requests()[-1]["body"]["messages"][0]["content"][0]["text"]
            self.assertIn("swordfish", first)

    def test_a_window_that_is_full_in_mid_answer_is_compacted_and_the_answer_continued(self):
        with self.server() as (model, server):
            client = server.client
            sid = client.new_session(tools=False)["id"]
            self.turn(client, sid, fake("text one"))
            self.turn(client, sid, fake("text two"))
            model.client.post("/script", {"responses": ["text half an\nstop model_context_window_exceeded", "text Notes: none", "text answer"]})
            events = self.turn(client, sid, "hello")
            self.assertEqual([m["content"][0]["text"] for m in of(events, "agent.message")], ["half an", "answer"])
            self.assertEqual(len(of(events, "agent.thread_context_compacted")), 1)
            self.assertEqual(events[-1]["stop_reason"]["type"], "end_turn")

    def test_a_summary_survives_a_crash_before_its_commit_and_is_made_once(self):
        for side in ("before", "after"):
            with self.subTest(side), FakeModel("--window", WINDOW) as model:
                env = {"MANGO_MODEL_WINDOW": "12000", "MANGO_NODE_TTL": "2s"}
                with Mangod(model_url=model.url, env=env, hooks=f"turn.compact.{side}=kill") as server:
                    client = server.client
                    sid = client.new_session(tools=False)["id"]
                    said = 0
                    while server.process.running() and said < 40:
                        said += 1
                        try:
                            self.turn(client, sid, fake("text %s %d" % ("z" * 3000, said)))
                        except (OSError, AssertionError):
                            break  # its message was accepted: the hook is in the turn
                    wait_for("the hook fired", lambda: not server.process.running())
                    server.process.end()
                    server.hooks = None
                    server.start()
                    wait_for("the turn ends", lambda: client.get(f"/v1/sessions/{sid}")["status"] == "idle")
                    events = client.events(sid)
                    self.assertEqual(len(of(events, "agent.thread_context_compacted")), 1)
                    self.assertEqual(len(of(events, "agent.message")), said)
        
    # ---- long results ----

    def test_a_result_that_is_too_long_is_kept_as_a_file_and_shown_by_its_ends(self):
        with self.server(MANGO_MODEL_WINDOW=str(WINDOW)) as (model, server):
            client = server.client
            sid = client.new_session()["id"]
            events = self.turn(client, sid, fake('tool bash {"command":"seq 1 12000"}', "---", "text ok"))
            text = of(events, "agent.tool_result")[0]["content"][0]["text"]
            self.assertLess(len(text), 4000)
            self.assertTrue(text.startswith("1\n2\n3\n") and text.endswith("\n11999\n12000"), text[-40:])
            path = re.search(r"tool-results/sevt_\w+\.txt", text).group(0)
            events = self.turn(client, sid, fake('tool read {"file_path":"%s","view_range":[6000,6001]}' % path, "---", "text ok"))
            self.assertEqual(of(events, "agent.tool_result")[0]["content"][0]["text"], "6000\n6001")
            call = 'tool bash {"command":"seq 1 12000 > big.txt"}'
            events = self.turn(client, sid, fake(call, "---", 'tool read {"file_path":"big.txt"}', "---", "text ok"))
            self.assertIn("view_range", of(events, "agent.tool_result")[1]["content"][0]["text"])

    def test_a_clients_result_is_bounded_with_a_notice_and_its_event_is_whole(self):
        with self.server(MANGO_MODEL_WINDOW=str(WINDOW)) as (model, server):
            client = server.client
            sid = self.self_hosted(client)
            self.client_result(client, sid, [{"type": "text", "text": "a" * 90000 + "END"}, {"type": "text", "text": "b" * 90000}])
            shown = model.requests()[-1]["body"]["messages"][-1]["content"][0]["content"]
            self.assertLess(sum(len(b["text"]) for b in shown), 10000)
            self.assertIn("87003 of 90003 bytes are not shown", shown[0]["text"])
            self.assertTrue(shown[0]["text"].endswith("END"))
            self.assertEqual(len(of(client.events(sid), "user.tool_result")[0]["content"][0]["text"]), 90003)

    def test_case_82_an_image_that_would_poison_the_transcript_becomes_a_note(self):
        with self.server() as (model, server):
            client = server.client
            sid = self.self_hosted(client)
            huge = struct.pack(">8sI4sII5B", b"\x89PNG\r\n\x1a\n", 13, b"IHDR", 100000, 100000, 8, 6, 0, 0, 0) + b"\0" * 64
            blocks = [
                {"type": "image", "source": {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}}
                for kind, data in (("image/png", huge), ("image/jpeg", b"just text"), ("image/bmp", b"BM"))
            ]
            self.client_result(client, sid, blocks)
            shown = model.requests()[-1]["body"]["messages"][-1]["content"][0]["content"]
            self.assertEqual([b["type"] for b in shown], ["text"] * 3)
            self.assertIn("100000 x 100000", shown[0]["text"])

    def self_hosted(self, client):
        agent = client.post("/v1/agents", {"name": "a", "model": "m", "tools": [TOOLSET]})["id"]
        env = client.post("/v1/environments", {"name": "s", "config": {"type": "self_hosted"}})["id"]
        return client.post("/v1/sessions", {"agent": agent, "environment_id": env})["id"]

    def client_result(self, client, sid, content):
        with client.stream(sid) as stream:
            client.say(sid, fake('tool bash {"command":"x"}', "---", "text ok"))
            call = stream.until("agent.tool_use")[-1]["id"]
            client.post(f"/v1/sessions/{sid}/events", {"events": [{**tool_result(call), "content": content}]})
            return stream.until(IDLE)

    # ---- poison ----

    def test_case_82_a_block_that_the_endpoint_refuses_is_replaced_and_the_session_goes_on(self):
        with self.server() as (model, server):
            client = server.client
            sid = client.new_session(tools=False)["id"]
            image = {"type": "image", "source": {"type": "url", "url": "https://example.com/gone.png"}}
            self.turn(client, sid, fake("text one"))
            refusal = "status 400 messages.2.content.1.image.source.url: could not be fetched"
            model.client.post("/script", {"responses": [refusal, "text fine"]})
            content = [{"type": "text", "text": "look"}, image, {"type": "text", "text": "please"}]
            events = turn(client, sid, {"type": "user.message", "content": content})
            self.assertEqual(self.answer(events), "fine")
            error = of(events, "session.error")[0]["error"]
            self.assertEqual(error["retry_status"]["type"], "retrying")
            for _ in range(2):
                blocks = model.requests()[-1]["body"]["messages"][2]["content"]
                self.assertEqual([b["type"] for b in blocks], ["text", "text", "text"])
                self.assertIn("could not be fetched", blocks[1]["text"])
                self.assertEqual(self.answer(self.turn(client, sid, fake("text on"))), "on")
            stored = server.database.query(f"SELECT content FROM transcript WHERE session_id = '{sid}' AND ordinal = 3")[0][0]
            self.assertIn("gone.png", stored, "the transcript is as it was")

    def test_a_note_that_is_refused_too_ends_the_turn_as_any_permanent_failure(self):
        with self.server() as (model, server):
            sid = server.client.new_session(tools=False)["id"]
            model.client.post("/script", {"responses": ["status 400 messages.0.content.0: no"] * 3})
            events = self.turn(server.client, sid, "hello")
            self.assertEqual(events[-1]["type"], "session.status_terminated")
            self.assertEqual(len(of(events, "span.model_request_start")), 2)


if __name__ == "__main__":
    main()
