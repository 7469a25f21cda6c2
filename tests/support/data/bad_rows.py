"""Reads the file of bad rows: gzip-compressed JSON lines."""

from __future__ import annotations

import gzip
import json
from typing import Any


def read(path: str) -> list[dict[str, Any]]:
    """Return the bad rows, in the order of the file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
