"""Labels and predictions of a SavedModel for record batches."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tfx.dsl.io import fileio

from components.compat.tfma.columnar import Numbers
from components.config_section import Task
from components.data import example_encoder
from components.errors import InputError

_RAW = "raw"
"""The signature of our models that takes columns; see components/trainer/export."""
_BATCH = 8192
"""Rows of a call of the model."""
_MISSING = {tf.string: b"", tf.float32: np.float32(np.nan), tf.int64: np.iinfo(np.int64).min}
"""How the signature `raw` reads a missing value; in a tf.Example these are values."""
_VALUE_TYPES = {tf.string: pa.large_binary(), tf.float32: pa.float32(), tf.int64: pa.int64()}

Columns = Mapping[str, npt.NDArray[Any]]
"""Name → a value for each row; [rows]."""


@dataclass(frozen=True)
class Evaluated:
    """What a model computes for the rows of a batch.

    Attributes:
      labels: [rows].
      predictions: [rows], or [rows, classes].
      transformed: outputs of the model's preprocessing signatures; [rows, ...].
      outputs: all outputs of the prediction by name; [rows, ...].
    """

    labels: Numbers
    predictions: Numbers
    transformed: Columns
    outputs: Columns

    def output(self, name: str) -> Numbers:
        """Returns an output; the prediction if the name is empty, and NaN if the model has no such output."""
        if not name:
            return self.predictions
        return self.outputs[name] if name in self.outputs else np.full(len(self.labels), np.nan)


def unsupported(folder: str, spec: tfma.ModelSpec, task: Task) -> str | None:
    """Returns what prevents `Model` from evaluating a SavedModel; None if nothing does.

    Only the file is read: TensorFlow's runtime, with which a process cannot fork workers, is not started.

    Args:
      folder: of the SavedModel.
      spec: its signatures and outputs.
      task: the task.
    """
    with fileio.open(f"{folder}/saved_model.pb", "rb") as file:
        signatures = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0].signature_def
    for name in (spec.signature_name, *spec.preprocessing_function_names):
        if name not in signatures or not _takes_examples(signatures[name]):
            return f"signature {name}, which does not take serialized tf.Examples alone"
    outputs = signatures[spec.signature_name].outputs
    if (spec.prediction_key not in outputs) if spec.prediction_key else len(outputs) != 1:
        return f"outputs {', '.join(sorted(outputs))} of signature {spec.signature_name}"
    shape = outputs[spec.prediction_key or next(iter(outputs))].tensor_shape
    if shape.unknown_rank:
        return "predictions of unknown shape"
    sizes = [dim.size for dim in shape.dim]
    fits = len(sizes) == 2 if task == "multiclass" else sizes[1:] in ([], [1])
    return None if fits else f"predictions of shape {sizes}"


def _takes_examples(signature: meta_graph_pb2.SignatureDef) -> bool:
    inputs = list(signature.inputs.values())
    return len(inputs) == 1 and inputs[0].dtype == types_pb2.DT_STRING and len(inputs[0].tensor_shape.dim) == 1


class Model:
    """A SavedModel in memory; a process loads it once.

    Args:
      folder: of the SavedModel.
      spec: its signatures and outputs.
      label_columns: the columns that the preprocessing signatures read; None: any of the examples' columns.
    """

    def __init__(self, folder: str, spec: tfma.ModelSpec, label_columns: tuple[str, ...] | None) -> None:
        self._signatures = load(folder)
        self._spec, self._label_columns = spec, label_columns
        self._raw = None
        # A model of own code may have a signature of this name that means something else.
        if spec.prediction_key and label_columns is not None and _RAW in self._signatures:
            self._raw = self._signatures[_RAW]

    def evaluate(self, batch: pa.RecordBatch) -> Evaluated:
        """Computes labels and predictions.

        Args:
          batch: a batch of components.data.examples.

        Raises:
          InputError: a row has no label, or several ones.
        """
        predictions, outputs = self.predict(batch)
        transformed = self._transformed(batch)
        return Evaluated(self._labels(batch, transformed), predictions, transformed, outputs)

    def predict(self, batch: pa.RecordBatch) -> tuple[Numbers, Columns]:
        """Computes predictions and all outputs; see Evaluated."""
        outputs = self._outputs(batch)
        predictions = outputs[self._spec.prediction_key or next(iter(outputs))]
        return predictions[:, 0] if predictions.shape[1:] == (1,) else predictions, outputs

    def _transformed(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
        transformed: dict[str, npt.NDArray[Any]] = {}
        if self._spec.preprocessing_function_names:
            serialized = _serialized(batch, self._label_columns)
            for name in self._spec.preprocessing_function_names:
                transformed.update(_call(self._signatures[name], _by_input(self._signatures[name], serialized)))
        return transformed

    def _outputs(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
        columns = None if self._raw is None else raw_columns(batch, self._raw.structured_input_signature[1])
        if self._raw is not None and columns is not None:
            return _call(self._raw, columns)
        signature = self._signatures[self._spec.signature_name]
        return _call(signature, _by_input(signature, _serialized(batch, None)))

    def _labels(self, batch: pa.RecordBatch, transformed: Columns) -> Numbers:
        key = self._spec.label_key
        if key in transformed:
            labels = transformed[key]
        else:
            column = column_of(batch, key)
            counts = np.diff(np.asarray(column.offsets)) if not pa.types.is_null(column.type) else np.zeros(len(column))
            if (counts != 1).any():
                number = int(counts[counts != 1][0])
                raise InputError(
                    f"label {key}: expected one value in each row, received a row with {number}",
                    "remove rows without a label, or set evaluation.label_key",
                )
            labels = column.flatten().to_numpy(zero_copy_only=False)
        if labels.size != batch.num_rows or labels.dtype == object:
            raise InputError(
                f"label {key}: expected one number for each row, received {labels.dtype} of shape {list(labels.shape)}",
                "set runtime.vectorised: false, so that TFMA evaluates the model itself",
            )
        return labels.reshape(-1)


@functools.lru_cache(maxsize=2)
def load(folder: str) -> Mapping[str, Any]:
    """Loads a SavedModel; returns its signatures. The last two models remain in memory."""
    return _KeptSignatures(tf.saved_model.load(folder))


class _KeptSignatures(dict[str, Any]):
    """The signatures of a model, which keep the model itself from being deleted."""

    def __init__(self, model: Any) -> None:
        super().__init__(model.signatures)
        self._model = model


def raw_columns(batch: pa.RecordBatch, inputs: Mapping[str, tf.TensorSpec]) -> Columns | None:
    """Converts columns to the inputs of the signature `raw`.

    Args:
      batch: a batch of components.data.examples.
      inputs: the signature's inputs.

    Returns:
      The columns; None if the signature would read them otherwise than it reads a tf.Example: a row has several values,
      or a value that means a missing one.
    """
    columns = {}
    for name, spec in inputs.items():
        values = _single_values(column_of(batch, name), spec.dtype)
        if values is None:
            return None
        columns[name] = values
    return columns


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Returns a column; nulls if a batch has no values of it."""
    at = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows) if at < 0 else batch.column(at)


def _single_values(column: pa.Array, dtype: tf.DType) -> npt.NDArray[Any] | None:
    missing = _MISSING[dtype]
    if pa.types.is_null(column.type):
        return np.full(len(column), missing, object if dtype == tf.string else dtype.as_numpy_dtype)
    if column.type.value_type != _VALUE_TYPES[dtype]:
        return None
    offsets = np.asarray(column.offsets)
    starts, counts = offsets[:-1], np.diff(offsets)
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


def _serialized(batch: pa.RecordBatch, names: tuple[str, ...] | None) -> npt.NDArray[Any]:
    """Returns the rows as serialized tf.Examples, with some columns or all; objects, [rows]."""
    if names is not None:
        batch = pa.RecordBatch.from_arrays([column_of(batch, name) for name in names], names)
    serialized = np.empty(batch.num_rows, object)
    serialized[:] = example_encoder.encode(batch).to_pylist()
    return serialized


def _by_input(signature: Any, serialized: npt.NDArray[Any]) -> Columns:
    (name,) = signature.structured_input_signature[1]
    return {name: serialized}


def _call(signature: Any, inputs: Columns) -> dict[str, npt.NDArray[Any]]:
    """Calls a signature on some rows at a time; returns its outputs for all rows."""
    parts = [{name: value.numpy() for name, value in signature(**chunk).items()} for chunk in _chunks(inputs)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _chunks(inputs: Columns) -> Iterator[dict[str, tf.Tensor]]:
    rows = len(next(iter(inputs.values())))
    for start in range(0, rows, _BATCH):
        yield {name: tf.constant(values[start : start + _BATCH]) for name, values in inputs.items()}
