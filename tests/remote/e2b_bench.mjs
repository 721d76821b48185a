// The official TypeScript SDK doing what tests/bench/remote_rows.py measures of the adapter.
//   node e2b_bench.mjs CONTROL_URL DATA_URL KEY COMMANDS BYTES      prints one line of JSON, times in ms
import fs from "node:fs";
import { Sandbox } from "e2b";

const [apiUrl, sandboxUrl, apiKey, commands, bytes] = process.argv.slice(2);
const opts = { apiUrl, sandboxUrl, apiKey };
const peak = () => Number(/VmHWM:\s+(\d+)/.exec(fs.readFileSync("/proc/self/status", "ascii"))[1]) * 1024;
const box = await Sandbox.create("base", { ...opts, timeoutMs: 300000 });
const times = [];
await box.commands.run("true");
for (let i = 0; i < Number(commands); i++) {
  const t = performance.now();
  if ((await box.commands.run("echo ready")).stdout !== "ready\n") throw new Error("another output");
  times.push(performance.now() - t);
}
const before = peak(), content = new Blob([Buffer.alloc(Number(bytes), 120)]);
let t = performance.now();
await box.files.write("/home/user/f", content, { useOctetStream: true });
const put = performance.now() - t;
t = performance.now();
let n = 0;
for await (const piece of await box.files.read("/home/user/f", { format: "stream" })) n += piece.length;
const get = performance.now() - t;
if (n !== Number(bytes)) throw new Error(`${n} bytes came back`);
times.sort((a, b) => a - b);
console.log(JSON.stringify({ p50: times[times.length >> 1], put, get, peak: peak(), grown: peak() - before }));
await box.kill();
