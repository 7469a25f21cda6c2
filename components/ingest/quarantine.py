"""Write the bad rows of an input to one file in the examples' folder, with their reasons and contents."""

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

    A line has the keys `file`, `row` (or `offset`, in bytes), `column` if a value is bad, `reason`, and `content`,
    which is the row as text, or its fields by column.

    Args:
      quarantined: Files of the workers, as (input file, number of the range, positions before that range, file).
      position_unit: Unit of positions, `row` or `offset`.
      folder: Folder of the file to write.

    Returns:
      The path of the file.
    """
    path = file_io.join(folder, _NAME)
    with file_io.create(path) as sink, gzip.GzipFile(fileobj=sink, mode="wb", mtime=0) as compressed:
        for (file, _, before), parts in itertools.groupby(sorted(quarantined), key=lambda entry: entry[:3]):
            entries = [entry for part in parts for entry in _read_entries(part[3])]
            for entry in sorted(entries, key=lambda entry: entry["position"]):
                line = {"file": file, position_unit: before + entry.pop("position")}
                line.update({key: value for key, value in entry.items() if value is not None})
                compressed.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    return path


def _read_entries(path: str) -> Iterator[dict[str, Any]]:
    with file_io.open_binary(path) as file:
        for line in file:
            yield json.loads(line)
