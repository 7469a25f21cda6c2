"""Find and copy files of the installed TFX package, without importing TFX."""

from __future__ import annotations

import filecmp
import importlib.util
import shutil
from pathlib import Path

from components.base.errors import InputError
from data.output import atomic


def find(path: str, what: str) -> Path:
    """Return a file of the package.

    Args:
      path: below the package's folder.
      what: its content, for the error.

    Raises:
      InputError: there is no such package, or no such file in it.
    """
    package = importlib.util.find_spec("tfx")
    for folder in (package.submodule_search_locations or []) if package else []:
        if (file := Path(folder, path)).is_file():
            return file
    raise InputError(
        f"{what} were not found: expected an installed tfx package with {path}",
        "set up the project's environment and use its Python: make run does both",
    )


def copy(source: Path, output: Path) -> bool:
    """Copy a file, unless an equal one is there; return whether it was copied."""
    if output.is_file() and filecmp.cmp(source, output, shallow=False):
        return False
    with atomic(output) as part:
        shutil.copyfile(source, part)
    return True
