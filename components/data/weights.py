"""The weights of rows: the column that `data.weight` names."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.base.errors import InputError


def weights_of(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.float64]:
    """Return the weights of the rows of a batch; shape [rows].

    Args:
      batch: Batch of components.data.examples.
      name: Name of the column of weights.

    Raises:
      InputError: If a row does not have exactly one finite non-negative number.
    """
    at = batch.schema.get_field_index(name)
    column = pa.nulls(batch.num_rows) if at < 0 else batch.column(at)
    if pa.types.is_null(column.type):
        raise _invalid_weights(name, "no value", batch.num_rows, batch.num_rows)
    kind = column.type.value_type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise _invalid_weights(name, "text", batch.num_rows, batch.num_rows)
    # A missing list has size 0.
    wrong = np.diff(column.offsets.to_numpy()) != 1
    if wrong.any():
        raise _invalid_weights(name, "no value, or several values,", int(wrong.sum()), batch.num_rows)
    weights: npt.NDArray[np.float64] = column.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    for received, wrong in (("NaN or an infinite number", ~np.isfinite(weights)), ("a negative number", weights < 0)):
        if wrong.any():
            raise _invalid_weights(name, received, int(wrong.sum()), batch.num_rows)
    return weights


def _invalid_weights(name: str, received: str, rows: int, batch_rows: int) -> InputError:
    return InputError(
        f"data.weight: expected a non-negative number in each row of {name!r}, received {received} in {rows:,} rows of "
        f"a batch of {batch_rows:,}",
        "fix or remove these rows, or remove data.weight",
    )
