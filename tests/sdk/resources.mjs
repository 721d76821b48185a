// Vaults, memory stores and deployments by the official TypeScript SDK, with nothing changed but the base URL and the key.
//   node resources.mjs SDK-ALIAS        (an alias of package.json)
// MANGO_BASE_URL and MANGO_API_KEY name the server, which has a keyring. One line per check, a count at the end, status 1 when one failed.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { checks, collect } from './checks.mjs';

const alias = process.argv[2] ?? 'sdk-1.14.0';
const sdk = await import(alias);
const client = new sdk.default({ baseURL: process.env.MANGO_BASE_URL, apiKey: process.env.MANGO_API_KEY });
const { agents, environments, sessions, vaults, memoryStores, deployments, deploymentRuns } = client.beta;
const { check, finish } = checks(`${alias} resources`);
const sha = (text) => createHash('sha256').update(text).digest('hex');
const message = { type: 'user.message', content: [{ type: 'text', text: 'hello' }] };
const tries = async (fn) => {
  let n = 0;
  const counting = new sdk.default({
    baseURL: process.env.MANGO_BASE_URL,
    apiKey: process.env.MANGO_API_KEY,
    fetch: (...args) => ((n += 1), fetch(...args)),
  });
  await assert.rejects(() => fn(counting.beta), (e) => e.status === 409);
  return n;
};

let vault, store, memory;

await check('vaults: create, retrieve, update, list, archive, delete', async () => {
  vault = await vaults.create({ display_name: 'Ada', metadata: { a: 'b' } });
  assert.equal(vault.type, 'vault');
  assert.deepEqual(await vaults.retrieve(vault.id), vault);
  assert.equal((await vaults.update(vault.id, { display_name: 'Lovelace' })).display_name, 'Lovelace');
  assert.ok((await collect(vaults.list({ limit: 1 }))).some((v) => v.id === vault.id));
  const gone = await vaults.create({ display_name: 'gone' });
  assert.ok((await vaults.archive(gone.id)).archived_at);
  assert.deepEqual(await vaults.delete(gone.id), { id: gone.id, type: 'vault_deleted' });
});

await check('vault credentials: both kinds, and no secret comes back', async () => {
  const { credentials } = vaults;
  const bearer = await credentials.create(vault.id, {
    auth: { type: 'static_bearer', token: 'tok3n', mcp_server_url: `https://${alias}.example/mcp` },
    display_name: 'one',
  });
  assert.equal(bearer.type, 'vault_credential');
  const oauth = await credentials.create(vault.id, {
    auth: {
      type: 'mcp_oauth',
      access_token: 'acc3ss',
      mcp_server_url: `https://oauth.${alias}.example/mcp`,
      expires_at: new Date(Date.now() + 3600e3).toISOString(),
      refresh: {
        client_id: 'c',
        refresh_token: 'r3fresh',
        token_endpoint: 'https://auth.example/token',
        token_endpoint_auth: { type: 'client_secret_basic', client_secret: 's3cret' },
      },
    },
  });
  assert.equal(oauth.auth.refresh.token_endpoint_auth.type, 'client_secret_basic');
  const changed = await credentials.update(bearer.id, { vault_id: vault.id, auth: { type: 'static_bearer', token: 'n3w' } });
  assert.equal(changed.id, bearer.id);
  assert.deepEqual((await credentials.retrieve(oauth.id, { vault_id: vault.id })).auth, oauth.auth);
  const all = await collect(credentials.list(vault.id, { limit: 1 }));
  assert.deepEqual(all.map((c) => c.id).sort(), [bearer.id, oauth.id].sort());
  assert.doesNotMatch(JSON.stringify([bearer, oauth, changed, all]), /tok3n|n3w|acc3ss|r3fresh|s3cret/);
  assert.ok((await credentials.archive(oauth.id, { vault_id: vault.id })).archived_at);
  assert.equal((await credentials.delete(oauth.id, { vault_id: vault.id })).type, 'vault_credential_deleted');
});

await check('memory stores: create, retrieve, update, list, archive, delete', async () => {
  store = await memoryStores.create({ name: 'Notes', description: 'd', metadata: { a: 'b' } });
  assert.equal(store.type, 'memory_store');
  assert.deepEqual(await memoryStores.retrieve(store.id), store);
  assert.equal((await memoryStores.update(store.id, { description: '' })).description, '');
  assert.ok((await collect(memoryStores.list({ limit: 1 }))).some((s) => s.id === store.id));
  const gone = await memoryStores.create({ name: 'gone' });
  assert.ok((await memoryStores.archive(gone.id)).archived_at);
  assert.equal((await memoryStores.delete(gone.id)).type, 'memory_store_deleted');
});

await check('memories: create, retrieve, update, list, delete, and their conflicts are not tried again', async () => {
  const { memories } = memoryStores;
  const memory_store_id = store.id;
  memory = await memories.create(store.id, { path: '/a/b.md', content: 'one', view: 'full' });
  assert.equal(memory.content, 'one');
  assert.equal(memory.content_sha256, sha('one'));
  assert.equal((await memories.retrieve(memory.id, { memory_store_id })).content, 'one');
  const precondition = { type: 'content_sha256', content_sha256: sha('one') };
  const next = await memories.update(memory.id, { memory_store_id, content: 'two', precondition });
  assert.equal(next.content_sha256, sha('two'));
  assert.equal(await tries((beta) => beta.memoryStores.memories.update(memory.id, { memory_store_id, content: 'x', precondition })), 1);
  assert.equal(await tries((beta) => beta.memoryStores.memories.create(store.id, { path: '/a', content: '' })), 1);
  await assert.rejects(
    () => memories.create(store.id, { path: '/a/b.md', content: '' }),
    (e) => e instanceof sdk.ConflictError && JSON.stringify(e.error).includes(memory.id) && JSON.stringify(e.error).includes('memory_path_conflict_error'),
  );
  await memories.create(store.id, { path: '/c', content: '' });
  const level = await collect(memories.list(store.id, { depth: 1, limit: 1 }));
  assert.deepEqual(level.map((m) => [m.type, m.path]), [['memory_prefix', '/a/'], ['memory', '/c']]);
  assert.deepEqual((await collect(memories.list(store.id, { path_prefix: '/a/', view: 'full' }))).map((m) => m.content), ['two']);
  assert.equal(await tries((beta) => beta.memoryStores.memories.delete(memory.id, { memory_store_id, expected_content_sha256: sha('one') })), 1);
  assert.equal((await memories.delete(memory.id, { memory_store_id, expected_content_sha256: sha('two') })).type, 'memory_deleted');
});

await check('memory versions: list, retrieve, redact', async () => {
  const { memoryVersions } = memoryStores;
  const memory_store_id = store.id;
  const all = await collect(memoryVersions.list(store.id, { memory_id: memory.id, limit: 1, view: 'full' }));
  assert.deepEqual(all.map((v) => [v.operation, v.content]), [['deleted', null], ['modified', 'two'], ['created', 'one']]);
  assert.equal(all[0].created_by.type, 'api_actor');
  assert.equal((await memoryVersions.retrieve(all[2].id, { memory_store_id })).content, 'one');
  const redacted = await memoryVersions.redact(all[2].id, { memory_store_id });
  assert.equal(redacted.content, null);
  assert.ok(redacted.redacted_at);
});

await check('deployments and their runs', async () => {
  const agent = await agents.create({ name: 'deployed', model: 'claude-sonnet-4-5' });
  const environment = await environments.create({ name: `deploy ${alias} ${Date.now()}`, config: { type: 'cloud' } });
  const made = await deployments.create({
    name: 'nightly',
    agent: agent.id,
    environment_id: environment.id,
    initial_events: [message],
    vault_ids: [vault.id],
    schedule: { type: 'cron', expression: '30 2 * * *', timezone: 'Europe/Berlin' },
  });
  assert.equal(made.type, 'deployment');
  assert.deepEqual(made.agent, { type: 'agent', id: agent.id, version: 1 });
  assert.equal(made.schedule.upcoming_runs_at.length, 5);
  assert.deepEqual(await deployments.retrieve(made.id), made);
  assert.equal((await deployments.update(made.id, { description: 'x' })).description, 'x');
  assert.ok((await collect(deployments.list({ agent_id: agent.id, limit: 1 }))).some((d) => d.id === made.id));
  assert.equal((await deployments.pause(made.id)).paused_reason.type, 'manual');
  assert.equal((await deployments.unpause(made.id)).status, 'active');
  const run = await deployments.run(made.id);
  assert.equal(run.trigger_context.type, 'manual');
  const session = await sessions.retrieve(run.session_id);
  assert.deepEqual([session.deployment_id, session.vault_ids], [made.id, [vault.id]]);
  assert.deepEqual(await deploymentRuns.retrieve(run.id), run);
  assert.deepEqual((await collect(deploymentRuns.list({ deployment_id: made.id, has_error: false }))).map((r) => r.id), [run.id]);
  await agents.archive(agent.id);
  const failed = await deployments.run(made.id);
  assert.deepEqual([failed.session_id, failed.error.type], [null, 'agent_archived_error']);
  assert.ok((await deployments.archive(made.id)).archived_at);
});

await check('deployments: a repository, whose token is replaced and never shown', async () => {
  const agent = await agents.create({ name: 'fetching', model: 'claude-sonnet-4-5' });
  const environment = await environments.create({ name: `fetch ${alias} ${Date.now()}`, config: { type: 'cloud' } });
  const shown = { type: 'github_repository', url: 'https://github.com/octocat/Hello-World', checkout: { type: 'branch', name: 'main' } };
  const repository = { ...shown, authorization_token: 'gh-t0ken' };
  const rest = { name: 'fetches', agent: agent.id, environment_id: environment.id, initial_events: [message] };
  const made = await deployments.create({ ...rest, resources: [repository] });
  const changed = await deployments.update(made.id, { resources: [{ ...repository, authorization_token: 'gh-0ther', mount_path: '/workspace/x' }] });
  assert.deepEqual([made.resources, changed.resources], [[shown], [{ ...shown, mount_path: '/workspace/x' }]]);
  const session = await sessions.retrieve((await deployments.run(made.id)).session_id);
  assert.deepEqual([session.resources[0].url, session.resources[0].mount_path], [shown.url, '/workspace/x']);
  assert.doesNotMatch(JSON.stringify([made, changed, session]), /gh-/);
  await assert.rejects(() => deployments.update(made.id, { resources: [{ ...repository, authorization_token: 'a b' }] }), /authorization_token/);
  assert.deepEqual((await deployments.update(made.id, { resources: null })).resources, []);
});

finish();
