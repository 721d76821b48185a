"""Every adapter that is shipped, loaded the way that shows what does not belong together: another allocator under server and plugin."""
import glob
import os
import subprocess
import tempfile
import unittest

from harness import BUILD, main, sanitizer

LOADABLE = os.path.join(BUILD, "plugins", "loadable")
JEMALLOC = glob.glob("/usr/lib/*/libjemalloc.so.2")


class Loaded(unittest.TestCase):
    def environment(self, folder):
        env = {**os.environ, "MANGO_PLUGIN_DIR": LOADABLE, "MANGO_STATE_DIR": folder, "MANGO_LOCAL_BASE_DIR": os.path.join(folder, "local")}
        if not sanitizer():  # a sanitizer brings its own allocator
            if not JEMALLOC:
                self.skipTest("libjemalloc2 is not installed")
            env.update(LD_PRELOAD=JEMALLOC[0], MALLOC_CONF="junk:true,abort_conf:false")  # what is freed and used shows
        return env

    def test_case_40_every_shipped_adapter_loads_beside_another_allocator(self):
        names = sorted(os.path.basename(p) for p in glob.glob(os.path.join(LOADABLE, "*.so")))
        self.assertIn("docker.so", names)
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                done = subprocess.run([os.path.join(BUILD, "mango"), "plugin", "info", os.path.join(LOADABLE, name)], env=self.environment(folder),
                                      capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(done.returncode, 0, f"{name}: {done.stdout}{done.stderr}")

    def test_case_40_memory_goes_back_to_whoever_gave_it(self):
        with tempfile.TemporaryDirectory(dir="/srv") as folder:
            os.chmod(folder, 0o700)
            for part in ("files_of_0", "both_streams", "a_process_keeps", "lists_what"):
                done = subprocess.run([os.path.join(BUILD, "mango"), "conformance", "local", "--only", part], env=self.environment(folder), capture_output=True,
                                      text=True, timeout=300, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertNotIn("\n# 0 run", done.stdout)


if __name__ == "__main__":
    main()
