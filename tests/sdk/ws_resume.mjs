// `ws` from npm follows 50 sessions on one socket of mangod, is cut off ten times at random points while they run, resumes by cursor, and must have every
// event exactly once and in order. MANGO_BASE_URL and MANGO_API_KEY name the server.
import WebSocket from 'ws';

const SESSIONS = 50;
const MESSAGES = 6; // turns of each session
const CUTS = 10;
const DEADLINE_MS = 120_000;
const base = process.env.MANGO_BASE_URL;
const headers = { 'x-api-key': process.env.MANGO_API_KEY };

async function api(method, path, body) {
  const res = await fetch(base + path, {
    method,
    headers: body ? { ...headers, 'content-type': 'application/json' } : headers,
    body: body && JSON.stringify(body),
  });
  if (!res.ok) throw new Error(`${method} ${path}: ${res.status} ${await res.text()}`);
  return res.json();
}

async function listAll(id) {
  const out = [];
  for (let page = ''; ; ) {
    const got = await api('GET', `/v1/sessions/${id}/events?limit=1000${page && `&page=${page}`}`);
    out.push(...got.data);
    if (!got.next_page) return out;
    page = got.next_page;
  }
}

const agent = await api('POST', '/v1/agents', { name: 'ws', model: 'm' });
const environment = await api('POST', '/v1/environments', { name: `ws ${Date.now()}`, config: { type: 'cloud' } });
const subs = [];
for (let i = 0; i < SESSIONS; i++) {
  const s = await api('POST', '/v1/sessions', { agent: agent.id, environment_id: environment.id });
  subs.push({ sub: i + 1, id: s.id, events: [], idles: 0 });
}
const deadline = Date.now() + DEADLINE_MS;

// Follows until `enough` says so; resolves when the socket is gone.
function follow(enough) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(base.replace('http', 'ws') + '/v1/stream', 'mango.v1', { headers });
    let cut = false; // what the library had read before the cut is lost with it
    socket.on('error', reject);
    socket.on('open', () => {
      for (const s of subs)
        socket.send(JSON.stringify({ op: 'subscribe', sub: s.sub, session_id: s.id, after: s.events.at(-1)?.id ?? 'start', credit: 100000 }));
    });
    socket.on('message', (data) => {
      if (cut) return;
      const m = JSON.parse(data);
      if (m.op === 'error' || m.type === 'error') return reject(new Error(data.toString()));
      if ((m.op ?? m.type) !== 'event') return;
      const s = subs[m.sub - 1];
      s.events.push(m.event);
      if (m.event.type === 'session.status_idle') s.idles++;
      if (!enough()) return;
      cut = true;
      socket.terminate();
    });
    socket.on('close', () => resolve());
  });
}

async function drive(s) {
  for (let i = 0; i < MESSAGES; i++) {
    await api('POST', `/v1/sessions/${s.id}/events`, { events: [{ type: 'user.message', content: [{ type: 'text', text: `number ${i}` }] }] });
    await new Promise((r) => setTimeout(r, Math.random() * 200));
  }
}

const driving = Promise.all(subs.map(drive));
const count = () => subs.reduce((n, s) => n + s.events.length, 0);
for (let cut = 0; cut < CUTS; cut++) {
  // At most 1,000 events in all: the turns make 1,200 at least (four a message), so each cut falls while they run.
  const limit = count() + 20 + Math.floor(Math.random() * 80);
  await follow(() => count() >= limit);
}
await driving;

// Each session answers all its messages; messages that were queued share an idle. The last event of each log is an idle.
for (;;) {
  if (Date.now() > deadline) throw new Error('not all sessions became idle in time');
  const states = await Promise.all(subs.map((s) => api('GET', `/v1/sessions/${s.id}`)));
  if (states.every((s) => s.status === 'idle')) break;
  await new Promise((r) => setTimeout(r, 50));
}
const want = await Promise.all(subs.map((s) => listAll(s.id)));
const total = want.reduce((n, l) => n + l.length, 0);
if (count() < total) await follow(() => count() >= total);

let wrong = 0;
subs.forEach((s, i) => {
  const got = s.events.map((e) => e.id).join(' ');
  const all = want[i].map((e) => e.id).join(' ');
  if (got !== all) {
    wrong++;
    console.log(`not ok - ${s.id}: ${s.events.length} events received, ${want[i].length} stored`);
  }
});
console.log(`${SESSIONS - wrong} of ${SESSIONS} sessions, ${total} events, ${CUTS} cuts: each event once and in order`);
console.log(`${SESSIONS - wrong} passed, ${wrong} failed`);
process.exit(wrong ? 1 : 0);
