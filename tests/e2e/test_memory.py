"""Memory stores: what clients see, paths, versions, preconditions, redaction, and eight writers at once (semantics ME1 to ME6)."""
import hashlib
import json
import os
import random
import re
import shutil
import tempfile
import threading
import time
import unittest
import urllib.parse

from api import ApiError, Client
from harness import Mangod, Transaction, main, wait_for
from memory_paths import REFUSED, TAKEN
from turns import message, of, turn
from work_rig import Worker
from worker_rig import MangoWorker, issue

WRITERS_S = float(os.environ.get("MANGO_TEST_MEMORY_S", "6"))  # seconds of the test with eight writers; issue 6 asks for 300


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Mangod()
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__, None, None, None)
        cls.client = cls.server.client

    def setUp(self):
        self.store = self.client.post("/v1/memory_stores", {"name": "s"})["id"]
        self.path = f"/v1/memory_stores/{self.store}"

    def put(self, path, content="x", view="full"):
        return self.client.post(f"{self.path}/memories?view={view}", {"path": path, "content": content})

    def versions(self, query=""):
        return self.client.pages(f"{self.path}/memory_versions?limit=100{query}")

    def refused(self, status, text, method, path, body=None):
        with self.assertRaises(ApiError) as e:
            self.client.call(method, path, body)
        self.assertEqual(e.exception.status, status, e.exception.message)
        self.assertIn(text, e.exception.message)
        return e.exception


class Stores(Case):
    def test_a_store_is_what_the_contract_says(self):
        made = self.client.post("/v1/memory_stores", {"name": "Notes", "description": "of\nAda", "metadata": {"a": "b"}})
        self.assertEqual(sorted(made), ["archived_at", "created_at", "description", "id", "metadata", "name", "type", "updated_at"])
        self.assertEqual((made["type"], made["name"], made["description"], made["archived_at"]), ("memory_store", "Notes", "of\nAda", None))
        path = f"/v1/memory_stores/{made['id']}"
        self.assertEqual(self.client.get(path), made)
        self.assertEqual(self.client.get(self.path)["description"], "", "not null when there is none")
        changed = self.client.post(path, {"description": None, "metadata": {"a": None}, "name": None})
        self.assertEqual((changed["name"], changed["description"], changed["metadata"]), ("Notes", "", {}))
        self.assertIn(made["id"], [s["id"] for s in self.client.pages("/v1/memory_stores?limit=2")])
        since = urllib.parse.quote(made["created_at"])
        self.assertEqual([s["id"] for s in self.client.pages(f"/v1/memory_stores?created_at[lte]={since}&created_at[gte]={since}")], [made["id"]])
        self.assertEqual(self.client.delete(path), {"id": made["id"], "type": "memory_store_deleted"})
        self.refused(404, made["id"], "GET", path)

    def test_bad_bodies_are_refused_with_the_field(self):
        cases = [
            ("/v1/memory_stores", {}, "name"),
            ("/v1/memory_stores", {"name": ""}, "name"),
            ("/v1/memory_stores", {"name": "x" * 256}, "name"),
            ("/v1/memory_stores", {"name": "a\u0007"}, "name"),
            ("/v1/memory_stores", {"name": "a", "description": "x" * 1025}, "description"),
            ("/v1/memory_stores", {"name": "a", "scope": "x"}, "scope"),
            (f"{self.path}/memories", {"content": "x"}, "path"),
            (f"{self.path}/memories", {"path": "/a"}, "content"),
            (f"{self.path}/memories", {"path": "/a", "content": 1}, "content"),
            (f"{self.path}/memories", {"path": "/a", "content": "x" * 102401}, "content"),
            (f"{self.path}/memories", {"path": "/a", "content": "ä" * 51201}, "content"),
            (f"{self.path}/memories?view=all", {"path": "/a", "content": ""}, "view"),
            (f"{self.path}/memories/mem_x", {"precondition": {"type": "etag"}}, "precondition.type"),
            (f"{self.path}/memories/mem_x", {"precondition": {"type": "content_sha256", "content_sha256": "A" * 64}}, "content_sha256"),
        ]
        for where, body, text in cases:
            with self.subTest(f"{where} {json.dumps(body)[:80]}"):
                self.refused(400, text, "POST", where, body)
        for query, text in [
            ("path_prefix=/a", "path_prefix"), ("path_prefix=a/", "path_prefix"), ("path_prefix=/a//", "path_prefix"), ("path_prefix=/../", "path_prefix"),
            ("depth=2", "depth"), ("depth=-1", "depth"), ("view=x", "view"), ("limit=101", "limit"), ("limit=0", "limit"), ("page=x", "page"), ("order=asc", "order"),
        ]:
            with self.subTest(query):
                self.refused(400, text, "GET", f"{self.path}/memories?{query}")
        self.refused(400, "operation", "GET", f"{self.path}/memory_versions?operation=renamed")
        self.refused(400, "expected_content_sha256", "DELETE", f"{self.path}/memories/mem_x?expected_content_sha256=1")
        for method, what in [("GET", "memories/mem_x"), ("POST", "memories/mem_x"), ("DELETE", "memories/mem_x"), ("GET", "memory_versions/memver_x"), ("POST", "memory_versions/memver_x/redact")]:
            self.refused(404, "does not exist", method, f"{self.path}/{what}", {} if method == "POST" else None)
        self.refused(404, "memory store", "GET", "/v1/memory_stores/memstore_x/memories")

    def test_me4_an_archived_store_takes_deletes_and_redactions_only(self):
        m = self.put("/a")
        self.client.post(f"{self.path}/memories/{m['id']}", {"content": "y"})
        archived = self.client.post(f"{self.path}/archive")
        self.assertIsNotNone(archived["archived_at"])
        self.assertEqual(self.client.post(f"{self.path}/archive"), archived)
        self.refused(400, "archived", "POST", self.path, {"name": "x"})
        self.refused(400, "archived", "POST", f"{self.path}/memories", {"path": "/b", "content": ""})
        self.refused(400, "archived", "POST", f"{self.path}/memories/{m['id']}", {"content": "z"})
        self.assertEqual(self.client.get(f"{self.path}/memories/{m['id']}")["content"], "y")
        self.client.post(f"{self.path}/memory_versions/{m['memory_version_id']}/redact")
        self.client.delete(f"{self.path}/memories/{m['id']}")
        self.assertNotIn(self.store, [s["id"] for s in self.client.pages("/v1/memory_stores?limit=100")])
        self.assertIn(self.store, [s["id"] for s in self.client.pages("/v1/memory_stores?limit=100&include_archived=true")])

    def test_stores_are_of_one_workspace(self):
        m = self.put("/a")
        self.server.database.query("INSERT INTO workspaces (id, name) VALUES ('wrkspc_other', 'Other') ON CONFLICT DO NOTHING")
        self.server.database.query(f"INSERT INTO api_keys (id, workspace_id, name, secret_sha256, hint) VALUES ('key_other', 'wrkspc_other', 'o', '{sha('other-key')}', 'o')")
        other = Client(self.client.port, "other-key")
        for path in ("", "/memories", f"/memories/{m['id']}", "/memory_versions"):
            self.assertEqual(other.raw("GET", self.path + path)[0], 404)


class Memories(Case):
    def test_a_memory_is_what_the_contract_says(self):
        text = "gr\u00fc\u00df\u00e9\n\u0000\t\"\\ \U0001f600 e\u0301"
        made = self.put("/projects/foo/notes.md", text)
        fields = ["content", "content_sha256", "content_size_bytes", "created_at", "id", "memory_store_id", "memory_version_id", "path", "type", "updated_at"]
        self.assertEqual(sorted(made), fields)
        self.assertEqual((made["type"], made["memory_store_id"], made["path"]), ("memory", self.store, "/projects/foo/notes.md"))
        self.assertEqual((made["content"], made["content_sha256"], made["content_size_bytes"]), (text, sha(text), len(text.encode())))
        self.assertEqual(self.client.get(f"{self.path}/memories/{made['id']}"), made)
        self.assertEqual(self.client.get(f"{self.path}/memories/{made['id']}?view=basic"), {**made, "content": None})
        self.assertEqual(self.client.post(f"{self.path}/memories", {"path": "/empty", "content": None})["content"], None, "basic by default")
        self.assertEqual(self.put("/zero", "")["content"], "")
        full = "x" * 102400
        self.assertEqual(self.put("/full", full)["content_size_bytes"], 102400)
        self.assertEqual(self.client.delete(f"{self.path}/memories/{made['id']}"), {"id": made["id"], "type": "memory_deleted"})
        self.refused(404, made["id"], "GET", f"{self.path}/memories/{made['id']}")

    def test_case_92_hostile_paths_get_their_exact_answer(self):
        for path, text in REFUSED:
            with self.subTest(repr(path)[:60]):
                self.refused(400, text, "POST", f"{self.path}/memories", {"path": path, "content": ""})
        self.assertEqual(self.client.get(f"{self.path}/memories")["data"], [], "nothing is left behind")
        made = self.put("/start")
        for path, text in REFUSED:
            with self.subTest(f"rename to {path!r}"[:60]):
                self.refused(400, text, "POST", f"{self.path}/memories/{made['id']}", {"path": path})
        for path in TAKEN:
            with self.subTest(repr(path)[:60]):
                one = self.client.post("/v1/memory_stores", {"name": "s"})["id"]
                m = self.client.post(f"/v1/memory_stores/{one}/memories", {"path": path, "content": "x"})
                self.assertEqual(m["path"], path)
                self.assertEqual([x["path"] for x in self.client.get(f"/v1/memory_stores/{one}/memories")["data"]], [path])

    def test_no_path_is_above_another(self):
        below = self.put("/a/b/c")
        self.put("/a-b"), self.put("/a/bc"), self.put("/a.b/c")
        for path in ("/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b/c/d/e"):
            with self.subTest(path):
                status, headers, text = self.client.raw("POST", f"{self.path}/memories", json.dumps({"path": path, "content": ""}).encode(), {"content-type": "application/json"})
                error = json.loads(text)["error"]
                self.assertEqual((status, error["type"], headers["x-should-retry"]), (409, "memory_path_conflict_error", "false"))
                if path != "/a":  # there more than one is in the way
                    self.assertEqual((error["conflicting_memory_id"], error["conflicting_path"]), (below["id"], "/a/b/c"))
        other = self.put("/other")
        with self.assertRaises(ApiError) as e:
            self.client.post(f"{self.path}/memories/{other['id']}", {"path": "/a/b"})
        self.assertEqual((e.exception.status, e.exception.type), (409, "memory_path_conflict_error"))
        moved = self.client.post(f"{self.path}/memories/{below['id']}", {"path": "/a/b"})
        self.assertEqual((moved["id"], moved["path"]), (below["id"], "/a/b"), "its own old place is not in its way")

    def test_me3_preconditions(self):
        m = self.put("/a", "one")
        path = f"{self.path}/memories/{m['id']}"
        must = lambda text: {"type": "content_sha256", "content_sha256": sha(text)}  # noqa: E731
        changed = self.client.post(path, {"content": "two", "precondition": must("one")})
        self.assertNotEqual(changed["memory_version_id"], m["memory_version_id"])
        status, headers, text = self.client.raw("POST", path, json.dumps({"content": "three", "precondition": must("one")}).encode(), {"content-type": "application/json"})
        self.assertEqual((status, json.loads(text)["error"]["type"], headers["x-should-retry"]), (409, "memory_precondition_failed_error", "false"))
        again = self.client.post(path, {"content": "two", "precondition": must("one")})
        self.assertEqual(again, changed, "a repeat of what is done succeeds and makes no version")
        self.assertEqual(self.client.post(path, {}), changed)
        self.assertEqual(self.client.post(path, {"content": None, "path": None}), changed)
        renamed = self.client.post(path + "?view=full", {"path": "/b", "precondition": must("two")})
        self.assertEqual((renamed["path"], renamed["content"]), ("/b", "two"))
        self.refused(409, "content_sha256", "DELETE", f"{path}?expected_content_sha256={sha('one')}")
        self.client.delete(f"{path}?expected_content_sha256={sha('two')}")
        self.assertEqual([v["operation"] for v in self.versions()], ["deleted", "modified", "modified", "created"])

    def test_lists_by_prefix_and_depth(self):
        for path in ("/a/1", "/a/2", "/a/b/3", "/a/b/4", "/ab/5", "/c", "/z/y/x"):
            self.put(path, path)
        show = lambda items: [(i["type"], i["path"]) for i in items]  # noqa: E731
        all_paths = ["/a/1", "/a/2", "/a/b/3", "/a/b/4", "/ab/5", "/c", "/z/y/x"]
        self.assertEqual([i["path"] for i in self.client.pages(f"{self.path}/memories?limit=2")], all_paths)
        self.assertEqual([i["path"] for i in self.client.pages(f"{self.path}/memories?limit=2&path_prefix=/a/")], all_paths[:4])
        self.assertEqual(
            show(self.client.pages(f"{self.path}/memories?limit=1&depth=1")),
            [("memory_prefix", "/a/"), ("memory_prefix", "/ab/"), ("memory", "/c"), ("memory_prefix", "/z/")],
        )
        self.assertEqual(show(self.client.pages(f"{self.path}/memories?limit=2&depth=1&path_prefix=/a/")), [("memory", "/a/1"), ("memory", "/a/2"), ("memory_prefix", "/a/b/")])
        self.assertEqual(self.client.get(f"{self.path}/memories?path_prefix=/none/")["data"], [])
        self.assertEqual({i["content"] for i in self.client.get(f"{self.path}/memories")["data"]}, {None})
        self.assertEqual([i["content"] for i in self.client.get(f"{self.path}/memories?view=full&depth=1")["data"] if i["type"] == "memory"], ["/c"])
        for i in range(20):
            self.put(f"/many/{i:02}", "x")
        page = self.client.get(f"{self.path}/memories?view=full&limit=100")
        self.assertEqual(len(page["data"]), 20, "pages with contents are small")
        self.assertIsNotNone(page["next_page"])
        self.assertEqual(len(self.client.pages(f"{self.path}/memories?view=full&limit=100")), 27)
        self.refused(400, "page", "GET", f"{self.path}/memories?depth=1&page={page['next_page']}")

    def test_me1_a_store_has_at_most_two_thousand_memories(self):
        self.server.database.query(
            "INSERT INTO memories (id, store_id, path, version_id, content, content_sha256, content_size, created_at, updated_at)"
            f" SELECT 'mem_fill' || i, '{self.store}', '/fill/' || i, 'memver_x', '\"\"', '{sha('')}', 0, now(), now() FROM generate_series(1, 1999) i"
        )
        self.put("/last")
        self.refused(400, "2000", "POST", f"{self.path}/memories", {"path": "/more", "content": ""})
        self.client.delete(f"{self.path}/memories/mem_fill1")
        self.put("/more")


class Versions(Case):
    def test_me2_every_change_is_a_version_with_its_actor(self):
        m = self.put("/a", "one")
        key = self.server.database.query("SELECT id FROM api_keys WHERE bootstrap")[0][0]
        self.client.post(f"{self.path}/memories/{m['id']}", {"content": "two"})
        self.client.post(f"{self.path}/memories/{m['id']}", {"path": "/b"})
        self.client.delete(f"{self.path}/memories/{m['id']}")
        newest_first = self.versions("&view=full")
        fields = ["content", "content_sha256", "content_size_bytes", "created_at", "created_by", "id", "memory_id", "memory_store_id", "operation", "path", "redacted_at", "redacted_by", "type"]
        self.assertEqual(sorted(newest_first[0]), fields)
        got = [(v["operation"], v["path"], v["content"], v["content_sha256"], v["content_size_bytes"]) for v in newest_first]
        self.assertEqual(
            got,
            [("deleted", "/b", None, None, None), ("modified", "/b", "two", sha("two"), 3), ("modified", "/a", "two", sha("two"), 3), ("created", "/a", "one", sha("one"), 3)],
        )
        self.assertEqual({json.dumps(v["created_by"]) for v in newest_first}, {json.dumps({"type": "api_actor", "api_key_id": key})})
        self.assertEqual({v["memory_id"] for v in newest_first}, {m["id"]})
        one = self.client.get(f"{self.path}/memory_versions/{m['memory_version_id']}")
        self.assertEqual((one["content"], one["redacted_at"], one["redacted_by"]), ("one", None, None))
        self.assertEqual(self.client.get(f"{self.path}/memory_versions/{m['memory_version_id']}?view=basic")["content"], None)

    def test_versions_are_filtered(self):
        m, n = self.put("/a"), self.put("/b")
        self.client.delete(f"{self.path}/memories/{n['id']}")
        key = self.server.database.query("SELECT id FROM api_keys WHERE bootstrap")[0][0]
        count = lambda query: len(self.versions(query))  # noqa: E731
        self.assertEqual(count(""), 3)
        self.assertEqual(count(f"&memory_id={n['id']}"), 2)
        self.assertEqual(count("&operation=deleted"), 1)
        self.assertEqual(count(f"&api_key_id={key}"), 3)
        self.assertEqual(count("&session_id=sesn_x"), 0)
        self.assertEqual(count("&service_account_id=svac_x"), 0)
        at = urllib.parse.quote(self.versions(f"&memory_id={m['id']}")[0]["created_at"])
        self.assertEqual(count(f"&created_at[lte]={at}"), 1)
        self.assertEqual(len(self.client.pages(f"{self.path}/memory_versions?limit=1")), 3)

    def test_me5_redaction_takes_the_text_and_keeps_the_place(self):
        m = self.put("/secret", "p4ssword")
        changed = self.client.post(f"{self.path}/memories/{m['id']}", {"content": "clean", "path": "/open"})
        self.refused(409, "update or delete the memory first", "POST", f"{self.path}/memory_versions/{changed['memory_version_id']}/redact")
        redacted = self.client.post(f"{self.path}/memory_versions/{m['memory_version_id']}/redact")
        self.assertEqual([redacted[k] for k in ("path", "content", "content_sha256", "content_size_bytes")], [None] * 4)
        self.assertIsNotNone(redacted["redacted_at"])
        self.assertEqual(redacted["redacted_by"]["type"], "api_actor")
        self.assertEqual(redacted["operation"], "created")
        self.assertEqual(self.client.post(f"{self.path}/memory_versions/{m['memory_version_id']}/redact"), redacted, "twice is fine")
        self.assertEqual([v["id"] for v in self.versions()], [changed["memory_version_id"], m["memory_version_id"]])
        self.assertEqual(self.server.database.query("SELECT count(*) FROM memory_versions WHERE content LIKE '%p4ssword%' OR path = '/secret'"), [["0"]])
        self.client.delete(f"{self.path}/memories/{m['id']}")
        deleted = self.versions()[0]
        self.assertIsNone(self.client.post(f"{self.path}/memory_versions/{deleted['id']}/redact")["path"])


class Sessions(Case):
    """Stores of self_hosted sessions: their workers read and write them with the token of their item."""

    def session(self, *resources, environment="self_hosted"):
        return self.client.new_session(environment, resources=list(resources))

    def store_resource(self, store=None, **more):
        return {"type": "memory_store", "memory_store_id": store or self.store, **more}

    def worker(self, *resources):
        session = self.session(*resources)
        self.client.say(session["id"], "run: true")
        return Worker(self.client, session["environment_id"]).claim(ttl=30)

    def denied(self, client, status, text, method, path, body=None):
        with self.assertRaises(ApiError) as e:
            client.call(method, path, body)
        self.assertEqual(e.exception.status, status, e.exception.message)
        self.assertIn(text, e.exception.message)

    def test_a_session_shows_its_stores(self):
        other = self.client.post("/v1/memory_stores", {"name": "Ada's Notes!", "description": "d"})["id"]
        made = self.session(self.store_resource(instructions="Read \n me"), self.store_resource(other, access="read_only"))
        first = {"type": "memory_store", "memory_store_id": self.store, "access": "read_write", "name": "s", "description": "", "instructions": "Read \n me", "mount_path": None}
        second = {"type": "memory_store", "memory_store_id": other, "access": "read_only", "name": "Ada's Notes!", "description": "d", "instructions": None, "mount_path": None}
        self.assertEqual(made["resources"], [first, second])
        self.assertEqual(self.client.get(f"/v1/sessions/{made['id']}")["resources"], [first, second])
        self.assertEqual([s["id"] for s in self.client.get(f"/v1/sessions?memory_store_id={other}")["data"]], [made["id"]])
        self.refused(400, "mounted in session", "DELETE", f"/v1/memory_stores/{other}")
        self.client.post(f"/v1/sessions/{made['id']}/archive")
        self.client.delete(f"/v1/memory_stores/{other}")

    def test_what_a_session_does_not_take(self):
        agent = self.client.post("/v1/agents", {"name": "a", "model": "m"})["id"]
        env = {kind: self.client.post("/v1/environments", {"name": f"{kind}{time.monotonic_ns()}", "config": {"type": kind}})["id"] for kind in ("cloud", "self_hosted")}
        archived = self.client.post("/v1/memory_stores", {"name": "old"})["id"]
        self.client.post(f"/v1/memory_stores/{archived}/archive")
        twin = self.client.post("/v1/memory_stores", {"name": "S"})["id"]
        many = [self.store_resource(self.client.post("/v1/memory_stores", {"name": f"n{i}"})["id"]) for i in range(9)]
        for resources, status, text, kind in [
            ([self.store_resource("memstore_none")], 404, "resources[0]", "self_hosted"), ([self.store_resource(archived)], 400, "archived", "self_hosted"),
            ([self.store_resource()] * 2, 400, "resources[1].memory_store_id", "self_hosted"), ([self.store_resource(access="rw")], 400, "access", "self_hosted"),
            ([self.store_resource(instructions="x" * 4097)], 400, "instructions", "self_hosted"), ([self.store_resource(), self.store_resource(twin)], 400, "folder", "self_hosted"),
            (many, 400, "at most 8", "self_hosted"), ([self.store_resource(mount_path="/x")], 400, "mount_path", "self_hosted"),
        ]:  # fmt: skip
            with self.subTest(text):
                self.refused(status, text, "POST", "/v1/sessions", {"agent": agent, "environment_id": env[kind], "resources": resources})

    def test_a_token_works_on_the_memories_of_its_sessions_stores(self):
        other = self.client.post("/v1/memory_stores", {"name": "other"})["id"]
        w = self.worker(self.store_resource())
        kept = self.put("/kept", "old")
        page = w.client.get(f"{self.path}/memories?view=full&limit=20")
        self.assertEqual([m["content"] for m in page["data"]], ["old"])
        made = w.client.post(f"{self.path}/memories", {"path": "/new", "content": "by a worker"})
        changed = w.client.post(f"{self.path}/memories/{kept['id']}", {"content": "new", "precondition": {"type": "content_sha256", "content_sha256": sha("old")}})
        self.assertEqual(changed["content_sha256"], sha("new"))
        self.denied(w.client, 409, "changed", "POST", f"{self.path}/memories/{kept['id']}", {"content": "x", "precondition": {"type": "content_sha256", "content_sha256": sha("old")}})
        w.client.delete(f"{self.path}/memories/{made['id']}?expected_content_sha256={sha('by a worker')}")
        actors = [(v["operation"], v["created_by"]) for v in self.versions(f"&session_id={w.session}")]
        self.assertEqual(actors, [(o, {"type": "session_actor", "session_id": w.session}) for o in ("deleted", "modified", "created")])
        for method, path in [("GET", f"/v1/memory_stores/{other}/memories"), ("GET", self.path), ("GET", f"{self.path}/memory_versions"), ("POST", f"{self.path}/archive")]:
            self.denied(w.client, 403, "", method, path)
        token = w.client
        w.stop()
        self.denied(token, 401, "claim", "GET", f"{self.path}/memories")
        self.denied(token, 401, "claim", "POST", f"{self.path}/memories", {"path": "/late", "content": "x"})

    def test_me7_a_read_only_store_is_read(self):
        w = self.worker(self.store_resource(access="read_only"))
        m = self.put("/a")
        self.assertEqual(len(w.client.get(f"{self.path}/memories")["data"]), 1)
        self.assertEqual(w.client.get(f"{self.path}/memories/{m['id']}")["content"], "x")
        for method, path, body in [("POST", "memories", {"path": "/b", "content": ""}), ("POST", f"memories/{m['id']}", {"content": "y"}), ("DELETE", f"memories/{m['id']}", None)]:
            self.denied(w.client, 403, "read-only", method, f"{self.path}/{path}", body)
        w.stop()

    def test_case_90_the_last_flush_of_a_worker_brings_nothing_back(self):
        w = self.worker(self.store_resource())
        m = self.put("/a")
        self.client.delete(f"{self.path}/memories/{m['id']}")
        self.denied(w.client, 404, "does not exist", "POST", f"{self.path}/memories/{m['id']}", {"content": "late"})
        self.client.post(f"{self.path}/archive")
        self.denied(w.client, 400, "archived", "POST", f"{self.path}/memories", {"path": "/late", "content": "x"})
        self.assertEqual(self.client.get(f"{self.path}/memories")["data"], [])
        w.stop()

    def test_wk23_the_claim_is_looked_at_in_the_writes_own_transaction(self):
        """A write that waits for the store's lock while its claim ends must not happen."""
        w = self.worker(self.store_resource())
        hold = self.enterContext(Transaction(self.server.database))
        hold.run(f"SELECT id FROM work WHERE id = '{w.id}' FOR UPDATE")
        out = []
        late = threading.Thread(target=lambda: out.append(w.client.raw("POST", f"{self.path}/memories", b'{"path":"/late","content":"x"}', {"content-type": "application/json"})))
        late.start()
        wait_for("it waits for its item", lambda: self.server.database.query("SELECT count(*) FROM pg_locks WHERE NOT granted") != [["0"]])
        hold.run(f"UPDATE work SET lease_until = now() - interval '1 second' WHERE id = '{w.id}'; COMMIT")
        late.join()
        self.assertEqual((out[0][0], json.loads(out[0][2])["error"]["details"]["error_code"]), (412, "work_lease_lost"))
        self.assertEqual(self.client.get(f"{self.path}/memories")["data"], [])


class Writers(Case):
    """Eight writers on one store: two clients, a work item's token, two workers, three sandboxes. Each change names what it was made from, so that the history
    proves that none was lost."""

    CLIENTS, TOKEN, WORKERS, CLOUDS = 2, 1, 2, 3
    TURN_S = 120

    def token(self, store):
        """A client with the token of a work item whose session has the store; beats the item's heart when it is time."""
        session = self.client.new_session("self_hosted", resources=[store])
        self.client.say(session["id"], "run: true")
        worker = Worker(self.client, session["environment_id"]).claim(ttl=self.TURN_S)
        return worker, Client(self.client.port, worker.token)

    def served(self, store):
        """A session that a mango-worker serves, whose passes over the store are behind every call: (session, worker)."""
        session = self.client.new_session("self_hosted", resources=[store])
        folder = tempfile.mkdtemp(prefix="mango-memory-test.", dir="/tmp")
        self.addCleanup(shutil.rmtree, folder, True)
        key = issue(self.server, session["environment_id"])
        worker = MangoWorker(f"http://127.0.0.1:{self.server.port}", session["environment_id"], key, folder, "--max-idle", "60s", "--memory-sync", "1ms")
        self.addCleanup(worker.kill)
        turn(self.client, session["id"], message("run: true"), timeout=self.TURN_S)
        return session["id"], worker

    def command(self, session, folder, file, n, i):
        """The change by a command: (what was there, what is there now, the result's text)."""
        command = f"cd {folder}/s 2>/dev/null; was=$(cat m{file}); now=$((${{was%%:*}}+1)):{n}:{i}; printf %s $now > m{file}; echo \"<$was|$now>\""
        events = turn(self.client, session, message(f"run: {command}"), timeout=self.TURN_S)
        result = "\n".join(b["text"] for b in of(events, "agent.tool_result", "user.tool_result")[-1]["content"])
        return *re.search(r"<(.*)\|(.*)>", result).groups(), result

    def in_sandbox(self, session, file, n, i):
        """The result says whether it was taken over."""
        was, now, result = self.command(session, ".session/memory", file, n, i)
        if "not saved: another writer changed it" in result:
            self.conflicts["sandboxes"].append(now)
            return
        assert "[memory]" not in result, result
        self.made.append((None, self.ids[file], now, was))

    def by_worker(self, session, file, n, i):
        """The pass behind the call takes it over or drops it: the history tells which."""
        was, now, _ = self.command(session, "memory", file, n, i)
        self.by_workers.append((self.ids[file], now, was))

    def by_client(self, client, rng, n, i):
        target = f"{self.path}/memories/{self.ids[rng.randrange(9) if rng.random() < 0.1 else rng.randrange(3)]}"
        now = client.get(target)
        text = f"{int(now['content'].split(':')[0]) + 1}:{n}:{i}"
        must = {"type": "content_sha256", "content_sha256": now["content_sha256"]}
        try:
            answer = client.post(target, {"content": text, "precondition": must})
        except ApiError as e:
            assert (e.status, e.type) == (409, "memory_precondition_failed_error"), e
            self.conflicts["clients"].append(text)
            return
        self.made.append((answer["memory_version_id"], answer["id"], text, now["content"]))
        if rng.random() < 0.1:
            self.repeat(client, target, text, must, answer)

    def repeat(self, client, target, text, must, answer):
        """The same request again, as after a lost answer: done already, or somebody else was there since."""
        try:
            assert client.post(target, {"content": text, "precondition": must})["memory_version_id"] == answer["memory_version_id"]
        except ApiError as e:
            assert (e.status, e.type) == (409, "memory_precondition_failed_error"), e

    def writers(self, store):
        """A function of (rng, n, i) for each, that makes its change number i."""
        hand, token = self.token(store)
        beat = [time.monotonic()]

        def by_token(rng, n, i):
            if time.monotonic() > beat[0] + 20:
                hand.heartbeat(ttl=self.TURN_S)
                beat[0] = time.monotonic()
            self.by_client(token, rng, n, i)

        served = [self.served(store) for _ in range(self.WORKERS)]
        self.workers = [w for _, w in served]
        clouds = [self.client.new_session(resources=[store])["id"] for _ in range(self.CLOUDS)]
        return [
            *[lambda rng, n, i: self.by_client(Client(self.client.port, self.client.key), rng, n, i)] * self.CLIENTS,
            by_token,
            *[lambda rng, n, i, s=s: self.by_worker(s, rng.randrange(9), n, i) for s, _ in served],
            *[lambda rng, n, i, s=s: self.in_sandbox(s, rng.randrange(9), n, i) for s in clouds],
        ]

    def run_writers(self, writers):
        """All at once, until the time is over; what went wrong."""
        end, wrong = time.monotonic() + WRITERS_S, []

        def write(n):
            rng, i = random.Random(n), 0
            try:
                while time.monotonic() < end:
                    i += 1
                    writers[n](rng, n, i)
            except Exception as e:  # noqa: BLE001: told below
                wrong.append(repr(e))

        threads = [threading.Thread(target=write, args=(n,)) for n in range(len(writers))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return wrong

    def sort_out(self, by_text, texts):
        """Which changes of the workers were taken over. One that was not was made from what another writer had replaced, or from one like it."""
        taken = [(m, now, was) for m, now, was in self.by_workers if (m, now) in by_text]
        dropped = [(m, now, was) for m, now, was in self.by_workers if (m, now) not in by_text]
        gone = {(m, now) for m, now, _ in dropped}
        for memory, now, was in dropped:
            if (memory, was) not in gone:
                self.assertNotEqual(texts[memory][-1], was, f"{now} was dropped, and nobody had changed what it was made from")
        self.made += [(None, m, now, was) for m, now, was in taken]
        return len(taken), len(dropped)

    def test_no_update_is_lost_and_every_version_is_in_the_history(self):
        self.ids = [self.put(f"/m{i}", "0:start")["id"] for i in range(9)]  # the last six are quiet ones, where slow writers get through
        self.made, self.by_workers, self.conflicts = [], [], {"clients": [], "sandboxes": []}
        writers = self.writers({"type": "memory_store", "memory_store_id": self.store})
        self.assertEqual(len(writers), 8)
        self.assertEqual(self.run_writers(writers), [])
        for w in self.workers:
            self.assertEqual(w.end(), 0, w.log()[-2000:])
        history = self.versions("&view=full")[::-1]
        texts = {m: [v["content"] for v in history if v["memory_id"] == m] for m in self.ids}
        stored = {v["id"]: v for v in history}
        by_text = {(v["memory_id"], v["content"]): v["id"] for v in history}
        in_sandboxes = sum(version is None for version, *_ in self.made)
        taken, dropped = self.sort_out(by_text, texts)
        print(f"{len(self.made)} changes, {in_sandboxes} of them in sandboxes and {taken} by workers; conflicts: {', '.join(f'{len(c)} of {k}' for k, c in self.conflicts.items())}, {dropped} of workers")
        self.assertGreater(len(self.made), 20)
        self.assertTrue(self.conflicts["clients"], "the writers met each other")
        self.assertGreater(in_sandboxes, 0)
        self.assertGreater(taken, 0)
        lost = sum(w.log().count("a change of a memory is lost") for w in self.workers)
        self.assertLessEqual(lost, dropped, "a worker says that a change is lost where one is")
        for version, memory, text, _ in self.made:
            version = version or by_text[memory, text]
            self.assertEqual((stored[version]["memory_id"], stored[version]["content"]), (memory, text))
        self.assertEqual(len(history), len(self.made) + len(self.ids), "and nothing besides")
        for memory in self.ids:
            self.assertEqual([int(t.split(":")[0]) for t in texts[memory]], list(range(len(texts[memory]))), "each was made from the one before")
            self.assertEqual(self.client.get(f"{self.path}/memories/{memory}")["content"], texts[memory][-1])
            before = {text: was for _, m, text, was in self.made if m == memory}
            self.assertEqual([before[t] for t in texts[memory][1:]], texts[memory][:-1])


if __name__ == "__main__":
    main()
