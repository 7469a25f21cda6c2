"""Parse the options of the request log, for the command line of the server and of `runner.py serve`."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError


def parse_share(text: str) -> float:
    """Parse a share from 0 to 1."""
    share = _parse_number(text)
    if not 0 <= share <= 1:
        raise ArgumentTypeError(f"expected a share from 0 to 1, received {text!r}")
    return share


def parse_days(text: str) -> float:
    """Parse a positive number of days."""
    days = _parse_number(text)
    if not days > 0 or math.isinf(days):
        raise ArgumentTypeError(f"expected a positive number of days, received {text!r}")
    return days


def parse_bytes(text: str) -> int:
    """Parse a positive number of bytes."""
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"expected a positive number of bytes, received {text!r}")
    return int(text)


def parse_private(text: str) -> tuple[str, str]:
    """Parse COLUMN=hash or COLUMN=drop; return the name of the column and the action."""
    name, _, action = text.rpartition("=")
    if not name or action not in ("hash", "drop"):
        raise ArgumentTypeError(f"expected COLUMN=hash or COLUMN=drop, received {text!r}")
    return name, action


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
