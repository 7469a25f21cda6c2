"""SchemaGen for a schema that is inferred from the data. Columns without values stay in the schema."""

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
    """An executor that infers the schema as TFX's executor does, except for columns without values; see `infer`."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Write the schema.

        Args:
          input_dict: The key `statistics`, with one artifact.
          output_dict: The key `schema`, with one artifact.
          exec_properties: The keys `infer_feature_shape` and `exclude_splits`, as in TFX.
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
    """A component that infers the schema from the statistics of all splits, with TFX's arguments and outputs."""

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)


def infer(splits: Sequence[statistics_pb2.DatasetFeatureStatisticsList], shapes: bool) -> schema_pb2.Schema:
    """Infer a schema from the statistics of several splits.

    If a column has values in one split but not in another, TFDV assumes that it was removed. It marks the column as
    deprecated, and nodes ignore it. Here a split contributes only the columns for which it has values. A column without
    values in a split is optional. A column without values in all splits has the type BYTES, which TFDV also infers if
    there is only one split.

    Args:
      splits: Statistics, one message per split.
      shapes: Whether a column with the same number of values in every row gets a shape, which makes it a dense tensor.
    """
    schema, empty = schema_pb2.Schema(), dict[str, schema_pb2.Feature]()
    for statistics in splits:
        filled = statistics_pb2.DatasetFeatureStatisticsList.FromString(statistics.SerializeToString())
        (dataset,) = filled.datasets
        for at in reversed(range(len(dataset.features))):
            if _is_empty(dataset.features[at]):
                del dataset.features[at]
        names = {feature.path.step[0] for feature in dataset.features}
        empty |= {
            feature.name: feature for feature in tfdv.infer_schema(statistics).feature if feature.name not in names
        }
        known, absent = _without(schema, names)
        schema = tfdv.update_schema(known, filled) if schema.feature else tfdv.infer_schema(filled, shapes)
        schema.feature.extend(absent)
    for feature in schema.feature:
        if empty.pop(feature.name, None):
            _make_optional(feature)
    schema.feature.extend(empty.values())
    schema.feature.sort(key=lambda feature: feature.name)
    return schema


def _is_empty(feature: statistics_pb2.FeatureNameStatistics) -> bool:
    """Return whether a column does not have values. False for structs and their fields, which TFDV handles."""
    stats = feature.WhichOneof("stats")
    if len(feature.path.step) > 1 or stats in (None, "struct_stats"):
        return False
    return not getattr(feature, stats).common_stats.num_non_missing


def _without(schema: schema_pb2.Schema, names: set[str]) -> tuple[schema_pb2.Schema, list[schema_pb2.Feature]]:
    """Divide a schema into a schema with the given columns, and a list of the other columns."""
    known = schema_pb2.Schema.FromString(schema.SerializeToString())
    del known.feature[:]
    known.feature.extend(feature for feature in schema.feature if feature.name in names)
    return known, [feature for feature in schema.feature if feature.name not in names]


def _make_optional(feature: schema_pb2.Feature) -> None:
    """Make a column optional. Its shape is converted to a value count, because a shape requires values in all rows."""
    feature.ClearField("presence")
    if feature.HasField("shape"):
        count = math.prod(dim.size for dim in feature.shape.dim)
        feature.value_count.min = feature.value_count.max = count
