"""Optimizer steps: what a training loop needs of them, whatever the strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

ReplicaStep = Callable[[Any], tf.Tensor]
"""A batch → its loss, a float32 scalar, after an update of the variables; called in a replica."""


class Stop(NamedTuple):
    """Why a training stops.

    Attributes:
      preempted: Whether a process received SIGTERM; the training continues later.
      finished: Whether the training is over.
    """

    preempted: bool = False
    finished: bool = False


class Steps(Protocol):
    """Runs optimizer steps.

    Attributes:
      steps_per_call: Least number of steps for which a call is efficient.
      together: Whether other processes take the same steps, so that no process can stop alone.
    """

    steps_per_call: int
    together: bool

    def run(self, count: int, own: Callable[[], Stop]) -> tuple[float, Stop]:
        """Run steps, and count them in the loop's optimizer.

        Args:
          count: Number of steps.
          own: Returns whether this process has to stop.

        Returns:
          The mean loss, and whether any process has to stop; all processes that take the steps together get the same
          answer.
        """
        ...

    def collect(self) -> None:
        """Give the loop's network and optimizer the weights and moments of the last step."""
        ...
