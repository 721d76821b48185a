// The official EnvironmentWorker of a TypeScript SDK, unmodified: serves an environment until SIGTERM.
//   node worker.mjs SDK-ALIAS
// MANGO_BASE_URL, WORKER_ENVIRONMENT, WORKER_KEY, WORKER_DIR, WORKER_IDLE_MS and WORKER_ID say what it serves.
// WORKER_MODE: worker (the default), or drain, which lets a WorkPoller claim what there is and ends at the first empty poll.
const alias = process.argv[2];
const { default: Anthropic } = await import(alias);
const { betaTool } = await import(`${alias}/helpers/beta/json-schema`);
const { betaAgentToolset20260401 } = await import(`${alias}/tools/agent-toolset/node`);
const env = process.env;

const weather = betaTool({
  name: 'weather',
  description: 'The weather of a city.',
  inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  run: ({ city }) => `sunny in ${city}`,
});
const client = new Anthropic({ baseURL: env.MANGO_BASE_URL, apiKey: 'of-no-use' });
const controller = new AbortController();
process.on('SIGTERM', () => controller.abort());
const environmentId = env.WORKER_ENVIRONMENT;
const environmentKey = env.WORKER_KEY;
console.log(`ready ${alias}`);

if (env.WORKER_MODE === 'drain') {
  for await (const work of client.beta.environments.work.poller({ environmentId, environmentKey, drain: true, autoStop: false }))
    console.log(`drained ${work.data.id}`);
} else {
  const worker = client.beta.environments.work.worker({
    environmentId,
    environmentKey,
    workdir: env.WORKER_DIR,
    workerId: env.WORKER_ID,
    maxIdleMs: Number(env.WORKER_IDLE_MS),
    tools: (context) => [...betaAgentToolset20260401(context), weather],
  });
  await worker.run(controller.signal).catch((err) => {
    if (!controller.signal.aborted) throw err;
  });
}
console.log('ended');
process.exit(0);
