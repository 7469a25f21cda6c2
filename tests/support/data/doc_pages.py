"""The pages of the documentation, and what their tests share."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.cli import main

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "data/README.md", "deploy/README.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
TUTORIAL = ROOT / "docs" / "tutorial.md"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def all_blocks(page: Path) -> list[tuple[str, str]]:
    """Every fenced block: its language, its text."""
    return _FENCE.findall(page.read_text(encoding="utf-8"))


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    return [text for kind, text in all_blocks(page) if kind == language]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def run_here(arguments: Sequence[str]) -> int:
    """`runner.py` with the working directory on the module search path, as PYTHONPATH puts it there; for a fork."""
    sys.path.insert(0, str(Path.cwd()))
    return main(arguments)


def write_customers(folder: Path, month: int, factor: float = 1) -> None:
    """Write data/customers/<month>/customers.csv into a folder, by the program of the tutorial."""
    [program] = blocks(TUTORIAL, "python")
    subprocess.run([sys.executable, "-c", program, str(month), str(factor)], cwd=folder, check=True)
