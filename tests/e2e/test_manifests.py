"""The TFJob of `training.where`, run task by task as Kubeflow's operator would: it trains, and outlives a ps."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from components.trainer.config import TrainingConfig
from components.trainer.remote import manifests
from components.trainer.remote.config import WhereConfig
from tests.support.fakes import tfjob_operator
from tests.support.fakes.tfjob_operator import tasks
from tests.support.runs import trainer_runs
from tests.support.runs.command import ROOT, SECONDS
from tests.support.runs.trainer_runs import Prepared
from tests.support.servers.in_fork_server import in_child
from tests.support.shared import find_session_folder

pytestmark = [pytest.mark.e2e, pytest.mark.orchestrator]

CONFIG: dict[str, Any] = {
    "steps": 400,
    "batch_size": 256,
    "learning_rate": 0.01,
    "checkpoint": {"every_steps": 20, "keep": 3},
}
PARAMETER_SERVER = {"kind": "parameter_server", "workers": 2, "ps": 2}
MULTI_WORKER = {"kind": "multi_worker", "workers": 2}


HARDENED = """
set -e
volume=$1
shift
mount --bind "$volume" /mnt
mount -t tmpfs tmpfs /tmp
mkdir -p "$volume"
mount --move /mnt "$volume"
mount -o remount,bind,ro /
if touch /writable 2>/dev/null; then exit 99; fi
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""
"""A shell script that runs a command as `hardened` has it: a read-only root, an empty /tmp, no capabilities. Its first
argument is the folder that stays writable."""


class Job:
    """A TFJob whose tasks are processes of this machine. As a context, it kills the remaining processes at its end.

    Args:
      manifest: of the TFJob.
      logs: the folder of the logs, one for each start of a task.
      wrapper: Command line that is put before the command of each task.
    """

    def __init__(self, manifest: dict[str, Any], logs: Path, wrapper: Sequence[str] = ()) -> None:
        self._wrapper = wrapper
        self.tasks = {f"{task.type}-{task.index}": task for task in tasks(manifest)}
        self.lead_tasks = [
            name for name in self.tasks if name.startswith("worker" if _all_workers(manifest) else "chief")
        ]
        self._logs = logs
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {name: [] for name in self.tasks}

    def __enter__(self) -> Job:
        self.start(*self.tasks)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (process for starts in self._processes.values() for process in starts):
            process.kill()
            process.wait()

    def start(self, *names: str) -> None:
        for name in names:
            python, *arguments = self.tasks[name].command
            assert python == "python"
            with self._log(name, len(self._processes[name])).open("wb") as log:
                process = subprocess.Popen(
                    [*self._wrapper, sys.executable, *arguments],
                    cwd=ROOT,
                    env={
                        **os.environ,
                        **self.tasks[name].environment,
                        "TF_CONFIG": json.dumps(self.tasks[name].tf_config),
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._processes[name].append(process)

    def signal(self, name: str, signum: signal.Signals) -> None:
        self._processes[name][-1].send_signal(signum)

    def wait_for_steps(self, count: int) -> None:
        """Wait until the lead has logged its steps several times."""
        deadline = time.monotonic() + SECONDS
        while len(self.steps(self.lead_tasks[0])) < count:
            assert self.running() == set(self.tasks), self.log_tail(self.lead_tasks[0])
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def wait(self, name: str) -> int:
        """Wait for a task; return its exit code as Kubernetes reports it: 128 + signal for a killed task."""
        code = self._processes[name][-1].wait(SECONDS)
        return code if code >= 0 else 128 - code

    def running(self) -> set[str]:
        return {name for name, starts in self._processes.items() if starts[-1].poll() is None}

    def steps(self, name: str) -> list[int]:
        """Return the steps that the newest process of a task has logged."""
        log = self._log(name, len(self._processes[name]) - 1).read_text()
        return [int(step) for step in re.findall(r"step (\d+): loss", log)]

    def log_tail(self, name: str) -> str:
        """Return the end of the newest log of a task."""
        return self._log(name, len(self._processes[name]) - 1).read_text()[-3000:]

    def _log(self, name: str, start: int) -> Path:
        return self._logs / f"{name}.{start}.log"


def _all_workers(manifest: dict[str, Any]) -> bool:
    return bool(manifest["spec"]["successPolicy"] == "AllWorkers")


def manifest_of(prepared: Prepared, strategy: dict[str, Any], to: Path, **training: Any) -> dict[str, Any]:
    """Write manifest and job file of a training on prepared data as the Trainer does; return the manifest."""
    training = {**CONFIG, "strategy": strategy, **training}
    to.mkdir()
    in_child(to.parent / "job.log", write_job, prepared, to, training)
    where = WhereConfig(kind="tfjob", image="registry.example/people:1")
    return manifests.tfjob_manifest(
        manifests.Job("train-people", TrainingConfig.model_validate(training), where, f"{to}/job.json")
    )


def write_job(prepared: Prepared, to: Path, training: dict[str, Any]) -> None:
    from tfx.types.standard_artifacts import Model, ModelRun

    from components.trainer.remote import job_file

    outputs = {
        key: trainer_runs.artifact(kind, f"{to}/{key}") for key, kind in (("model", Model), ("model_run", ModelRun))
    }
    properties = trainer_runs.properties_of(trainer_runs.plan_of(prepared, training))
    (to / "job.json").write_text(job_file.write(trainer_runs.inputs_of(prepared), outputs, properties))


def assert_made(prepared: Prepared, to: Path, *more: str) -> None:
    """Check that exactly the outputs of the job file exist, and `more` in the ModelRun."""
    assert {entry.name for entry in to.iterdir()} == {"job.json", "model", "model_run"}
    assert {entry.name for entry in (to / "model").iterdir()} == {"Format-Serving", "skew_sample"}
    model_run = {entry.name for entry in (to / "model_run").iterdir()}
    # The Trainer reads the wait for input of the job's lead from this file.
    assert model_run - {"input_wait.json"} == {"train", "checkpoints", *more}
    assert trainer_runs.auc(prepared, to) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [PARAMETER_SERVER, MULTI_WORKER], ids=lambda strategy: strategy["kind"])
def test_tfjob_trains(prepared: Prepared, tmp_path: Path, strategy: dict[str, Any]) -> None:
    with Job(manifest_of(prepared, strategy, tmp_path / "to"), tmp_path) as job:
        for name in job.lead_tasks:
            assert job.wait(name) == 0, job.log_tail(name)
        assert job.running() == set(job.tasks) - set(job.lead_tasks)
        assert job.steps(job.lead_tasks[0])[-1] == CONFIG["steps"]
    assert_made(prepared, tmp_path / "to")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a read-only root file system")
def test_hardened_tasks_train(prepared: Prepared, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    # The volume has both the run's artifacts and the outputs of the job.
    wrapper = ["unshare", "--mount", "sh", "-c", HARDENED, "sh", str(find_session_folder(tmp_path_factory))]
    with Job(manifest_of(prepared, PARAMETER_SERVER, tmp_path / "to"), tmp_path, wrapper) as job:
        assert {task.environment["HOME"] for task in job.tasks.values()} == {"/tmp"}  # noqa: S108 - in the container
        assert job.wait("chief-0") == 0, job.log_tail("chief-0")
    assert_made(prepared, tmp_path / "to")


@pytest.mark.slow
def test_tfjob_with_parameter_servers_and_an_evaluator_trains(prepared: Prepared, tmp_path: Path) -> None:
    """The chief does not wait for the evaluator, which the operator lists in the cluster."""
    with Job(manifest_of(prepared, PARAMETER_SERVER, tmp_path / "to", evaluator=True), tmp_path) as job:
        for name in ("chief-0", "evaluator-0"):
            assert job.wait(name) == 0, job.log_tail(name)
        assert job.running() == set(job.tasks) - {"chief-0", "evaluator-0"}
        assert job.steps("chief-0")[-1] == CONFIG["steps"]
    assert_made(prepared, tmp_path / "to", "eval")


@pytest.mark.slow
def test_killed_ps_has_the_chief_started_again_and_the_job_ends_well(prepared: Prepared, tmp_path: Path) -> None:
    with Job(manifest_of(prepared, PARAMETER_SERVER, tmp_path / "to"), tmp_path) as job:
        job.wait_for_steps(1)
        job.signal("ps-1", signal.SIGKILL)
        codes = {name: job.wait(name) for name in ("ps-1", "chief-0")}
        assert codes["ps-1"] == 128 + signal.SIGKILL
        assert all(tfjob_operator.restarts(code) for code in codes.values()), (codes, job.log_tail("chief-0"))
        assert job.running() == {"worker-0", "worker-1", "ps-0"}
        before = job.steps("chief-0")[-1]
        job.start(*codes)
        assert job.wait("chief-0") == 0, job.log_tail("chief-0")
        steps = job.steps("chief-0")
        assert steps[-1] == CONFIG["steps"]
        assert steps[0] > before - CONFIG["checkpoint"]["every_steps"], "it went on from a checkpoint"
    assert_made(prepared, tmp_path / "to")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [PARAMETER_SERVER, MULTI_WORKER], ids=lambda strategy: strategy["kind"])
def test_deleted_job_has_saved_a_checkpoint(prepared: Prepared, tmp_path: Path, strategy: dict[str, Any]) -> None:
    """All tasks receive SIGTERM at once, the ps and the workers first."""
    manifest = manifest_of(prepared, strategy, tmp_path / "to", checkpoint={"every_steps": 1000})
    with Job(manifest, tmp_path) as job:
        job.wait_for_steps(2)
        stopped_at = job.steps(job.lead_tasks[0])[-1]
        for name in reversed(job.tasks):
            job.signal(name, signal.SIGTERM)
        codes = {name: job.wait(name) for name in job.tasks}
        assert codes == dict.fromkeys(job.tasks, 128 + signal.SIGTERM), job.log_tail(job.lead_tasks[0])
        saved = re.findall(r"received SIGTERM: saved a checkpoint at step (\d+)", job.log_tail(job.lead_tasks[0]))
        job.start(*job.tasks)
        for name in job.lead_tasks:
            assert job.wait(name) == 0, job.log_tail(name)
        assert stopped_at <= int(saved[0]) < job.steps(job.lead_tasks[0])[0], "it went on from the checkpoint"
    assert_made(prepared, tmp_path / "to")
