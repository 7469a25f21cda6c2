"""The root of a container of the pipeline's image, and Beam's workers in it.

The root contains what deploy/docker/Dockerfile copies, the packages of .venv at the image's path, and the interpreter
and libraries of this machine. The tests, the checkout, the home folder and the environment variables of this machine
are not in it. So a worker can load only what it could load in the image.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.servers.flink_cluster import ENGINES, accepts_connections, free_ports

ROOT = Path(__file__).parents[3]
BOOT = ENGINES / "bin" / "boot"
needs_containers = pytest.mark.skipif(
    os.geteuid() != 0 or not BOOT.exists(), reason="needs root and `make engines`, which makes the program boot"
)
_DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
_PACKAGES, _BOOT = "/opt/venv", "/opt/apache/beam/boot"
"""Paths of the packages and of Beam's program that starts a worker, in the image."""
_SECONDS = 120.0
# The arguments: the root, then each folder of this machine and its path in the root, then `--` and the command.
_ENTER = r"""
set -e
root=$1
shift
mount --make-rprivate /
while [ "$1" != -- ]; do
  mount --bind "$1" "$root$2"
  mount -o remount,bind,ro "$root$2"
  shift 2
done
shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
cd "$root"
exec chroot . /usr/bin/env --ignore-environment --chdir=/app "$@"
"""


class Container:
    """The root of a container.

    Args:
      folder: New folder for the root.
      environment: Environment variables in addition to the variables of the image. Files that they name are copied.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._root = folder
        copies, variables = _read_dockerfile()
        self._environment = {**variables, **environment, "HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108 - in the root
        for name in ("app", "tmp", "proc", "dev", "etc"):
            (folder / name).mkdir(parents=True)
        for source in copies:
            _copy(ROOT / source, folder / "app" / source)
        for path in environment.values():
            if path.startswith("/") and Path(path).is_file():
                _copy(Path(path), folder / path.lstrip("/"))
        _copy(BOOT, folder / _BOOT.lstrip("/"))
        # Name resolution: localhost, and the user of the processes.
        for name in ("hosts", "passwd", "group", "nsswitch.conf"):
            _copy(Path("/etc", name), folder / "etc" / name)
        self._mounts = {sys.prefix: _PACKAGES, sys.base_prefix: sys.base_prefix, "/usr": "/usr"}
        for name in ("bin", "sbin", "lib", "lib64"):
            system = Path("/", name)
            if system.is_symlink():
                (folder / name).symlink_to(system.readlink())
            elif system.exists():
                self._mounts[str(system)] = str(system)
        for target in self._mounts.values():
            (folder / target.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def command(self, *command: str) -> list[str]:
        """Return the command line that runs a command in /app of the container."""
        mounts = [word for mount in self._mounts.items() for word in mount]
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        unshare = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child")
        return [*unshare, "sh", "-c", _ENTER, "sh", str(self._root), *mounts, "--", *variables, *command]


@contextlib.contextmanager
def pool(container: Container, log: Path) -> Iterator[str]:
    """Yield the address of a pool that starts each worker as a container is started: by Beam's program `boot`.

    Args:
      container: Where the pool and the workers run.
      log: File for their output.
    """
    [port] = free_ports(1)
    module = ("python", "-m", "apache_beam.runners.worker.worker_pool_main")
    command = container.command(*module, f"--service_port={port}", f"--container_executable={_BOOT}")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + _SECONDS
        while not accepts_connections(port):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.1)
        yield f"localhost:{port}"
    finally:
        process.kill()
        process.wait()


def _read_dockerfile() -> tuple[list[str], dict[str, str]]:
    """Return what the image copies from the project's folder, and the image's environment variables."""
    text = _DOCKERFILE.read_text().rpartition("\nFROM ")[2]
    copies = [
        source for line in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+)$", text, re.M) for source in line.split()[:-1]
    ]
    [line] = re.findall(r"^ENV (.+)$", text, re.M)
    variables = dict(word.split("=", 1) for word in line.split())
    variables["PATH"] = variables["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")
    return copies, variables


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=_list_left_out)
    else:
        shutil.copy(source, target)


def _list_left_out(folder: str, names: list[str]) -> list[str]:
    """Return the names that the image leaves out: caches, and the examples' data."""
    is_data = Path(folder) == ROOT / "data"
    return [name for name in names if name == "__pycache__" or (is_data and not name.endswith(".py"))]
