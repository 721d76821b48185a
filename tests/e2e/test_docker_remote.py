"""The sandbox `docker` with what stands on other machines: an Engine over TCP with certificates, and a registry with a password.

Both are the real ones, in the network namespace of the Engine that tests/support/docker-run starts: dockerd --tlsverify, and Debian's docker-registry."""
import base64
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

from docker_rig import under_engine, waits
from harness import BUILD, main, skip, wait_for
from sandbox import EINVALID, ERETRY, OK, Driver, label

under_engine(__file__, MANGO_TEST_DOCKER_TLS="1")
if os.environ["MANGO_TEST_DOCKER"] != "own" or "MANGO_TEST_DOCKER_CERTS" not in os.environ:
    skip("it needs an Engine of its own: root, dockerd and openssl")
HAS_REGISTRY = all(shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin:/sbin") for p in ("docker-registry", "htpasswd"))

HOST = "192.0.2.1"  # on the loopback of the Engine's namespace; not 127.0.0.0/8, where dockerd does not insist on TLS
CERTS = os.environ["MANGO_TEST_DOCKER_CERTS"]
INSIDE = ("nsenter", "--target", os.environ["MANGO_TEST_DOCKER_PID"], "--net")
USER, PASSWORD = "mango", "pass-canary:with-colon"
ENGINE = {"MANGO_DOCKER_HOST": f"tcp://{HOST}:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": CERTS}


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="mango-remote.", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.dir = folder.name

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def write(self, name, text, mode=0o644):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)


class EngineOverTls(Folder):
    """dockerd --tlsverify on a TCP port."""

    def refused(self, env):
        """What is said when the plugin does not start."""
        with self.assertRaises(AssertionError) as e:
            Driver("docker", {**ENGINE, **env}, INSIDE)
        return str(e.exception)

    def certs_with(self, **other):
        for name in ("ca.pem", "cert.pem", "key.pem"):
            with open(other.get(name[:-4], os.path.join(CERTS, name)), encoding="ascii") as f:
                self.write(name, f.read())
        return self.dir

    def test_a_sandbox_lives_on_an_engine_that_asks_for_a_certificate(self):
        box = label()
        with Driver("docker", ENGINE, INSIDE) as d:
            d.create(box)
            self.assertEqual(d.out(box, "id -u"), "10001")
            d.ok("stream", box, "big", 3000000)
            done = d.ok("read", box, "big", 0, 4000000)
            self.assertEqual((done["bytes"], done["wrong"]), (3000000, 0))
            n = d.send("exec", box, 60000, 0, waits("7320.25"), "")
            self.assertEqual(d.out(box, "echo beside it"), "beside it")
            d.cancel(n)
            self.assertEqual(d.wait(n)["status"], -6)
        with Driver("docker", {**ENGINE, "DOCKER_HOST": ENGINE["MANGO_DOCKER_HOST"], "MANGO_DOCKER_HOST": ""}, INSIDE) as d:
            self.assertEqual(d.call("attach", box, label())["status"], OK)
            d.ok("destroy", box)

    def test_sp5_an_engine_on_another_host_declares_no_limited_network(self):
        """The server's proxy cannot be mounted there: sessions that want it are refused instead of failing at their first command."""
        env = {**os.environ, **ENGINE, "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable"), "MANGO_STATE_DIR": self.dir}
        words = [*INSIDE, os.path.join(BUILD, "mango"), "conformance", "docker", "--live", "--only", "none of them"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
        self.assertIn("# not claimed: limited-egress", done.stdout, done.stderr)
        self.assertNotIn("# not claimed: list-owned", done.stdout)

    def test_an_engine_of_another_authority_is_refused(self):
        self.write("x", "")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=other",
                "-keyout", self.path("other-key.pem"), "-out", self.path("other.pem"))  # fmt: skip
        said = self.refused({"DOCKER_CERT_PATH": self.certs_with(ca=self.path("other.pem"))})
        self.assertIn("certificate", said)
        self.assertIn(HOST, said)

    def test_a_client_without_a_certificate_of_its_authority_is_refused(self):
        self.write("x", "")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=stranger",
                "-keyout", self.path("stranger-key.pem"), "-out", self.path("stranger.pem"))  # fmt: skip
        said = self.refused({"DOCKER_CERT_PATH": self.certs_with(cert=self.path("stranger.pem"), key=self.path("stranger-key.pem"))})
        self.assertIn(HOST, said)
        self.assertNotIn("PRIVATE KEY", said)

    def test_plain_http_to_a_tls_port_and_a_missing_file_are_told(self):
        self.assertIn("HTTPS server", self.refused({"DOCKER_TLS_VERIFY": ""}))
        os.unlink(os.path.join(self.certs_with(), "key.pem"))
        self.assertIn("key.pem", self.refused({"DOCKER_CERT_PATH": self.dir}))


@unittest.skipUnless(HAS_REGISTRY, "docker-registry and apache2-utils are not installed: pulls from a registry are not tested")
class Registry(Folder):
    """A registry over TLS that asks for a password, holding one image that the Engine does not have."""

    IMAGE = f"{HOST}:5443/team/image:v1"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="mango-registry.", dir="/tmp")
        with open(os.path.join(cls.folder.name, "htpasswd"), "w", encoding="ascii") as f:
            f.write(subprocess.run(["htpasswd", "-niB", USER], input=PASSWORD, text=True, check=True, capture_output=True).stdout)
        config = {
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": os.path.join(cls.folder.name, "data")}},
            "http": {"addr": f"{HOST}:5443", "tls": {"certificate": f"{CERTS}/server.pem", "key": f"{CERTS}/server-key.pem"}},
            "auth": {"htpasswd": {"realm": "test", "path": os.path.join(cls.folder.name, "htpasswd")}},
        }
        cls.config = os.path.join(cls.folder.name, "config.yml")
        with open(cls.config, "w", encoding="ascii") as f:
            json.dump(config, f)  # which is YAML too
        cls.log = open(os.path.join(cls.folder.name, "log"), "w", encoding="utf-8")  # pylint: disable=consider-using-with
        cls.process = subprocess.Popen([*INSIDE, "docker-registry", "serve", cls.config], stdout=cls.log, stderr=cls.log)
        try:
            wait_for("the registry", cls.answers)
            cls.push()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def answers(cls):
        done = subprocess.run([*INSIDE, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", f"{CERTS}/ca.pem", f"https://{HOST}:5443/v2/"],
                              capture_output=True, text=True, check=False)  # fmt: skip
        return done.stdout == "401"

    @classmethod
    def push(cls):
        """By Docker's own command line, which writes the config.json of the tests too."""
        cli = ["docker", "--config", os.path.join(cls.folder.name, "cli")]
        for words, given in (
            (["login", "-u", USER, "--password-stdin", f"{HOST}:5443"], PASSWORD),
            (["tag", os.environ["MANGO_DOCKER_IMAGE"], cls.IMAGE], None),
            (["push", cls.IMAGE], None),
            (["rmi", cls.IMAGE], None),
        ):
            subprocess.run([*cli, *words], input=given, text=True, check=True, capture_output=True, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.process.send_signal(signal.SIGKILL)
        cls.process.wait()
        cls.log.close()
        cls.folder.cleanup()

    def setUp(self):
        super().setUp()
        self.addCleanup(lambda: subprocess.run(["docker", "rmi", "-f", self.IMAGE], capture_output=True, check=False))

    def pull(self, config, path=None):
        """The answer to a create whose image is only in the registry, and all that was said."""
        if config is not None:
            self.write("docker/config.json", config if isinstance(config, str) else json.dumps(config), 0o600)
        box = label()
        env = {"DOCKER_CONFIG": self.path("docker"), "MANGO_DOCKER_IMAGE": self.IMAGE}
        if path:
            env["PATH"] = path + ":" + os.environ["PATH"]
        with Driver("docker", env) as d:
            done = d.call("create", box, d.owner, "none", 0, 0, 0, 0)
            if done["status"] == OK:
                self.assertEqual(d.out(box, "echo pulled"), "pulled")
                d.ok("destroy", box)
        self.assertNotIn("pass-canary", json.dumps(done))
        return done

    def auths(self, password):
        return {"auths": {f"{HOST}:5443": {"auth": base64.b64encode(f"{USER}:{password}".encode()).decode()}}}

    def helper(self, script):
        self.write("bin/docker-credential-test", "#!/bin/sh\n" + script)
        os.chmod(self.path("bin/docker-credential-test"), stat.S_IRWXU)
        return self.path("bin")

    def test_the_config_that_docker_login_wrote_pulls(self):
        with open(os.path.join(self.folder.name, "cli", "config.json"), encoding="ascii") as f:
            self.assertEqual(self.pull(f.read())["status"], OK)

    def test_a_wrong_password_and_none_are_told_without_a_secret(self):
        for config in (self.auths("pass-canary-wrong"), {"auths": {f"{HOST}:5443": {}}}, {}, None):
            done = self.pull(config)
            self.assertIn(done["status"], (EINVALID, ERETRY), done)
            self.assertIn(self.IMAGE, done["error"])
            self.assertIn("credentials", done["error"])
            self.assertNotIn(base64.b64encode(f"{USER}:pass-canary-wrong".encode()).decode(), done["error"])

    def test_a_helper_program_gives_the_credentials(self):
        bin_dir = self.helper(
            'test "$1" = get || exit 3\nread -r host || test -n "$host" || exit 4\n'
            f'test "$host" = {HOST}:5443 || {{ echo "credentials not found in native keychain"; exit 1; }}\n'
            f'env >{self.path("env")}\nprintf \'{{"ServerURL":"%s","Username":"{USER}","Secret":"{PASSWORD}"}}\' "$host"\n'
        )
        os.environ["MANGO_SECRET_CANARY"] = "env-canary"
        self.addCleanup(os.environ.pop, "MANGO_SECRET_CANARY")
        self.assertEqual(self.pull({"credHelpers": {f"{HOST}:5443": "test"}}, bin_dir)["status"], OK)
        with open(self.path("env"), encoding="utf-8") as f:
            self.assertNotIn("env-canary", f.read(), "the server's own variables are not a helper's business")
        subprocess.run(["docker", "rmi", "-f", self.IMAGE], capture_output=True, check=True)
        self.assertEqual(self.pull({"auths": {f"{HOST}:5443": {}}, "credsStore": "test"}, bin_dir)["status"], OK)

    def test_a_helper_that_fails_is_named(self):
        config = {"credHelpers": {f"{HOST}:5443": "test"}}
        cases = (
            ("echo 'pass-canary is locked'; exit 5", "exit status 5"),
            ("echo '{}'", "no Username and Secret"),
            ("echo pass-canary; kill -9 $$", "signal 9"),
            ("head -c 100000 /dev/zero", "no answer"),
        )
        for script, said in cases:
            done = self.pull(config, self.helper(script))
            self.assertLess(done["status"], 0)
            self.assertIn("docker-credential-test", done["error"])
            self.assertIn(said, done["error"])
        os.unlink(self.path("bin/docker-credential-test"))
        self.assertIn("cannot be run", self.pull(config)["error"])

    def test_a_helper_without_credentials_is_as_none(self):
        done = self.pull({"credHelpers": {f"{HOST}:5443": "test"}}, self.helper("echo 'credentials not found in native keychain'; exit 1"))
        self.assertIn("could not be pulled", done["error"])


if __name__ == "__main__":
    main()
