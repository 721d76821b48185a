"""The two modes of the backend `srt`: the sandbox runtime's own program from npm passes the conformance suite, and one settings file allows the same in both,
but for what docs/adapters/srt.md lists. MANGO_TEST_SDK as in sdk_rig.py."""
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import sdk_rig as sdk
from harness import BUILD, SKIPPED, SRC, main, wait_for
from sandbox import EGONE, OK, Hello, host_words, label
from srt_rig import Case, need_bubblewrap

WORK = os.path.join(sdk.WORK, "srt")
LOADABLE = os.path.join(BUILD, "plugins", "loadable")
EUNSUPPORTED = -10
RUNTIME = {"MANGO_SRT_MODE": "srt"}  # prepare() adds where the program and its node are


def prepare():
    """True when the program is there."""
    sdk.copy(["package.json"], os.path.join(sdk.HERE, "srt"), WORK)
    node = sdk.install_npm("the sandbox runtime", WORK) and sdk.install_node()
    if node:
        RUNTIME.update(MANGO_SRT_PROGRAM=os.path.join(WORK, "node_modules", ".bin", "srt"), MANGO_SRT_NODE=node)
    return node


def setUpModule():
    need_bubblewrap()
    missing = [p for p in ("socat", "rg", "curl") if not shutil.which(p)]
    if missing:
        raise unittest.SkipTest(f"the sandbox runtime and this test need {', '.join(missing)}")


YES, NO = True, False


def get(url):
    return f"curl -sf -m 10 --noproxy '' {url} | grep -q hello"


def rows(w):
    """What is tried, by what command, and whether it works in mode direct and in mode srt."""
    return [
        ("read a file of the host that no list names", f"cat {w.secret}", NO, NO),
        ("read the host's password file", "cat /etc/shadow", NO, NO),
        ("list the host's homes", "ls /root || ls /home", NO, NO),
        ("read below allowRead", f"cat {w.shared}/read/file", YES, YES),
        ("write below allowRead", f"echo x >{w.shared}/read/file", NO, NO),
        ("read what denyRead names", "ls /usr/share/doc/*", NO, NO),
        ("read and write below allowWrite", f"rm -f {w.shared}/write/new; echo made >{w.shared}/write/new && cat {w.shared}/write/new", YES, YES),
        ("write to a system folder", "echo x >/usr/x || echo x >/etc/x || echo x >/x", NO, NO),
        ("write in the workspace", "echo x >inside && cat inside", YES, YES),
        ("write to /tmp", "echo x >/tmp/inside && cat /tmp/inside", YES, YES),
        ("write to .git/config in the workspace", "mkdir -p .git && echo x >.git/config", YES, YES),
        ("write to .bashrc in the workspace", "echo x >.bashrc && rm .bashrc", YES, YES),
        ("reach an allowed host", get(f"http://localhost:{w.port}/"), YES, YES),
        ("reach an allowed host by SOCKS", get(f"--proxy {w.socks} http://localhost:{w.port}/"), YES, YES),
        ("reach another port of it", get("http://localhost:1/"), NO, NO),
        ("reach another name", get(f"http://other.example.com:{w.port}/"), NO, NO),
        ("reach an address that is no name of the list", get(f"http://127.0.0.1:{w.port}/"), NO, NO),
        ("reach a name of deniedDomains", get(f"http://denied.example.com:{w.port}/"), NO, NO),
        ("reach the host's loopback without the proxy", f"timeout 3 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{w.port}'", NO, NO),
        ("reach the metadata address", get("http://169.254.169.254/"), NO, NO),
        ("resolve a name", "getent hosts example.com", NO, NO),
        ("have more than a loopback", "test $(grep -c : /proc/net/dev) -gt 1", NO, NO),
        ("see the host's processes", f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q '[s]leep {w.marker}'", NO, NO),
        ("signal the host's processes", f"kill -0 {w.witness.pid}", NO, NO),
        ("read the environment of process 1", "tr '\\0' '\\n' </proc/1/environ | grep -q .", NO, NO),
        ("mount a file system", "mkdir -p m && mount -t tmpfs none m", NO, NO),
        ("become another user", "su -c true || setpriv --reuid 0 true", NO, NO),
        ("make a user namespace", "unshare -U true", NO, YES),
        ("make a device", "mknod disk b 254 0", NO, NO),
        ("make a unix socket", "rm -f /tmp/s; timeout 1 socat -u UNIX-LISTEN:/tmp/s,unlink-close=0 /dev/null; test -S /tmp/s", YES, NO),
        ("connect to a unix socket of the host below allowRead", f"socat -u OPEN:/dev/null UNIX-CONNECT:{w.shared}/read/host.sock", YES, NO),
        ("use shared memory", "echo x >/dev/shm/x", YES, YES),
        ("be user 1000 in the sandbox", "test $(id -u) = 1000", YES, NO),
    ]


class Modes(Case):
    """One settings file, both modes."""

    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.port = self.server.server_address[1]
        self.shared = tempfile.mkdtemp(prefix="mango-srt-shared.", dir="/srv")
        self.addCleanup(shutil.rmtree, self.shared, ignore_errors=True)
        for name in ("read", "write", "secret"):
            os.makedirs(os.path.join(self.shared, name))
        self.secret = os.path.join(self.shared, "secret", "file")
        for path in (self.secret, os.path.join(self.shared, "read", "file")):
            with open(path, "w", encoding="ascii") as f:
                f.write("given\n")
        os.chmod(self.shared, 0o755)
        os.chmod(os.path.join(self.shared, "write"), 0o777)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.shared, "read", "host.sock"))
        os.chmod(os.path.join(self.shared, "read", "host.sock"), 0o777)
        self.listener.listen()
        self.addCleanup(self.listener.close)
        self.marker = "8320.25"
        self.witness = subprocess.Popen(["sleep", self.marker])
        self.addCleanup(self.witness.wait)
        self.addCleanup(self.witness.kill)
        self.file = os.path.join(self.dir, "settings.json")
        with open(self.file, "w", encoding="utf-8") as f:
            json.dump(
                {
                    "filesystem": {
                        "denyRead": ["/usr/share/doc"],
                        "allowRead": [".", f"{self.shared}/read"],
                        "allowWrite": [".", f"{self.shared}/write"],
                        "denyWrite": ["/etc"],
                    },
                    "network": {"allowedDomains": [f"localhost:{self.port}", "*.example.com"], "deniedDomains": ["denied.example.com"]},
                },
                f,
            )

    def begin(self, mode, network):
        d = self.driver(**(RUNTIME if mode == "srt" else {}), MANGO_SRT_SETTINGS_FILE=self.file, MANGO_EGRESS_NETWORKS="127.0.0.0/8,::1/128",
                        MANGO_SRT_BASE_DIR=os.path.join(self.dir, mode))
        box = label()
        d.create(box, network)
        return d, box

    def test_one_settings_file_allows_the_same_in_both_modes_but_for_what_is_documented(self):
        seen = {}
        for mode in ("direct", "srt"):
            # A sandbox of the program's has a password for its proxy, so a SOCKS client takes the whole of all_proxy.
            self.socks = '"$ALL_PROXY"' if mode == "srt" else "socks5h://127.0.0.1:3128"
            d, box = self.begin(mode, f"limited=localhost:{self.port}")
            seen[mode] = {name: d.sh(box, f"({script}) >/dev/null 2>&1", limit_ms=30000)["code"] == 0 for name, script, *_ in rows(self)}
            d.ok("destroy", box)
            d.end()
        expected = {"direct": {}, "srt": {}}
        for name, _, direct, srt in rows(self):
            expected["direct"][name], expected["srt"][name] = direct, srt
        self.maxDiff = None
        self.assertEqual(seen, expected)
        with open(os.path.join(SRC, "docs", "adapters", "srt.md"), encoding="utf-8") as f:
            page = f.read()
        for name, _, direct, srt in rows(self):
            if direct != srt:
                self.assertIn(f"| {name} |", page, "a difference of the modes that docs/adapters/srt.md does not list")


class Runtime(Case):
    """Mode srt alone."""

    def driver(self, **env):
        return super().driver(**RUNTIME, **env)

    def test_what_it_cannot_give_is_refused_before_anything_is_made(self):
        self.d = d = self.driver()
        for network, words in (("open", "limited networking"), ("limited=onlyhost:80", "onlyhost"), ("limited=*.com", "*.com")):
            done = d.call("create", label(), d.owner, network, 0, 0, 0, 0)
            self.assertEqual(done["status"], EUNSUPPORTED, network)
            self.assertIn(words, done["error"])
        self.assertEqual([n for n in os.listdir(os.path.join(self.dir, "srt")) if n != ".etc"], [])
        for env, words in (
            ({"MANGO_SRT_PROGRAM": "/bin/true"}, "MANGO_SRT_PROGRAM"),
            ({"MANGO_SRT_NODE": "/nonexistent"}, "MANGO_SRT_NODE"),
            ({"MANGO_SRT_NODE": "/bin/false"}, "no sandbox can be made on this host"),
            ({"MANGO_SRT_ROOTFS": "/srv"}, "MANGO_SRT_ROOTFS"),
        ):
            with self.assertRaises(AssertionError) as e:
                Case.driver(self, **{**RUNTIME, **env})
            self.assertIn(words, str(e.exception).splitlines()[0])

    def test_a_runner_that_a_command_stops_outlives_nothing(self):
        d = self.start()
        d.sh(self.box, "(setsid sleep 8321.25 >/dev/null 2>&1 &); true")
        wait_for("the background process", lambda: host_words("8321.25"))
        d.call("exec", self.box, 2000, 0, "for p in /proc/[0-9]*; do kill -STOP ${p#/proc/}; done", "")
        d.ok("destroy", self.box)
        self.assertEqual(host_words("8321.25"), [])
        self.assertEqual(d.attach(self.box)["status"], EGONE)
        self.d = d
        d.create(self.box)
        d.sh(self.box, "(setsid sleep 8322.25 >/dev/null 2>&1 &); true")
        d.send("exec", self.box, 60000, 0, "for p in /proc/[0-9]*; do kill -STOP ${p#/proc/}; done", "")
        wait_for("the background process", lambda: host_words("8322.25"))
        d.end()  # kill -9 of the server
        wait_for("its end with the server", lambda: not host_words("8322.25"))
        wait_for("the program's end", lambda: not host_words(os.path.join(self.dir, "srt", "session-" + self.box, "workspace")))

    def test_nothing_of_a_command_is_in_the_hosts_process_list_beyond_the_command_itself(self):
        d = self.start(network="limited=localhost:9")
        n = d.send("exec", self.box, 60000, 0, "x=$(cat); sleep 8323.25; : $x", "the-word")
        wait_for("the command", lambda: host_words("8323.25"))
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read()
            except OSError:
                continue
            self.assertNotIn(b"the-word", words)
            if b"bwrap" in words or b"sandbox-runtime" in words:
                self.assertNotIn(b"8323.25", words)
        d.cancel(n)
        d.wait(n)

    def test_files_are_found_again_and_commands_share_one_program(self):
        d = self.start()
        d.ok("write", self.box, "kept", "content")
        took = [d.sh(self.box, "true")["ms"] for _ in range(5)]
        self.assertLess(min(took[1:]), 200, "a command starts the program anew")
        d.call("exec", self.box, 10000, 0, "kill -9 -1", "")
        self.assertEqual(d.out(self.box, "cat kept"), "content")
        d.end()
        d = self.driver()
        self.assertEqual(d.call("attach", self.box, label())["status"], OK)
        self.assertEqual(d.out(self.box, "cat kept"), "content")
        d.ok("destroy", self.box)

    def test_the_suite_passes(self):
        done = subprocess.run(
            [os.path.join(BUILD, "mango"), "conformance", "srt", "--live"],
            env={**os.environ, **RUNTIME, "MANGO_PLUGIN_DIR": LOADABLE, "MANGO_SRT_BASE_DIR": os.path.join(self.dir, "srt")},
            capture_output=True,
            text=True,
            timeout=560,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(" 0 failed", done.stdout)
        for promise in ("isolated", "no-network", "limited-egress"):
            self.assertIn(f"capability: {promise}, proved", done.stdout)


class RuntimeAsUser(Case):
    """The server is not root."""

    as_user = True

    def test_a_sandbox_works(self):
        probe = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "test", "-x", BUILD, "-a", "-r", RUNTIME["MANGO_SRT_PROGRAM"]]
        if subprocess.run(probe, check=False).returncode != 0:
            self.skipTest(f"another user cannot reach {BUILD}; put the checkout where all may read")
        d = self.start(**RUNTIME)
        self.assertEqual(d.out(self.box, "echo x >f && cat f && id -u").split(), ["x", "1000"])
        self.assertNotEqual(d.sh(self.box, "ls /root || cat /etc/shadow")["code"], 0)


if __name__ == "__main__":
    if not sdk.asked("installs the sandbox runtime from npm"):
        sys.exit(SKIPPED)
    ready = prepare()
    status = sdk.cannot_begin(ready, not ready)
    if status is not None:
        sys.exit(status)
    main()
