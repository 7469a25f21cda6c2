"""Early stopping: the checkpoint with the lowest loss on the validation part, and when training ends without a lower
one.
"""

from __future__ import annotations

import json
import logging
import math
from dataclasses import asdict, dataclass, replace

import tensorflow as tf
import tf_keras

_STATE = "best.json"
_WEIGHTS = "best-{}"


@dataclass(frozen=True)
class _State:
    """The evaluations so far; its fields are those of the file best.json.

    Attributes:
      step: the step of the best checkpoint; 0 before the first evaluation.
      loss: its loss on the validation part.
      waited: evaluations since then.
      last: the step of the last evaluation.
    """

    step: int = 0
    loss: float = math.inf
    waited: int = 0
    last: int = 0


class EarlyStopping:
    """Keeps the weights of the lowest loss, and ends training (Prechelt 1998, Early Stopping - But When?).

    Its state is a file in the checkpoints' folder, so that a resumed training continues to count.

    Args:
      folder: of the checkpoints.
      patience: consecutive evaluations without a lower loss after which training ends; None: it does not end.
    """

    def __init__(self, folder: str, patience: int | None) -> None:
        self._folder, self._patience = folder, patience
        self._state = _State()
        if tf.io.gfile.exists(self._path(_STATE)):
            with tf.io.gfile.GFile(self._path(_STATE)) as file:
                self._state = _State(**json.loads(file.read()))

    @property
    def is_over(self) -> bool:
        """Whether training has ended."""
        return self._patience is not None and self._state.waited >= self._patience

    @property
    def last(self) -> int:
        """The step of the last evaluation; 0 before the first."""
        return self._state.last

    @property
    def loss(self) -> float:
        """The lowest loss; infinite before the first evaluation."""
        return self._state.loss

    @property
    def path(self) -> str | None:
        """The weights of the best checkpoint, as TensorFlow takes them; None before the first evaluation."""
        return self._path(_WEIGHTS.format(self._state.step)) if self._state.step else None

    def update(self, step: int, loss: float, network: tf_keras.Model) -> bool:
        """Add the evaluation of a checkpoint.

        Args:
          step: the checkpoint's. One that was evaluated before a restart is not counted twice.
          loss: on the validation part.
          network: with the checkpoint's weights.

        Returns:
          Whether training has ended.
        """
        previous = self._state
        if step <= previous.last:
            return self.is_over
        if loss < previous.loss:
            self._state = _State(step, loss, 0, step)
            tf.train.Checkpoint(network=network).write(self._path(_WEIGHTS.format(step)))
        else:
            self._state = replace(previous, waited=previous.waited + 1, last=step)
        self._write()
        if previous.step and self._state.step != previous.step:
            for old in tf.io.gfile.glob(f"{self._path(_WEIGHTS.format(previous.step))}.*"):
                tf.io.gfile.remove(old)
        if self.is_over:
            logging.info(
                "step %d: no lower loss than %.5f since step %d: training ends", step, previous.loss, previous.step
            )
        return self.is_over

    def _write(self) -> None:
        temporary = self._path(f"{_STATE}.partial")
        with tf.io.gfile.GFile(temporary, "w") as file:
            file.write(json.dumps(asdict(self._state)))
        tf.io.gfile.rename(temporary, self._path(_STATE), overwrite=True)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
