"""Read the files of a transform graph, such as vocabularies and counts, without TensorFlow."""

from __future__ import annotations

import json

from components.data import file_io
from components.features import feature_names
from components.features.hash_collisions import HashCollisions
from components.features.unparsed_dates import UnparsedDates

_BLOCK = 1 << 20


def paths(graph: str) -> dict[str, str]:
    """Return name → path of the files of a transform graph; empty if the graph does not exist.

    Args:
      graph: Folder of the graph.
    """
    names = file_io.join(graph, "transformed_metadata/asset_map")
    if not file_io.file_system(names).exists(names):
        return {}
    with file_io.open_binary(names) as file:
        files: dict[str, str] = json.loads(file.read())
    folder = file_io.join(graph, "transform_fn/assets")
    return {name: file_io.join(folder, path.rpartition("/")[2]) for name, path in files.items()}


def read_label_classes(graph: str) -> list[str]:
    """Read the names of the label's classes by class number; empty if the label is not a class.

    Args:
      graph: Folder of the graph.
    """
    path = paths(graph).get(feature_names.LABEL_CLASSES)
    if path is None or not file_io.file_system(path).exists(path):
        return []
    with file_io.open_binary(path) as file:
        # Do not use splitlines: only a newline ends a class, and other line separators of Unicode may be in a name.
        return file.read().decode(errors="replace").removesuffix("\n").split("\n")


def entries(path: str) -> int:
    """Count the lines of a vocabulary."""
    with file_io.open_binary(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))


def hash_collisions(graph: str) -> tuple[HashCollisions, ...]:
    """Read the collisions of all hashed features, in the order of the config.

    Args:
      graph: Folder of the graph.
    """
    collisions = []
    for name, path in paths(graph).items():
        if name.startswith(feature_names.COLLISIONS):
            with file_io.open_binary(path) as file:
                buckets, values, used, *shares = file.read().decode().split()
            feature = name.removeprefix(feature_names.COLLISIONS)
            collisions.append(HashCollisions(feature, int(buckets), int(values), int(used), *map(float, shares)))
    return tuple(collisions)


def read_unparsed_dates(graph: str) -> tuple[UnparsedDates, ...]:
    """Read the number of texts that are not dates, for all columns of dates, in the order of the config.

    Args:
      graph: Folder of the graph.
    """
    columns = []
    for name, path in paths(graph).items():
        if name.startswith(feature_names.UNPARSED_DATES):
            with file_io.open_binary(path) as file:
                texts, unparsed, example = file.read().decode(errors="replace").split("\n")[:3]
            order, _, column = name.removeprefix(feature_names.UNPARSED_DATES).partition("_")
            columns.append(UnparsedDates(column, order, int(texts), int(unparsed), example))
    return tuple(columns)
