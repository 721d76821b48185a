// The official clients at the work that tests/bench/container_rows.py measures of the adapters.
//   node container_bench.mjs SERVICE ADDRESS KEY IMAGE COMMANDS BYTES      prints one line of JSON, times in ms
import fs from "node:fs";
import { performance } from "node:perf_hooks";

const [service, at, key, image, commands, bytes] = process.argv.slice(2);
let box, exec, put, get, end;
if (service === "opensandbox") {
  const { ConnectionConfig, Sandbox } = await import("@alibaba-group/opensandbox");
  const connectionConfig = new ConnectionConfig({ domain: at, apiKey: key, requestTimeoutSeconds: 120 });
  box = await Sandbox.create({ connectionConfig, image, timeoutSeconds: 600, resource: { cpu: "1", memory: "512Mi" } });
  exec = () => box.commands.run("echo ready");
  put = (data) => box.files.writeFiles([{ path: "/workspace/big", data, mode: 644 }]);
  get = () => box.files.readBytes("/workspace/big");
  end = async () => { await box.kill(); await box.close(); };
} else {
  const { Daytona, Image } = await import("@daytonaio/sdk");
  const client = new Daytona({ apiUrl: at, apiKey: key });
  box = await client.create({ image: Image.base(image) });
  exec = () => box.process.executeCommand("echo ready");
  put = (data) => box.fs.uploadFile(Buffer.from(data), "/home/daytona/big");
  get = () => box.fs.downloadFile("/home/daytona/big");
  end = () => box.delete();
}
const peak = () => Number(/VmHWM:\s+(\d+)/.exec(fs.readFileSync("/proc/self/status", "ascii"))[1]) * 1024;
async function ms(work) {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}
const times = [];
await exec();
for (let i = 0; i < Number(commands); i++) times.push(await ms(exec));
times.sort((a, b) => a - b);
const before = peak(), data = new Uint8Array(Number(bytes)).fill(120);
const out = { p50: times[times.length >> 1], put: await ms(() => put(data)), get: await ms(get) };
out.grown = peak() - before;
await end();
console.log(JSON.stringify(out));
process.exit(0);
