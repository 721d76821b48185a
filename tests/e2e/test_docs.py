#!/usr/bin/env python3
"""Runs the commands of the documentation.

In README.md and docs/ a block of sh behind a line `<!-- run -->` is executed; one behind `<!-- file: NAME -->` is put at the end of that file. The blocks of one page are one script, run with bash -e in an
empty folder that is also HOME, with the built programs in PATH. What a page starts in the background ends with it.

The adapter that docs/plugins.md writes has its setting in MANGO_FOLDER_BASE_DIR.

Two things are replaced, so that pages can be written for readers: 127.0.0.1:8080 by a free port, /tmp/mango by a folder of the test.
"""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from harness import BUILD, SRC, free_port, main, skip

PAGE_S = 240  # several starts of a server that makes a database, on a loaded machine
BLOCK = re.compile(r"^<!-- (?:run|file: (?P<file>[\w.-]+)) -->\n```\w+\n(?P<text>.*?)^```", re.S | re.M)


def pages():
    docs = os.path.join(SRC, "docs")
    yield os.path.join(SRC, "README.md")
    for folder, _, names in sorted(os.walk(docs)):
        yield from (os.path.join(folder, n) for n in sorted(names) if n.endswith(".md"))


def step_of(block):
    """A command block as it stands; a piece of a file as the command that appends it."""
    if not block["file"]:
        return block["text"]
    return f"cat >>{block['file']} <<'END_OF_THE_PIECE'\n{block['text']}END_OF_THE_PIECE\n"


def script_of(page):
    with open(page, encoding="utf-8") as f:
        return "\n".join(step_of(m) for m in BLOCK.finditer(f.read()))


def environment(folder, port):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MANGO_", "PG"))}
    env.update(
        PATH=f"{BUILD}:{env['PATH']}",
        HOME=folder,
        LANG="C.UTF-8",
        MANGO_LISTEN=f"127.0.0.1:{port}",
        MANGO_BASE_URL=f"http://127.0.0.1:{port}",
        MANGO_PLUGIN_DIR=os.path.join(BUILD, "plugins", "loadable"),
        MANGO_MIGRATIONS_DIR=os.path.join(SRC, "migrations"),
        MANGO_SRC=SRC,
        PKG_CONFIG_PATH=folder,
    )
    with open(os.path.join(folder, "mango-plugin.pc"), "w", encoding="utf-8") as f:
        f.write(f"Name: mango-plugin\nDescription: of the source tree\nVersion: 0\n"
                f"Cflags: -I{SRC}/plugin-api\nLibs: -L{BUILD}/plugins/helpers -lmango-plugin\n")
    return env


def run(script):
    """Status and output of the script; nothing that it started is left."""
    folder = tempfile.mkdtemp(prefix="mango-docs-")
    os.chmod(folder, 0o755)  # the database runs as another user where we are root
    port = free_port()
    script = script.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("/tmp/mango", folder + "/state")
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT\n" + script
    try:
        with open(os.path.join(folder, "output"), "w+b") as out:
            p = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment(folder, port), stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = p.wait(PAGE_S)
            except subprocess.TimeoutExpired:
                status = f"none within {PAGE_S} s"
            finally:
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                p.wait()
            out.seek(0)
            return status, out.read().decode("utf-8", "replace")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Documentation(unittest.TestCase):
    def test_the_commands_of_every_page_work(self):
        ran = 0
        for page in pages():
            script = script_of(page)
            if not script:
                continue
            ran += 1
            with self.subTest(page=os.path.relpath(page, SRC)):
                status, output = run(script)
                self.assertEqual(status, 0, f"the commands were:\n{script}\nand gave:\n{output[-4000:]}")
        self.assertGreater(ran, 0, "no page has a block behind <!-- run -->")


if __name__ == "__main__":
    missing = [p for p in ("curl", "openssl", "pg_dump", "pkg-config", "cc") if not shutil.which(p)]
    if missing:
        skip(f"the documentation's commands need {', '.join(missing)}")
    main()
