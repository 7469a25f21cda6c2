"""`runner.py doctor`: checks this machine and environment, and prints a remedy for each problem.

Each check is a function of plain values, so that a test can describe any machine; `examine` calls them with the values
of this one. It takes well below a second: TensorFlow and TFX are not imported, their versions are read from the names
of the installed packages' metadata.
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

from components.errors import MACHINE
from components.memory import memory
from pipeline.cli.local_paths import local_file
from pipeline.core.machine import (
    cuda_version,
    cuda_wheels,
    driver_version,
    glibc_version,
    gpu_names,
    installed_versions,
    locked_versions,
    system_has_cuda,
    visible_gpus,
)

State = Literal["ok", "warn", "bad"]

GIB = 2**30
MIB = 2**20
CURRENT_GLIBC = (2, 39)
"""The glibc that the ml-metadata and tensorflow-data-validation wheels of the current line are built for."""
LOCK = Path(__file__).resolve().parents[2] / "requirements.txt"
CUDA_LOCK = LOCK.with_name("requirements-cuda.txt")
LINE = ("tfx", "tensorflow", "apache-beam")
"""The main packages of a release line."""
NVIDIA = Path("/proc/driver/nvidia")
OLDEST_DRIVER = 525
"""Both lines' TensorFlow is built with CUDA 12; see NVIDIA's "CUDA Compatibility", minor version compatibility."""

_SITE = ("purelib", "platlib")


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
      check: name of the check.
      found: the machine's value.
      needed: the required value, or the purpose.
      state: `ok`; `warn`: works, with limits; `bad`: a run will fail.
      remedy: how to fix it; empty if the state is `ok`.
    """

    check: str
    found: str
    needed: str
    state: State = "ok"
    remedy: str = ""


def examine(output: Path) -> list[Finding]:
    """Runs all checks on this machine.

    Args:
      output: the folder for runs' output; it need not exist yet.
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
    """Checks the interpreter: 3.10 for the older release line, 3.11 to 3.13 for the current one."""
    fits = (3, 10) <= tuple(version[:2]) <= (3, 13)
    return Finding(
        "Python",
        f"{'.'.join(map(str, version))} in {sys.prefix}",
        "3.10 to 3.13",
        "ok" if fits else "bad",
        "" if fits else "run make setup, which builds .venv with a supported Python; then use .venv/bin/python",
    )


def check_glibc(glibc: tuple[int, int] | None, python: Sequence[int]) -> Finding:
    """Checks the C library: the current release line's wheels need a newer one than the older line's.

    Args:
      glibc: its version; None for another C library.
      python: the interpreter's version, which decides the release line.
    """
    minimum = CURRENT_GLIBC if tuple(python[:2]) >= (3, 11) else (2, 17)
    needed = f"{_dotted(minimum)} for Python {_dotted(python[:2])}"
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
        return Finding("glibc", _dotted(glibc), needed, "bad", remedy)
    return Finding("glibc", _dotted(glibc), needed)


def check_packages(locked: Mapping[str, str], installed: Mapping[str, str]) -> Finding:
    """Compares the installed packages with the lock.

    Args:
      locked: package → version in the lock for this interpreter; empty if there is no lock.
      installed: package → version in the environment.
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
    # A run depends on the main packages; the user may have chosen another version of a different package.
    state: State = "bad" if set(LINE) & set(wrong) else "warn"
    return Finding("TFX line", f"{line}; {differences}{more}", needed, state, "rm -rf .venv && make setup")


def check_cores(count: int) -> Finding:
    """Checks the number of cores that this process may use."""
    enough = count >= 2
    return Finding(
        "cores",
        str(count),
        "2 or more",
        "ok" if enough else "warn",
        "" if enough else "it works, slowly; set runtime.parallel_nodes=1 to run one node at a time",
    )


def check_memory(total: int, available: int) -> Finding:
    """Checks the memory, total and free in bytes, of the machine or its container."""
    state: State = "bad" if available < 2 * GIB else "warn" if available < 4 * GIB else "ok"
    remedy = "" if state == "ok" else "end other programs, or give the machine or container more memory"
    return Finding("memory", f"{_size(available)} free of {_size(total)}", "4 GiB free", state, remedy)


def check_folder(check: str, folder: Path, needed: int, otherwise: str) -> Finding:
    """Checks that a folder is writable and has free space.

    Args:
      check: name of the check.
      folder: if it does not exist, its nearest existing parent is checked.
      needed: free bytes below which the state is `warn`; below a fifth of it, `bad`.
      otherwise: an alternative to more free space.
    """
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    requirement = f"writable, {_size(needed)} free"
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        problem = "cannot be written" if existing.is_dir() else "is a file"
        return Finding(check, f"{existing} {problem}", requirement, "bad", f"fix its permissions, or: {otherwise}")
    free = shutil.disk_usage(existing).free
    state: State = "ok" if free >= needed else "warn" if free >= needed / 5 else "bad"
    remedy = "" if state == "ok" else f"free some space, or: {otherwise}"
    return Finding(check, f"{_size(free)} free in {folder}", requirement, state, remedy)


def check_credentials(environ: Mapping[str, str], gcloud: Path) -> Finding:
    """Checks whether Google Cloud's credentials exist; their content is not read.

    Args:
      environ: the environment's variables.
      gcloud: the folder into which `gcloud auth application-default login` writes them.
    """
    needed = "for gs:// and Vertex only"
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if named and not Path(named).is_file():
        return Finding(
            "credentials",
            f"GOOGLE_APPLICATION_CREDENTIALS={named}, which is not a file",
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
    """Reports the GPUs, and how `training.strategy` uses them; none are required.

    Args:
      names: of the GPUs that the driver has.
      visible: CUDA_VISIBLE_DEVICES, the numbers or names of the GPUs that programs see; None: not set, all of them.
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
    """Checks the GPUs' driver.

    Args:
      version: of NVIDIA's kernel module; None if unknown.
      smi: the path of nvidia-smi, if it is installed; the pipeline does not need it.
    """
    found = f"{version or 'of an unknown version'}, {f'nvidia-smi at {smi}' if smi else 'no nvidia-smi'}"
    needed = f"{OLDEST_DRIVER} or newer, for CUDA 12"
    if version is not None and int(version.split(".")[0]) < OLDEST_DRIVER:
        return Finding("GPU driver", found, needed, "warn", "install a newer driver; until then training is on CPUs")
    return Finding("GPU driver", found, needed)


def check_cuda(cuda: str | None, tensorflow: str | None, missing: Sequence[str], system: bool) -> Finding:
    """Checks CUDA's libraries, which TensorFlow loads from installed wheels or from the system.

    Args:
      cuda: the version that the installed TensorFlow was built with; None if it was built for CPUs.
      tensorflow: TensorFlow's version; None if it is not installed.
      missing: the packages with CUDA that this TensorFlow needs and that are not installed.
      system: whether the system has CUDA's libraries.
    """
    needed = "for training on GPUs"
    if cuda is None:
        found = "TensorFlow is missing" if tensorflow is None else f"tensorflow {tensorflow} is built for CPUs"
        return Finding("CUDA", found, needed, "warn", "rm -rf .venv && make setup")
    built = f"tensorflow {tensorflow} is built with CUDA {cuda}"
    if missing and not system:
        remedy = f"{sys.executable} -m pip install -r {CUDA_LOCK.name}; until then training is on CPUs"
        return Finding("CUDA", f"{built}, and its libraries are missing", needed, "warn", remedy)
    where = "the system has its libraries" if missing else "its wheels are installed"
    return Finding("CUDA", f"{built}; {where}", needed)


def check_pip(installed: bool) -> Finding:
    """Checks that pip is installed in the environment: only stock TFX's module_file needs it."""
    if installed:
        return Finding("pip", "in the environment", "for stock TFX's module_file only")
    remedy = "rm -rf .venv && make setup installs it"
    return Finding("pip", "missing", "for stock TFX's module_file only", "warn", remedy)


def check_compiler(path: str | None) -> Finding:
    """Checks the C++ compiler: one small package is compiled when .venv is created."""
    if path:
        return Finding("g++", path, "to create .venv")
    return Finding("g++", "missing", "to create .venv", "warn", "apt-get install g++ before the next make setup")


def _with_gpus(folders: Iterable[Path], installed: Mapping[str, str]) -> list[Finding]:
    """Runs the checks that apply only to a machine with GPUs."""
    missing = [name for name in cuda_wheels(folders) if name not in installed]
    system = system_has_cuda(Path("/etc/ld.so.cache"), os.environ.get("LD_LIBRARY_PATH", ""))
    return [
        check_gpu_driver(driver_version(NVIDIA / "version"), shutil.which("nvidia-smi")),
        check_cuda(cuda_version(folders), installed.get("tensorflow"), missing, system),
    ]


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


HELP = "check Python, glibc, the TFX line, memory, disk and credentials; print a remedy for each problem"

_COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "bad": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=local_file, default=Path("out"), metavar="DIR", help="where runs will write")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(args: argparse.Namespace) -> int:
    """Prints the findings; returns 0 if a run can start, 1 if a problem has to be fixed first."""
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
        colour = _COLOURS[finding.state]
        table.add_row(
            finding.check, escape(finding.found), escape(finding.needed), f"[{colour}]{finding.state}[/{colour}]"
        )
    console.print(table)
    for finding in findings:
        if finding.remedy:
            console.print(f"{finding.check}: {finding.remedy}", highlight=False, markup=False, soft_wrap=True)
