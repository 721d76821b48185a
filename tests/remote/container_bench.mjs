// The official clients at the work that run_container_bench.py measures: SERVICE, then what *_sdk_check.mjs takes. Prints JSON in milliseconds.
import { performance } from "node:perf_hooks";

const [service, at, key, image] = process.argv.slice(2);
const EXECS = 20, ROUNDS = 3, SIZE = 32 * 1024 * 1024;
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
async function median(n, work) {
  const all = [];
  for (let i = 0; i < n; i++) {
    const begun = performance.now();
    await work();
    all.push(performance.now() - begun);
  }
  return all.sort((a, b) => a - b)[n >> 1];
}
const data = new Uint8Array(SIZE).fill(120);
await exec();
const out = { exec: await median(EXECS, exec), put: await median(ROUNDS, () => put(data)), get: await median(ROUNDS, get) };
out.rss_mib = process.resourceUsage().maxRSS / 1024;
await end();
console.log(JSON.stringify(out));
process.exit(0);
