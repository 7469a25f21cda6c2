"""Runs a training cluster on this machine: a process for each task, watched, and started again when it dies.

What is started again, and why:

    worker beside a ps       it alone, at the same address: the coordinator hands its steps to others, and takes it back
    evaluator                it alone: nobody waits for it
    chief, ps, replica       all tasks, at new addresses: what they know together is lost, and the checkpoint has it

The tasks are forked from this process, which has imported everything and started nothing, so a start takes
milliseconds. None of them outlives it.
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

from components.errors import MachineError, find
from components.processes import signal_at_parents_death
from components.trainer.cluster import roles, signs
from components.trainer.cluster.roles import Role
from components.trainer.config import TrainingConfig

_STALLED_HEARTBEATS = 10
"""Heartbeats without a step after which a cluster that lives is taken to be stuck."""
_LOOK_MILLISECONDS = 250
"""How long a look for signs lasts where there are none: a signal does not end it, so SIGTERM is heard as late as this.
Together with `_LEAVE_SECONDS` it has to stay below what the run gives its nodes."""
_LEAVE_SECONDS = 4.0
"""What tasks get to save when the run is ended; the run itself gives its nodes five."""
_EVALUATOR_SECONDS = 120.0
"""What the evaluator gets for the last checkpoint."""


@dataclass(frozen=True)
class Summary:
    """How a training went.

    Attributes:
      steps: optimizer steps that the model has made.
      restarts: tasks or clusters that were started again.
      repeated: steps that were done again because a checkpoint had not seen them.
      damaged: checkpoints that could not be read.
    """

    steps: int
    restarts: int
    repeated: int
    damaged: int


class Supervisor:
    """One cluster.

    Args:
      config: the strategy, and how much patience it has.
      work: what a task does; called in its process, and its end is the task's.
      logs: the folder of the tasks' logs.
    """

    def __init__(self, config: TrainingConfig, work: Callable[[Role], None], logs: Path) -> None:
        self._config = config
        self._work = work
        self._logs = logs
        self._tasks: list[_Task] = []
        self._events = select.poll()
        self._asked_to_go = False
        self._restarts = self._in_vain = self._repeated = self._damaged = 0
        self._step = self._saved = 0
        self._progress = time.monotonic()

    def run(self) -> Summary:
        """Runs the cluster until its lead has ended well. Main thread only, and before any thread was started.

        Raises:
          PipelineError: a task has said what is wrong, or dies again and again.
          SystemExit: this process was asked to end by SIGTERM; its tasks were let save.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        before = signal.signal(signal.SIGTERM, self._note)
        try:
            self._start_all()
            while not self._watch():
                if self._asked_to_go:
                    self._let_leave()
                    raise SystemExit(128 + signal.SIGTERM)
            self._await_evaluator()
        finally:
            self._kill_all()
            signal.signal(signal.SIGTERM, before)
        return Summary(self._step, self._restarts, self._repeated, self._damaged)

    def _note(self, _signum: int, _frame: FrameType | None) -> None:
        self._asked_to_go = True

    def _start_all(self) -> None:
        cluster = _addresses(self._config)
        self._progress = time.monotonic()
        self._tasks = [_Task(role, self._logs / f"{role.name}.log") for role in _roles(self._config, cluster)]
        for task in self._tasks:
            self._start(task)

    def _start(self, task: _Task) -> None:
        task.start(self._work, [other.pipe for other in self._tasks if other.pipe >= 0])
        self._events.register(task.pipe, select.POLLIN)
        self._events.register(task.ended, select.POLLIN)

    def _watch(self) -> bool:
        """Waits for the next sign or end, and does what follows from it; whether the lead has ended well."""
        self._events.poll(_LOOK_MILLISECONDS)
        for task in self._tasks:
            self._listen(task)
        for task in self._tasks:
            if (code := task.poll()) is not None:
                # Once more: what it has told since, and then ended, counts.
                self._listen(task)
                self._forget(task)
                if code == 0:
                    if task.role.is_lead:
                        return True
                else:
                    self._bury(task, code)
                    return False
        self._look_for_frozen()
        return False

    def _listen(self, task: _Task) -> None:
        for what, value in task.signs():
            self._hear(task, what, value)

    def _hear(self, task: _Task, what: str, value: Any) -> None:
        if what == "error":
            raise find(RuntimeError(value)) or MachineError(value, f"see {task.log}")
        if not task.role.is_lead:
            return
        if what == "restored":
            self._repeated += max(0, self._step - value)
            self._step = value
        elif what == "damaged":
            self._damaged += 1
            logging.warning("checkpoint %s is damaged; the one before it is used", value)
        elif what == "saved" and value > self._saved:
            self._saved, self._in_vain = value, 0
        elif what == "step":
            self._step = value
        if what in ("step", "saved", "restored"):
            self._progress = time.monotonic()

    def _bury(self, task: _Task, code: int) -> None:
        """A task has died: counts, and starts again what has to be."""
        died = f"{task.role.name} {_how(code)}"
        self._restarts += 1
        self._in_vain += 1
        if self._in_vain > self._config.max_restarts:
            raise MachineError(
                f"training task {died}, {self._in_vain} times in a row without a new checkpoint"
                if self._in_vain > 1
                else f"training task {died}",
                f"see {task.log}",
                task.last_words(),
            )
        if task.role.kind == "evaluator" or (task.role.kind == "worker" and task.role.is_server):
            logging.warning("%s at step %d: it is started again", died, self._step)
            self._start(task)
        else:
            logging.warning("%s at step %d: all tasks are started again, from the last checkpoint", died, self._step)
            self._kill_all()
            self._start_all()

    def _look_for_frozen(self) -> None:
        now, patience = time.monotonic(), self._config.heartbeat_seconds
        for task in self._tasks:
            if task.process and now - task.heard > patience:
                logging.warning("%s has shown no sign of life for %.0f s: it is killed", task.role.name, patience)
                task.kill()
                # Once is enough, though it may take a few more looks until it has ended.
                task.heard = now
        if now - self._progress > _STALLED_HEARTBEATS * patience:
            lead = next(task for task in self._tasks if task.role.is_lead)
            logging.warning("no step for %.0f s: %s is killed", now - self._progress, lead.role.name)
            lead.kill()
            self._progress = now

    def _await_evaluator(self) -> None:
        deadline = time.monotonic() + _EVALUATOR_SECONDS
        evaluators = [task for task in self._tasks if task.role.kind == "evaluator"]
        while any(task.process for task in evaluators) and time.monotonic() < deadline:
            if self._asked_to_go:
                raise SystemExit(128 + signal.SIGTERM)
            self._let_end(_LOOK_MILLISECONDS)

    def _let_leave(self) -> None:
        """Lets the tasks that compute save: they tell each other, so all of them leave at the same step."""
        for task in self._tasks:
            task.signal(signal.SIGTERM)
        deadline = time.monotonic() + _LEAVE_SECONDS
        lead = next(task for task in self._tasks if task.role.is_lead)
        while lead.process and time.monotonic() < deadline:
            self._let_end(100)

    def _let_end(self, milliseconds: int) -> None:
        """Waits for an end; whatever is told now changes nothing any more."""
        self._events.poll(milliseconds)
        for task in self._tasks:
            list(task.signs())
            if task.poll() is not None:
                self._forget(task)

    def _kill_all(self) -> None:
        for task in self._tasks:
            task.kill()
        for task in self._tasks:
            if task.process:
                task.wait()
                self._forget(task)

    def _forget(self, task: _Task) -> None:
        for descriptor in (task.pipe, task.ended):
            self._events.unregister(descriptor)
        task.close()


class _Task:
    """One task, over all its lives."""

    def __init__(self, role: Role, log: Path) -> None:
        self.role = role
        self.log = log
        self.process = 0
        self.pipe = self.ended = -1
        self.heard = 0.0
        self._code: int | None = None
        self._partial = b""

    def start(self, work: Callable[[Role], None], not_its_own: list[int]) -> None:
        self.pipe, theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.pipe, False)
        self.heard, self._code, self._partial = time.monotonic(), None, b""
        sys.stdout.flush()
        sys.stderr.flush()
        supervisor = os.getpid()
        self.process = os.fork()
        if not self.process:
            for descriptor in (self.pipe, *not_its_own):
                os.close(descriptor)
            _live(self.role, self.log, supervisor, theirs, work)
        os.close(theirs)
        self.ended = os.pidfd_open(self.process)
        logging.info("started %s as process %d", self.role.name, self.process)

    def signs(self) -> Iterator[tuple[str, Any]]:
        """What it has told since the last time."""
        if self.pipe < 0:
            return
        try:
            # More than a pipe holds, so that one look after a task's end finds all the rest.
            told = self._partial + os.read(self.pipe, 1 << 20)
        except BlockingIOError:
            return
        *lines, self._partial = told.split(b"\n")
        for line in lines:
            self.heard = time.monotonic()
            yield from signs.read(line)

    def poll(self) -> int | None:
        """The code it has ended with, as `os.waitstatus_to_exitcode` gives it; None as long as it lives."""
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
        os.close(self.ended)
        self.process, self.pipe, self.ended = 0, -1, -1

    def last_words(self) -> list[str]:
        """The last line of its log, if it has left one."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1:]


def _live(role: Role, log: Path, supervisor: int, pipe: int, work: Callable[[Role], None]) -> NoReturn:
    """A task's whole life, in its own process."""
    code = 1
    try:
        signal_at_parents_death(signal.SIGKILL, supervisor)
        # What only serves goes on while the others save; it ends by SIGKILL.
        signal.signal(signal.SIGTERM, signal.SIG_IGN if role.is_server else signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(roles.ENVIRONMENT | {roles.VARIABLE: role.tf_config} | _devices(role))
        signs.begin(pipe)
        logging.info("=== %s, process %d ===", role.name, os.getpid())
        work(role)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:
        logging.exception("%s failed", role.name)
        if told := find(error):
            signs.tell("error", str(told))
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _addresses(config: TrainingConfig) -> dict[str, tuple[str, ...]]:
    """Where each task listens, on the loopback interface.

    All ports are taken while the sockets of all are open. One after the other could give a port twice, and gRPC's
    servers would share it without a word.
    """
    strategy = config.strategy
    counts = {"worker": strategy.workers}
    if strategy.kind == "parameter_server":
        counts = {"chief": 1, "worker": strategy.workers, "ps": strategy.ps}
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
    """The tasks of a cluster; the servers first, since the others look for them."""
    found = [
        Role(kind, index, cluster) for kind in ("ps", "worker", "chief") for index in range(len(cluster.get(kind, ())))
    ]
    return [*found, Role("evaluator", 0, cluster)] if config.evaluator else found


def _devices(role: Role) -> dict[str, str]:
    """Which GPUs a task sees: the workers share them out, the others compute nothing that is worth one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = [str(number) for number, _ in enumerate(_GPUS.iterdir())] if _GPUS.is_dir() else []
    gpus = found if visible is None else [each for each in visible.split(",") if each]
    if not gpus:
        return {}
    mine = gpus[role.index :: role.workers] or [gpus[role.index % len(gpus)]]
    return {"CUDA_VISIBLE_DEVICES": ",".join(mine) if role.kind == "worker" else "-1"}


_GPUS = Path("/proc/driver/nvidia/gpus")


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
