"""Check for skew between training and serving: an exported model must compute what was trained, on Transform's sample.

The exported model reads raw rows in a separate process. On these rows, its features and labels must equal the examples
that training read, and its predictions must equal the predictions of the network in memory on these examples. The
expected values do not depend on any graph that the export has traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft

from components.base.errors import MachineError
from components.data import skew_sample
from components.data.saved_model import serialize
from components.data.skew_sample import Predictions, StoredSample
from components.features import feature_names, images
from components.features.compact import CompactFeatures
from components.features.plan import FeaturePlan
from components.trainer import input_pipeline
from components.trainer.input_columns import stack, unstack

Arrays: TypeAlias = "Mapping[str, npt.NDArray[Any]]"

FEATURES, LABELS, PREDICTIONS = "transform_features", "transform_labels", "serving_default"
"""The signatures that are compared."""

_ROUNDING = 16 * float(np.finfo(np.float32).eps)
"""Relative and absolute tolerance of features. The same operations on other batches may use other instructions of the
CPU, which differ in the last bits of a float32."""
_BATCH = 8192
"""Number of rows to read at a time."""
_PIXEL_BYTES = 16 << 20
"""Maximum bytes of pixels to compare."""
_REMEDY = (
    "the model would serve other values than it was trained on: nothing was exported; run again with --no-cache, and "
    "report it if it persists"
)


@dataclass(frozen=True)
class TrainedRows:
    """The rows of the sample, as serving receives them and as training computes them.

    Attributes:
      raw: The raw rows.
      examples: The columns of the features as serialized tf.Examples; objects, [rows].
      labelled: The columns of the label as serialized tf.Examples; objects, [rows].
      expected: Signature → output → the values in training, [rows, ...].
    """

    raw: pa.RecordBatch
    examples: npt.NDArray[np.object_]
    labelled: npt.NDArray[np.object_]
    expected: Mapping[str, Arrays]

    @property
    def predictions(self) -> Predictions:
        """The predictions, for the serving check."""
        return Predictions(self.examples, self.expected[PREDICTIONS])

    def inputs(self) -> dict[str, dict[str, tf.Tensor]]:
        """Return the inputs of the signatures that only this check calls: signature → input → tensor."""
        rows = {FEATURES: self.examples, LABELS: self.labelled}
        return {name: {"examples": tf.constant(values)} for name, values in rows.items() if name in self.expected}

    def compare_features(self, signature: str, received: Arrays) -> None:
        """Compare the features or labels of the exported model with the values in training.

        Args:
          signature: FEATURES or LABELS.
          received: Output → the exported model's values, [rows, ...].

        Raises:
          MachineError: If they differ. The error names the output, the row, and both values.
        """
        for name, expected in self.expected[signature].items():
            where = f"{signature} of the exported model, {name}"
            values = received.get(name)
            if values is None or (values.size, values.dtype) != (expected.size, expected.dtype):
                received_type = "nothing" if values is None else f"{values.dtype} {values.shape}"
                raise MachineError(
                    f"{where}: expected {expected.dtype} {expected.shape}, received {received_type}", _REMEDY
                )
            values = values.reshape(expected.shape)
            if expected.dtype.kind == "f":
                different = ~np.isclose(values, expected, rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
            else:
                different = np.not_equal(values, expected)
            if different.any():
                place = tuple(np.argwhere(different)[0].tolist())
                raise MachineError(
                    f"{where}, row {place[0]}: expected {expected[place]}, as in the transformed examples, "
                    f"received {values[place]}",
                    _REMEDY,
                    self.describe(place[0]),
                )

    def describe(self, row: int) -> list[str]:
        """Return the raw values of a row, one line per column."""
        return skew_sample.describe(self.raw, row)


def compute(
    sample: StoredSample,
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    input_names: tuple[str, ...],
    predict: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
) -> TrainedRows:
    """Compute features, labels and predictions of a sample as training does.

    Args:
      sample: The sample of Transform.
      plan: The features and the labels.
      transform: The transform graph, for the schema of its outputs.
      input_names: The features that the network reads.
      predict: Expanded features of some rows → the outputs of a prediction by the network in memory.

    Raises:
      MachineError: If the sample cannot be read.
    """
    spec = transform.transformed_feature_spec()
    for name in (feature_names.ROW_KEY, feature_names.ROW_END, feature_names.LIST_KEY):
        spec.pop(name, None)
    compact = CompactFeatures.find(plan.features).only(input_names)
    encoded = compact.images
    count = sample.raw.num_rows
    if encoded:
        # The rows with extreme values come first.
        count = min(count, max(1, _PIXEL_BYTES // (images.row_bytes(encoded) * tf.float32.size)))
    raw = sample.raw.slice(0, count)
    # Read as training reads the transformed examples.
    batches = list(input_pipeline.evaluation_batches([sample.transformed_path], spec, _BATCH))
    features = {name: tf.concat([batch[0][name] for batch in batches], axis=0)[:count] for name in input_names}
    label = np.concatenate([batch[1].numpy() for batch in batches])[:count]

    def predict_expanded(part: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return predict(compact.expand(unstack(part, {name: spec[name] for name in input_names})))

    with tf.device("CPU:0"):
        outputs = compact.in_parts(predict_expanded, stack(features))
        expanded = compact.expand(features)
    labels = [label.add_name(feature_names.LABEL) for label in plan.labels]
    # The only label of a multilabel task has several columns.
    expected_labels = {name: label[:, at] for at, name in enumerate(labels)} if len(labels) > 1 else {labels[0]: label}
    return TrainedRows(
        raw=raw,
        examples=serialize(raw, plan.features.columns_read),
        labelled=serialize(raw, plan.label_columns),
        expected={
            PREDICTIONS: _to_arrays(outputs),
            FEATURES: _to_arrays(expanded),
            **({LABELS: expected_labels} if plan.label_columns else {}),
        },
    )


def _to_arrays(tensors: Mapping[str, tf.Tensor]) -> dict[str, npt.NDArray[Any]]:
    return {name: values.numpy() for name, values in tensors.items()}
