// Files, session resources and skills with the official TypeScript SDK: upload, list in the SDK's own way of paging, metadata, download, versions, delete.
//   node files.mjs SDK-ALIAS
import assert from 'node:assert/strict';
import { checks } from './checks.mjs';

const alias = process.argv[2] ?? 'sdk-1.14.0';
const sdk = await import(alias);
const client = new sdk.default({ baseURL: process.env.MANGO_BASE_URL, apiKey: process.env.MANGO_API_KEY });
const { beta } = client;
const { check, finish } = checks(alias);

const bytes = async (answer) => Buffer.from(await answer.arrayBuffer());
// Pages that follow each other: some SDKs page by cursor, some by id.
async function walk(page, wanted) {
  const seen = [];
  for await (const item of page) if (wanted.includes(item.id)) seen.push(item.id);
  return seen;
}

const data = Buffer.alloc(300000, 'mango ');
const made = [];

await check('files: upload, metadata, download', async () => {
  for (let i = 0; i < 3; i++) made.push(await beta.files.upload({ file: await sdk.toFile(data, `é ${i}.txt`, { type: 'text/plain' }) }));
  const [file] = made;
  assert.match(file.id, /^file_/);
  assert.equal(file.filename, 'é 0.txt');
  assert.equal(file.mime_type, 'text/plain');
  assert.equal(file.size_bytes, data.length);
  assert.deepEqual(await beta.files.retrieveMetadata(file.id), file);
  assert.ok((await bytes(await beta.files.download(file.id))).equals(data));
});

await check('files: list walks all pages', async () => {
  const ids = made.map((f) => f.id);
  assert.deepEqual(await walk(beta.files.list({ limit: 2 }), ids), ids.slice().reverse());
});

await check('session resources: add, list, retrieve, delete', async () => {
  const agent = await beta.agents.create({ name: 'files', model: 'mango-test' });
  const environment = await beta.environments.create({ name: `files ${Date.now()}`, config: { type: 'cloud' } });
  const session = await beta.sessions.create({ agent: agent.id, environment_id: environment.id, resources: [{ type: 'file', file_id: made[0].id }] });
  assert.equal(session.resources[0].mount_path, `/mnt/session/uploads/${made[0].id}`);
  const added = await beta.sessions.resources.add(session.id, { type: 'file', file_id: made[1].id, mount_path: '/workspace/in.txt' });
  const listed = [];
  for await (const r of beta.sessions.resources.list(session.id)) listed.push(r.id);
  assert.deepEqual(listed, [session.resources[0].id, added.id]);
  assert.deepEqual(await beta.sessions.resources.retrieve(added.id, { session_id: session.id }), added);
  await assert.rejects(() => beta.files.delete(made[1].id), (e) => e.status === 409);
  assert.equal((await beta.sessions.resources.delete(added.id, { session_id: session.id })).id, added.id);
  await beta.sessions.delete(session.id);
});

await check('session resources: a repository, whose token is rotated and never shown', async () => {
  const agent = await beta.agents.create({ name: 'repositories', model: 'mango-test' });
  const environment = await beta.environments.create({ name: `repositories ${Date.now()}`, config: { type: 'cloud' } });
  const url = 'https://github.com/octocat/Hello-World.git';
  const session = await beta.sessions.create({
    agent: agent.id,
    environment_id: environment.id,
    resources: [{ type: 'github_repository', url, authorization_token: 'gh-t0ken', checkout: { type: 'branch', name: 'main' } }],
  });
  const [made] = session.resources;
  assert.deepEqual([made.type, made.url, made.mount_path, made.checkout], ['github_repository', url, '/workspace/Hello-World', { type: 'branch', name: 'main' }]);
  const rotated = await beta.sessions.resources.update(made.id, { session_id: session.id, authorization_token: 'gh-0ther' });
  assert.deepEqual({ ...rotated, updated_at: made.updated_at }, made);
  assert.deepEqual(await beta.sessions.resources.retrieve(made.id, { session_id: session.id }), rotated);
  assert.doesNotMatch(JSON.stringify([session, rotated]), /gh-t0ken|gh-0ther/);
  assert.equal((await beta.sessions.resources.delete(made.id, { session_id: session.id })).id, made.id);
  await beta.sessions.delete(session.id);
});

await check('files: delete', async () => {
  for (const f of made) assert.equal((await beta.files.delete(f.id)).id, f.id);
  await assert.rejects(() => beta.files.retrieveMetadata(made[0].id), (e) => e.status === 404);
});

const bundle = async (text) => [
  await sdk.toFile(Buffer.from(`---\nname: greeting\ndescription: ${text}\n---\nSay hello.\n`), 'greeting/SKILL.md'),
  await sdk.toFile(Buffer.from('data'), 'greeting/data/x.txt'),
];

await check('skills: create, versions, download, delete', async () => {
  const skill = await beta.skills.create({ files: await bundle('One.') });
  assert.match(skill.id, /^skill_/);
  const latest = skill.latest_version_id ?? skill.latest_version;
  const second = await beta.skills.versions.create(skill.id, { files: await bundle('Two.') });
  const again = await beta.skills.retrieve(skill.id);
  assert.equal(again.latest_version_id ?? again.latest_version, second.id ?? second.version);
  const first = await beta.skills.versions.retrieve(latest, { skill_id: skill.id });
  assert.equal(first.name, 'greeting');
  assert.equal(first.description, 'One.');
  assert.deepEqual(await walk(beta.skills.versions.list(skill.id, { limit: 1 }), [second.id, first.id]), [second.id, first.id]);
  assert.deepEqual(await walk(beta.skills.list({ limit: 1 }), [skill.id]), [skill.id]);
  if (beta.skills.versions.download) {
    const zip = await bytes(await beta.skills.versions.download(latest, { skill_id: skill.id }));
    assert.equal(zip.subarray(0, 4).toString('latin1'), 'PK\x03\x04');
  }
  for (const v of [first, second]) await beta.skills.versions.delete(v.id, { skill_id: skill.id });
  assert.equal((await beta.skills.delete(skill.id)).id, skill.id);
  await assert.rejects(() => beta.skills.retrieve(skill.id), (e) => e.status === 404);
});

finish();
