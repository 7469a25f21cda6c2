"""A training cluster on this machine: one process per task, which is supervised and restarted when it fails.

What is restarted, and why:

    worker of a cluster with ps   only this task, at the same address: the coordinator schedules its steps on other
                                  workers, and uses it again when it is back. In an elastic cluster, it is left out
                                  after `max_restarts` if enough other workers remain
    evaluator                     only this task: no other task waits for it
    chief, ps                     this task and the chief, at the same addresses: the chief's functions refer to the
                                  variables of the lost ps, so a new chief creates all variables, and restores them from
                                  the checkpoint. Workers and the other ps continue. If this fails again before the next
                                  checkpoint, or no step is made, all tasks are restarted
    replica                       all tasks, at new addresses: the others end with it

The tasks are forked from this process, which has imported all modules and is single-threaded, so a start takes
milliseconds. The tasks end with this process.
"""

from __future__ import annotations

import logging
import math
import multiprocessing.connection
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.base.child_process import ChildProcess
from components.base.errors import MachineError, find
from components.base.processes import describe_exit
from components.compat.grpc import FAIL_FAST
from components.results.task_load import TaskLoad, describe_imbalance
from components.trainer.cluster import heartbeat, stale_contexts, tf_config
from components.trainer.cluster.task_loads import TaskLoads
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig
from components.trainer.preemption import PreemptionFlag

_STALLED_HEARTBEATS = 10
"""The lead is killed after this many times `heartbeat_seconds` without a step, even if all tasks send heartbeats."""
_POLL_SECONDS = 0.25
"""Maximum wait for a message or an exit. A signal does not end the wait, so SIGTERM is noticed after this time at the
latest. Together with `_STOP_SECONDS` it must be less than the five seconds that a run gives its nodes."""
_STOP_SECONDS = 4.0
"""Time limit for saving a checkpoint when the run is stopped."""
_USAGE_SECONDS = 2.0
"""Time between two measurements of the tasks' memory and CPU time."""
_EVALUATOR_SECONDS = 120.0
"""Time limit for evaluating the last checkpoint."""


@dataclass(frozen=True)
class Summary:
    """The result of a training.

    Attributes:
      steps: Number of optimizer steps of the model.
      restarts: Number of restarts of single tasks and of the cluster.
      repeated: Number of repeated steps, which were newer than the restored checkpoint.
      damaged: Number of checkpoints that could not be read.
      worker_peak_mb: Maximum resident memory of a worker, in MB.
      ps_peak_mb: Maximum resident memory of a ps, in MB; 0 without ps.
      tasks: The load of every task.
    """

    steps: int
    restarts: int
    repeated: int
    damaged: int
    worker_peak_mb: int
    ps_peak_mb: int
    tasks: tuple[TaskLoad, ...]


class Supervisor:
    """Starts, watches and restarts the tasks of one cluster.

    Args:
      config: The strategy, and the limits for restarts and heartbeats.
      run_task: Runs a task; called in the task's process, which exits when it returns.
      logs: Folder of the tasks' logs.
      curves: Local folder of the curves of the tasks' loads, for TensorBoard. If None, they are not written.
    """

    def __init__(
        self, config: TrainingConfig, run_task: Callable[[Role], None], logs: Path, curves: Path | None = None
    ) -> None:
        self._config = config
        self._run_task = run_task
        self._logs = logs
        self._tasks: list[_Task] = []
        self._restarts = self._failures = self._repeated = self._damaged = 0
        self._step = self._saved = 0
        self._contexts: list[int] = []
        self._is_stalled = False
        self._progress = time.monotonic()
        self._loads = TaskLoads(curves)
        self._measured = -math.inf

    def run(self) -> Summary:
        """Run the cluster until its lead has succeeded; call it in the main thread of a single-threaded process.

        Raises:
          PipelineError: If a task has reported such an error, or fails repeatedly.
          SystemExit: If this process received SIGTERM; its tasks had time to save a checkpoint.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        with PreemptionFlag() as stop:
            try:
                self._start_all()
                while not self._watch():
                    if stop.is_set():
                        self._stop_gracefully()
                        raise SystemExit(128 + signal.SIGTERM)
                self._await_evaluator(stop)
            finally:
                self._kill_all()
        loads = self._loads.list_loads()
        for load in loads:
            logging.info("%s", load)
        if remark := describe_imbalance(loads):
            logging.warning("%s", remark)
        worker_peak, ps_peak = (self._loads.find_peak_mb(kind) for kind in ("worker", "ps"))
        return Summary(self._step, self._restarts, self._repeated, self._damaged, worker_peak, ps_peak, loads)

    def _start_all(self) -> None:
        cluster = _choose_addresses(self._config)
        self._contexts, self._is_stalled = [], False
        self._progress = time.monotonic()
        self._tasks = [_Task(role, self._logs / f"{role.name}.log") for role in _create_roles(self._config, cluster)]
        for task in self._tasks:
            self._start(task)

    def _start(self, task: _Task) -> None:
        self._loads.start(task.role.name)
        task.start(self._run_task, self._contexts)

    def _watch(self) -> bool:
        """Wait for the next message or exit, and handle it; return whether the lead has succeeded."""
        self._wait_for_events(_POLL_SECONDS)
        for task in self._tasks:
            self._read_messages(task)
        for task in self._tasks:
            if (code := task.poll()) is not None:
                # Read again, for messages that were sent between the first read and the exit.
                for sender in self._tasks:
                    self._read_messages(sender)
                task.close()
                if code == 0:
                    if task.role.is_lead:
                        self._measure_loads(is_last=True)
                        return True
                else:
                    self._handle_exit(task, code)
                    return False
        self._check_heartbeats()
        self._measure_loads()
        return False

    def _measure_loads(self, is_last: bool = False) -> None:
        """Measure the loads of the tasks, every few seconds and at the end."""
        now = time.monotonic()
        if now - self._measured < _USAGE_SECONDS and not is_last:
            return
        self._measured = now
        for task in self._tasks:
            if task.process:
                self._loads.measure(task.role.name, task.process.pid)
        self._loads.write_curves(self._step, is_last)

    def _read_messages(self, task: _Task) -> None:
        for name, value in task.messages():
            self._handle_status(task, name, value)

    def _handle_status(self, task: _Task, name: str, value: Any) -> None:
        if name == "error":
            raise find(RuntimeError(value)) or MachineError(value, f"see {task.log}")
        if name == "warning":
            logging.warning("%s", value)
        elif name == "traffic":
            self._loads.update_traffic(task.role.name, value)
        elif name == "variables":
            self._loads.update_variables(value)
        elif name == "steps":
            self._loads.update_steps(value)
        elif name == "step" and self._config.strategy.kind == "multi_worker":
            self._loads.update_steps({task.role.name: value})
        if not task.role.is_lead:
            return
        if name == "restored":
            self._repeated += max(0, self._step - value)
            self._step = value
        elif name == "context":
            self._contexts.append(value)
        elif name == "damaged":
            self._damaged += 1
            logging.warning("checkpoint %s is damaged; the previous checkpoint is used", value)
        elif name == "saved" and value > self._saved:
            self._saved, self._failures = value, 0
        elif name == "step":
            self._step = value
        if name in ("step", "saved", "restored"):
            self._progress = time.monotonic()

    def _handle_exit(self, task: _Task, code: int) -> None:
        """Restart a task that has failed, or all tasks."""
        failure = f"{task.role.name} {describe_exit(code)}"
        if self._failures >= self._config.max_restarts and self._can_do_without(task):
            logging.warning("%s at step %d: training continues without it", failure, self._step)
            return
        self._restarts += 1
        self._failures += 1
        if self._failures > self._config.max_restarts:
            raise MachineError(
                f"training task {failure}, {self._failures} times in a row without a new checkpoint"
                if self._failures > 1
                else f"training task {failure}",
                f"see {task.log}",
                task.last_log_lines(),
            )
        if task.role.is_evaluator or (task.role.kind == "worker" and task.role.is_server):
            logging.warning("%s at step %d: it is restarted", failure, self._step)
            self._start(task)
        elif task.role.cluster.get("ps") and self._failures == 1 and not self._is_stalled:
            self._replace(task, failure)
        else:
            logging.warning("%s at step %d: all tasks are restarted from the last checkpoint", failure, self._step)
            for peer in self._tasks:
                peer.kill()
            for peer in self._tasks:
                # The lead may have saved a checkpoint meanwhile.
                if peer.process:
                    peer.wait()
                    self._read_messages(peer)
            self._kill_all()
            self._start_all()

    def _replace(self, task: _Task, failure: str) -> None:
        """Restart a ps or the chief, and with a ps the chief; the other tasks continue."""
        lead = next(peer for peer in self._tasks if peer.role.is_lead)
        what = "it is restarted" if task is lead else f"it and {lead.role.name} are restarted"
        logging.warning("%s at step %d: %s, from the last checkpoint", failure, self._step, what)
        lead.kill()
        lead.wait()
        self._read_messages(lead)
        # Other ps may have been lost at the same time.
        lost = [peer for peer in self._tasks if peer.role.kind == "ps" and (peer is task or peer.poll() is not None)]
        for peer in (*lost, lead):
            if peer.process:
                peer.close()
            self._start(peer)
        self._progress = time.monotonic()

    def _can_do_without(self, task: _Task) -> bool:
        """Whether enough other workers of an elastic cluster are running."""
        strategy = self._config.strategy
        workers = [peer for peer in self._tasks if peer.role.kind == "worker" and peer.process]
        return strategy.is_elastic and task.role.kind == "worker" and len(workers) >= strategy.min_workers

    def _check_heartbeats(self) -> None:
        now, limit = time.monotonic(), self._config.heartbeat_seconds
        for task in self._tasks:
            if task.process and now - task.last_message > limit:
                logging.warning("%s has sent no heartbeat for %.0f s: it is killed", task.role.name, limit)
                task.kill()
                # Kill it only once, even if its exit is noticed later.
                task.last_message = now
        if now - self._progress > _STALLED_HEARTBEATS * limit:
            lead = next(task for task in self._tasks if task.role.is_lead)
            logging.warning("no step for %.0f s: %s is killed", now - self._progress, lead.role.name)
            lead.kill()
            self._progress, self._is_stalled = now, True

    def _await_evaluator(self, stop: PreemptionFlag) -> None:
        deadline = time.monotonic() + _EVALUATOR_SECONDS
        evaluators = [task for task in self._tasks if task.role.is_evaluator]
        while any(task.process for task in evaluators) and time.monotonic() < deadline:
            if stop.is_set():
                raise SystemExit(128 + signal.SIGTERM)
            self._wait_for_exit(_POLL_SECONDS)

    def _stop_gracefully(self) -> None:
        """Send SIGTERM: the replicas inform each other, save a checkpoint at the same step, and exit."""
        for task in self._tasks:
            task.signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        lead = next(task for task in self._tasks if task.role.is_lead)
        while lead.process and time.monotonic() < deadline:
            self._wait_for_exit(0.1)

    def _wait_for_exit(self, seconds: float) -> None:
        """Wait for an exit; read and ignore messages."""
        self._wait_for_events(seconds)
        for task in self._tasks:
            list(task.messages())
            if task.poll() is not None:
                task.close()

    def _wait_for_events(self, seconds: float) -> None:
        """Wait for a message or an exit."""
        running = [(task.pipe, task.process.pidfd) for task in self._tasks if task.process]
        multiprocessing.connection.wait([descriptor for pair in running for descriptor in pair], seconds)

    def _kill_all(self) -> None:
        for task in self._tasks:
            task.kill()
        for task in self._tasks:
            if task.process:
                task.wait()
                task.close()


class _Task:
    """One task of the cluster, including its restarts.

    Attributes:
      process: The running process; None before the start and after `close`.
    """

    def __init__(self, role: Role, log: Path) -> None:
        self.role = role
        self.log = log
        self.process: ChildProcess | None = None
        self.pipe = -1
        self.last_message = 0.0
        self._partial = b""

    def start(self, run_task: Callable[[Role], None], stale: Sequence[int] = ()) -> None:
        self.pipe, child_end = os.pipe()
        os.set_blocking(self.pipe, False)
        self.last_message, self._partial = time.monotonic(), b""
        with self.log.open("ab") as log:
            self.process = ChildProcess(_run_in_child, self.role, child_end, run_task, stale, output=log.fileno())
        os.close(child_end)
        logging.info("started %s as process %d", self.role.name, self.process.pid)

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield the (name, value) pairs that the task has sent since the last call."""
        if not self.process:
            return
        try:
            # Read more than a pipe can hold, so that one read after a task's exit returns all remaining bytes.
            received = self._partial + os.read(self.pipe, 1 << 20)
        except BlockingIOError:
            return
        *lines, self._partial = received.split(b"\n")
        for line in lines:
            self.last_message = time.monotonic()
            yield from heartbeat.parse(line)

    def poll(self) -> int | None:
        """Return the exit code, as `ChildProcess.poll` returns it; None while the task runs and after `close`."""
        return self.process.poll() if self.process else None

    def signal(self, signum: signal.Signals) -> None:
        if self.process:
            self.process.send_signal(signum)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def wait(self) -> None:
        if self.process:
            self.process.wait()

    def close(self) -> None:
        """Forget the process, which has ended."""
        os.close(self.pipe)
        self.process = None

    def last_log_lines(self) -> list[str]:
        """Return the last line of the task's log; empty without a log."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1:]


def _run_in_child(role: Role, pipe: int, run_task: Callable[[Role], None], stale: Sequence[int]) -> None:
    """Run a task in the process that was forked for it."""
    stale_contexts.set_environment(stale)
    # A server must continue while the other tasks save a checkpoint; SIGKILL ends it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if role.is_server else signal.SIG_DFL)
    os.environ.update(FAIL_FAST | {tf_config.VARIABLE: role.tf_config} | _select_devices(role))
    heartbeat.start(pipe)
    logging.info("=== %s, process %d ===", role.name, os.getpid())
    try:
        run_task(role)
    except Exception as error:
        logging.exception("%s failed", role.name)
        if pipeline_error := find(error):
            heartbeat.send_status("error", str(pipeline_error))
        raise SystemExit(1) from error


def _choose_addresses(config: TrainingConfig) -> dict[str, tuple[str, ...]]:
    """Return kind → the addresses of its tasks, on the loopback interface.

    All sockets stay open until every port is chosen. Otherwise a port might be chosen twice, and gRPC's servers would
    share it without an error.
    """
    strategy = config.strategy
    counts = {"worker": strategy.workers}
    if strategy.kind == "parameter_server":
        counts = {"chief": 1, "worker": strategy.most_workers, "ps": strategy.ps}
    sockets = [socket.socket() for _ in range(sum(counts.values()))]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        ports = iter([listener.getsockname()[1] for listener in sockets])
    finally:
        for listener in sockets:
            listener.close()
    return {kind: tuple(f"127.0.0.1:{next(ports)}" for _ in range(count)) for kind, count in counts.items()}


def _create_roles(config: TrainingConfig, cluster: dict[str, tuple[str, ...]]) -> list[Role]:
    """Return the tasks to start; servers come first, because other tasks connect to them."""
    counts = {kind: len(addresses) for kind, addresses in cluster.items()} | {"worker": config.strategy.workers}
    roles = [Role(kind, index, cluster) for kind in ("ps", "worker", "chief") for index in range(counts.get(kind, 0))]
    return [*roles, Role("evaluator", 0, cluster)] if config.evaluator else roles


def visible_gpus() -> list[str]:
    """Return the GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them, without initializing TensorFlow."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    installed = [str(number) for number, _ in enumerate(_GPUS.iterdir())] if _GPUS.is_dir() else []
    return installed if visible is None else [gpu for gpu in visible.split(",") if gpu]


def _select_devices(role: Role) -> dict[str, str]:
    """Return the environment with the GPUs of a task: workers share them, and other tasks do not use GPUs."""
    gpus = visible_gpus()
    if not gpus:
        return {}
    assigned = gpus[role.index :: role.workers] or [gpus[role.index % len(gpus)]]
    return {"CUDA_VISIBLE_DEVICES": ",".join(assigned) if role.kind == "worker" else "-1"}


_GPUS = Path("/proc/driver/nvidia/gpus")
