// The official TypeScript client of OpenSandbox: DOMAIN KEY IMAGE PROXY(yes|no). Everything that the adapter asks for too, and it must be satisfied.
import assert from "node:assert";
import { ConnectionConfig, Sandbox } from "@alibaba-group/opensandbox";

const [domain, apiKey, image, proxy] = process.argv.slice(2);
const connectionConfig = new ConnectionConfig({ domain, apiKey, useServerProxy: proxy === "yes" });
const box = await Sandbox.create({
  connectionConfig,
  image,
  entrypoint: ["tail", "-f", "/dev/null"],
  timeoutSeconds: 600,
  metadata: { "io.mango.managed": "true" },
  resource: { cpu: "1", memory: "512Mi" },
});
try {
  const run = await box.commands.run("echo out; echo warn >&2; exit 3");
  assert.equal(run.logs.stdout.map((m) => m.text).join(""), "out");
  assert.equal(run.logs.stderr.map((m) => m.text).join(""), "warn");
  assert.equal(run.error?.value, "3");
  const fine = await box.commands.run("true");
  assert.equal(fine.error, undefined);
  await box.files.writeFiles([{ path: "/workspace/sub/f.txt", data: "content", mode: 644 }]);
  assert.equal(await box.files.readFile("/workspace/sub/f.txt"), "content");
  const bytes = await box.files.readBytes("/workspace/sub/f.txt", { range: "bytes=3-6" });
  assert.equal(new TextDecoder().decode(bytes), "tent");
  const info = await box.files.getFileInfo(["/workspace/sub/f.txt"]);
  assert.equal(info["/workspace/sub/f.txt"].size, 7);
  await assert.rejects(box.files.readFile("/workspace/none"));
  await box.renew(1200);
  console.log(JSON.stringify({ ok: true }));
} finally {
  await box.kill();
  await box.close();
}
