"""Measure by how much the resident memory of a process grows in a block of a test."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Growth:
    """Growth of the resident memory; known at the end of the block.

    Attributes:
      peak_bytes: Peak in the block minus the memory at its beginning.
    """

    peak_bytes: int = -1


@contextlib.contextmanager
def measure_growth(pid: int | str = "self") -> Iterator[Growth]:
    """Measure the peak of a process's resident memory from here, not from the start of the process."""
    folder, growth = Path(f"/proc/{pid}"), Growth()
    # Writing 5 resets VmHWM (Linux, Documentation/filesystems/proc.rst).
    (folder / "clear_refs").write_text("5", encoding="ascii")
    before = _read_bytes(folder, "VmRSS")
    yield growth
    growth.peak_bytes = _read_bytes(folder, "VmHWM") - before


def _read_bytes(folder: Path, name: str) -> int:
    status = (folder / "status").read_text(encoding="ascii")
    match = re.search(rf"^{name}:\s*(\d+) kB$", status, re.MULTILINE)
    assert match is not None, f"expected a line {name}, received {status}"
    return int(match[1]) << 10
