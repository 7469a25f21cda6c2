"""Executes the steps of pipeline/core/runs.pml with the code of runs, nodes and gc; imports TFX.

No `from __future__ import annotations` here: TFX's decorator reads the annotations themselves.
"""

import contextlib
import functools
import itertools
import shutil
import threading
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tfx.dsl.compiler.compiler import Compiler
from tfx.dsl.component.experimental.annotations import OutputArtifact
from tfx.dsl.component.experimental.decorators import component
from tfx.orchestration import pipeline
from tfx.orchestration.portable import cache_utils, execution_publish_utils
from tfx.types.standard_artifacts import Examples

from components.base.errors import InputError, MachineError
from pipeline.core import run_locks, run_record
from pipeline.core.metadata.connection import open_reader, to_ir
from pipeline.core.records import RunSummary
from pipeline.inspection import unused_artifacts
from pipeline.orchestration import node
from pipeline.orchestration.local import processes, scheduler
from pipeline.orchestration.local.processes import Reply
from pipeline.orchestration.local.scheduler import LocalJob
from pipeline.orchestration.reporting import Reporting
from tests.support.runs.stepped import Process, simulate

MODEL = Path(run_record.__file__).with_name("runs.pml")
STEPS = (
    *("=", "begin", "resume", "use", "lock", "clear", "cancel", "register", "look", "cached", "write", "written"),
    *("publish", "leave", "return", "end", "collect", "mark", "delete", "crash"),
)
_REPORTING = Reporting(lambda store, run: RunSummary(), lambda store, logs, run: None)
_EXECUTIONS = {"RUNNING": 1, "CANCELED": 2, "COMPLETE": 3, "CACHED": 4}
_RECORDS = {"running": 1, "done": 2, "failed": 3, "died": 4}

_current = threading.local()
_attempts = itertools.count()
_ready, _other_end = Pipe(duplex=False)
_other_end.send(None)


@component
def Writer(examples: OutputArtifact[Examples]):  # noqa: N802
    """Write two files of one attempt."""
    attempt, folder = next(_attempts), Path(examples.uri)
    _current.process.wait("write")
    (folder / f"first-{attempt}").touch()
    _current.process.wait("written")
    (folder / f"second-{attempt}").touch()


def main(folder: Path, seeds: dict[str, list[int]]) -> list[str]:
    """Replay random interleavings, and compare the states; return the executed steps.

    Args:
      folder: Empty folder.
      seeds: options of spin, separated by spaces → the seeds of the interleavings.
    """
    steps = set()
    for options, chosen in seeds.items():
        for seed in chosen:
            steps |= _replay(folder / f"{len(list(folder.iterdir()))}", seed, options.split())
    return sorted(steps)


def _replay(folder: Path, seed: int, options: list[str]) -> set[str]:
    steps = set()
    with pytest.MonkeyPatch.context() as patched:
        code = _Code(folder, patched)
        for step, *values in simulate(MODEL, seed, STEPS, *options):
            try:
                if step == "=":
                    state, expected = code.state(), list(map(int, values))
                    assert state == expected, f"expected {expected}, received {state}"
                else:
                    code.make(step, *values)
                    steps.add(step)
            except Exception as error:
                raise AssertionError(f"seed {seed} of {options}, {step} {values}: {error}") from error
    return steps


class _Child:
    """Replaces a child process of a run by a thread that executes a process of the model."""

    seconds = cpu_seconds = peak_memory_mb = 0.0
    can_continue = False
    waitables = (_ready,)

    def __init__(self, _title: str, _log: Path, function: Callable[..., Any], *arguments: Any, earlier: Any) -> None:
        self.reply: Reply | None = None
        self._parent: Process = _current.process
        work = functools.partial(self._work, functools.partial(function, *arguments))
        self._thread: Process | None = None
        if function in (processes.run_node, processes.clean_up):
            self._thread = _current.code.children[id(self._parent)] = Process(work)
        else:
            work(self._parent)

    def _work(self, function: Callable[[], Any], process: Process) -> None:
        _current.process = process
        self.reply = Reply(function(), None, 0.0, 0.0)

    def poll(self) -> bool:
        """Wait until the model's process has seen that its child has ended."""
        if self._thread:
            self._parent.wait("return")
            assert self._thread.has_ended
        return True

    def sample(self) -> None:
        """Do nothing."""

    def signal(self, _signum: int) -> None:
        """Do nothing: the model kills the child later."""

    def exit_error(self) -> MachineError:
        """Return the error of a child that was killed."""
        return MachineError("killed", "resume the run")


class _Signals:
    received, count = None, 0
    interrupting = contextlib.nullcontext

    def __enter__(self) -> "_Signals":
        return self

    def __exit__(self, *_: object) -> None: ...


class _Observer:
    def node_changed(self, _node: str | None) -> None: ...

    def tick(self) -> None: ...


class _Code:
    """The Python code in one output folder, whose processes make the steps of the model."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self._folder = folder
        folder.mkdir()
        self._processes: dict[str, Process] = {}
        self.children: dict[int, Process] = {}
        self._runs: dict[int, str] = {}
        toy = pipeline.Pipeline(
            pipeline_name="toy",
            pipeline_root=str(folder / "artifacts"),
            components=[Writer()],
            enable_cache=True,
            metadata_connection_config=to_ir(folder / "metadata.db"),
        )
        self._ir = bytes(Compiler().compile(toy).SerializeToString())
        open_reader(folder / "metadata.db")
        self._patch(patched)

    def _patch(self, patched: pytest.MonkeyPatch) -> None:
        patched.setattr(scheduler, "Signals", _Signals)
        patched.setattr(scheduler, "start_server", lambda: None)
        patched.setattr(scheduler, "NodeProcess", _Child)
        patched.setattr(unused_artifacts, "shutil", SimpleNamespace(rmtree=_wait_before("delete", shutil.rmtree)))
        for module, name, step in (
            (run_locks, "artifacts_in_use", "use"),
            (run_locks, "after_earlier_attempt", "lock"),
            (node, "launcher_of", "register"),
            (cache_utils, "get_cached_outputs", "look"),
            (execution_publish_utils, "publish_cached_executions", "cached"),
            (execution_publish_utils, "publish_succeeded_execution", "publish"),
            (unused_artifacts, "mark_deleted", "mark"),
        ):
            patched.setattr(module, name, _wait_before(step, getattr(module, name)))
        run_node, clean_up, save = node.run_node, node.clean_up, run_record.RunRecord.save

        def wait_and_run_node(*arguments: Any) -> Any:
            outcome = run_node(*arguments)
            _current.process.wait("leave")
            return outcome

        def wait_and_clean_up(ir: bytes, run: str, only: str | None = None) -> list[str]:
            cleaned = clean_up(ir, run, only)
            if only is None:
                _current.process.wait("leave")
            return cleaned

        def wait_and_list(*arguments: Any) -> Any:
            if unfinished := list_unfinished(*arguments):
                _current.process.wait("clear")
            return unfinished

        def wait_and_cancel(location: Any, unfinished: Any) -> None:
            if unfinished:
                _current.process.wait("cancel")
            cancel(location, unfinished)

        def wait_and_save(record: run_record.RunRecord) -> None:
            if record.state != run_record.RUNNING:
                _current.process.wait("end")
            save(record)

        list_unfinished, cancel = node.list_unfinished, node.cancel
        patched.setattr(node, "run_node", wait_and_run_node)
        patched.setattr(node, "clean_up", wait_and_clean_up)
        patched.setattr(node, "list_unfinished", wait_and_list)
        patched.setattr(node, "cancel", wait_and_cancel)
        patched.setattr(run_record.RunRecord, "save", wait_and_save)

    def make(self, step: str, pid: str, *numbers: str) -> None:
        """Execute a step of a process; the numbers are the run or the parent, and whether the step is refused."""
        if step in ("begin", "resume"):
            work = functools.partial(self._run, int(numbers[0]), step)
            self._processes[pid] = Process(work)
        elif step == "collect":
            self._processes[pid] = Process(self._collect)
        elif step == "lock":
            self._processes[pid] = self.children[id(self._processes[numbers[0]])]
        is_refused = step in ("resume", "collect") and numbers[-1] == "1"
        self._processes[pid].make(step, "crash" if step == "crash" else "refused" if is_refused else "made")

    def state(self) -> list[int]:
        """Return the state as the model prints it."""
        store = open_reader(self._folder / "metadata.db")
        executions = [store.execution(self._runs.get(number, ""), "Writer") for number in (1, 2)]
        numbers = {str(execution.id): number for number, execution in enumerate(executions, 1) if execution}
        outputs, artifacts = [0, 0], {1: 0, 2: 0}
        for number, execution in enumerate(executions):
            for artifact in store.outputs(execution).get("examples", ()) if execution else ():
                outputs[number] = numbers[Path(artifact.uri).name]
                artifacts[outputs[number]] = 1 if artifact.state == "LIVE" else 2
        return [
            *(self._record(number) for number in (1, 2)),
            *(_EXECUTIONS[execution.state] if execution else 0 for execution in executions),
            *outputs,
            *artifacts.values(),
            *(self._content(execution.id) if execution else 0 for execution in executions),
        ]

    def _record(self, number: int) -> int:
        record = run_record.read_record(self._folder / "logs", self._runs.get(number, ""))
        return _RECORDS[record["state"]] if record else 0

    def _content(self, execution: int) -> int:
        """Return the number of files of an attempt in an output folder, or 3 for several attempts."""
        files = [path.name for path in (self._folder / f"artifacts/Writer/examples/{execution}").glob("*-*")]
        return 3 if len({name.partition("-")[2] for name in files}) > 1 else len(files)

    def _run(self, number: int, step: str, process: Process) -> None:
        _current.process, _current.code = process, self
        process.wait(step)
        resume = self._runs.get(number, "none") if step == "resume" else None
        job = LocalJob("toy", self._folder, lambda: self._ir, _REPORTING, resume)

        @contextlib.contextmanager
        def observe(record: run_record.RunRecord) -> Iterator[_Observer]:
            self._runs[number] = record.run
            yield _Observer()

        result = scheduler.run(job, observe)
        if result.error and result.error.exit_code == InputError.exit_code:
            raise result.error

    def _collect(self, process: Process) -> None:
        _current.process = process
        process.wait("collect")
        artifacts = self._folder / "artifacts"
        with run_locks.artifacts_unused(self._folder):
            store = open_reader(self._folder / "metadata.db")
            removable = unused_artifacts.find_unused(store, artifacts, "toy", 1, ())
            if removable:
                unused_artifacts.remove(self._folder / "metadata.db", removable)


def _wait_before(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def wait_and_call(*arguments: Any, **options: Any) -> Any:
        _current.process.wait(step)
        return function(*arguments, **options)

    return wait_and_call
