// The official TypeScript SDK against mangod, with nothing changed but the base URL and the key.
//   node typescript.mjs SDK-ALIAS        (an alias of package.json: sdk-1.14.0, sdk-1.2.0, sdk-0.130.0, sdk-0.120.0)
// MANGO_BASE_URL and MANGO_API_KEY name the server. One line per check, a count at the end, status 1 when one failed.
import assert from 'node:assert/strict';
import { checks, collect } from './checks.mjs';

const alias = process.argv[2] ?? 'sdk-1.14.0';
const sdk = await import(alias);
const Anthropic = sdk.default;
const baseURL = process.env.MANGO_BASE_URL;
const apiKey = process.env.MANGO_API_KEY;
const client = new Anthropic({ baseURL, apiKey });
const { agents, environments, sessions } = client.beta;

const { check, finish } = checks(alias);

const toolset = { type: 'agent_toolset_20260401' };
const text = (t) => ({ type: 'user.message', content: [{ type: 'text', text: t }] });

// Follows a session until it is idle with a reason that ends the turn.
async function untilIdle(sessionID, send) {
  const stream = await sessions.events.stream(sessionID);
  await send();
  const seen = [];
  for await (const event of stream) {
    seen.push(event);
    if (event.type === 'session.status_idle') break;
    if (event.type === 'session.status_terminated') break;
  }
  return seen;
}

let agent, environment, session;

await check('agent: create', async () => {
  agent = await agents.create({
    name: 'sdk agent',
    model: 'claude-sonnet-4-5',
    system: 'You are a test.',
    tools: [toolset],
    metadata: { suite: 'sdk' },
  });
  assert.match(agent.id, /^agent_/);
  assert.equal(agent.type, 'agent');
  assert.equal(agent.version, 1);
  assert.equal(agent.model.id, 'claude-sonnet-4-5');
  assert.equal(agent.tools[0].type, 'agent_toolset_20260401');
  assert.equal(agent.tools[0].default_config.permission_policy.type, 'always_allow');
  assert.deepEqual(agent.metadata, { suite: 'sdk' });
  assert.deepEqual(agent.mcp_servers, []);
  assert.deepEqual(agent.skills, []);
  assert.equal(agent.archived_at, null);
  assert.ok(!Number.isNaN(Date.parse(agent.created_at)));
});

await check('agent: retrieve, update, versions', async () => {
  const same = await agents.retrieve(agent.id);
  assert.deepEqual(same, agent);
  const next = await agents.update(agent.id, { version: 1, description: 'changed', metadata: { suite: null, more: 'x' } });
  assert.equal(next.version, 2);
  assert.equal(next.description, 'changed');
  assert.deepEqual(next.metadata, { more: 'x' });
  const old = await agents.retrieve(agent.id, { version: 1 });
  assert.equal(old.version, 1);
  assert.equal(old.description, null);
  const nothing = await agents.update(agent.id, { version: 2, description: 'changed' });
  assert.equal(nothing.version, 2);
  const versions = await collect(agents.versions.list(agent.id));
  assert.deepEqual(
    versions.map((v) => v.version).sort(),
    [1, 2],
  );
  agent = next;
});

await check('agent: list pages through all', async () => {
  const made = [];
  for (let i = 0; i < 5; i++) made.push((await agents.create({ name: `page ${i}`, model: 'm' })).id);
  const all = await collect(agents.list({ limit: 2 }));
  const ids = all.map((a) => a.id);
  assert.equal(new Set(ids).size, ids.length);
  for (const id of made) assert.ok(ids.includes(id));
  for (const id of made) assert.ok((await agents.archive(id)).archived_at);
  const live = (await collect(agents.list({ limit: 100 }))).map((a) => a.id);
  for (const id of made) assert.ok(!live.includes(id));
  const archived = (await collect(agents.list({ limit: 100, include_archived: true }))).map((a) => a.id);
  for (const id of made) assert.ok(archived.includes(id));
});

await check('environment: create, retrieve, update, list', async () => {
  environment = await environments.create({
    name: `sdk cloud ${Date.now()}`,
    config: { type: 'cloud', networking: { type: 'unrestricted' } },
  });
  assert.match(environment.id, /^env_/);
  assert.equal(environment.config.type, 'cloud');
  assert.deepEqual(await environments.retrieve(environment.id), environment);
  environment = await environments.update(environment.id, { description: 'for the sdk test', metadata: { a: 'b' } });
  assert.equal(environment.description, 'for the sdk test');
  assert.deepEqual(environment.metadata, { a: 'b' });
  const ids = (await collect(environments.list({ limit: 3 }))).map((e) => e.id);
  assert.ok(ids.includes(environment.id));
});

await check('environment: self_hosted, archive, delete', async () => {
  const own = await environments.create({ name: `sdk own ${Date.now()}`, config: { type: 'self_hosted' } });
  assert.deepEqual(own.config, { type: 'self_hosted' });
  assert.ok((await environments.archive(own.id)).archived_at);
  const gone = await environments.delete(own.id);
  assert.deepEqual({ id: gone.id, type: gone.type }, { id: own.id, type: 'environment_deleted' });
  await assert.rejects(() => environments.retrieve(own.id), sdk.NotFoundError);
});

await check('session: create and retrieve', async () => {
  session = await sessions.create({
    agent: agent.id,
    environment_id: environment.id,
    title: 'sdk session',
    metadata: { k: 'v' },
  });
  assert.match(session.id, /^sesn_/);
  assert.equal(session.status, 'idle');
  assert.equal(session.agent.id, agent.id);
  assert.equal(session.agent.version, 2);
  assert.equal(session.title, 'sdk session');
  assert.ok(Array.isArray(session.resources) && Array.isArray(session.vault_ids));
  const same = await sessions.retrieve(session.id);
  assert.equal(same.id, session.id);
  assert.deepEqual(same.agent, session.agent);
});

await check('session: a message makes the model run bash, and the stream shows all of it', async () => {
  const seen = await untilIdle(session.id, () => sessions.events.send(session.id, { events: [text('run: echo "from the sandbox"')] }));
  const types = seen.map((e) => e.type);
  for (const t of ['user.message', 'session.status_running', 'agent.tool_use', 'agent.tool_result', 'agent.message', 'session.status_idle'])
    assert.ok(types.includes(t), `${t} is missing in ${types.join(' ')}`);
  const use = seen.find((e) => e.type === 'agent.tool_use');
  const result = seen.find((e) => e.type === 'agent.tool_result');
  assert.equal(use.name, 'bash');
  assert.equal(result.tool_use_id, use.id);
  assert.match(result.content[0].text, /from the sandbox/);
  const idle = seen.at(-1);
  assert.equal(idle.stop_reason.type, 'end_turn');
  assert.equal((await sessions.retrieve(session.id)).status, 'idle');
});

await check('events: list in both orders equals what was streamed, by pages of any size', async () => {
  const all = await collect(sessions.events.list(session.id));
  const small = await collect(sessions.events.list(session.id, { limit: 2 }));
  assert.deepEqual(
    small.map((e) => e.id),
    all.map((e) => e.id),
  );
  const back = await collect(sessions.events.list(session.id, { limit: 3, order: 'desc' }));
  assert.deepEqual(
    back.map((e) => e.id),
    all.map((e) => e.id).reverse(),
  );
  const tools = await collect(sessions.events.list(session.id, { types: ['agent.tool_use', 'agent.tool_result'] }));
  assert.deepEqual(
    tools.map((e) => e.type),
    ['agent.tool_use', 'agent.tool_result'],
  );
  await sessions.events.list(session.id, { limit: 1000 });
  for (const e of all) assert.ok(e.processed_at, `${e.type} has no processed_at`);
});

await check('events: previews carry the id of the message to come', async () => {
  const stream = await sessions.events.stream(session.id, { event_deltas: ['agent.message'] });
  await sessions.events.send(session.id, { events: [text('say something')] });
  let id;
  let preview = '';
  for await (const event of stream) {
    if (event.type === 'event_start' && event.event.type === 'agent.message') id = event.event.id;
    if (event.type === 'event_delta' && event.event_id === id) preview += event.delta.content.text;
    if (event.type === 'agent.message') {
      assert.equal(event.id, id);
      assert.equal(event.content.map((c) => c.text).join(''), preview);
    }
    if (event.type === 'session.status_idle') break;
  }
  assert.ok(id);
});

await check('session: initial events start it at once', async () => {
  const s = await sessions.create({
    agent: { type: 'agent', id: agent.id, version: 1 },
    environment_id: environment.id,
    initial_events: [text('hello')],
  });
  assert.equal(s.agent.version, 1);
  assert.equal(s.status, 'running');
  const seen = await collect(await sessions.events.stream(s.id).then((st) => firstIdle(s.id, st)));
  assert.ok(seen.length > 0);
  await sessions.delete(s.id);
});

// The session may be idle before the stream is open: the list tells.
async function* firstIdle(id, stream) {
  const listed = await collect(sessions.events.list(id));
  if (listed.some((e) => e.type === 'session.status_idle')) {
    stream.controller.abort();
    yield* listed;
    return;
  }
  for await (const event of stream) {
    yield event;
    if (event.type === 'session.status_idle') return;
  }
}

await check('session: update writes one session.updated with what changed', async () => {
  const s = await sessions.update(session.id, { title: 'renamed', metadata: { k: null, n: 'w' } });
  assert.equal(s.title, 'renamed');
  assert.deepEqual(s.metadata, { n: 'w' });
  const events = await collect(sessions.events.list(session.id, { types: ['session.updated'] }));
  assert.equal(events.length, 1);
  assert.equal(events[0].title, 'renamed');
});

await check('session: list filters and pages', async () => {
  const ids = [];
  for (let i = 0; i < 4; i++) ids.push((await sessions.create({ agent: agent.id, environment_id: environment.id, title: `n${i}` })).id);
  const mine = await collect(sessions.list({ agent_id: agent.id, limit: 2 }));
  for (const id of ids) assert.ok(mine.some((s) => s.id === id));
  const asc = await collect(sessions.list({ agent_id: agent.id, order: 'asc', limit: 100 }));
  assert.deepEqual(
    asc.map((s) => s.id),
    mine.map((s) => s.id).reverse(),
  );
  const idle = await collect(sessions.list({ agent_id: agent.id, statuses: ['idle'] }));
  assert.ok(idle.length >= 4);
  const none = await collect(sessions.list({ agent_id: agent.id, statuses: ['terminated'] }));
  assert.equal(none.length, 0);
  const future = await collect(sessions.list({ 'created_at[gte]': '2099-01-01T00:00:00Z' }));
  assert.equal(future.length, 0);
  for (const id of ids) {
    const gone = await sessions.delete(id);
    assert.deepEqual({ id: gone.id, type: gone.type }, { id, type: 'session_deleted' });
  }
  await assert.rejects(() => sessions.retrieve(ids[0]), sdk.NotFoundError);
});

await check('threads: the primary thread is listed', async () => {
  const threads = await collect(sessions.threads.list(session.id));
  assert.equal(threads.length, 1);
  assert.equal(threads[0].parent_thread_id, null);
  const one = await sessions.threads.retrieve(threads[0].id, { session_id: session.id });
  assert.equal(one.id, threads[0].id);
});

await check('custom tool: requires_action, result, end of turn', async () => {
  const custom = await agents.create({
    name: 'custom',
    model: 'm',
    tools: [{ type: 'custom', name: 'lookup', description: 'Looks a thing up', input_schema: { type: 'object', properties: { q: { type: 'string' } } } }],
  });
  assert.equal(custom.tools[0].name, 'lookup');
  await agents.archive(custom.id);
});

await check('always_ask: confirmation is awaited, given, and the call runs', async () => {
  const asking = await agents.create({
    name: 'asks',
    model: 'm',
    tools: [{ ...toolset, default_config: { enabled: true, permission_policy: { type: 'always_ask' } } }],
  });
  const s = await sessions.create({ agent: asking.id, environment_id: environment.id });
  const first = await untilIdle(s.id, () => sessions.events.send(s.id, { events: [text('run: echo asked')] }));
  const idle = first.at(-1);
  assert.equal(idle.stop_reason.type, 'requires_action');
  const use = first.find((e) => e.type === 'agent.tool_use');
  assert.equal(use.evaluated_permission, 'ask');
  assert.deepEqual(idle.stop_reason.event_ids, [use.id]);
  const rest = await untilIdle(s.id, () =>
    sessions.events.send(s.id, { events: [{ type: 'user.tool_confirmation', tool_use_id: use.id, result: 'allow' }] }),
  );
  assert.ok(rest.some((e) => e.type === 'agent.tool_result' && /asked/.test(e.content[0].text)));
  assert.equal(rest.at(-1).stop_reason.type, 'end_turn');
  await sessions.archive(s.id);
});

// ---- every error class that a server like this can answer with ----

async function refused(cls, status, type, fn, extra = {}) {
  let error;
  await assert.rejects(fn, (e) => ((error = e), true));
  assert.ok(error instanceof cls, `${error?.constructor?.name} is not ${cls.name}: ${error}`);
  assert.equal(error.status, status);
  assert.equal(error.error.type, 'error');
  assert.equal(error.error.error.type, type);
  assert.ok(error.error.error.message.length > 0);
  assert.match(error.requestID ?? error.request_id ?? '', /^req_/);
  Object.entries(extra).forEach(([k, v]) => assert.equal(error.error.error.details?.[k], v));
}

await check('errors: 400 names the field', async () => {
  await refused(sdk.BadRequestError, 400, 'invalid_request_error', () => agents.create({ name: '', model: 'm' }));
  await refused(sdk.BadRequestError, 400, 'invalid_request_error', () => agents.create({ name: 'x', model: 'm', nonsense: 1 }));
  await refused(sdk.BadRequestError, 400, 'invalid_request_error', () => sessions.events.send(session.id, { events: [] }));
});
await check('errors: 401 without a valid key', async () => {
  const bad = new Anthropic({ baseURL, apiKey: 'mango_wrong', maxRetries: 0 });
  await refused(sdk.AuthenticationError, 401, 'authentication_error', () => bad.beta.agents.list());
});
await check('errors: 404 for what does not exist', async () => {
  await refused(sdk.NotFoundError, 404, 'not_found_error', () => agents.retrieve('agent_missing'));
  await refused(sdk.NotFoundError, 404, 'not_found_error', () => sessions.events.send('sesn_missing', { events: [text('x')] }));
});
await check('errors: 409 for a stale version and an archived session, asked once only', async () => {
  await refused(sdk.ConflictError, 409, 'conflict_error', () => agents.update(agent.id, { version: 1, name: 'stale' }));
  const s = await sessions.create({ agent: agent.id, environment_id: environment.id });
  await sessions.archive(s.id);
  const started = Date.now();
  await refused(sdk.ConflictError, 409, 'conflict_error', () => sessions.events.send(s.id, { events: [text('x')] }));
  assert.ok(Date.now() - started < 400, 'the client was not told that a retry is useless');
});
await check('errors: 413 for a body over the limit', async () => {
  const big = new Anthropic({ baseURL, apiKey, maxRetries: 0 });
  const cls = sdk.ContentTooLargeError ?? sdk.APIError;
  await refused(cls, 413, 'request_too_large', () => big.beta.agents.create({ name: 'x', model: 'm', system: 'y'.repeat(33 * 1024 * 1024) }));
});
await check('errors: environment type cannot change', async () => {
  await refused(
    sdk.BadRequestError,
    400,
    'invalid_request_error',
    () => environments.update(environment.id, { config: { type: 'self_hosted' } }),
    { error_code: 'invalid_config_type_change' },
  );
});
await check('errors: connection refused, timeout and abort are the SDK’s own classes', async () => {
  const nobody = new Anthropic({ baseURL: 'http://127.0.0.1:9', apiKey, maxRetries: 0 });
  await assert.rejects(() => nobody.beta.agents.list(), sdk.APIConnectionError);
  const hasty = new Anthropic({ baseURL, apiKey, maxRetries: 0, timeout: 1 });
  await assert.rejects(
    async () => {
      for (let i = 0; i < 50; i++) await hasty.beta.agents.list({ limit: 100 });
    },
    (e) => e instanceof sdk.APIConnectionTimeoutError || e instanceof sdk.APIConnectionError,
  );
  const abort = new AbortController();
  abort.abort();
  await assert.rejects(() => agents.list({}, { signal: abort.signal }), sdk.APIUserAbortError);
});

await check('session: archive, then delete ends open streams with session.deleted', async () => {
  const s = await sessions.create({ agent: agent.id, environment_id: environment.id });
  const stream = await sessions.events.stream(s.id);
  await sessions.delete(s.id);
  const last = (await collect(stream)).at(-1);
  assert.equal(last?.type, 'session.deleted');
  const archived = await sessions.archive(session.id);
  assert.equal(archived.status, 'terminated');
  assert.ok(archived.archived_at);
});

await check('cleanup', async () => {
  await agents.archive(agent.id);
  await refused(sdk.BadRequestError, 400, 'invalid_request_error', () => sessions.create({ agent: agent.id, environment_id: environment.id }));
});

finish();
