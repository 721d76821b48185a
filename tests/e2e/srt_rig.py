"""One sandbox of the backend `srt`, driven without a server. A mangod as root, and one as another user, are two ways to the same."""
import glob
import os
import shutil
import subprocess
import tempfile
import unittest

from sandbox import Driver, label

NOBODY = 65534


def need_bubblewrap():
    """Skips the module where no sandbox can be made."""
    probe = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as e:
        raise unittest.SkipTest("bubblewrap is not installed") from e
    if done.returncode != 0:
        raise unittest.SkipTest(f"no namespaces can be made here: {done.stderr.strip()}")
    if os.geteuid() != 0:
        raise unittest.SkipTest("the parts as another user need root")


def groups(box):
    """Control groups of the sandbox with this label."""
    return glob.glob(f"/sys/fs/cgroup/**/session-{box}", recursive=True)


class Case(unittest.TestCase):
    as_user = False

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="mango-srt.", dir="/srv")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        os.chmod(self.dir, 0o700)
        if self.as_user:
            os.chown(self.dir, NOBODY, NOBODY)
        self.box = label()

    def driver(self, **env):
        settings = {"MANGO_STATE_DIR": self.dir, "MANGO_SRT_BASE_DIR": os.path.join(self.dir, "srt"), **env}
        prefix = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups") if self.as_user else ()
        d = Driver("srt", settings, prefix)
        self.addCleanup(d.end)
        return d

    def start(self, limits=None, network="none", **env):
        self.d = self.driver(**env)
        self.made = self.d.create(self.box, network, **(limits or {}))
        return self.d
