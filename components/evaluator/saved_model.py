"""Labels and predictions of a SavedModel for record batches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow_model_analysis as tfma
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tfx.dsl.io import fileio

from components.base.config_section import Task
from components.base.errors import InputError
from components.data.saved_model import RAW, Columns, call, column_of, load, raw_columns, serialize
from components.evaluator.binning import Ints, Numbers
from components.results.model_outputs import SURVIVAL

_VALUES = 1 << 22
"""Maximum number of values per output and batch. Class names, which are strings and objects, then take 370 MiB."""


@dataclass(frozen=True)
class Evaluated:
    """The labels and predictions of a model for the rows of a batch.

    Attributes:
      labels: Labels; [rows], or [rows, width] of a multilabel or survival task.
      predictions: Predictions; [rows], or [rows, classes].
      transformed: Outputs of the model's preprocessing signatures; [rows, ...]. The label is omitted if the examples
        have a column with its name, so that slices by this column show its values, such as names of classes.
      outputs: All outputs of the prediction by name; [rows, ...].
    """

    labels: Numbers
    predictions: Numbers
    transformed: Columns
    outputs: Columns

    def output(self, name: str) -> Numbers:
        """Return an output of the model, or NaN if the model lacks it.

        Args:
          name: Name of the output; empty for the prediction; or several names, separated by commas, whose columns are
            joined.
        """
        if not name:
            return self.predictions
        outputs = {"": self.predictions.reshape(len(self.labels), -1), **self.outputs}
        names = name.split(",")
        if not all(column in outputs for column in names):
            return np.full(len(self.labels), np.nan)
        if len(names) == 1:
            return outputs[name]
        return np.concatenate([outputs[column] for column in names], axis=1)

    def add_columns(self, batch: pa.RecordBatch, names: Iterable[str], prefix: str) -> Evaluated:
        """Return a copy whose outputs contain columns of the examples, [rows, 1], under prefixed names."""
        columns = {f"{prefix}{name}": _to_numbers(column_of(batch, name))[:, np.newaxis] for name in names}
        return replace(self, outputs={**self.outputs, **columns})


class Recombine(Protocol):
    """A function that predicts rows whose columns come from different rows; see `Model.recombine`."""

    def __call__(self, sources: Mapping[str, Ints], rows: Ints | None = None) -> tuple[Numbers, Columns]:
        """Return the predictions, [n] or [n, classes], and all outputs, [n, ...]."""


def _to_numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return the numbers of a column of lists, [rows]; NaN where a row does not have one value."""
    numbers = np.full(len(column), np.nan)
    if not pa.types.is_null(column.type):
        is_single = np.diff(np.asarray(column.offsets)) == 1
        starts = np.asarray(column.offsets)[:-1] - np.asarray(column.offsets)[0]
        numbers[is_single] = column.flatten().to_numpy(zero_copy_only=False)[starts[is_single]]
    return numbers


def find_unsupported(folder: str, spec: tfma.ModelSpec, task: Task) -> str | None:
    """Return the property of a SavedModel that prevents `Model` from evaluating it; None if `Model` can evaluate it.

    The function only reads the file. It does not start TensorFlow's runtime, because the process forks workers later.

    Args:
      folder: Folder of the SavedModel.
      spec: Signatures and outputs of the model.
      task: The task.
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
    fits = len(sizes) == 2 if task in ("multiclass", "multilabel") else sizes[1:] in ([], [1])
    return None if fits else f"predictions of shape {sizes}"


def _takes_examples(signature: meta_graph_pb2.SignatureDef) -> bool:
    inputs = list(signature.inputs.values())
    return len(inputs) == 1 and inputs[0].dtype == types_pb2.DT_STRING and len(inputs[0].tensor_shape.dim) == 1


class Model:
    """A SavedModel in memory; a process loads it once.

    Args:
      folder: Folder of the SavedModel.
      spec: Signatures and outputs of the model.
      label_columns: Columns that the preprocessing signatures read; None if they may read any column of the examples.
    """

    def __init__(self, folder: str, spec: tfma.ModelSpec, label_columns: tuple[str, ...] | None) -> None:
        self._signatures = load(folder)
        self._spec, self._label_columns = spec, label_columns
        self._raw = None
        # In a model of own code, a signature of this name may mean something else.
        if spec.prediction_key and label_columns is not None and RAW in self._signatures:
            self._raw = self._signatures[RAW]

    @property
    def most_rows(self) -> int:
        """The maximum number of rows to evaluate at a time, at least 1.

        With many classes, larger batches would not fit in memory: a row's outputs include the names of all classes.
        """
        shapes = [spec.shape for spec in self._signatures[self._spec.signature_name].outputs.values()]
        widths = [math.prod(size or 1 for size in shape[1:]) for shape in shapes if shape.rank]
        return max(1, _VALUES // max(widths, default=1))

    def evaluate(self, batch: pa.RecordBatch, outputs: Columns | None = None) -> Evaluated:
        """Compute labels and predictions.

        Args:
          batch: A batch of components.data.examples.
          outputs: Earlier outputs of the model for these rows; [rows, ...]. If None, the model predicts the rows.

        Raises:
          InputError: A row does not have exactly one label.
        """
        outputs = self._outputs(batch) if outputs is None else outputs
        predictions = self._prediction(outputs)
        transformed = self._transform(batch)
        labels = self._labels(batch, transformed, outputs)
        if self._label_columns is not None and self._spec.label_key in batch.schema.names:
            transformed.pop(self._spec.label_key, None)
        return Evaluated(labels, predictions, transformed, outputs)

    def predict(self, batch: pa.RecordBatch) -> tuple[Numbers, Columns]:
        """Compute predictions and all outputs; see Evaluated."""
        outputs = self._outputs(batch)
        return self._prediction(outputs), outputs

    def recombine(self, batch: pa.RecordBatch) -> Recombine:
        """Return a function that predicts rows whose columns come from different rows of the batch; see `predict`.

        The function takes, by column, the rows that provide its values, int64 [n], and the rows that provide all other
        columns, [n]. If the latter is None, these are all rows of the batch in their order.
        """
        columns = None if self._raw is None else raw_columns(batch, self._raw.inputs)

        def predict(sources: Mapping[str, Ints], rows: Ints | None = None) -> tuple[Numbers, Columns]:
            if self._raw is None or columns is None or not sources.keys() <= columns.keys():
                return self.predict(_recombine(batch, sources, rows))
            # Reuse the converted columns: converting the whole batch takes nearly as long as predicting.
            taken = {
                name: values if (order := sources.get(name, rows)) is None else values[order]
                for name, values in columns.items()
            }
            outputs = call(self._raw, taken)
            return self._prediction(outputs), outputs

        return predict

    def _prediction(self, outputs: Columns) -> Numbers:
        predictions = outputs[self._spec.prediction_key or next(iter(outputs))]
        return predictions[:, 0] if predictions.shape[1:] == (1,) else predictions

    def _transform(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
        transformed: dict[str, npt.NDArray[Any]] = {}
        if self._spec.preprocessing_function_names:
            rows = serialize(batch, self._label_columns)
            for name in self._spec.preprocessing_function_names:
                transformed.update(call(self._signatures[name], rows))
        return transformed

    def _outputs(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
        columns = None if self._raw is None else raw_columns(batch, self._raw.inputs)
        if self._raw is not None and columns is not None:
            return call(self._raw, columns)
        return call(self._signatures[self._spec.signature_name], serialize(batch, None))

    def _labels(self, batch: pa.RecordBatch, transformed: Columns, outputs: Columns) -> Numbers:
        key, predictions = self._spec.label_key, self._prediction(outputs)
        if key in transformed:
            labels = transformed[key]
            if labels.ndim == predictions.ndim == 2 and labels.shape[1] >= predictions.shape[1] > 1:
                return labels
            if SURVIVAL in outputs and labels.shape[1:] == (2,):
                return labels
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


def _recombine(batch: pa.RecordBatch, sources: Mapping[str, Ints], rows: Ints | None) -> pa.RecordBatch:
    """Return rows with the values of other rows in some columns; see `Model.recombine`."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        order = sources.get(name, rows)
        columns.append(column if order is None else column.take(pa.array(order)))
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)
