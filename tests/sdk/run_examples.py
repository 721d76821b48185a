"""Runs what the official TypeScript SDK's examples of managed agents do against a mangod with a scripted model. MANGO_TEST_SDK as in sdk_rig.py."""
import os
import sys

import sdk_rig as sdk
from harness import SKIPPED, FakeModel, Mangod

WORK = os.path.join(sdk.WORK, "examples")


def prepare():
    """True when the packages are there."""
    sdk.copy(["examples/package.json", "examples/examples.mjs", "checks.mjs"], sdk.HERE, WORK)
    return sdk.install_npm("the SDK for its examples", WORK)


def main():
    if not sdk.asked("installs clients from npm"):
        return SKIPPED
    ready = prepare()
    status = sdk.cannot_begin(ready, not ready)
    if status is not None:
        return status
    passed = failed = 0
    with FakeModel() as model, Mangod(database=None, model_url=model.url, env={"MANGO_DEFAULT_ENVIRONMENT": "cloud"}) as server:
        env = {k: v for k, v in os.environ.items() if not k.startswith("ANTHROPIC_")}
        env.update(ANTHROPIC_BASE_URL=f"http://127.0.0.1:{server.port}", ANTHROPIC_API_KEY=server.key)
        for alias in sdk.TYPESCRIPT:
            got = sdk.run(alias, ["node", "examples.mjs", alias], WORK, env)
            passed, failed = passed + got[0], failed + got[1]
        return sdk.finish(passed, failed, model)


if __name__ == "__main__":
    sys.exit(main())
