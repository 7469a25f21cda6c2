"""The SchemaGen of a schema that is inferred from the data: a column without values keeps its place in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components import SchemaGen as StockSchemaGen
from tfx.components.schema_gen import executor
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.utils import io_utils, json_utils


class Executor(executor.Executor):  # type: ignore[misc]
    """Infers the schema as TFX's executor does, except for columns without any value in a split; see `infer`."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Write the schema.

        Args:
          input_dict: `statistics`, one artifact.
          output_dict: `schema`, one artifact.
          exec_properties: TFX's: `infer_feature_shape` and `exclude_splits`.
        """
        statistics = artifact_utils.get_single_instance(input_dict[keys.STATISTICS_KEY])
        excluded = json_utils.loads(exec_properties.get(keys.EXCLUDE_SPLITS_KEY, "null")) or []
        splits = [
            tfdv.load_stats_binary(f"{artifact_utils.get_split_uri([statistics], split)}/FeatureStats.pb")
            for split in artifact_utils.decode_split_names(statistics.split_names)
            if split not in excluded
        ]
        schema = infer(splits, bool(exec_properties[keys.INFER_FEATURE_SHAPE_KEY]))
        folder = artifact_utils.get_single_uri(output_dict[keys.SCHEMA_KEY])
        io_utils.write_pbtxt_file(f"{folder}/{executor.DEFAULT_FILE_NAME}", schema)


class SchemaGen(StockSchemaGen):  # type: ignore[misc]
    """Infers the schema from the statistics of all splits; arguments and output are those of TFX's component."""

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)


def infer(splits: Sequence[statistics_pb2.DatasetFeatureStatisticsList], shapes: bool) -> schema_pb2.Schema:
    """Infers a schema from the statistics of several splits.

    TFDV takes a column that has values in one split and none in another for a removed one: it marks the column as
    deprecated, and no node reads it. Here each split adds only what its values show. A column without values in a split
    is optional; one without values in all splits has the type BYTES, as TFDV infers it from one split.

    Args:
      splits: The statistics of each split.
      shapes: Whether a column with equally many values in every row gets a shape, and so becomes a dense tensor.
    """
    schema, empty = schema_pb2.Schema(), dict[str, schema_pb2.Feature]()
    for statistics in splits:
        filled = statistics_pb2.DatasetFeatureStatisticsList.FromString(statistics.SerializeToString())
        (dataset,) = filled.datasets
        for at in reversed(range(len(dataset.features))):
            if _is_empty(dataset.features[at]):
                del dataset.features[at]
        names = {feature.path.step[0] for feature in dataset.features}
        empty |= {each.name: each for each in tfdv.infer_schema(statistics).feature if each.name not in names}
        known, others = _without(schema, names)
        schema = tfdv.update_schema(known, filled) if schema.feature else tfdv.infer_schema(filled, shapes)
        schema.feature.extend(others)
    for feature in schema.feature:
        if empty.pop(feature.name, None):
            _make_optional(feature)
    schema.feature.extend(empty.values())
    schema.feature.sort(key=lambda feature: feature.name)
    return schema


def _is_empty(feature: statistics_pb2.FeatureNameStatistics) -> bool:
    """Whether a column has no values; a struct and what it contains are left to TFDV."""
    stats = feature.WhichOneof("stats")
    if len(feature.path.step) > 1 or stats in (None, "struct_stats"):
        return False
    return not getattr(feature, stats).common_stats.num_non_missing


def _without(schema: schema_pb2.Schema, names: set[str]) -> tuple[schema_pb2.Schema, list[schema_pb2.Feature]]:
    """Divides a schema into one with only these columns, and its other columns."""
    known = schema_pb2.Schema.FromString(schema.SerializeToString())
    del known.feature[:]
    known.feature.extend(feature for feature in schema.feature if feature.name in names)
    return known, [feature for feature in schema.feature if feature.name not in names]


def _make_optional(feature: schema_pb2.Feature) -> None:
    """Lets a column be missing in all rows; a shape requires a value in each."""
    feature.ClearField("presence")
    if feature.HasField("shape"):
        count = math.prod(dim.size for dim in feature.shape.dim)
        feature.value_count.min = feature.value_count.max = count
