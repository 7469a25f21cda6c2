"""The files that StatisticsGen writes about images, in addition to the statistics of columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from components.data import file_io
from components.data.near_duplicates import NearDuplicates, Pair

FIGURES = "ImageStats.pb"
"""File in the folder of a split's statistics, next to FeatureStats.pb, with statistics of image.width and so on, in the
format of TFX."""
NEAR_DUPLICATES = "near_duplicates.json"
"""File in the folder of all statistics."""


def write_near_duplicates(duplicates: Sequence[NearDuplicates], folder: str) -> None:
    """Write near duplicates into the folder of the statistics."""
    with file_io.create(file_io.join(folder, NEAR_DUPLICATES)) as file:
        file.write(json.dumps([asdict(split_duplicates) for split_duplicates in duplicates], indent=1).encode())


def near_duplicates(folder: str) -> list[NearDuplicates]:
    """Read near duplicates from the folder of the statistics; empty if images were not compared."""
    path = file_io.join(folder, NEAR_DUPLICATES)
    if not file_io.file_system(path).exists(path):
        return []
    with file_io.open_binary(path) as file:
        entries = json.loads(file.read())
    return [NearDuplicates(**{**entry, "pairs": tuple(Pair(**pair) for pair in entry["pairs"])}) for entry in entries]
