"""Compare trainings whose number of workers changes 2 -> 4 -> 1 with trainings with two workers.

python -m benchmarks.elastic [--seeds 5] [--steps 1800]

Both sides train configs/taxi.yaml with asynchronous workers and two ps, each task in a process on this machine. In the
elastic training, two workers are added after a third of the steps, and three of the four are killed for good after two
thirds. Each side is trained with several seeds, whose spread is the noise of asynchronous training. The loss of the
training curve, the AUC on the eval split, and the steps by worker are printed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from components.base.processes import exit_now, signal_at_parents_death
from components.compat.grpc import FAIL_FAST
from components.compat.tensorflow import ENVIRONMENT
from components.trainer.cluster.tf_config import VARIABLE, Role
from components.trainer.plan import TrainingPlan
from data.output import positive

_CONFIG = "configs/taxi.yaml"
_PS, _WORKERS, _MOST = 2, 2, 4
_POINTS = 6
"""Number of reported points of the training curve."""
_AUC = "auc"
_SECONDS = 600.0


@dataclass(frozen=True)
class Prepared:
    """Inputs of all trainings.

    Attributes:
      plan: Training plan, whose strategy is replaced.
      graph: Folder of the transform graph.
      examples: Folder of the transformed examples.
    """

    plan: TrainingPlan
    graph: str
    examples: str


@dataclass(frozen=True)
class Trained:
    """Result of a training.

    Attributes:
      losses: Step → mean loss of the steps since the previous point.
      auc: AUC on the eval split.
      steps: Worker → number of its steps, at the beginning of the second and third phase and at the end; empty if the
        training is not elastic.
    """

    losses: dict[int, float]
    auc: float
    steps: list[dict[str, int]]


class Cluster:
    """The tasks of a training, which are forked from this process before it starts threads."""

    def __init__(self, prepared: Prepared, folder: Path, strategy: dict[str, Any], seed: int) -> None:
        self._prepared, self._folder, self._seed, self._strategy = prepared, folder, seed, strategy
        counts = {"chief": 1, "worker": strategy.get("max_workers", strategy["workers"]), "ps": strategy["ps"]}
        self._addresses = {kind: tuple(_free_addresses(count)) for kind, count in counts.items()}
        self.processes: dict[str, int] = {}

    def start(self, *names: str) -> None:
        """Start tasks, such as worker-0."""
        for name in names:
            kind, _, index = name.partition("-")
            self._fork(name, Role(kind, int(index), self._addresses))

    def wait(self, name: str) -> None:
        """Wait for the end of a process."""
        _, status = os.waitpid(self.processes.pop(name), 0)
        if status:
            raise RuntimeError((self._folder / f"{name}.log").read_text()[-3000:])

    def auc(self) -> float:
        """Return the AUC of the trained model on the eval split, measured in a process without a cluster."""
        self._fork("judge", None)
        self.wait("judge")
        return float((self._folder / _AUC).read_text())

    def kill(self, *names: str) -> None:
        """Kill tasks with SIGKILL."""
        for name in names:
            os.kill(self.processes[name], signal.SIGKILL)
            os.waitpid(self.processes.pop(name), 0)

    def until(self, step: int) -> None:
        """Wait until the chief has logged a step."""
        deadline = time.monotonic() + _SECONDS
        while max(self.losses(), default=0) < step:
            if time.monotonic() > deadline or os.waitpid(self.processes["chief-0"], os.WNOHANG)[0]:
                raise RuntimeError(f"the chief has not reached step {step}: see {self._folder}")
            time.sleep(0.05)

    def losses(self) -> dict[int, float]:
        """Return step → loss, from the chief's log."""
        return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss (\S+),", self._log())}

    def steps(self) -> dict[str, int]:
        """Return worker → number of its steps so far."""
        logged = re.findall(r"steps by worker: (.*)", self._log()) or [""]
        return {name: int(steps) for name, steps in re.findall(r"(worker-\d+) (\d+)", logged[-1])}

    def _log(self) -> str:
        log = self._folder / "chief-0.log"
        return log.read_text() if log.exists() else ""

    def _fork(self, name: str, role: Role | None) -> None:
        parent = os.getpid()
        if process := os.fork():
            self.processes[name] = process
            return
        signal_at_parents_death(signal.SIGKILL, parent)
        output = os.open(self._folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(FAIL_FAST | ({VARIABLE: role.tf_config} if role else {}))
        try:
            _act(self._prepared, self._folder, self._strategy, self._seed, role)
        except BaseException:
            traceback.print_exc()
            exit_now(1)
        exit_now(0)


def _act(prepared: Prepared, folder: Path, strategy: dict[str, Any], seed: int, role: Role | None) -> None:
    """Run a task; without a role, evaluate the model on the eval split."""
    import logging

    from components.trainer import strategy as strategies
    from components.trainer.cluster.task_server import serve
    from components.trainer.training import Training

    logging.basicConfig(level=logging.INFO, force=True)
    if role is not None and role.is_server:
        serve(role, folder / role.name)
    training = prepared.plan.training.model_dump() | {"strategy": strategy, "seed": seed}
    plan = TrainingPlan.model_validate({**prepared.plan.model_dump(), "training": training})
    strategies.prepare(role, plan.training)
    trained = Training(
        plan,
        SimpleNamespace(  # what is read of TFX's FnArgs
            train_files=[f"{prepared.examples}/Split-train/*"],
            eval_files=[f"{prepared.examples}/Split-eval/*"],
            transform_graph_path=prepared.graph,
            model_run_dir=str(folder / "run"),
            custom_config={"checkpoints": str(folder / "checkpoints")},
        ),
    )
    if role is not None:
        trained.fit(strategies.distribute(plan.training, role))
        return
    (scores,) = trained.compute_scores().values()
    (folder / _AUC).write_text(str(float(scores.metrics["auc"])))


def keep_two_workers(cluster: Cluster, _steps: int) -> list[dict[str, int]]:
    """Start a training with two workers; return no steps."""
    cluster.start("ps-0", "ps-1", "worker-0", "worker-1", "chief-0")
    return []


def change_workers(cluster: Cluster, steps: int) -> list[dict[str, int]]:
    """Start a training, and change its number of workers 2 -> 4 -> 1; return the steps by worker at both changes."""
    cluster.start("ps-0", "ps-1", "worker-0", "worker-1", "chief-0")
    cluster.until(steps // 3)
    before = cluster.steps()
    cluster.start("worker-2", "worker-3")
    cluster.until(2 * steps // 3)
    between = cluster.steps()
    cluster.kill("worker-0", "worker-1", "worker-2")
    return [before, between]


_SIDES: dict[str, tuple[dict[str, Any], Callable[[Cluster, int], list[dict[str, int]]]]] = {
    "workers 2": ({}, keep_two_workers),
    "workers 2 -> 4 -> 1": ({"max_workers": _MOST}, change_workers),
}


def train(prepared: Prepared, side: str, seed: int) -> Trained:
    """Run a training of a side."""
    more, act = _SIDES[side]
    steps = prepared.plan.training.steps
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        strategy = {"kind": "parameter_server", "workers": _WORKERS, "ps": _PS, **more}
        cluster = Cluster(prepared, folder, strategy, seed)
        try:
            changes = act(cluster, steps)
            cluster.wait("chief-0")
        finally:
            cluster.kill(*list(cluster.processes))
        return Trained(cluster.losses(), cluster.auc(), [*changes, cluster.steps()] if changes else [])


def format_table(trained: dict[str, list[Trained]], steps: int) -> list[str]:
    """Format losses and AUC, with mean and standard deviation over the seeds, as lines of a Markdown table."""
    points = [steps * number // _POINTS for number in range(1, _POINTS + 1)]
    lines = [f"| | {' | '.join(f'loss at {point:,}' for point in points)} | AUC |", f"|{'---|' * (len(points) + 2)}"]
    for side, runs in trained.items():
        losses = [_spread([_loss_at(run.losses, point) for run in runs], 4) for point in points]
        lines.append(f"| {side} | {' | '.join(losses)} | {_spread([run.auc for run in runs], 5)} |")
    return lines


def _loss_at(losses: dict[int, float], point: int) -> float:
    """Return the loss at the point nearest to a step, because repeated steps of a lost worker shift the points."""
    return losses[min(losses, key=lambda step: (abs(step - point), step))]


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.fmean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def _phases(runs: Iterable[Trained]) -> list[str]:
    """Format the steps by worker in the three phases, a line per training."""
    lines = []
    for number, run in enumerate(runs):
        before: dict[str, int] = {}
        phases = []
        for now in run.steps:
            steps_of_phase = {name: steps - before.get(name, 0) for name, steps in now.items()}
            phases.append(
                " ".join(f"{name.removeprefix('worker-')}:{steps}" for name, steps in steps_of_phase.items() if steps)
            )
            before = now
        lines.append(f"seed {number + 1}: {' | '.join(phases)}")
    return lines


def _free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{socket_.getsockname()[1]}" for socket_ in sockets]
    for socket_ in sockets:
        socket_.close()
    return addresses


def _prepare(scratch: Path, steps: int) -> Prepared:
    from components.features.plan import FeaturePlan
    from pipeline.authoring.config import load

    settings = [
        f"runtime.output={scratch}",
        *(f"training.{assignment}" for assignment in (f"steps={steps}", "batch_size=64", "checkpoint.every_steps=300")),
    ]
    command = [sys.executable, "runner.py", "--local", "--config", _CONFIG, "--to", "Transform", "--json"]
    subprocess.run(
        [*command, *(word for setting in settings for word in ("--set", setting))],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    config = load(_CONFIG, settings).config
    features = FeaturePlan(features=config.features, labels=config.data.declared_labels, task=config.data.task)
    plan = TrainingPlan(features=features, model=config.model, training=config.training)
    transformed = Path(config.paths().artifacts) / "Transform"
    graph, examples = (next((transformed / key).iterdir()) for key in ("transform_graph", "transformed_examples"))
    return Prepared(plan, str(graph), str(examples))


def main(arguments: Sequence[str]) -> None:
    """Train both sides in turns, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=positive, default=5, help="trainings of each side, at least 2")
    parser.add_argument("--steps", type=positive, default=1800, help="optimizer steps of a training")
    options = parser.parse_args(arguments)
    os.environ.update(ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": "-1"})
    with tempfile.TemporaryDirectory() as scratch:
        prepared = _prepare(Path(scratch), options.steps)
        # Imported once for all tasks, which are forked.
        import components.trainer.run_fn  # noqa: F401

        trained: dict[str, list[Trained]] = {side: [] for side in _SIDES}
        for seed in range(1, options.seeds + 1):
            for side, runs in trained.items():
                runs.append(train(prepared, side, seed))
    print("\n".join(format_table(trained, options.steps)))
    print("\n".join(["steps by worker with 2 | 4 | 1 workers", *_phases(trained[list(_SIDES)[-1]])]))


if __name__ == "__main__":
    main(sys.argv[1:])
