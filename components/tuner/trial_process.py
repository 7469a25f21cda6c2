"""A trial in a separate process, with a share of the machine's cores.

The process is forked from the Tuner's process, which does not run TensorFlow operations, because the threads of
TensorFlow's runtime would not survive the fork. If a process is killed, for example for lack of memory, only its trial
ends.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import signal
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tensorflow as tf

from components.base.child_process import ChildProcess
from components.base.errors import PipelineError, find, to_error
from components.base.processes import describe_exit
from components.trainer import strategy
from components.trainer.plan import TrainingPlan
from components.trainer.strategy import Distribution
from components.trainer.training import Training
from components.trainer.training_loop import NotFiniteError

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs


@dataclass(frozen=True)
class Result:
    """The result of a trial.

    Attributes:
      loss: Mean loss on the validation part; None if the trial has failed.
      why: Reason of the failure.
      error: An error that would fail every trial.
    """

    loss: float | None = None
    why: str = ""
    error: PipelineError | None = None


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


class TrialProcess(ChildProcess):
    """A running trial.

    Args:
      trial: Number of the trial, for the log.
      plan: Plan of the training.
      fn_args: TFX's FnArgs.
      share: The part of the machine that the trial may use.
    """

    def __init__(self, trial: str, plan: TrainingPlan, fn_args: FnArgs, share: Share) -> None:
        self._started = time.monotonic()
        # This process removes the folder, because a killed process cannot.
        self._scratch = tempfile.TemporaryDirectory()
        arguments = copy.copy(fn_args)
        arguments.model_run_dir = self._scratch.name
        arguments.custom_config = {**fn_args.custom_config, "checkpoints": f"{self._scratch.name}/checkpoints"}
        super().__init__(_run, trial, plan, arguments, share)
        logging.info("trial %s runs in process %d on %d cores", trial, self.pid, len(share.cores))

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def result(self) -> Result | None:
        """Wait for the exit, and return the result; None if the process was killed or crashed before."""
        with self._scratch:
            result: Result | None = super().result()
        return result

    def describe_exit(self) -> str:
        """Describe how a process without a result has ended."""
        code = self.wait()
        hint = " (the kernel does this when memory runs out)" if code == -signal.SIGKILL else ""
        return f"its process {describe_exit(code)}{hint}"

    def end(self, grace_seconds: float = 0.0) -> None:
        """End the process, wait until it has ended, and remove its files."""
        super().end(grace_seconds)
        self._scratch.cleanup()


def _run(trial: str, plan: TrainingPlan, fn_args: FnArgs, share: Share) -> Result:
    """Run a trial in its process."""
    # TensorFlow and YDF start as many threads as there are cores in the affinity.
    os.sched_setaffinity(0, share.cores)
    if share.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = share.gpu
    for handler in logging.getLogger().handlers:
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname).1s trial {trial}: %(message)s"))
    return _run_trial(plan, fn_args)


def _run_trial(plan: TrainingPlan, fn_args: FnArgs) -> Result:
    try:
        loss = _train(plan, fn_args)
    except NotFiniteError as error:
        return Result(why=error.headline)
    except Exception as error:
        # A full disk raises the same type of error, but would fail every trial.
        if isinstance(error, tf.errors.ResourceExhaustedError) and not find(error):
            return Result(why="out of memory")
        logging.exception("the trial has failed, and other trials would fail as well")
        return Result(error=to_error("Tuner", error, "see the full cause in its log"))
    if not math.isfinite(loss):
        return Result(why=f"expected a finite loss on the validation part, received {loss}")
    return Result(loss)


def _train(plan: TrainingPlan, fn_args: FnArgs) -> float:
    strategy.prepare(None, plan.training)
    training = Training(plan, fn_args, validate=True)
    training.fit(Distribution(tf.distribute.get_strategy()))
    return training.validation_loss
