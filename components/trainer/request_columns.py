"""Description of the rows that a model takes, for the check of requests: from the data's schema and statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from components.results.request_schema import FILE, Column, RequestSchema

_TRAIN = "train"

Statistics = Mapping[str, Mapping[str, statistics_pb2.FeatureNameStatistics]]
"""Split → column → its statistics."""


def read_schema(path: str) -> schema_pb2.Schema:
    """Read a schema, a text proto; the path may be remote."""
    with tf.io.gfile.GFile(path) as file:
        return text_format.Parse(file.read(), schema_pb2.Schema())


def read_statistics(files: Mapping[str, str]) -> Statistics:
    """Read the output of StatisticsGen.

    Args:
      files: Split → path of FeatureStats.pb.

    Returns:
      Statistics of the top-level columns. The fields of a struct are left out.
    """
    statistics = {}
    for split, path in files.items():
        with tf.io.gfile.GFile(path, "rb") as file:
            datasets = statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read()).datasets
        features = datasets[0].features if datasets else ()
        statistics[split] = {
            feature.name or feature.path.step[0]: feature for feature in features if len(feature.path.step) <= 1
        }
    return statistics


def describe_requests(
    schema: schema_pb2.Schema, statistics: Statistics, specs: Mapping[str, Any], histories: Iterable[str]
) -> RequestSchema:
    """Describe the rows that a model takes.

    Requests do not have to satisfy conditions that the data itself violates: the data gate may have let it pass.

    Args:
      schema: Schema of the raw columns.
      statistics: Statistics of the splits; empty if they are not known.
      specs: Column that the model reads → its tf.io.VarLenFeature or tf.io.FixedLenFeature.
      histories: The columns in `specs` with the events of histories, whose number is not limited.
    """
    features = {feature.name: feature for feature in schema.feature}
    domains = {domain.name: tuple(domain.value) for domain in schema.string_domain}
    histories = set(histories)
    columns = {
        name: _describe_column(
            features.get(name, schema_pb2.Feature()),
            {split: columns[name] for split, columns in statistics.items() if name in columns},
            spec,
            domains,
            name in histories,
        )
        for name, spec in specs.items()
    }
    names = {*features, *(name for columns_of_split in statistics.values() for name in columns_of_split)}
    return RequestSchema(columns=columns, other_columns=tuple(sorted(names - columns.keys())))


def write(schema: RequestSchema, model: str) -> None:
    """Write the description into the folder of a SavedModel, which may be remote."""
    path = f"{model}/{FILE}"
    tf.io.gfile.makedirs(path.rpartition("/")[0])
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(schema.model_dump_json(indent=1))


def _describe_column(
    feature: schema_pb2.Feature,
    statistics: Mapping[str, statistics_pb2.FeatureNameStatistics],
    spec: Any,
    domains: Mapping[str, tuple[str, ...]],
    is_history: bool,
) -> Column:
    shape = None if isinstance(spec, tf.io.VarLenFeature) else spec.shape
    complete = {split: _is_complete(column) for split, column in statistics.items()}
    # A column with a shape is always required, because the graph cannot parse a row without it.
    required = (shape is not None or feature.presence.min_fraction >= 1) and all(complete.values())
    least, greatest = _find_range(statistics.get(_TRAIN), feature) if spec.dtype != tf.string else (None, None)
    domain = feature.string_domain.value if feature.HasField("string_domain") else domains.get(feature.domain)
    return Column(
        dtype=spec.dtype.name,
        required=required,
        always_present=required or complete.get(_TRAIN, False),
        most_values=None if is_history else _find_most_values(feature, statistics.values(), shape),
        least=least,
        greatest=greatest,
        domain=tuple(domain) if domain and spec.dtype == tf.string else None,
    )


def _find_most_values(
    feature: schema_pb2.Feature, statistics: Iterable[statistics_pb2.FeatureNameStatistics], shape: Any
) -> int | None:
    if shape is not None:
        return int(math.prod(shape))
    counts = [int(_get_common_statistics(column).max_num_values) for column in statistics]
    if feature.value_count.max:
        return max(int(feature.value_count.max), *counts, 1)
    return 1 if counts and max(counts) <= 1 else None


def _is_complete(column: statistics_pb2.FeatureNameStatistics) -> bool:
    common = _get_common_statistics(column)
    nans = sum(histogram.num_nan for histogram in column.num_stats.histograms)
    # TFDV does not count an empty list as missing.
    return bool(common.min_num_values) and not common.num_missing and not nans


def _find_range(
    column: statistics_pb2.FeatureNameStatistics | None, feature: schema_pb2.Feature
) -> tuple[float | None, float | None]:
    """Return the minimum and maximum in training; without statistics, the bounds of the schema."""
    if column is not None and column.HasField("num_stats") and _get_common_statistics(column).num_non_missing:
        bounds = [column.num_stats.min, column.num_stats.max]
        if all(map(math.isfinite, bounds)):
            return bounds[0], bounds[1]
    domain = feature.int_domain if feature.HasField("int_domain") else feature.float_domain
    least, greatest = (getattr(domain, key) if domain.HasField(key) else None for key in ("min", "max"))
    return least, greatest


def _get_common_statistics(column: statistics_pb2.FeatureNameStatistics) -> Any:
    kind = column.WhichOneof("stats")
    return getattr(column, kind).common_stats if kind else statistics_pb2.CommonStatistics()
