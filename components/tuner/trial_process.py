"""A trial in a separate process, with a share of the machine's cores.

The process is forked from the Tuner's process, which does not run TensorFlow operations, because the threads of
TensorFlow's runtime would not survive the fork. If a process is killed, for example for lack of memory, only its trial
ends. The checkpoints of a trial are in a folder that outlives the process, so that another process can continue.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from components.base.child_process import ChildProcess
from components.base.errors import PipelineError, find, to_error
from components.base.processes import describe_exit
from components.trainer import strategy
from components.trainer.plan import TrainingPlan
from components.trainer.strategy import Distribution
from components.trainer.training import Training
from components.trainer.training_loop import NotFiniteError
from components.tuner.shares import Share

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs


@dataclass(frozen=True)
class Task:
    """The part of a trial that a process trains.

    Attributes:
      trial: ID of the trial.
      plan: Plan of the training.
      folder: Path or URI of the folder with the trial's checkpoints, from which the process continues.
      pause_at: Step at which the process ends; if None, the last step of the plan.
    """

    trial: str
    plan: TrainingPlan
    folder: str
    pause_at: int | None = None


@dataclass(frozen=True)
class Result:
    """The result of a trial's process.

    Attributes:
      loss: Mean loss on the validation part; None if the trial has failed.
      curve: The step and the loss of every evaluation of a network so far.
      peak_bytes: Peak resident memory of the process.
      why: Reason of the failure.
      error: An error that would fail every trial.
    """

    loss: float | None = None
    curve: list[tuple[int, float]] = field(default_factory=list)
    peak_bytes: int = 0
    why: str = ""
    error: PipelineError | None = None


class TrialProcess(ChildProcess):
    """A process that trains a part of a trial, or follows a job that does.

    Args:
      function: `run_local_task`, or a function with other arguments that returns a Result.
      task: What to train.
      arguments: Further arguments of the function, before the last one, a folder for temporary files.
    """

    def __init__(self, function: Callable[..., Result], task: Task, *arguments: Any) -> None:
        self._started = time.monotonic()
        # This process removes the folder, because a killed process cannot.
        self._scratch = tempfile.TemporaryDirectory()
        super().__init__(function, task, *arguments, self._scratch.name)

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
        """End the process, wait until it has ended, and remove its temporary files."""
        super().end(grace_seconds)
        self._scratch.cleanup()


def run_local_task(task: Task, fn_args: FnArgs, share: Share, scratch: str) -> Result:
    """Train in a forked process.

    Args:
      task: What to train.
      fn_args: TFX's FnArgs.
      share: The part of the machine that the trial may use.
      scratch: Local folder for files that nobody reads.
    """
    # TensorFlow and YDF start as many threads as there are cores in the affinity.
    os.sched_setaffinity(0, share.cores)
    if share.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = share.gpu
    format_logs(task)
    return run_task(task, fn_args, scratch)


def format_logs(task: Task) -> None:
    """Begin the lines that this process logs with the ID of the trial."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname).1s trial {task.trial}: %(message)s"))


def run_task(task: Task, fn_args: FnArgs, scratch: str) -> Result:
    """Train in this process, and measure the loss on the validation part.

    Args:
      task: What to train.
      fn_args: TFX's FnArgs, with the files of the examples and the transform graph.
      scratch: Local folder for files that nobody reads.
    """
    arguments = copy.copy(fn_args)
    arguments.model_run_dir = scratch
    arguments.custom_config = {**(fn_args.custom_config or {}), "checkpoints": f"{task.folder}/checkpoints"}
    try:
        loss, curve = _train(task, arguments)
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
    return Result(loss, curve, _read_peak_bytes())


def _train(task: Task, fn_args: FnArgs) -> tuple[float, list[tuple[int, float]]]:
    """Return the loss of the weights that the Trainer would export, and the losses of all evaluations."""
    plan = task.plan
    strategy.prepare(None, plan.training)
    training = Training(plan, fn_args, validate=True)
    training.fit(Distribution(tf.distribute.get_strategy()), task.pause_at)
    curve = training.network.validation_curve
    keeps_best = plan.training.early_stopping is not None or plan.model.has_forest
    return training.validation_loss if keeps_best or not curve else curve[-1][1], curve


def _read_peak_bytes() -> int:
    """Return the peak resident memory of this process; getrusage may return the peak of its parent."""
    match = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(match[1]) << 10 if match else 0
