"""Statistics of images: their size, mode, format and brightness, and near duplicates across splits.

They are computed from what ingest has found out about each image, so no image is decoded here. They are in files of
their own, since the schema is inferred from the statistics of columns that the examples have.
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
    """Write the statistics of the images of each split, and their near duplicates, if the examples have images.

    Args:
      examples: The folder of the examples.
      folders: Split → the folder of its statistics.
      folder: The folder of all statistics.
    """
    columns = {split: image_facts.columns(examples, split) for split in folders}
    if not any(columns.values()):
        return
    for split, of_split in columns.items():
        statistics = _statistics(examples, split, of_split)
        with file_io.create(file_io.join(folders[split], image_statistics.FIGURES)) as file:
            file.write(statistics.SerializeToString())
    if _TRAIN in columns:
        image_statistics.write_near_duplicates(_near_duplicates(examples, columns), folder)


def _statistics(examples: str, split: str, columns: Sequence[str]) -> statistics_pb2.DatasetFeatureStatisticsList:
    """Count all images of a split, whatever the weights and the sampling rate of its rows."""
    combine = StatisticsFn(tfdv.StatsOptions().to_json())
    combine.setup()
    accumulators = combine.create_accumulator()
    wanted = [f"{column}.{field}" for column in columns for field in image_facts.FIGURES]
    for batch in image_facts.read(examples, split, wanted):
        accumulators = combine.add_input(accumulators, to_lists(batch))
    return combine.extract_output(accumulators)


def _near_duplicates(examples: str, columns: Mapping[str, Sequence[str]]) -> list[NearDuplicates]:
    found = []
    for column in columns[_TRAIN]:
        train = image_similarity.read(examples, _TRAIN, column)
        for split in columns:
            if split != _TRAIN and column in columns[split]:
                other = image_similarity.read(examples, split, column)
                found.append(image_similarity.find(train, other, column, split))
    return found
