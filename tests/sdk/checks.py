"""What the scripts for the Python SDK share: one line per check; finish() prints the count and ends with status 1 when one failed."""
import sys
import traceback

import anthropic


class Checks:
    def __init__(self, what=""):
        self.name, self.passed, self.failed = f"python {anthropic.__version__}{what}", 0, 0

    def check(self, fn):
        """Runs it: a decorator."""
        what = fn.__name__.replace("_", " ")
        try:
            fn()
            self.passed += 1
            print(f"ok - {self.name}: {what}")
        except Exception:
            self.failed += 1
            print(f"not ok - {self.name}: {what}\n{traceback.format_exc()}")

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed else 0)
