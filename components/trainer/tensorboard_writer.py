"""The files that TensorBoard reads: curves, histograms of the weights, and a profile of a window of steps."""

from __future__ import annotations

from types import TracebackType

import tensorflow as tf
import tf_keras

from components.compat.tensorflow import optimizer_slots
from components.trainer.config import TensorBoardConfig


class TensorBoardWriter:
    """Writes TensorBoard's files; a context manager.

    Args:
      folder: Parent folder of the files.
      kind: `train`, `eval` or `validation`, the name of the subfolder.
      config: The files to write in addition to scalars.
    """

    def __init__(self, folder: str, kind: str, config: TensorBoardConfig) -> None:
        self._folder = f"{folder}/{kind}"
        self._config = config
        self._writer = tf.summary.create_file_writer(self._folder)
        self._profiling = False

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

    def flush(self) -> None:
        """Write all points to the file, so that readers see them while the training continues."""
        self._writer.flush()

    def profile(self, step: int) -> None:
        """Start or stop the profiler at the first or last step of its window."""
        first, last = self._config.profile or (0, 0)
        if not self._profiling and first <= step < last:
            tf.profiler.experimental.start(self._folder)
            self._profiling = True
        elif step >= last:
            self._end_profile()

    def _end_profile(self) -> None:
        if self._profiling:
            tf.profiler.experimental.stop()
            self._profiling = False
