// A stand-in for what no registry carries: the control planes of E2B and of CubeSandbox, and envd in their sandboxes. From the published specification; strict
// refuses whatever that does not have. Prints its two addresses.
//
//   node envd_peer.mjs e2b|cube FOLDER [lax]
import { spawnSync } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { Box } from "./envd_box.mjs";
import { envd, json } from "./envd_server.mjs";

const [flavor, folder, mode] = process.argv.slice(2);
const cube = flavor === "cube", strict = mode !== "lax";
const KEY = process.env.PEER_API_KEY ?? "e2b_0123456789abcdef0123456789abcdef01234567";
const VERSION = "0.6.13", MAX_TTL_S = 24 * 3600, DOMAIN = "peer.test";
const sandboxes = new Map(), snapshots = new Map();
const serve = envd(strict, cube ? "root" : "user");

const CREATE = {
  templateID: "string", timeout: "number", autoPause: "boolean", autoPauseMemory: "boolean", autoResume: "object", allow_internet_access: "boolean",
  network: "object", metadata: "object", envVars: "object", volumeMounts: "object", iam: "object", mcp: "object", secure: "boolean",
};
const NETWORK = ["allowOut", "denyOut", "allowPublicTraffic", "maskRequestHost", "rules", "egressProxy", "allow_internet_access"];

class Refused extends Error {
  constructor(status, message, headers) {
    super(message);
    Object.assign(this, { status, headers });
  }
}

function checkNetwork(n) {
  for (const k of Object.keys(n)) if (!NETWORK.includes(k)) throw new Refused(400, `network: unknown field ${k}`);
  for (const d of n.denyOut ?? []) if (!/^[\d.]+(\/\d+)?$/.test(d)) throw new Refused(400, `denyOut: '${d}' is not an IP or CIDR`);
  for (const a of n.allowOut ?? []) if (!/^(\*\.)?[A-Za-z0-9.-]+(\/\d+)?$/.test(a)) throw new Refused(400, `allowOut: '${a}' is not valid`);
  if ((n.allowOut ?? []).some((a) => /[a-z]/i.test(a)) && !(n.denyOut ?? []).includes("0.0.0.0/0")) throw new Refused(400, "domains in allowOut need denyOut 0.0.0.0/0");
}

function checkTimeout(t, required) {
  if (t === undefined && !required) return;
  if (!Number.isInteger(t) || t < 0) throw new Refused(400, "timeout must be a number of seconds");
  if (t > MAX_TTL_S) throw new Refused(400, `Timeout cannot be greater than ${MAX_TTL_S / 3600} hours`);
}

function checkCreate(body, v2) {
  for (const [k, v] of Object.entries(body)) {
    const known = CREATE[k] && !(v2 && k === "secure");
    if (!known && strict && !cube) throw new Refused(400, `unknown field ${k}`);
    if (known && typeof v !== CREATE[k]) throw new Refused(400, `${k} must be a ${CREATE[k]}`);
  }
  if (!body.templateID) throw new Refused(400, "templateID is required");
  checkTimeout(body.timeout, false);
  for (const v of Object.values(body.metadata ?? {})) if (typeof v !== "string") throw new Refused(400, "metadata must be strings");
  if (body.autoPauseMemory === false && (!body.autoPause || body.autoResume?.enabled)) throw new Refused(400, "autoPauseMemory=false needs autoPause and no autoResume");
  if (body.network) checkNetwork(body.network);
  if (body.templateID !== "base" && !snapshots.has(body.templateID)) throw new Refused(404, `template '${body.templateID}' not found`);
}

/* ---- sandboxes ---- */

function arm(s, seconds) {
  clearTimeout(s.timer);
  s.idle = seconds;
  s.endAt = Date.now() + seconds * 1000;
  s.timer = setTimeout(() => (s.autoPause ? pause(s) : kill(s)), seconds * 1000);
}

function cut(s) {
  for (const t of s.box.streams) {
    t.cut = true;
    t.wake();
  }
  for (const socket of s.sockets) socket.destroy();
  s.sockets.clear();
}

function pause(s) {
  if (s.state !== "running") throw new Refused(409, `sandbox ${s.id} is already ${s.state}`);
  clearTimeout(s.timer);
  s.state = "paused";
  s.box.pause(true);
  cut(s);
}

async function kill(s) {
  clearTimeout(s.timer);
  sandboxes.delete(s.id);
  cut(s);
  await s.box.end();
}

function answer(s) {
  return { templateID: s.templateID, sandboxID: s.id, clientID: "peer", alias: s.templateID, envdVersion: VERSION, envdAccessToken: cube ? undefined : s.token,
    trafficAccessToken: s.traffic, domain: cube ? DOMAIN : null };
}

function detail(s) {
  return { ...answer(s), trafficAccessToken: undefined, cpuCount: 2, memoryMB: 512, diskSizeMB: 1024, metadata: s.metadata, state: s.state, network: s.network,
    allowInternetAccess: s.internet, startedAt: new Date(s.startedAt).toISOString(), endAt: new Date(s.endAt).toISOString() };
}

async function create(body, v2) {
  checkCreate(body, v2);
  const id = "i" + crypto.randomBytes(10).toString("hex"), at = path.join(folder, id);
  fs.mkdirSync(at);
  const box = new Box(at, snapshots.get(body.templateID));
  box.streams = new Set();
  await box.start();
  const s = { id, box, templateID: body.templateID, metadata: body.metadata ?? {}, autoPause: body.autoPause ?? false, network: body.network, token: crypto.randomBytes(16).toString("hex"),
    traffic: body.network?.allowPublicTraffic === false ? crypto.randomBytes(16).toString("hex") : null, internet: body.allow_internet_access ?? true, state: "running",
    startedAt: Date.now(), sockets: new Set() };
  arm(s, body.timeout ?? (v2 ? 300 : 15));
  sandboxes.set(id, s);
  return answer(s);
}

/* Each key and value, the joined pairs, and the parameter itself are encoded; on Cube only the last. */
function filterOf(text) {
  if (!text) return {};
  return Object.fromEntries(text.split("&").map((pair) => pair.split("=").map((v) => (cube ? v : decodeURIComponent(decodeURIComponent(v))))));
}

function list(url, res) {
  const q = url.searchParams, limit = Number(q.get("limit") ?? 100), wanted = filterOf(q.get("metadata"));
  for (const k of q.keys()) if (!["metadata", "state", "limit", "nextToken", "order", "template", "startedAfter"].includes(k) && strict) throw new Refused(400, `unknown parameter ${k}`);
  if (!(limit >= 1 && limit <= 100)) throw new Refused(400, "limit must be between 1 and 100");
  const states = (q.get("state") ?? "running,paused").split(",");
  const all = [...sandboxes.values()].filter((s) => states.includes(s.state) && Object.entries(wanted).every(([k, v]) => s.metadata[k] === v)).sort((a, b) => b.startedAt - a.startedAt);
  const from = Number(q.get("nextToken") ?? 0), part = all.slice(from, from + limit);
  json(res, 200, part.map(detail), !cube && from + limit < all.length ? { "X-Next-Token": String(from + limit) } : {});
}

function find(id) {
  const s = sandboxes.get(id);
  if (!s) throw new Refused(404, `sandbox ${id} not found`);
  return s;
}

const actions = {
  "POST connect": (s, body, res, v2) => {
    if (v2) body.timeout ??= 300;
    checkTimeout(body.timeout, true);
    const resumed = s.state === "paused";
    if (resumed) {
      s.box.pause(false);
      s.state = "running";
    }
    if (resumed || Date.now() + body.timeout * 1000 > s.endAt) arm(s, body.timeout);
    json(res, resumed && !cube ? 201 : 200, answer(s));
  },
  "POST pause": (s, _, res) => {
    pause(s);
    json(res, 204);
  },
  "POST timeout": (s, body, res) => {
    if (cube) throw new Refused(501, "not implemented");
    checkTimeout(body.timeout, true);
    if (s.state !== "running") throw new Refused(404, `sandbox ${s.id} is not running`);
    arm(s, body.timeout);
    json(res, 204);
  },
  "PUT network": (s, body, res) => {
    if (cube) throw new Refused(501, "not implemented");
    checkNetwork(body);
    s.network = body;
    json(res, 204);
  },
  "POST snapshots": async (s, body, res) => {
    if (cube) throw new Refused(501, "not implemented");
    const id = `snap${crypto.randomBytes(8).toString("hex")}`, at = path.join(folder, id);
    fs.mkdirSync(at);
    s.box.pause(true);
    spawnSync("cp", ["-a", s.box.root, at]);
    s.box.pause(false);
    cut(s);
    snapshots.set(id, path.join(at, "root"));
    json(res, 201, { snapshotID: id, names: [] });
  },
};

async function control(req, res, body) {
  const url = new URL(req.url, "http://api"), parts = url.pathname.split("/").filter(Boolean);
  const key = cube ? (req.headers.authorization ?? "").replace(/^Bearer /, "") : req.headers["x-api-key"];
  if (url.pathname === "/health") return json(res, 204);
  if (KEY && key !== KEY) throw new Refused(401, "Invalid API key");
  const v2 = parts[0] === "v2";
  if (v2) parts.shift();
  if (parts[0] === "templates" && parts.length === 2 && req.method === "DELETE") {
    const at = snapshots.get(parts[1]);
    if (!at) throw new Refused(404, "template not found");
    snapshots.delete(parts[1]);
    fs.rmSync(path.dirname(at), { recursive: true, force: true });
    return json(res, 204);
  }
  if (parts[0] !== "sandboxes") return json(res, 404);
  if (parts.length === 1 && req.method === "GET") return list(url, res);
  if (parts.length === 1 && req.method === "POST" && !(v2 && cube)) return json(res, 201, await create(body, v2));
  const s = find(parts[1]);
  if (parts.length === 2 && req.method === "GET") return json(res, 200, detail(s));
  if (parts.length === 2 && req.method === "DELETE") {
    await kill(s);
    return json(res, 204);
  }
  const act = actions[`${req.method} ${parts[2]}`];
  return act && parts.length === 3 ? act(s, body, res, v2) : json(res, 404);
}

async function onControl(req, res) {
  try {
    const pieces = [];
    for await (const d of req) pieces.push(d);
    const text = Buffer.concat(pieces).toString();
    let body = {};
    if (text) {
      if (!/^application\/json/.test(req.headers["content-type"] ?? "")) throw new Refused(415, "a body must be application/json");
      body = JSON.parse(text);
    }
    await control(req, res, body);
  } catch (e) {
    if (!(e instanceof Refused) && !(e instanceof SyntaxError)) console.error(e);
    if (!res.headersSent) json(res, e.status ?? (e instanceof SyntaxError ? 400 : 500), { code: e.status ?? 500, message: e.message }, e.headers);
  }
}

/* The proxy in front of the sandboxes: by two headers, or by the host's name. */
function onData(req, res) {
  const [id, port] = [req.headers["e2b-sandbox-id"], req.headers["e2b-sandbox-port"]];
  const host = /^(\d+)-([A-Za-z0-9]+)\./.exec(req.headers.host ?? "");
  if (!cube && !id !== !port) return json(res, 400, { message: "Missing header", code: 400 });
  if (cube && !host) return json(res, 400, { code: 400, message: "bad host" });
  const s = sandboxes.get(cube ? host[2] : (id ?? host?.[2]));
  if (!s || s.state !== "running") return cube ? json(res, 500, { code: 500, message: "sandbox not found" }) : json(res, 502, { sandboxId: id, message: "The sandbox was not found", code: 502 });
  if ((port ?? host?.[1]) !== "49983") return json(res, 502, { sandboxId: id, message: "The sandbox is running but port is not open", port: 49983, code: 502 });
  if (s.traffic && req.headers["e2b-traffic-access-token"] !== s.traffic) return json(res, 403, { message: "missing traffic access token", code: 403 });
  s.sockets.add(req.socket);
  if (cube) arm(s, s.idle); // by requests, not by what is still open
  res.once("close", () => s.sockets.delete(req.socket));
  return serve(s.box, cube ? null : s.token, req, res);
}

const servers = [onControl, onData].map((f) => http.createServer({ requestTimeout: 0 }, f));
for (const s of servers) await new Promise((r) => s.listen(0, "127.0.0.1", r));
console.log(JSON.stringify({ control: servers[0].address().port, data: servers[1].address().port, key: KEY, domain: DOMAIN }));

async function leave() {
  await Promise.all([...sandboxes.values()].map(kill));
  process.exit(0);
}
process.on("SIGTERM", leave);
process.stdin.on("end", leave).resume();
