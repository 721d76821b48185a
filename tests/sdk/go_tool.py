"""A Go that is new enough for the official SDK: the machine's, or, where that is older (Debian 12 ships 1.19), the release that it can fetch as a module."""
import json
import os
import platform
import re
import stat
import subprocess

GO_MIN = (1, 24)  # what tests/sdk/go/go.mod asks for
GO_RELEASE = "1.24.6"
GO_S = 600


def version_of(go):
    """(major, minor) of a go command; (0, 0) where there is none."""
    try:
        out = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60).stdout
    except OSError:
        return 0, 0
    found = re.search(r"go(\d+)\.(\d+)", out)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def fetch(work):
    """The folder of the release's toolchain module. The old go checks its sum, as it does for every module."""
    folder = os.path.join(work, "toolchain")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "go.mod"), "w", encoding="ascii") as f:
        f.write("module toolchain\n")
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    module = f"golang.org/toolchain@v0.0.1-go{GO_RELEASE}.linux-{arch}"
    done = subprocess.run(["go", "mod", "download", "-json", module], cwd=folder, capture_output=True, text=True, timeout=GO_S)
    if done.returncode != 0:
        raise OSError(f"go mod download {module}: {(done.stderr or done.stdout).strip()[-300:]}")
    return json.loads(done.stdout)["Dir"]


def executable(root):
    """A module's files come without execute bits; go's own switch to a newer release sets them too."""
    for folder in ("bin", os.path.join("pkg", "tool")):
        for path, _, files in os.walk(os.path.join(root, folder)):
            for name in files:
                file = os.path.join(path, name)
                os.chmod(file, os.stat(file).st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def go(work):
    """The command to build with; OSError that says why there is none."""
    have = version_of("go")
    if have >= GO_MIN:
        return "go"
    if have == (0, 0):
        raise OSError("no go on this machine (Debian: apt-get install golang-go)")
    root = fetch(work)
    executable(root)
    return os.path.join(root, "bin", "go")
