"""The object store under faults: two servers on one database and one real S3 server, connections that break, answers that are lost, writes that arrive late,
a store that is down, and kill -9 at every step of an upload. Afterwards no object lies there without an owner, and no file lacks its bytes.

The S3 server is s3rver of npm; it is installed below the build folder once. Without npm or a registry these tests are skipped, those of
the folder run. s3rver takes every signature, so the proxy before it looks at them, by botocore's signer (sigv4.py). MANGO_TEST_VERSITYGW=PROGRAM
runs the same tests against versitygw (go install github.com/versity/versitygw/cmd/versitygw@v1.8.0), which looks for itself.
"""
import glob
import http.client
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
import unittest

from harness import BUILD, Database, Mangod, free_port, main, wait_for
from rig import FakeClock, needs_fake_clocks
from sigv4 import Verifier
from test_files import TYPE, multipart

S3RVER = "s3rver@3.7.1"
ACCESS = "S3RVER"  # the account that s3rver has
VERSITYGW = os.environ.get("MANGO_TEST_VERSITYGW")
MIB = 1024 * 1024
QUICK = {"MANGO_UPLOAD_LEASE": "1s", "MANGO_UPLOAD_LATE": "1s"}


def s3rver():
    """The program, installed when it is not there; a SkipTest where that cannot be done."""
    home = os.path.join(BUILD, "tests", "s3rver")
    program = os.path.join(home, "node_modules", ".bin", "s3rver")
    if not os.path.exists(program):
        if not shutil.which("npm"):
            raise unittest.SkipTest("npm is not installed")
        os.makedirs(home, exist_ok=True)
        done = subprocess.run(["npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", home, S3RVER], capture_output=True, text=True, timeout=240)
        if done.returncode != 0 or not os.path.exists(program):
            raise unittest.SkipTest(f"s3rver cannot be installed: {done.stderr[-300:]}")
    return program


class Faults(http.server.BaseHTTPRequestHandler):
    """A proxy before the store. fault(method, path) names what happens: None, "lose" (done, its answer is lost), "late" (accepted, done later), "down",
    ("cut", n) (the request breaks off after n bytes)."""

    protocol_version = "HTTP/1.1"

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, BrokenPipeError):
            self.close_connection = True

    def forward(self, body):
        conn = http.client.HTTPConnection("127.0.0.1", self.server.store, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection",)}
        conn.request(self.command, self.path, body, headers)
        answer = conn.getresponse()
        text = answer.read()
        conn.close()
        return answer, text

    def serve(self):
        fault = self.server.fault(self.command, self.path)
        self.server.seen.append((self.command, self.path, fault))
        headers = {k.lower(): v for k, v in self.headers.items()}
        n = int(self.headers.get("content-length") or 0)
        if fault == "down":
            self.connection.close()
            raise ConnectionError
        if isinstance(fault, tuple):
            self.rfile.read(min(n, fault[1]))
            self.connection.close()
            raise ConnectionError
        body = self.rfile.read(n)
        why = self.server.verifier.refuses(self.command, self.path, headers, body)
        if why:
            return self.refuse(why)
        if fault == "late":
            self.server.late.append(threading.Timer(self.server.delay, self.forward, [body]))
            self.server.late[-1].start()
            self.connection.close()
            raise ConnectionError
        answer, text = self.forward(body)
        if fault == "lose":
            self.connection.close()
            raise ConnectionError
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        self.send_header("content-length", answer.getheader("content-length") or str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, why):
        """What a store says that looks at signatures; the one behind does not."""
        self.server.refused.append((self.command, self.path, why))
        text = f"<Error><Code>{why}</Code></Error>".encode()
        self.send_response(403)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

    def log_message(self, *_):
        pass


class S3rver:
    """Takes any signature of the current version: the proxy looks at them."""

    def argv(self, folder, port, _):
        return [s3rver(), "-d", folder, "-a", "127.0.0.1", "-p", str(port), "--configure-bucket", "mango"]

    def unfinished(self, _):
        return []  # it cannot list them, so nobody can remove them

    def keys(self, folder):
        return {f.split("._S3rver")[0] for _, _, files in os.walk(os.path.join(folder, "mango", "m")) for f in files if f.endswith("_object")}


class Versitygw:
    """Looks at signatures by itself. Not built here: MANGO_TEST_VERSITYGW names the program."""

    def argv(self, folder, port, secret):
        os.makedirs(os.path.join(folder, "mango"))
        return [VERSITYGW, "--port", f"127.0.0.1:{port}", "--access", ACCESS, "--secret", secret, "--quiet", "posix", folder]

    def unfinished(self, folder):
        return glob.glob(os.path.join(folder, "mango", ".sgwtmp", "multipart", "*", "*"))

    def keys(self, folder):
        return {f for _, _, files in os.walk(os.path.join(folder, "mango", "m")) for f in files}


class Store:
    """A real S3 server and the proxy before it, which refuses what is not signed as it must be."""

    def __init__(self, secret=ACCESS):
        self.secret, self.kind = secret, Versitygw() if VERSITYGW else S3rver()

    def __enter__(self):
        self.dir = os.path.join(BUILD, "tests", f"s3-{os.getpid()}-{time.monotonic_ns()}")
        os.makedirs(self.dir)
        port = free_port()
        self.process = subprocess.Popen(self.kind.argv(self.dir, port, self.secret), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def up():
            conn = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            try:
                conn.request("GET", "/mango")
                return conn.getresponse().read() is not None
            except OSError:
                return False
            finally:
                conn.close()

        wait_for("the S3 server answers", up)
        self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Faults)
        self.proxy.daemon_threads = True
        self.proxy.store, self.proxy.fault, self.proxy.seen, self.proxy.delay = port, lambda *_: None, [], 3
        self.proxy.refused, self.proxy.late, self.proxy.verifier = [], [], Verifier(ACCESS, self.secret)
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        self.env = {
            "MANGO_S3_BUCKET": "mango", "MANGO_S3_ENDPOINT": f"http://127.0.0.1:{self.proxy.server_port}", "MANGO_S3_ACCESS_KEY": ACCESS,
            "MANGO_S3_SECRET_KEY": self.secret, "MANGO_S3_PREFIX": "m/", **QUICK,
        }  # fmt: skip
        return self

    def __exit__(self, *_):
        self.proxy.shutdown()
        self.proxy.server_close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def once(self, *faults):
        """The next requests that match (method, word in the path) meet that fault, each once."""
        left = list(faults)

        def fault(method, path):
            for f in left:
                if f[0] == method and f[1] in path:
                    left.remove(f)
                    return f[2]
            return None

        self.proxy.fault = fault

    def keys(self):
        return self.kind.keys(self.dir)


def upload(server, data, name="a.bin", timeout=60):
    status, _, text = server.client.raw("POST", "/v1/files", multipart(("file", name, data)), TYPE, timeout=timeout)
    return status, json.loads(text)


class S3(unittest.TestCase):
    def settled(self, store, *servers):
        """Every object has its row, every row its object, and nothing waits for removal."""
        database = servers[0].database

        def same():
            rows = database.query("SELECT key, state FROM objects")
            return {r[0] for r in rows} == store.keys() and all(r[1] == "ready" for r in rows) and not store.kind.unfinished(store.dir)

        wait_for("the store holds what rows name", same, 40, every=0.1)
        self.assertEqual([], store.proxy.refused, "a request was not signed as stores want it")
        for row in database.query("SELECT id, size_bytes FROM files"):
            status, _, body = servers[0].client.raw("GET", f"/v1/files/{row[0]}/content")
            self.assertEqual((200, int(row[1])), (status, len(body)))

    def test_two_servers_share_one_store(self):
        with Store() as store, Database() as db, Mangod(database=db, env=store.env, sandbox=None) as a, Mangod(database=db, env={**store.env, "MANGO_API_KEY": None}, sandbox=None) as b:
            b.client.key = a.client.key
            for n in (0, 1, 5 * MIB, 5 * MIB + 1, 11 * MIB):
                data = os.urandom(n)
                status, made = upload(a, data)
                self.assertEqual((200, n), (status, made.get("size_bytes")), made)
                self.assertEqual(data, b.client.raw("GET", f"/v1/files/{made['id']}/content")[2])
            for f in b.client.get("/v1/files")["data"][:3]:
                b.client.delete(f"/v1/files/{f['id']}")
            self.settled(store, a)

    def test_faults_of_the_store_leave_nothing_without_an_owner(self):
        big, small = os.urandom(11 * MIB), os.urandom(1000)
        # A write that is carried out late comes within upload_late, as the setting says of the slowest one.
        with Store() as store, Mangod(env={**store.env, "MANGO_UPLOAD_LATE": "6s"}, sandbox=None) as m:
            for what, faults, data, status in [
                ("a part breaks off", [("PUT", "partNumber=2", ("cut", 100000))], big, 200),
                ("a part's answer is lost", [("PUT", "partNumber=1", "lose")], big, 200),
                ("the answer of the completion is lost", [("POST", "uploadId=", "lose")], big, 200),
                ("the answer of the beginning is lost", [("POST", "uploads=", "lose")], big, 200),
                ("the completion is carried out late", [("POST", "uploadId=", "late")], big, 200),
                ("a small object's answer is lost", [("PUT", "m/", "lose")], small, 200),
                ("the store is down for a part", [("PUT", "partNumber=2", "down")] * 12, big, 503),
                ("the store is down for the completion", [("POST", "uploadId=", "down")] * 12, big, 503),
                ("the store is down for a small object", [("PUT", "m/", "down")] * 12, small, 503),
                ("a small object breaks off each time", [("PUT", "m/", ("cut", 10))] * 12, small, 503),
                ("a small object is written late", [("PUT", "m/", "late"), *[("PUT", "m/", "down")] * 12], small, 503),
            ]:  # fmt: skip
                with self.subTest(what=what):
                    store.once(*faults)
                    before = len(store.proxy.seen)
                    got, answer = upload(m, data)
                    self.assertEqual(status, got, answer)
                    if "beginning" in what:  # the upload whose id nobody knows is looked for
                        self.assertTrue([s for s in store.proxy.seen[before:] if s[0] == "GET" and "prefix=" in s[1]])
                    store.proxy.fault = lambda *_: None
            for write in store.proxy.late:  # what is asserted is what is left of them
                write.join(60)
            self.assertEqual(2, len(store.proxy.late))
            self.settled(store, m)
            for method, word in [("PUT", "m/"), ("PUT", "partNumber="), ("POST", "uploads="), ("POST", "uploadId="), ("HEAD", "m/"), ("GET", "m/"),
                                 ("GET", "prefix="), ("DELETE", "m/"), *([("DELETE", "uploadId=")] if VERSITYGW else [])]:  # fmt: skip
                self.assertTrue([s for s in store.proxy.seen if s[0] == method and word in s[1]], f"no {method} with {word} was looked at")

    @needs_fake_clocks
    def test_clocks_that_jump_refuse_uploads_at_worst_and_remove_nothing_early(self):
        clock, big = FakeClock(self), os.urandom(11 * MIB)
        env = {"MANGO_API_KEY": None}
        with Store() as store, Database() as db, Mangod(database=db, env=store.env, sandbox=None) as a:
            with Mangod(database=db, env={**store.env, **env, **clock.env}, sandbox=None) as b:
                b.client.key = a.client.key
                kept = upload(a, big)[1]["id"]
                for jump, status in (("+10m", 200), ("+2h", 500), ("-2h", 500)):
                    with self.subTest(jump):
                        clock.set("+0")
                        store.proxy.fault = lambda _, path, jump=jump: clock.set(jump) if "partNumber=2" in path else None
                        got, answer = upload(b, big)
                        self.assertEqual(status, got, answer)
                        store.proxy.fault = lambda *_: None
                self.assertEqual({"RequestTimeTooSkewed"}, {why for _, _, why in store.proxy.refused})
                clock.set("+0")
                store.proxy.refused.clear()
                self.settled(store, a, b)
                # The other server's upload stands still while this one, ten minutes ahead, looks for what was left behind.
                clock.set("+10m")
                gate, answers = threading.Event(), []
                store.proxy.fault = lambda _, path: gate.wait(60) and None if "partNumber=2" in path else None
                thread = threading.Thread(target=lambda: answers.append(upload(a, big)[0]))
                thread.start()
                wait_for("the upload stands still", lambda: [s for s in store.proxy.seen if "partNumber=1" in s[1]] and db.query("SELECT 1 FROM objects WHERE state <> 'ready'"))
                for _ in range(3):
                    swept = upload(b, b"x")[1]["id"]
                    b.client.delete(f"/v1/files/{swept}")
                    wait_for("what was deleted is swept", lambda: int(db.query("SELECT count(*) FROM objects")[0][0]) == 3)
                gate.set()
                thread.join(60)
                self.assertEqual([200], answers)
                self.settled(store, a, b)
                self.assertEqual(big, b.client.raw("GET", f"/v1/files/{kept}/content")[2])

    def test_an_object_whose_delete_failed_is_removed_later(self):
        with Store() as store, Mangod(env=store.env, sandbox=None) as m:
            ids = [upload(m, b"x")[1]["id"] for _ in range(5)]
            store.proxy.fault = lambda method, _: "down" if method == "DELETE" else None
            for i in ids:
                m.client.delete(f"/v1/files/{i}")
                self.assertEqual(404, m.client.raw("GET", f"/v1/files/{i}")[0])
            wait_for("a delete was tried", lambda: [s for s in store.proxy.seen if s[0] == "DELETE"])
            self.assertEqual(5, len(store.keys()))
            store.proxy.fault = lambda *_: None
            self.settled(store, m)

    def test_the_secret_of_the_store_is_nowhere_and_a_wrong_one_leaves_nothing(self):
        with Store("secret+of/the=store") as store, Mangod(env=store.env, sandbox=None) as m:
            status, answer = upload(m, os.urandom(6 * MIB))
            self.assertEqual(200, status, answer)
            self.settled(store, m)
            self.assertNotIn("secret+of", json.dumps(answer) + m.log())
            m.extra["MANGO_S3_SECRET_KEY"] = "another"
            m.restart()
            status, answer = upload(m, b"x")
            self.assertEqual(500, status, answer)
            self.assertEqual({"SignatureDoesNotMatch"}, {why for _, _, why in store.proxy.refused})
            m.extra["MANGO_S3_SECRET_KEY"] = store.secret
            m.restart()
            store.proxy.refused.clear()
            self.settled(store, m)

    def test_a_server_with_another_store_says_so(self):
        with Database() as db, Mangod(database=db, sandbox=None) as a, Mangod(database=db, sandbox=None, env={"MANGO_API_KEY": None}) as b:
            b.client.key = a.client.key
            status, made = upload(a, b"x")
            self.assertEqual(200, status)
            status, answer = upload(b, b"x")
            self.assertEqual(503, status)
            self.assertIn("not the deployment's", answer["error"]["message"])
            self.assertEqual(503, b.client.raw("GET", f"/v1/files/{made['id']}/content")[0])


class Crashes(unittest.TestCase):
    POINTS = ["object.begun", "object.before_seal", "object.sealed", "file.created.before", "file.created.after"]

    def test_kill_9_at_each_step_of_an_upload_leaves_a_whole_file_or_nothing(self):
        for point in self.POINTS:
            with self.subTest(point=point), Mangod(hooks=f"{point}=kill", sandbox=None, env=QUICK) as m:
                try:
                    upload(m, b"x" * 100000)
                    self.fail("the server lives")
                except (OSError, http.client.HTTPException):
                    pass
                m.process.wait()
                m.hooks = None
                m.start()
                root = os.path.join(m.dir, "state", "objects")

                def names():
                    return {"".join(os.path.join(d, f).split(os.sep)[-2:]) for d, _, fs in os.walk(root) for f in fs if f != "id"}

                def same():
                    rows = m.database.query("SELECT key, state FROM objects")
                    return {r[0] for r in rows} == names() and all(r[1] == "ready" for r in rows)

                wait_for("the folder holds what rows name", same, 20)
                listed = m.client.get("/v1/files")["data"]
                self.assertEqual(point == "file.created.after", len(listed) == 1)
                for f in listed:
                    self.assertEqual(b"x" * 100000, m.client.raw("GET", f"/v1/files/{f['id']}/content")[2])

    def test_a_stopped_uploader_is_fenced_when_it_goes_on(self):
        with Database() as db, Mangod(database=db, hooks="object.before_seal=stop", sandbox=None, env=QUICK) as a:
            shared = {**QUICK, "MANGO_API_KEY": None, "MANGO_OBJECTS_DIR": os.path.join(a.dir, "state", "objects")}
            with Mangod(database=db, sandbox=None, env=shared) as b:
                b.client.key = a.client.key
                answers = []
                t = threading.Thread(target=lambda: answers.append(upload(a, b"x" * 1000)))
                t.start()
                wait_for("the upload has begun", lambda: db.query("SELECT 1 FROM objects"))
                upload(b, b"y")  # so that b is known to have the deployment's store
                wait_for("the other server has claimed it", lambda: ["deleting"] in db.query("SELECT state FROM objects") or len(db.query("SELECT 1 FROM objects")) == 1, 20)
                a.process.signal(18)  # SIGCONT
                t.join(30)
                self.assertEqual([503], [s for s, _ in answers], answers)
                wait_for("one object is left", lambda: db.query("SELECT state FROM objects") == [["ready"]], 20)
                self.assertEqual(1, len(b.client.get("/v1/files")["data"]))


if __name__ == "__main__":
    main()
