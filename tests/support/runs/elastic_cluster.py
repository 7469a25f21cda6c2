"""A training cluster whose tasks a test starts and kills one by one, as an operator and spot machines do."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from components.compat.grpc import FAIL_FAST
from components.trainer.cluster import tf_config
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig
from pipeline.orchestration.local.processes import NodeProcess, start_server
from tests.support.fakes import tfjob_operator
from tests.support.runs import trainer_runs
from tests.support.runs.trainer_runs import PATIENCE_SECONDS, Prepared
from tests.support.servers.in_fork_server import result_of


class ElasticCluster:
    """A cluster whose TF_CONFIG lists every possible worker; tasks that still run at the end are killed.

    Args:
      prepared: Input of the training.
      folder: Folder for the training's outputs.
      training: the config's section.
      silent_seconds: Seconds after which a worker that does not answer counts as lost.
    """

    def __init__(
        self, prepared: Prepared, folder: Path, training: Mapping[str, Any], silent_seconds: float = PATIENCE_SECONDS
    ) -> None:
        strategy = TrainingConfig.model_validate(training).strategy
        counts = {"chief": 1, "worker": strategy.most_workers, "ps": strategy.ps}
        self._cluster = {kind: tuple(addresses) for kind, addresses in tfjob_operator.addresses(counts).items()}
        self._prepared, self._training = prepared, dict(training)
        self._tasks: dict[str, NodeProcess] = {}
        self._silent_seconds = silent_seconds
        self.folder = folder
        start_server()

    def __enter__(self) -> ElasticCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._tasks:
            self.signal(name, signal.SIGKILL)

    def start(self, *names: str) -> None:
        """Start tasks, such as worker-0."""
        for name in names:
            kind, _, index = name.partition("-")
            role = Role(kind, int(index), self._cluster)
            log = self.folder / f"{name}.log"
            arguments = (self._prepared, self.folder, self._training, role.tf_config, self._silent_seconds)
            self._tasks[name] = NodeProcess(name, log, run_task, *arguments)

    def signal(self, name: str, signum: signal.Signals) -> None:
        """Send a signal to a task, if it still runs."""
        task = self._tasks[name]
        if not task.poll():
            os.kill(task._process.pid, signum)

    def kill(self, *names: str) -> None:
        """Kill tasks with SIGKILL, and wait until they have ended."""
        for name in names:
            self.signal(name, signal.SIGKILL)
        self.until(lambda: all(self._tasks[name].poll() for name in names))

    def log(self) -> str:
        """Return the log of the chief."""
        log = self.folder / "chief-0.log"
        return log.read_text() if log.exists() else ""

    def step(self) -> int:
        """Return the step that the chief has logged last."""
        return max(map(int, re.findall(r"step (\d+): loss", self.log())), default=0)

    def steps_by_worker(self) -> dict[str, int]:
        """Return worker → its number of steps so far."""
        logged = re.findall(r"steps by worker: (.*)", self.log()) or [""]
        return {name: int(steps) for name, steps in re.findall(r"(worker-\d+) (\d+)", logged[-1])}

    def until(self, happened: Callable[[], Any]) -> None:
        """Poll until a condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            assert time.monotonic() < deadline, self.log()[-3000:]
            time.sleep(0.01)

    def until_step(self, step: int) -> None:
        """Wait until the chief has logged this step or has ended."""
        self.until(lambda: self.step() >= step or self._tasks["chief-0"].poll())
        assert self.step() >= step, self.log()[-3000:]

    def until_logged(self, text: str) -> None:
        """Wait until the chief has logged a text."""
        self.until(lambda: text in self.log())

    def end(self) -> None:
        """Wait for the chief to end; raise its error."""
        result_of(self._tasks["chief-0"])


def run_task(prepared: Prepared, folder: Path, training: dict[str, Any], config: str, silent_seconds: float) -> None:
    """Run the Trainer's executor as the task that this TF_CONFIG names."""
    # Imported here because it imports TensorFlow.
    from components.trainer.cluster import membership

    membership._SILENT_SECONDS = silent_seconds
    os.environ.update(FAIL_FAST | {tf_config.VARIABLE: config})
    trainer_runs.train(prepared, folder, training, small_disk=False, model=None, base=None)
