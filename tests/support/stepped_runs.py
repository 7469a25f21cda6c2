"""Makes the steps of pipeline/core/runs.pml with the code of runs, nodes and gc; imports TFX.

No `from __future__ import annotations` here: TFX's decorator reads the annotations themselves.
"""

import contextlib
import functools
import itertools
import shutil
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from stepped import Process, simulated
from tfx.dsl.compiler.compiler import Compiler
from tfx.dsl.component.experimental.annotations import OutputArtifact
from tfx.dsl.component.experimental.decorators import component
from tfx.orchestration import pipeline
from tfx.orchestration.portable import cache_utils, execution_publish_utils
from tfx.types.standard_artifacts import Examples

from components.errors import MachineError
from pipeline.core import run_locks, run_record
from pipeline.core.metadata.connection import reader, to_ir
from pipeline.core.records import RunSummary
from pipeline.inspection import unused_artifacts
from pipeline.orchestration import node
from pipeline.orchestration.local import processes, scheduler
from pipeline.orchestration.local.processes import Reply
from pipeline.orchestration.reporting import Reporting

MODEL = Path(run_record.__file__).with_name("runs.pml")
STEPS = (
    *("=", "begin", "resume", "use", "lock", "clear", "cancel", "register", "look", "cached", "write", "written"),
    *("publish", "leave", "return", "end", "collect", "mark", "delete", "crash"),
)
_EXECUTIONS = {"RUNNING": 1, "CANCELED": 2, "COMPLETE": 3, "CACHED": 4}
_RECORDS = {"running": 1, "done": 2, "failed": 3, "died": 4}

_current = threading.local()
_attempts = itertools.count()
_ready, _other_end = Pipe(duplex=False)
_other_end.send(None)


@component
def Writer(examples: OutputArtifact[Examples]):  # noqa: N802
    """Two files of one attempt."""
    attempt, folder = next(_attempts), Path(examples.uri)
    _current.process.wait("write")
    (folder / f"first-{attempt}").touch()
    _current.process.wait("written")
    (folder / f"second-{attempt}").touch()


def main(folder: Path, seeds: range) -> list[str]:
    """Replays random interleavings, and compares the states; returns the steps that were made."""
    made = set()
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patched:
            code = _Code(folder / str(seed), patched)
            for step, *values in simulated(MODEL, seed, STEPS, "-DCRASHES=2"):
                if step == "=":
                    state, expected = code.state(), list(map(int, values))
                    assert state == expected, f"seed {seed}: expected {expected}, received {state}"
                else:
                    try:
                        code.make(step, *values)
                    except Exception as error:
                        raise AssertionError(f"seed {seed}, {step} {values}: {error!r}") from error
                    made.add(step)
    return sorted(made)


class _Child:
    """Replaces a child process of a run: a thread, for what is a process of the model."""

    seconds = cpu_seconds = peak_memory_mb = 0.0
    can_continue = False
    waitables = (_ready,)

    def __init__(self, _title: str, _log: Path, function: Callable[..., Any], *arguments: Any, earlier: Any) -> None:
        self.reply: Reply | None = None
        self._parent: Process = _current.process
        work = functools.partial(self._work, functools.partial(function, *arguments))
        self._thread = None
        if function in (processes.run_node, processes.clean_up):
            self._thread = _current.code.children[id(self._parent)] = Process(work)
        else:
            work(self._parent)

    def _work(self, function: Callable[[], Any], process: Process) -> None:
        _current.process = process
        self.reply = Reply(function(), None, 0.0, 0.0)

    def poll(self) -> bool:
        """Waits until the model's process has seen that its child has ended."""
        if self._thread:
            self._parent.wait("return")
            assert self._thread.has_ended
        return True

    def sample(self) -> None:
        """Does nothing."""

    def signal(self, _signum: int) -> None:
        """Does nothing: the model kills the child, some time later."""

    def exit_error(self) -> MachineError:
        """The error of a child that was killed."""
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
        reader(folder / "metadata.db")
        patched.setattr(scheduler, "Signals", _Signals)
        patched.setattr(scheduler, "start_server", lambda: None)
        patched.setattr(scheduler, "ChildProcess", _Child)
        for module, name, step in (
            (run_locks, "artifacts_in_use", "use"),
            (run_locks, "after_earlier_attempt", "lock"),
            (node, "cancel", "cancel"),
            (node, "launcher_of", "register"),
            (cache_utils, "get_cached_outputs", "look"),
            (execution_publish_utils, "publish_cached_executions", "cached"),
            (execution_publish_utils, "publish_succeeded_execution", "publish"),
            (unused_artifacts, "mark_deleted", "mark"),
        ):
            patched.setattr(module, name, _stepped(getattr(module, name), step))
        patched.setattr(node, "unfinished", _before_return(node.unfinished, "clear"))
        patched.setattr(processes, "run_node", _leaving(processes.run_node, node, "run_node", patched))
        save = run_record.RunRecord.save

        def stepped_save(record: run_record.RunRecord) -> None:
            if record.state != run_record.RUNNING:
                _current.process.wait("end")
            save(record)

        patched.setattr(run_record.RunRecord, "save", stepped_save)
