"""Drafts a curated schema: the schema that TFDV infers, with tolerances for the rows of later runs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.authoring.scaffold.sample import Table, kind

_DOMAIN = 50
"""Maximum number of distinct texts of a column that the schema lists."""
_NEW_TEXTS = 0.05
"""Maximum share of rows with a text that the schema does not list."""
_HEAD = """\
# Written by `runner.py init`: the required form of every batch of rows. A column that most rows had is required in
# nearly as many; docs/how-to/data-gate.md explains anomalies, and how to change this file.
"""


def schema(table: Table) -> str:
    """Return the schema of a table, as text of tensorflow_metadata's Schema message."""
    names = [name for name, column in table.columns.items() if kind(column) != "missing"]
    batch = pa.RecordBatch.from_arrays([_convert_to_lists(table.columns[name]) for name in names], names)
    statistics = stats_impl.generate_statistics_in_memory(batch, tfdv.StatsOptions(num_top_values=_DOMAIN + 1))
    inferred = tfdv.infer_schema(statistics, infer_feature_shape=False, max_string_domain_size=_DOMAIN)
    for feature in inferred.feature:
        column = table.columns[feature.name]
        if least := _least_present(1 - column.null_count / len(column), table.rows):
            feature.presence.min_count, feature.presence.min_fraction = 1, least
        else:
            feature.ClearField("presence")
        if kind(column) != "lists":
            feature.value_count.CopyFrom(schema_pb2.ValueCount(max=1))
        if feature.HasField("domain"):
            feature.distribution_constraints.min_domain_mass = 1 - _NEW_TEXTS
    for name in table.columns:
        if name not in names:
            # TFDV does not see columns without values. Declare them, so that their existence is not an anomaly.
            inferred.feature.add(name=name, type=schema_pb2.BYTES, value_count=schema_pb2.ValueCount(max=1))
    return _HEAD + "\n" + str(text_format.MessageToString(inferred))


def _least_present(share: float, rows: int) -> float:
    """Return the minimum share of rows in which a column must have a value.

    It is lower than the measured share by the larger of a tenth of it and four standard errors in a fifth of the rows.
    It is 0 if a column may be missing everywhere.

    Args:
      share: Share of rows with a value in the sample.
      rows: Number of rows of the data.
    """
    if share == 1:
        return 1.0
    by_chance = 4 * np.sqrt(share * (1 - share) / max(1, rows // 5))
    return float(np.floor(100 * max(0.0, share - max(0.1 * share, by_chance))) / 100)


def _convert_to_lists(column: pa.Array) -> pa.Array:
    """Convert a column to lists with at most one value per row, as TFDV expects."""
    if pa.types.is_list(column.type):
        return column
    present = np.asarray(column.is_valid())
    ends = np.append(0, np.cumsum(present)).astype(np.int32)
    mask = np.append(~present, False) if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(ends, mask=mask), column.drop_null())
