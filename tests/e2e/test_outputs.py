"""What an agent leaves in /mnt/session/outputs: published as files of the session when its turn ends, kept, replaced, hidden, refused, and never lost by a crash."""
import hashlib
import json
import os
import re
import signal
import tempfile
import unittest

import rig
from harness import BUILD, FakeModel, Mangod, main, wait_for
from outputs_rig import check_outputs
from threads import Team, task
from turns import TOOLSET, TurnCase, fake, message, of, reason

OUT = ".session/outputs"  # /mnt/session leads there; on `local` commands know this name alone


def run(*commands, last="text done"):
    """A script of the model: each command in a call of its own."""
    return fake(*[line for c in commands for line in ("tool bash " + json.dumps({"command": c}), "---")], last)


def reads(client):
    """Calls of the backend's read so far."""
    return sum(int(n) for n in re.findall(r'mango_plugin_op_calls_total\{plugin="local",op="read"\} (\d+)', client.raw("GET", "/metrics")[2].decode()))


def stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "T"


class Outputs(TurnCase):
    def new_session(self):
        return self.new({"type": "agent_toolset_20260401", "default_config": {"permission_policy": {"type": "always_allow"}}})

    def listed(self, sid, client=None):
        """Published files by path, which the list does not show."""
        files = (client or self.client).get(f"/v1/files?scope_id={sid}&limit=1000")["data"]
        paths = dict(self.server.database.query(f"SELECT id, output_path FROM files WHERE session_id = '{sid}' AND output_path IS NOT NULL"))
        return {paths[f["id"]]: f for f in files}

    def content(self, file):
        status, _, body = self.client.raw("GET", f"/v1/files/{file['id']}/content")
        self.assertEqual(200, status)
        return body

    def fault(self, events):
        errors = of(events, "session.error")
        self.assertLessEqual(len(errors), 1, errors)
        self.assertEqual("end_turn", reason(events[-1]))
        if not errors:
            return None
        self.assertEqual(events[-2]["id"], errors[0]["id"], "the error stands right before the idle")
        self.assertEqual("exhausted", errors[0]["error"]["retry_status"]["type"])
        return errors[0]["error"]["message"]

    def test_ex14_files_are_published_when_the_turn_ends_kept_replaced_and_hidden(self):
        sid = self.new_session()
        write = 'tool write {"file_path":"/mnt/session/outputs/nested/tool.txt","content":"by the tool"}'
        events = self.turn(sid, fake(write, "---", *run(f"echo by the shell > {OUT}/shell.csv; echo gone > {OUT}/c.txt").split("\n")[1:]))
        self.assertIsNone(self.fault(events))
        first = self.listed(sid)
        self.assertEqual({"nested/tool.txt", "shell.csv", "c.txt"}, set(first))
        tool = first["nested/tool.txt"]
        self.assertEqual(("tool.txt", "text/plain", 11, {"type": "session", "id": sid}, True), tuple(tool[k] for k in ("filename", "mime_type", "size_bytes", "scope", "downloadable")))
        self.assertEqual("text/csv", first["shell.csv"]["mime_type"])
        self.assertEqual(b"by the tool", self.content(tool))
        self.assertEqual(b"by the shell\n", self.content(first["shell.csv"]))
        events = self.turn(sid, run(f"echo to the shell > {OUT}/shell.csv; rm {OUT}/c.txt"))
        self.assertIsNone(self.fault(events))
        second = self.listed(sid)
        self.assertEqual({"nested/tool.txt", "shell.csv"}, set(second))
        self.assertEqual(tool, second["nested/tool.txt"], "the same bytes stay the same file")
        self.assertNotEqual(first["shell.csv"]["id"], second["shell.csv"]["id"])
        self.assertEqual(b"to the shell\n", self.content(second["shell.csv"]), "of the same size")
        self.assertEqual(404, self.client.raw("GET", f"/v1/files/{first['c.txt']['id']}")[0])
        self.assertIsNone(self.fault(self.turn(sid, run(f"rm -r {OUT}"))))
        self.assertEqual({}, self.listed(sid))

    def test_a_file_that_holds_what_is_published_is_not_read_again_and_one_that_was_changed_behind_its_times_is(self):
        sid = self.new_session()
        self.turn(sid, run(f"cd {OUT}; for i in 1 2 3; do printf 1$i > $i.txt; done; printf esc > 'a\\\\b'"))
        first, before = self.listed(sid), reads(self.client)
        self.assertEqual({"1.txt", "2.txt", "3.txt", "a\\\\b"}, set(first))
        self.turn(sid, run("true"))
        self.assertEqual((first, before), (self.listed(sid), reads(self.client)))
        self.turn(sid, run(f"cd {OUT}; cp -p 2.txt ../as-it-was; printf 22 > 2.txt; touch -r ../as-it-was 2.txt"))
        second = self.listed(sid)
        self.assertEqual(["2.txt"], [path for path, f in second.items() if f != first[path]])
        self.assertEqual(b"22", self.content(second["2.txt"]))
        self.assertLessEqual(reads(self.client) - before, 2, "of the changed file alone")

    def test_case_93_links_and_special_files_are_left_out_with_a_note(self):
        sid, other = self.new_session(), self.new_session()
        self.turn(other, run("echo secret > private.txt"))
        events = self.turn(sid, run(
            f"cd {OUT}; ln -s /etc/passwd passwd; ln -s ../../../*/private.txt neighbour; ln -s /etc folder; mkfifo pipe; truncate -s 10G sparse; printf x > 'new\nline'; echo fine > fine.txt"
        ))  # fmt: skip
        fault = self.fault(events)
        self.assertEqual({"fine.txt"}, set(self.listed(sid)))
        self.assertIn("6 of what is in /mnt/session/outputs was not published", fault)
        for words in ("'passwd' is a link", "'neighbour' is a link", "'folder' is a link", "'pipe' is no regular file", "'sparse' has more than 524288000 bytes", "'new?line' has a name"):
            self.assertIn(words, fault)
        sha, size = self.server.database.query(f"SELECT sha256, size_bytes FROM files WHERE session_id = '{sid}'")[0]
        self.assertEqual(("5", 64), (str(size), len(sha)))

    def test_case_93_a_tree_over_a_limit_is_an_error_and_what_was_published_stays(self):
        sid = self.new_session()
        self.turn(sid, run(f"echo 1 > {OUT}/a.txt"))
        before = self.listed(sid)
        fault = self.fault(self.turn(sid, run(f"(cd {OUT}; for i in $(seq 600); do echo > f$i; done)")))
        self.assertIn("600", fault.replace("601", "600"))
        self.assertIn("500", fault)
        self.assertEqual(before, self.listed(sid))
        fault = self.fault(self.turn(sid, run(f"(cd {OUT}; rm f*; for i in 1 2 3; do truncate -s 200M big$i; done)")))
        self.assertIn("524288000 bytes together", fault)
        self.assertEqual(before, self.listed(sid))
        fault = self.fault(self.turn(sid, run(f"rm -r {OUT}; ln -s / {OUT}")))
        self.assertIn("is no folder", fault)
        self.assertEqual(before, self.listed(sid))
        self.assertIsNone(self.fault(self.turn(sid, run(f"rm {OUT}; mkdir {OUT}; echo 1 > {OUT}/a.txt"))))
        self.assertEqual(before, self.listed(sid))

    def test_an_answer_that_is_cut_keeps_what_is_to_be_said_until_the_turn_ends(self):
        sid = self.new_session()
        call = "tool bash " + json.dumps({"command": f"ln -s /etc/passwd {OUT}/passwd; echo 1 > {OUT}/a.txt"})
        self.model.client.post("/script", {"responses": [call, "text half\nstop max_tokens", "text done"]})
        events = self.turn(sid, "go on")
        self.assertEqual(3, len(of(events, "span.model_request_start")))
        self.assertIn("'passwd' is a link", self.fault(events))
        self.assertEqual({"a.txt"}, set(self.listed(sid)))
        self.assertIsNone(self.fault(self.turn(sid, fake("text more"))), "it is said once")

    def test_an_answer_that_is_refused_in_the_middle_of_a_call_publishes_what_is_there(self):
        sid = self.new_session()
        call = "tool bash " + json.dumps({"command": f"echo 1 > {OUT}/a.txt"})
        self.model.client.post("/script", {"responses": [call, call + "\nstop refusal"]})
        self.assertEqual("refusal", reason(self.turn(sid, "go on")[-1]))
        self.assertEqual({"a.txt"}, set(self.listed(sid)))

    def test_in9_an_interrupted_turn_publishes_nothing_and_the_next_one_does(self):
        sid = self.new_session()
        with self.client.stream(sid) as stream:
            self.client.say(sid, run(f"echo half > {OUT}/a.txt; echo started; mkfifo wait; read x < wait"))
            stream.until("agent.tool_use")
            wait_for("the command runs", lambda: self.server.database.query(f"SELECT 1 FROM tool_calls WHERE session_id = '{sid}' AND state = 'started'"))
            self.send(sid, {"type": "user.interrupt"})
            stream.until("session.status_idle")
        self.assertEqual({}, self.listed(sid))
        self.turn(sid, run("true"))
        self.assertEqual({"a.txt"}, set(self.listed(sid)))

    def test_a_session_takes_its_outputs_along_but_for_those_that_others_use(self):
        sid, other = self.new_session(), self.new_session()
        self.turn(sid, run(f"echo 1 > {OUT}/a.txt; echo 2 > {OUT}/b.txt"))
        files = self.listed(sid)
        self.client.post(f"/v1/sessions/{other}/resources", {"type": "file", "file_id": files["b.txt"]["id"]})
        self.turn(sid, run(f"echo 3 > {OUT}/b.txt"))
        self.assertEqual({"a.txt", "b.txt"}, set(self.listed(sid)))
        self.assertEqual(b"2\n", self.content(files["b.txt"]), "what another session uses stays as it was")
        self.client.delete(f"/v1/sessions/{sid}")
        wait_for("the session goes with its file", lambda: self.client.raw("GET", f"/v1/files/{files['a.txt']['id']}")[0] == 404)
        self.assertEqual(b"2\n", self.content(files["b.txt"]))

    def test_what_a_child_leaves_is_published_when_its_coordinators_turn_ends(self):
        team = Team(self.client)
        sid = team.session("worker", tools=[{**TOOLSET, "default_config": {"permission_policy": {"type": "always_allow"}}}])
        call = "tool bash " + json.dumps({"command": f"echo 1 > {OUT}/a.txt"})
        self.send(sid, message(fake(task("worker", call, "---", "text ready"), "---", "text asked")))
        wait_for("its file is published", lambda: set(self.listed(sid)) == {"a.txt"}, 60)

    def test_ex14_a_file_that_changes_while_it_is_read_is_left_out_and_published_behind_the_next_call(self):
        with FakeModel() as model, Mangod(model_url=model.url, hooks="object.begun=stop") as server:
            sid = server.client.new_session()["id"]
            rows = lambda: server.database.query(f"SELECT output_path, sha256 FROM files WHERE session_id = '{sid}'")  # noqa: E731
            server.client.say(sid, run(f"printf 11 > {OUT}/a.txt; pwd > {server.dir}/where"))
            wait_for("the second pass has begun", lambda: stopped(server.process.pid), 60)
            with open(f"{server.dir}/where", encoding="utf-8") as where, open(f"{where.read().strip()}/{OUT}/a.txt", "w", encoding="ascii") as f:
                f.write("22")
            server.process.signal(signal.SIGCONT)
            wait_for("the turn ends", lambda: of(server.client.events(sid), "session.status_idle"), 60)
            (error,) = of(server.client.events(sid), "session.error")
            self.assertIn("'a.txt' changed while it was read", error["error"]["message"])
            self.assertEqual([], rows())
            server.client.say(sid, run("true"))
            wait_for("it is published", rows, 60)
            self.assertEqual([["a.txt", hashlib.sha256(b"22").hexdigest()]], rows())

    def test_kill_9_in_the_middle_publishes_all_once(self):
        for point, nth in (("object.sealed", 1), ("turn.output.before", 1), ("turn.output.after", 2), ("turn.outputs_done.before", 1), ("turn.outputs_done.after", 1)):
            hooks = f"{point}=kill:{nth}"
            with self.subTest(hooks), FakeModel() as model, Mangod(model_url=model.url, hooks=hooks, env={"MANGO_NODE_TTL": "2s"}) as server:
                self.one_kill(point, server)

    def one_kill(self, point, server):
        sid = server.client.new_session()["id"]
        rig.killed(server, point, lambda: server.client.say(sid, run(f"for i in 1 2 3; do echo $i > {OUT}/$i.txt; done")), 60)
        wait_for("the turn ends", lambda: server.client.get(f"/v1/sessions/{sid}")["status"] == "idle", 60)
        rows = server.database.query(f"SELECT output_path, size_bytes FROM files WHERE session_id = '{sid}' ORDER BY 1")
        self.assertEqual([("1.txt", "2"), ("2.txt", "2"), ("3.txt", "2")], [tuple(map(str, r)) for r in rows])
        self.assertEqual([], of(server.client.events(sid), "session.error"))


class WithoutDigests(unittest.TestCase):
    def test_where_the_sandbox_has_no_sha256sum_the_files_are_read(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="mango-hide."))
        hidden = os.path.join(folder, "mangod")
        with open(hidden, "w", encoding="ascii") as f:
            f.write('#!/bin/sh\nexec unshare --user --map-root-user --mount sh -c \'mount --bind /dev/null "$(command -v sha256sum)" && exec "$0" "$@"\' ')
            f.write(f'"{BUILD}/mangod" "$@"\n')
        os.chmod(hidden, 0o755)

        def say(session, command):
            before = len(of(m.client.events(session), "session.status_idle"))
            m.client.say(session, f"run: {command}")
            wait_for("the turn ends", lambda: len(of(m.client.events(session), "session.status_idle")) > before, 60)

        with Mangod(binary=hidden) as m:
            check_outputs(self, m.client, say, folder=OUT)
            self.assertGreaterEqual(reads(m.client), 5, "two files, both once more, and one of them again")


if __name__ == "__main__":
    main()
