"""`runner.py doctor`: check this machine and environment, and print a remedy for each problem.

Each check is a function of plain values, so that a test can describe any machine; `examine` passes the values of the
machine it runs on. It takes well below a second, because it does not import TensorFlow and TFX: it reads the versions
from the names of the installed packages' metadata folders.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.base.errors import MACHINE
from components.base.memory import memory
from pipeline.cli.local_paths import parse_local_file
from pipeline.core.machine import (
    count_visible_gpus,
    get_glibc_version,
    list_cuda_wheels,
    list_gpu_names,
    list_installed_versions,
    read_cuda_version,
    read_driver_version,
    read_locked_versions,
    system_has_cuda,
)

State = Literal["ok", "warn", "bad"]

GIB = 2**30
MIB = 2**20
CURRENT_GLIBC = (2, 39)
"""Oldest glibc that the ml-metadata and tensorflow-data-validation wheels of the current release line support."""
LOCK = Path(__file__).resolve().parents[2] / "requirements.txt"
CUDA_LOCK = LOCK.with_name("requirements-cuda.txt")
LINE = ("tfx", "tensorflow", "apache-beam")
"""The main packages of a release line."""
NVIDIA = Path("/proc/driver/nvidia")
OLDEST_DRIVER = 525
"""Oldest driver for CUDA 12, with which TensorFlow of both release lines is built.

See the section on minor version compatibility of NVIDIA's "CUDA Compatibility"."""

_SITE = ("purelib", "platlib")


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
      check: Name of the check.
      found: Value on this machine, as text.
      needed: Required value, or the purpose if the value is optional.
      state: `ok`; `warn` if runs work with limitations; `bad` if a run will fail.
      remedy: Instruction that fixes the problem; empty if the state is `ok`.
    """

    check: str
    found: str
    needed: str
    state: State = "ok"
    remedy: str = ""


def examine(output: Path) -> list[Finding]:
    """Run all checks on this machine.

    Args:
      output: Folder for the outputs of runs. It does not have to exist yet.
    """
    glibc = get_glibc_version()
    home = Path(os.environ.get("CLOUDSDK_CONFIG", "~/.config/gcloud")).expanduser()
    folders = {Path(sysconfig.get_path(kind)) for kind in _SITE}
    installed = list_installed_versions(folders)
    gpus = list_gpu_names(NVIDIA / "gpus", Path("/dev"))
    return [
        check_python(sys.version_info[:3]),
        check_glibc(glibc, sys.version_info[:2]),
        check_packages(read_locked_versions(LOCK), installed),
        check_cores(len(os.sched_getaffinity(0))),
        check_memory(*memory()),
        check_folder("output folder", output, 5 * GIB, "--output DIR lets a run write elsewhere"),
        check_folder("temporary folder", Path(tempfile.gettempdir()), GIB, "TMPDIR=/another/folder moves it"),
        check_folder("shared memory", Path("/dev/shm"), 64 * MIB, "in a container, start it with --shm-size=1g"),  # noqa: S108
        check_credentials(os.environ, home),
        check_gpus(gpus, os.environ.get("CUDA_VISIBLE_DEVICES")),
        *(_check_gpu_software(folders, installed) if gpus else []),
        check_pip(importlib.util.find_spec("pip") is not None),
        check_compiler(shutil.which("g++")),
    ]


def check_python(version: Sequence[int]) -> Finding:
    """Check the interpreter: Python 3.10 for the older release line, or 3.11 to 3.13 for the current release line."""
    is_supported = (3, 10) <= tuple(version[:2]) <= (3, 13)
    return Finding(
        "Python",
        f"{'.'.join(map(str, version))} in {sys.prefix}",
        "3.10 to 3.13",
        "ok" if is_supported else "bad",
        "" if is_supported else "run make setup, which builds .venv with a supported Python; then use .venv/bin/python",
    )


def check_glibc(glibc: tuple[int, int] | None, python: Sequence[int]) -> Finding:
    """Check the C library. Wheels of the current release line need a newer glibc than wheels of the older line.

    Args:
      glibc: (Major, minor) version of glibc; None if the system uses another C library.
      python: Version of the interpreter, which determines the release line.
    """
    minimum = CURRENT_GLIBC if tuple(python[:2]) >= (3, 11) else (2, 17)
    needed = f"{_format_version(minimum)} for Python {_format_version(python[:2])}"
    if glibc is None:
        return Finding(
            "glibc", "another C library", needed, "bad", "use Debian or Ubuntu, or one of their container images"
        )
    if glibc < minimum:
        remedy = (
            "rm -rf .venv && make setup installs Python 3.10 and the older line"
            if minimum == CURRENT_GLIBC
            else "use a newer system: at least Debian 12 or Ubuntu 22.04"
        )
        return Finding("glibc", _format_version(glibc), needed, "bad", remedy)
    return Finding("glibc", _format_version(glibc), needed)


def check_packages(locked: Mapping[str, str], installed: Mapping[str, str]) -> Finding:
    """Compare the installed packages with the lock file.

    Args:
      locked: Package → version in the lock file for this interpreter; empty if the lock file is missing.
      installed: Package → version in the environment.
    """
    line = ", ".join(f"{name} {installed.get(name, 'missing')}" for name in LINE)
    if not locked:
        return Finding("TFX line", line, "a lock", "warn", f"{LOCK.name} is missing: copy it from the repository")
    needed = ", ".join(f"{name} {locked.get(name)}" for name in LINE) + f"; {len(locked)} packages as locked"
    wrong = [name for name, version in locked.items() if installed.get(name) != version]
    if not wrong:
        return Finding("TFX line", line, needed)
    differences = "; ".join(f"{name} {installed.get(name, 'missing')}, expected {locked[name]}" for name in wrong[:3])
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    # Runs depend on the exact versions of the main packages. Users may change the version of any other package.
    state: State = "bad" if set(LINE) & set(wrong) else "warn"
    return Finding("TFX line", f"{line}; {differences}{more}", needed, state, "rm -rf .venv && make setup")


def check_cores(count: int) -> Finding:
    """Check the number of cores that this process may use."""
    is_enough = count >= 2
    return Finding(
        "cores",
        str(count),
        "2 or more",
        "ok" if is_enough else "warn",
        "" if is_enough else "runs work, but slowly; set runtime.parallel_nodes=1 to run one node at a time",
    )


def check_memory(total: int, available: int) -> Finding:
    """Check the memory of the machine or its container.

    Args:
      total: Total memory in bytes.
      available: Free memory in bytes.
    """
    state: State = "bad" if available < 2 * GIB else "warn" if available < 4 * GIB else "ok"
    remedy = "" if state == "ok" else "end other programs, or give the machine or container more memory"
    return Finding("memory", f"{_format_size(available)} free of {_format_size(total)}", "4 GiB free", state, remedy)


def check_folder(check: str, folder: Path, needed: int, otherwise: str) -> Finding:
    """Check that a folder is writable and has free space.

    Args:
      check: Name of the check.
      folder: The folder. If it does not exist, its nearest existing parent is checked instead.
      needed: Free space in bytes below which the state is `warn`. Below a fifth of it, the state is `bad`.
      otherwise: Remedy other than freeing space in this folder.
    """
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    requirement = f"writable, {_format_size(needed)} free"
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        problem = "cannot be written" if existing.is_dir() else "is a file"
        return Finding(check, f"{existing} {problem}", requirement, "bad", f"fix its permissions, or: {otherwise}")
    free = shutil.disk_usage(existing).free
    state: State = "ok" if free >= needed else "warn" if free >= needed / 5 else "bad"
    remedy = "" if state == "ok" else f"free some space, or: {otherwise}"
    return Finding(check, f"{_format_size(free)} free in {folder}", requirement, state, remedy)


def check_credentials(environ: Mapping[str, str], gcloud: Path) -> Finding:
    """Check whether Google Cloud credentials exist, without reading them.

    Args:
      environ: Environment variables.
      gcloud: Folder into which `gcloud auth application-default login` writes credentials.
    """
    needed = "for gs:// and Vertex only"
    key_file = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if key_file and not Path(key_file).is_file():
        return Finding(
            "credentials",
            f"GOOGLE_APPLICATION_CREDENTIALS={key_file}, which is not a file",
            needed,
            "bad",
            "point the variable at the key file, or unset it",
        )
    if key_file:
        return Finding("credentials", f"GOOGLE_APPLICATION_CREDENTIALS={key_file}", needed)
    if (gcloud / "application_default_credentials.json").is_file():
        return Finding("credentials", "gcloud's application default", needed)
    return Finding("credentials", "not set", needed)


def check_gpus(names: Sequence[str], visible: str | None) -> Finding:
    """Report the GPUs and how `training.strategy` uses them. GPUs are optional.

    Args:
      names: Names of the GPUs that the driver lists.
      visible: Value of CUDA_VISIBLE_DEVICES, which selects GPUs by number or name. If None, the variable is not set,
        and all GPUs are visible.
    """
    if not names:
        return Finding("GPUs", "none", "none: training on CPUs works")
    gpus = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    count = len(names) if visible is None else count_visible_gpus(visible, len(names))
    if visible is not None:
        gpus += f"; CUDA_VISIBLE_DEVICES={visible} shows {count}"
    if not count:
        remedy = "unset CUDA_VISIBLE_DEVICES to train on them"
        return Finding("GPUs", gpus, "none: training on CPUs works", "warn", remedy)
    if count == 1:
        return Finding("GPUs", gpus, "training.strategy.kind none or mirrored: on this GPU")
    return Finding("GPUs", gpus, f"training.strategy.kind mirrored: on all {count}, by NCCL; none: on the first")


def check_gpu_driver(version: str | None, smi: str | None) -> Finding:
    """Check the driver of the GPUs.

    Args:
      version: Version of NVIDIA's kernel module; None if unknown.
      smi: Path of nvidia-smi; None if it is not installed. The pipeline does not need it.
    """
    driver = f"{version or 'of an unknown version'}, {f'nvidia-smi at {smi}' if smi else 'no nvidia-smi'}"
    needed = f"{OLDEST_DRIVER} or newer, for CUDA 12"
    if version is not None and int(version.split(".")[0]) < OLDEST_DRIVER:
        return Finding("GPU driver", driver, needed, "warn", "install a newer driver; until then training uses CPUs")
    return Finding("GPU driver", driver, needed)


def check_cuda(cuda: str | None, tensorflow: str | None, missing: Sequence[str], system: bool) -> Finding:
    """Check CUDA's libraries, which TensorFlow loads from installed wheels or from the system.

    Args:
      cuda: CUDA version that the installed TensorFlow was built with; None if it was built for CPUs.
      tensorflow: Version of TensorFlow; None if it is not installed.
      missing: CUDA packages that this TensorFlow needs but that are not installed.
      system: Whether CUDA's libraries are installed system-wide.
    """
    needed = "for training on GPUs"
    if cuda is None:
        problem = "TensorFlow is missing" if tensorflow is None else f"tensorflow {tensorflow} is built for CPUs"
        return Finding("CUDA", problem, needed, "warn", "rm -rf .venv && make setup")
    built = f"tensorflow {tensorflow} is built with CUDA {cuda}"
    if missing and not system:
        remedy = f"{sys.executable} -m pip install -r {CUDA_LOCK.name}; until then training uses CPUs"
        return Finding("CUDA", f"{built}, and its libraries are missing", needed, "warn", remedy)
    where = "the system has its libraries" if missing else "its wheels are installed"
    return Finding("CUDA", f"{built}; {where}", needed)


def check_pip(installed: bool) -> Finding:
    """Check that pip is installed in the environment. Only the module_file of stock TFX components needs it."""
    if installed:
        return Finding("pip", "in the environment", "for stock TFX's module_file only")
    remedy = "rm -rf .venv && make setup installs it"
    return Finding("pip", "missing", "for stock TFX's module_file only", "warn", remedy)


def check_compiler(path: str | None) -> Finding:
    """Check the C++ compiler. Creating .venv compiles one small package."""
    if path:
        return Finding("g++", path, "to create .venv")
    return Finding("g++", "missing", "to create .venv", "warn", "apt-get install g++ before the next make setup")


def _check_gpu_software(folders: Iterable[Path], installed: Mapping[str, str]) -> list[Finding]:
    """Check the driver and CUDA, on a machine with GPUs.

    Args:
      folders: The site-packages folders.
      installed: Package → version in the environment.
    """
    missing = [name for name in list_cuda_wheels(folders) if name not in installed]
    system = system_has_cuda(Path("/etc/ld.so.cache"), os.environ.get("LD_LIBRARY_PATH", ""))
    return [
        check_gpu_driver(read_driver_version(NVIDIA / "version"), shutil.which("nvidia-smi")),
        check_cuda(read_cuda_version(folders), installed.get("tensorflow"), missing, system),
    ]


def _format_size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def _format_version(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


HELP = "Check Python, glibc, the TFX line, memory, disk and credentials, and print a remedy for each problem."
EXAMPLE = "python runner.py doctor --output /data/out"

_COLORS: dict[State, str] = {"ok": "green", "warn": "yellow", "bad": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", type=parse_local_file, default=Path("out"), metavar="DIR", help="where runs will write"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(args: argparse.Namespace) -> int:
    """Print the findings. Return 0 if a run can start, or 1 if the user must fix a problem first."""
    findings = examine(args.output)
    states = {finding.state for finding in findings}
    console = Console()
    if args.json:
        worst: State = "bad" if "bad" in states else "warn" if "warn" in states else "ok"
        report = {"state": worst, "findings": [asdict(finding) for finding in findings]}
        console.out(json.dumps(report), highlight=False)
    else:
        _show(findings, console)
    return MACHINE if "bad" in states else 0


def _show(findings: list[Finding], console: Console) -> None:
    table = Table("check", "found", "needed", "state")
    for finding in findings:
        color = _COLORS[finding.state]
        table.add_row(
            finding.check, escape(finding.found), escape(finding.needed), f"[{color}]{finding.state}[/{color}]"
        )
    console.print(table)
    for finding in findings:
        if finding.remedy:
            console.print(f"{finding.check}: {finding.remedy}", highlight=False, markup=False, soft_wrap=True)
