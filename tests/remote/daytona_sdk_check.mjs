// The official TypeScript client of Daytona: API_URL KEY IMAGE. Everything that the adapter asks for too, and it must be satisfied.
import assert from "node:assert";
import { Daytona, Image } from "@daytonaio/sdk";

const [apiUrl, apiKey, image] = process.argv.slice(2);
const client = new Daytona({ apiUrl, apiKey });
const box = await client.create({
  name: "sdk-check-" + process.pid,
  image: Image.base(image),
  labels: { "io.mango.managed": "true" },
  autoStopInterval: 15,
  autoDeleteInterval: -1,
});
try {
  const run = await box.process.executeCommand("echo out; echo warn >&2; exit 3", "/home/daytona", undefined, 30);
  assert.equal(run.exitCode, 3);
  assert.equal(run.result, "out\nwarn\n");
  await box.fs.uploadFile(Buffer.from("content"), "/home/daytona/sub/f.txt");
  assert.equal((await box.fs.downloadFile("/home/daytona/sub/f.txt")).toString(), "content");
  const info = await box.fs.getFileDetails("/home/daytona/sub/f.txt");
  assert.equal(info.size, 7);
  await assert.rejects(box.fs.downloadFile("/home/daytona/none"));
  let typed = "";
  const terminal = await box.process.createPty({ id: "check", cols: 80, rows: 24, onData: (data) => (typed += Buffer.from(data)) });
  await terminal.sendInput("echo $((6*7))of; exit 5\n");
  assert.equal((await terminal.wait()).exitCode, 5);
  assert.match(typed, /42of/);
  await box.stop();
  await box.start();
  assert.equal((await box.fs.downloadFile("/home/daytona/sub/f.txt")).toString(), "content");
  const found = [];
  for await (const item of client.list({ labels: { "io.mango.managed": "true" } })) found.push(item.id);
  assert.ok(found.includes(box.id));
  console.log(JSON.stringify({ ok: true }));
} finally {
  await box.delete();
}
process.exit(0);
