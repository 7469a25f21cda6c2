"""The bad rows of an input, in one file beside the examples: what was wrong with each, and what stood there."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from components.ingest import source

FOLDER = "quarantine"
_NAME = "bad_rows.jsonl.gz"


def write(quarantined: Iterable[tuple[str, int, int, str]], place_is: str, folder: str) -> str:
    """Writes the bad rows in the order of files and rows, as gzip-compressed JSON lines.

    Each line has `file`, `row` (or `offset`, in bytes), `column` if one is to blame, `reason`, and `content`: the row
    as text, or its fields by column.

    Args:
      quarantined: files that workers wrote, as (input file, number of the piece, places before that piece, file).
      place_is: `row` or `offset`.
      folder: where the file goes.

    Returns:
      The path of the file.
    """
    path = source.join(folder, _NAME)
    with source.create(path) as sink, gzip.GzipFile(fileobj=sink, mode="wb", mtime=0) as packed:
        for (file, _, before), parts in itertools.groupby(sorted(quarantined), key=lambda entry: entry[:3]):
            entries = [entry for part in parts for entry in _entries(part[3])]
            for entry in sorted(entries, key=lambda one: one["place"]):
                told = {"file": file, place_is: before + entry.pop("place")}
                told.update({key: value for key, value in entry.items() if value is not None})
                packed.write(json.dumps(told, ensure_ascii=False).encode() + b"\n")
    return path


def _entries(path: str) -> Iterator[dict[str, Any]]:
    with source.open_binary(path) as file:
        for line in file:
            yield json.loads(line)
