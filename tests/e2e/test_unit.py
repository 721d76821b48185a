"""The systemd unit and its drop-ins are what systemd takes, and do not forbid what the server cannot do without."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import SRC, Mangod, main
from srt_rig import need_bubblewrap
from test_sandboxes import run, text_of

CONF = os.path.join(SRC, "conf")
DROPINS = sorted(os.listdir(os.path.join(CONF, "systemd")))


def text(*path):
    with open(os.path.join(CONF, *path), encoding="utf-8") as f:
        return f.read()


def settings(*path):
    return dict(line.split("=", 1) for line in text(*path).splitlines() if re.match(r"\w+=", line))


class Unit(unittest.TestCase):
    def test_systemd_verifies_the_unit_with_each_drop_in(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        for dropins in ([], *([name] for name in DROPINS), ["srt.conf", "srt-root.conf"]):
            folder = tempfile.mkdtemp(prefix="mango-unit-")
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            unit = os.path.join(folder, "mangod.service")
            with open(unit, "w", encoding="utf-8") as f:
                f.write(text("mangod.service.in").replace("@bindir@/mangod", "/bin/true").replace("@mangoconfdir@", "/etc/mango"))
            os.mkdir(unit + ".d")
            for name in dropins:
                shutil.copy(os.path.join(CONF, "systemd", name), unit + ".d")
            done = subprocess.run(["systemd-analyze", "verify", unit], env={**os.environ, "SYSTEMD_UNIT_PATH": folder + ":"}, capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, [line for line in done.stderr.splitlines() if "mangod" in line]), (0, []), dropins)

    def test_the_database_is_not_told_to_end_with_the_server(self):
        self.assertEqual(settings("mangod.service.in")["KillMode"], "mixed")

    def test_openat2_is_not_refused(self):
        self.assertIsNone(re.search(r"^RestrictSUIDSGID=(yes|true|1)", text("mangod.service.in"), re.M))

    def test_the_drop_in_of_srt_takes_back_what_forbids_a_sandbox(self):
        given = settings("systemd", "srt.conf")
        for name in ("RestrictNamespaces", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelTunables"):
            self.assertEqual(given[name], "no", name)
        self.assertIn("@mount", given["SystemCallFilter"])
        self.assertIn("AF_NETLINK", given["RestrictAddressFamilies"])

    def test_the_capabilities_of_the_drop_in_for_root_suffice(self):
        need_bubblewrap()
        kept = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in settings("systemd", "srt-root.conf")["CapabilityBoundingSet"].split())
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="mango-unit-"))
        with Mangod(sandbox="srt", database=None, start=False) as m:
            bounded = os.path.join(folder, "mangod")
            with open(bounded, "w", encoding="utf-8") as f:
                f.write(f"#!/bin/sh\nexec setpriv --no-new-privs --bounding-set=-all,{kept} {m.binary}\n")
            os.chmod(bounded, 0o755)
            m.binary = bounded
            m.start()
            for _ in range(2):
                session = m.client.new_session()
                said = text_of(run(m, session, "echo kept >file && mkdir folder && mv file folder && cat folder/file && id -u"))
                self.assertIn("kept\n1000", said)
            base = os.path.join(m.dir, "state", "srt")
            users = {os.stat(os.path.join(base, name, "workspace")).st_uid for name in os.listdir(base) if name.startswith("session-")}
            self.assertEqual(len(users - {0}), 2)
            pid_file = os.path.join(m.dir, "state", "pg", "data", "postmaster.pid")
            with open(pid_file, encoding="ascii") as f:
                database = f.readline()
            m.kill()
            m.start()
            with open(pid_file, encoding="ascii") as f:
                self.assertEqual(f.readline(), database, "PostgreSQL was not taken over")
            self.assertEqual(m.stop(), 0, m.log())
            self.assertNotIn("not handed on", m.log())
            self.assertFalse(os.path.exists(pid_file), "PostgreSQL was not ended")


if __name__ == "__main__":
    main()
