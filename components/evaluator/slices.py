"""The slices of a batch's rows, as TFMA defines them: a row with several values of a column is in several slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma

from components.base.errors import InputError
from components.compat.tfma import slice_value
from components.compat.tfma.columnar import Ints
from components.compat.tfma.evaluation import SliceKey
from components.data.decimals import decimal_numbers
from components.data.missing import drop_nan
from components.evaluator.binned_sums import Slices


class _Pairs(NamedTuple):
    """Rows with a value each: a row with several values is repeated, one without any is left out.

    Attributes:
      rows: ascending; [pairs].
      codes: position in `values`; [pairs].
      values: the distinct values.
    """

    rows: Ints
    codes: Ints
    values: Sequence[Any]


def slices_of(rows: int, columns: Callable[[str], pa.Array], specs: Sequence[tfma.SlicingSpec]) -> Slices:
    """Find the slices of rows.

    Args:
      rows: number of rows.
      columns: name → a column, a list of values for each row.
      specs: TFMA's specs: columns, values of columns, or both.

    Raises:
      InputError: a value is bytes that are no text in UTF-8.
    """
    names = {name for spec in specs for name in (*spec.feature_keys, *spec.feature_values)}
    pairs = {name: _pairs(name, columns(name)) for name in names}
    numbers: dict[SliceKey, int] = {}
    parts = [_of_spec(rows, pairs, spec) for spec in specs]
    of_codes = [
        np.array([numbers.setdefault(key, len(numbers)) for key in part.values], np.int64)[part.codes] for part in parts
    ]
    at, codes = np.concatenate([part.rows for part in parts]), np.concatenate(of_codes)
    if len(numbers) < sum(len(part.values) for part in parts):
        # Two specs have a slice in common.
        at, codes = np.divmod(np.unique(at * len(numbers) + codes), len(numbers))
    return Slices(list(numbers), at, codes)


def _pairs(name: str, column: pa.Array) -> _Pairs:
    if pa.types.is_null(column.type):
        return _Pairs(np.empty(0, np.int64), np.empty(0, np.int64), [])
    column = drop_nan(column)
    rows = np.asarray(pc.list_parent_indices(column)).astype(np.int64)
    encoded = pc.list_flatten(column).dictionary_encode()
    codes = np.asarray(encoded.indices).astype(np.int64)
    values = decimal_numbers(encoded.dictionary).to_pylist()
    if len(rows) and (rows[1:] == rows[:-1]).any():
        rows, codes = np.divmod(np.unique(rows * len(values) + codes), len(values))
    return _Pairs(rows, codes, [_text(name, each) if isinstance(each, bytes) else each for each in values])


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InputError(
            f"slice by {name}: expected text in UTF-8, received {value!r}",
            f"remove {name} from evaluation.slices, or repair the values",
        ) from None


def _of_spec(rows: int, pairs: Mapping[str, _Pairs], spec: tfma.SlicingSpec) -> _Pairs:
    """Return the rows of a spec's slices; the values are the slices that have rows."""
    fixed = {name: slice_value(text) for name, text in spec.feature_values.items()}
    matching = np.full(rows, True)
    for name, value in fixed.items():
        equal = [at for at, each in enumerate(pairs[name].values) if each == value]
        matching &= np.isin(np.arange(rows), pairs[name].rows[np.isin(pairs[name].codes, equal)])
    at = np.flatnonzero(matching)
    # The codes of a combination are numbers in the base of the columns' numbers of values.
    joined = _Pairs(at, np.zeros(len(at), np.int64), [tuple(fixed.items())] if len(at) else [])
    for name in spec.feature_keys:
        joined = _joined(joined, name, pairs[name])
    return joined._replace(values=[tuple(sorted(key)) for key in joined.values])


def _joined(pairs: _Pairs, name: str, others: _Pairs) -> _Pairs:
    """Combine each pair with all values of another column in the same row."""
    starts, stops = (np.asarray(np.searchsorted(others.rows, pairs.rows + later)) for later in (0, 1))
    counts: Ints = stops - starts
    own = np.repeat(np.arange(len(counts)), counts)
    # The position of each combination among those of its pair, from the first value of the row on.
    other = np.arange(len(own)) - (np.cumsum(counts) - counts)[own] + starts[own]
    base = len(others.values)
    codes, inverse = np.unique(pairs.codes[own] * base + others.codes[other], return_inverse=True)
    values = [(*pairs.values[code // base], (name, others.values[code % base])) for code in codes.tolist()]
    return _Pairs(pairs.rows[own], inverse, values)
