"""Leakage in the eval split: the columns of the features, each by itself, in a sample of the rows."""

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
"""Number of files that are read, evenly spaced; a part of each is."""


def measure(examples: Examples, columns: Sequence[str], label: str, task: Task) -> Leakage:
    """Measures how well each column alone predicts the label.

    Args:
      examples: the eval split. At most `leakage.ROWS` rows are judged, and one batch is in memory at a time.
      columns: those that features are made of.
      label: a column or an expression.
      task: the task.
    """
    parsed = expression.parse(label)
    of_features: list[list[pa.Array]] = []
    of_label: list[list[pa.Array]] = []
    for batch in _sample(examples):
        of_features.append([_single(column_of(batch, name)) for name in columns])
        of_label.append([first_values(column_of(batch, name)) for name in parsed.columns])
    read = dict(zip(parsed.columns, map(concatenate, zip(*of_label, strict=True)), strict=False))
    missing = [name for name in parsed.columns if name not in read or pa.types.is_null(read[name].type)]
    if missing:
        return Leakage(unknown=f"column {missing[0]} of the label has no value")
    labels = label_values.labels(parsed, task, read)
    known = np.isfinite(labels)
    features = zip(columns, map(concatenate, zip(*of_features, strict=True)), strict=True)
    by_name = {name: column.filter(pa.array(known)) for name, column in features}
    return leakage.find(by_name, labels[known], task)


def _sample(examples: Examples) -> Iterator[pa.RecordBatch]:
    """Yield rows from files that are evenly spaced: of each as many, from its beginning."""
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


def _single(column: pa.Array) -> pa.Array:
    """Return the value of each row, null without one; of a column with several values in a row, only where any are."""
    if pa.types.is_null(column.type):
        return column
    counts = np.diff(np.asarray(column.offsets))
    if counts.max(initial=0) > 1:
        return pa.array(np.zeros(len(counts), np.int8), mask=counts == 0)
    return first_values(column)
