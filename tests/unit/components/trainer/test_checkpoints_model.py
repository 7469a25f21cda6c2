"""Tests of the checkpoint protocol with the model checker Spin.

Spin searches all interleavings of components/trainer/checkpoints.pml for errors. The Python code is then driven through
simulated runs of the model, and must be in the same state after every step.
"""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
import tf_keras

from components.base.errors import MachineError
from components.trainer import checkpoint, network_training, training_loop
from components.trainer.checkpoint import Checkpoints
from components.trainer.cluster import heartbeat, supervisor
from components.trainer.cluster.supervisor import Supervisor
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig
from components.trainer.early_stopping import EarlyStopping
from components.trainer.network_training import NetworkTraining
from components.trainer.steps import Stop
from components.trainer.strategy import Distribution
from components.trainer.training_loop import Folders, Learner, TrainingLoop
from tests.support.runs.stepped import Process, simulate, verify

MODEL = Path(checkpoint.__file__).with_name("checkpoints.pml")
STEPS = (
    *("=", "start", "read", "failure", "killed", "done", "stop"),
    *("blind", "restore", "agree", "differ", "step", "data", "half", "whole", "list", "sweep", "send", "evaluate"),
    *("exit", "crash"),
)
CONFIG = TrainingConfig.model_validate(
    {
        "steps": 3,
        "checkpoint": {"every_steps": 1, "keep": 1},
        "max_restarts": 1,
        "strategy": {"kind": "multi_worker", "workers": 2},
    }
)
SUPERVISOR = "2"

pytestmark = pytest.mark.needs("spin")


def test_protocol_holds_in_every_interleaving(tmp_path: Path) -> None:
    output = verify(tmp_path, MODEL)
    assert "errors: 0" in output
    states = re.search(r"(\S+) states, stored", output)
    assert states
    assert float(states[1]) > 500_000


@pytest.mark.parametrize(
    "option",
    [
        pytest.param("-DTRUST_INDEX", id="a checkpoint is not read before it is restored"),
        pytest.param("-DNO_COMPARISON", id="replicas do not compare what they have restored"),
        pytest.param("-DNO_CATCH_UP", id="a restored checkpoint is not evaluated"),
        pytest.param("-DSAVE_AGAIN", id="a checkpoint is written over itself"),
        pytest.param("-DLOST_MESSAGES", id="messages of killed tasks are not read"),
        pytest.param("-DNO_WAIT", id="the supervisor does not wait for the end of killed tasks"),
    ],
)
def test_search_finds_the_fault_of_a_weaker_protocol(tmp_path: Path, option: str) -> None:
    assert "assertion violated" in verify(tmp_path, MODEL, option)


current = threading.local()


class Task:
    """A replacement of the supervisor's task that runs in a thread instead of a process."""

    last_message = float("inf")

    def __init__(self, role: Role, log: Path) -> None:
        self.role, self.log = role, log
        self.sent: list[tuple[str, Any]] = []
        self.code: int | None = None
        self.process: Process | None = None
        self.is_preempted = self.is_blind = self.has_swept = False
        self.restored = 0

    def start(self, *_: object) -> None:
        code = self._code = current.code
        code.tasks[str(self.role.index)] = self
        self.process = Process(lambda process: code.train(self, process))

    def messages(self) -> list[tuple[str, Any]]:
        read, self.sent = self.sent, []
        return read

    def poll(self) -> int | None:
        """Return the exit code if the current step of the model handles such an exit, otherwise None."""
        if not self.process or self.code is None or (self.code == 0) != (self._code.handled == "done"):
            return None
        return self.code if self._code.handled in ("done", "failure") else None

    def signal(self, _signum: int) -> None:
        self.is_preempted = True

    def kill(self) -> None:
        """Do nothing, because the model ends all tasks in one step."""

    def wait(self) -> None:
        if not self._code.has_killed:
            self._code.has_killed = True
            current.process.wait("killed")
        if self.process and not self.process.has_ended:
            self.process.make("crash", "crash")

    def close(self) -> None:
        self.process = None

    def last_log_lines(self) -> list[str]:
        return []


class Loop(TrainingLoop):
    def steps(self, network: tf_keras.Model, optimizer: tf_keras.optimizers.Optimizer) -> Any:
        return ScriptedSteps(network, optimizer)


class ScriptedSteps:
    """Training steps that add 1 to the only weight of the network."""

    steps_per_call, together, input_wait = 1, True, 0.0

    def __init__(self, network: tf_keras.Model, optimizer: tf_keras.optimizers.Optimizer) -> None:
        self._network, self._optimizer = network, optimizer

    def run(self, count: int, should_stop: Any) -> tuple[float, Stop]:
        current.process.wait("step")
        self._optimizer.iterations.assign_add(count)
        [weight] = self._network.trainable_variables
        weight.assign_add([[float(count)]])
        assert float(weight[0, 0]) == int(self._optimizer.iterations), "each step is in the weights once"
        return 0.0, should_stop()

    def collect(self) -> None: ...


class Agreement(Distribution):
    def check_agreement(self, step: int) -> None:
        task, restored_steps = current.task, current.code.restored
        restored_steps[task.role.index] = step
        if current.process.wait("agree", "differ") == "differ":
            assert restored_steps[1 - task.role.index] != step
            raise MachineError("differ", "restart")


class Code:
    """A cluster of Python tasks and a supervisor, which run step by step as the model prescribes."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._checkpoints = folder / "checkpoints"
        self._supervisor: Supervisor | None = None
        self._supervising: Process | None = None
        self.tasks: dict[str, Task] = {}
        self.restored: dict[int, int] = {}
        self.handled, self.has_killed = "", False
        self._has_given_up = self._gives_up = False
        patched.setattr(supervisor, "_Task", Task)
        patched.setattr(supervisor, "_STOP_SECONDS", 0.0)
        patched.setattr(training_loop, "PreemptionFlag", lambda: Preemption(current.task))
        patched.setattr(heartbeat, "send_status", send)
        patched.setattr(Checkpoints, "restore", wrap_restore(Checkpoints.restore))
        patched.setattr(checkpoint, "_read_through", wrap_read(checkpoint._read_through))
        patched.setattr(tf.train.Checkpoint, "_write", wrap_write(tf.train.Checkpoint._write))
        patched.setattr(
            tf.train.CheckpointManager, "_record_state", wrap_list(tf.train.CheckpointManager._record_state)
        )
        patched.setattr(tf.train.CheckpointManager, "_sweep", wrap_sweep(tf.train.CheckpointManager._sweep))
        patched.setattr(network_training, "evaluate", evaluate)

    def make(self, step: str, actor: str, *numbers: str) -> None:
        """Make a step of the model.

        Args:
            step: Name of the step.
            actor: Index of the task, or SUPERVISOR.
            numbers: Further values of the step, as the model prints them.
        """
        if step == "start" and (self._supervising is None or self._supervising.has_ended):
            self._supervising = Process(self._supervise)
        if step == "blind":
            self.tasks[actor].is_blind = True
            return
        process = self._supervising if actor == SUPERVISOR else self.tasks[actor].process
        assert process, step
        is_refused = step == "differ"
        process.make(step, "crash" if step == "crash" else "refused" if is_refused else "made")
        if step == "failure":
            self._gives_up = numbers == ("1",)
        if step == "killed":
            assert self._has_given_up == self._gives_up
        if step == "restore":
            assert self.tasks[actor].restored == int(numbers[0])

    def state(self) -> list[int]:
        """Return the state in the form in which the model prints it."""
        listed = tf.train.get_checkpoint_state(str(self._checkpoints))
        paths = listed.all_model_checkpoint_paths if listed else ()
        evaluated = EarlyStopping(str(self._checkpoints), None).last
        assert self._supervisor
        return [
            *(self._file(step) for step in (1, 2, 3)),
            sum(1 << int(path.rpartition("-")[2]) for path in paths),
            evaluated,
            self._supervisor._saved,
            self._supervisor._failures,
        ]

    def _file(self, step: int) -> int:
        if not (self._checkpoints / f"step-{step}.index").exists():
            return 0
        try:
            reader = tf.train.load_checkpoint(checkpoint.path(str(self._checkpoints), step))
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
        except Exception:
            return 1
        return 2

    def _supervise(self, process: Process) -> None:
        current.process, current.code = process, self
        self._supervisor = new_supervisor = Supervisor(CONFIG, lambda role: None, self._folder / "logs")
        new_supervisor._wait_for_events = new_supervisor._measure_loads = ignore  # type: ignore[assignment]
        start_all = new_supervisor._start_all

        def wait_and_start_all() -> None:
            process.wait("start")
            self.has_killed, self.restored = False, {}
            start_all()

        new_supervisor._start_all = wait_and_start_all  # type: ignore[method-assign]
        try:
            new_supervisor._start_all()
            while True:
                self.handled = process.wait("read", "failure", "done", "stop")
                if self.handled == "stop":
                    new_supervisor._stop_gracefully()
                    break
                if new_supervisor._watch():
                    break
        except MachineError:
            self._has_given_up = True
        new_supervisor._kill_all()

    def train(self, task: Task, process: Process) -> None:
        """Run a task until it ends, and set its exit code."""
        current.process, current.code, current.task = process, self, task
        folder, lead = str(self._checkpoints), task.role.is_lead
        training: Any = SimpleNamespace(
            _best=EarlyStopping(folder, None) if lead else None,
            _plan=SimpleNamespace(training=CONFIG),
            _checkpoints=folder,
            _head=None,
            _rows=SimpleNamespace(validation_batches=tuple),
            _restore=read,
        )
        loop = Loop(
            config=CONFIG,
            distribution=Agreement(tf.distribute.get_strategy(), task.role),
            learner=Learner(weight, None),  # type: ignore[arg-type]
            input_pipeline=None,  # type: ignore[arg-type]
            folders=Folders(folder, None if lead else f"{folder}-{task.role.name}", str(self._folder / "events")),
            on_checkpoint=lambda *checkpoint: NetworkTraining._on_checkpoint(training, None, None, True, *checkpoint),  # type: ignore[arg-type]
        )
        code = 1
        try:
            try:
                loop.run()
                ended = 0
            except SystemExit:
                ended = training_loop.PREEMPTED
            process.wait("exit")
            code = ended
        finally:
            task.code = code


class Preemption:
    def __init__(self, task: Task) -> None:
        self._task = task

    def is_set(self) -> bool:
        return self._task.is_preempted


def weight() -> tf_keras.Model:
    zeros = tf_keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    return tf_keras.Sequential([tf_keras.layers.Input((1,)), zeros])


def read(path: str) -> tf.Module:
    """Read the step from a checkpoint, which must be complete, and return it in a module."""
    module = tf.Module()
    module.steps = tf.Variable(
        tf.train.load_checkpoint(path).get_tensor("optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE")
    )
    return module


def ignore(*_: object, **__: object) -> None: ...


def send(name: str, value: int | str) -> None:
    if name == "saved":
        current.process.wait("send")
    current.task.sent.append((name, value))


def evaluate(*arguments: Any) -> float:
    """Return the loss of a checkpoint. It decreases with every step."""
    current.process.wait("evaluate")
    return 1 / float(arguments[-1])


def wrap_restore(restore: Any) -> Any:
    def wait_and_restore(checkpoints: Checkpoints) -> int:
        current.process.wait("restore")
        step: int = restore(checkpoints)
        current.task.restored = step
        return step

    return wait_and_restore


def wrap_read(read: Any) -> Any:
    def may_fail(path: str) -> None:
        read(path)
        if current.task.is_blind:
            current.task.is_blind = False
            raise ValueError(path)

    return may_fail


def wrap_write(write: Any) -> Any:
    """Return a replacement of `write` that writes the data, half of the index and the whole index in separate steps.

    TensorFlow writes the data first, and then the index in place.
    """

    def write_in_steps(tf_checkpoint: tf.train.Checkpoint, prefix: str, options: Any = None) -> str:
        if "/step-" not in prefix:
            return str(write(tf_checkpoint, prefix, options))
        whole = write(tf_checkpoint, prefix.replace("/checkpoints/", "/written/"))
        current.process.wait("data")
        Path(prefix).parent.mkdir(exist_ok=True)
        shutil.copy(f"{whole}.data-00000-of-00001", f"{prefix}.data-00000-of-00001")
        index = Path(f"{whole}.index").read_bytes()
        current.process.wait("half")
        Path(f"{prefix}.index").write_bytes(index[: len(index) // 2])
        current.process.wait("whole")
        Path(f"{prefix}.index").write_bytes(index)
        for callback in options.experimental_write_callbacks:
            callback(prefix)
        return prefix

    return write_in_steps


def wrap_list(record: Any) -> Any:
    def wait_and_record(manager: tf.train.CheckpointManager) -> None:
        # The list is written a second time after older checkpoints are deleted. In the model, that is part of `sweep`.
        if not current.task.has_swept:
            current.process.wait("list")
        current.task.has_swept = False
        record(manager)

    return wait_and_record


def wrap_sweep(sweep: Any) -> Any:
    def wait_and_sweep(manager: tf.train.CheckpointManager) -> None:
        current.process.wait("sweep")
        sweep(manager)
        current.task.has_swept = True

    return wait_and_sweep


def test_code_makes_the_steps_of_the_model(tmp_path: Path) -> None:
    made_steps = set()
    # With seed 146, the lead saves a checkpoint while the supervisor handles the end of the other replica.
    for seed, *options in [*((seed,) for seed in range(6)), *((seed, "-DLATE") for seed in (*range(10), 146))]:
        folder = tmp_path / f"{seed}{len(options)}"
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patched:
            code = Code(folder, patched)
            for step, *values in simulate(MODEL, seed, STEPS, *options):
                if step == "=":
                    assert code.state() == list(map(int, values)), (seed, options)
                else:
                    code.make(step, *values)
                    made_steps.add(step)
    assert made_steps == set(STEPS) - {"="}
