"""Warm up a version: call every signature before the version becomes available.

TensorFlow optimizes the graph of a signature and creates its kernels in the first call. Later calls reuse them, even
with another number of rows. The rows of the first call come from:

- the recorded requests in TensorFlow Serving's file, for the signatures that the requests name;
- the tf.Examples in these requests, for the other signatures that take tf.Examples or columns;
- the model's schema and the specs of the inputs, for all other signatures.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.data.saved_model import MATRIX, OF_COLUMNS, OF_EXAMPLES, OURS, raw_columns
from components.results.request_schema import Column, RequestSchema, matrix_columns
from components.serving.server.errors import RequestError
from components.serving.server.row_check import LISTS
from components.serving.server.saved_model import DEFAULT, Arrays, SavedModel, Signature, TensorSpec, from_proto

RECORDED = "assets.extra/tf_serving_warmup_requests"
"""File of TensorFlow Serving's recorded requests, see https://www.tensorflow.org/tfx/serving/saved_model_warmup."""
MOST_ROWS = 64
"""Maximum number of recorded tf.Examples that are converted to rows of other signatures."""


def warm_up(model: SavedModel, folder: Path) -> None:
    """Call every signature of a model, and set `model.warm_up_requests`.

    Args:
      model: A loaded model.
      folder: Folder of the SavedModel, which may contain recorded requests.

    Raises:
      RequestError: If the model refuses a recorded request, or its rows in another signature.
      Exception: If TensorFlow cannot run a signature, for example because an op lacks a kernel.
    """
    called: list[str] = []
    examples: list[bytes] = []
    for signature, inputs in _read_recorded(model, folder / RECORDED):
        _call(signature, inputs)
        called.append(signature.name)
        if signature.name == DEFAULT and takes_examples(signature.inputs):
            examples.extend(next(iter(inputs.values())).tolist())
    schema = None if model.row_checks is None else model.row_checks.schema
    # A model of another project may give the names of our signatures another meaning.
    recorded = examples[:MOST_ROWS] if OURS in model.signatures else []
    generated = [] if schema is None else [_make_example(schema.columns)]
    for name in sorted(model.signatures.keys() - called):
        signature = model.signatures[name]
        if rows := convert_examples(name, signature.inputs, recorded, schema):
            _call(signature, rows)
        else:
            _try(signature, convert_examples(name, signature.inputs, generated, schema) or _fill(signature.inputs))
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
    # The metrics count the unusual values of clients only.
    replace(signature, count=lambda _: None).run(inputs)


def _try(signature: Signature, inputs: Arrays) -> None:
    """Call a signature with generated rows. It may refuse them, for example because an image lacks pixels."""
    if any(spec.dtype in (tf.resource, tf.variant) for spec in signature.inputs.values()):
        return  # Clients cannot send these either.
    try:
        _call(signature, inputs)
    except RequestError as error:
        logging.warning("signature %r refuses the row that was generated to warm it up: %s", signature.name, error)


def takes_examples(inputs: Mapping[str, TensorSpec]) -> bool:
    """Return whether the only input has the dtype and shape of serialized tf.Examples."""
    return list(inputs.values()) == [TensorSpec(tf.string, (-1,))]


def convert_examples(
    name: str, inputs: Mapping[str, TensorSpec], examples: Sequence[bytes], schema: RequestSchema | None
) -> Arrays | None:
    """Convert tf.Examples to the inputs of a signature of one of this project's models.

    Args:
      name: Name of the signature.
      inputs: Input name → spec.
      examples: Serialized tf.Examples that the model answers.
      schema: Schema of the columns that the model reads; None if the model lacks a schema.

    Returns:
      Input name → array. None if the inputs are neither tf.Examples nor columns, or cannot represent any of the rows: a
      column holds one value per row, or a list if it is a history.
    """
    if not examples:
        return None
    if name in OF_EXAMPLES and takes_examples(inputs):
        return dict.fromkeys(inputs, np.array(examples, object))
    if name == MATRIX and schema:
        groups = matrix_columns(schema.columns)
        specs = {column: TensorSpec(inputs[dtype].dtype, (-1,)) for dtype, group in groups.items() for column in group}
        columns = _to_columns(specs, examples)
        return columns and {dtype: np.stack([columns[name] for name in group], 1) for dtype, group in groups.items()}
    return _to_columns(inputs, examples) if name in OF_COLUMNS else None


def _to_columns(inputs: Mapping[str, TensorSpec], examples: Sequence[bytes]) -> Arrays | None:
    """Convert the tf.Examples that the inputs can represent to columns; return None if they cannot represent any."""
    specs = {column: tf.TensorSpec([None] * len(spec.shape or ()), spec.dtype) for column, spec in inputs.items()}
    decode = ExamplesToRecordBatchDecoder().DecodeBatch
    columns = raw_columns(decode(examples), specs)
    if columns is None:
        examples = [row for row in examples if raw_columns(decode([row]), specs) is not None]
        columns = raw_columns(decode(examples), specs) if examples else None
    return columns


def _fill(inputs: Mapping[str, TensorSpec]) -> Arrays:
    """Create arrays of one row with zeros or empty strings."""
    rows = {}
    for name, (dtype, shape) in inputs.items():
        sizes = [max(size, 1) for size in ((1,) if shape is None else shape)]
        rows[name] = np.full(sizes, b"" if dtype == tf.string else 0, dtype.as_numpy_dtype)
    return rows


def _typical_value(column: Column) -> bytes | int | float:
    """Return a valid value of a column."""
    if column.dtype == "string":
        return column.domain[0].encode() if column.domain else b"0"
    least = column.least or 0.0
    return int(least) if column.dtype == "int64" else least


def _make_example(columns: Mapping[str, Column]) -> bytes:
    example = tf.train.Example()
    for name, column in columns.items():
        getattr(example.features.feature[name], LISTS[column.dtype]).value.append(_typical_value(column))
    return bytes(example.SerializeToString())
