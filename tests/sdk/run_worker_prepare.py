"""Compares what mango-worker and the official TypeScript worker prepare of one session: the folders of its skills and memory stores byte for byte, with modes. Then
both change the files of stores that began alike, and the stores on the server must end alike, version by version.

What is needed comes from npm into the build folder, as in sdk_rig.py; MANGO_TEST_SDK must be set.
"""
import json
import os
import stat
import sys

import sdk_rig as sdk
from harness import SKIPPED, FakeModel, Mangod
from sdk_rig import Failure, OfficialWorker
from test_files import TYPE, multipart
from worker_rig import MangoWorker, Sessions, bash, issue

NEW = {"anthropic-version": "2026-10-21"}
SKILLS = [
    [("greeting/SKILL.md", b"---\nname: greeting\ndescription: Greets.\n---\n# Hi\r\n"), ("greeting/deep/er/bytes.bin", bytes(range(256)) * 300), ("greeting/empty", b""), ("greeting/\u00e9mile \u4e2d.md", b"x")],
    [("other-one/SKILL.md", b"---\nname: other-one\ndescription: Another.\n---\n"), ("other-one/run.sh", b"#!/bin/sh\necho ran\n")],
]
MEMORIES = {"/a": "one", "/deep/er/b": "two\n", "/empty": "", "/\u00e9 \u4e2d.md": "\u00e9\u4e2d\U0001f600\r\n", "/gone": "g", "/large": "x" * 100_000, **{f"/many/{i:03}": f"m{i}" for i in range(45)}}
CHANGES = [  # what a command of the session does in the folder of the store
    "printf changed > a", "printf 'added to it' >> deep/er/b", "rm gone many/044", "mkdir -p new/folder; printf n > new/folder/file", ": > 'an empty one'", "printf '\\303\\251' > '\u00e9 \u4e2d.md'",
    "mv many/000 many/moved", "printf '\\377' > binary", "head -c 102401 /dev/zero > big", "ln -s a link", "printf again > empty",
]  # fmt: skip
AFTER = {k: v for k, v in MEMORIES.items() if k not in ("/gone", "/many/044", "/many/000")} | {
    "/a": "changed", "/deep/er/b": "two\nadded to it", "/new/folder/file": "n", "/an empty one": "", "/\u00e9 \u4e2d.md": "\u00e9", "/many/moved": "m0", "/empty": "again",
}  # fmt: skip


def same(what, one, other):
    if one != other:
        wrong = {k: (one.get(k), other.get(k)) for k in {*one, *other} if one.get(k) != other.get(k)} if isinstance(one, dict) else (one, other)
        raise Failure(f"{what}: the official worker has, mango-worker has: {repr(wrong)[:2000]}")


def tree(top):
    """Path -> kind, mode and content of everything below a folder."""
    out = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            content = b""
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    content = f.read()
            out[os.path.relpath(path, top)] = (stat.filemode(st.st_mode), content)
    return out


class Rig(Sessions):
    TURN_S = 90

    def __init__(self, server, node):
        self.server, self.client, self.node = server, server.client, node
        self.environment = self.client.post("/v1/environments", {"name": "prepared", "config": {"type": "self_hosted"}})["id"]
        self.key = issue(server, self.environment)
        self.folder = os.path.join(server.dir, "prepared")
        os.makedirs(self.folder)
        skills = [json.loads(self.client.raw("POST", "/v1/skills", multipart(*[("files[]", n, c) for n, c in files]), {**TYPE, **NEW})[2])["id"] for files in SKILLS]
        agent = {"name": "a", "model": "m", "tools": [{"type": "agent_toolset_20260401"}], "skills": [{"type": "custom", "skill_id": s} for s in skills]}
        self.agent = self.client.post("/v1/agents", agent)["id"]

    def worker(self, name):
        start = (lambda *a: OfficialWorker([self.node, "worker.mjs", sdk.TYPESCRIPT[0]], *a)) if name == "official" else MangoWorker
        return start(f"http://127.0.0.1:{self.server.port}", self.environment, self.key, self.folder)

    def store(self, name):
        made = self.client.post("/v1/memory_stores", {"name": name})["id"]
        for path, content in MEMORIES.items():
            self.client.post(f"/v1/memory_stores/{made}/memories", {"path": path, "content": content})
        return made

    def session(self, *stores, access="read_write"):
        resources = [{"type": "memory_store", "memory_store_id": s, "access": access} for s in stores]
        return self.client.post("/v1/sessions", {"agent": self.agent, "environment_id": self.environment, "resources": resources})["id"]

    def ran(self, name, session, command):
        """One call of one worker, which has left the session afterwards."""
        worker = self.worker(name)
        try:
            results = self.results(self.turn(session, bash(command), "---", "text done"))
            if len(results) != 1 or results[0][1]:
                raise Failure(f"{name}: {results}")
            self.wait_left(timeout=60)
            worker.end()
        except AssertionError:
            print(f"--- {name}\n{worker.log()[-3000:]}", flush=True)
            raise
        finally:
            worker.kill()

    def memories(self, store):
        return {m["path"]: m["content"] for m in self.client.pages(f"/v1/memory_stores/{store}/memories?view=full&limit=20")}

    def versions(self, store):
        """Path -> what was done to it, in order."""
        out = {}
        for v in reversed(self.client.pages(f"/v1/memory_stores/{store}/memory_versions?limit=100")):
            out.setdefault(v["path"], []).append((v["operation"], v["content_sha256"], v["created_by"]["type"]))
        return out


# ---- what is checked ----


def what_is_prepared_of_one_session_is_the_same(rig):
    notes, fixed = rig.store("My Notes \u00e9"), rig.store("fixed")
    session = rig.session(notes, fixed)
    trees = {}
    for name in ("official", "mango"):
        rig.ran(name, session, f"rm -rf {name}; mkdir {name}; cp -a skills memory {name}/")
        trees[name] = {k: v for k, v in tree(os.path.join(rig.folder, name)).items() if not k.endswith(".lock")}
        left = [os.listdir(os.path.join(rig.folder, f)) for f in ("skills", "memory")]
        if left != [[], []]:
            raise Failure(f"{name} left {left}")
    same("the folders", trees["official"], trees["mango"])
    files = {k: v[1] for k, v in trees["mango"].items() if v[0][0] == "-"}
    expected = {f"skills/{n}": c for files in SKILLS for n, c in files}
    for store, folder in ((notes, "memory/My Notes \u00e9"), (fixed, "memory/fixed")):
        expected |= {folder + k: v.encode() for k, v in MEMORIES.items()} | {folder + "/.anthropic-memory-store": f"version 1\n{store}".encode()}
    same("what the server has, and the folders", expected, files)


def what_they_do_to_a_store_is_the_same(rig):
    stores = {name: rig.store("changed") for name in ("official", "mango")}
    for name, store in stores.items():
        rig.ran(name, rig.session(store), "cd memory/changed\n" + "\n".join(CHANGES))
    same("memories", rig.memories(stores["official"]), rig.memories(stores["mango"]))
    same("what was asked for, and the memories", AFTER, rig.memories(stores["mango"]))
    same("versions", rig.versions(stores["official"]), rig.versions(stores["mango"]))


def a_read_only_store_is_left_alone_by_both(rig):
    stores = {name: rig.store("fixed") for name in ("official", "mango")}
    for name, store in stores.items():
        rig.ran(name, rig.session(store, access="read_only"), "cd memory/fixed; printf x > a; printf y > new; rm gone")
        same("memories", MEMORIES, rig.memories(store))


CHECKS = [what_is_prepared_of_one_session_is_the_same, what_they_do_to_a_store_is_the_same, a_read_only_store_is_left_alone_by_both]


def main():
    if not sdk.asked("installs the official worker from npm"):
        return SKIPPED
    node = sdk.install_typescript() and sdk.install_node()
    status = sdk.cannot_begin(node, not node)
    if status is not None:
        return status
    failed = 0
    with FakeModel() as model, Mangod(database=None, model_url=model.url, sandbox=None, env={"MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX": None}) as server:
        rig = Rig(server, node)
        for check in CHECKS:
            try:
                check(rig)
                print(f"ok - {check.__name__.replace('_', ' ')}", flush=True)
            except AssertionError as e:
                failed += 1
                print(f"not ok - {check.__name__.replace('_', ' ')}: {e}", flush=True)
        return sdk.finish(len(CHECKS) - failed, failed, model)


if __name__ == "__main__":
    sys.exit(main())
