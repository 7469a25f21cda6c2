"""Checks the rows of requests by the schema that a model brings: refuses what cannot be right, counts what is rare.

A check runs on the rows of a batch, column by column, before the model: a few operations of NumPy for all columns of a
dtype. The decoder of tf.Examples is TFX's, in C++; unlike tf.io.parse_example, it reports features that nobody expects.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.names import did_you_mean
from components.request_schema import FILE, Column, RequestSchema
from components.serving.server.errors import RequestError

MISSING, OUT_OF_RANGE, OUT_OF_DOMAIN = "missing", "out_of_range", "out_of_domain"
"""Kinds of anomalies."""

_Array: TypeAlias = npt.NDArray[Any]
_MISSING_INT = np.iinfo(np.int64).min
_TYPES = {"int64": pa.int64(), "float32": pa.float32(), "string": pa.large_binary()}
_ARRAYS = {"int64": pa.Int64Array, "float32": pa.lib.FloatArray, "string": pa.LargeBinaryArray}
_LISTS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}


class Anomalies(Counter[tuple[str, str]]):
    """Counts anomalies: (column, kind) → number of values, or of rows without a value."""


class _Numbers(NamedTuple):
    """Columns of one numeric dtype. Bounds have the shape [columns, 1] and are infinite where they are not known."""

    columns: Mapping[str, Column]
    least: _Array
    greatest: _Array


class _Lists(NamedTuple):
    """The values of all rows of a column, and which rows have none; the latter has the shape [rows]."""

    values: _Array
    empty: _Array


class RowCheck:
    """Checks the rows of a signature.

    Args:
      columns: Describes the columns that the signature reads, by name.
      known: All features that a tf.Example may have. None if the signature takes columns.
    """

    def __init__(self, columns: Mapping[str, Column], known: Iterable[str] | None = None) -> None:
        self._columns = columns
        single = {name: column for name, column in columns.items() if column.most_values == 1}
        self._numbers = [
            _numbers(group)
            for dtype in ("float32", "int64")
            if (group := {name: column for name, column in single.items() if column.dtype == dtype})
        ]
        self._texts = [name for name, column in single.items() if _is_checked_text(column)]
        self._lists = columns.keys() - single.keys()
        self._known = None if known is None else frozenset(known)
        self._decoder = ExamplesToRecordBatchDecoder()
        # An empty text is a value in a tf.Example.
        self._no_text = b"" if known is None else None
        self._domains = {
            name: frozenset({self._no_text, *(value.encode() for value in column.domain)})
            for name, column in columns.items()
            if column.domain
        }

    def check(self, inputs: Mapping[str, _Array]) -> Anomalies:
        """Return what is unusual in the rows of a batch.

        Args:
          inputs: The inputs of the signature with their dtypes: columns of shape [rows], of histories [rows, events];
            or serialized tf.Examples, shape [rows].

        Raises:
          RequestError: A row cannot be right: an unknown feature, a wrong dtype or number of values, no value of a
            required column, or no feature at all.
        """
        anomalies = Anomalies()
        if not all(map(len, inputs.values())):
            return anomalies
        if self._known is None:
            columns: Mapping[str, Any] = {
                name: _present(inputs[name]) if name in self._lists else inputs[name] for name in self._columns
            }
        else:
            columns = self._decode(next(iter(inputs.values())).tolist(), self._known)
        for numbers in self._numbers:
            self._check_numbers(numbers, np.stack([columns[name] for name in numbers.columns]), anomalies)
        for name in self._texts:
            self._check_texts(name, list(columns[name]), anomalies)
        for name in self._lists:
            self._check_lists(name, columns[name], anomalies)
        return anomalies

    def _decode(self, examples: Sequence[bytes], known: frozenset[str]) -> dict[str, Any]:
        """Return what `check` reads of each column: an array, a list of texts, or _Lists."""
        try:
            batch = self._decoder.DecodeBatch(examples)
        except RuntimeError as error:
            raise RequestError(f"expected serialized tf.Examples, received others: {error}") from error
        if unknown := sorted(set(batch.schema.names) - known):
            raise RequestError(
                f"expected features of the model's schema, received {unknown[0]!r}{did_you_mean(unknown[0], known)} "
                "Correct the name, or leave the feature out"
            )
        # A feature without a value in all rows has the type null.
        columns = zip(batch.schema.names, batch.columns, strict=True)
        filled = {name: column for name, column in columns if isinstance(column, pa.LargeListArray)}
        shape = (len(filled), batch.num_rows)
        counts = np.diff([np.asarray(column.offsets) for column in filled.values()]) if filled else np.zeros(shape)
        if (empty := ~counts.any(axis=0)).any():
            raise RequestError(
                f"expected a tf.Example with at least one feature, received none in row {_first(empty)}; "
                "send the columns that are known"
            )
        # For all columns at once: a call of NumPy takes a microsecond, as long as all values of a small batch.
        places = dict(zip(filled, zip(counts, counts.max(axis=1).tolist(), strict=True), strict=True))
        nowhere = np.zeros(batch.num_rows, np.int64), 0
        return {
            name: self._values(name, column, filled.get(name), *places.get(name, nowhere))
            for name, column in self._columns.items()
        }

    def _values(self, name: str, column: Column, array: pa.Array | None, counts: _Array, most: int) -> Any:
        values = pa.array([], _TYPES[column.dtype]) if array is None else array.values
        # The comparison of Arrow's types takes longer than that of their classes.
        if not isinstance(values, _ARRAYS[column.dtype]):
            received = next(key for key, kind in _ARRAYS.items() if isinstance(values, kind))
            raise RequestError(
                f"feature {name!r}: expected {_LISTS[column.dtype]}, received {_LISTS[received]}; "
                "send the type that the model was trained with"
            )
        if column.most_values and most > column.most_values:
            row = _first(counts > column.most_values)
            received = f"received {counts[row]} in row {row}"
            raise RequestError(
                f"feature {name!r}: expected at most {column.most_values} value(s), {received}; "
                "send no more values than the training data has"
            )
        if name in self._lists:
            return _Lists(np.empty(0) if column.dtype == "string" else values.to_numpy(), counts == 0)
        if column.dtype == "string":
            if name not in self._texts:
                return None
            texts = values.to_numpy(zero_copy_only=False).tolist()
            return texts if len(texts) == len(counts) else _with_gaps(texts, counts > 0)
        if len(values) == len(counts):
            return values.to_numpy()
        result = np.full(len(counts), np.nan if column.dtype == "float32" else _MISSING_INT, column.dtype)
        result[counts > 0] = values.to_numpy()
        return result

    def _check_numbers(self, numbers: _Numbers, values: _Array, anomalies: Anomalies) -> None:
        """Check the values of single-valued columns, shape [columns, rows]."""
        missing, names = _is_missing(values), [*numbers.columns]
        outside = (values < numbers.least) | (values > numbers.greatest)
        if missing.any():
            outside &= ~missing
            for at in np.flatnonzero(missing.any(axis=1)):
                self._report_missing(names[at], missing[at], anomalies)
        if outside.any():
            for at in np.flatnonzero(outside.any(axis=1)):
                anomalies[names[at], OUT_OF_RANGE] += int(outside[at].sum())

    def _check_texts(self, name: str, values: list[bytes | None], anomalies: Anomalies) -> None:
        words = set(values)
        if self._no_text in words:
            self._report_missing(name, np.array([value == self._no_text for value in values]), anomalies)
        if name in self._domains and not words <= (domain := self._domains[name]):
            anomalies[name, OUT_OF_DOMAIN] += sum(value not in domain for value in values)

    def _check_lists(self, name: str, lists: _Lists, anomalies: Anomalies) -> None:
        column = self._columns[name]
        if lists.empty.any():
            self._report_missing(name, lists.empty, anomalies)
        if column.dtype != "string":
            numbers, values = _numbers({name: column}), lists.values[~_is_missing(lists.values)]
            if outside := int(((values < numbers.least) | (values > numbers.greatest)).sum()):
                anomalies[name, OUT_OF_RANGE] += outside

    def _report_missing(self, name: str, missing: _Array, anomalies: Anomalies) -> None:
        column = self._columns[name]
        if column.required:
            raise RequestError(
                f"column {name!r}: expected a value in each row, received none, or one that is not finite, "
                f"in row {_first(missing)}; send its value"
            )
        if column.always_present:
            anomalies[name, MISSING] += int(missing.sum())


class RowChecks:
    """The checks of a model's signatures, and how many anomalies they have found.

    Args:
      schema: Describes the columns of the model.
      key: Feature of a tf.Example that is recorded and not given to the model; "" for none.

    Attributes:
      schema: As given.
    """

    def __init__(self, schema: RequestSchema, key: str = "") -> None:
        self.schema, self._known = schema, {*schema.columns, *schema.other_columns, *([key] if key else [])}
        self._lock, self._anomalies = threading.Lock(), Anomalies()

    def of_examples(self) -> RowCheck:
        """Return the check of a signature that takes serialized tf.Examples."""
        return RowCheck(self.schema.columns, self._known)

    def of_columns(self, inputs: Iterable[str]) -> RowCheck:
        """Return the check of a signature whose inputs are columns; it ignores inputs that the schema does not have."""
        columns = self.schema.columns
        return RowCheck({name: columns[name] for name in inputs if name in columns})

    def count(self, anomalies: Anomalies) -> None:
        """Add what a check has returned, once its rows are answered."""
        with self._lock:
            self._anomalies.update(anomalies)

    def counted(self) -> Anomalies:
        """Return all anomalies so far."""
        with self._lock:
            return Anomalies(self._anomalies)

    def reset(self) -> None:
        """Forget the anomalies so far."""
        with self._lock:
            self._anomalies.clear()


def read_row_checks(folder: Path, key: str) -> RowChecks | None:
    """Return the checks of a SavedModel; None if it does not bring a schema, such as models of other projects.

    Raises:
      ValueError: The schema is not valid.
    """
    path = folder / FILE
    return RowChecks(RequestSchema.model_validate_json(path.read_bytes()), key) if path.exists() else None


def _is_checked_text(column: Column) -> bool:
    return column.dtype == "string" and (column.always_present or bool(column.domain))


def _numbers(columns: Mapping[str, Column]) -> _Numbers:
    bounds = [
        (
            -np.inf if column.least is None else column.least,
            np.inf if column.greatest is None else column.greatest,
        )
        for column in columns.values()
    ]
    least, greatest = np.array(bounds).T[:, :, np.newaxis]
    return _Numbers(columns, least, greatest)


def _is_missing(values: _Array) -> _Array:
    """Return where numbers are missing; the model reads infinity as missing, too."""
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    return np.asarray(values == (_MISSING_INT if values.dtype.kind == "i" else b""))


def _present(values: _Array) -> _Lists:
    """Divide a column of shape [rows], or a history of shape [rows, events], into its values and its empty rows."""
    missing = _is_missing(values)
    return _Lists(values[~missing], missing if missing.ndim == 1 else missing.all(axis=1))


def _with_gaps(texts: list[bytes], present: _Array) -> list[bytes | None]:
    remaining = iter(texts)
    return [next(remaining) if is_present else None for is_present in present.tolist()]


def _first(rows: _Array) -> int:
    return int(np.argmax(rows))
