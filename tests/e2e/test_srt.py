"""The sandbox `srt` for real: conformance, escapes, the way to the network, a server's whole turn. Needs bubblewrap and the right to make namespaces."""
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

from fallback_rig import check_no_fallback
from harness import BUILD, SRC, FakeModel, Mangod, main, wait_for
from sandbox import EDENIED, EGONE, OK, Hello, host_words, label
from srt_rig import NOBODY, Case, need_bubblewrap
from test_sandboxes import run, text_of

LOADABLE = os.path.join(BUILD, "plugins", "loadable")

def setUpModule():
    need_bubblewrap()


class Escapes(Case):
    def test_the_hosts_files_are_out_of_reach(self):
        d = self.start()
        secret = os.path.join(self.dir, "secret")
        with open(secret, "w", encoding="ascii") as f:
            f.write("canary-on-the-host")
        os.chmod(secret, 0o644)
        os.symlink(secret, os.path.join(self.dir, "srt", "session-" + self.box, "workspace", "planted"))
        tries = [
            f"cat {secret}",
            "cat planted",
            f"cat /proc/1/root{secret}",
            f"cat /proc/self/root/../..{secret}",
            f"cd ../../../../../..; cat .{secret}",
            f"for f in /proc/self/fd/*; do cat $f/../../../../../..{secret}; done",
            "cat /etc/shadow /proc/*/root/etc/shadow /etc/ssl/private/*",
            "mkdir m; mount -t proc none m; mount --bind / m; mount /dev/vda m; mount /dev/sda1 m; ls m",
            "mknod disk b 254 0; dd if=disk bs=512 count=1; cat /dev/vda /dev/sda /dev/mem /dev/kmsg",
            f"chroot / cat {secret}",
            f"unshare -Urm sh -c 'mount -t tmpfs none /mnt && cat {secret}'",
            f"unshare -U cat {secret}",
            "cat /proc/1/environ /proc/1/maps; cat /proc/kcore | head -c 100",
        ]
        for t in tries:
            done = d.sh(self.box, f"({t}) 2>/dev/null; true")
            self.assertNotIn("canary", done["out"], t)
            self.assertNotIn("root:$", done["out"], t)
        for t in (
            "unshare -U true",
            "unshare -m true",
            "mknod disk b 254 0",
            "echo x >/proc/sys/kernel/core_pattern || echo x >/proc/sysrq-trigger",
            "echo x >/sys/fs/cgroup/x",
            "ls /root || ls /home || ls /var/lib || ls /srv",
            "cat /proc/1/environ",
            "head -c 1 /proc/kcore",
        ):
            self.assertNotEqual(d.sh(self.box, t)["code"], 0, t)
        self.assertEqual(d.call("read", self.box, "planted", 0, 100)["status"], EDENIED)
        self.assertEqual(d.out(self.box, "cat /proc/mounts | grep -c -e ' /home ' -e ' / ext'; true"), "0")

    def test_the_root_is_read_only_and_nobody_becomes_root(self):
        d = self.start()
        self.assertEqual(d.out(self.box, "id -u"), "1000")
        for path in ("/x", "/bin/sh", "/etc/passwd", "/.mango-runner", "/usr/bin/x", "/var/x", "/dev/x", "/run/x", "/proc/x", "/etc/x"):
            self.assertNotEqual(d.sh(self.box, f"echo x >{path}")["code"], 0, path)
        status = dict(line.split(":\t", 1) for line in d.out(self.box, "cat /proc/self/status").splitlines() if ":\t" in line)
        for caps in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[caps], 16), 0, caps)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        self.assertNotEqual(d.sh(self.box, "su -c id || sudo -n id")["code"], 0)
        inside = d.out(self.box, "for n in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$n; done").split()
        outside = [os.readlink(f"/proc/self/ns/{n}") for n in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")]
        self.assertEqual(set(inside) & set(outside), set())
        for path in ("/tmp/x", "x", "/dev/shm/x", "/var/tmp/y"):
            self.assertEqual(d.sh(self.box, f"echo x >{path}")["code"], 0, path)

    def test_system_calls_that_no_tool_needs_are_refused(self):
        d = self.start()
        script = r'''
import ctypes, errno, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    ctypes.set_errno(0)
    return libc.syscall(*a) < 0 and errno.errorcode[ctypes.get_errno()]
seen = {}
for name, nr, args in (("ptrace", 101, (16, 1, 0, 0)), ("bpf", 321, (0, 0, 0)), ("io_uring", 425, (1, 0)), ("clone3", 435, (0, 0)),
                       ("keyctl", 250, (0, 0)), ("unshare", 272, (0x10000000,)), ("clone", 56, (0x10000011, 0, 0, 0, 0)), ("future", 500, (0,))):
    seen[name] = call(ctypes.c_long(nr), *[ctypes.c_long(a) for a in args])
for name, family in (("vsock", 40), ("packet", 17), ("alg", 38)):
    try:
        socket.socket(family, socket.SOCK_STREAM if family == 40 else socket.SOCK_RAW if family == 17 else 5)
        seen[name] = "open"
    except OSError as e:
        seen[name] = errno.errorcode[e.errno]
import json; print(json.dumps(seen))
'''
        d.ok("write", self.box, "t.py", script)
        if os.uname().machine != "x86_64" or not os.path.exists("/usr/bin/python3"):
            self.skipTest("the numbers are those of x86_64, and /usr/bin/python3 tries them")
        seen = json.loads(d.out(self.box, "/usr/bin/python3 t.py"))
        refused, absent, no_family = "EPERM", "ENOSYS", "EAFNOSUPPORT"
        self.assertEqual(
            seen,
            {
                "ptrace": refused, "bpf": refused, "io_uring": absent, "clone3": absent, "keyctl": refused, "unshare": refused, "clone": refused,
                "future": absent, "vsock": no_family, "packet": no_family, "alg": no_family,
            },
        )

    def test_the_hosts_network_and_its_sockets_are_not_there(self):
        d = self.start()
        self.assertEqual(d.out(self.box, "grep -c : /proc/net/dev"), "1")
        self.assertEqual(d.out(self.box, "wc -l </proc/net/route"), "1")
        abstract = "mango-srt-" + self.box
        with socket.create_server(("0.0.0.0", 0)) as s, socket.socket(socket.AF_UNIX) as u:
            u.bind("\0" + abstract)
            u.listen()
            s.settimeout(0.2)
            for address in ("127.0.0.1", "169.254.169.254"):
                self.assertNotEqual(d.sh(self.box, f"timeout 2 bash -c 'echo x >/dev/tcp/{address}/{s.getsockname()[1]}'")["code"], 0)
            self.assertRaises(TimeoutError, s.accept)
            self.assertEqual(d.out(self.box, f"grep -c {abstract} /proc/net/unix; true"), "0")
        for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/dbus/system_bus_socket", "/.mango-egress"):
            self.assertNotEqual(d.sh(self.box, f"test -e {path}")["code"], 0, path)

    def test_the_hosts_processes_are_not_seen_and_not_signalled(self):
        d = self.start()
        with subprocess.Popen(["sleep", "8301.25"]) as witness:
            try:
                self.assertEqual(d.out(self.box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 8301.25'; true"), "0")
                d.call("exec", self.box, 20000, 0, f"kill -9 {witness.pid} {os.getpid()} 1 2>/dev/null; kill -STOP 1; kill -9 -1", "")
                self.assertIsNone(witness.poll())
                self.assertEqual(d.out(self.box, "echo alive"), "alive")
            finally:
                witness.kill()

    def test_a_fork_bomb_ends_at_the_limit_of_processes(self):
        d = self.start({"pids": 40})
        other = label()
        d.create(other)
        done = d.sh(self.box, "bash -c 'f() { f | f & }; f; while :; do :; done'", limit_ms=2000)
        self.assertTrue(done["timed_out"], done)
        self.assertNotEqual(d.sh(self.box, "i=0; while [ $i -lt 60 ]; do sleep 8302.25 & i=$((i+1)); done 2>/dev/null")["code"], 0)
        self.assertLess(len(host_words("8302.25")), 41)
        self.assertEqual(d.out(other, "echo alive"), "alive")
        d.ok("destroy", self.box)
        self.assertEqual(host_words("8302.25"), [])
        d.ok("destroy", other)

    def test_memory_and_files_end_at_their_limits(self):
        d = self.start({"memory": 96 << 20}, MANGO_SRT_FILE_SIZE=str(8 << 20))
        done = d.sh(self.box, "head -c 268435456 /dev/zero | tail -c 268435456 | wc -c")
        self.assertNotIn("268435456", done["out"])
        self.assertNotEqual(d.sh(self.box, "head -c 20000000 /dev/zero >big")["code"], 0)
        self.assertEqual(d.out(self.box, "stat -c %s big"), str(8 << 20))
        self.assertNotEqual(d.sh(self.box, "head -c 200000000 /dev/zero >/dev/shm/x")["code"], 0)
        self.assertEqual(d.out(self.box, "echo alive"), "alive")

    def test_nothing_outlives_its_session_or_its_server(self):
        d = self.start()
        d.sh(self.box, "(setsid sleep 8303.25 >/dev/null 2>&1 &); sleep 8303.25 & true")
        wait_for("the background processes", lambda: len(host_words("8303.25")) == 2)
        d.ok("destroy", self.box)
        self.assertEqual(host_words("8303.25"), [])
        self.assertEqual(d.attach(self.box)["status"], EGONE)
        self.assertEqual([n for n in os.listdir(os.path.join(self.dir, "srt")) if n.startswith("session-")], [])
        d.create(self.box)
        d.sh(self.box, "(setsid sleep 8304.25 >/dev/null 2>&1 &) & true")
        wait_for("the background process", lambda: host_words("8304.25"))
        d.end()
        wait_for("its end with the server", lambda: not host_words("8304.25"))
        workspace = os.path.join(self.dir, "srt", "session-" + self.box, "workspace")
        wait_for("bubblewrap's end", lambda: not host_words(workspace))

    def test_sessions_do_not_meet(self):
        d = self.start()
        other = label()
        d.create(other)
        d.ok("write", self.box, "mine", "secret")
        d.sh(self.box, "echo secret >/tmp/mine; chmod 777 . /tmp; sleep 8305.25 & true")
        self.assertEqual(d.out(other, "ls -A /workspace /tmp | grep -c mine; cat /proc/[0-9]*/cmdline | grep -c '[8]305.25'; true").split(), ["0", "0"])
        owners = {os.stat(os.path.join(self.dir, "srt", "session-" + b, "workspace")).st_uid for b in (self.box, other)}
        self.assertEqual(len(owners), 1 if self.as_user else 2)
        self.assertNotIn(0, owners)

    def test_files_of_both_sides_belong_together(self):
        d = self.start()
        d.ok("write", self.box, "deep/er/file", "from outside")
        self.assertEqual(d.out(self.box, "cd deep/er && echo more >>file && echo new >new && mv file moved && cat moved"), "from outsidemore")
        self.assertEqual(d.ok("read", self.box, "deep/er/new", 0, 100)["content"], "new\n")
        d.sh(self.box, "echo x >shut; chmod 000 shut")
        self.assertEqual(d.call("read", self.box, "shut", 0, 100)["status"], EDENIED)


class EscapesAsUser(Escapes):
    """The server is not root."""

    as_user = True

    @classmethod
    def setUpClass(cls):
        probe = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "test", "-x", BUILD, "-a", "-x", SRC]
        if subprocess.run(probe, check=False).returncode != 0:
            raise unittest.SkipTest(f"another user cannot reach {BUILD}; put the checkout where all may read")


class Life(Case):
    def test_nothing_of_a_command_is_in_the_hosts_process_list_beyond_the_command_itself(self):
        d = self.start()
        n = d.send("exec", self.box, 60000, 0, "x=$(cat); sleep 8306.25; : $x", "the-password")
        wait_for("the command", lambda: host_words("8306.25"))
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = open(f"/proc/{pid}/cmdline", "rb").read() + open(f"/proc/{pid}/environ", "rb").read()
            except OSError:
                continue
            self.assertNotIn(b"the-password", words)
            if b"bwrap" in words:
                self.assertNotIn(b"8306.25", words)
        d.cancel(n)
        d.wait(n)

    def test_another_server_takes_over_what_a_killed_one_left(self):
        d = self.start()
        d.ok("write", self.box, "kept", "content")
        d.send("exec", self.box, 60000, 0, "sleep 8307.25", "")
        wait_for("the command", lambda: host_words("8307.25"))
        d.end()
        d = self.driver()
        self.assertEqual(d.call("attach", self.box, label())["identity"], self.made["identity"])
        self.assertEqual(d.out(self.box, "cat kept"), "content")
        wait_for("the old command's end", lambda: not host_words("8307.25"))

    def test_what_cannot_be_kept_is_refused_by_name(self):
        for env, words in (
            ({"MANGO_SRT_MODE": "srt", "MANGO_SRT_PROGRAM": "/nonexistent"}, "MANGO_SRT_MODE=srt"),
            ({"MANGO_SRT_MODE": "other"}, "MANGO_SRT_MODE"),
            ({"MANGO_SRT_BWRAP": "/nonexistent/bwrap"}, "apt-get install bubblewrap"),
            ({"MANGO_SRT_BWRAP": "/bin/false"}, "bubblewrap 0.8 or newer"),
            ({"MANGO_SRT_PIDS": "many"}, "MANGO_SRT_PIDS"),
            ({"MANGO_SRT_ROOTFS": "/nonexistent"}, "MANGO_SRT_ROOTFS"),
        ):
            with self.assertRaises(AssertionError) as e:
                self.driver(**env)
            self.assertIn(words, str(e.exception).splitlines()[0])

    def test_case_61_orphans_leave_no_zombies(self):
        d = self.start()
        d.sh(self.box, "i=0; while [ $i -lt 300 ]; do (sleep 0.01 &); i=$((i+1)); done")
        wait_for("no zombies", lambda: int(d.out(self.box, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '; true")) < 10)

    def test_a_root_of_its_own(self):
        rootfs = os.path.join(self.dir, "rootfs")
        for folder in ("bin", "etc", "lib"):
            os.makedirs(os.path.join(rootfs, folder))
        with open(os.path.join(rootfs, "etc", "only-here"), "w", encoding="ascii") as f:
            f.write("own root\n")
        for name in ("usr", "lib64"):
            os.symlink("/nonexistent", os.path.join(rootfs, name))
        shell = "/bin/busybox" if os.path.exists("/bin/busybox") else None
        if not shell:
            self.skipTest("no static shell (busybox) on this machine")
        for name in ("sh", "cat", "ls"):
            shutil.copy(shell, os.path.join(rootfs, "bin", name))
        os.chmod(rootfs, 0o755)
        d = self.start(MANGO_SRT_ROOTFS=rootfs)
        self.assertEqual(d.out(self.box, "cat /etc/only-here"), "own root")
        self.assertNotEqual(d.sh(self.box, "ls /etc/passwd")["code"], 0)


class Network(Case):
    GET = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://{0}/ HTTP/1.1\\r\\nHost: {0}\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"

    def get(self, host):
        return self.d.sh(self.box, f'bash -c "{self.GET.format(host)}"', limit_ms=20000)["out"]

    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.port = self.server.server_address[1]
        self.inner = {"MANGO_EGRESS_NETWORKS": "127.0.0.0/8,::1/128"}

    def test_case_95_only_what_is_allowed_is_reached(self):
        d = self.start(network=f"limited=localhost:{self.port}", **self.inner)
        self.assertIn("hello from outside", self.get(f"localhost:{self.port}"))
        self.assertEqual(d.out(self.box, "env | grep -c -i _proxy="), "8")
        for other in ("example.invalid", "localhost:1", f"127.0.0.1:{self.port}", "169.254.169.254"):
            self.assertNotIn("hello", self.get(other), other)
        self.assertNotEqual(d.sh(self.box, f"timeout 3 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{self.port}'")["code"], 0)
        self.assertEqual(d.out(self.box, "grep -c : /proc/net/dev"), "1")
        self.assertNotEqual(d.sh(self.box, "echo x >/.mango-egress/x || rm /.mango-egress/proxy.sock")["code"], 0)
        d.call("exec", self.box, 20000, 0, "kill -9 -1", "")  # the relay too: it comes again
        wait_for("the relay", lambda: "hello from outside" in self.get(f"localhost:{self.port}"))
        d.end()
        self.d = d = self.driver(**self.inner)
        self.assertEqual(d.call("attach", self.box, label())["status"], OK)
        d.ok("destroy", self.box)

    def test_programs_use_the_proxy_by_themselves(self):
        if not os.path.exists("/usr/bin/curl"):
            self.skipTest("curl is not installed")
        d = self.start(network=f"limited=localhost:{self.port}", **self.inner)
        self.assertEqual(d.out(self.box, f"no_proxy= NO_PROXY= curl -sS -m 20 http://localhost:{self.port}/"), "hello from outside")
        socks = f"curl -sS -m 20 --noproxy '' --proxy socks5h://127.0.0.1:3128 http://localhost:{self.port}/"
        self.assertEqual(d.out(self.box, socks), "hello from outside")

    def test_an_open_network_is_the_proxy_without_a_list_and_never_this_machine(self):
        d = self.start(network="open")
        self.assertNotIn("hello", self.get(f"localhost:{self.port}"))
        self.assertNotIn("hello", self.get(f"127.0.0.1:{self.port}"))
        self.assertEqual(d.out(self.box, "grep -c : /proc/net/dev"), "1")


class SettingsFile(Case):
    """The settings file of the sandbox runtime."""

    def write(self, settings):
        path = os.path.join(self.dir, "settings.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(settings, f)
        return path

    def test_folders_are_allowed_and_denied(self):
        shared = tempfile.mkdtemp(prefix="mango-srt-shared.", dir="/srv")
        self.addCleanup(shutil.rmtree, shared, ignore_errors=True)
        for name in ("read", "read/hidden", "write"):
            os.makedirs(os.path.join(shared, name))
        for name in ("read/file", "read/hidden/file"):
            with open(os.path.join(shared, name), "w", encoding="ascii") as f:
                f.write("given\n")
        for folder, mode in ((shared, 0o755), (os.path.join(shared, "write"), 0o777)):
            os.chmod(folder, mode)
        file = self.write(
            {
                "filesystem": {
                    "denyRead": ["/usr/share/doc"],
                    "allowRead": [".", f"{shared}/read"],
                    "allowWrite": [".", f"{shared}/write"],
                    "denyWrite": ["/etc"],
                },
                "network": {"allowedDomains": [], "deniedDomains": []},
                "enableWeakerNestedSandbox": False,
            }
        )
        d = self.start(MANGO_SRT_SETTINGS_FILE=file)
        self.assertEqual(d.out(self.box, f"cat {shared}/read/file"), "given")
        self.assertNotEqual(d.sh(self.box, f"echo x >{shared}/read/file")["code"], 0)
        self.assertEqual(d.out(self.box, f"echo made >{shared}/write/new; cat {shared}/write/new"), "made")
        self.assertEqual(d.out(self.box, "ls -A /usr/share/doc"), "")

    def test_domains_bound_what_an_environment_allows(self):
        file = self.write({"network": {"allowedDomains": ["*.example.com", "one.example.org"], "deniedDomains": ["bad.example.com"]}})
        self.d = d = self.driver(MANGO_SRT_SETTINGS_FILE=file)
        for host, status in (("one.example.org", OK), ("a.example.com", OK), ("example.org", -5), ("bad.example.com", -5), ("*.example.com", -5)):
            self.assertEqual(d.call("create", label(), d.owner, "limited=" + host, 0, 0, 0, 0)["status"], status, host)

    def test_what_does_not_mean_the_same_here_is_refused_by_name(self):
        for settings, words in (
            ({"filesystem": {"allowRead": ["~/.ssh"]}}, "~/.ssh"),
            ({"filesystem": {"allowWrite": ["/opt/*"]}}, "/opt/*"),
            ({"filesystem": {"allowRead": ["/"]}}, "filesystem"),
            ({"filesystem": {"allowWrite": [self.dir]}}, "workspaces"),
            ({"filesystem": {"allowWrite": ["/opt/a"], "denyWrite": ["/opt/a/b"]}}, "/opt/a/b"),
            ({"network": {"allowUnixSockets": ["/run/docker.sock"]}}, "allowUnixSockets"),
            ({"enableWeakerNestedSandbox": True}, "enableWeakerNestedSandbox"),
            ({"unknown": 1}, "unknown"),
        ):
            with self.assertRaises(AssertionError) as e:
                self.driver(MANGO_SRT_SETTINGS_FILE=self.write(settings))
            self.assertIn(words, str(e.exception))
            self.assertIn("settings.json", str(e.exception))


class Conformance(unittest.TestCase):
    def test_the_suite_passes(self):
        done = subprocess.run(
            [os.path.join(BUILD, "mango"), "conformance", "srt", "--live"],
            env={**os.environ, "MANGO_PLUGIN_DIR": LOADABLE},
            capture_output=True,
            text=True,
            timeout=560,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(" 0 failed", done.stdout)
        for promise in ("isolated", "no-network", "limited-egress"):
            self.assertIn(f"capability: {promise}, proved", done.stdout)


class Server(unittest.TestCase):
    def test_a_turn_runs_behind_it_and_a_killed_server_finds_the_workspace_again(self):
        with Mangod(sandbox="srt") as m:
            session = m.client.new_session()
            self.assertIn("/workspace 1000", text_of(run(m, session, "echo kept >file; echo $(pwd) $(id -u)")))
            run(m, session, "(setsid sleep 8310.25 >/dev/null 2>&1 &); true")
            m.process.signal(signal.SIGKILL)
            m.process.wait()
            wait_for("what it ran is gone", lambda: not host_words("8310.25"))
            m.start()
            self.assertIn("kept", text_of(run(m, session, "cat file")))
            self.assertEqual(m.client.get("/readyz")["sandboxes"], {"srt": "up"})
            base = os.path.join(m.dir, "state", "srt")
            self.assertEqual(len([n for n in os.listdir(base) if n.startswith("session-")]), 1)
            m.client.delete(f"/v1/sessions/{session['id']}")
            wait_for("nothing is left of it", lambda: [n for n in os.listdir(base) if n.startswith("session-")] == [], timeout=30)

    def test_case_63_without_what_isolates_the_server_does_not_start(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="mango-srt."))
        without = os.path.join(folder, "mangod")
        with open(without, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\nexec unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec \"$0\"' " + os.path.join(BUILD, "mangod"))
        os.chmod(without, 0o755)
        for env, binary, words in (
            ({"MANGO_SRT_BWRAP": "/nonexistent/bwrap"}, None, "install bubblewrap"),
            ({"MANGO_SRT_SETTINGS_FILE": "/nonexistent/settings"}, None, "/nonexistent/settings"),
            ({}, without, "the right to make namespaces"),
        ):
            with self.subTest(words), Mangod(sandbox="srt", env=env, start=False) as m:
                m.binary = binary or m.binary
                m.start(wait=False)
                self.assertEqual(m.process.wait(60), 78, m.process.log())
                self.assertIn(words, m.process.log())

    def test_case_63_a_backend_that_is_lost_while_the_server_runs_never_falls_back_to_the_host(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="mango-srt."))
        os.chmod(folder, 0o755)
        bwrap, away = os.path.join(folder, "bwrap"), os.path.join(folder, "away")
        shutil.copy(shutil.which("bwrap"), bwrap)
        with FakeModel() as model, Mangod(sandbox="srt", model_url=model.url, env={"MANGO_SRT_BWRAP": bwrap}) as m:
            check_no_fallback(self, m, lambda: os.rename(bwrap, away), lambda: os.rename(away, bwrap))


if __name__ == "__main__":
    main()
