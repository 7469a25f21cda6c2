"""Early stopping: keep the checkpoint with the lowest loss on the validation part, and decide when training ends."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import asdict, dataclass, field, replace

import tensorflow as tf
import tf_keras

_RISE, _RISES = 0.2, 4
"""Number of consecutive checkpoints that end training if their loss is higher than the lowest by this share of it. A
network that overfits so much does not recover: on tables of 1,000 rows, half of the steps came after that point."""
_STATE = "best.json"
_WEIGHTS = "best-{}"


@dataclass(frozen=True)
class _State:
    """The evaluations so far, with the fields of the file best.json.

    Attributes:
      step: Step of the best checkpoint; 0 before the first evaluation.
      loss: Loss of the best checkpoint on the validation part.
      waited: Number of evaluations since the best checkpoint; one with a much higher loss counts several times.
      last: Step of the last evaluation.
      curve: The step and the loss of every evaluation.
    """

    step: int = 0
    loss: float = math.inf
    waited: int = 0
    last: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list)


class EarlyStopping:
    """Keeps the weights with the lowest loss, and ends training (Prechelt 1998, Early Stopping - But When?).

    The state is a file in the folder of the checkpoints, so that a resumed training continues to count.

    Args:
      folder: Folder of the checkpoints.
      patience: Number of consecutive evaluations without a lower loss after which training ends; four are enough if
        the loss is more than a fifth above the lowest. If None, training runs to the last step.
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
    def curve(self) -> list[tuple[int, float]]:
        """The step and the loss of every evaluation."""
        return [(step, loss) for step, loss in self._state.curve]

    @property
    def path(self) -> str | None:
        """Path prefix of the weights of the best checkpoint; None before the first evaluation."""
        return self._path(_WEIGHTS.format(self._state.step)) if self._state.step else None

    def update(self, step: int, loss: float, network: tf_keras.Model) -> bool:
        """Add the evaluation of a checkpoint.

        Args:
          step: Step of the checkpoint. A checkpoint that was evaluated before a restart is not counted twice.
          loss: Loss on the validation part.
          network: The network with the weights of the checkpoint.

        Returns:
          Whether training has ended.
        """
        previous = self._state
        if step <= previous.last:
            return self.is_over
        curve = [*previous.curve, (step, loss)]
        if loss < previous.loss:
            self._state = _State(step, loss, 0, step, curve)
            tf.train.Checkpoint(network=network).write(self._path(_WEIGHTS.format(step)))
        else:
            is_high = loss > previous.loss + _RISE * abs(previous.loss)
            count = max(1, -(-self._patience // _RISES)) if self._patience and is_high else 1
            self._state = replace(previous, waited=previous.waited + count, last=step, curve=curve)
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
