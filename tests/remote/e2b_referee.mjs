// What the official TypeScript SDK sends for the scenario of referee_envd.py.
//   node e2b_referee.mjs CONTROL_URL DATA_URL KEY
import { Sandbox } from "e2b";

const [apiUrl, sandboxUrl, apiKey] = process.argv.slice(2);
const opts = { apiUrl, sandboxUrl, apiKey };
const metadata = { "io.mango.managed": "true", "io.mango.label": "0".repeat(32) };
const box = await Sandbox.create("base", { ...opts, timeoutMs: 300000, metadata, allowInternetAccess: false });
await Sandbox.list({ ...opts, query: { metadata, state: ["running", "paused"] }, limit: 100 }).nextItems();
await box.commands.run("echo out", { timeoutMs: 20000 });
await box.files.write("/home/user/f", "x".repeat(3 << 20));
await box.files.read("/home/user/f");
await box.files.remove("/home/user/f");
await box.setTimeout(600000);
await Sandbox.getInfo(box.sandboxId, opts);
await Sandbox.pause(box.sandboxId, opts);
await Sandbox.connect(box.sandboxId, { ...opts, timeoutMs: 300000 });
await Sandbox.updateNetwork(box.sandboxId, { allowOut: ["example.org"], denyOut: ["0.0.0.0/0"] }, opts);
const { snapshotId } = await Sandbox.createSnapshot(box.sandboxId, opts);
await Sandbox.deleteSnapshot(snapshotId, opts);
await Sandbox.kill(box.sandboxId, opts);
