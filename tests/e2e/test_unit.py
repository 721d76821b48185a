"""The systemd unit and its drop-ins are what systemd takes, and do not forbid what the server cannot do without."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import SRC, main

CONF = os.path.join(SRC, "conf")
DROPINS = sorted(os.listdir(os.path.join(CONF, "systemd")))


def text(*path):
    with open(os.path.join(CONF, *path), encoding="utf-8") as f:
        return f.read()


class Unit(unittest.TestCase):
    def test_systemd_verifies_the_unit_with_each_drop_in(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        for dropin in (None, *DROPINS):
            folder = tempfile.mkdtemp(prefix="mango-unit-")
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            unit = os.path.join(folder, "mangod.service")
            with open(unit, "w", encoding="utf-8") as f:
                f.write(text("mangod.service.in").replace("@bindir@/mangod", "/bin/true").replace("@mangoconfdir@", "/etc/mango"))
            if dropin:
                os.mkdir(unit + ".d")
                shutil.copy(os.path.join(CONF, "systemd", dropin), unit + ".d")
            done = subprocess.run(["systemd-analyze", "verify", unit], env={**os.environ, "SYSTEMD_UNIT_PATH": folder + ":"}, capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, [line for line in done.stderr.splitlines() if "mangod" in line]), (0, []), dropin)

    def test_openat2_is_not_refused(self):
        self.assertIsNone(re.search(r"^RestrictSUIDSGID=(yes|true|1)", text("mangod.service.in"), re.M))

    def test_the_drop_in_of_srt_takes_back_what_forbids_a_sandbox(self):
        given = dict(line.split("=", 1) for line in text("systemd", "srt.conf").splitlines() if re.match(r"\w+=", line))
        for name in ("RestrictNamespaces", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelTunables"):
            self.assertEqual(given[name], "no", name)
        self.assertIn("@mount", given["SystemCallFilter"])
        self.assertIn("AF_NETLINK", given["RestrictAddressFamilies"])


if __name__ == "__main__":
    main()
