"""mango-worker supervise with the launcher `process`: from the poll to the stop, and every kind of death on the way."""
import os
import shutil
import signal
import subprocess
import unittest

from harness import BUILD, FakeModel, Mangod, main, wait_for
from launcher_rig import Launchers, memory
from sandbox import host_processes, host_words
from turns import fake
from worker_rig import ENDS_THE_SECOND_TIME, bash


class Keepers:
    @staticmethod
    def all(base):
        """(folder, process id) of each keeper below base."""
        found = []
        for pid in host_processes("mango-process-box"):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"mango-process-box") and words[1].startswith(base.encode()):
                found.append((words[1].decode(), pid))
        return found


class ProcessLauncher(Launchers.Case):
    LAUNCHER = "process"

    def settings(self):
        return {
            "MANGO_PROCESS_BASE_DIR": self.base(),
            "MANGO_PROCESS_WORKER": os.path.join(BUILD, "mango-worker"),
        }

    def base(self):
        return os.path.join(self.folder, "boxes")

    def keepers(self):
        return Keepers.all(self.base())

    def boxes(self):
        out = {}
        for home, pid in self.keepers():
            out.setdefault(os.path.basename(home), []).append(pid)
        for label, pids in out.items():
            self.assertEqual(len(pids), 1, f"two boxes of {label}")
        return out

    def workspaces(self):
        base = self.base()
        return [os.path.join(base, n, "workspace") for n in os.listdir(base) if n.startswith("session-")] if os.path.isdir(base) else []

    def worker_of(self, keeper):
        with open(f"/proc/{keeper}/task/{keeper}/children", encoding="ascii") as f:
            return int(f.read().split()[0])

    def kill_box(self):
        (_, pid), = self.keepers()
        os.kill(self.worker_of(pid), signal.SIGKILL)

    def stop_box(self):
        (_, keeper), = self.keepers()
        pid = self.worker_of(keeper)
        os.kill(pid, signal.SIGSTOP)

        def wake():
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

        return wake

    def look_for_key(self):
        (home, keeper), = self.keepers()
        for pid in (keeper, self.worker_of(keeper)):
            for what in ("environ", "cmdline"):
                with open(f"/proc/{pid}/{what}", "rb") as f:
                    self.assertNotIn(self.key.encode(), f.read(), what)
            self.assertNotIn(self.key.encode(), memory(pid), f"memory of {pid}")
        done = subprocess.run(["grep", "-rlF", self.key, home], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "")

    def clean(self):
        for _, pid in self.keepers():
            os.kill(pid, signal.SIGUSR1)
        wait_for("the boxes end", lambda: not self.keepers(), 30)
        shutil.rmtree(self.base(), ignore_errors=True)

    def test_a_keeper_that_was_killed_takes_its_worker_along(self):
        self.supervise()
        s = self.new()
        self.say(s, bash(ENDS_THE_SECOND_TIME.replace("never", "never-3217")), "---", "text done")
        self.started(s, "begun")
        (_, pid), = self.keepers()
        worker = self.worker_of(pid)
        os.kill(pid, signal.SIGKILL)
        wait_for("its worker ends", lambda: not os.path.exists(f"/proc/{worker}"), 20)
        self.assertEqual(self.results(self.wait_end(s)), [("end", False)])
        wait_for("its command ends", lambda: not host_words("never-3217"), 20)
        self.check_pairs(s)

    def test_what_persists_of_a_session_can_be_forgotten(self):
        w = self.supervise()
        s = self.new()
        self.turn(s, 'tool bash {"command":"touch kept"}', "---", "text done")
        self.wait_left(s)
        self.wait_no_box()
        self.assertEqual(len(self.workspaces()), 1)
        self.assertEqual(w.end(), 0)
        self.assertEqual(self.supervise("--forget", s).process.wait(30), 0)
        self.assertEqual(self.workspaces(), [])

    def test_it_passes_the_conformance_suite(self):
        env = {**os.environ, "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable"), **self.settings()}
        done = subprocess.run([os.path.join(BUILD, "mango"), "conformance", "process", "--launcher"], env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("\n1..9\n", done.stdout)
        self.assertEqual(self.workspaces(), [])

    def test_an_unknown_launcher_is_refused_with_the_names_that_exist(self):
        env = dict(os.environ, ANTHROPIC_ENVIRONMENT_ID="env_x", ANTHROPIC_ENVIRONMENT_KEY="k", MANGO_PLUGIN_DIR=os.path.join(BUILD, "plugins", "loadable"))
        done = subprocess.run([os.path.join(BUILD, "mango-worker"), "supervise", "--launcher", "nonesuch"], env=env, capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 78)
        self.assertIn("no such launcher", done.stderr)
        self.assertIn("process", done.stderr)


class Hosted(unittest.TestCase):
    """mangod itself runs the supervisor."""

    def settings(self, environment):
        return {"MANGO_LAUNCHER": "process", "MANGO_LAUNCHER_ENVIRONMENTS": environment}

    def children(self, server):
        out = []
        for pid in host_processes("supervise"):
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                out += [pid] if int(f.read().rsplit(")", 1)[1].split()[1]) == server.process.pid else []
        return out

    def test_mangod_hosts_a_launcher(self):
        with FakeModel() as model, Mangod(model_url=model.url, sandbox=None) as server:
            session = server.client.new_session(environment="self_hosted")
            sid, environment = session["id"], session["environment_id"]
            server.extra.update(self.settings(environment))
            server.restart()

            def ended(n):
                return [e for e in server.client.events(sid) if e["type"] == "session.status_idle"][n - 1 :]

            server.client.say(sid, fake('tool bash {"command":"echo one > kept"}', "---", "text done"))
            wait_for("the first turn ends", lambda: ended(1), 60)
            pid, = self.children(server)
            os.kill(pid, signal.SIGKILL)
            wait_for("the supervisor is started again", lambda: self.children(server) not in ([], [pid]), 30)
            # The box of before is found, and serves on.
            server.client.say(sid, fake('tool bash {"command":"cat kept"}', "---", "text done"))
            wait_for("the second turn ends", lambda: ended(2), 60)
            # A server that is killed takes its supervisor along; the next one has another key.
            server.kill()
            wait_for("no supervisor is left", lambda: not self.children(server), 20)
            server.process.end()
            server.start()
            server.client.say(sid, fake('tool bash {"command":"cat kept; env"}', "---", "text done"))
            wait_for("the third turn ends", lambda: ended(3), 60)
            results = [e["content"][0]["text"] for e in server.client.events(sid) if e["type"] == "user.tool_result"]
            self.assertEqual(results[1], "one")
            self.assertTrue(results[2].startswith("one\n"))
            self.assertNotIn("ANTHROPIC", results[2])
            keys = server.database.query(f"SELECT revoked_at IS NULL FROM api_keys WHERE environment_id = '{environment}'")
            self.assertEqual(sorted(k[0] for k in keys), ["f", "f", "t"] if len(keys) == 3 else ["f", "t"])
            server.stop()
            keys = server.database.query(f"SELECT count(*) FROM api_keys WHERE environment_id = '{environment}' AND revoked_at IS NULL")
            self.assertEqual(keys, [["0"]])
            for home, pid in Keepers.all(server.dir):
                os.kill(pid, signal.SIGUSR1)
            wait_for("no box is left", lambda: not Keepers.all(server.dir), 20)

    def test_what_cannot_be_hosted_stops_the_start(self):
        with FakeModel() as model, Mangod(model_url=model.url, sandbox=None) as server:
            server.stop()
            for more, words in (
                ({"MANGO_LAUNCHER": "process"}, "MANGO_LAUNCHER_ENVIRONMENTS"),
                ({"MANGO_LAUNCHER": "nonesuch", "MANGO_LAUNCHER_ENVIRONMENTS": "env_x"}, "no such launcher"),
                ({"MANGO_LAUNCHER": "local", "MANGO_LAUNCHER_ENVIRONMENTS": "env_x"}, "no launcher"),
                (self.settings("env_01H8XGJWBWBAQ4S0Z0Z0Z0Z0Z0"), "is no environment of this server"),
            ):
                done = subprocess.run([server.binary], env={**server.environment(), **more}, capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 78, more)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    main()
