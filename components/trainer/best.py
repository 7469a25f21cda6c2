"""The checkpoint that was best on the eval split, kept while training goes on, and when that has gone on too long."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import tensorflow as tf

_STATE = "best.json"
_WEIGHTS = "best-{}"


@dataclass(frozen=True)
class _Looked:
    """What the looks so far have seen.

    Attributes:
      step: the step of the best checkpoint; 0 before the first look.
      loss: its loss on the eval split.
      waited: looks since then.
      last: the step of the last look.
    """

    step: int = 0
    loss: float = math.inf
    waited: int = 0
    last: int = 0


class Best:
    """Early stopping (Prechelt 1998, Early Stopping - But When?): the weights of the lowest loss, and when to end.

    What was seen lies beside the checkpoints, so that a training that is taken up again does not begin to wait anew.

    Args:
      folder: of the checkpoints.
      patience: looks in a row without a lower loss after which training ends.
    """

    def __init__(self, folder: str, patience: int) -> None:
        self._folder, self._patience = folder, patience
        self._looked = _Looked()
        if tf.io.gfile.exists(self._path(_STATE)):
            with tf.io.gfile.GFile(self._path(_STATE)) as file:
                self._looked = _Looked(**json.loads(file.read()))

    @property
    def over(self) -> bool:
        """Whether training has gone on for too long."""
        return self._looked.waited >= self._patience

    @property
    def path(self) -> str | None:
        """The weights of the best checkpoint, as TensorFlow takes them; None before the first look."""
        return self._path(_WEIGHTS.format(self._looked.step)) if self._looked.step else None

    def look(self, step: int, loss: float, network: Any) -> bool:
        """Takes a look in; returns whether training is over.

        Args:
          step: the checkpoint's. One that was looked at before a restart is not counted twice.
          loss: on the eval split.
          network: with the checkpoint's weights.
        """
        seen = self._looked
        if step <= seen.last:
            return self.over
        if loss < seen.loss:
            self._looked = _Looked(step, loss, 0, step)
            tf.train.Checkpoint(network=network).write(self._path(_WEIGHTS.format(step)))
        else:
            self._looked = replace(seen, waited=seen.waited + 1, last=step)
        self._keep()
        if seen.step and self._looked.step != seen.step:
            for old in tf.io.gfile.glob(f"{self._path(_WEIGHTS.format(seen.step))}.*"):
                tf.io.gfile.remove(old)
        if self.over:
            logging.info("step %d: no lower loss than %.5f since step %d: training ends", step, seen.loss, seen.step)
        return self.over

    def _keep(self) -> None:
        beside = self._path(f"{_STATE}.partial")
        with tf.io.gfile.GFile(beside, "w") as file:
            file.write(json.dumps(asdict(self._looked)))
        tf.io.gfile.rename(beside, self._path(_STATE), overwrite=True)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
