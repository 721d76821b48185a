"""Vaults and credentials: what clients see, what is stored, and who gets the tokens (semantics VA1 to VA10)."""
import datetime
import json
import os
import subprocess
import threading
import time
import unittest

from api import ApiError
from harness import BUILD, FakeModel, Mangod, main, wait_for
from mcp_peer import McpPeer
from rig import sanitized
from vault_rig import TokenEndpoint, VaultServer, bearer, key_text, new_session, new_vault, oauth, turn, write_keyring

ECHO = ["echo"]
LONG_TOKEN = "wrong-token-of-a-user." + "x" * 2000  # no text that shows an answer has room for all of it


def later(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def results(events):
    return [e for e in events if e["type"] == "agent.mcp_tool_result"]


def errors(events):
    return [e["error"] for e in events if e["type"] == "session.error"]


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = FakeModel()
        cls.model.__enter__()
        cls.addClassCleanup(cls.model.__exit__)
        cls.server = VaultServer(model_url=cls.model.url)
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__, None, None, None)
        cls.client = cls.server.client

    def peer(self, *tokens):
        peer = McpPeer(ECHO)
        peer.__enter__()
        self.addCleanup(peer.__exit__)
        peer.tokens = set(tokens) if tokens else None
        return peer

    def point(self, peer, **options):
        point = TokenEndpoint(peer, **options)
        point.__enter__()
        self.addCleanup(point.__exit__)
        return point

    def refused(self, status, text, method, path, body=None):
        with self.assertRaises(ApiError) as e:
            self.client.call(method, path, body)
        self.assertEqual(e.exception.status, status, e.exception.message)
        self.assertIn(text, e.exception.message)
        return e.exception

    def works(self, session, client=None):
        events = turn(client or self.client, session)
        self.assertEqual([r["is_error"] for r in results(events)], [False], events)
        return events


class Resources(Case):
    def test_a_vault_is_what_the_contract_says(self):
        made = self.client.post("/v1/vaults", {"display_name": "Ada's", "metadata": {"team": "x"}})
        self.assertEqual(sorted(made), ["archived_at", "created_at", "display_name", "id", "metadata", "type", "updated_at"])
        self.assertEqual((made["type"], made["display_name"], made["metadata"], made["archived_at"]), ("vault", "Ada's", {"team": "x"}, None))
        self.assertTrue(made["id"].startswith("vlt_"))
        path = f"/v1/vaults/{made['id']}"
        self.assertEqual(self.client.get(path), made)
        changed = self.client.post(path, {"display_name": None, "metadata": {"team": None, "a": "b"}})
        self.assertEqual((changed["display_name"], changed["metadata"]), ("Ada's", {"a": "b"}))
        self.assertIn(made["id"], [v["id"] for v in self.client.get("/v1/vaults?limit=100")["data"]])
        archived = self.client.post(f"{path}/archive")
        self.assertIsNotNone(archived["archived_at"])
        self.assertEqual(self.client.post(f"{path}/archive")["archived_at"], archived["archived_at"], "twice is fine")
        self.assertNotIn(made["id"], [v["id"] for v in self.client.get("/v1/vaults?limit=100")["data"]])
        self.assertIn(made["id"], [v["id"] for v in self.client.get("/v1/vaults?limit=100&include_archived=true")["data"]])
        self.refused(400, "archived", "POST", path, {"display_name": "x"})
        self.refused(400, "archived", "POST", f"{path}/credentials", {"auth": bearer("https://x.test", "t")})
        self.assertEqual(self.client.delete(path), {"id": made["id"], "type": "vault_deleted"})
        self.refused(404, made["id"], "GET", path)

    def test_lists_go_page_by_page(self):
        vault, _ = new_vault(self.client)
        made = [self.client.post(f"/v1/vaults/{vault}/credentials", {"auth": bearer(f"https://s{i}.test", "t")})["id"] for i in range(5)]
        seen, page = [], ""
        while page is not None:
            answer = self.client.get(f"/v1/vaults/{vault}/credentials?limit=2" + (f"&page={page}" if page else ""))
            seen, page = seen + [c["id"] for c in answer["data"]], answer["next_page"]
        self.assertEqual(seen, made[::-1])

    def test_a_credential_shows_no_secret(self):
        vault, _ = new_vault(self.client)
        path = f"/v1/vaults/{vault}/credentials"
        made = self.client.post(path, {"auth": bearer("https://Mcp.Example.test:443/mcp/", "s3cret"), "display_name": "one", "metadata": {"a": "b"}})
        fields = ["archived_at", "auth", "created_at", "display_name", "id", "metadata", "type", "updated_at", "vault_id"]
        self.assertEqual(sorted(made), fields)
        self.assertEqual((made["type"], made["vault_id"]), ("vault_credential", vault))
        self.assertEqual(made["auth"], {"type": "static_bearer", "mcp_server_url": "https://Mcp.Example.test:443/mcp/"})
        self.assertEqual(self.client.get(f"{path}/{made['id']}"), made)
        refresh = {"client_id": "c", "refresh_token": "r3fresh", "token_endpoint": "https://t.test/token"}
        auth = {"type": "mcp_oauth", "access_token": "acc3ss", "mcp_server_url": "https://o.test/mcp", "expires_at": later(100)}
        full = {**auth, "refresh": {**refresh, "token_endpoint_auth": {"type": "client_secret_post", "client_secret": "cl1ent"}, "scope": "a b"}}
        made = self.client.post(path, {"auth": full})
        self.assertEqual(sorted(made["auth"]), ["expires_at", "mcp_server_url", "refresh", "type"])
        shown = {"client_id": "c", "token_endpoint": "https://t.test/token", "token_endpoint_auth": {"type": "client_secret_post"}, "resource": None, "scope": "a b"}
        self.assertEqual(made["auth"]["refresh"], shown)
        update = {"auth": {"type": "mcp_oauth", "access_token": "acc3ss2", "refresh": {"scope": "", "token_endpoint_auth": {"type": "client_secret_basic", "client_secret": "cl1ent2"}}}}
        changed = self.client.post(f"{path}/{made['id']}", update)
        self.assertEqual(changed["auth"], {**made["auth"], "refresh": {**shown, "scope": None}}, "the kind of authentication stays")
        self.assertEqual(self.client.post(f"{path}/{made['id']}", {"display_name": "n"})["display_name"], "n")
        text = json.dumps(self.client.get(f"{path}?include_archived=true"))
        for secret in ("s3cret", "r3fresh", "acc3ss", "cl1ent"):
            self.assertNotIn(secret, text)

    def test_archiving_takes_the_secret_away(self):
        vault, (one, two) = new_vault(self.client, bearer("https://a.test", "t1"), bearer("https://b.test", "t2"))
        rows = f"SELECT count(*), count(secret), count(key_id) FROM vault_credentials WHERE vault_id = '{vault}'"
        self.assertIsNotNone(self.client.post(f"/v1/vaults/{vault}/credentials/{one}/archive")["archived_at"])
        self.assertEqual(self.server.database.query(rows), [["2", "1", "1"]])
        self.refused(400, "archived", "POST", f"/v1/vaults/{vault}/credentials/{one}", {"display_name": "x"})
        self.assertEqual([c["id"] for c in self.client.get(f"/v1/vaults/{vault}/credentials")["data"]], [two])
        self.client.post(f"/v1/vaults/{vault}/credentials", {"auth": bearer("https://a.test", "t3")})
        self.client.post(f"/v1/vaults/{vault}/archive")
        self.assertEqual(self.server.database.query(rows), [["3", "0", "0"]])
        self.assertEqual(self.client.delete(f"/v1/vaults/{vault}/credentials/{two}"), {"id": two, "type": "vault_credential_deleted"})
        self.refused(404, two, "GET", f"/v1/vaults/{vault}/credentials/{two}")

    def test_one_credential_for_a_server_and_twenty_in_a_vault(self):
        vault, _ = new_vault(self.client, bearer("https://same.test/mcp", "t"))
        path = f"/v1/vaults/{vault}/credentials"
        e = self.refused(409, "auth.mcp_server_url", "POST", path, {"auth": bearer("HTTPS://SAME.test:443/mcp/", "u")})
        self.assertEqual(e.type, "conflict_error")
        for i in range(19):
            self.client.post(path, {"auth": bearer(f"https://s{i}.test", "t")})
        self.refused(400, "20 credentials", "POST", path, {"auth": bearer("https://one-more.test", "t")})

    def test_bad_bodies_are_refused_with_the_field(self):
        vault, (bearer_id, oauth_id) = new_vault(
            self.client, bearer("https://x.test", "t"), {"type": "mcp_oauth", "access_token": "a", "mcp_server_url": "https://y.test"}
        )
        path = f"/v1/vaults/{vault}/credentials"
        good = {"client_id": "c", "refresh_token": "r", "token_endpoint": "https://t.test", "token_endpoint_auth": {"type": "none"}}
        oa = {"type": "mcp_oauth", "access_token": "a", "mcp_server_url": "https://z.test"}
        cases = [
            ("/v1/vaults", {}, "display_name"),
            ("/v1/vaults", {"display_name": ""}, "display_name"),
            ("/v1/vaults", {"display_name": "x" * 256}, "display_name"),
            ("/v1/vaults", {"display_name": "x", "name": "y"}, "name"),
            ("/v1/vaults", {"display_name": "x", "metadata": {str(i): "v" for i in range(17)}}, "metadata"),
            (path, {}, "auth"),
            (path, {"auth": {"type": "basic"}}, "auth.type"),
            (path, {"auth": {"type": "environment_variable", "secret_name": "A", "secret_value": "b", "networking": {"type": "unrestricted"}}}, "not part of this build"),
            (path, {"auth": bearer("https://z.test", "")}, "auth.token"),
            (path, {"auth": bearer("https://z.test", "two words")}, "auth.token"),
            (path, {"auth": bearer("https://z.test", "line\nbreak")}, "auth.token"),
            (path, {"auth": bearer("https://z.test", "x" * 8193)}, "auth.token"),
            (path, {"auth": bearer("ftp://z.test", "t")}, "auth.mcp_server_url"),
            (path, {"auth": bearer("https://user@z.test", "t")}, "auth.mcp_server_url"),
            (path, {"auth": bearer("https://z.test/#f", "t")}, "auth.mcp_server_url"),
            (path, {"auth": bearer("https:///x", "t")}, "auth.mcp_server_url"),
            (path, {"auth": bearer("https://z.test/" + "x" * 2048, "t")}, "auth.mcp_server_url"),
            (path, {"auth": {**bearer("https://z.test", "t"), "expires_at": None}}, "expires_at"),
            (path, {"auth": {**oa, "expires_at": "tomorrow"}}, "auth.expires_at"),
            (path, {"auth": {**oa, "expires_at": "2020-01-01T00:00:00Z"}}, "future"),
            (path, {"auth": {**oa, "refresh": {**good, "token_endpoint": "https://a@b"}}}, "auth.refresh.token_endpoint"),
            (path, {"auth": {**oa, "refresh": {**good, "token_endpoint_auth": {"type": "client_secret_post"}}}}, "client_secret"),
            (path, {"auth": {**oa, "refresh": {**good, "token_endpoint_auth": {"type": "none", "client_secret": "x"}}}}, "client_secret"),
            (path, {"auth": {**oa, "refresh": {k: v for k, v in good.items() if k != "client_id"}}}, "client_id"),
            (f"{path}/{bearer_id}", {"auth": {"type": "mcp_oauth"}}, "auth.type"),
            (f"{path}/{bearer_id}", {"auth": {"type": "static_bearer", "mcp_server_url": "https://q.test"}}, "mcp_server_url"),
            (f"{path}/{oauth_id}", {"auth": {"type": "mcp_oauth", "refresh": {"refresh_token": "x"}}}, "auth.refresh"),
            ("/v1/sessions", {"agent": "agent_x", "environment_id": "env_x", "vault_ids": ["a b"]}, "vault_ids[0]"),
            ("/v1/sessions", {"agent": "agent_x", "environment_id": "env_x", "vault_ids": ["a", "a"]}, "vault_ids[1]"),
            ("/v1/sessions", {"agent": "agent_x", "environment_id": "env_x", "vault_ids": ["v"] * 51}, "vault_ids"),
        ]
        for where, body, text in cases:
            with self.subTest(f"{where} {json.dumps(body)[:120]}"):
                self.refused(400, text, "POST", where, body)
        s = self.client.new_session()
        body = {"agent": s["agent"]["id"], "environment_id": s["environment_id"]}
        self.refused(404, "vault_ids[0]", "POST", "/v1/sessions", {**body, "vault_ids": ["vlt_nothing"]})
        self.client.post(f"/v1/vaults/{vault}/archive")
        self.refused(400, "archived", "POST", "/v1/sessions", {**body, "vault_ids": [vault]})
        self.refused(400, "vault_ids", "POST", f"/v1/sessions/{s['id']}", {"vault_ids": []})

    def test_the_database_holds_nothing_readable_and_a_moved_row_does_not_open(self):
        peer = self.peer("token-a", "token-b")
        other = self.peer("token-b")
        vault, (a, b) = new_vault(self.client, bearer(peer.url, "token-a"), bearer(other.url, "token-b"))
        query = self.server.database.query
        dump = json.dumps(query("SELECT * FROM vault_credentials"))
        self.assertNotIn("token-", dump)
        self.assertEqual(query(f"SELECT key_id FROM vault_credentials WHERE id = '{a}'"), [["k1"]])
        query(f"UPDATE vault_credentials x SET secret = y.secret FROM vault_credentials y WHERE x.id = '{a}' AND y.id = '{b}'")
        events = turn(self.client, new_session(self.client, peer.url, vault))
        self.assertIn("does not open", errors(events)[0]["message"])
        self.assertEqual(peer.authorizations, [], "nothing was sent")


class Use(Case):
    def test_a_session_without_a_vault_sends_nothing_and_the_server_refuses(self):
        peer = self.peer("good")
        events = turn(self.client, new_session(self.client, peer.url))
        self.assertEqual([e["type"] for e in errors(events)], ["mcp_authentication_failed_error"])
        self.assertEqual({t for _, t in peer.authorizations}, {""})

    def test_the_credential_is_found_by_the_servers_url_however_it_is_spelled(self):
        peer = self.peer("good")
        vault, _ = new_vault(self.client, bearer(peer.url.replace("127.0.0.1", "localhost") + "/", "good"))
        session = new_session(self.client, peer.url.replace("127.0.0.1", "LOCALHOST"), vault)
        self.works(session)
        self.assertEqual({t for _, t in peer.authorizations}, {"good"}, "on every request")
        self.assertEqual(self.client.get(f"/v1/sessions/{session}")["vault_ids"], [vault])
        other = self.peer()
        self.works(new_session(self.client, other.url, vault))
        self.assertEqual({t for _, t in other.authorizations}, {""}, "a token is for its own server")

    def test_va5_the_first_vault_that_has_one_wins(self):
        peer = self.peer("first", "second")
        empty, _ = new_vault(self.client)
        first, _ = new_vault(self.client, bearer(peer.url, "first"))
        second, _ = new_vault(self.client, bearer(peer.url, "second"))
        self.works(new_session(self.client, peer.url, empty, first, second))
        self.assertEqual({t for _, t in peer.authorizations}, {"first"})

    def test_case_96_what_was_rotated_counts_from_the_next_call_and_what_was_archived_stops_at_once(self):
        peer = self.peer("old")
        vault, (cred,) = new_vault(self.client, bearer(peer.url, "old"))
        session = new_session(self.client, peer.url, vault)
        self.works(session)
        peer.tokens = {"new"}
        self.client.post(f"/v1/vaults/{vault}/credentials/{cred}", {"auth": {"type": "static_bearer", "token": "new"}})
        self.works(session)
        self.client.post(f"/v1/vaults/{vault}/credentials/{cred}/archive")
        n = len(peer.authorizations)
        events = turn(self.client, session)
        self.assertEqual([r["is_error"] for r in results(events)], [True], events)
        self.assertEqual({t for _, t in peer.authorizations[n:]}, {""})

    def test_a_server_that_says_the_token_back_does_not_bring_it_into_events_or_logs(self):
        peer = self.peer("right")
        for token in ("wrong-token-of-a-user", LONG_TOKEN):
            vault, _ = new_vault(self.client, bearer(peer.url, token))
            session = new_session(self.client, peer.url, vault)
            events = turn(self.client, session)
            self.assertIn("refuses the credential", errors(events)[0]["message"])
            self.assertIn("***", errors(events)[0]["message"])
            self.assertNotIn("wrong-token", json.dumps(self.client.events(session)))
            self.assertNotIn("wrong-token", self.server.log())


class Validate(Case):
    def verdict(self, *auths):
        vault, (cred,) = new_vault(self.client, *auths)
        got = self.client.post(f"/v1/vaults/{vault}/credentials/{cred}/mcp_oauth_validate")
        self.assertEqual(("vault_credential_validation", vault, cred), (got["type"], got["vault_id"], got["credential_id"]))
        self.assertEqual(
            {"type", "credential_id", "vault_id", "status", "has_refresh_token", "mcp_probe", "refresh", "validated_at"}, set(got)
        )
        return got, vault, cred

    def test_a_credential_that_the_server_takes_is_valid(self):
        peer = self.peer("right")
        got, _, _ = self.verdict(bearer(peer.url, "right"))
        self.assertEqual(("valid", False, None, None), (got["status"], got["has_refresh_token"], got["mcp_probe"], got["refresh"]))
        self.assertEqual([], peer.calls, "no tool is run")

    def test_one_that_it_refuses_is_invalid_and_the_answer_holds_no_secret(self):
        peer = self.peer("right")
        for token in ("wrong-token-of-a-user", LONG_TOKEN):
            got, _, _ = self.verdict(bearer(peer.url, token))
            answer = got["mcp_probe"]["http_response"]
            self.assertEqual(("invalid", "initialize", 401), (got["status"], got["mcp_probe"]["method"], answer["status_code"]))
            self.assertEqual({"status": "no_refresh_token", "http_response": None}, got["refresh"])
            self.assertIn("***", answer["body"])
            self.assertEqual(token == LONG_TOKEN, answer["body_truncated"])
            self.assertNotIn("wrong-token", json.dumps(got))

    def test_a_refresh_that_brings_a_good_token_makes_it_valid(self):
        peer = self.peer("none")
        point = self.point(peer)
        got, vault, cred = self.verdict(oauth(peer, point))
        self.assertEqual(("valid", True, None), (got["status"], got["has_refresh_token"], got["mcp_probe"]))
        self.assertEqual({"status": "succeeded", "http_response": None}, got["refresh"])
        again = self.client.post(f"/v1/vaults/{vault}/credentials/{cred}/mcp_oauth_validate")
        self.assertEqual(("valid", None), (again["status"], again["refresh"]), "the new token is kept")
        self.assertEqual(1, len(point.forms))

    def test_a_refused_refresh_is_told_and_one_that_cannot_be_reached_leaves_it_open(self):
        peer = self.peer("none")
        point = self.point(peer, refresh="refresh-of-a-user")
        auth = oauth(peer, point)
        point.good = "another"
        got, vault, cred = self.verdict(auth)
        self.assertEqual(("invalid", "failed", 400), (got["status"], got["refresh"]["status"], got["refresh"]["http_response"]["status_code"]))
        self.assertIn("invalid_grant", got["refresh"]["http_response"]["body"])
        self.assertNotIn("refresh-of", json.dumps(got))
        point.__exit__()
        again = self.client.post(f"/v1/vaults/{vault}/credentials/{cred}/mcp_oauth_validate")
        self.assertEqual(("unknown", {"status": "connect_error", "http_response": None}), (again["status"], again["refresh"]))

    def test_a_server_that_cannot_be_reached_says_nothing_of_the_credential(self):
        peer = self.peer("right")
        peer.__exit__()
        got, _, _ = self.verdict(bearer(peer.url, "right"))
        self.assertEqual(("unknown", {"method": "initialize", "http_response": None}), (got["status"], got["mcp_probe"]))

    def test_a_server_that_hangs_holds_no_thread_and_what_is_archived_is_not_tried(self):
        peer = self.peer("right")
        peer.listing = "hang"
        vault, (cred,) = new_vault(self.client, bearer(peer.url, "right"))
        path, out = f"/v1/vaults/{vault}/credentials/{cred}", []
        waiting = [threading.Thread(target=lambda: out.append(self.client.raw("POST", path + "/mcp_oauth_validate", timeout=120)[0]), daemon=True) for _ in range(12)]
        for t in waiting:
            t.start()
        wait_for("all wait, which are more than there are request threads", lambda: len(peer.authorizations) >= 24)
        self.assertEqual(cred, self.client.get(path)["id"])
        peer.listing = None
        peer.stopped.set()
        for t in waiting:
            t.join(60)
        self.assertEqual([200] * 12, out)
        self.client.post(path + "/archive")
        self.refused(400, "is archived", "POST", path + "/mcp_oauth_validate")
        self.refused(404, "does not exist", "POST", f"/v1/vaults/{vault}/credentials/vcrd_none/mcp_oauth_validate")


class Refresh(Case):
    def session(self, peer, point, **options):
        vault, (cred,) = new_vault(self.client, oauth(peer, point, **options))
        return new_session(self.client, peer.url, vault), vault, cred

    def test_va6_a_token_that_the_server_refuses_is_refreshed_and_the_call_made_once(self):
        peer = self.peer("none")
        point = self.point(peer)
        session, vault, cred = self.session(peer, point, scope="read write", resource="https://r.test/")
        self.works(session)
        self.assertEqual(point.forms, [{"grant_type": "refresh_token", "refresh_token": "refresh-0", "client_id": "client 1", "scope": "read write", "resource": "https://r.test/"}])
        self.assertEqual(len(peer.calls), 1)
        shown = self.client.get(f"/v1/vaults/{vault}/credentials/{cred}")["auth"]
        self.assertGreater(shown["expires_at"], later(3000))
        self.works(session)
        self.assertEqual(len(point.forms), 1, "the new one is kept")
        peer.tokens.clear()
        self.works(session)
        self.assertEqual(point.forms[-1]["refresh_token"].split("-")[1], "1", "and the new refresh token too")

    def test_the_ways_to_authenticate_at_the_token_endpoint(self):
        for kind in ("client_secret_basic", "client_secret_post"):
            with self.subTest(kind):
                peer = self.peer("none")
                point = self.point(peer)
                session, _, _ = self.session(peer, point, auth={"type": kind, "client_secret": "s :ä"})
                self.works(session)
                form, header = point.forms[0], point.authorizations[0]
                if kind == "client_secret_basic":
                    self.assertEqual(header, "Basic Y2xpZW50JTIwMTpzJTIwJTNBJUMzJUE0")
                    self.assertNotIn("client_secret", form)
                else:
                    self.assertIsNone(header)
                    self.assertEqual((form["client_id"], form["client_secret"]), ("client 1", "s :ä"))

    def test_case_96_many_calls_at_the_moment_of_expiry_make_one_refresh(self):
        peer = self.peer("none")
        point = self.point(peer)
        point.delay_s = 0.5
        vault, _ = new_vault(self.client, oauth(peer, point, expires_at=later(5)))  # less than the margin: stale at once
        sessions = [new_session(self.client, peer.url, vault) for _ in range(6)]
        out = []
        threads = [threading.Thread(target=lambda s=s: out.append(turn(self.client, s))) for s in sessions]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([[r["is_error"] for r in results(e)] for e in out], [[False]] * 6, out)
        self.assertEqual(len(point.forms), 1)
        self.assertEqual({t for _, t in peer.authorizations}, set(point.issued))

    def test_case_96_without_a_new_refresh_token_the_old_one_stays(self):
        peer = self.peer("none")
        point = self.point(peer, rotate=False)
        session, _, _ = self.session(peer, point)
        self.works(session)
        peer.tokens.clear()
        self.works(session)
        self.assertEqual([f["refresh_token"] for f in point.forms], ["refresh-0"] * 2)

    def test_case_96_a_refresh_that_cannot_be_stored_is_not_used(self):
        peer = self.peer("none")
        point = self.point(peer, rotate=False)
        session, _, cred = self.session(peer, point)
        query = self.server.database.query
        query("CREATE FUNCTION no_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$")
        query(f"CREATE TRIGGER no_write BEFORE UPDATE OF secret ON vault_credentials FOR EACH ROW WHEN (old.id = '{cred}') EXECUTE FUNCTION no_write()")
        self.addCleanup(query, "DROP FUNCTION IF EXISTS no_write CASCADE")
        events = turn(self.client, session)
        self.assertEqual(results(events)[0]["is_error"] if results(events) else True, True)
        self.assertEqual({t for _, t in peer.authorizations} & set(point.issued), set(), "the unsaved token was never sent")
        query("DROP FUNCTION no_write CASCADE")
        self.works(session)

    def test_a_refusal_of_the_token_endpoint_is_told_without_the_secret(self):
        peer = self.peer("none")
        point = self.point(peer, refresh="refresh-of-a-user")
        session, _, _ = self.session(peer, point)
        point.good = "another"
        events = turn(self.client, session)
        self.assertEqual(errors(events)[0]["type"], "mcp_authentication_failed_error")
        self.assertIn("invalid_grant", errors(events)[0]["message"])
        self.assertNotIn("refresh-of", json.dumps(self.client.events(session)))
        self.assertNotIn("refresh-of", self.server.log())

    def test_a_token_endpoint_that_is_away_is_no_refusal(self):
        peer = self.peer("none")
        point = self.point(peer)
        session, _, _ = self.session(peer, point)
        point.fail = (503, {"error": "busy"})
        self.assertEqual(errors(turn(self.client, session))[0]["type"], "mcp_connection_failed_error")
        point.fail = None
        self.works(session)

    def test_two_replicas_make_one_refresh(self):
        peer = self.peer("none")
        point = self.point(peer)
        point.delay_s = 0.5
        second = VaultServer(model_url=self.model.url, database=self.server.database, keys=self.server.keys)
        second.key = second.client.key = self.server.key
        with second:
            vault, _ = new_vault(self.client, oauth(peer, point))
            sessions = [(c, new_session(c, peer.url, vault)) for c in (self.client, second.client) * 2]
            out = []
            threads = [threading.Thread(target=lambda c=c, s=s: out.append(turn(c, s))) for c, s in sessions]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        self.assertEqual([[r["is_error"] for r in results(e)] for e in out], [[False]] * 4, out)
        self.assertEqual(len(point.forms), 1)


class Keyring(unittest.TestCase):
    def mango(self, server, *words, ok=True):
        done = subprocess.run([os.path.join(BUILD, "mango"), *words], env=server.environment(), capture_output=True, text=True)
        self.assertEqual(done.returncode == 0, ok, done.stderr)
        return done

    def ends_with(self, server, text):
        """The server does not start, with status 78 and this in its last line."""
        if server.process.running():
            server.stop()
        server.process.end()
        server.start(wait=False)
        self.assertEqual(server.process.wait(60), 78)
        self.assertIn(text, server.log().strip().split("\n")[-1])

    def test_without_a_keyring_credentials_are_refused_and_vaults_are_not(self):
        with Mangod() as server:
            vault = server.client.post("/v1/vaults", {"display_name": "v"})["id"]
            with self.assertRaises(ApiError) as e:
                server.client.post(f"/v1/vaults/{vault}/credentials", {"auth": bearer("https://x.test", "t")})
            self.assertIn("MANGO_VAULT_KEYRING_FILE", e.exception.message)

    def test_the_server_does_not_start_without_the_keys_of_what_is_stored(self):
        with VaultServer() as server:
            new_vault(server.client, bearer("http://127.0.0.1:1/x", "t"))
            server.extra.pop("MANGO_VAULT_KEYRING_FILE")
            self.ends_with(server, "1 stored credential is sealed with key 'k1', and MANGO_VAULT_KEYRING_FILE is not set")
            server.extra["MANGO_VAULT_KEYRING_FILE"] = server.keyring
            write_keyring(server.keyring, "k2", {"k2": key_text()})
            self.ends_with(server, "'k1', which MANGO_VAULT_KEYRING_FILE lacks")
            for text, mode, says in [
                ("{", 0o600, "not a JSON object"),
                ('{"active_key_id":"a","keys":{"a":"%s"},"old":1}' % key_text(), 0o600, "neither active_key_id nor keys"),
                ('{"active_key_id":"b","keys":{"a":"%s"}}' % key_text(), 0o600, "names no key"),
                ('{"active_key_id":"a","keys":{"a":"c2hvcnQ="}}', 0o600, "32 bytes"),
                ('{"active_key_id":"a b","keys":{"a b":"%s"}}' % key_text(), 0o600, "id of a key"),
                (" " * 65537, 0o600, "65536"),
                (json.dumps({"active_key_id": "k1", "keys": server.keys}), 0o644, "chmod"),
            ]:
                with self.subTest(says):
                    with open(server.keyring, "w", encoding="ascii") as f:
                        f.write(text)
                    os.chmod(server.keyring, mode)
                    self.ends_with(server, says)
                    for key in server.keys.values():
                        self.assertNotIn(key, server.log())

    def test_keys_are_changed_while_sessions_go_on(self):
        peer = McpPeer(ECHO)
        with peer, FakeModel() as model, VaultServer(model_url=model.url) as server:
            peer.tokens = {"good"}
            vault, (cred,) = new_vault(server.client, bearer(peer.url, "good"))
            session = new_session(server.client, peer.url, vault)
            self.mango(server, "vault", "new-key", "k2")
            self.mango(server, "vault", "new-key", "k2", ok=False)
            self.assertEqual(os.stat(server.keyring).st_mode & 0o777, 0o600)
            server.restart()
            self.assertFalse(results(turn(server.client, session))[0]["is_error"], "the old key opens what it sealed")
            keys = f"SELECT key_id FROM vault_credentials WHERE id = '{cred}'"
            self.assertEqual(server.database.query(keys), [["k1"]])
            self.assertEqual(json.loads(self.mango(server, "vault", "rekey").stdout), {"resealed": 1, "active_key_id": "k2"})
            self.assertEqual(json.loads(self.mango(server, "vault", "rekey").stdout)["resealed"], 0)
            self.assertEqual(server.database.query(keys), [["k2"]])
            with open(server.keyring, encoding="ascii") as f:
                ring = json.load(f)
            self.assertEqual((ring["active_key_id"], sorted(ring["keys"])), ("k2", ["k1", "k2"]))
            write_keyring(server.keyring, "k2", {"k2": ring["keys"]["k2"]})
            server.restart()
            self.assertFalse(results(turn(server.client, session))[0]["is_error"], "the retired key is gone, and nobody misses it")


def memory_of(pid):
    """Every readable and writable page of the process: what a core file would hold."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in maps:
            span, mode = line.split()[:2]
            if not mode.startswith("rw"):
                continue
            start, end = (int(x, 16) for x in span.split("-"))
            for at in range(start, end, 1 << 24):
                try:
                    mem.seek(at)
                    yield at, mem.read(min(1 << 24, end - at))
                except OSError:
                    break


class Leaks(Case):
    def test_va8_no_secret_is_in_log_database_event_error_or_memory(self):
        secrets = {name: f"{name}-{os.urandom(12).hex()}" for name in ("bearer", "access", "refresh", "client", "rotated")}
        peer, other = self.peer("none"), self.peer(secrets["bearer"], secrets["rotated"])
        point = self.point(peer, refresh=secrets["refresh"])
        one = oauth(peer, point, access=secrets["access"], auth={"type": "client_secret_post", "client_secret": secrets["client"]})
        vault, (_, cred) = new_vault(self.client, one, bearer(other.url, secrets["bearer"]))
        sessions = [new_session(self.client, url, vault) for url in (peer.url, other.url)]
        for s in sessions:
            self.works(s)
        self.client.post(f"/v1/vaults/{vault}/credentials/{cred}", {"auth": {"type": "static_bearer", "token": secrets["rotated"]}})
        self.works(sessions[1])
        with self.assertRaises(ApiError) as e:
            self.client.post(f"/v1/vaults/{vault}/credentials", {"auth": {"type": "static_bearer", "token": secrets["bearer"], "mcp_server_url": "no url"}})
        secrets.update({f"issued {i}": t for i, t in enumerate(point.issued)}, good=point.good)
        texts = {
            "log": self.server.log(),
            "error": e.exception.message,
            "events": json.dumps([self.client.events(s) for s in sessions]),
            "session": json.dumps([self.client.get(f"/v1/sessions/{s}") for s in sessions]),
            "metrics": self.client.raw("GET", "/metrics")[2].decode(),
            "model": json.dumps(self.model.requests()),
            "database": subprocess.run(["pg_dump", "-d", self.server.database.url, "--data-only"], capture_output=True, text=True, check=True).stdout,
        }
        for where, text in texts.items():
            for name, secret in secrets.items():
                self.assertNotIn(secret, text, f"{name} in the {where}")
        if sanitized(self.server.process.pid):
            return  # freed memory stands in quarantine there, as it was written or not

        def left():
            found = set()
            for _, data in memory_of(self.server.process.pid):
                found |= {name for name, secret in secrets.items() if secret.encode() in data}
            return found

        deadline = time.monotonic() + 15  # the last connection's buffers go with it
        while left() and time.monotonic() < deadline:
            time.sleep(0.2)
        self.assertEqual(left(), set(), "in the memory of the process")


if __name__ == "__main__":
    main()
