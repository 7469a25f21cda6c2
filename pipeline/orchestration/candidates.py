"""Fit several models to the data of one config within a time limit.

The nodes up to Transform run once. Then each model is trained in a separate process by the Trainer's loop on the
training split, and evaluated on the eval split. Nothing is exported.
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
from pipeline.orchestration.local.processes import NodeProcess
from pipeline.orchestration.local.signals import Signals

if TYPE_CHECKING:
    from components.trainer.checkpoint_evaluation import Scores

_RUN_ID = "candidates"
_PREPARATION = "preparation"
_REPORT_SECONDS = 10.0
_SHARE_OF_TRAINING, _SHARE_OF_WIDE = 0.7, 0.4
"""Share of the remaining time after which a training ends, and the share with more than `_WIDE` features. The rest is
for tracing, which takes longer with many features, and for the evaluation."""
_WIDE = 200


class Candidate:
    """The result of fitting one model.

    Args:
      child: The process that fitted the model. If None, the time limit was reached before the process ended.

    Attributes:
      scores: Kind → losses and metrics on the eval split, for the model and for each of its parts.
      seconds: Wall time of the training, including the start of its process.
      why: The reason why the model was not fitted; "" if it was fitted.
    """

    def __init__(self, child: NodeProcess | None = None) -> None:
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
            if not all(np.isfinite(scores.losses).all() for scores in self.scores.values()):
                self.scores, self.why = {}, "expected a finite loss on every row of the eval split, received inf or NaN"


def fit(
    configs: Mapping[Kind, Config], logs: Path, seconds: float, report: Callable[[str], None]
) -> dict[Kind, Candidate]:
    """Fit models in the order of `configs`, one per CPU core at a time.

    Args:
      configs: Kind → config with this kind of model. All configs have the same output folder, data and features.
      logs: Folder for the logs of the processes.
      seconds: Time limit for all models together. Processes that are still running then are killed.
      report: Called with a line about the progress at least every ten seconds.

    Returns:
      Kind → result, in the order of `configs`.
    """
    if seconds <= 0:
        return {kind: Candidate() for kind in configs}
    started = time.monotonic()
    candidates: dict[Kind, Candidate] = {}
    waiting: list[Kind] = []
    running: dict[str, NodeProcess] = {}

    def start(name: str, function: Callable[..., object], *arguments: object) -> None:
        # An interrupt during the start would leave a process that is not in `running` and is never ended.
        with Signals() as signals:
            running[name] = NodeProcess(name, logs / f"{name}.log", function, *arguments)
        if signals.received:
            raise KeyboardInterrupt

    try:
        start(_PREPARATION, _prepare, next(iter(configs.values())))
        while running and (remaining := started + seconds - time.monotonic()) > 0:
            waitables = [waitable for child in running.values() for waitable in child.waitables]
            if not wait(waitables, min(remaining, _REPORT_SECONDS)):
                report(f"{', '.join(running)}: {remaining:.0f} s left{_describe_best(candidates)}")
            for name in [name for name, child in running.items() if child.poll()]:
                candidate = Candidate(running.pop(name))
                report(f"{name}: {candidate.why or f'done in {candidate.seconds:.1f} s'}")
                if name == _PREPARATION and candidate.why:
                    return dict.fromkeys(configs, candidate)
                waiting = list(configs) if name == _PREPARATION else waiting
                candidates |= {kind: candidate for kind in configs if kind == name}
            while waiting and len(running) < len(os.sched_getaffinity(0)):
                kind = waiting.pop(0)
                start(kind, _train, configs[kind], logs / kind, started + seconds)
    finally:
        for child in running.values():
            child.signal(signal.SIGKILL)
        for child in running.values():
            while not child.poll():
                wait(child.waitables)
    return {kind: candidates.get(kind, Candidate()) for kind in configs}


def _describe_best(candidates: Mapping[Kind, Candidate]) -> str:
    losses = {
        kind: float(scores.losses.mean())
        for candidate in candidates.values()
        for kind, scores in candidate.scores.items()
    }
    if not losses:
        return ""
    best = min(losses, key=losses.__getitem__)
    return f"; best so far {best}, loss {losses[best]:.4f}"


def _prepare(config: Config) -> None:
    """Run the nodes of a config up to Transform in this process."""
    _set_temporary(config.paths().root)
    from pipeline.orchestration import compiler, node

    ir = node.prepare(compiler.compile_pipeline(config), _RUN_ID, to_nodes=["Transform"])
    for graph_node in node.graph(ir):
        if graph_node.action == RUN:
            outcome = node.run_node(ir, graph_node.id, _RUN_ID)
            if outcome.state == FAILED and outcome.error:
                raise outcome.error


def _train(config: Config, folder: Path, deadline: float) -> Mapping[Kind, Scores]:
    """Train one model in this process.

    Args:
      config: The config with this kind of model.
      folder: Folder for temporary files.
      deadline: Time of the monotonic clock before which the training ends, with the best model so far.

    Returns:
      The losses and metrics on the eval split, by kind.
    """
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
    strategy.prepare(None, config.training)
    # The network and the trees of an ensemble are trained one after the other, within this time each.
    parts = config.model.has_network + config.model.has_forest
    share = _SHARE_OF_WIDE if len(config.features.declared) > _WIDE else _SHARE_OF_TRAINING
    minutes = max(deadline - time.monotonic(), 1.0) / 60 * share / parts
    limited = config.training.model_copy(update={"max_minutes": minutes})
    plan = training_plan(config.model_copy(update={"training": limited}))
    training = Training(plan, arguments, validate=True)
    training.fit(Distribution(tf.distribute.get_strategy()))
    return training.compute_scores()


def _set_temporary(folder: Path) -> None:
    """Create a folder for the temporary files of this process.

    The caller removes the folder, because a process that is killed does not remove its temporary files.
    """
    folder.mkdir(parents=True)
    tempfile.tempdir = str(folder)
