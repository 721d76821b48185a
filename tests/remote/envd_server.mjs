// envd of the stand-in: the Connect protocol by the real server library, the services as the published protocol descriptions have them (their compiled form is
// in the official SDK's package), files over plain HTTP.
import fs from "node:fs";
import path from "node:path";
import { createRegistry } from "@bufbuild/protobuf";
import { fileDesc } from "@bufbuild/protobuf/codegenv2";
import { file_google_protobuf_timestamp } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createContextKey, createContextValues } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { pipeline } from "node:stream/promises";
import { USERS } from "./envd_box.mjs";

const KEEP_END_MS = 30000;
const sdk = fs.readFileSync(new URL("node_modules/e2b/dist/index.mjs", import.meta.url), "utf8");

function registry() {
  const files = [...sdk.matchAll(/fileDesc\("([A-Za-z0-9+/=]+)"(, *\[)?/g)].map((m) => fileDesc(m[1], m[2] ? [file_google_protobuf_timestamp] : []));
  return createRegistry(...files);
}
const types = registry();
const box = createContextKey(undefined), userKey = createContextKey("user");

function fail(code, text) {
  return new ConnectError(text, code);
}

/* ---- processes ---- */

class Subscriber {
  constructor() {
    this.queue = [];
    this.wake = () => {};
  }
  push(e) {
    this.queue.push(e);
    this.wake();
  }
}

class Process {
  constructor(b, config, tag, child) {
    Object.assign(this, { b, config, tag, child, subscribers: new Set(), end: null, pid: child.pid });
    for (const name of ["stdout", "stderr"]) {
      child[name].on("data", (d) => {
        for (let at = 0; at < d.length; at += 32768) this.tell({ case: "data", value: { output: { case: name, value: new Uint8Array(d.subarray(at, at + 32768)) } } });
        this.throttle();
      });
    }
    /* After the last holder of its pipes has closed them. */
    child.once("close", (code, signal) => {
      const names = { SIGKILL: "killed", SIGTERM: "terminated", SIGSEGV: "segmentation fault", SIGABRT: "aborted" };
      const status = signal ? `signal: ${names[signal] ?? signal}` : `exit status ${code}`;
      this.end = { case: "end", value: { exitCode: signal ? -1 : code, exited: !signal, status, error: code === 0 ? undefined : status } };
      this.tell(this.end);
      setTimeout(() => b.processes.delete(this.pid), KEEP_END_MS).unref();
    });
  }
  throttle() {
    const full = [...this.subscribers].some((s) => s.queue.length > 64);
    for (const s of [this.child.stdout, this.child.stderr]) full ? s.pause() : s.resume();
  }
  tell(event) {
    for (const s of this.subscribers) s.push({ event });
  }
  async *follow(context, ping) {
    const s = new Subscriber();
    this.subscribers.add(s);
    s.push({ event: { case: "start", value: { pid: this.pid } } });
    if (this.end) s.push({ event: this.end });
    const timer = setInterval(() => s.push({ event: { case: "keepalive", value: {} } }), ping * 1000);
    const abort = () => s.wake();
    context.signal.addEventListener("abort", abort);
    this.b.streams.add(s);
    try {
      while (!context.signal.aborted && !s.cut) {
        const e = s.queue.shift();
        if (!e) {
          await new Promise((r) => (s.wake = r));
          continue;
        }
        this.throttle();
        yield { event: { event: e.event } };
        if (e.event.case === "end") return;
      }
      if (s.cut) throw fail(Code.Unavailable, "the sandbox is gone");
    } finally {
      clearInterval(timer);
      context.signal.removeEventListener("abort", abort);
      this.subscribers.delete(s);
      this.b.streams.delete(s);
      this.throttle();
    }
  }
}

function pingOf(context) {
  const text = context.requestHeader.get("keepalive-ping-interval");
  const n = text === null ? 90 : Number(text);
  if (!(n > 0)) throw fail(Code.Internal, "non-positive interval for NewTicker");
  return n;
}

function select(context, selector) {
  const b = context.values.get(box), s = selector?.selector;
  const p = s?.case === "pid" ? b.processes.get(s.value) : [...b.processes.values()].find((q) => q.tag !== undefined && q.tag === s?.value);
  if (!p) throw fail(Code.NotFound, `process with ${s?.case} ${s?.value} not found`);
  return p;
}

const processService = {
  list(_, context) {
    const all = [...context.values.get(box).processes.values()].filter((p) => !p.end);
    return { processes: all.map((p) => ({ config: p.config, pid: p.pid, tag: p.tag })) };
  },
  async *start(req, context) {
    const b = context.values.get(box), c = req.process, cwd = c?.cwd || (context.values.get(userKey) === "root" ? "/root" : "/home/user");
    if (!c?.cmd) throw fail(Code.InvalidArgument, "cmd is empty");
    if (req.pty) throw fail(Code.Unimplemented, "this stand-in has no terminals");
    if (!fs.existsSync(b.path(cwd)) && cwd !== "/") throw fail(Code.InvalidArgument, `cwd '${cwd}' does not exist`);
    const child = b.spawn(c.cmd, c.args, { cwd, envs: c.envs, user: context.values.get(userKey), stdin: req.stdin ?? true });
    const p = new Process(b, c, req.tag, child);
    b.processes.set(p.pid, p);
    const limit = Number(context.requestHeader.get("connect-timeout-ms") ?? 0);
    const timer = limit > 0 ? setTimeout(() => b.signal(p.pid, "SIGKILL"), limit) : undefined;
    child.once("close", () => clearTimeout(timer));
    yield* p.follow(context, pingOf(context));
  },
  async *connect(req, context) {
    yield* select(context, req.process).follow(context, pingOf(context));
  },
  sendSignal(req, context) {
    const p = select(context, req.process);
    if (req.signal !== 9 && req.signal !== 15) throw fail(Code.Unimplemented, `invalid signal: ${req.signal}`);
    context.values.get(box).signal(p.pid, req.signal);
    return {};
  },
  sendInput(req, context) {
    const p = select(context, req.process);
    if (!p.child.stdin) throw fail(Code.FailedPrecondition, "stdin is not open");
    p.child.stdin.write(req.input.input.value);
    return {};
  },
  closeStdin(req, context) {
    select(context, req.process).child.stdin?.end();
    return {};
  },
};

/* ---- files ---- */

const KINDS = { FILE: 1, DIRECTORY: 2, SYMLINK: 3 };

function entry(b, p) {
  const at = b.path(p);
  let st;
  try {
    st = fs.lstatSync(at);
  } catch {
    throw fail(Code.NotFound, `file not found: ${p}`);
  }
  const type = st.isDirectory() ? KINDS.DIRECTORY : st.isFile() ? KINDS.FILE : 0;
  const seconds = Math.floor(st.mtimeMs / 1000);
  return { name: path.posix.basename(p), type, path: p, size: BigInt(st.size), mode: st.mode & 0o7777, permissions: "", owner: String(st.uid), group: String(st.gid),
    modifiedTime: { seconds: BigInt(seconds), nanos: 0 } };
}

const filesystemService = {
  stat: (req, context) => ({ entry: entry(context.values.get(box), req.path) }),
  makeDir(req, context) {
    const b = context.values.get(box);
    if (fs.existsSync(b.path(req.path))) throw fail(Code.AlreadyExists, `directory already exists: ${req.path}`);
    b.makeFolders(req.path, context.values.get(userKey));
    return { entry: entry(b, req.path) };
  },
  move(req, context) {
    const b = context.values.get(box);
    entry(b, req.source);
    fs.renameSync(b.path(req.source), b.path(req.destination));
    return { entry: entry(b, req.destination) };
  },
  listDir(req, context) {
    const b = context.values.get(box), e = entry(b, req.path);
    if (e.type !== KINDS.DIRECTORY) throw fail(Code.InvalidArgument, `path is not a directory: ${req.path}`);
    return { entries: fs.readdirSync(b.path(req.path)).map((n) => entry(b, path.posix.join(req.path, n))) };
  },
  remove(req, context) {
    fs.rmSync(context.values.get(box).path(req.path), { recursive: true, force: true });
    return {};
  },
};

function json(res, status, body, headers = {}) {
  const text = body === undefined ? "" : JSON.stringify(body);
  res.writeHead(status, { ...(text ? { "Content-Type": "application/json" } : {}), "Content-Length": Buffer.byteLength(text), ...headers });
  res.end(text);
}

function getFile(b, p, req, res) {
  let st;
  try {
    st = fs.statSync(b.path(p));
  } catch {
    return json(res, 404, { code: 404, message: `path '${p}' does not exist` });
  }
  if (!st.isFile()) return json(res, 400, { code: 400, message: `path '${p}' is a directory` });
  const range = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range ?? "");
  const start = range ? Number(range[1]) : 0, end = range?.[2] ? Math.min(Number(range[2]), st.size - 1) : st.size - 1;
  if (range && start >= st.size) return json(res, 416, undefined, { "Content-Range": `bytes */${st.size}` });
  res.writeHead(range ? 206 : 200, { "Content-Type": "application/octet-stream", "Content-Length": Math.max(0, end - start + 1), "Accept-Ranges": "bytes",
    ...(range ? { "Content-Range": `bytes ${start}-${end}/${st.size}` } : {}) });
  if (st.size === 0) return res.end();
  return pipeline(fs.createReadStream(b.path(p), { start, end, highWaterMark: 256 * 1024 }), res).catch(() => {});
}

/* The content of a form's one part; held in memory, as no adapter of ours sends it. */
async function onePart(req, boundary) {
  const pieces = [];
  for await (const d of req) pieces.push(d);
  const all = Buffer.concat(pieces), begin = all.indexOf("\r\n\r\n") + 4, end = all.lastIndexOf(`\r\n--${boundary}`);
  return all.subarray(begin, end);
}

async function postFile(b, p, user, req, res) {
  const boundary = /^multipart\/form-data;.*boundary="?([^";]+)/.exec(req.headers["content-type"] ?? "")?.[1];
  if (!boundary && !/^application\/octet-stream/.test(req.headers["content-type"] ?? "")) return json(res, 400, { code: 400, message: "no body of a known type" });
  if (fs.existsSync(b.path(p)) && fs.statSync(b.path(p)).isDirectory()) return json(res, 400, { code: 400, message: `path is a directory: ${p}` });
  try {
    b.makeFolders(path.posix.dirname(p), user);
    const source = boundary ? [await onePart(req, boundary)] : req;
    await pipeline(source, fs.createWriteStream(b.path(p), { mode: 0o666, highWaterMark: 256 * 1024 }));
    fs.chownSync(b.path(p), ...USERS[user]);
  } catch (e) {
    if (req.destroyed && !req.complete) return undefined;
    return json(res, e.code === "ENOSPC" ? 507 : 500, { code: e.code === "ENOSPC" ? 507 : 500, message: `error writing file: ${e.message}` });
  }
  return json(res, 200, [{ path: p, name: path.posix.basename(p), type: "file" }]);
}

/* ---- one request to one sandbox ---- */

/* strict: what the protocol descriptions do not have is refused, as the real one (proto3 JSON in Go) does. */
export function envd(strict, defaultUser) {
  const handler = connectNodeAdapter({
    routes(router) {
      const options = { jsonOptions: { ignoreUnknownFields: !strict } };
      router.service(types.getService("process.Process"), processService, options);
      router.service(types.getService("filesystem.Filesystem"), filesystemService, options);
    },
    contextValues: (req) => createContextValues().set(box, req.box).set(userKey, req.user),
    fallback(req, res) {
      const url = new URL(req.url, "http://envd"), p = url.searchParams.get("path");
      if (url.pathname === "/health") return json(res, 204);
      if (["/init", "/freeze"].includes(url.pathname)) return json(res, 404, { message: "This endpoint is reserved", path: url.pathname, code: 404 });
      if (url.pathname !== "/files" || !p?.startsWith("/")) return json(res, 404);
      return req.method === "GET" ? getFile(req.box, p, req, res) : req.method === "POST" ? postFile(req.box, p, req.user, req, res) : json(res, 405);
    },
  });
  return (b, token, req, res) => {
    if (token && req.headers["x-access-token"] !== token) return json(res, 401, { code: 401, message: "unauthorized access, please provide a valid access token" });
    const named = Buffer.from((req.headers.authorization ?? "").replace(/^Basic /, ""), "base64").toString().replace(/:$/, "");
    req.user = new URL(req.url, "http://envd").searchParams.get("username") || named || defaultUser;
    if (!USERS[req.user]) return json(res, 401, { code: 401, message: `invalid username: '${req.user}'` });
    req.box = b;
    return handler(req, res);
  };
}
export { json };
