"""Find and copy files of the installed TFX package, without importing TFX."""

from __future__ import annotations

import filecmp
import importlib.util
import shutil
from pathlib import Path

from components.base.errors import InputError
from data.output import atomic


def find(path: str, description: str) -> Path:
    """Return the path of a file in the package.

    Args:
      path: Path relative to the package's folder.
      description: Description of the file for the error, such as "the penguins".

    Raises:
      InputError: The package is not installed, or it does not contain the file.
    """
    package = importlib.util.find_spec("tfx")
    for folder in (package.submodule_search_locations or []) if package else []:
        if (file := Path(folder, path)).is_file():
            return file
    raise InputError(
        f"{description} were not found: expected an installed tfx package with {path}",
        "set up the project's environment and use its Python: make run does both",
    )


def copy(source: Path, output: Path) -> bool:
    """Copy a file unless an equal file exists; return whether it was copied."""
    if output.is_file() and filecmp.cmp(source, output, shallow=False):
        return False
    with atomic(output) as part:
        shutil.copyfile(source, part)
    return True
