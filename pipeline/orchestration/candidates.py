"""Fits several models to the rows of one config, within a time: its nodes up to Transform, then a process per model.

A model is trained by the Trainer's loop on the training split, and measured on the eval split. Nothing is exported.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from components.models.config import Kind
from pipeline.authoring.config import Config
from pipeline.core.records import FAILED, RUN
from pipeline.orchestration.local.processes import ChildProcess
from pipeline.orchestration.local.signals import Signals

if TYPE_CHECKING:
    from components.trainer.checkpoint_evaluation import Scores

_RUN_ID = "candidates"
_PREPARATION = "preparation"
_REPORT_SECONDS = 10.0


class Candidate:
    """A model that was to be fitted.

    Attributes:
      scores: kind → losses and metrics on the eval split; also those of its parts.
      seconds: of the training, with the start of its process.
      why: why it was not fitted; "" if it was.
    """

    def __init__(self, child: ChildProcess | None = None) -> None:
        self.seconds = child.seconds if child else 0.0
        self.scores: Mapping[Kind, Scores] = {}
        self.why = ""
        if child is None:
            self.why = "did not end in time"
        elif child.reply is None:
            self.why = child.exit_error().headline
        elif child.reply.error is not None:
            self.why = child.reply.error.headline
        elif child.title != _PREPARATION:
            self.scores = child.reply.value
            if not all(np.isfinite(each.losses).all() for each in self.scores.values()):
                self.scores, self.why = {}, "expected a finite loss on the other rows, received one that is not"


def fit(
    configs: Mapping[Kind, Config], logs: Path, seconds: float, report: Callable[[str], None]
) -> dict[Kind, Candidate]:
    """Fits models, as many at a time as there are cores; the first ones begin first.

    Args:
      configs: kind → the config with it; all have the same output folder, data and features.
      logs: a folder for the processes' logs.
      seconds: the time for all; what runs then is killed.
      report: called with a line about the progress, every ten seconds at the latest.

    Returns:
      Kind → how it went; in the order of `configs`.
    """
    started = time.monotonic()
    found: dict[Kind, Candidate] = {}
    waiting: list[Kind] = []
    running: dict[str, ChildProcess] = {}

    def start(name: str, function: Callable[..., object], *arguments: object) -> None:
        # An interrupt in the middle of the start would leave a process that nobody knows.
        with Signals() as signals:
            running[name] = ChildProcess(name, logs / f"{name}.log", function, *arguments)
        if signals.received:
            raise KeyboardInterrupt

    try:
        start(_PREPARATION, _prepare, next(iter(configs.values())))
        while running and (left := started + seconds - time.monotonic()) > 0:
            waitables = [each for child in running.values() for each in child.waitables]
            if not wait(waitables, min(left, _REPORT_SECONDS)):
                report(f"{', '.join(running)}: {time.monotonic() - started:.0f} s so far")
            for name in [name for name, child in running.items() if child.poll()]:
                candidate = Candidate(running.pop(name))
                report(f"{name}: {candidate.why or f'done in {candidate.seconds:.1f} s'}")
                if name == _PREPARATION and candidate.why:
                    return dict.fromkeys(configs, candidate)
                waiting = list(configs) if name == _PREPARATION else waiting
                found |= {kind: candidate for kind in configs if kind == name}
            while waiting and len(running) < len(os.sched_getaffinity(0)):
                kind = waiting.pop(0)
                start(kind, _train, configs[kind], logs / kind)
    finally:
        for child in running.values():
            child.signal(signal.SIGKILL)
        for child in running.values():
            while not child.poll():
                wait(child.waitables)
    return {kind: found.get(kind, Candidate()) for kind in configs}


def _prepare(config: Config) -> None:
    """Run the nodes of a config up to Transform in this process."""
    _set_temporary(config.paths().root)
    from pipeline.orchestration import compiler, node

    ir = node.prepare(compiler.compile_pipeline(config), _RUN_ID, to_nodes=["Transform"])
    for each in node.graph(ir):
        if each.action == RUN:
            outcome = node.run_node(ir, each.id, _RUN_ID)
            if outcome.state == FAILED and outcome.error:
                raise outcome.error


def _train(config: Config, folder: Path) -> Mapping[Kind, Scores]:
    """Trains one model in this process; returns what it has on the eval split, by kind."""
    _set_temporary(folder)
    import tensorflow as tf
    from tfx.components.trainer.fn_args_utils import FnArgs

    from components.trainer import strategy
    from components.trainer.strategy import Distribution
    from components.trainer.training import Training
    from pipeline.authoring.plans import training_plan

    transform = Path(config.paths().artifacts, "Transform")
    (examples,) = (transform / "transformed_examples").iterdir()
    (graph,) = (transform / "transform_graph").iterdir()
    arguments = FnArgs(
        train_files=[f"{examples}/Split-train/*"],
        eval_files=[f"{examples}/Split-eval/*"],
        transform_graph_path=str(graph),
        model_run_dir=str(folder),
        custom_config={"checkpoints": str(folder / "checkpoints")},
    )
    strategy.prepare(None, config.training.precision)
    training = Training(training_plan(config), arguments, validate=True)
    training.fit(Distribution(tf.distribute.get_strategy()))
    return training.compute_scores()


def _set_temporary(folder: Path) -> None:
    """Make a folder for this process' temporary files: a process that is killed does not remove them."""
    folder.mkdir(parents=True)
    tempfile.tempdir = str(folder)
