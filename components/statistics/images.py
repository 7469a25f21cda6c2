"""Statistics of images: size, mode, format and brightness, and near duplicates across splits.

They are computed from the facts that ingest stored, so images are not decoded again. They are stored in separate files,
because the schema is inferred from the statistics of the examples' columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.data import file_io, image_facts, image_statistics
from components.data.examples import to_lists
from components.data.near_duplicates import NearDuplicates
from components.statistics import image_similarity
from components.statistics.combine import StatisticsFn

_TRAIN = "train"


def write(examples: str, folders: Mapping[str, str], folder: str) -> None:
    """Write the statistics of images and their near duplicates, if the examples contain images.

    Args:
      examples: Folder of the examples.
      folders: Split → folder of its statistics.
      folder: Folder of all statistics.
    """
    columns = {split: image_facts.columns(examples, split) for split in folders}
    if not any(columns.values()):
        return
    for split, split_columns in columns.items():
        statistics = _compute_statistics(examples, split, split_columns)
        with file_io.create(file_io.join(folders[split], image_statistics.FIGURES)) as file:
            file.write(statistics.SerializeToString())
    if _TRAIN in columns:
        image_statistics.write_near_duplicates(_find_near_duplicates(examples, columns), folder)


def _compute_statistics(
    examples: str, split: str, columns: Sequence[str]
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """Compute the statistics of all images of a split, regardless of weights and sampling rate."""
    combine = StatisticsFn(tfdv.StatsOptions().to_json())
    combine.setup()
    accumulators = combine.create_accumulator()
    names = [f"{column}.{field}" for column in columns for field in image_facts.FIGURES]
    for batch in image_facts.read(examples, split, names):
        accumulators = combine.add_input(accumulators, to_lists(batch))
    return combine.extract_output(accumulators)


def _find_near_duplicates(examples: str, columns: Mapping[str, Sequence[str]]) -> list[NearDuplicates]:
    duplicates = []
    for column in columns[_TRAIN]:
        train = image_similarity.read(examples, _TRAIN, column)
        for split in columns:
            if split != _TRAIN and column in columns[split]:
                images = image_similarity.read(examples, split, column)
                duplicates.append(image_similarity.find(train, images, column, split))
    return duplicates
