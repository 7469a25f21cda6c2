"""Leakage in the eval split: how well single feature columns predict the label, in a sample of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from components.base.config_section import Task
from components.data.examples import Examples, FileRange
from components.data.saved_model import column_of
from components.data.split_sample import concatenate, first_values
from components.features import expression, label_values, leakage
from components.features.leakage import Leakage

_FILES = 8
"""Maximum number of files to read, evenly spaced. Only the beginning of a file is read."""


def measure(examples: Examples, columns: Sequence[str], label: str, task: Task) -> Leakage:
    """Measure how well each column alone predicts the label.

    Args:
      examples: The eval split. At most `leakage.ROWS` rows are sampled, and one batch is in memory at a time.
      columns: Columns that the features are made of.
      label: A column or an expression.
      task: The task.
    """
    parsed = expression.parse(label)
    feature_batches: list[list[pa.Array]] = []
    label_batches: list[list[pa.Array]] = []
    for batch in _sample(examples):
        feature_batches.append([read_single_values(column_of(batch, name)) for name in columns])
        label_batches.append([first_values(column_of(batch, name)) for name in parsed.columns])
    read = dict(zip(parsed.columns, map(concatenate, zip(*label_batches, strict=True)), strict=False))
    missing = [name for name in parsed.columns if name not in read or pa.types.is_null(read[name].type)]
    if missing:
        return Leakage(unknown=f"column {missing[0]} of the label has no value")
    labels = label_values.labels(parsed, task, read)
    known = np.isfinite(labels)
    features = zip(columns, map(concatenate, zip(*feature_batches, strict=True)), strict=True)
    by_name = {name: column.filter(pa.array(known)) for name, column in features}
    return leakage.find(by_name, labels[known], task)


def _sample(examples: Examples) -> Iterator[pa.RecordBatch]:
    """Yield the same number of rows from the beginning of evenly spaced files."""
    paths = examples.paths
    chosen = [paths[at * len(paths) // _FILES] for at in range(_FILES)] if len(paths) > _FILES else list(paths)
    for path in chosen:
        remaining = leakage.ROWS // len(chosen)
        for batch in _batches(examples, examples.ranges(path)):
            yield batch.slice(0, remaining)
            remaining -= batch.num_rows
            if remaining <= 0:
                break


def _batches(examples: Examples, ranges: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
    for file_range in ranges:
        yield from examples.read(file_range)


def read_single_values(column: pa.Array) -> pa.Array:
    """Return one value per row, null if missing; for a column of lists, return only whether the row has values."""
    if pa.types.is_null(column.type):
        return column
    counts = np.diff(np.asarray(column.offsets))
    if counts.max(initial=0) > 1:
        return pa.array(np.zeros(len(counts), np.int8), mask=counts == 0)
    return first_values(column)
