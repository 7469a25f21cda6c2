"""Statistics of images: size, mode, format and brightness, and near duplicates across splits.

They are computed from the facts that ingest stored, so images are not decoded again. They are stored in separate files,
because the schema is inferred from the statistics of the examples' columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import apache_beam as beam
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.data import file_io, image_facts, image_statistics
from components.data.examples import to_lists
from components.data.near_duplicates import NearDuplicates
from components.statistics import image_similarity, similarity_search
from components.statistics.combine import StatisticsFn

_TRAIN = "train"
_MOST_IN_PROCESS = 2_000_000
"""Maximum number of images of a column that one process compares, in about 300 MiB. It is faster than an engine."""


def write(examples: str, folders: Mapping[str, str], folder: str, make_pipeline: Callable[[], beam.Pipeline]) -> None:
    """Write the statistics of images and their near duplicates, if the examples contain images.

    With up to `_MOST_IN_PROCESS` images, this process compares them; with more images, a Beam pipeline does.

    Args:
      examples: Folder of the examples.
      folders: Split → folder of its statistics.
      folder: Folder of all statistics.
      make_pipeline: Creates a Beam pipeline.
    """
    columns = {split: image_facts.columns(examples, split) for split in folders}
    if not any(columns.values()):
        return
    for split, split_columns in columns.items():
        statistics = _compute_statistics(examples, split, split_columns)
        with file_io.create(file_io.join(folders[split], image_statistics.FIGURES)) as file:
            file.write(statistics.SerializeToString())
    if _TRAIN not in columns:
        return
    files = {
        (column, split): image_facts.files(examples, split)
        for column in columns[_TRAIN]
        for split in columns
        if column in columns[split]
    }
    rows = {split: image_facts.count_rows(image_facts.files(examples, split)) for split in columns}
    if sum(rows.values()) <= _MOST_IN_PROCESS:
        image_statistics.write_near_duplicates(_find_near_duplicates(files), folder)
        return
    with make_pipeline() as pipeline:
        _ = pipeline | similarity_search.WriteNearDuplicates(files, _TRAIN, sum(rows.values()), folder)


def _compute_statistics(
    examples: str, split: str, columns: Sequence[str]
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """Compute the statistics of all images of a split, regardless of weights and sampling rate."""
    combine = StatisticsFn(tfdv.StatsOptions().to_json())
    combine.setup()
    accumulators = combine.create_accumulator()
    names = [f"{column}.{field}" for column in columns for field in image_facts.FIGURES]
    for batch in image_facts.read(image_facts.files(examples, split), names):
        accumulators = combine.add_input(accumulators, to_lists(batch))
    return combine.extract_output(accumulators)


def _find_near_duplicates(files: Mapping[tuple[str, str], Sequence[str]]) -> list[NearDuplicates]:
    duplicates = []
    for column in dict.fromkeys(column for column, _ in files):
        train = image_similarity.read(files[column, _TRAIN], column)
        for split in (split for name, split in files if name == column and split != _TRAIN):
            images = image_similarity.read(files[column, split], column)
            duplicates.append(image_similarity.find(train, images, column, split))
    return duplicates
