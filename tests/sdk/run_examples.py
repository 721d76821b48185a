"""Runs what the official TypeScript SDK's examples of managed agents do against a mangod with a scripted model. MANGO_TEST_SDK as in run.py."""
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
sys.path.insert(0, HERE)
import run  # noqa: E402
from harness import BUILD, SKIPPED, FakeModel, Mangod  # noqa: E402

WORK = os.path.join(BUILD, "tests", "sdk", "examples")


def prepare():
    """True when the packages are there."""
    os.makedirs(WORK, exist_ok=True)
    for name in ("examples/package.json", "examples/examples.mjs", "checks.mjs"):
        shutil.copy(os.path.join(HERE, name), WORK)
    run.WORK = WORK
    return run.install_npm("the SDK for its examples", run.open_text(os.path.join(WORK, "package.json")))


def main():
    if not os.environ.get("MANGO_TEST_SDK"):
        print("skipped: MANGO_TEST_SDK is not set; it installs clients from npm (./bootstrap check sets it)")
        return SKIPPED
    if not prepare():
        return 1 if os.environ.get("MANGO_TEST_SDK") == "require" else SKIPPED
    passed = failed = 0
    with FakeModel() as model, Mangod(database=None, model_url=model.url, env={"MANGO_DEFAULT_ENVIRONMENT": "cloud"}) as server:
        env = {k: v for k, v in os.environ.items() if not k.startswith("ANTHROPIC_")}
        env.update(ANTHROPIC_BASE_URL=f"http://127.0.0.1:{server.port}", ANTHROPIC_API_KEY=server.key)
        for alias in run.TYPESCRIPT:
            got = run.run(alias, ["node", "examples.mjs", alias], WORK, env)
            passed, failed = passed + got[0], failed + got[1]
        if model.refused():
            print(f"not ok - the model endpoint had to refuse {model.refused()} requests")
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
