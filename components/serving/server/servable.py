"""One version of a model, loaded: what its signatures take, and their answers."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from components.serving.server.refusal import invalid
from components.serving.server.tensors import from_proto

Arrays = Mapping[str, Any]
"""Name → numpy array; texts are arrays of objects."""

_WARM_UP = "assets.extra/tf_serving_warmup_requests"
"""Where TensorFlow Serving looks, see https://www.tensorflow.org/tfx/serving/saved_model_warmup."""


@dataclass(frozen=True)
class Tensor:
    """One input or output of a signature.

    Attributes:
      dtype: TensorFlow's.
      shape: -1 where any size goes; None where any shape goes.
    """

    dtype: Any
    shape: tuple[int, ...] | None

    @functools.cached_property
    def numpy(self) -> Any:
        """The same dtype as numpy has it; TensorFlow looks it up every time it is asked."""
        return np.dtype(self.dtype.as_numpy_dtype)

    @functools.cached_property
    def _row(self) -> tuple[int, ...] | None:
        """The shape of a row, where any number of rows goes and all are of one shape."""
        return self.shape[1:] if self.shape and self.shape[0] == -1 and -1 not in self.shape[1:] else None

    def check(self, name: str, value: Any) -> None:
        """Refuses what does not fit.

        Raises:
          RequestError: the dtype or the shape is another.
        """
        if value.dtype != self.numpy:
            raise invalid(f"input {name!r}: expected {self.dtype.name}, received {_dtype_name(value.dtype)}")
        if value.ndim and value.shape[1:] == self._row:
            # As nearly every input is.
            return
        if self.shape is not None and (
            len(self.shape) != value.ndim
            or any(size not in (-1, given) for size, given in zip(self.shape, value.shape, strict=True))
        ):
            raise invalid(f"input {name!r}: expected shape {list(self.shape)}, received {list(value.shape)}")


@dataclass(frozen=True)
class Signature:
    """A way to call the model.

    Attributes:
      name: e.g. serving_default.
      method: TensorFlow Serving's, e.g. tensorflow/serving/predict.
      inputs: name → what it takes.
      outputs: name → what it gives.
      call: the inputs' arrays in order → the outputs' arrays in order.
    """

    name: str
    method: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    call: Any

    @functools.cached_property
    def batches(self) -> bool:
        """Whether rows of several requests may go through it together: they are of one shape, and so are answers."""
        tensors = [*self.inputs.values(), *self.outputs.values()]
        rows = all(tensor.shape and tensor.shape[0] == -1 for tensor in tensors)
        return bool(self.inputs) and rows and all(-1 not in (tensor.shape or ())[1:] for tensor in self.inputs.values())

    def check(self, inputs: Arrays) -> None:
        """Refuses inputs that do not fit, before they are joined with anybody else's.

        Raises:
          RequestError: a name, a dtype or a shape is wrong, or the inputs differ in their number of rows.
        """
        if inputs.keys() != self.inputs.keys():
            raise invalid(
                f"signature {self.name!r}: expected the inputs {sorted(self.inputs)}, received {sorted(inputs)}"
            )
        for name, tensor in self.inputs.items():
            tensor.check(name, inputs[name])
        if len(inputs) > 1 and self.batches and len({len(value) for value in inputs.values()}) > 1:
            rows = {name: len(value) for name, value in inputs.items()}
            raise invalid(f"signature {self.name!r}: expected as many rows of every input, received {rows}")

    def run(self, inputs: Arrays) -> dict[str, Any]:
        """The answers to inputs that fit.

        Raises:
          RequestError: the graph refuses them.
        """
        try:
            answers = self.call(*(inputs[name] for name in self.inputs))
        except tf.errors.InvalidArgumentError as error:
            raise invalid(_reason(str(error.message))) from error
        except UnicodeDecodeError as error:
            # What it says of the inputs has their bytes in it, and TensorFlow takes any message for a text.
            raise invalid(_reason(error.object.decode(errors="replace"))) from error
        # TensorFlow gives a single text as bare bytes.
        arrays = (np.array(each, object) if isinstance(each, bytes) else each for each in answers)
        return dict(zip(self.outputs, arrays, strict=True))


class Servable:
    """A SavedModel in a session of its own: closing it frees its memory, and a call takes no Python of TensorFlow's.

    Args:
      folder: the SavedModel.
      intra_op_threads: threads of one op.

    Raises:
      RequestError: a warm-up request failed.
      Exception: whatever TensorFlow raises about a folder that is no SavedModel.
    """

    def __init__(self, folder: Path, intra_op_threads: int) -> None:
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=intra_op_threads)
        # Ops run one after the other in the thread that calls: for the small graphs of a request, handing them to other
        # threads takes as long as the ops do.
        config.inter_op_parallelism_threads = -1
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        try:
            with graph.as_default():
                self.meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(folder))
            self.signatures = {
                name: self._signature(name, told)
                for name, told in self.meta_graph.signature_def.items()
                if not name.startswith("__")
            }
            self.warmed = self._warm_up(folder / _WARM_UP)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Frees the memory; nothing may be running."""
        self._session.close()

    def signature(self, name: str) -> Signature:
        """A signature by its name.

        Raises:
          RequestError: there is none of that name.
        """
        found = self.signatures.get(name)
        if found is None:
            raise invalid(f"signature {name!r} is not there; known are {sorted(self.signatures)}")
        return found

    def _signature(self, name: str, told: Any) -> Signature:
        inputs, outputs = dict(sorted(told.inputs.items())), dict(sorted(told.outputs.items()))
        call = self._session.make_callable(
            [info.name for info in outputs.values()], [info.name for info in inputs.values()]
        )
        return Signature(name, told.method_name, _tensors(inputs), _tensors(outputs), call)

    def _warm_up(self, path: Path) -> int:
        """Sends the recorded requests through; returns how many there were."""
        if not path.exists():
            return 0
        warmed = 0
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if not log.HasField("predict_log"):
                logging.warning("%s: only requests to predict are warmed up with", path)
                continue
            request = log.predict_log.request
            signature = self.signature(request.model_spec.signature_name or "serving_default")
            inputs = {name: from_proto(proto) for name, proto in request.inputs.items()}
            signature.check(inputs)
            signature.run(inputs)
            warmed += 1
        return warmed


def _tensors(infos: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        name: Tensor(
            tf.dtypes.as_dtype(info.dtype),
            None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim),
        )
        for name, info in infos.items()
    }


def _dtype_name(dtype: Any) -> str:
    return "string" if dtype.kind == "O" else str(dtype)


def _reason(message: str) -> str:
    """What was wrong, out of a message of TensorFlow's with the graph around it."""
    around = ("Graph execution error", "Detected at node", "File ", "[[", "Original stack trace")
    lines = (line.strip() for line in message.splitlines())
    return next((line for line in lines if line and not line.startswith(around)), "the graph refuses it")
