"""Properties of this machine: GPUs, CUDA, the C library, installed and locked packages; light to import."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_LOCKED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?$")


def glibc_version() -> tuple[int, int] | None:
    """Returns glibc's (major, minor) version; None for another C library."""
    name, version = platform.libc_ver()
    if name != "glibc":
        return None
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def locked_versions(lock: Path) -> dict[str, str]:
    """Returns package → locked version for this interpreter; empty if the file is missing.

    Args:
      lock: a requirements file with markers.
    """
    if not lock.is_file():
        return {}
    lines = (_LOCKED.match(line) for line in lock.read_text(encoding="utf-8").splitlines() if line[:1].isalnum())
    return {
        canonicalize_name(match["name"]): match["version"]
        for match in lines
        if match and (match["marker"] is None or Marker(match["marker"]).evaluate())
    }


def installed_versions(folders: Iterable[Path]) -> dict[str, str]:
    """Returns package → installed version, from the names of the `.dist-info` folders.

    importlib.metadata parses a file for each version: a third of a second for all packages.

    Args:
      folders: site-packages.
    """
    names = (path.name.removesuffix(".dist-info") for folder in folders for path in folder.glob("*.dist-info"))
    pairs = (name.rpartition("-") for name in names)
    return {canonicalize_name(name): version for name, _, version in pairs}


def gpu_names(driver: Path, devices: Path) -> list[str]:
    """Returns the GPUs' models, or else the names of their device files.

    Args:
      driver: the folder in which NVIDIA's driver has a folder per GPU, with a file `information`.
      devices: the folder of device files; some containers have only these.
    """
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(driver.glob("*/information"))]
    models = [match[1].strip() for text in texts if (match := re.search(r"^Model:(.*)$", text, re.MULTILINE))]
    return models or [path.name for path in sorted(devices.glob("nvidia[0-9]*"))]


def visible_gpus(visible: str, count: int) -> int:
    """Returns the number of GPUs that CUDA_VISIBLE_DEVICES makes visible.

    Args:
      visible: the variable's value: numbers or names (GPU-…, MIG-…); as in CUDA, the first invalid item ends the list.
      count: number of GPUs of the machine.
    """
    number = 0
    for each in (part.strip() for part in visible.split(",")):
        if not (each.isdecimal() and int(each) < count) and not each.startswith(("GPU-", "MIG-")):
            break
        number += 1
    return number


def driver_version(file: Path) -> str | None:
    """Returns the version of NVIDIA's kernel module; None if the file is missing or has none.

    Args:
      file: /proc/driver/nvidia/version. Its line names the module differently in each release; the version is the
        first number with points.
    """
    if not file.is_file():
        return None
    match = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", file.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else None


def cuda_version(folders: Iterable[Path]) -> str | None:
    """Returns the CUDA version that the installed TensorFlow was built with; None for a build without CUDA."""
    for folder in folders:
        file = folder / "tensorflow" / "python" / "platform" / "build_info.py"
        if file.is_file() and (match := re.search(r"'cuda_version', '([\d.]+)'", file.read_text(encoding="utf-8"))):
            return match[1]
    return None


def cuda_wheels(folders: Iterable[Path]) -> list[str]:
    """Returns the packages with CUDA that the installed TensorFlow uses: those of its extra `and-cuda`."""
    distributions = importlib.metadata.distributions(name="tensorflow", path=[str(folder) for folder in folders])
    requirements = (Requirement(line) for each in distributions for line in each.requires or [])
    return [
        canonicalize_name(each.name)
        for each in requirements
        if each.marker and each.marker.evaluate({"extra": "and-cuda"}) and not each.marker.evaluate({"extra": ""})
    ]


def system_has_cuda(cache: Path, folders: str) -> bool:
    """Whether the dynamic linker finds cuDNN, which is installed after the other CUDA libraries.

    Args:
      cache: the linker's list of libraries, /etc/ld.so.cache.
      folders: LD_LIBRARY_PATH, which the linker searches first.
    """
    if any(any(Path(folder).glob("libcudnn.so*")) for folder in folders.split(":") if folder):
        return True
    return cache.is_file() and b"libcudnn.so" in cache.read_bytes()
