"""The programs outside .venv that tests use, from tools/programs.txt: which are missing, and what installs them.

As a program it prints the list: python tests/support/programs/programs.py
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INSTALL = "make programs"
_LIST = ROOT / "tools" / "programs.txt"
_ENVIRONMENT = "environment:"
_OTHER_FOLDERS = (*sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True), "/usr/sbin")
"""Folders of programs that need not be on the PATH."""


@dataclass(frozen=True)
class Program:
    """A line of the list.

    Attributes:
      names: of the program; one of them is enough.
      source: the Debian package, or `environment:NAME` for one of tools/environment.sh.
      purpose: what uses it.
    """

    names: tuple[str, ...]
    source: str
    purpose: str

    @property
    def path(self) -> str | None:
        """Path of the program, or None if it is not installed."""
        if self.source.startswith(_ENVIRONMENT):
            folders = [str(ROOT / ".cache" / self.source.removeprefix(_ENVIRONMENT) / "bin")]
        else:
            folders = [*_OTHER_FOLDERS, os.environ.get("PATH", "")]
        path = os.pathsep.join(folders)
        return next(filter(None, (shutil.which(name, path=path) for name in self.names)), None)


def read_programs() -> dict[str, Program]:
    """Return name → program, in the order of the list."""
    lines = (line for line in _LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    versions = {}
    for line in lines:
        names, source, purpose = line.split(maxsplit=2)
        program = Program(tuple(names.split("|")), source, purpose)
        versions[program.names[0]] = program
    return versions


def missing() -> list[str]:
    """Return the names of the programs that are not installed."""
    return [name for name, program in read_programs().items() if program.path is None]


def find(name: str) -> str:
    """Return the path of a listed program; if it is missing, skip the test, or fail it in CI."""
    program = read_programs()[name]
    path = program.path
    if path is None:
        if program.source.startswith(_ENVIRONMENT) and sys.version_info >= (3, 11):
            pytest.skip(f"{name} is tried on the older release line only")
        message = f"{name} is not installed; `{INSTALL}` installs it"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return path


def main() -> int:
    """Print each program and where it is; return 1 if one is missing."""
    for name, program in read_programs().items():
        sys.stdout.write(f"{name:12} {program.path or 'missing':40} {program.purpose}\n")
    if lacking := missing():
        sys.stdout.write(f"{len(lacking)} missing: their tests are skipped. To install them: {INSTALL}\n")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
