// A server of the official MCP TypeScript SDK, with tools that do what servers do, and what they should not.
//   /mcp      sessions, event streams, an event store: answers can be resumed
//   /json     sessions, plain JSON answers
//   /open     neither sessions nor an event store
//   /lies     the SDK's low-level server with schemas that no model endpoint takes
//   /control  POST {"forget":true} drops all sessions; GET tells what happened
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { CallToolRequestSchema, CreateMessageResultSchema, EmptyResultSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const seen = { initialized: 0, called: [], cancelled: [], closed: 0, resumed: 0 };
const sessions = new Map();
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const text = (t) => ({ content: [{ type: 'text', text: t }] });

// Keeps the events of each stream in the order of their ids.
class Store {
  events = [];
  async storeEvent(streamId, message) {
    const id = `${streamId}_${this.events.length}`;
    this.events.push({ id, streamId, message });
    return id;
  }
  async replayEventsAfter(lastEventId, { send }) {
    seen.resumed++;
    const at = this.events.findIndex((e) => e.id === lastEventId);
    if (at < 0) return '';
    const { streamId } = this.events[at];
    for (const e of this.events.slice(at + 1)) if (e.streamId === streamId) await send(e.id, e.message);
    return streamId;
  }
}

function progressOf(extra) {
  const token = extra._meta?.progressToken;
  return (progress, message) =>
    extra.sendNotification({ method: 'notifications/progress', params: { progressToken: token, progress, total: 10, message } });
}

function build() {
  const server = new McpServer({ name: 'sdk-peer', version: '1.0.0' }, { capabilities: { logging: {} } });
  const tool = (name, config, fn) =>
    server.registerTool(name, { description: `Does ${name}`, ...config }, (args, extra) => {
      seen.called.push(name);
      return fn(args, extra);
    });
  tool('echo', { inputSchema: { x: z.string().optional() } }, async (args) => text(JSON.stringify(args)));
  tool('add', { inputSchema: { a: z.number(), b: z.number() }, outputSchema: { sum: z.number() } }, async ({ a, b }) => ({
    content: [{ type: 'text', text: JSON.stringify({ sum: a + b }) }],
    structuredContent: { sum: a + b },
  }));
  tool('parts', { inputSchema: {} }, async () => ({
    content: [
      { type: 'image', data: PNG, mimeType: 'image/png' },
      { type: 'audio', data: Buffer.from('RIFF').toString('base64'), mimeType: 'audio/wav' },
      { type: 'resource', resource: { uri: 'file:///notes.txt', mimeType: 'text/plain', text: 'the notes' } },
      { type: 'resource_link', uri: 'file:///big.csv', name: 'big.csv', mimeType: 'text/csv' },
    ],
  }));
  tool('large', { inputSchema: {} }, async () => text(`begin ${'a line of text\n'.repeat(20000)}end`));
  tool('throws', { inputSchema: {} }, async () => {
    throw new Error('it broke');
  });
  tool('slow', { inputSchema: {} }, async (_args, extra) => {
    const progress = progressOf(extra);
    for (let i = 1; i <= 6; i++) {
      await sleep(400);
      await progress(i, 'still at it');
    }
    return text('slowly done');
  });
  tool('hang', { inputSchema: {} }, async (_args, extra) => {
    extra.signal.addEventListener('abort', () => seen.cancelled.push('hang'));
    await new Promise(() => {});
  });
  // The server ends the stream in the middle; what comes later is for whoever comes back.
  tool('poll', { inputSchema: {} }, async (_args, extra) => {
    await progressOf(extra)(1, 'about to leave');
    extra.closeSSEStream?.();
    await sleep(300);
    return text('after the reconnect');
  });
  tool('flood', { inputSchema: {} }, async (_args, extra) => {
    const progress = progressOf(extra);
    for (let i = 0; i < 20000 && !extra.signal.aborted; i++) {
      await progress(i, 'x'.repeat(50));
      if (i % 100 === 0) await sleep(1); // else nothing is written before the end
    }
    return text('never seen');
  });
  tool('sampling', { inputSchema: {} }, async (_args, extra) => {
    await extra.sendRequest({ method: 'ping' }, EmptyResultSchema);
    try {
      await extra.sendRequest({ method: 'sampling/createMessage', params: { messages: [], maxTokens: 1 } }, CreateMessageResultSchema);
      return text('sampled');
    } catch (e) {
      return text(`refused: ${e.message}`);
    }
  });
  tool('exit', { inputSchema: {} }, async () => process.exit(1));
  tool('renames', { inputSchema: {} }, async () => {
    renamed.remove();
    return text('the other tool is gone');
  });
  const renamed = server.registerTool('renamed', { description: 'Goes away', inputSchema: {} }, async () => text('still here'));
  return server;
}

function lying() {
  const server = new Server({ name: 'liar', version: '1' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, async () => ({
    tools: [
      { name: 'fine', description: 'Fine', inputSchema: { type: 'object' } },
      { name: 'banana', description: 'Lies', inputSchema: { type: 'object', properties: { a: { type: 'banana' } } } },
      { name: 'either', description: 'Lies', inputSchema: { type: 'object', oneOf: [{ required: ['a'] }] } },
    ],
  }));
  server.setRequestHandler(CallToolRequestSchema, async (request) => {
    seen.called.push(request.params.name);
    return { content: 'not an array' };
  });
  return server;
}

async function body(req) {
  const parts = [];
  for await (const p of req) parts.push(p);
  return parts.length ? JSON.parse(Buffer.concat(parts).toString()) : undefined;
}

async function open(req, res, message, kind) {
  const stateless = kind === '/open';
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: stateless ? undefined : randomUUID,
    enableJsonResponse: kind === '/json',
    eventStore: kind === '/mcp' ? new Store() : undefined,
    retryInterval: 100,
    onsessioninitialized: (id) => {
      seen.initialized++;
      sessions.set(id, transport);
    },
    onsessionclosed: (id) => {
      seen.closed++;
      sessions.delete(id);
    },
  });
  await (kind === '/lies' ? lying() : build()).connect(transport);
  await transport.handleRequest(req, res, message);
}

const http = createServer(async (req, res) => {
  const message = req.method === 'POST' ? await body(req) : undefined;
  if (req.url === '/control') {
    if (message?.forget) sessions.clear();
    res.writeHead(200, { 'content-type': 'application/json' });
    res.end(JSON.stringify(seen));
    return;
  }
  const id = req.headers['mcp-session-id'];
  const known = id && sessions.get(id);
  if (known) await known.handleRequest(req, res, message);
  else if (id) res.writeHead(404).end('no such session');
  else await open(req, res, message, req.url);
});
http.listen(0, '127.0.0.1', () => console.log(`port ${http.address().port}`));
