"""The official EnvironmentWorker of the Python SDK, unmodified: serves an environment until SIGTERM. The variables are those of worker.mjs."""
import asyncio
import os
import signal

import anthropic
from anthropic import AsyncAnthropic, beta_async_tool
from anthropic.lib.tools.agent_toolset import beta_agent_toolset_20260401

ENV = os.environ


@beta_async_tool
async def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


async def drain(client):
    poller = client.beta.environments.work.poller(environment_id=ENV["WORKER_ENVIRONMENT"], environment_key=ENV["WORKER_KEY"], drain=True, auto_stop=False)
    async for work in poller:
        print(f"drained {work.data.id}", flush=True)


async def serve(client):
    worker = client.beta.environments.work.worker(
        environment_id=ENV["WORKER_ENVIRONMENT"],
        environment_key=ENV["WORKER_KEY"],
        workdir=ENV["WORKER_DIR"],
        worker_id=ENV["WORKER_ID"],
        max_idle=int(ENV["WORKER_IDLE_MS"]) / 1000,
        tools=lambda context: [*beta_agent_toolset_20260401(context), weather],
    )
    await worker.run()


async def main():
    client = AsyncAnthropic(base_url=ENV["MANGO_BASE_URL"], api_key="of-no-use")
    task = asyncio.ensure_future(drain(client) if ENV.get("WORKER_MODE") == "drain" else serve(client))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    print(f"ready python {anthropic.__version__}", flush=True)
    try:
        await task
    except asyncio.CancelledError:
        pass
    print("ended", flush=True)


asyncio.run(main())
