"""Looks at this machine and environment, and says what is wrong with it and how to mend it, in a blink.

Each check is a function of plain values, so a test can hand it a machine that is not there; `examine` feeds them
the real one. Nothing of TensorFlow or TFX is imported: their versions stand in the names of the installed metadata.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.markers import Marker
from packaging.utils import canonicalize_name

State = Literal["ok", "warn", "bad"]

GIB = 2**30
MIB = 2**20
CURRENT_GLIBC = (2, 39)
"""What the ml-metadata and tensorflow-data-validation wheels of the current line are built for."""
LOCK = Path(__file__).resolve().parents[1] / "requirements.txt"
LINE = ("tfx", "tensorflow", "apache-beam")
"""The packages by which people name a release line."""

_SITE = ("purelib", "platlib")
_LOCKED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?$")


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
      check: what was looked at.
      found: what is there.
      needed: what has to be there, or what it is needed for.
      state: `ok`; `warn`: works, but not all of it or not well; `bad`: a run will fail.
      remedy: how to mend it; empty where the state is `ok`.
    """

    check: str
    found: str
    needed: str
    state: State = "ok"
    remedy: str = ""


def examine(output: Path) -> list[Finding]:
    """All findings about this machine.

    Args:
      output: where runs write; it need not exist yet.
    """
    glibc = glibc_version()
    home = Path(os.environ.get("CLOUDSDK_CONFIG", "~/.config/gcloud")).expanduser()
    return [
        check_python(sys.version_info[:3]),
        check_glibc(glibc, sys.version_info[:2]),
        check_packages(locked_versions(LOCK), installed_versions({Path(sysconfig.get_path(kind)) for kind in _SITE})),
        check_cores(len(os.sched_getaffinity(0))),
        check_memory(*memory()),
        check_folder("output folder", output, 5 * GIB, "--output DIR lets a run write elsewhere"),
        check_folder("temporary folder", Path(tempfile.gettempdir()), GIB, "TMPDIR=/another/folder moves it"),
        check_folder("shared memory", Path("/dev/shm"), 64 * MIB, "in a container, start it with --shm-size=1g"),  # noqa: S108
        check_credentials(os.environ, home),
        check_gpus(gpu_names(Path("/proc/driver/nvidia/gpus"), Path("/dev"))),
        check_pip(importlib.util.find_spec("pip") is not None),
        check_compiler(shutil.which("g++")),
    ]


def check_python(version: Sequence[int]) -> Finding:
    """The interpreter: 3.10 for the older release line, 3.11 to 3.13 for the current one."""
    fits = (3, 10) <= tuple(version[:2]) <= (3, 13)
    return Finding(
        "Python",
        f"{'.'.join(map(str, version))} in {sys.prefix}",
        "3.10 to 3.13",
        "ok" if fits else "bad",
        "" if fits else "make setup builds .venv with a fitting Python; start with .venv/bin/python",
    )


def check_glibc(glibc: tuple[int, int] | None, python: Sequence[int]) -> Finding:
    """The C library: the current release line's wheels need a newer one than the older line's.

    Args:
      glibc: its version, or None where the C library is another one.
      python: the interpreter's version, which decides the line.
    """
    needed = CURRENT_GLIBC if tuple(python[:2]) >= (3, 11) else (2, 17)
    wanted = f"{_dotted(needed)} for Python {_dotted(python[:2])}"
    if glibc is None:
        return Finding("glibc", "another C library", wanted, "bad", "use Debian or Ubuntu, or a container of theirs")
    if glibc < needed:
        remedy = (
            "rm -rf .venv && make setup takes Python 3.10 and the older line"
            if needed == CURRENT_GLIBC
            else ("use a newer system: Debian 12 or Ubuntu 22.04 are enough")
        )
        return Finding("glibc", _dotted(glibc), wanted, "bad", remedy)
    return Finding("glibc", _dotted(glibc), wanted)


def check_packages(locked: Mapping[str, str], installed: Mapping[str, str]) -> Finding:
    """The installed packages against the lock; the TFX line is named by its main packages.

    Args:
      locked: version by package, as the lock has it for this interpreter; empty if there is no lock.
      installed: version by package, as the environment has it.
    """
    line = ", ".join(f"{name} {installed.get(name, 'missing')}" for name in LINE)
    if not locked:
        return Finding("TFX line", line, "a lock", "warn", f"{LOCK.name} is not there: take it from the repository")
    needed = ", ".join(f"{name} {locked.get(name)}" for name in LINE) + f"; {len(locked)} packages as locked"
    wrong = [name for name, version in locked.items() if installed.get(name) != version]
    if not wrong:
        return Finding("TFX line", line, needed)
    told = "; ".join(f"{name} {installed.get(name, 'missing')}, expected {locked[name]}" for name in wrong[:3])
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    # A run stands on the line itself; another package off the lock may be the user's own choice.
    state: State = "bad" if set(LINE) & set(wrong) else "warn"
    return Finding("TFX line", f"{line}; {told}{more}", needed, state, "rm -rf .venv && make setup")


def check_cores(count: int) -> Finding:
    """The cores that this process may use: nodes that don't depend on each other share them."""
    enough = count >= 2
    return Finding(
        "cores",
        str(count),
        "2 or more",
        "ok" if enough else "warn",
        "" if enough else "it works, slowly; set runtime.parallel_nodes=1 to run one node at a time",
    )


def check_memory(total: int, available: int) -> Finding:
    """The memory, in bytes: of the machine or of the container it is in, and what is free of it now."""
    state: State = "bad" if available < 2 * GIB else "warn" if available < 4 * GIB else "ok"
    remedy = "" if state == "ok" else "end other programs, or give the machine or container more memory"
    return Finding("memory", f"{_size(available)} free of {_size(total)}", "4 GiB free", state, remedy)


def check_folder(check: str, folder: Path, needed: int, otherwise: str) -> Finding:
    """A folder a run writes to: can it be written, and is there room?

    Args:
      check: what the folder is for.
      folder: it need not exist; then its nearest parent counts.
      needed: free bytes below which we warn; below a fifth of it, a run will likely fail.
      otherwise: what to do instead of making room.
    """
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    wanted = f"writable, {_size(needed)} free"
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        kind = "cannot be written" if there.is_dir() else "is a file"
        return Finding(check, f"{there} {kind}", wanted, "bad", f"mend its permissions, or: {otherwise}")
    free = shutil.disk_usage(there).free
    state: State = "ok" if free >= needed else "warn" if free >= needed / 5 else "bad"
    remedy = "" if state == "ok" else f"free some space, or: {otherwise}"
    return Finding(check, f"{_size(free)} free in {folder}", wanted, state, remedy)


def check_credentials(environ: Mapping[str, str], gcloud: Path) -> Finding:
    """Google Cloud's credentials; only whether they are there, never what they say.

    Args:
      environ: the environment's variables.
      gcloud: the folder where `gcloud auth application-default login` leaves them.
    """
    needed = "for gs:// and Vertex only"
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if named and not Path(named).is_file():
        return Finding(
            "credentials",
            f"GOOGLE_APPLICATION_CREDENTIALS={named}, which is no file",
            needed,
            "bad",
            "point the variable at the key file, or unset it",
        )
    if named:
        return Finding("credentials", f"GOOGLE_APPLICATION_CREDENTIALS={named}", needed)
    if (gcloud / "application_default_credentials.json").is_file():
        return Finding("credentials", "gcloud's application default", needed)
    return Finding("credentials", "not set", needed)


def check_gpus(names: Sequence[str]) -> Finding:
    """The GPUs that the driver shows; none is fine."""
    return Finding("GPUs", ", ".join(names) or "none", "none: training on CPUs works")


def check_pip(there: bool) -> Finding:
    """Whether pip lies in the environment: our own pipelines do without."""
    if there:
        return Finding("pip", "in the environment", "for stock TFX's module_file only")
    remedy = "rm -rf .venv && make setup brings it back"
    return Finding("pip", "missing", "for stock TFX's module_file only", "warn", remedy)


def check_compiler(path: str | None) -> Finding:
    """The C++ compiler: one small package is compiled when .venv is made."""
    if path:
        return Finding("g++", path, "to make .venv")
    return Finding("g++", "missing", "to make .venv", "warn", "apt-get install g++ before the next make setup")


def glibc_version() -> tuple[int, int] | None:
    """The running C library's version, or None where it is not glibc."""
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (OSError, ValueError):
        return None
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) if name == "glibc" else None


def locked_versions(lock: Path) -> dict[str, str]:
    """Version by package, for this interpreter, from a requirements file with markers; empty if there is none."""
    if not lock.is_file():
        return {}
    found = (_LOCKED.match(line) for line in lock.read_text(encoding="utf-8").splitlines() if line[:1].isalnum())
    return {
        canonicalize_name(match["name"]): match["version"]
        for match in found
        if match and (match["marker"] is None or Marker(match["marker"]).evaluate())
    }


def installed_versions(folders: Iterable[Path]) -> dict[str, str]:
    """Version by package, from the names of the metadata folders beside the packages.

    importlib.metadata reads and parses a file for each version it tells: a third of a second for all of them.
    """
    names = (path.name.removesuffix(".dist-info") for folder in folders for path in folder.glob("*.dist-info"))
    pairs = (name.rpartition("-") for name in names)
    return {canonicalize_name(name): version for name, _, version in pairs}


def memory() -> tuple[int, int]:
    """Bytes of memory this process may use, in all and free now; a container's own limit counts."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    sizes = {key: int(value.split()[0]) * 1024 for key, value in (line.split(":") for line in text.splitlines())}
    total, available = sizes["MemTotal"], sizes["MemAvailable"]
    limit, used = _control_group("memory.max"), _control_group("memory.current")
    if limit is None or used is None:
        return total, available
    return min(total, limit), min(available, max(0, limit - used))


def gpu_names(driver: Path, devices: Path) -> list[str]:
    """The GPUs' models.

    Args:
      driver: where NVIDIA's driver tells about each GPU in a folder of its own.
      devices: the device nodes; all that some containers have.
    """
    told = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(driver.glob("*/information"))]
    models = [found[1].strip() for text in told if (found := re.search(r"^Model:(.*)$", text, re.MULTILINE))]
    return models or [path.name for path in sorted(devices.glob("nvidia[0-9]*"))]


def _control_group(name: str) -> int | None:
    """A number of this container's control group; None where it has none or says `max`."""
    path = Path("/sys/fs/cgroup") / name
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
