"""Pseudo anomalies for the evaluation of an anomaly model without labels: rows whose columns were permuted."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from components.evaluator.plan import PSEUDO_LABEL


def add_permuted_rows(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """Return a batch followed by a copy in which the values of each column are permuted independently.

    Each value of the copy occurs in the data, but the values of a row do not fit each other. The permutations depend
    only on the number of rows.

    Args:
      batch: The rows, with lists of values.
      names: Columns to permute; the others keep their order.
    """
    rows = batch.num_rows
    random = np.random.default_rng(rows)
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        order = random.permutation(rows) if name in names else np.arange(rows)
        columns[name] = pa.concat_arrays([column, column.take(pa.array(order))])
    labels = pa.array(np.repeat(np.array([0, 1], np.int64), rows))
    columns[PSEUDO_LABEL] = pa.LargeListArray.from_arrays(np.arange(2 * rows + 1, dtype=np.int64), labels)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
