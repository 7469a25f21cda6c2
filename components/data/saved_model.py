"""Call the signatures of SavedModels with record batches of `components.data.examples`, and convert their outputs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from components.base.errors import InputError
from components.compat.tensorflow import create_session, load_graph
from components.data import example_encoder
from components.results.model_outputs import CUMULATIVE_HAZARD, PREDICTED, SURVIVAL, TIMES

RAW = "raw"
"""Signature of our models that takes columns; see components/trainer/export."""
OF_COLUMNS = frozenset({RAW, "query", "item", "top_k"})
"""Signatures that take columns: `raw`, and the signatures of a retrieval; see components/trainer/item_index."""
OURS = "transform_features"
"""Signature that only this project's models have. It returns the transformed features of tf.Examples."""
OF_EXAMPLES = ("serving_default", OURS)
"""Signatures that parse tf.Examples, in this project's models."""
MATRIX = "matrix"
"""Signature with one input per dtype, which holds all columns of the dtype; shape [batch, columns]."""
_CLASSES, _PROBABILITIES = "classes", "probabilities"
_BATCH = 8192
"""Maximum number of rows in a call of the model."""
MISSING = {tf.string: b"", tf.float32: np.nan, tf.int64: np.iinfo(np.int64).min}
"""Values that the signature `raw` reads as missing. In a tf.Example they are values."""

_VALUE_TYPES = {tf.string: pa.large_binary(), tf.float32: pa.float32(), tf.int64: pa.int64()}

Columns = Mapping[str, npt.NDArray[Any]]
"""Column name → values; shape [rows], or [rows, events] for a history."""


def is_missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which values the signature `raw` reads as missing; infinite numbers are missing as well."""
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    return np.asarray(values == MISSING[tf.dtypes.as_dtype(values.dtype)], bool)


@functools.lru_cache(maxsize=2)
def load(folder: str) -> Mapping[str, Signature]:
    """Load a SavedModel into a session, and return its signatures. The last two models remain in memory.

    `tf.saved_model.load` would create Python objects for all functions, variables and tables of the model, which takes
    three times as long.
    """
    session = create_session()
    definitions = load_graph(session, folder).signature_def.items()
    return {name: Signature(session, definition) for name, definition in definitions if not name.startswith("__")}


class Signature:
    """A signature of a loaded model, which is a function of arrays by name. It keeps the session open.

    Args:
      session: Session with the model.
      definition: SignatureDef of the signature.

    Attributes:
      inputs: Input name → dtype and shape.
      outputs: Output name → dtype and shape.
    """

    def __init__(self, session: tf.compat.v1.Session, definition: Any) -> None:
        self._session, self._definition = session, definition
        self.inputs, self.outputs = _specs(definition.inputs), _specs(definition.outputs)

    def __call__(self, **arrays: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Compute the outputs, name → array. Pass one array per input."""
        values = self._call(*(arrays[name] for name in self.inputs))
        return dict(zip(self.outputs, values, strict=True))

    @functools.cached_property
    def _call(self) -> Any:
        fetched, fed = (
            [infos[name].name for name in specs]
            for infos, specs in ((self._definition.outputs, self.outputs), (self._definition.inputs, self.inputs))
        )
        return self._session.make_callable(fetched, fed)


def _specs(infos: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
    return {
        name: tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype), name)
        for name, info in sorted(infos.items())
    }


def raw_columns(batch: pa.RecordBatch, inputs: Mapping[str, tf.TensorSpec]) -> Columns | None:
    """Convert columns to the inputs of the signature `raw`.

    Args:
      batch: Batch of components.data.examples.
      inputs: Inputs of the signature, name → spec.

    Returns:
      The columns. None if the signature would read them differently from tf.Examples, because a row has several values,
      or a value that stands for a missing value.
    """
    columns = {}
    for name, spec in inputs.items():
        read = _single_values if spec.shape.rank == 1 else _lists
        values = read(column_of(batch, name), spec.dtype)
        if values is None:
            return None
        columns[name] = values
    return columns


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column, or nulls if the batch lacks the column."""
    at = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows) if at < 0 else batch.column(at)


def serialize(batch: pa.RecordBatch, names: tuple[str, ...] | None) -> npt.NDArray[Any]:
    """Serialize rows to tf.Examples, with the named columns or all columns; array of objects, shape [rows]."""
    if names is not None:
        batch = pa.RecordBatch.from_arrays([column_of(batch, name) for name in names], names)
    rows = np.empty(batch.num_rows, object)
    rows[:] = example_encoder.encode(batch).to_pylist()
    return rows


def call(signature: Signature, inputs: Columns | npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Call a signature on a limited number of rows at a time.

    Args:
      signature: Signature of a loaded model.
      inputs: Input name → array with at least one row; or the array, if the signature has a single input.

    Returns:
      Output name → array with all rows; shape [rows, ...].
    """
    if isinstance(inputs, np.ndarray):
        (name,) = signature.inputs
        inputs = {name: inputs}
    parts = [signature(**chunk) for chunk in _chunks(inputs)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def convert_outputs(outputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, pa.Array]:
    """Convert the outputs of a model to columns.

    An output with one number or text per row becomes a column with the output's name; an output with several values per
    row becomes a list column. The outputs `classes` and `probabilities` of a classification become a column
    `probability_CLASS` per class, and the column `prediction`, which contains the most probable class; of a multilabel
    model, which has the output `predicted`, it contains the list of predicted classes. The outputs `survival` and
    `times` of a survival model become a column `survival_at_TIME` per time.

    Args:
      outputs: Name → values; [rows, ...].

    Returns:
      Name → column, sorted by name, followed by the columns of the survival in the order of the times.

    Raises:
      InputError: If an output is a scalar for the whole batch.
    """
    arrays = dict(outputs)
    converted: dict[str, pa.Array] = {}
    has_classes = arrays.keys() - {PREDICTED} == {_CLASSES, _PROBABILITIES}
    if has_classes and len({values.shape for values in arrays.values()}) == 1:
        probabilities, classes = arrays.pop(_PROBABILITIES), arrays.pop(_CLASSES)
        # All rows contain the same classes in the same order.
        names = _decode_text(classes[0])
        if PREDICTED in arrays:
            is_predicted = arrays.pop(PREDICTED) > 0
            ends = np.append(0, np.cumsum(is_predicted.sum(axis=1))).astype(np.int32)
            converted["prediction"] = pa.ListArray.from_arrays(ends, names.take(pa.array(is_predicted.nonzero()[1])))
        else:
            converted["prediction"] = names.take(pa.array(probabilities.argmax(axis=1)))
        converted |= {f"probability_{name}": pa.array(probabilities[:, index]) for index, name in enumerate(names)}
    curve: dict[str, pa.Array] = {}
    if arrays.keys() >= {SURVIVAL, TIMES, CUMULATIVE_HAZARD}:
        times, survival, _ = (arrays.pop(name) for name in (TIMES, SURVIVAL, CUMULATIVE_HAZARD))
        # All rows contain the same times in the same order.
        names = (np.format_float_positional(time, trim="-") for time in times[0])
        curve = {f"survival_at_{name}": pa.array(values) for name, values in zip(names, survival.T, strict=True)}
    for name, values in arrays.items():
        if not values.ndim:
            raise InputError(
                f"output {name}: expected one value per row, received one value for the whole batch",
                "name another signature",
            )
        flat = values.reshape([len(values), -1])
        width = flat.shape[1]
        items = _decode_text(flat.ravel()) if values.dtype == object else pa.array(flat.ravel())
        converted[name] = items if width == 1 else pa.FixedSizeListArray.from_arrays(items, width)
    return dict(sorted(converted.items())) | curve


def _decode_text(values: npt.NDArray[Any]) -> pa.Array:
    """Decode UTF-8. If a value is not valid UTF-8, its invalid bytes are written as escape sequences."""
    column = pa.array(values, pa.binary())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode(errors="backslashreplace") for value in values])


def _single_values(column: pa.Array, dtype: tf.DType) -> npt.NDArray[Any] | None:
    missing = MISSING[dtype]
    if pa.types.is_null(column.type):
        return np.full(len(column), missing, object if dtype == tf.string else dtype.as_numpy_dtype)
    if column.type.value_type != _VALUE_TYPES[dtype]:
        return None
    starts, counts = _places(column)
    some = counts > 0
    if counts.max(initial=0) > 1:
        return None
    if dtype == tf.string:
        encoded = column.values.dictionary_encode()
        words = np.array([missing, *encoded.dictionary.to_pylist()], object)
        if (words[1:] == missing).any():
            return None
        codes = np.zeros(len(column), np.int64)
        codes[some] = np.asarray(encoded.indices)[starts[some]] + 1
        return words[codes]
    present = np.asarray(column.values)[starts[some]]
    if (np.isnan(present) if dtype == tf.float32 else present == missing).any():
        return None
    values: npt.NDArray[Any] = np.full(len(column), missing, dtype.as_numpy_dtype)
    values[some] = present
    return values


def _lists(column: pa.Array, dtype: tf.DType) -> npt.NDArray[Any] | None:
    """Return the values of rows, shape [rows, events]. Shorter rows are padded with missing values."""
    missing = MISSING[dtype]
    if pa.types.is_null(column.type):
        return np.full((len(column), 1), missing, object if dtype == tf.string else dtype.as_numpy_dtype)
    if column.type.value_type != _VALUE_TYPES[dtype]:
        return None
    starts, counts = _places(column)
    numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    values = column.values.to_numpy(zero_copy_only=False)[np.repeat(starts, counts) + numbers]
    if (np.isnan(values) if dtype == tf.float32 else values == missing).any():
        return None
    lists = np.full((len(column), max(1, counts.max(initial=0))), missing, values.dtype)
    lists[np.repeat(np.arange(len(column)), counts), numbers] = values
    return lists


def _places(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the offsets and the numbers of the rows' values; both of shape [rows]."""
    offsets = np.asarray(column.offsets)
    return offsets[:-1], np.diff(offsets)


def _chunks(inputs: Columns) -> Iterator[dict[str, npt.NDArray[Any]]]:
    rows = len(next(iter(inputs.values())))
    for start in range(0, rows, _BATCH):
        yield {name: values[start : start + _BATCH] for name, values in inputs.items()}
