"""The files that TensorBoard reads: curves, histograms, and profiles of some steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import TracebackType

import tensorflow as tf
import tf_keras

from components.compat.tensorflow import optimizer_slots
from components.trainer import profile_request
from components.trainer.config import TensorBoardConfig

_LOOK_SECONDS = 2.0
"""Minimum time between two looks for a request to profile, because a look at remote storage takes time."""


class TensorBoardWriter:
    """Writes TensorBoard's files; a context manager.

    Args:
      folder: Parent folder of the files.
      kind: `train`, `eval` or `validation`, the name of the subfolder.
      config: The files to write in addition to scalars.
    """

    def __init__(self, folder: str, kind: str, config: TensorBoardConfig) -> None:
        self._parent, self._folder = folder, f"{folder}/{kind}"
        self._config = config
        self._writer = tf.summary.create_file_writer(self._folder)
        self._profiling = False
        self._window = config.profile or (0, 0)
        self._next_look = time.monotonic()

    def __enter__(self) -> TensorBoardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_profile()
        self._writer.close()

    def scalars(self, step: int, **values: float) -> None:
        """Write one point per curve: name → value."""
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def graph(self, network: tf_keras.Model) -> None:
        """Write the graph of a prediction, if it is configured."""
        if self._config.graph:
            # Without Keras' plugin, which cannot describe layers of this project.
            inputs = {tensor.name: tf.TensorSpec(tensor.shape, tensor.dtype, tensor.name) for tensor in network.inputs}
            traced = tf.function(lambda rows: network(rows, training=False), autograph=False)
            with self._writer.as_default(step=0):
                tf.summary.graph(traced.get_concrete_function(inputs).graph)

    def checkpoint(self, step: int, network: tf_keras.Model, optimizer: tf_keras.optimizers.Optimizer) -> None:
        """Write the histograms of a checkpoint, if they are configured, and flush the files.

        The first moment of Adam and the momentum of gradient descent are means of the recent gradients.
        """
        if self._config.histograms:
            with self._writer.as_default(step=step):
                for weight in network.trainable_variables:
                    tf.summary.histogram(weight.name, tf.convert_to_tensor(weight))
                    for slot in optimizer_slots(optimizer, weight)[:1]:
                        tf.summary.histogram(f"moment/{weight.name}", tf.convert_to_tensor(slot))
        self.flush()

    def gradients(self, step: int, gradients: Mapping[str, tf.Tensor]) -> None:
        """Write the histograms of gradients, without values that are not finite: name of the weight → gradient."""
        with self._writer.as_default(step=step):
            for name, gradient in gradients.items():
                tf.summary.histogram(f"gradient/{name}", tf.boolean_mask(gradient, tf.math.is_finite(gradient)))
        self.flush()

    def flush(self) -> None:
        """Write all points to the file, so that readers see them while the training continues."""
        self._writer.flush()

    def profile(self, step: int) -> None:
        """Start or stop the profiler at the first or last step of its window, which the config or a request sets."""
        first, last = self._window
        if self._profiling and step >= last:
            self._end_profile()
        if not self._profiling and step >= last and (steps := self._take_request()):
            first, last = self._window = step, step + steps
        if not self._profiling and first <= step < last:
            tf.profiler.experimental.start(self._folder)
            self._profiling = True

    def _take_request(self) -> int | None:
        """Look for a request to profile the next steps, but not too often; see `profile_request`."""
        if time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + _LOOK_SECONDS
        steps = profile_request.take(self._parent)
        if steps:
            logging.info("profiling %d steps on request", steps)
        return steps

    def _end_profile(self) -> None:
        if self._profiling:
            tf.profiler.experimental.stop()
            self._profiling = False
            logging.info("wrote a profile to %s", self._folder)
