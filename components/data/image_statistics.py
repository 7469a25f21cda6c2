"""What StatisticsGen writes about images beside the statistics of columns, for the nodes and commands that read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from components.data import file_io
from components.data.near_duplicates import NearDuplicates, Pair

FIGURES = "ImageStats.pb"
"""In the folder of a split's statistics, beside FeatureStats.pb: statistics of image.width and so on, in TFX's form."""
NEAR_DUPLICATES = "near_duplicates.json"
"""In the folder of all statistics."""


def write_near_duplicates(found: Sequence[NearDuplicates], folder: str) -> None:
    """Write what was found into the folder of the statistics."""
    with file_io.create(file_io.join(folder, NEAR_DUPLICATES)) as file:
        file.write(json.dumps([asdict(each) for each in found], indent=1).encode())


def near_duplicates(folder: str) -> list[NearDuplicates]:
    """Return what was found, from the folder of the statistics; nothing if no images were compared."""
    path = file_io.join(folder, NEAR_DUPLICATES)
    if not file_io.file_system(path).exists(path):
        return []
    with file_io.open_binary(path) as file:
        entries = json.loads(file.read())
    return [NearDuplicates(**{**entry, "pairs": tuple(Pair(**pair) for pair in entry["pairs"])}) for entry in entries]
