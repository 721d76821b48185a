// What the examples of the official TypeScript SDK do with managed agents, call for call, against mangod: the client is made as theirs is, from
// ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY. Where an example needs a service that is not here (a vault, an MCP server on the Internet) that part is left
// out. The prompts hold scripts of the test suite's model endpoint.
//   node examples.mjs SDK-ALIAS
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { checks } from './checks.mjs';

const alias = process.argv[2] ?? 'sdk-1.14.0';
const { default: Anthropic } = await import(alias);
const { accumulateManagedAgentsEvent } = await import(`${alias}/lib/sessions/accumulate`);
const { betaZodTool } = await import(`${alias}/helpers/beta/zod`);
const { betaAgentToolset20260401, setupSkills } = await import(`${alias}/tools/agent-toolset/node`);
const client = new Anthropic();

const { check: example, finish } = checks(alias);

const script = (...lines) => ['#fake', ...lines].join('\n');
const say = (sessionID, text) =>
  client.beta.sessions.events.send(sessionID, { events: [{ type: 'user.message', content: [{ type: 'text', text }] }] });
const words = (event) => event.content.map((b) => (b.type === 'text' ? b.text : '')).join('');

// The examples send first and attach afterwards: the answer must not be over by then.
const LATER = 'delay 700';

async function begin(agent, environment = {}) {
  const env = await client.beta.environments.create({ name: `example-${Date.now()}`, ...environment });
  const made = await client.beta.agents.create({ name: 'example', model: 'claude-sonnet-5', ...agent });
  const session = await client.beta.sessions.create({ environment_id: env.id, agent: { type: 'agent', id: made.id } });
  return { environment: env, agent: made, session };
}

await example('a simple agent: a message, and the stream until the session is idle', async () => {
  const { session } = await begin({});
  await say(session.id, script(LATER, 'text Hello there!'));
  const types = [];
  const stream = await client.beta.sessions.events.stream(session.id);
  for await (const event of stream) {
    types.push(event.type);
    if (event.type === 'session.status_idle') break;
  }
  assert.ok(types.includes('agent.message'), types.join(' '));
});

await example('previews are put together by the SDK and equal the final message', async () => {
  const { session } = await begin({});
  await say(session.id, script(LATER, 'text Waves come in and go, and the moon keeps count of them.'));
  const stream = await client.beta.sessions.events.stream(session.id, { event_deltas: ['agent.message'] });
  const previews = new Map();
  let last = '';
  let final;
  for await (const ev of stream) {
    const id = ev.type === 'event_delta' ? ev.event_id : 'event' in ev ? ev.event.id : 'id' in ev ? ev.id : null;
    const preview = accumulateManagedAgentsEvent(id ? previews.get(id) : undefined, ev);
    if (id && preview) previews.set(id, preview);
    if (ev.type === 'event_delta' && preview?.type === 'agent.message') last = words(preview);
    if (ev.type === 'agent.message') {
      previews.delete(id);
      final = words(ev);
    }
    if (ev.type === 'span.model_request_end') previews.clear();
    if (ev.type === 'session.status_idle' && ev.stop_reason.type === 'end_turn') stream.controller.abort();
  }
  assert.equal(final, 'Waves come in and go, and the moon keeps count of them.');
  assert.equal(last, final);
});

const weather = {
  type: 'custom',
  name: 'get_weather',
  description: 'Look up the current weather for a city.',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

await example('custom tools: a patched agent, a pinned version, and an answer to each call on the stream', async () => {
  const environment = await client.beta.environments.create({ name: 'comprehensive-example-environment' });
  const v1 = await client.beta.agents.create({
    name: 'comprehensive-example-agent',
    model: 'claude-sonnet-5',
    system: 'You are a helpful assistant.',
    tools: [{ type: 'agent_toolset_20260401' }, weather],
  });
  const agent = await client.beta.agents.update(v1.id, { version: v1.version, system: 'You are a helpful assistant who likes weather.' });
  assert.equal(agent.version, 2);
  const versions = await client.beta.agents.versions.list(agent.id);
  assert.deepEqual(versions.data.map((v) => v.version).sort(), [1, 2]);
  const session = await client.beta.sessions.create({
    environment_id: environment.id,
    agent: { type: 'agent', id: agent.id, version: agent.version },
  });
  assert.equal(session.agent.version, 2);
  await say(session.id, script(LATER, 'tool get_weather {"city":"Paris"}', 'tool get_weather {"city":"Rome"}', 'tool bash {"command":"echo mild"}', '---', 'text It is mild.'));
  const seen = [];
  const stream = await client.beta.sessions.events.stream(session.id);
  for await (const event of stream) {
    seen.push(event);
    if (event.type === 'agent.custom_tool_use' && event.name === 'get_weather') {
      assert.ok(['Paris', 'Rome'].includes(event.input.city));
      await client.beta.sessions.events.send(session.id, {
        events: [{ type: 'user.custom_tool_result', custom_tool_use_id: event.id, content: [{ type: 'text', text: '{"temperature_c": 14}' }] }],
      });
    }
    if (event.type === 'session.status_idle' && event.stop_reason?.type === 'end_turn') break;
  }
  assert.equal(seen.filter((e) => e.type === 'agent.custom_tool_use').length, 2);
  assert.match(words(seen.find((e) => e.type === 'agent.tool_result')), /mild/);
  assert.equal(words(seen.find((e) => e.type === 'agent.message')), 'It is mild.');
});

await example('confirmations: each blocked call is allowed or denied, and the turn goes on', async () => {
  const ask = { type: 'agent_toolset_20260401', default_config: { permission_policy: { type: 'always_ask' } } };
  const { session } = await begin({ tools: [ask] });
  const stream = await client.beta.sessions.events.stream(session.id);
  await say(session.id, script('tool bash {"command":"echo allowed"}', 'tool bash {"command":"echo never"}', '---', 'text As you wish.'));
  const calls = new Map();
  const answered = new Set();
  const results = [];
  for await (const event of stream) {
    if (event.type === 'agent.tool_use') calls.set(event.id, event);
    if (event.type === 'agent.tool_result') results.push(words(event));
    if (event.type !== 'session.status_idle') continue;
    if (event.stop_reason.type !== 'requires_action') break;
    for (const id of event.stop_reason.event_ids) {
      if (answered.has(id)) continue; // each answer of several shows what is still open
      answered.add(id);
      assert.equal(calls.get(id).evaluated_permission, 'ask');
      const allow = calls.get(id).input.command === 'echo allowed';
      const verdict = allow ? { result: 'allow' } : { result: 'deny', deny_message: 'Rather not.' };
      await client.beta.sessions.events.send(session.id, { events: [{ type: 'user.tool_confirmation', tool_use_id: id, ...verdict }] });
    }
  }
  assert.ok(results.some((r) => /allowed/.test(r)), results.join(' | '));
  assert.ok(results.some((r) => /Rather not/.test(r)), results.join(' | '));
});

const currentTime = betaZodTool({
  name: 'current_time',
  description: 'Get the current time in ISO 8601 format.',
  inputSchema: z.object({}),
  run: async () => new Date().toISOString(),
});
const timeTool = { type: 'custom', name: 'current_time', description: 'Get the current time in ISO 8601 format.', input_schema: { type: 'object', properties: {} } };

async function observe(session, tools) {
  const calls = [];
  for await (const call of client.beta.sessions.events.toolRunner(session.id, { tools, maxIdleMs: 500, signal: AbortSignal.timeout(60_000) })) calls.push(call);
  return calls;
}

await example('observing tool calls: a session that is driven by hand runs the tools here', async () => {
  const workdir = await mkdtemp(join(tmpdir(), 'mango-example-'));
  const { agent, session } = await begin(
    { system: 'You are running in a sandbox.', tools: [{ type: 'agent_toolset_20260401' }, timeTool] },
    { config: { type: 'self_hosted' } },
  );
  const ctx = { workdir, client, session };
  const cleanup = await setupSkills(ctx);
  try {
    await say(session.id, script('tool current_time {}', 'tool bash {"command":"pwd"}', 'tool write {"file_path":"note.txt","content":"hi"}', '---', 'text All done.'));
    const calls = await observe(session, [...betaAgentToolset20260401(ctx), currentTime]);
    assert.deepEqual(calls.map((c) => c.name).sort(), ['bash', 'current_time', 'write']);
    for (const call of calls) assert.ok(call.posted && !call.isError, JSON.stringify(call));
  } finally {
    await cleanup();
    await client.beta.sessions.delete(session.id);
    await client.beta.agents.archive(agent.id);
    await rm(workdir, { recursive: true });
  }
});

await example('observing tool calls: of a session in a cloud environment only the custom tools are run here', async () => {
  const { session } = await begin({ tools: [{ type: 'agent_toolset_20260401' }, timeTool] });
  await say(session.id, script('tool bash {"command":"echo from the sandbox"}', 'tool current_time {}', '---', 'text All done.'));
  const calls = await observe(session, [currentTime]);
  const run = calls.filter((c) => c.posted);
  assert.deepEqual(run.map((c) => c.name), ['current_time']);
  const events = [];
  for await (const e of client.beta.sessions.events.list(session.id)) events.push(e);
  assert.match(words(events.find((e) => e.type === 'agent.tool_result')), /from the sandbox/);
  assert.equal(events.at(-1).stop_reason.type, 'end_turn');
});

await example('threads: a coordinator gives a task to an agent of its roster, whose call is allowed at the session', async () => {
  const ask = { type: 'agent_toolset_20260401', default_config: { permission_policy: { type: 'always_ask' } } };
  const environment = await client.beta.environments.create({ name: `threads-${Date.now()}` });
  const researcher = await client.beta.agents.create({ name: 'researcher', model: 'claude-haiku-4-5', tools: [ask] });
  const lead = await client.beta.agents.create({
    name: 'lead',
    model: 'claude-sonnet-5',
    multiagent: { type: 'coordinator', agents: [{ type: 'agent', id: researcher.id, version: researcher.version }] },
  });
  const session = await client.beta.sessions.create({ environment_id: environment.id, agent: lead.id });
  const stream = await client.beta.sessions.events.stream(session.id);
  const work = script('tool bash {"command":"echo found it"}', '---', 'text The answer is 42.');
  await say(session.id, script(`tool send_to_agent ${JSON.stringify({ agent_name: 'researcher', message: work })}`, '---', 'text I asked.'));
  let report;
  for await (const event of stream) {
    if (event.type === 'agent.tool_use' && event.evaluated_permission === 'ask') {
      assert.ok(event.session_thread_id);
      await client.beta.sessions.events.send(session.id, { events: [{ type: 'user.tool_confirmation', tool_use_id: event.id, result: 'allow' }] });
    }
    if (event.type === 'agent.thread_message_received') report = event;
    if (event.type === 'session.status_idle' && event.stop_reason.type === 'end_turn' && report) break;
  }
  assert.match(words(report), /The answer is 42/);
  assert.equal(report.from_agent_name, 'researcher');
  const threads = [];
  for await (const t of client.beta.sessions.threads.list(session.id)) threads.push(t);
  assert.equal(threads.length, 2);
  const child = threads.find((t) => t.parent_thread_id);
  assert.equal(child.agent.name, 'researcher');
  const log = [];
  for await (const e of client.beta.sessions.threads.events.list(child.id, { session_id: session.id })) log.push(e.type);
  assert.ok(log.includes('agent.tool_result') && log.includes('agent.message'), log.join(' '));
  const archived = await client.beta.sessions.threads.archive(child.id, { session_id: session.id });
  assert.ok(archived.archived_at);
});

await example('outcomes: the work is judged by the rubric, revised, and judged again', async () => {
  const { session } = await begin({});
  const stream = await client.beta.sessions.events.stream(session.id);
  const verdict = (result, explanation) => `text ${JSON.stringify({ result, explanation })}`;
  const rubric = ['#grade', `@1 ${verdict('needs_revision', `In ${session.id} the second line is too long.`)}`, `+1 ${verdict('satisfied', 'Now it fits.')}`, '#end'];
  const sent = await client.beta.sessions.events.send(session.id, {
    events: [{ type: 'user.define_outcome', description: 'Write a haiku about the sea.', rubric: { type: 'text', content: rubric.join('\n') }, max_iterations: 3 }],
  });
  assert.equal(sent.data[0].type, 'user.define_outcome');
  const ends = [];
  for await (const event of stream) {
    if (event.type === 'span.outcome_evaluation_end') ends.push([event.iteration, event.result]);
    if (event.type === 'session.status_idle') break;
  }
  assert.deepEqual(ends, [
    [0, 'needs_revision'],
    [1, 'satisfied'],
  ]);
  const [evaluation] = (await client.beta.sessions.retrieve(session.id)).outcome_evaluations;
  assert.deepEqual([evaluation.result, evaluation.explanation], ['satisfied', 'Now it fits.']);
});

finish();
