"""Compares a model server's answers with what the trained model predicted before its export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from components.base.errors import MachineError
from components.data.skew_sample import Predictions
from components.results.model_outputs import depends_on_rounding

_TOLERANCE = 1e-4
"""Smallest tolerance. The trained model predicted in other batches, and the rounding of float32 sums depends on the
batch."""
_ROWS, _BYTES = 128, 1 << 20
"""Maximum number of rows of a request, and maximum bytes of its rows and response; gRPC's default limit is 4 MiB."""
_VALUES_IN_MESSAGE = 5

Array: TypeAlias = "npt.NDArray[Any]"


def compare(predictions: Predictions, model: str, predict: Callable[[Any], Any], tolerance: float) -> float:
    """Send the rows of the sample and compare the responses with the predictions of the trained model.

    Args:
      predictions: Rows and predictions that the trained model wrote before its export.
      model: Name of the model in requests.
      predict: Sends a PredictRequest to the model server and returns its PredictResponse.
      tolerance: Largest difference, absolute for values below one, otherwise relative. A value below `_TOLERANCE` is
        raised to `_TOLERANCE`.

    Returns:
      The largest difference; 0 if there are only texts and orders of items.

    Raises:
      MachineError: If a response differs. The message names the output, the row and both values.
      grpc.RpcError: If `predict` raises it.
    """
    greatest = 0.0
    for part in _divide(predictions):
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = model, "serving_default"
        request.inputs["examples"].CopyFrom(tf.make_tensor_proto(predictions.examples[part]))
        answer = predict(request).outputs
        for name, values in predictions.outputs.items():
            received = tf.make_ndarray(answer[name]) if name in answer else None
            expected = values[part]
            largest = difference(expected, received)
            is_compared = not depends_on_rounding(name)
            if largest == float("inf") or (largest > max(tolerance, _TOLERANCE) and is_compared):
                raise _to_error(predictions, part, name, received, max(tolerance, _TOLERANCE))
            if is_compared:
                greatest = max(greatest, largest)
    return greatest


def difference(expected: Array, received: Array | None) -> float:
    """Return the largest difference, absolute for values below one, otherwise relative.

    It is infinite if shape, dtype or a text differs, or if only one of two values is NaN.
    """
    if received is None or received.shape != expected.shape or received.dtype != expected.dtype:
        return float("inf")
    if expected.dtype.kind not in "fiu":
        return 0.0 if bool(np.all(received == expected)) else float("inf")
    if not expected.size:
        return 0.0
    difference = np.abs(received.astype(float) - expected.astype(float))
    difference /= np.maximum(1.0, np.abs(expected.astype(float)))
    difference[np.isnan(expected) & np.isnan(received)] = 0.0
    return float("inf") if np.isnan(difference).any() else float(difference.max())


def _divide(predictions: Predictions) -> Iterator[slice]:
    """Yield the rows of the sample, in slices that fit into one request."""
    answer = sum(_count_bytes(values[0]) for values in predictions.outputs.values())
    rows = max(1, min(_ROWS, _BYTES // (answer + max(map(len, predictions.examples)))))
    for start in range(0, len(predictions.examples), rows):
        yield slice(start, start + rows)


def _count_bytes(values: Array) -> int:
    return sum(map(len, values.ravel())) if values.dtype == object else int(values.nbytes)


def _to_error(
    predictions: Predictions, part: slice, name: str, received: Array | None, tolerance: float
) -> MachineError:
    expected = predictions.outputs[name][part]
    row = 0
    if received is not None and received.shape == expected.shape:
        differences = (difference(expected[at : at + 1], received[at : at + 1]) for at in range(len(expected)))
        row = next(at for at, largest in enumerate(differences) if largest > tolerance)
    values = "nothing" if received is None else _format(received[row])
    example = tf.train.Example.FromString(predictions.examples[part][row])
    return MachineError(
        f"the model server's answers differ from the trained model: {name}, row {part.start + row} of the sample: "
        f"expected {_format(expected[row])} within {tolerance:g}, received {values}",
        "run again with --no-cache, and report it if it persists; the model is not pushed, because it would not answer "
        "as it was trained",
        [f"{key}: {' '.join(str(value).split())[:60]}" for key, value in sorted(example.features.feature.items())],
    )


def _format(values: Array) -> str:
    return str(values.ravel()[:_VALUES_IN_MESSAGE].tolist())
