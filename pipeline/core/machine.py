"""Properties of this machine: GPUs, CUDA, the C library, installed and locked packages.

The module is fast to import. Functions take the files to read as arguments, so that tests can describe any machine.
"""

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


def get_glibc_version() -> tuple[int, int] | None:
    """Return the (major, minor) version of glibc; None if the system uses another C library."""
    name, version = platform.libc_ver()
    if name != "glibc":
        return None
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def read_locked_versions(lock: Path) -> dict[str, str]:
    """Read the versions that a lock file requires for this interpreter.

    Args:
      lock: A requirements file, whose lines may have environment markers.

    Returns:
      Package → version; empty if the file is missing.
    """
    if not lock.is_file():
        return {}
    lines = (_LOCKED.match(line) for line in lock.read_text(encoding="utf-8").splitlines() if line[:1].isalnum())
    return {
        canonicalize_name(match["name"]): match["version"]
        for match in lines
        if match and (match["marker"] is None or Marker(match["marker"]).evaluate())
    }


def list_installed_versions(folders: Iterable[Path]) -> dict[str, str]:
    """Return package → installed version.

    The versions are parsed from the names of the `.dist-info` folders. `importlib.metadata` would read a file per
    package, which takes a third of a second for all packages.

    Args:
      folders: The site-packages folders.
    """
    names = (path.name.removesuffix(".dist-info") for folder in folders for path in folder.glob("*.dist-info"))
    pairs = (name.rpartition("-") for name in names)
    return {canonicalize_name(name): version for name, _, version in pairs}


def list_gpu_names(driver: Path, devices: Path) -> list[str]:
    """Return the model names of the GPUs, or the names of their device files if the models are unknown.

    Args:
      driver: Folder of NVIDIA's driver with one subfolder per GPU, which contains a file `information`.
      devices: Folder of device files. Some containers provide only these.
    """
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(driver.glob("*/information"))]
    models = [match[1].strip() for text in texts if (match := re.search(r"^Model:(.*)$", text, re.MULTILINE))]
    return models or [path.name for path in sorted(devices.glob("nvidia[0-9]*"))]


def count_visible_gpus(visible: str, count: int) -> int:
    """Return the number of GPUs that CUDA_VISIBLE_DEVICES makes visible.

    Args:
      visible: Value of the variable: GPU numbers, or names that begin with `GPU-` or `MIG-`, separated by commas. As in
        CUDA, the first invalid item ends the list.
      count: Number of GPUs in the machine.
    """
    visible_count = 0
    for gpu in (part.strip() for part in visible.split(",")):
        if not (gpu.isdecimal() and int(gpu) < count) and not gpu.startswith(("GPU-", "MIG-")):
            break
        visible_count += 1
    return visible_count


def read_driver_version(file: Path) -> str | None:
    """Read the version of NVIDIA's kernel module.

    Args:
      file: /proc/driver/nvidia/version.

    Returns:
      The version; None if the file is missing or does not contain a version.
    """
    # The name of the module in this line differs between releases. The version is the first number with dots.
    if not file.is_file():
        return None
    match = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", file.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else None


def read_cuda_version(folders: Iterable[Path]) -> str | None:
    """Read the CUDA version that the installed TensorFlow was built with.

    Args:
      folders: The site-packages folders.

    Returns:
      The version; None if TensorFlow is not installed or was built without CUDA.
    """
    for folder in folders:
        file = folder / "tensorflow" / "python" / "platform" / "build_info.py"
        if file.is_file() and (match := re.search(r"'cuda_version', '([\d.]+)'", file.read_text(encoding="utf-8"))):
            return match[1]
    return None


def list_cuda_wheels(folders: Iterable[Path]) -> list[str]:
    """Return the CUDA packages of the installed TensorFlow, which its extra `and-cuda` requires.

    Args:
      folders: The site-packages folders.
    """
    distributions = importlib.metadata.distributions(name="tensorflow", path=[str(folder) for folder in folders])
    requirements = (Requirement(line) for distribution in distributions for line in distribution.requires or [])
    return [
        canonicalize_name(requirement.name)
        for requirement in requirements
        if (marker := requirement.marker)
        and marker.evaluate({"extra": "and-cuda"})
        and not marker.evaluate({"extra": ""})
    ]


def system_has_cuda(cache: Path, folders: str) -> bool:
    """Return whether the dynamic linker finds cuDNN.

    cuDNN stands for all CUDA libraries, because it is installed after the others.

    Args:
      cache: The linker's cache of libraries, /etc/ld.so.cache.
      folders: Value of LD_LIBRARY_PATH, which the linker searches first.
    """
    if any(any(Path(folder).glob("libcudnn.so*")) for folder in folders.split(":") if folder):
        return True
    return cache.is_file() and b"libcudnn.so" in cache.read_bytes()
