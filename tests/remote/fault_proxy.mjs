// Stands between a client and a service: writes down every request, and spoils the one that it is told to.
//   node fault_proxy.mjs UPSTREAM_URL...     prints the ports in that order, and the port for its own orders
//
//   POST /spoil?kind=KIND&nth=N[&from=PREFIX]   the N-th request (from 0) from now on; an empty KIND spoils none
//   GET /log                                    what has come since: plane, method, path, headers, body (base64)
import http from "node:http";

const DELAY_MS = 700, BODY_MAX = 1 << 20, PAGE = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
let kind = "", nth = -1, count = 0, log = [];

function answer(res, status, type, text, headers = {}) {
  res.writeHead(status, { "Content-Type": type, "Content-Length": Buffer.byteLength(text), ...headers });
  res.end(text);
}

const before = {
  cut: (req) => req.socket.destroy(),
  429: (req, res) => answer(res, 429, "application/json", '{"code":429,"message":"Rate limit exceeded"}', { "Retry-After": "1" }),
  500: (req, res) => answer(res, 500, "application/json", '{"code":500,"message":"internal error"}'),
  502: (req, res) => answer(res, 502, "text/html", PAGE),
};

/* Half of what comes first, then nothing more. */
function truncated(up, res) {
  up.once("data", (d) => {
    res.write(d.subarray(0, d.length >> 1), () => res.socket?.destroy());
    up.destroy();
  });
  up.once("end", () => res.socket?.destroy());
}

function forward(req, res, upstream, spoil) {
  const target = new URL(upstream);
  const out = http.request({ host: target.hostname, port: target.port, method: req.method, path: req.url, headers: req.headers, agent: false }, (up) => {
    if (spoil === "lost") { // it has happened, and nobody hears of it
      up.once("end", () => req.socket.destroy()).resume();
      if (/connect/.test(up.headers["content-type"] ?? "")) up.once("data", () => req.socket.destroy());
      return;
    }
    const headers = { ...up.headers };
    res.writeHead(up.statusCode, headers);
    if (spoil === "truncated") return truncated(up, res);
    up.pipe(res);
    up.on("error", () => res.socket?.destroy());
  });
  out.on("error", () => req.socket.destroy());
  res.on("close", () => out.destroy());
  req.pipe(out);
}

function front(upstream, plane) {
  return http.createServer({ requestTimeout: 0 }, (req, res) => {
    const n = count++, mine = n === nth ? kind : "", pieces = [];
    let size = 0;
    req.on("data", (d) => {
      if ((size += d.length) <= BODY_MAX) pieces.push(d);
    });
    const entry = { plane, method: req.method, path: req.url, headers: req.headers };
    log.push(entry);
    req.on("close", () => (entry.body = Buffer.concat(pieces).toString("base64")));
    req.on("error", () => {});
    res.on("error", () => {});
    if (before[mine]) {
      if (mine === "cut") return before.cut(req, res);
      return req.resume().once("end", () => before[mine](req, res));
    }
    if (mine !== "delay") return forward(req, res, upstream, mine);
    req.pause();
    return setTimeout(() => forward(req, res, upstream, ""), DELAY_MS);
  });
}

const orders = http.createServer((req, res) => {
  const url = new URL(req.url, "http://x");
  if (url.pathname === "/spoil") {
    kind = url.searchParams.get("kind");
    nth = kind ? Number(url.searchParams.get("nth")) : -1;
    count = 0;
    log = [];
    return answer(res, 200, "application/json", "{}");
  }
  return answer(res, 200, "application/json", JSON.stringify(log));
});

const servers = [...process.argv.slice(2).map(front), orders];
for (const s of servers) await new Promise((r) => s.listen(0, "127.0.0.1", r));
console.log(JSON.stringify(servers.map((s) => s.address().port)));
process.stdin.on("end", () => process.exit(0)).resume();
