"""Records predictions of the model for rows of the eval split; the serving check compares a server with them."""

from __future__ import annotations

import itertools
import logging

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2
from tfx.types import standard_artifacts

from components.data import example_artifacts, example_encoder
from components.evaluator import saved_model

FILE = "predictions.tfrecord"

_SIGNATURE = "serving_default"


def write(model: str, examples: standard_artifacts.Examples, split: str, count: int, folder: str) -> None:
    """Writes PredictionLogs of the first rows: requests of one row each, and the model's responses.

    Without a signature `serving_default` of one tensor of serialized tf.Examples, no file is written.

    Args:
      model: folder of the SavedModel.
      examples: the raw examples.
      split: the split to read.
      count: greatest number of rows.
      folder: where `predictions.tfrecord` is written.
    """
    rows = _first_rows(examples, split, count)
    signature = saved_model.load(model)[_SIGNATURE]
    inputs = signature.structured_input_signature[1]
    if not rows or not _takes_examples(inputs):
        logging.info("no predictions are recorded: %d rows, and serving_default takes %s", len(rows), inputs)
        return
    (name,) = inputs
    outputs = {key: value.numpy() for key, value in signature(**{name: tf.constant(rows)}).items()}
    with tf.io.TFRecordWriter(f"{folder}/{FILE}") as writer:
        for index, row in enumerate(rows):
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.signature_name = _SIGNATURE
            log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto([row]))
            for key, value in outputs.items():
                log.predict_log.response.outputs[key].CopyFrom(tf.make_tensor_proto(value[index : index + 1]))
            writer.write(log.SerializeToString())


def _first_rows(artifact: standard_artifacts.Examples, split: str, count: int) -> list[bytes]:
    examples = example_artifacts.examples_of(artifact, split)
    if examples.format == "tfrecord":
        # A decoder would decode all rows of a batch.
        records = tf.data.TFRecordDataset(examples.paths, compression_type="GZIP").as_numpy_iterator()
        return list(itertools.islice(records, count))
    rows: list[bytes] = []
    for batch in examples.batches():
        rows += example_encoder.encode(batch.slice(0, count - len(rows))).to_pylist()
        if len(rows) == count:
            break
    return rows


def _takes_examples(inputs: dict[str, tf.TensorSpec]) -> bool:
    return len(inputs) == 1 and all(spec.dtype == tf.string and spec.shape.rank == 1 for spec in inputs.values())
