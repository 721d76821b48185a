// The official TypeScript SDK's own verifier on notices that mangod sent. MANGO_NOTICES names their file; the argument is the npm alias.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { checks } from './checks.mjs';

const alias = process.argv[2];
const { default: Anthropic } = await import(alias);
const { check, finish } = checks(alias);
const { secret, notices } = JSON.parse(readFileSync(process.env.MANGO_NOTICES, 'utf8'));
const { webhooks } = new Anthropic({ apiKey: 'unused' }).beta;
const first = notices[0];

await check('webhooks.unwrap takes every notice', () => {
  assert.ok(notices.length >= 4);
  for (const n of notices) {
    const event = webhooks.unwrap(n.raw, { headers: n.headers, key: secret });
    assert.equal(event.type, 'event');
    assert.equal(event.id, n.headers['webhook-id']);
    assert.ok(Date.parse(event.created_at) > 0);
    assert.ok(event.data.type && event.data.id && event.data.organization_id && event.data.workspace_id);
  }
});

await check('webhooks.unwrap refuses another body, key, id and time', () => {
  const headers = (more) => ({ ...first.headers, ...more });
  const refuse = (raw, h, key) => assert.throws(() => webhooks.unwrap(raw, { headers: h, key }));
  refuse(first.raw.replace('"event"', '"Event"'), first.headers, secret);
  refuse(first.raw, first.headers, 'whsec_' + Buffer.alloc(32, 7).toString('base64'));
  refuse(first.raw, headers({ 'webhook-id': 'wevt_other' }), secret);
  refuse(first.raw, headers({ 'webhook-timestamp': String(Number(first.headers['webhook-timestamp']) - 1) }), secret);
});

finish();
