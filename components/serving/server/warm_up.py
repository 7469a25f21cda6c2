"""Warm-up: every signature of a version is called before the version becomes available.

TensorFlow optimizes the graph of a signature and creates its kernels in the first call, and none in later calls with
another number of rows. The rows of the first calls are:

- the recorded requests, in TensorFlow Serving's file, for the signatures that they name;
- the tf.Examples among them, for the other signatures that take tf.Examples or columns;
- rows made from the model's schema and from the specs of the inputs, for all other signatures.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.data.saved_model import OF_COLUMNS, raw_columns
from components.results.request_schema import Column, RequestSchema, matrix_columns
from components.serving.server.errors import RequestError
from components.serving.server.saved_model import (
    MATRIX,
    OF_EXAMPLES,
    OURS,
    Arrays,
    SavedModel,
    Signature,
    TensorSpec,
    from_proto,
)

RECORDED = "assets.extra/tf_serving_warmup_requests"
"""TensorFlow Serving's, see https://www.tensorflow.org/tfx/serving/saved_model_warmup."""
MOST_ROWS = 64
"""Recorded tf.Examples of which rows of other signatures are made."""
_EXAMPLES = "serving_default"


def warm_up(model: SavedModel, folder: Path) -> None:
    """Call every signature of a model, and set the model's `warm_up_requests`.

    Args:
      model: A loaded model.
      folder: Its SavedModel, which may have recorded requests.

    Raises:
      RequestError: The model refuses a recorded request, or its rows in another signature of rows.
      Exception: TensorFlow cannot run a signature, for example because an op has no kernel or a table no values.
    """
    called: list[str] = []
    examples: list[bytes] = []
    for signature, inputs in _read_recorded(model, folder / RECORDED):
        _call(signature, inputs)
        called.append(signature.name)
        if signature.name == _EXAMPLES and takes_examples(signature.inputs):
            examples.extend(next(iter(inputs.values())).tolist())
    schema = None if model.row_checks is None else model.row_checks.schema
    for name in sorted(model.signatures.keys() - called):
        signature = model.signatures[name]
        # Another project may use these names for anything.
        rows = examples[:MOST_ROWS] if OURS in model.signatures else []
        recorded = rows_of_examples(name, signature.inputs, rows, schema)
        if recorded is not None:
            _call(signature, recorded)
        else:
            _try(signature, _make_rows(signature, schema))
    if model.row_checks is not None:
        model.row_checks.reset()
    model.warm_up_requests = len(called)


def _read_recorded(model: SavedModel, path: Path) -> Iterator[tuple[Signature, Arrays]]:
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator() if path.exists() else ():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        if not log.HasField("predict_log"):
            logging.warning("%s: only requests to predict are run as warm-up", path)
            continue
        request = log.predict_log.request
        inputs = {name: from_proto(proto) for name, proto in request.inputs.items()}
        yield model.signature(request.model_spec.signature_name), inputs


def _call(signature: Signature, inputs: Arrays) -> None:
    signature.check(inputs)
    signature.run(inputs)


def _try(signature: Signature, inputs: Arrays | None) -> None:
    """Call a signature with rows that it may refuse: a made row need not be valid, such as an image without pixels."""
    if inputs is None:
        return
    try:
        _call(signature, inputs)
    except RequestError as error:
        logging.warning("signature %r refuses the warm-up row that was made for it: %s", signature.name, error)


def takes_examples(inputs: Mapping[str, TensorSpec]) -> bool:
    """Return whether a signature has one input, whose shape and dtype are those of serialized tf.Examples."""
    return list(inputs.values()) == [TensorSpec(tf.string, (-1,))]


def rows_of_examples(
    name: str, inputs: Mapping[str, TensorSpec], examples: Sequence[bytes], schema: RequestSchema | None
) -> Arrays | None:
    """Return rows for a signature of one of this project's models, made of tf.Examples.

    Args:
      name: The signature.
      inputs: Its inputs.
      examples: Rows that the model answers, serialized.
      schema: Describes the columns that the model reads; None if the model does not bring it.

    Returns:
      The inputs; None if the signature takes other inputs than examples or columns, or cannot represent any row: one
      value per row and column, or a list for a history.
    """
    if not examples:
        return None
    if name in OF_EXAMPLES and takes_examples(inputs):
        return dict.fromkeys(inputs, np.array(examples, object))
    if name == MATRIX and schema:
        groups = matrix_columns(schema.columns)
        specs = {column: TensorSpec(inputs[dtype].dtype, (-1,)) for dtype, group in groups.items() for column in group}
        columns = _columns_of(specs, examples)
        return columns and {dtype: np.stack([columns[name] for name in group], 1) for dtype, group in groups.items()}
    return _columns_of(inputs, examples) if name in OF_COLUMNS else None


def _columns_of(inputs: Mapping[str, TensorSpec], examples: Sequence[bytes]) -> Arrays | None:
    """Return the columns of the tf.Examples that the inputs can represent; None if there are none."""
    specs = {column: tf.TensorSpec([None] * len(spec.shape or ()), spec.dtype) for column, spec in inputs.items()}
    decode = ExamplesToRecordBatchDecoder().DecodeBatch
    columns = raw_columns(decode(examples), specs)
    if columns is None:
        examples = [row for row in examples if raw_columns(decode([row]), specs) is not None]
        columns = raw_columns(decode(examples), specs) if examples else None
    return columns


def _make_rows(signature: Signature, schema: RequestSchema | None) -> Arrays | None:
    """Return one row for a signature; None if no client could send it either, as an input is a resource."""
    specs = signature.inputs
    if any(spec.dtype in (tf.resource, tf.variant) for spec in specs.values()):
        return None
    columns = {} if schema is None else schema.columns
    if columns and signature.name in OF_EXAMPLES and takes_examples(specs):
        return dict.fromkeys(specs, np.array([_make_example(columns)], object))
    if columns and signature.name == MATRIX:
        return {
            dtype: np.array([[_typical(columns[name]) for name in names]], specs[dtype].dtype.as_numpy_dtype)
            for dtype, names in matrix_columns(columns).items()
        }
    return {name: _fill(spec, _typical(columns.get(name))) for name, spec in specs.items()}


def _fill(spec: TensorSpec, value: Any) -> Any:
    if value is None:
        value = b"" if spec.dtype == tf.string else 0
    shape = [max(size, 1) for size in ((1,) if spec.shape is None else spec.shape)]
    return np.full(shape, value, spec.dtype.as_numpy_dtype)


def _typical(column: Column | None) -> bytes | int | float | None:
    """Return a value that a column may have; None if nothing is known of it."""
    if column is None:
        return None
    if column.dtype == "string":
        return column.domain[0].encode() if column.domain else b"0"
    least = column.least or 0.0
    return int(least) if column.dtype == "int64" else least


def _make_example(columns: Mapping[str, Column]) -> bytes:
    example = tf.train.Example()
    lists = {"string": "bytes_list", "int64": "int64_list", "float32": "float_list"}
    for name, column in columns.items():
        getattr(example.features.feature[name], lists[column.dtype]).value.append(_typical(column))
    return bytes(example.SerializeToString())
