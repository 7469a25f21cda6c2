"""What TensorBoard shows of a training: curves, histograms where asked for, and a profile of a window of steps."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import tensorflow as tf

from components.trainer.config import TensorBoardConfig


class Curves:
    """Writes TensorBoard's files; used as a context.

    Args:
      folder: where they go, each kind of curve in a folder of its own.
      kind: `train` or `eval`.
      config: what to log beside scalars.
    """

    def __init__(self, folder: str, kind: str, config: TensorBoardConfig) -> None:
        self._folder = f"{folder}/{kind}"
        self._config = config
        self._writer = tf.summary.create_file_writer(self._folder)
        self._profiling = False

    def __enter__(self) -> Curves:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_profile()
        self._writer.close()

    def scalars(self, step: int, **values: float) -> None:
        """A point of each curve."""
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def checkpoint(self, step: int, network: Any) -> None:
        """What is logged at a checkpoint; makes everything so far visible."""
        if self._config.histograms:
            with self._writer.as_default(step=step):
                for weight in network.trainable_variables:
                    tf.summary.histogram(weight.name, tf.convert_to_tensor(weight))
        self._writer.flush()

    def profile(self, step: int) -> None:
        """Begins or ends the profile, if this step is where its window begins or ends."""
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
