"""Progress of a running node: a line in its log, which the terminal shows."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

_LOGGER = logging.getLogger("progress")
_LINE = re.compile(rb" I progress: (.*)$", re.MULTILINE)
_TAIL = 1 << 14
"""Number of bytes at the end of a log that are searched."""


def report(text: str) -> None:
    """Report the progress of the node that this process runs.

    Args:
      text: Short text in one line, such as `trial 3 of 10`.
    """
    _LOGGER.info("%s", text)


def read_last(log: Path) -> str | None:
    """Return the last report in the log of a node; None if the end of the log does not contain one."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            reports = _LINE.findall(file.read())
    except OSError:
        return None
    return reports[-1].decode(errors="replace") if reports else None
