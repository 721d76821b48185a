"""Files: uploads in every form that clients send, lists of both dialects, downloads byte for byte, and what a broken or hostile upload leaves behind."""
import hashlib
import http.client
import json
import os
import secrets
import socket
import threading
import unittest
import urllib.parse

from api import ApiError
from harness import Mangod, main, wait_for

FILE_MEMBERS = {"id", "type", "filename", "mime_type", "size_bytes", "created_at", "downloadable", "expires_at", "scope"}
MIB = 1024 * 1024


def multipart(*parts, boundary="xXx-boundary-xXx", end=True):
    """The body of (headers, content) parts; a part may also be (name, filename, content)."""
    out = b""
    for p in parts:
        if len(p) == 3:
            name, filename, content = p
            head = f'Content-Disposition: form-data; name="{name}"'.encode()
            if filename is not None:
                head += b'; filename="' + (filename if isinstance(filename, bytes) else filename.encode()) + b'"'
        else:
            head, content = p
        out += b"--" + boundary.encode() + b"\r\n" + head + b"\r\n\r\n" + content + b"\r\n"
    return out + (b"--" + boundary.encode() + b"--\r\n" if end else b"")


TYPE = {"content-type": "multipart/form-data; boundary=xXx-boundary-xXx"}


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Mangod(sandbox=None)
        cls.server.__enter__()
        cls.c = cls.server.client

    @classmethod
    def tearDownClass(cls):
        if not cls.server.process.running():
            print(cls.server.log()[-4000:])
        cls.server.__exit__(None, None, None)

    def send(self, body, headers=TYPE):
        status, _, text = self.c.raw("POST", "/v1/files", body, headers)
        return status, json.loads(text)

    def upload(self, content=b"hello", filename="a.txt", **fields):
        parts = [("file", filename, content), *[(k, None, str(v).encode()) for k, v in fields.items()]]
        status, made = self.send(multipart(*parts))
        self.assertEqual(200, status, made)
        return made

    def content(self, file_id):
        status, headers, body = self.c.raw("GET", f"/v1/files/{file_id}/content")
        self.assertEqual(200, status, body[:300])
        return headers, body

    def objects(self):
        return self.server.database.query("SELECT state, count(*) FROM objects GROUP BY 1 ORDER BY 1")

    def stored(self):
        root = os.path.join(self.server.dir, "state", "objects")
        return sorted(os.path.join(d, f) for d, _, files in os.walk(root) for f in files if f != "id")

    def settled(self):
        """What the store holds is what rows name: waits for the removal of the rest."""

        def same():
            keys = {r[0] for r in self.server.database.query("SELECT key FROM objects")}
            names = {"".join(p.split(os.sep)[-2:]) for p in self.stored()}
            return keys == names and not [r for r in self.objects() if r[0] != "ready"]

        wait_for("nothing lies in the store that no row names", same)

    # ---- one file ----

    def test_a_file_comes_back_byte_for_byte(self):
        for n in (0, 1, 5, 65535, 65536, 65537, 3 * MIB + 17):
            data = os.urandom(n)
            made = self.upload(data, "x.bin")
            with self.subTest(bytes=n):
                self.assertEqual(FILE_MEMBERS, set(made))
                self.assertEqual(("file", "x.bin", n, True, None, None), tuple(made[k] for k in ("type", "filename", "size_bytes", "downloadable", "expires_at", "scope")))
                self.assertEqual(made, self.c.get(f"/v1/files/{made['id']}"))
                headers, body = self.content(made["id"])
                self.assertEqual(data, body)
                self.assertEqual(str(n), headers["content-length"])
                sha = self.server.database.query(f"SELECT sha256 FROM files WHERE id = '{made['id']}'")[0][0]
                self.assertEqual(hashlib.sha256(data).hexdigest(), sha)

    def test_a_deleted_file_is_gone_and_so_are_its_bytes(self):
        made = self.upload()
        self.assertEqual({"id": made["id"], "type": "file_deleted"}, self.c.delete(f"/v1/files/{made['id']}"))
        for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            self.assertEqual(404, self.c.raw(method, f"/v1/files/{made['id']}{path}")[0])
        self.settled()

    def test_a_head_request_tells_the_length_alone(self):
        made = self.upload(b"x" * 1000)
        status, headers, body = self.c.raw("HEAD", f"/v1/files/{made['id']}/content")
        self.assertEqual((200, "1000", b""), (status, headers["content-length"], body))

    def test_a_connection_serves_uploads_and_downloads_one_after_another(self):
        conn = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        for i in range(5):
            conn.request("POST", "/v1/files", multipart(("file", f"{i}.txt", b"%d" % i * 100000)), self.c.headers(TYPE))
            made = json.loads(conn.getresponse().read())
            sock = conn.sock
            conn.request("GET", f"/v1/files/{made['id']}/content", headers=self.c.headers())
            self.assertEqual(b"%d" % i * 100000, conn.getresponse().read())
            self.assertIs(sock, conn.sock, "the connection was kept")
        conn.close()

    def test_a_file_of_another_workspace_does_not_exist(self):
        made = self.upload()
        self.server.database.query("INSERT INTO workspaces (id, name) VALUES ('wrkspc_other', 'o') ON CONFLICT DO NOTHING")
        key = "other-" + secrets.token_hex(16)
        sha = hashlib.sha256(key.encode()).hexdigest()
        self.server.database.query(f"INSERT INTO api_keys (id, workspace_id, name, secret_sha256, hint) VALUES ('key_{secrets.token_hex(4)}', 'wrkspc_other', 'k', '{sha}', 'x')")
        other = type(self.c)(self.server.port, key)
        for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            self.assertEqual(404, other.raw(method, f"/v1/files/{made['id']}{path}")[0])
        self.assertEqual([], other.get("/v1/files")["data"])

    def test_an_expired_file_is_gone_with_its_bytes(self):
        made = self.upload(expires_in_seconds=3600)
        self.assertIsNotNone(made["expires_at"])
        self.server.database.query(f"UPDATE files SET expires_at = now() - interval '1 second' WHERE id = '{made['id']}'")
        status, _, text = self.c.raw("GET", f"/v1/files/{made['id']}")
        self.assertEqual((404, "file_expired"), (status, json.loads(text)["error"]["details"]["error_code"]))
        self.assertNotIn(made["id"], [f["id"] for f in self.c.get("/v1/files?limit=1000")["data"]])
        self.c.delete(f"/v1/files/{self.upload()['id']}")  # wakes the keeper
        self.settled()
        self.assertEqual([], self.server.database.query(f"SELECT 1 FROM files WHERE id = '{made['id']}'"))

    # ---- names and types ----

    def test_case_94_names_are_their_last_component_and_refused_when_they_are_tricks(self):
        good = [
            ("a.txt", "a.txt"), ("../../etc/passwd", "passwd"), ("/etc/passwd", "passwd"), ("C:\\dir\\x.txt", "x.txt"), ("dir/", "unnamed.txt"),
            ("", "unnamed.txt"), ("é.txt", "é.txt"), ("e\u0301.txt", "e\u0301.txt"), ("日本.txt", "日本.txt"), (" a .txt ", " a .txt "), ("x" * 255, "x" * 255),
            ("é" * 255, "é" * 255), (".hidden", ".hidden"), ("-rf", "-rf"), ("a'b;c=d&e%20f", "a'b;c=d&e%20f"), ("CON", "CON"), ("a%2Fb", "a%2Fb"),
            ("👨‍👩‍👧.png", "👨‍👩‍👧.png"), ("#hash", "#hash"),
        ]  # fmt: skip
        for sent, shown in good:
            with self.subTest(sent=sent):
                head = f'Content-Disposition: form-data; name="file"; filename="{sent}"\r\nContent-Type: text/plain'.encode()
                status, made = self.send(multipart((head, b"x")))
                self.assertEqual((200, shown), (status, made.get("filename")), made)
                header = self.content(made["id"])[0]["content-disposition"]
                self.assertTrue(header.startswith("attachment; "))
                self.assertEqual(shown, urllib.parse.unquote(header.split("UTF-8''")[1]))
                self.assertTrue(header.isascii() and "\r" not in header and "\n" not in header)
        bad = ["a:b", "a<b", "a>b", "a|b", "a?b", "a*b", 'a\\"b', "..", ".", "x" * 256, "a\tb", "a\u202eb", "a\u2028b", "a\u0085b", "x/..", b"\xff\xfe", b"a\x00b", b"\xed\xa0\x80"]
        for sent in bad:
            with self.subTest(sent=sent):
                status, answer = self.send(multipart(("file", sent, b"x")))
                self.assertEqual(400, status, answer)
        self.settled()

    def test_case_94_the_extended_form_of_a_name_wins(self):
        for head, shown in [
            ("filename*=UTF-8''%e2%82%ac%20rates.txt", "€ rates.txt"),
            ("filename=\"plain.txt\"; filename*=utf-8'en'caf%C3%A9", "café"),
            ("filename*=utf-8''..%2F..%2Fx; filename=y", "x"),
            ("filename=unquoted.txt", "unquoted.txt"),
        ]:
            with self.subTest(head=head):
                status, made = self.send(multipart((f'Content-Disposition: form-data; name="file"; {head}'.encode(), b"x")))
                self.assertEqual((200, shown), (status, made.get("filename")), made)
        for head in ["filename*=iso-8859-1''x", "filename*=UTF-8''%zz", "filename*=UTF-8''%", 'filename="a"; filename="b"', 'filename="a', "filename*=UTF-8''%00"]:
            with self.subTest(head=head):
                self.assertEqual(400, self.send(multipart((f'Content-Disposition: form-data; name="file"; {head}'.encode(), b"x")))[0])

    def test_the_type_is_the_parts_own_or_the_names(self):
        for sent, name, shown in [
            ("image/png", "x.txt", "image/png"), ("text/plain; charset=utf-8", "x", "text/plain; charset=utf-8"), (None, "x.pdf", "application/pdf"),
            (None, "x.JPG", "image/jpeg"), (None, "x", "application/octet-stream"), ("nonsense", "x.csv", "text/csv"), ("text/html\"<x", "x", "application/octet-stream"),
        ]:  # fmt: skip
            with self.subTest(sent=sent, name=name):
                head = f'Content-Disposition: form-data; name="file"; filename="{name}"' + (f"\r\nContent-Type: {sent}" if sent else "")
                status, made = self.send(multipart((head.encode(), b"x")))
                self.assertEqual((200, shown), (status, made.get("mime_type")), made)
                headers = self.content(made["id"])[0]
                self.assertEqual((shown, "nosniff"), (headers["content-type"], headers["x-content-type-options"]))

    # ---- broken and hostile uploads ----

    def test_case_94_a_broken_upload_is_refused_and_leaves_nothing(self):
        whole = multipart(("file", "a.txt", b"hello"))
        before = len(self.c.get("/v1/files?limit=1000")["data"])
        for what, body, headers in [
            ("without its end", multipart(("file", "a.txt", b"hello"), end=False), TYPE),
            ("cut inside of the content", whole[:-20], TYPE),
            ("cut inside of the last boundary", whole[:-6], TYPE),
            ("without parts", b"--xXx-boundary-xXx--\r\n", TYPE),
            ("empty", b"", TYPE),
            ("two files", multipart(("file", "a", b"1"), ("file", "b", b"2")), TYPE),
            ("a file without a filename", multipart(("file", None, b"1")), TYPE),
            ("another field", multipart(("file", "a", b"1"), ("purpose", None, b"x")), TYPE),
            ("a part without a name", multipart((b"Content-Disposition: form-data", b"x")), TYPE),
            ("a part without headers", multipart((b"", b"x")), TYPE),
            ("a part that is encoded", multipart((b'Content-Disposition: form-data; name="file"; filename="a"\r\nContent-Transfer-Encoding: base64', b"eA==")), TYPE),
            ("an expiry too soon", multipart(("file", "a", b"1"), ("expires_in_seconds", None, b"3599")), TYPE),
            ("an expiry too late", multipart(("file", "a", b"1"), ("expires_in_seconds", None, b"7776001")), TYPE),
            ("an expiry that is no number", multipart(("file", "a", b"1"), ("expires_in_seconds", None, b"soon")), TYPE),
            ("an expiry that is long", multipart(("file", "a", b"1"), ("expires_in_seconds", None, b"9" * 100)), TYPE),
            ("two expiries", multipart(("file", "a", b"1"), ("expires_in_seconds", None, b"3600"), ("expires_in_seconds", None, b"3600")), TYPE),
            ("no boundary", whole, {"content-type": "multipart/form-data"}),
            ("a long boundary", whole, {"content-type": "multipart/form-data; boundary=" + "x" * 71}),
            ("a bad boundary", whole, {"content-type": 'multipart/form-data; boundary="a\\b"'}),
            ("the wrong boundary", whole, {"content-type": "multipart/form-data; boundary=other"}),
            ("large headers", multipart((b'Content-Disposition: form-data; name="file"; filename="a"\r\nX: ' + b"x" * 20000, b"1")), TYPE),
            ("a long filename", multipart(("file", "x" * 5000, b"1")), TYPE),
        ]:  # fmt: skip
            with self.subTest(what=what):
                status, answer = self.send(body, headers)
                self.assertEqual((400, "invalid_request_error"), (status, answer["error"]["type"]), answer)
        for kind in ("application/json", "text/plain", "multipart/mixed; boundary=x"):
            self.assertEqual(415, self.send(whole, {"content-type": kind})[0])
        self.assertEqual(before, len(self.c.get("/v1/files?limit=1000")["data"]))
        self.settled()

    def test_content_that_looks_like_a_boundary_is_content(self):
        for data in [
            b"\r\n--xXx-boundary-xX", b"--xXx-boundary-xXx", b"\r\n", b"\r", b"\r\r\n--xXx", b"\r\n\r\n--", b"x\r\n--xXx-boundary-xXy\r\n", b"\r" * 70000, b"\r\n--xXx-" * 20000,
        ]:  # fmt: skip
            with self.subTest(data=data[:30]):
                self.assertEqual(data, self.content(self.upload(data)["id"])[1])

    def test_a_body_may_arrive_in_any_pieces(self):
        data = b"a\r\n--xXx-boundary-xXb\r\n--xXx" + b"z" * 100
        body = b"preamble\r\n" + multipart(("file", "a.txt", data)) + b"epilogue"
        head = "".join(f"{k}: {v}\r\n" for k, v in {**self.c.headers(TYPE), "host": "x", "transfer-encoding": "chunked", "connection": "close"}.items())
        for size in (1, 2, 3, 7, 50):
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                s.sendall(f"POST /v1/files HTTP/1.1\r\n{head}\r\n".encode())
                for i in range(0, len(body), size):
                    piece = body[i : i + size]
                    s.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
                s.sendall(b"0\r\n\r\n")
                answer = b""
                while chunk := s.recv(65536):
                    answer += chunk
            self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer)
            self.assertEqual(data, self.content(json.loads(answer.split(b"\r\n\r\n", 1)[1])["id"])[1])

    def raw_upload(self, head, body=b"", close=False):
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        lines = "".join(f"{k}: {v}\r\n" for k, v in {**self.c.headers(TYPE), "host": "x", **head}.items())
        s.sendall(f"POST /v1/files HTTP/1.1\r\n{lines}\r\n".encode() + body)
        if close:
            s.close()
        return s

    def answer(self, s):
        got = b""
        with s:
            while chunk := s.recv(65536):
                got += chunk
        return got

    def test_case_94_an_upload_that_breaks_off_leaves_nothing(self):
        body = multipart(("file", "a.bin", b"x" * 300000))
        for cut in (0, 30, 200, 1000, 100000, len(body) - 5):
            self.raw_upload({"content-length": len(body)}, body[:cut], close=True)
        self.settled()

    def test_case_94_too_large_is_refused_before_it_is_sent_and_while_it_comes(self):
        too_much = 501 * MIB + 1
        answer = self.answer(self.raw_upload({"content-length": too_much, "connection": "close"}))
        self.assertTrue(answer.startswith(b"HTTP/1.1 413"), answer)
        self.assertIn(b"request_too_large", answer)
        self.settled()

    def test_a_client_that_asks_first_sends_no_byte_in_vain(self):
        head = {"content-length": 1000, "expect": "100-continue", "connection": "close"}
        answer = self.answer(self.raw_upload({**head, "x-api-key": "wrong"}))
        self.assertTrue(answer.startswith(b"HTTP/1.1 401"), answer)
        body = multipart(("file", "a.txt", b"hello"))
        s = self.raw_upload({**head, "content-length": len(body)})
        self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 100 Continue"))
        s.sendall(body)
        self.assertTrue(self.answer(s).startswith(b"HTTP/1.1 200"))

    def test_an_early_refusal_reaches_a_client_that_is_still_sending(self):
        body = multipart(("nope", "a.txt", b"x" * 4 * MIB))
        s = self.raw_upload({"content-length": len(body)})
        s.sendall(body[:200000])
        self.assertTrue(self.answer(s).startswith(b"HTTP/1.1 400"))

    def test_case_94_fifty_uploads_at_once(self):
        data = [os.urandom(200000 + i) for i in range(50)]
        made = [None] * 50

        def one(i):
            made[i] = self.upload(data[i], f"{i}.bin")

        threads = [threading.Thread(target=one, args=(i,)) for i in range(50)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i in range(0, 50, 7):
            self.assertEqual(data[i], self.content(made[i]["id"])[1])

    def test_slow_uploads_do_not_hold_up_other_requests(self):
        body = multipart(("file", "a.txt", b"x" * 1000))
        slow = [self.raw_upload({"content-length": len(body)}, body[:200]) for _ in range(40)]
        self.assertEqual(200, self.c.raw("GET", "/v1/files?limit=1", timeout=10)[0])
        for s in slow:
            s.close()
        self.settled()

    # ---- lists ----

    def test_lists_of_both_dialects_walk_without_gap_or_repeat(self):
        made = [self.upload(filename=f"{i}.txt")["id"] for i in range(7)][::-1]

        def mine(rows):
            return [f["id"] for f in rows if f["id"] in made]

        first = self.c.get("/v1/files?limit=3")
        self.assertEqual({"data", "next_page", "has_more", "first_id", "last_id"}, set(first))
        self.assertEqual((made[:3], True, made[0], made[2]), (mine(first["data"]), first["has_more"], first["first_id"], first["last_id"]))
        second = self.c.get(f"/v1/files?limit=3&page={urllib.parse.quote(first['next_page'])}")
        self.assertEqual(made[3:6], mine(second["data"]))
        by_id = self.c.get(f"/v1/files?limit=3&after_id={made[2]}&beta=true")
        self.assertEqual((made[3:6], True), (mine(by_id["data"]), by_id["has_more"]))
        back = self.c.get(f"/v1/files?limit=2&before_id={made[3]}")
        self.assertEqual((made[1:3], True), (mine(back["data"]), back["has_more"]))
        newest = self.c.get(f"/v1/files?limit=5&before_id={made[2]}")
        self.assertEqual((made[:2], False), (mine(newest["data"]), newest["has_more"]))
        self.c.delete(f"/v1/files/{made[2]}")
        self.assertEqual(made[3:5], mine(self.c.get(f"/v1/files?limit=2&after_id={made[2]}")["data"]), "the page goes on behind a file that was deleted")
        ids = "&".join(f"ids[]={i}" for i in [made[0], "file_unknown", made[4]])
        self.assertEqual([made[0], made[4]], [f["id"] for f in self.c.get(f"/v1/files?{ids}")["data"]])
        self.assertEqual([], self.c.get("/v1/files?scope_id=sesn_none")["data"])
        for query in ("limit=0", "limit=1001", f"ids[]={made[0]}&limit=5", f"after_id={made[0]}&before_id={made[1]}", "page=x", "order=asc", "after_id=a/b"):
            with self.subTest(query=query), self.assertRaises(ApiError) as caught:
                self.c.get(f"/v1/files?{query}")
            self.assertEqual(400, caught.exception.status)


if __name__ == "__main__":
    main()
