"""The slices of a batch's rows as TFMA defines them: a row with several values in a column is in several slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma

from components.base.errors import InputError
from components.compat.tfma import slice_value
from components.compat.tfma.evaluation import SliceKey
from components.data.decimals import decimal_numbers
from components.data.missing import drop_nan
from components.evaluator.binned_sums import Slices
from components.evaluator.binning import Ints


class _Pairs(NamedTuple):
    """Pairs of a row and a value: a row with several values is repeated, a row without values is omitted.

    Attributes:
      rows: Rows, ascending; [pairs].
      codes: Positions in `values`; [pairs].
      values: The distinct values.
    """

    rows: Ints
    codes: Ints
    values: Sequence[Any]


def slices_of(rows: int, columns: Callable[[str], pa.Array], specs: Sequence[tfma.SlicingSpec]) -> Slices:
    """Find the slices of rows.

    Args:
      rows: Number of rows.
      columns: Name → a column with a list of values per row.
      specs: TFMA's specs: columns, values of columns, or both.

    Raises:
      InputError: A value is not valid UTF-8.
    """
    names = {name for spec in specs for name in (*spec.feature_keys, *spec.feature_values)}
    pairs = {name: _pairs(name, columns(name)) for name in names}
    numbers: dict[SliceKey, int] = {}
    parts = [_slice_by(spec, pairs, rows) for spec in specs]
    slice_numbers = [
        np.array([numbers.setdefault(key, len(numbers)) for key in part.values], np.int64)[part.codes] for part in parts
    ]
    at, codes = np.concatenate([part.rows for part in parts]), np.concatenate(slice_numbers)
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
    return _Pairs(rows, codes, [_decode(name, value) if isinstance(value, bytes) else value for value in values])


def _decode(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InputError(
            f"slice by {name}: expected text in UTF-8, received {value!r}",
            f"remove {name} from evaluation.slices, or repair the values",
        ) from None


def _slice_by(spec: tfma.SlicingSpec, pairs: Mapping[str, _Pairs], rows: int) -> _Pairs:
    """Return pairs of a row and a slice of the spec; `values` are the slices that contain rows."""
    fixed = {name: slice_value(text) for name, text in spec.feature_values.items()}
    matching = np.full(rows, True)
    for name, value in fixed.items():
        equal = [at for at, column_value in enumerate(pairs[name].values) if column_value == value]
        matching &= np.isin(np.arange(rows), pairs[name].rows[np.isin(pairs[name].codes, equal)])
    at = np.flatnonzero(matching)
    joined = _Pairs(at, np.zeros(len(at), np.int64), [tuple(fixed.items())] if len(at) else [])
    for name in spec.feature_keys:
        joined = _join(joined, name, pairs[name])
    return joined._replace(values=[tuple(sorted(key)) for key in joined.values])


def _join(pairs: _Pairs, name: str, column: _Pairs) -> _Pairs:
    """Combine each pair with all values of another column in the same row."""
    starts, stops = (np.asarray(np.searchsorted(column.rows, pairs.rows + offset)) for offset in (0, 1))
    counts: Ints = stops - starts
    first = np.repeat(np.arange(len(counts)), counts)
    # The combinations of a pair count up from the first value of its row.
    second = np.arange(len(first)) - (np.cumsum(counts) - counts)[first] + starts[first]
    base = len(column.values)
    codes, inverse = np.unique(pairs.codes[first] * base + column.codes[second], return_inverse=True)
    values = [(*pairs.values[code // base], (name, column.values[code % base])) for code in codes.tolist()]
    return _Pairs(pairs.rows[first], inverse, values)
