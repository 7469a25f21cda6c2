"""Writes the bad rows of an input to one file in the examples' folder, each with the reason and its content."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from components.data import file_io

FOLDER = "quarantine"
_NAME = "bad_rows.jsonl.gz"


def write(quarantined: Iterable[tuple[str, int, int, str]], position_unit: str, folder: str) -> str:
    """Write the bad rows in the order of files and rows, as gzip-compressed JSON lines.

    Each line has `file`, `row` (or `offset`, in bytes), `column` if a value is bad, `reason`, and `content`: the row as
    text, or its fields by column.

    Args:
      quarantined: The workers' files, as (input file, number of the range, positions before that range, file).
      position_unit: `row` or `offset`.
      folder: Where the file goes.

    Returns:
      The path of the file.
    """
    path = file_io.join(folder, _NAME)
    with file_io.create(path) as sink, gzip.GzipFile(fileobj=sink, mode="wb", mtime=0) as compressed:
        for (file, _, before), parts in itertools.groupby(sorted(quarantined), key=lambda entry: entry[:3]):
            entries = [entry for part in parts for entry in _entries(part[3])]
            for entry in sorted(entries, key=lambda one: one["position"]):
                line = {"file": file, position_unit: before + entry.pop("position")}
                line.update({key: value for key, value in entry.items() if value is not None})
                compressed.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    return path


def _entries(path: str) -> Iterator[dict[str, Any]]:
    with file_io.open_binary(path) as file:
        for line in file:
            yield json.loads(line)
