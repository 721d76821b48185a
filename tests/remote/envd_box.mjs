// Sandboxes of the stand-in: namespaces of their own for processes, files and the network, in which real programs run.
// Needs root and bubblewrap. A sandbox has no network at all, whatever its settings: those are looked at, not enforced here.
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

export const USERS = { root: [0, 0], user: [1000, 1000] };

const FOLDERS = ["tmp", "var/tmp", "home/user", "root", "run", "proc", "dev", "usr", "etc"];
const LINKS = ["bin", "sbin", "lib", "lib64", "lib32"].filter((n) => fs.existsSync(`/${n}`));

/* Every process of a namespace, as this machine numbers them. */
function processesOf(pid) {
  let mine;
  try {
    mine = fs.readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return [];
  }
  return fs.readdirSync("/proc").filter((p) => /^\d+$/.test(p)).map(Number).filter((p) => {
    try {
      return fs.readlinkSync(`/proc/${p}/ns/pid`) === mine;
    } catch {
      return false;
    }
  });
}

export class Box {
  constructor(folder, from) {
    this.folder = folder;
    this.root = path.join(folder, "root");
    this.processes = new Map();
    if (from) {
      spawnSync("cp", ["-a", from, folder]);
    } else {
      for (const f of FOLDERS) fs.mkdirSync(path.join(this.root, f), { recursive: true });
      for (const f of ["tmp", "var/tmp"]) fs.chmodSync(path.join(this.root, f), 0o1777);
      fs.chownSync(path.join(this.root, "home/user"), 1000, 1000);
    }
  }

  start() {
    const args = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--bind", this.root, "/", "--ro-bind", "/usr",
      "/usr", "--ro-bind", "/etc", "/etc", ...LINKS.flatMap((l) => ["--ro-bind", `/${l}`, `/${l}`]), "--proc", "/proc", "--dev", "/dev", "--info-fd", "3",
      "sh", "-c", "echo ready; exec sleep infinity"];
    this.holder = spawn("bwrap", args, { stdio: ["ignore", "pipe", "inherit", "pipe"] });
    return new Promise((resolve, reject) => {
      let text = "", ready = false;
      const settle = () => this.pid && ready && resolve(this);
      this.holder.once("error", reject);
      this.holder.stdout.once("data", () => {
        ready = true;
        settle();
      });
      this.holder.once("exit", (code) => reject(new Error(`bwrap ended with ${code}`)));
      this.holder.stdio[3].on("data", (d) => {
        text += d;
        const m = /"child-pid": *(\d+)/.exec(text);
        if (!m) return;
        this.pid = Number(m[1]);
        settle();
      });
    });
  }

  /* The path as this machine has it. */
  path(p) {
    return path.join(this.root, path.posix.normalize("/" + p));
  }

  makeFolders(dir, user) {
    const at = this.path(dir);
    const missing = [];
    for (let p = at; !fs.existsSync(p) && p !== this.root; p = path.dirname(p)) missing.unshift(p);
    for (const p of missing) {
      fs.mkdirSync(p);
      fs.chownSync(p, ...USERS[user]);
    }
  }

  spawn(cmd, args, { cwd, envs, user, stdin }) {
    const [uid, gid] = USERS[user];
    const env = { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME: uid ? "/home/user" : "/root", USER: user, LOGNAME: user, ...envs };
    const inside = ["-t", String(this.pid), "-m", "-p", "-n", "-i", "-u", "-r", "-w", "-S", String(uid), "-G", String(gid), "--", "/bin/sh", "-c",
      'cd "$1" && shift && exec "$@"', "--", cwd, cmd, ...args];
    return spawn("nsenter", inside, { env, stdio: [stdin ? "pipe" : "ignore", "pipe", "pipe"] });
  }

  /* The leader of a command, and nothing else of it: as the real one does. */
  signal(pid, signal) {
    try {
      const child = fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "ascii").trim().split(" ")[0];
      process.kill(Number(child || pid), signal);
      return true;
    } catch {
      return false;
    }
  }

  pause(on) {
    for (const p of processesOf(this.pid)) {
      try {
        process.kill(p, on ? "SIGSTOP" : "SIGCONT");
      } catch {
        /* it has ended meanwhile */
      }
    }
  }

  end() {
    this.holder.removeAllListeners("exit");
    try {
      process.kill(this.pid, "SIGKILL");
    } catch {
      /* it has ended */
    }
    return new Promise((resolve) => {
      this.holder.once("exit", () => fs.rm(this.folder, { recursive: true, force: true }, resolve));
      if (this.holder.exitCode !== null || this.holder.signalCode !== null) fs.rm(this.folder, { recursive: true, force: true }, resolve);
    });
  }
}
