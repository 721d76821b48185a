// The official TypeScript SDK drives the stand-in: what it does not understand, ours must not rely on.
//   node e2b_sdk_check.mjs CONTROL_URL DATA_URL KEY
import assert from "node:assert/strict";
import { CommandExitError, Sandbox } from "e2b";

const [apiUrl, sandboxUrl, apiKey] = process.argv.slice(2);
const opts = { apiUrl, sandboxUrl, apiKey, requestTimeoutMs: 20000 };
const metadata = { "io.mango.managed": "true", "a b": "c/d&e" };
const box = await Sandbox.create("base", { ...opts, timeoutMs: 120000, metadata, network: { allowOut: ["example.org"], denyOut: ["0.0.0.0/0"] } });
try {
  const done = await box.commands.run("echo out; echo err >&2; pwd");
  assert.equal(done.exitCode, 0);
  assert.equal(done.stdout, "out\n/home/user\n");
  assert.equal(done.stderr, "err\n");
  await assert.rejects(box.commands.run("exit 3"), (e) => e instanceof CommandExitError && e.exitCode === 3);
  await box.files.write("/home/user/deep/er/f", "content \u20ac");
  assert.equal(await box.files.read("/home/user/deep/er/f"), "content \u20ac");
  assert.equal((await box.files.list("/home/user/deep"))[0].name, "er");
  assert.equal(Number((await box.files.getInfo("/home/user/deep/er/f")).size), 11);
  assert.equal(await box.files.exists("/home/user/none"), false);
  await box.files.makeDir("/home/user/made");
  await box.files.remove("/home/user/deep");
  const long = await box.commands.run("echo begun; sleep 60", { background: true });
  assert.ok((await box.commands.list()).some((p) => p.pid === long.pid));
  assert.ok(await long.kill());
  await assert.rejects(long.wait());
  const input = await box.commands.run("read x; echo got:$x", { background: true, stdin: true });
  await box.commands.sendStdin(input.pid, "hello\n");
  assert.equal((await input.wait()).stdout, "got:hello\n");
  const page = Sandbox.list({ ...opts, query: { metadata } });
  assert.deepEqual((await page.nextItems()).map((s) => s.sandboxId), [box.sandboxId]);
  const none = Sandbox.list({ ...opts, query: { metadata: { "a b": "other" } } });
  assert.deepEqual(await none.nextItems(), []);
  await box.setTimeout(200000);
  await box.files.write("/home/user/kept", "kept");
  await Sandbox.pause(box.sandboxId, opts);
  assert.equal((await Sandbox.getInfo(box.sandboxId, opts)).state, "paused");
  const again = await Sandbox.connect(box.sandboxId, opts);
  assert.equal(await again.files.read("/home/user/kept"), "kept");
} finally {
  assert.ok(await Sandbox.kill(box.sandboxId, opts));
}
assert.equal(await Sandbox.kill(box.sandboxId, opts), false);
console.log("the official SDK is satisfied");
