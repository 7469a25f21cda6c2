"""The random column of training rows, from which operations that use the label choose the fold of a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2

from components.base.errors import MachineError
from components.features.encoding_ops import TargetMean
from components.features.feature_names import DRAWN
from components.features.plan import FeaturePlan
from components.transform.raw_batches import RawBatches

_TOLERANCE = 16 * float(np.finfo(np.float32).eps)
"""Relative and absolute tolerance of numbers, as in `components.trainer.skew_check`."""


def extend(schema: schema_pb2.Schema, columns: list[str]) -> RawBatches:
    """Return the raw features of training rows.

    Args:
      schema: Schema of the raw features.
      columns: Names of the columns to read.
    """
    extended = schema_pb2.Schema()
    extended.CopyFrom(schema)
    extended.feature.add(name=DRAWN, type=schema_pb2.INT)
    return RawBatches(extended, [*columns, DRAWN])


def draw(batch: pa.RecordBatch, first: int, number: int) -> pa.RecordBatch:
    """Add the random column to a batch of training rows.

    The numbers depend on the place of a row in its file, and neither on its values, which the label may follow, nor on
    the name of the file, so that the states of a file can be cached.

    Args:
      batch: Rows of a file.
      first: First row group of the range that contains the batch.
      number: Number of the batch in the range.
    """
    drawn = np.random.default_rng([first, number]).integers(0, 1 << 31, batch.num_rows)
    offsets = pa.array(np.arange(batch.num_rows + 1, dtype=np.int64))
    column = pa.LargeListArray.from_arrays(offsets, pa.array(drawn))
    return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, DRAWN])


def check_served(plan: FeaturePlan, trained: pa.RecordBatch, served: pa.RecordBatch) -> None:
    """Check that training rows equal the served rows except for the features that use the label.

    Args:
      plan: Plan of the features.
      trained: Transformed training rows.
      served: The same rows, as the transform graph computes them for all other rows.

    Raises:
      MachineError: If another feature differs. The message names the feature.
    """
    fold_features = {feature.name for feature in plan.features.declared if isinstance(feature.op, TargetMean)}
    for name, left, right in zip(trained.schema.names, trained.columns, served.columns, strict=True):
        if name in fold_features or left.equals(right):
            continue
        values = left.flatten(), right.flatten()
        is_float = pa.types.is_floating(values[0].type)
        if is_float and len(values[0]) == len(values[1]):
            numbers, expected = (np.asarray(part) for part in values)
            if np.isclose(numbers, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True).all():
                continue
        row = next((row for row in range(len(left)) if left[row] != right[row]), 0)
        raise MachineError(
            f"Transform: {name} of a training row: expected {right[row].as_py()}, as it is served, "
            f"received {left[row].as_py()}",
            "no model was trained; run Transform again with --no-cache, and report it if it persists",
        )
