"""Looks at this machine and environment, and says what is wrong with it and how to mend it, in a blink.

Each check is a function of plain values, so a test can hand it a machine that is not there; `examine` feeds them
the real one. Nothing of TensorFlow or TFX is imported: their versions stand in the names of the installed metadata.
"""

from __future__ import annotations

import importlib.metadata
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
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

State = Literal["ok", "warn", "bad"]

GIB = 2**30
MIB = 2**20
CURRENT_GLIBC = (2, 39)
"""What the ml-metadata and tensorflow-data-validation wheels of the current line are built for."""
LOCK = Path(__file__).resolve().parents[1] / "requirements.txt"
LINE = ("tfx", "tensorflow", "apache-beam")
"""The packages by which people name a release line."""
NVIDIA = Path("/proc/driver/nvidia")
OLDEST_DRIVER = 525
"""Both lines' TensorFlow is built with CUDA 12; see NVIDIA's "CUDA Compatibility", minor version compatibility."""

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
    folders = {Path(sysconfig.get_path(kind)) for kind in _SITE}
    installed = installed_versions(folders)
    gpus = gpu_names(NVIDIA / "gpus", Path("/dev"))
    return [
        check_python(sys.version_info[:3]),
        check_glibc(glibc, sys.version_info[:2]),
        check_packages(locked_versions(LOCK), installed),
        check_cores(len(os.sched_getaffinity(0))),
        check_memory(*memory()),
        check_folder("output folder", output, 5 * GIB, "--output DIR lets a run write elsewhere"),
        check_folder("temporary folder", Path(tempfile.gettempdir()), GIB, "TMPDIR=/another/folder moves it"),
        check_folder("shared memory", Path("/dev/shm"), 64 * MIB, "in a container, start it with --shm-size=1g"),  # noqa: S108
        check_credentials(os.environ, home),
        check_gpus(gpus, os.environ.get("CUDA_VISIBLE_DEVICES")),
        *(_with_gpus(folders, installed) if gpus else []),
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


def check_gpus(names: Sequence[str], visible: str | None) -> Finding:
    """The GPUs, and what `training.strategy` makes of them; none is fine.

    Args:
      names: of those that the driver shows.
      visible: CUDA_VISIBLE_DEVICES: the numbers or names of those that CUDA shows to programs; None where it is not
        set, and then it shows all.
    """
    if not names:
        return Finding("GPUs", "none", "none: training on CPUs works")
    found = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    count = len(names) if visible is None else visible_gpus(visible, len(names))
    if visible is not None:
        found += f"; CUDA_VISIBLE_DEVICES={visible} shows {count}"
    if not count:
        remedy = "unset CUDA_VISIBLE_DEVICES to train on them"
        return Finding("GPUs", found, "none: training on CPUs works", "warn", remedy)
    if count == 1:
        return Finding("GPUs", found, "training.strategy.kind none or mirrored: on the one")
    return Finding("GPUs", found, f"training.strategy.kind mirrored: on all {count}, by NCCL; none: on the first")


def check_gpu_driver(version: str | None, smi: str | None) -> Finding:
    """The GPUs' driver.

    Args:
      version: of NVIDIA's kernel module; None where it does not tell.
      smi: the path of nvidia-smi, if it is there; nothing of ours needs it.
    """
    found = f"{version or 'of an unknown version'}, {f'nvidia-smi at {smi}' if smi else 'no nvidia-smi'}"
    needed = f"{OLDEST_DRIVER} or newer, for CUDA 12"
    if version is not None and int(version.split(".")[0]) < OLDEST_DRIVER:
        return Finding("GPU driver", found, needed, "warn", "install a newer driver; until then training is on CPUs")
    return Finding("GPU driver", found, needed)


def check_cuda(cuda: str | None, tensorflow: str | None, missing: Sequence[str], system: bool) -> Finding:
    """CUDA's libraries: TensorFlow finds them in wheels beside itself, or among the system's libraries.

    Args:
      cuda: the version that the installed TensorFlow was built with; None where it was built for CPUs.
      tensorflow: TensorFlow's own version; None where it is not installed.
      missing: of the packages that this TensorFlow takes CUDA from, those that are not installed.
      system: whether the system has libraries of CUDA of its own.
    """
    needed = "for training on GPUs"
    if cuda is None:
        found = "TensorFlow is missing" if tensorflow is None else f"tensorflow {tensorflow} is built for CPUs"
        return Finding("CUDA", found, needed, "warn", "rm -rf .venv && make setup")
    built = f"tensorflow {tensorflow} is built with CUDA {cuda}"
    if missing and not system:
        remedy = f"{sys.executable} -m pip install 'tensorflow[and-cuda]=={tensorflow}'; until then training is on CPUs"
        return Finding("CUDA", f"{built}, and its libraries are missing", needed, "warn", remedy)
    return Finding("CUDA", f"{built}; {'the system has its libraries' if missing else 'its wheels are there'}", needed)


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


def visible_gpus(visible: str, count: int) -> int:
    """How many of so many GPUs CUDA_VISIBLE_DEVICES shows.

    As CUDA reads it: numbers or names (GPU-…, MIG-…), and the first that is none of them ends the list.
    """
    shown = 0
    for each in (part.strip() for part in visible.split(",")):
        if not (each.isdecimal() and int(each) < count) and not each.startswith(("GPU-", "MIG-")):
            break
        shown += 1
    return shown


def driver_version(file: Path) -> str | None:
    """The version of NVIDIA's kernel module, from the file in which it tells it; None if it does not.

    Its line names the module in changing words, and the version is the first number with points in it.
    """
    if not file.is_file():
        return None
    found = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", file.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else None


def cuda_version(folders: Iterable[Path]) -> str | None:
    """The CUDA version that the installed TensorFlow was built with, read from its file; None where there is none."""
    for folder in folders:
        file = folder / "tensorflow" / "python" / "platform" / "build_info.py"
        if file.is_file() and (found := re.search(r"'cuda_version', '([\d.]+)'", file.read_text(encoding="utf-8"))):
            return found[1]
    return None


def cuda_wheels(folders: Iterable[Path]) -> list[str]:
    """The packages that the installed TensorFlow takes CUDA from: its extra `and-cuda`."""
    found = importlib.metadata.distributions(name="tensorflow", path=[str(folder) for folder in folders])
    told = (Requirement(line) for one in found for line in one.requires or [])
    return [
        canonicalize_name(each.name)
        for each in told
        if each.marker and each.marker.evaluate({"extra": "and-cuda"}) and not each.marker.evaluate({"extra": ""})
    ]


def system_has_cuda(cache: Path, folders: str) -> bool:
    """Whether the dynamic linker finds cuDNN, the library that is installed last of all.

    Args:
      cache: the linker's own list of libraries.
      folders: LD_LIBRARY_PATH, where it looks before.
    """
    if any(any(Path(folder).glob("libcudnn.so*")) for folder in folders.split(":") if folder):
        return True
    return cache.is_file() and b"libcudnn.so" in cache.read_bytes()


def _with_gpus(folders: Iterable[Path], installed: Mapping[str, str]) -> list[Finding]:
    """What matters only where there are GPUs."""
    missing = [name for name in cuda_wheels(folders) if name not in installed]
    system = system_has_cuda(Path("/etc/ld.so.cache"), os.environ.get("LD_LIBRARY_PATH", ""))
    return [
        check_gpu_driver(driver_version(NVIDIA / "version"), shutil.which("nvidia-smi")),
        check_cuda(cuda_version(folders), installed.get("tensorflow"), missing, system),
    ]


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
