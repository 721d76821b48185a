"""Files as content: a message names a file, the model gets its bytes, the log keeps the name; what may not be named, and what becomes of a file that is gone."""
import base64
import os

import turns
from harness import main
from mcp_peer import png
from test_outcomes import grade, verdict
from test_resources import upload
from turns import IDLE, TERMINATED, TurnCase, fake, of, reason, text

PDF = b"%PDF-1.4\n" + bytes(range(256)) * 5 + b"\n%%EOF\n"
WORDS = 'Grüße, "quoted"\n\tand a tab'.encode()


def block(kind, file_id, **more):
    return {"type": kind, "source": {"type": "file", "file_id": file_id}, **more}


def say(words, *blocks):
    return {"type": "user.message", "content": [*text(words), *blocks]}


class ContentFiles(TurnCase):
    OPTIONS = {"env": {"MANGO_MODEL_WINDOW": "1000000"}}  # nothing is left out for want of room

    def upload(self, content, filename):
        return upload(self.client, content, filename)["id"]

    def file_row(self, file_id, change):
        self.server.database.query(f"UPDATE files SET {change} WHERE id = '{file_id}'")

    def lose(self, file_id):
        """The object's bytes go behind the server's back."""
        key = self.server.database.query(f"SELECT object_key FROM files WHERE id = '{file_id}'")[0][0]
        root = os.path.join(self.server.dir, "state", "objects")
        (path,) = [os.path.join(d, f) for d, _, files in os.walk(root) for f in files if os.path.join(d, f).replace(os.sep, "").endswith(key)]
        os.unlink(path)

    def test_the_model_gets_the_bytes_and_the_log_keeps_the_names(self):
        image, pdf, words = png(), PDF, WORDS
        ids = self.upload(image, "a.png"), self.upload(pdf, "b.pdf"), self.upload(words, "c.txt")
        sent = [block("image", ids[0]), block("document", ids[1], title="the report"), block("document", ids[2])]
        sid = self.new()
        events = self.until(sid, say(fake("text one"), *sent))
        self.assertEqual("end_turn", reason(events[-1]))
        first = self.last_request()
        shown = first[0]["content"][1:]
        self.assertEqual({"type": "base64", "media_type": "image/png", "data": base64.b64encode(image).decode()}, shown[0]["source"])
        self.assertEqual({"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(pdf).decode()}, shown[1]["source"])
        self.assertEqual("the report", shown[1]["title"])
        self.assertEqual({"type": "text", "media_type": "text/plain", "data": words.decode()}, shown[2]["source"])
        (stored,) = of(self.events(sid), "user.message")
        self.assertEqual(sent, stored["content"][1:])
        (row,) = self.server.database.query(f"SELECT content FROM transcript WHERE session_id = '{sid}' AND content LIKE '%file_id%'")
        self.assertTrue(all(i in row[0] for i in ids))
        self.assertNotIn("base64", row[0])
        self.turn(sid, fake("text two"))
        for m in (first, self.last_request()):
            for b in m[0]["content"]:
                b.pop("cache_control", None)
        self.assertEqual(first[0], self.last_request_without_marks()[0], "the next request begins with the same bytes")

    def last_request_without_marks(self):
        messages = self.last_request()
        for m in messages:
            for b in m["content"]:
                b.pop("cache_control", None)
        return messages

    def test_a_session_may_begin_with_a_file(self):
        sid = self.new(initial_events=[say(fake("text one"), block("document", self.upload(WORDS, "c.txt")))])
        self.idle(sid)
        self.assertEqual(WORDS.decode(), self.last_request()[0]["content"][1]["source"]["data"])

    def test_what_a_block_cannot_carry_is_refused_with_its_place(self):
        image, words = self.upload(png(), "a.png"), self.upload(WORDS, "c.txt")
        expired, foreign = self.upload(WORDS, "d.txt"), self.upload(WORDS, "e.txt")
        self.file_row(expired, "expires_at = now() - interval '1 second'")
        self.server.database.query("INSERT INTO workspaces (id, name) VALUES ('wrkspc_foreign', 'o') ON CONFLICT DO NOTHING")
        self.file_row(foreign, "workspace_id = 'wrkspc_foreign'")
        large = self.upload(b"%PDF-1.4" + b"x" * (20 * 1024 * 1024), "l.pdf")
        half = self.upload(b"%PDF-1.4" + b"x" * (13 * 1024 * 1024), "h.pdf")
        sid = self.new()
        place = "events[0].content[1].source.file_id"
        for blocks, status, words_of_error in [
            ([block("document", "file_none")], 404, "file 'file_none' does not exist"),
            ([block("document", expired)], 404, "has expired"),
            ([block("document", foreign)], 404, "does not exist"),
            ([block("image", words)], 400, "media type is text/plain"),
            ([block("document", image)], 400, "a document must be application/pdf or text/plain"),
            ([block("document", self.upload(b"", "z.txt"))], 400, "is empty"),
            ([block("document", self.upload(b"\xff\xfe", "y.txt"))], 400, "not UTF-8"),
            ([block("document", self.upload(b"no pdf", "x.pdf"))], 400, "no PDF"),
            ([block("image", self.upload(b"no png", "x.png"))], 400, "not a png image"),
            ([block("image", self.upload(png(9000, 1), "w.png"))], 400, "9000 x 1"),
            ([block("document", large)], 400, "may have at most 20971520"),
            ([block("document", half), block("document", half)], 400, "at most 25165824 bytes together"),
        ]:
            with self.subTest(words_of_error):
                message = self.rejected(status, "", self.send, sid, say("look", *blocks)).message
                self.assertIn(words_of_error, message)
                self.assertIn(place.replace("[1]", f"[{len(blocks)}]"), message)
        e = self.rejected(404, "initial_events[0].content[1]", self.new, initial_events=[say("look", block("document", "file_none"))])
        self.assertIn("file_not_found", e.body)
        self.assertEqual([], self.events(sid))
        self.assertEqual([], self.server.database.query(f"SELECT 1 FROM session_files WHERE session_id = '{sid}'"))

    def test_a_file_in_a_conversation_stays_until_the_session_is_archived(self):
        file = self.upload(WORDS, "c.txt")
        sid = self.new()
        self.until(sid, say(fake("text one"), block("document", file)))
        self.rejected(409, f"content of a message of session '{sid}'", self.client.delete, f"/v1/files/{file}")
        self.file_row(file, "expires_at = now() - interval '1 second'")
        other = self.upload(WORDS, "d.txt")
        self.file_row(other, "expires_at = now() - interval '1 second'")
        self.client.delete(f"/v1/files/{self.upload(b'x', 'x.txt')}")  # wakes the keeper
        turns.wait_for("the other file goes", lambda: not self.server.database.query(f"SELECT 1 FROM files WHERE id = '{other}'"))
        self.assertEqual("end_turn", reason(self.turn(sid, fake("text two"))[-1]))
        self.assertEqual(WORDS.decode(), self.last_request()[0]["content"][1]["source"]["data"])
        self.file_row(file, "expires_at = NULL")
        self.client.post(f"/v1/sessions/{sid}/archive")
        self.client.delete(f"/v1/files/{file}")

    def test_bytes_that_are_gone_become_a_note_and_an_error_and_the_session_goes_on(self):
        gone, kept = self.upload(PDF, "b.pdf"), self.upload(WORDS, "c.txt")
        sid = self.new()
        self.until(sid, say(fake("text one"), block("document", gone), block("document", kept)))
        self.lose(gone)
        for n in (2, 3):
            events = self.turn(sid, fake(f"text {n}"))
            self.assertEqual("end_turn", reason(events[-1]))
            shown = self.last_request()[0]["content"]
            self.assertIn(f"the file '{gone}' are not there any more", shown[1]["text"])
            self.assertEqual(WORDS.decode(), shown[2]["source"]["data"])
        (error,) = of(self.events(sid), "session.error")
        self.assertIn(gone, error["error"]["message"])
        self.assertEqual({"type": "retrying"}, error["error"]["retry_status"])

    def test_a_request_carries_the_newest_files_that_fit(self):
        sid = self.new()
        half = [self.upload(b"%PDF-1.4" + n + b"x" * (13 * 1024 * 1024), "h.pdf") for n in (b"1", b"2")]
        for i, file in enumerate(half):
            self.until(sid, say(fake(f"text {i}"), block("document", file)), ends=(IDLE, TERMINATED))
        blocks = [b for m in self.last_request() for b in m["content"] if b["type"] == "document" or "left out" in b.get("text", "")]
        self.assertEqual(["text", "document"], [b["type"] for b in blocks])

    def test_a_rubric_may_be_a_file(self):
        rubric = grade(verdict("satisfied", "as the file says"))
        file = self.upload(rubric.encode(), "rubric.md")
        sid = self.new()
        outcome = {"type": "user.define_outcome", "description": "a haiku", "rubric": {"type": "file", "file_id": file}}
        events = self.until(sid, outcome)
        (end,) = of(events, "span.outcome_evaluation_end")
        self.assertEqual(("satisfied", "as the file says"), (end["result"], end["explanation"]))
        (stored,) = of(self.events(sid), "user.define_outcome")
        self.assertEqual({"type": "file", "file_id": file}, stored["rubric"])
        image = self.upload(png(), "a.png")
        long = self.upload(b"x" * 262145, "r.md")
        for f, words in ((image, "a rubric must be text"), (long, "at most 262144 characters")):
            self.assertIn(words, self.refused(400, sid, {**outcome, "rubric": {"type": "file", "file_id": f}}))

    def test_a_result_of_a_client_names_no_file(self):
        sid, (call,) = self.parked()
        words = self.refused(400, sid, {**turns.custom_result(call), "content": [block("image", self.upload(png(), "a.png"))]})
        self.assertIn("taken in a user.message only", words)


if __name__ == "__main__":
    main()
