"""Check the rows of requests against the model's schema: refuse invalid rows, and count unusual values.

A check runs on the rows of a batch before the model does. It needs a few NumPy operations for all columns of a dtype.
tf.Examples are decoded by TFX's decoder in C++, which, unlike tf.io.parse_example, also reports unexpected features.
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

from components.base.names import did_you_mean
from components.data.saved_model import MATRIX, OF_COLUMNS, OF_EXAMPLES
from components.results.request_schema import FILE, Column, RequestSchema, matrix_columns
from components.serving.server.errors import RequestError

MISSING, OUT_OF_RANGE, OUT_OF_DOMAIN = "missing", "out_of_range", "out_of_domain"
"""Kinds of anomalies."""

Anomalies: TypeAlias = Counter[tuple[str, str]]
"""Counts of anomalies: (column, kind) → number of values, or of rows without a value."""

_Array: TypeAlias = npt.NDArray[Any]
_MISSING_INT = np.iinfo(np.int64).min
_TYPES = {"int64": pa.int64(), "float32": pa.float32(), "string": pa.large_binary()}
_ARRAYS = {"int64": pa.Int64Array, "float32": pa.lib.FloatArray, "string": pa.LargeBinaryArray}
LISTS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}
"""Dtype of a column → field of a tf.Example's feature."""


class _Numbers(NamedTuple):
    """Columns of one numeric dtype. Bounds have the shape [columns, 1]; an unknown bound is NaN."""

    names: Sequence[str]
    least: _Array
    greatest: _Array


class _Lists(NamedTuple):
    """The values of all rows of a column, shape [values], and whether a row is empty, bool of shape [rows]."""

    values: _Array
    empty: _Array


class RowCheck:
    """Checks the rows of a signature.

    Args:
      columns: Column name → description, for the columns that the signature reads.
      known: Names of all features that a tf.Example may have. If None, the inputs of the signature are columns.
      matrices: Whether the inputs are matrices of shape [rows, columns], one per dtype; see `matrix_columns`.
    """

    def __init__(
        self, columns: Mapping[str, Column], known: Iterable[str] | None = None, matrices: bool = False
    ) -> None:
        groups = matrix_columns(columns)
        self._columns, self._matrices = columns, groups if matrices else {}
        self._numbers = [_bound_numbers(groups[dtype], columns) for dtype in ("float32", "int64") if dtype in groups]
        texts = groups.get("string", [])
        self._texts = [name for name in texts if columns[name].always_present or columns[name].domain]
        self._lists = [name for name, column in columns.items() if column.most_values != 1]
        self._not_in_matrices = [*texts, *self._lists]
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
        """Count the unusual values in the rows of a batch.

        Args:
          inputs: Input name → array, with the dtypes of the signature: columns of shape [rows], histories of shape
            [rows, events], matrices of shape [rows, columns], or serialized tf.Examples of shape [rows].

        Raises:
          RequestError: If a row is invalid: it has an unknown feature, a wrong dtype or number of values, lacks a value
            of a required column, or is empty.
        """
        anomalies = Anomalies()
        if not all(map(len, inputs.values())):
            return anomalies
        if self._matrices:
            inputs = {
                name: values
                for dtype, names in self._matrices.items()
                for name, values in zip(names, inputs[dtype].T, strict=True)
            }
        if self._known is None:
            matrices = [np.stack([inputs[name] for name in numbers.names]) for numbers in self._numbers]
            columns: Mapping[str, Any] = {
                name: _drop_missing(inputs[name]) if name in self._lists else inputs[name]
                for name in self._not_in_matrices
            }
        else:
            matrices, columns = self._decode(next(iter(inputs.values())).tolist(), self._known)
        for numbers, values in zip(self._numbers, matrices, strict=True):
            self._check_numbers(numbers, values, anomalies)
        for name in self._texts:
            self._check_texts(name, list(columns[name]), anomalies)
        for name in self._lists:
            self._check_lists(name, columns[name], anomalies)
        return anomalies

    def _decode(self, examples: Sequence[bytes], known: frozenset[str]) -> tuple[list[_Array], dict[str, Any]]:
        """Decode tf.Examples.

        Returns:
          A matrix [columns, rows] for every element of `_numbers`; and the values of the other columns, by name.
        """
        try:
            batch = self._decoder.DecodeBatch(examples)
        except RuntimeError as error:
            raise RequestError(f"expected serialized tf.Examples, received other bytes: {error}") from error
        if unknown := sorted(set(batch.schema.names) - known):
            raise RequestError(
                f"expected features of the model's schema, received {unknown[0]!r}{did_you_mean(unknown[0], known)} "
                "Correct the name, or remove the feature"
            )
        # A feature that is empty in all rows has the type null.
        columns = zip(batch.schema.names, batch.columns, strict=True)
        filled = {name: column for name, column in columns if isinstance(column, pa.LargeListArray)}
        has_value = np.zeros(batch.num_rows, bool)
        matrices = []
        for numbers in self._numbers:
            flat, lengths = self._read(numbers.names, filled, batch.num_rows)
            values = flat.to_numpy()
            matrix = np.full(lengths.shape, np.nan if values.dtype.kind == "f" else _MISSING_INT, values.dtype)
            matrix[lengths > 0] = values
            matrices.append(matrix)
            has_value |= lengths.any(axis=0)
        if filled and not has_value.all():
            ends = pa.concat_arrays([column.offsets for column in filled.values()]).to_numpy()
            has_value = np.diff(ends.reshape(-1, batch.num_rows + 1)).any(axis=0)
        if not has_value.all():
            raise RequestError(
                f"expected a tf.Example with at least one feature, received none in row {has_value.argmin()}; "
                "send the columns that are known"
            )
        return matrices, {name: self._read_values(name, filled, batch.num_rows) for name in self._not_in_matrices}

    def _read(self, names: Sequence[str], filled: Mapping[str, pa.Array], rows: int) -> tuple[pa.Array, _Array]:
        """Read columns that have the same dtype and the same maximum number of values.

        Returns:
          The values of all rows of the first column, then of the next column; and how many values every row has,
          shape [columns, rows].
        """
        dtype, most = self._columns[names[0]].dtype, self._columns[names[0]].most_values
        places = [at for at, name in enumerate(names) if name in filled]
        if not places:
            return pa.array([], _TYPES[dtype]), np.zeros((len(names), rows), np.int64)
        columns = [filled[names[at]] for at in places]
        try:
            # Every Python object per column would take longer than the model does.
            lists = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
        except pa.ArrowInvalid:
            lists = None  # The columns have different types.
        # Comparing classes is faster than comparing Arrow types.
        if lists is None or not isinstance(lists.values, _ARRAYS[dtype]):
            types = {names[at]: type(column.values) for at, column in zip(places, columns, strict=True)}
            name = next(name for name, kind in types.items() if kind is not _ARRAYS[dtype])
            received = next(key for key, kind in _ARRAYS.items() if kind is types[name])
            raise RequestError(
                f"feature {name!r}: expected {LISTS[dtype]}, received {LISTS[received]}; "
                "send the type that the model was trained with"
            )
        lengths = np.diff(lists.offsets).reshape(len(places), rows)
        if most and lengths.max() > most:
            at, row = np.argwhere(lengths > most)[0]
            raise RequestError(
                f"feature {names[places[at]]!r}: expected at most {most} value(s), received {lengths[at, row]} in row "
                f"{row}; send no more values than the training data has"
            )
        if len(places) < len(names):
            present, lengths = lengths, np.zeros((len(names), rows), np.int64)
            lengths[places] = present
        return lists.values, lengths

    def _read_values(self, name: str, filled: Mapping[str, pa.Array], rows: int) -> Any:
        """Return the values of a column of strings as a list, or of a column with several values per row as _Lists."""
        values, (counts,) = self._read([name], filled, rows)
        if name in self._lists:
            is_text = self._columns[name].dtype == "string"
            return _Lists(np.empty(0) if is_text else values.to_numpy(), counts == 0)
        if name not in self._texts:
            return None
        texts = values.to_numpy(zero_copy_only=False)
        if len(texts) < rows:
            texts, present = np.full(rows, None, object), texts
            texts[counts > 0] = present
        return texts.tolist()

    def _check_numbers(self, numbers: _Numbers, values: _Array, anomalies: Anomalies) -> None:
        """Count missing values and values out of range; the values have the shape [columns, rows]."""
        missing, names = _is_missing(values), numbers.names
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
            numbers, values = _bound_numbers([name], self._columns), lists.values[~_is_missing(lists.values)]
            if outside := int(((values < numbers.least) | (values > numbers.greatest)).sum()):
                anomalies[name, OUT_OF_RANGE] += outside

    def _report_missing(self, name: str, missing: _Array, anomalies: Anomalies) -> None:
        column = self._columns[name]
        if column.required:
            raise RequestError(
                f"column {name!r}: expected a value in each row, received a missing or infinite value "
                f"in row {missing.argmax()}; send its value"
            )
        if column.always_present:
            anomalies[name, MISSING] += int(missing.sum())


class RowChecks:
    """Creates the checks of a model's signatures, and sums the anomalies that they find.

    Args:
      schema: Schema that describes the columns of the model.
      key: Feature of a tf.Example that is recorded but not passed to the model; "" for none.

    Attributes:
      schema: The schema.
    """

    def __init__(self, schema: RequestSchema, key: str = "") -> None:
        self.schema, self._known = schema, {*schema.columns, *schema.other_columns, *([key] if key else [])}
        self._lock, self._anomalies = threading.Lock(), Anomalies()

    def create(self, signature: str, inputs: Iterable[str]) -> RowCheck | None:
        """Create the check of a signature.

        Args:
          signature: Name of the signature.
          inputs: Names of the inputs. If they are columns, inputs that the schema lacks are ignored.

        Returns:
          The check. None if the inputs are neither tf.Examples, columns nor matrices of columns.
        """
        columns = self.schema.columns
        if signature in OF_EXAMPLES:
            return RowCheck(columns, self._known)
        if signature in OF_COLUMNS:
            return RowCheck({name: columns[name] for name in inputs if name in columns})
        return RowCheck(columns, matrices=True) if signature == MATRIX else None

    def count(self, anomalies: Anomalies) -> None:
        """Add the anomalies that a check returned. Call it once the rows are answered."""
        with self._lock:
            self._anomalies.update(anomalies)

    def read_counts(self) -> Anomalies:
        """Return a copy of the sum of all anomalies so far."""
        with self._lock:
            return Anomalies(self._anomalies)


def read_row_checks(folder: Path, key: str) -> RowChecks | None:
    """Read the checks of a SavedModel; return None if it lacks a schema, as models of other projects do.

    Args:
      folder: Folder of the SavedModel.
      key: Feature of a tf.Example that is recorded but not passed to the model; "" for none.

    Raises:
      ValueError: If the schema is not valid.
    """
    path = folder / FILE
    return RowChecks(RequestSchema.model_validate_json(path.read_bytes()), key) if path.exists() else None


def _bound_numbers(names: Sequence[str], columns: Mapping[str, Column]) -> _Numbers:
    # None becomes NaN, and every comparison with NaN is false.
    least, greatest = np.array([[columns[name].least, columns[name].greatest] for name in names], float).T[:, :, None]
    return _Numbers(names, least, greatest)


def _is_missing(values: _Array) -> _Array:
    """Return a mask of the missing values. Infinity counts as missing, as in the model."""
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    return np.asarray(values == (_MISSING_INT if values.dtype.kind == "i" else b""))


def _drop_missing(values: _Array) -> _Lists:
    """Return the values and the empty rows of a column of shape [rows], or of a history of shape [rows, events]."""
    missing = _is_missing(values)
    return _Lists(values[~missing], missing if missing.ndim == 1 else missing.all(axis=1))
