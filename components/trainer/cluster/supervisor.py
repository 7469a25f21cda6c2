"""Runs a training cluster on this machine: one process per task, which is supervised and restarted when it fails.

What is restarted, and why:

    worker of a cluster with ps   only this task, at the same address: the coordinator schedules its steps on other
                                  workers, and uses it again when it is back. Of an elastic cluster, it is left out
                                  after `max_restarts` if enough others remain
    evaluator                     only this task: no other task waits for it
    chief, ps, replica            all tasks, at new addresses: their state is lost, and is restored from the checkpoint

The tasks are forked from this process, which has imported all modules and started no thread, so a start takes
milliseconds. No task outlives it.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from components.base.errors import MachineError, find
from components.base.processes import describe_exit, exit_now, signal_at_parents_death
from components.compat.grpc import FAIL_FAST
from components.trainer.cluster import heartbeat, tf_config
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig

_STALLED_HEARTBEATS = 10
"""The lead is killed if there was no step for this many times `heartbeat_seconds`, though all tasks send heartbeats."""
_POLL_MILLISECONDS = 250
"""The longest wait for a message or an exit. A signal does not end the wait, so SIGTERM is noticed after this time at
the latest. Together with `_STOP_SECONDS` it must be less than the five seconds that a run gives its nodes."""
_STOP_SECONDS = 4.0
"""How long tasks may take to save a checkpoint when the run is stopped."""
_EVALUATOR_SECONDS = 120.0
"""How long the evaluator may take for the last checkpoint."""


@dataclass(frozen=True)
class Summary:
    """The result of a training.

    Attributes:
      steps: optimizer steps of the model.
      restarts: restarts of single tasks and of the cluster.
      repeated: steps that were repeated, because they were newer than the restored checkpoint.
      damaged: checkpoints that could not be read.
    """

    steps: int
    restarts: int
    repeated: int
    damaged: int


class Supervisor:
    """One cluster.

    Args:
      config: the strategy, and the limits for restarts and heartbeats.
      run_task: runs a task; called in the task's process, which exits when it returns.
      logs: the folder of the tasks' logs.
    """

    def __init__(self, config: TrainingConfig, run_task: Callable[[Role], None], logs: Path) -> None:
        self._config = config
        self._run_task = run_task
        self._logs = logs
        self._tasks: list[_Task] = []
        self._events = select.poll()
        self._stop_requested = False
        self._restarts = self._failures = self._repeated = self._damaged = 0
        self._step = self._saved = 0
        self._progress = time.monotonic()

    def run(self) -> Summary:
        """Run the cluster until its lead has succeeded. Main thread only, and before any thread was started.

        Raises:
          PipelineError: a task has reported one, or fails repeatedly.
          SystemExit: this process received SIGTERM; its tasks had time to save a checkpoint.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        previous = signal.signal(signal.SIGTERM, self._handle_sigterm)
        try:
            self._start_all()
            while not self._watch():
                if self._stop_requested:
                    self._stop_gracefully()
                    raise SystemExit(128 + signal.SIGTERM)
            self._await_evaluator()
        finally:
            self._kill_all()
            signal.signal(signal.SIGTERM, previous)
        return Summary(self._step, self._restarts, self._repeated, self._damaged)

    def _handle_sigterm(self, _signum: int, _frame: FrameType | None) -> None:
        self._stop_requested = True

    def _start_all(self) -> None:
        cluster = _addresses(self._config)
        self._progress = time.monotonic()
        self._tasks = [_Task(role, self._logs / f"{role.name}.log") for role in _roles(self._config, cluster)]
        for task in self._tasks:
            self._start(task)

    def _start(self, task: _Task) -> None:
        task.start(self._run_task, [other.pipe for other in self._tasks if other.pipe >= 0])
        self._events.register(task.pipe, select.POLLIN)
        self._events.register(task.pidfd, select.POLLIN)

    def _watch(self) -> bool:
        """Wait for the next message or exit, and handles it; return whether the lead has succeeded."""
        self._events.poll(_POLL_MILLISECONDS)
        for task in self._tasks:
            self._read_messages(task)
        for task in self._tasks:
            if (code := task.poll()) is not None:
                # Again, for the messages that were sent between the first read and its exit.
                for each in self._tasks:
                    self._read_messages(each)
                self._unregister(task)
                if code == 0:
                    if task.role.is_lead:
                        return True
                else:
                    self._handle_exit(task, code)
                    return False
        self._check_heartbeats()
        return False

    def _read_messages(self, task: _Task) -> None:
        for name, value in task.messages():
            self._handle_status(task, name, value)

    def _handle_status(self, task: _Task, name: str, value: Any) -> None:
        if name == "error":
            raise find(RuntimeError(value)) or MachineError(value, f"see {task.log}")
        if name == "warning":
            logging.warning("%s", value)
        if not task.role.is_lead:
            return
        if name == "restored":
            self._repeated += max(0, self._step - value)
            self._step = value
        elif name == "damaged":
            self._damaged += 1
            logging.warning("checkpoint %s is damaged; the one before it is used", value)
        elif name == "saved" and value > self._saved:
            self._saved, self._failures = value, 0
        elif name == "step":
            self._step = value
        if name in ("step", "saved", "restored"):
            self._progress = time.monotonic()

    def _handle_exit(self, task: _Task, code: int) -> None:
        """Restarts a task that has failed, or all tasks."""
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
        else:
            logging.warning("%s at step %d: all tasks are restarted from the last checkpoint", failure, self._step)
            for each in self._tasks:
                each.kill()
            for each in self._tasks:
                # The lead may have saved a checkpoint meanwhile.
                if each.process:
                    each.wait()
                    self._read_messages(each)
            self._kill_all()
            self._start_all()

    def _can_do_without(self, task: _Task) -> bool:
        """Whether enough workers of an elastic cluster run beside this one."""
        strategy = self._config.strategy
        workers = [each for each in self._tasks if each.role.kind == "worker" and each.process]
        return strategy.is_elastic and task.role.kind == "worker" and len(workers) >= strategy.min_workers

    def _check_heartbeats(self) -> None:
        now, limit = time.monotonic(), self._config.heartbeat_seconds
        for task in self._tasks:
            if task.process and now - task.last_message > limit:
                logging.warning("%s has sent no heartbeat for %.0f s: it is killed", task.role.name, limit)
                task.kill()
                # So that it is killed once, though its exit may be noticed later.
                task.last_message = now
        if now - self._progress > _STALLED_HEARTBEATS * limit:
            lead = next(task for task in self._tasks if task.role.is_lead)
            logging.warning("no step for %.0f s: %s is killed", now - self._progress, lead.role.name)
            lead.kill()
            self._progress = now

    def _await_evaluator(self) -> None:
        deadline = time.monotonic() + _EVALUATOR_SECONDS
        evaluators = [task for task in self._tasks if task.role.is_evaluator]
        while any(task.process for task in evaluators) and time.monotonic() < deadline:
            if self._stop_requested:
                raise SystemExit(128 + signal.SIGTERM)
            self._wait_for_exit(_POLL_MILLISECONDS)

    def _stop_gracefully(self) -> None:
        """Send SIGTERM: the replicas inform each other, save a checkpoint at the same step, and exit."""
        for task in self._tasks:
            task.signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        lead = next(task for task in self._tasks if task.role.is_lead)
        while lead.process and time.monotonic() < deadline:
            self._wait_for_exit(100)

    def _wait_for_exit(self, milliseconds: int) -> None:
        """Wait for an exit; messages are read and ignored."""
        self._events.poll(milliseconds)
        for task in self._tasks:
            list(task.messages())
            if task.poll() is not None:
                self._unregister(task)

    def _kill_all(self) -> None:
        for task in self._tasks:
            task.kill()
        for task in self._tasks:
            if task.process:
                task.wait()
                self._unregister(task)

    def _unregister(self, task: _Task) -> None:
        for descriptor in (task.pipe, task.pidfd):
            self._events.unregister(descriptor)
        task.close()


class _Task:
    """One task of the cluster, including its restarts."""

    def __init__(self, role: Role, log: Path) -> None:
        self.role = role
        self.log = log
        self.process = 0
        self.pipe = self.pidfd = -1
        self.last_message = 0.0
        self._code: int | None = None
        self._partial = b""

    def start(self, run_task: Callable[[Role], None], pipes_of_others: list[int]) -> None:
        self.pipe, child_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.pipe, False)
        self.last_message, self._code, self._partial = time.monotonic(), None, b""
        sys.stdout.flush()
        sys.stderr.flush()
        supervisor = os.getpid()
        self.process = os.fork()
        if not self.process:
            for descriptor in (self.pipe, *pipes_of_others):
                os.close(descriptor)
            _run_in_child(self.role, self.log, supervisor, child_end, run_task)
        os.close(child_end)
        self.pidfd = os.pidfd_open(self.process)
        logging.info("started %s as process %d", self.role.name, self.process)

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield the (name, value) pairs that the task has sent since the last call."""
        if self.pipe < 0:
            return
        try:
            # More than a pipe holds, so that one read after a task's exit returns all that remains.
            received = self._partial + os.read(self.pipe, 1 << 20)
        except BlockingIOError:
            return
        *lines, self._partial = received.split(b"\n")
        for line in lines:
            self.last_message = time.monotonic()
            yield from heartbeat.parse(line)

    def poll(self) -> int | None:
        """Return the exit code, as `os.waitstatus_to_exitcode` returns it; None while the task runs."""
        if self.process and self._code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if process else None
        return self._code if self.process else None

    def wait(self) -> None:
        if self._code is None:
            _, status = os.waitpid(self.process, 0)
            self._code = os.waitstatus_to_exitcode(status)

    def signal(self, signum: signal.Signals) -> None:
        if self.process and self._code is None:
            os.kill(self.process, signum)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        os.close(self.pipe)
        os.close(self.pidfd)
        self.process, self.pipe, self.pidfd = 0, -1, -1

    def last_log_lines(self) -> list[str]:
        """Return the last line of the task's log; empty if there is none."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1:]


def _run_in_child(role: Role, log: Path, supervisor: int, pipe: int, run_task: Callable[[Role], None]) -> NoReturn:
    """Run a task in the process that was forked for it."""
    code = 1
    try:
        signal_at_parents_death(signal.SIGKILL, supervisor)
        # A server continues while the others save a checkpoint; SIGKILL ends it.
        signal.signal(signal.SIGTERM, signal.SIG_IGN if role.is_server else signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(FAIL_FAST | {tf_config.VARIABLE: role.tf_config} | _devices(role))
        heartbeat.start(pipe)
        logging.info("=== %s, process %d ===", role.name, os.getpid())
        run_task(role)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        logging.exception("%s failed", role.name)
        if pipeline_error := find(error):
            heartbeat.send_status("error", str(pipeline_error))
    finally:
        logging.shutdown()
        exit_now(code)


def _addresses(config: TrainingConfig) -> dict[str, tuple[str, ...]]:
    """Return the address of each task, on the loopback interface.

    All sockets stay open until every port is chosen. Otherwise a port might be chosen twice, and gRPC's servers would
    share it without an error.
    """
    strategy = config.strategy
    counts = {"worker": strategy.workers}
    if strategy.kind == "parameter_server":
        counts = {"chief": 1, "worker": strategy.most_workers, "ps": strategy.ps}
    sockets = [socket.socket() for _ in range(sum(counts.values()))]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = iter([each.getsockname()[1] for each in sockets])
    finally:
        for each in sockets:
            each.close()
    return {kind: tuple(f"127.0.0.1:{next(ports)}" for _ in range(count)) for kind, count in counts.items()}


def _roles(config: TrainingConfig, cluster: dict[str, tuple[str, ...]]) -> list[Role]:
    """Return the tasks that are started; the servers first, because the others connect to them."""
    counts = {kind: len(addresses) for kind, addresses in cluster.items()} | {"worker": config.strategy.workers}
    roles = [Role(kind, index, cluster) for kind in ("ps", "worker", "chief") for index in range(counts.get(kind, 0))]
    return [*roles, Role("evaluator", 0, cluster)] if config.evaluator else roles


def visible_gpus() -> list[str]:
    """Return the GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them; without a call of TensorFlow."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    installed = [str(number) for number, _ in enumerate(_GPUS.iterdir())] if _GPUS.is_dir() else []
    return installed if visible is None else [each for each in visible.split(",") if each]


def _devices(role: Role) -> dict[str, str]:
    """Return the GPUs that a task may use: the workers divide them, other tasks need none."""
    gpus = visible_gpus()
    if not gpus:
        return {}
    own = gpus[role.index :: role.workers] or [gpus[role.index % len(gpus)]]
    return {"CUDA_VISIBLE_DEVICES": ",".join(own) if role.kind == "worker" else "-1"}


_GPUS = Path("/proc/driver/nvidia/gpus")
