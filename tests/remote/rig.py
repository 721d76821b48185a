"""What the tests of remote sandbox services share: programs from registries and stand-ins, in the build folder, and a network of their own."""
import ctypes
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "sdk")]
import go_tool  # noqa: E402
from docker_rig import under_engine  # noqa: E402
from harness import BUILD, SKIPPED, wait_for  # noqa: E402

WORK = os.path.join(BUILD, "tests", "remote")
INSTALL_S = 600
CLONE_NEWNET = 0x40000000


def give_up(why):
    """Skipped with the reason; in CI that is a failure."""
    print(f"skipped: {why}")
    sys.exit(1 if os.environ.get("MANGO_TEST_SDK") == "require" else SKIPPED)


def command(argv, **more):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=False, **more)
    if done.returncode != 0:
        raise OSError(f"{' '.join(argv[:4])}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def stamped(name, wanted, make):
    """Runs make() once for this content. Tests run side by side: one makes it, the others wait."""
    os.makedirs(WORK, exist_ok=True)
    with open(os.path.join(WORK, name), "a+", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        if f.read() == wanted:
            return
        f.truncate(0)
        make()
        f.write(wanted)


def standin():
    """The stand-in program; static, so that it runs in any image. It has no dependencies: nothing is fetched but, perhaps, Go itself."""
    source, out = os.path.join(HERE, "standin"), os.path.join(WORK, "standin")
    texts = []
    for name in sorted(os.listdir(source)):
        with open(os.path.join(source, name), encoding="utf-8") as f:
            texts.append(f.read())

    def make():
        env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        command([go_tool.go(WORK), "build", "-C", source, "-trimpath", "-ldflags=-s -w", "-o", out, "."], env=env)

    stamped("standin.stamp", "".join(texts), make)
    return out


def pip(name, packages):
    """The python of an environment with these packages."""
    folder = os.path.join(WORK, name)
    python = os.path.join(folder, "bin", "python")

    def make():
        shutil.rmtree(folder, ignore_errors=True)
        command([sys.executable, "-m", "venv", folder])
        command([python, "-m", "pip", "install", "-q", *packages])

    stamped(name + ".stamp", " ".join(packages), make)
    return python


def npm(name, packages):
    """A folder with these packages, where scripts find them."""
    folder = os.path.join(WORK, name)

    def make():
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        command(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error", *packages], cwd=folder)

    stamped(name + ".stamp", " ".join(packages), make)
    return folder


SDKS = {"opensandbox": "@alibaba-group/opensandbox@0.1.11", "daytona": "@daytonaio/sdk@0.218.0"}


def sdk(service):
    """The folder with the official TypeScript client of the service and the script that drives it."""
    folder = npm("sdk-" + service, [SDKS[service]])
    name = service + "_sdk_check.mjs"
    shutil.copy(os.path.join(HERE, name), os.path.join(folder, name))
    return folder


def prepared(make):
    """What make() gives; where a registry cannot be reached, the test is skipped and says so."""
    try:
        return make()
    except (OSError, subprocess.TimeoutExpired) as e:
        return give_up(str(e))


def enter_engine():
    """This process sees the network of the Engine's containers, and no other. Threads that run already do not."""
    pid = os.environ.get("MANGO_TEST_DOCKER_PID")
    if os.environ.get("MANGO_TEST_DOCKER") != "own" or not pid:
        return  # somebody else's Engine is on this machine's network already
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if libc.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(fd)


def has_bridge():
    return bool(subprocess.run(["docker", "network", "ls", "-q", "--filter", "name=^bridge$"], capture_output=True, text=True, check=False).stdout)


def with_libraries(program):
    """path in the image -> path here, of a program of this machine and what it loads."""
    path = os.path.realpath(shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") or "")
    out = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    libraries = [w for line in out.splitlines() for w in line.split() if w.startswith("/")]
    return {"/bin/" + program: path, **{lib: os.path.realpath(lib) for lib in libraries}}


def image(name, base, files, *changes):
    """An image of base with files: path in the image -> path here. changes: lines of a Dockerfile."""
    made = subprocess.run(["docker", "create", base, "true"], check=True, capture_output=True, text=True).stdout.strip()
    for path, here in files.items():
        subprocess.run(["docker", "cp", "-q", here, f"{made}:{path}"], check=True, capture_output=True)
    subprocess.run(["docker", "commit", *[w for c in changes for w in ("--change", c)], made, name], check=True, capture_output=True)
    subprocess.run(["docker", "rm", made], check=True, capture_output=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def conformance(test, name, env, timeout):
    """The whole suite passes; what it printed, with its errors."""
    done = subprocess.run(
        [os.path.join(BUILD, "mango"), "conformance", name, "--live"],
        env={**os.environ, **env, f"MANGO_LIVE_{name.upper()}": "local", "MANGO_PLUGIN_DIR": os.path.join(BUILD, "plugins", "loadable")},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    print(done.stdout)
    test.assertEqual(done.returncode, 0, done.stderr)
    test.assertIn(" 0 failed", done.stdout)
    test.assertNotIn("add --live", done.stdout)
    return done.stdout + done.stderr


class Service:
    """A server of a service, as long as the block lasts. env: what the plugin needs to find it."""

    mark, needs_bridge, env = "", False, {}  # mark: the label of its containers
    ends_within_s = 0  # that a container is still there when its end has been told

    def __init__(self, name, argv, port, env=None):
        os.makedirs(WORK, exist_ok=True)
        self.log = os.path.join(WORK, name + ".log")
        self.url = f"http://127.0.0.1:{port}"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        try:
            wait_for(name, lambda: self.process.poll() is not None or listens(port), 60, 0.05)
        except AssertionError:
            self.end()
            raise
        if self.process.poll() is not None:
            raise AssertionError(f"{name} ended: {self.tail()}")

    def tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()[-3000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def left(self):
        """What of the service is on the Engine: the witness beside the service's own list."""
        out = subprocess.run(["docker", "ps", "-a", "--filter", "label=" + self.mark, "--format", "{{.Names}} {{.Status}}"], check=True, capture_output=True, text=True).stdout
        return out.splitlines()

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


__all__ = ["BUILD", "HERE", "Service", "WORK", "conformance", "enter_engine", "free_port", "give_up", "has_bridge", "image", "npm", "pip", "prepared", "sdk", "standin", "time",
           "under_engine", "wait_for", "with_libraries"]
