"""Leakage in the eval split: the columns of the features, each by itself, in a sample of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.config_section import Task
from components.data.examples import Examples, FileRange
from components.evaluator.saved_model import column_of
from components.features import leakage
from components.features.leakage import Leakage

Labels: TypeAlias = Callable[[pa.RecordBatch], npt.NDArray[Any]]

_FILES = 8
"""Number of files that are read, evenly spaced; a part of each is."""


def measure(examples: Examples, columns: Sequence[str], labels_of: Labels, task: Task) -> Leakage:
    """Measures how well each column alone predicts the label.

    Args:
      examples: the eval split. At most `leakage.ROWS` rows are judged, and one batch is in memory at a time.
      columns: those that features are made of.
      labels_of: returns the labels of a batch, numbers; [rows].
      task: the task.

    Raises:
      InputError: a row has no label, or several ones.
    """
    sampled: list[pa.RecordBatch] = []
    labels = []
    for batch in _sample(examples):
        sampled.append(pa.RecordBatch.from_arrays([_single(column_of(batch, name)) for name in columns], list(columns)))
        labels.append(labels_of(batch).astype(np.float64))
    known = np.concatenate(labels) if labels else np.empty(0)
    finite = np.isfinite(known)
    by_name = {
        name: _joined([batch.column(at) for batch in sampled]).filter(pa.array(finite))
        for at, name in enumerate(columns)
    }
    return leakage.find(by_name, known[finite], task)


def _sample(examples: Examples) -> Iterator[pa.RecordBatch]:
    """Yields rows from files that are evenly spaced: of each as many, from its beginning."""
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
    """Returns the value of each row, null without one; of a column with several values in a row, only where any are."""
    if pa.types.is_null(column.type):
        return column
    counts = np.diff(np.asarray(column.offsets))
    ends = np.asarray(column.offsets)[1:]
    if counts.max(initial=0) > 1:
        return pa.array(np.zeros(len(counts), np.int8), mask=counts == 0)
    return column.values.take(pa.array(ends - 1, mask=counts == 0))


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Returns the parts of a column as one array; a part without values is of type null."""
    types: Mapping[str, pa.DataType] = {str(each.type): each.type for each in parts if not pa.types.is_null(each.type)}
    (type_,) = types.values() if len(types) == 1 else [pa.null()]
    if pa.types.is_null(type_):
        return pa.nulls(sum(map(len, parts)))
    return pa.concat_arrays([each.cast(type_) if pa.types.is_null(each.type) else each for each in parts])
