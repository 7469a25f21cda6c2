"""The parts of this machine that trials use at the same time: cores, GPUs and memory."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from components.base.memory import memory
from components.trainer.cluster.supervisor import visible_gpus
from components.tuner.config import TuneConfig

_TRIAL_BYTES = 1 << 30
"""Memory of a trial without its examples, mostly the libraries that TensorFlow loads; until a trial is measured."""
_COPIES = 3
"""Number of copies of the examples in a trial: a forest holds them as columns, as a matrix, and in YDF."""
_RESERVE = 1.1
"""Factor of the measured peak, because trials differ."""


@dataclass(frozen=True)
class Share:
    """The part of the machine that a trial may use.

    Attributes:
      number: Number of the part, from 0 on.
      cores: Numbers of the cores, as `os.sched_getaffinity` returns them.
      gpu: A GPU, as CUDA_VISIBLE_DEVICES names it; if None, all GPUs that this process sees.
    """

    number: int
    cores: frozenset[int]
    gpu: str | None = None


_JOBS = 4
"""Default number of trials at a time that run as jobs."""


class Shares:
    """Divides this machine among the trials that run at a time.

    The number of trials that fit into the memory is estimated from the examples, until the first trial has ended. From
    then on it follows from the highest peak of a trial so far.

    Args:
      tune: The number of parallel trials; by default the number of cores or GPUs, reduced to what the memory allows.
      example_bytes: Memory of the examples of the training split, in bytes.
    """

    def __init__(self, tune: TuneConfig, example_bytes: int) -> None:
        self._tune = tune
        self._cores, self._gpus = sorted(os.sched_getaffinity(0)), visible_gpus()
        self._free_bytes = memory()[1]
        self._trial_bytes = _TRIAL_BYTES + _COPIES * example_bytes
        self._peak_bytes = 0
        self._most = tune.trials

    @property
    def count(self) -> int:
        """Number of trials at a time."""
        fitting = self._free_bytes // self._trial_bytes
        default = min(len(self._gpus) or len(self._cores), fitting, self._most)
        return max(1, min(self._tune.trials, self._tune.parallel or default))

    def describe(self) -> str:
        """Describe where a trial runs."""
        return f"in a process with {len(self.share(0).cores)} of the cores, whatever training.strategy is"

    def measure(self, peak_bytes: int) -> None:
        """Use the peak memory of a trial that has ended.

        Args:
          peak_bytes: Peak resident memory of its process, in bytes. Pages that it shares with the process of the search
            count, so the number of trials is rather too small.
        """
        if peak_bytes <= self._peak_bytes:
            return
        before, self._peak_bytes = self.count, peak_bytes
        self._trial_bytes = int(_RESERVE * peak_bytes)
        if self.count != before:
            logging.info("a trial needs %d MiB: from now on, %d trials at a time", peak_bytes >> 20, self.count)

    def reduce(self) -> None:
        """Run one trial less at a time, because a trial was killed, probably for lack of memory."""
        before = self.count
        self._most = max(1, before - 1)
        if self.count != before:
            logging.info("a trial was killed: from now on, %d trials at a time", self.count)

    def share(self, number: int) -> Share:
        """Return a part of the machine.

        Args:
          number: Number of the part, below `count`.
        """
        count = self.count
        return Share(
            number,
            frozenset(self._cores[number::count] or [self._cores[number % len(self._cores)]]),
            self._gpus[number % len(self._gpus)] if self._gpus and count > 1 else None,
        )


class JobSlots(Shares):
    """The trials that run as jobs of `training.where` at a time; they do not use this machine.

    Args:
      tune: The number of parallel trials.
    """

    def __init__(self, tune: TuneConfig) -> None:
        self._tune = tune

    @property
    def count(self) -> int:
        """Number of trials at a time."""
        return min(self._tune.trials, self._tune.parallel or _JOBS)

    def describe(self) -> str:
        """Describe where a trial runs."""
        return "as a job of training.where with one task, whatever training.strategy is"

    def measure(self, peak_bytes: int) -> None:
        """Do nothing: the service divides the memory of its machines."""

    def reduce(self) -> None:
        """Do nothing: the process that follows a job was killed, and the job continues."""

    def share(self, number: int) -> Share:
        """Return a slot without a part of this machine."""
        return Share(number, frozenset())
