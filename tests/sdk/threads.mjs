// Coordinators and their threads, driven by the official TypeScript SDK with nothing changed but the base URL and the key.
//   node threads.mjs SDK-ALIAS        (an alias of package.json that has sessions.threads: sdk-1.14.0)
// MANGO_BASE_URL and MANGO_API_KEY name a server whose model is the scripted endpoint (tests/support/endpoint-script.h). One line per check, a count at
// the end, status 1 when one failed.
import assert from 'node:assert/strict';
import { checks, collect } from './checks.mjs';

const alias = process.argv[2] ?? 'sdk-1.14.0';
const sdk = await import(alias);
const Anthropic = sdk.default;
const client = new Anthropic({ baseURL: process.env.MANGO_BASE_URL, apiKey: process.env.MANGO_API_KEY });
const { agents, environments, sessions } = client.beta;

const { check, finish } = checks(alias);

const fake = (...lines) => ['#fake', ...lines].join('\n');
const say = (t) => ({ type: 'user.message', content: [{ type: 'text', text: t }] });
const task = (agent, script) => `tool send_to_agent ${JSON.stringify({ agent_name: agent, message: script })}`;
const textOf = (event) => event.content.map((b) => b.text ?? '').join('');

// Sends and follows the session until it is idle.
async function untilIdle(id, ...events) {
  const stream = await sessions.events.stream(id);
  await sessions.events.send(id, { events });
  const seen = [];
  for await (const event of stream) {
    seen.push(event);
    if (event.type === 'session.status_idle' || event.type === 'session.status_terminated') break;
  }
  return seen;
}

let worker, lead, environment, session, child;

await check('agent: a roster is pinned to versions', async () => {
  worker = await agents.create({
    name: 'worker',
    model: 'm',
    tools: [{ type: 'custom', name: 'lookup', description: 'looks up', input_schema: { type: 'object' } }],
  });
  lead = await agents.create({ name: 'lead', model: 'm', multiagent: { type: 'coordinator', agents: [worker.id, { type: 'self' }] } });
  assert.deepEqual(lead.multiagent, {
    type: 'coordinator',
    agents: [
      { type: 'agent', id: worker.id, version: 1 },
      { type: 'agent', id: lead.id, version: 1 },
    ],
  });
  const off = { type: 'disabled' };
  const newer = await agents.create({
    name: 'newer',
    model: 'm',
    multiagent: {
      type: 'multiagent_20261001',
      workflows: off,
      subagents: { type: 'enabled', inline_agents: off, predefined_agents: [{ type: 'agent', id: worker.id, version: 1 }] },
    },
  });
  assert.deepEqual(newer.multiagent.subagents.predefined_agents, [{ type: 'agent', id: worker.id, version: 1 }]);
  assert.deepEqual(newer.multiagent.advisor, off);
  await assert.rejects(() => agents.create({ name: 'x', model: 'm', multiagent: { type: 'multiagent_20261001' } }), sdk.BadRequestError);
});

await check('session: it has the whole definitions', async () => {
  environment = await environments.create({ name: `threads ${Date.now()}`, config: { type: 'cloud' } });
  session = await sessions.create({ agent: lead.id, environment_id: environment.id });
  const [first] = session.agent.multiagent.agents;
  assert.equal(first.id, worker.id);
  assert.equal(first.name, 'worker');
  assert.equal(first.tools[0].name, 'lookup');
  assert.ok(!('multiagent' in first));
});

await check('delegation: the session shows the thread, its messages and its status', async () => {
  const seen = await untilIdle(session.id, say(fake(task('worker', fake('text All is well.')), '---', 'text I have asked.')));
  const created = seen.find((e) => e.type === 'session.thread_created');
  assert.equal(created.agent_name, 'worker');
  assert.equal(created.workflow_run_id, null);
  const sent = seen.find((e) => e.type === 'agent.thread_message_sent');
  assert.equal(sent.to_session_thread_id, created.session_thread_id);
  assert.equal(sent.to_agent_name, 'worker');
  const received = seen.find((e) => e.type === 'agent.thread_message_received');
  assert.equal(received.from_session_thread_id, created.session_thread_id);
  assert.equal(textOf(received), 'All is well.');
  const idle = seen.find((e) => e.type === 'session.thread_status_idle' && e.session_thread_id === created.session_thread_id);
  assert.equal(idle.stop_reason.type, 'end_turn');
  assert.equal(seen.at(-1).stop_reason.type, 'end_turn');
  child = created.session_thread_id;
});

await check('advisor: its thread is listed, retrieved, and has its log', async () => {
  const advisor = { type: 'advisor', model: 'adviser' };
  const asking = await agents.create({ name: 'asking', model: 'm', multiagent: { type: 'coordinator', agents: [worker.id, advisor] } });
  assert.deepEqual(asking.multiagent.agents[1], advisor);
  const own = await sessions.create({ agent: asking.id, environment_id: environment.id });
  assert.deepEqual(own.agent.multiagent.agents[1], advisor);
  const question = `tool advisor ${JSON.stringify({ question: fake('text Wait.') })}`;
  const seen = await untilIdle(own.id, say(fake(question, '---', 'text I wait.')));
  const { session_thread_id: id, agent_name: name } = seen.find((e) => e.type === 'session.thread_created');
  assert.equal(name, 'anthropic.advisor');
  assert.equal(textOf(seen.find((e) => e.type === 'agent.thread_message_received')), 'Wait.');
  const thread = (await collect(sessions.threads.list(own.id))).find((t) => t.id === id);
  assert.deepEqual(thread.agent, advisor);
  assert.equal((await sessions.threads.retrieve(id, { session_id: own.id })).status, 'terminated');
  const log = await collect(sessions.threads.events.list(id, { session_id: own.id }));
  assert.equal(log.at(-1).type, 'session.thread_status_terminated');
});

await check('inline agents: their thread has the definition as its agent', async () => {
  const off = { type: 'disabled' };
  const defining = await agents.create({ name: 'defining', model: 'm', multiagent: { type: 'multiagent_20261001', workflows: off } });
  assert.deepEqual(defining.multiagent.subagents, { type: 'enabled', inline_agents: { type: 'enabled' }, predefined_agents: [] });
  const own = await sessions.create({ agent: defining.id, environment_id: environment.id });
  const give = `tool send_to_agent ${JSON.stringify({ inline_agent: { name: 'own', system: 'You dig.' }, message: fake('text Gold.') })}`;
  const seen = await untilIdle(own.id, say(fake(give, '---', 'text I have asked.')));
  assert.equal(textOf(seen.find((e) => e.type === 'agent.thread_message_received')), 'Gold.');
  const { session_thread_id: id, agent_name: name } = seen.find((e) => e.type === 'session.thread_created');
  assert.equal(name, 'own');
  const { agent } = await sessions.threads.retrieve(id, { session_id: own.id });
  assert.equal(agent.type, 'inline');
  assert.deepEqual(Object.keys(agent).sort(), ['description', 'execution_identity', 'mcp_servers', 'model', 'name', 'skills', 'system', 'tools', 'type']);
});

await check('threads: list, filter, retrieve', async () => {
  const all = await collect(sessions.threads.list(session.id));
  assert.equal(all.length, 2);
  assert.deepEqual(
    all.map((t) => [t.type, t.parent_thread_id === null]),
    [
      ['session_thread', true],
      ['session_thread', false],
    ],
  );
  const ids = (threads) => threads.map((t) => t.id);
  assert.deepEqual(ids(await collect(sessions.threads.list(session.id, { limit: 1 }))), ids(all));
  assert.deepEqual(await collect(sessions.threads.list(session.id, { statuses: ['running'] })), []);
  const one = await sessions.threads.retrieve(child, { session_id: session.id });
  assert.equal(one.id, child);
  assert.equal(one.agent.name, 'worker');
  assert.equal(one.parent_thread_id, all[0].id);
  assert.equal(one.status, 'idle');
  assert.ok(one.usage.input_tokens > 0);
  await assert.rejects(() => sessions.threads.retrieve('sthr_none', { session_id: session.id }), sdk.NotFoundError);
});

await check('threads: events and the stream of one thread', async () => {
  const log = await collect(sessions.threads.events.list(child, { session_id: session.id, limit: 2 }));
  assert.deepEqual(
    log.map((e) => e.type),
    [
      'agent.thread_message_received',
      'session.thread_status_running',
      'span.model_request_start',
      'agent.message',
      'span.model_request_end',
      'agent.thread_message_sent',
      'session.thread_status_idle',
    ],
  );
  const stream = await sessions.threads.events.stream(child, { session_id: session.id });
  const again = `tool send_to_agent ${JSON.stringify({ agent_name: 'worker', message: fake('text Once more.'), session_thread_id: child })}`;
  await sessions.events.send(session.id, { events: [say(fake(again, '---', 'text asked'))] });
  const seen = [];
  for await (const event of stream) {
    seen.push(event);
    if (event.type === 'session.thread_status_idle') break;
  }
  const stored = await collect(sessions.threads.events.list(child, { session_id: session.id }));
  const ids = (events) => events.map((e) => e.id);
  assert.deepEqual(ids(seen), ids(stored.slice(log.length)));
  for (const e of stored) assert.ok(e.processed_at, `${e.type} has no processed_at`);
});

await check('actions: a call of a child is answered at the session', async () => {
  const s = await sessions.create({ agent: lead.id, environment_id: environment.id });
  const script = fake('tool lookup {"q":1}', '---', 'text got it');
  const seen = await untilIdle(s.id, say(fake(task('worker', script), '---', 'text asked')));
  const idle = seen.at(-1);
  assert.equal(idle.stop_reason.type, 'requires_action');
  const call = seen.find((e) => e.type === 'agent.custom_tool_use');
  assert.deepEqual(idle.stop_reason.event_ids, [call.id]);
  assert.match(call.session_thread_id, /^sthr_/);
  const result = { type: 'user.custom_tool_result', custom_tool_use_id: call.id, content: [{ type: 'text', text: 'found' }] };
  const end = await untilIdle(s.id, result);
  assert.equal(end.at(-1).stop_reason.type, 'end_turn');
  assert.equal(end.find((e) => e.type === 'user.custom_tool_result').session_thread_id, call.session_thread_id);
  assert.equal(textOf(end.find((e) => e.type === 'agent.thread_message_received')), 'got it');
});

await check('interrupts: one thread, then all; archive', async () => {
  const s = await sessions.create({ agent: lead.id, environment_id: environment.id });
  const slow = task('worker', fake('delay 30000', 'text late'));
  await sessions.events.send(s.id, { events: [say(fake(slow, slow, '---', 'text asked'))] });
  let running = [];
  while (running.length < 2) running = (await collect(sessions.threads.list(s.id, { statuses: ['running'] }))).filter((t) => t.parent_thread_id);
  const [one, two] = running;
  await assert.rejects(() => sessions.threads.archive(one.id, { session_id: s.id }), sdk.ConflictError);
  await sessions.events.send(s.id, { events: [{ type: 'user.interrupt', session_thread_id: one.id }] });
  assert.equal((await sessions.threads.retrieve(one.id, { session_id: s.id })).status, 'idle');
  assert.equal((await sessions.threads.retrieve(two.id, { session_id: s.id })).status, 'running');
  await sessions.events.send(s.id, { events: [{ type: 'user.interrupt' }] });
  assert.equal((await sessions.retrieve(s.id)).status, 'idle');
  const archived = await sessions.threads.archive(one.id, { session_id: s.id });
  assert.equal(archived.status, 'terminated');
  assert.ok(archived.archived_at);
});

finish();
