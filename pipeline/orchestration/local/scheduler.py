"""Run a pipeline on this machine: each node in a child process, independent nodes in parallel."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

from components.base.errors import GATE, InputError, MachineError, PipelineError, to_error
from components.base.files import exclusive_lock, write_atomically
from pipeline.core import run_locks
from pipeline.core.records import (
    CACHED,
    DONE,
    EXCLUDE,
    FAILED,
    INTERRUPTED,
    NOT_BLESSED,
    REJECTED,
    REUSE,
    SKIPPED,
    GraphNode,
    NodeOutcome,
    RunResult,
    make_refused_result,
)
from pipeline.core.records import DONE as NODE_DONE
from pipeline.core.records import FAILED as NODE_FAILED
from pipeline.core.run_record import RUNNING, NodeRecord, RunRecord, create_run, reopen_run
from pipeline.orchestration.local import processes
from pipeline.orchestration.local.processes import NodeProcess, server_output, start_server
from pipeline.orchestration.local.signals import InterruptedRun, Signals
from pipeline.orchestration.reporting import Reporting

__all__ = ["LocalJob", "run", "start_server"]

_TICK_SECONDS = 0.25
_GRACE_SECONDS = 5.0
_ENDED_WELL = (NODE_DONE, CACHED, SKIPPED)
_RUN_LOG = "pipeline"
"""Log of the children that do not run a node: compile, clean up, read the results and write the report."""


class RunObserver(Protocol):
    """Displays a run while it is in progress, for example in a terminal."""

    def node_changed(self, node: str | None) -> None:
        """Handle a new state of a node, or of the run if `node` is None."""

    def tick(self) -> None:
        """Update the figures of the running nodes, such as their time and memory."""


@dataclass(frozen=True)
class LocalJob:
    """A pipeline to run, and how to run it.

    Args:
      pipeline: Name of the pipeline.
      output: Output folder of the pipeline, `out/<pipeline>`. The run writes into its subfolder `logs/<run>/`.
      compile: Returns the serialized pipeline. It is called in a child, so it must pickle, and import TFX only when it
        is called.
      reporting: Functions that process the results.
      resume: ID of a run to continue, or `latest`. If None, a new run is started.
      from_nodes: Run these nodes and the nodes downstream of them, on the outputs of an earlier run.
      to_nodes: Run only these nodes and the nodes upstream of them.
      parallel: Maximum number of nodes that run at the same time. 0 means the number of CPU cores.
    """

    pipeline: str
    output: Path
    compile: Callable[[], bytes]
    reporting: Reporting
    resume: str | None = None
    from_nodes: tuple[str, ...] = ()
    to_nodes: tuple[str, ...] = ()
    parallel: int = 0


def run(job: LocalJob, observe: Callable[[RunRecord], AbstractContextManager[RunObserver]]) -> RunResult:
    """Run the job to its end; call this from the main thread only.

    Args:
      job: The pipeline to run.
      observe: Creates the observer of a run from its record, which changes during the run.

    Returns:
      The result, which contains the error of a failed run.
    """
    logs = job.output / "logs"
    # Entered first, so that a signal that arrives before the first node closes the run as well.
    with Signals() as signals:
        try:
            if job.resume is None:
                record = create_run(logs, job.pipeline, job.from_nodes, job.to_nodes)
            else:
                record = reopen_run(logs, job.pipeline, job.resume)
        except PipelineError as error:
            return make_refused_result(error, job.resume or "", job.pipeline)
        try:
            with observe(record) as observer:
                return _Run(job, record, observer, signals).run()
        finally:
            record.close()


class _Run:
    """One run, from the compilation to the results."""

    def __init__(self, job: LocalJob, record: RunRecord, observer: RunObserver, signals: Signals) -> None:
        self._job = job
        self._record = record
        self._observer = observer
        self._signals = signals
        self._ir = b""
        self._running: dict[str, NodeProcess] = {}
        self._usage_before: dict[str, tuple[float, float, float]] = {}
        self._idle: list[NodeProcess] = []
        """Children whose processes wait for another function."""
        self._locks = contextlib.ExitStack()
        self._started = time.monotonic()
        self._imported = 0.0

    def run(self) -> RunResult:
        with self._locks:
            return self._run()

    def _run(self) -> RunResult:
        try:
            self._execute()
        except InterruptedRun:
            pass
        except PipelineError as error:
            self._record.error = self._record.error or error
        except Exception as error:
            # Catch every error, because the run must not stay recorded as running.
            self._record.error = self._record.error or self._log_unexpected_error(error)
        self._end_running(grace=0.0)
        state, exit_code = self._determine_result()
        self._record.state = state
        self._record.save()
        report = self._write_report()
        for child in self._idle:
            child.end()
        nodes = tuple(node.result() for node in self._record.nodes.values())
        seconds = time.monotonic() - self._started
        record = self._record
        return RunResult(
            record.run,
            record.pipeline,
            state,
            seconds,
            self._imported,
            nodes,
            record.error,
            exit_code,
            self._record.summary,
            record.folder,
            report,
        )

    def _execute(self) -> None:
        start_server()
        with self._signals.interrupting():
            self._locks.enter_context(run_locks.artifacts_in_use(self._job.output))
        graph = self._compile()
        self._record.add_nodes({node.id: node.upstream for node in graph})
        self._schedule(graph)
        if self._signals.received or self._record.error:
            self._call("clean up", processes.clean_up, self._ir, self._record.folder, despite_signal=True)
        if self._signals.received is None:
            self._record.summary = self._call(
                "read results", processes.summarize, self._job.reporting, self._ir, self._record.run
            )

    def _log_unexpected_error(self, error: Exception) -> PipelineError:
        with contextlib.suppress(OSError), self._record.log(_RUN_LOG).open("a") as log:
            traceback.print_exception(error, file=log)
        return to_error("the run", error, "see pipeline.log; then --resume the run")

    def _write_report(self) -> Path | None:
        """Write the report in a child; a failure is only logged, and does not change the result of the run."""
        if not self._ir:
            return None
        arguments = (self._job.reporting, self._ir, self._record.folder.parent, self._record.run)
        try:
            report: Path | None = self._call(
                "write the report", processes.write_report, *arguments, despite_signal=True
            )
        except (PipelineError, InterruptedRun):
            return None
        return report

    def _compile(self) -> tuple[GraphNode, ...]:
        # A signal may interrupt this call: it waits for the server's imports, and nothing must be cleaned up yet.
        with self._signals.interrupting():
            compiling = self._start("compile", _RUN_LOG, processes.compile_pipeline, self._job.compile)
        graph: tuple[GraphNode, ...]
        self._ir, graph = self._await(compiling)
        self._imported = time.monotonic() - self._started
        from_nodes, to_nodes = self._record.from_nodes, self._record.to_nodes
        if from_nodes or to_nodes:
            arguments = (self._ir, self._record.run, from_nodes, to_nodes)
            self._ir, graph = self._call("prepare partial run", processes.make_partial, *arguments)
        return graph

    def _schedule(self, graph: tuple[GraphNode, ...]) -> None:
        """Start each node when its upstream nodes are done, until all are done, a node fails or a signal arrives."""
        nodes = self._record.nodes
        for node in graph:
            if node.action in (REUSE, EXCLUDE):
                nodes[node.id].state = CACHED if node.action == REUSE else SKIPPED
        waiting = {node.id: node for node in graph if nodes[node.id].state not in _ENDED_WELL}
        self._save_change()
        while (waiting or self._running) and not self._signals.received:
            if self._record.error is None:
                self._start_ready(waiting)
            if not self._running:
                return
            self._watch()
        self._end_running(_GRACE_SECONDS)

    def _start_ready(self, waiting: dict[str, GraphNode]) -> None:
        nodes = self._record.nodes
        free = (self._job.parallel or os.cpu_count() or 1) - len(self._running)
        ready = [
            node.id
            for node in waiting.values()
            # Do not wait for an upstream node that is not in the graph of this pipeline.
            if all(nodes[upstream].state in _ENDED_WELL for upstream in node.upstream if upstream in nodes)
        ]
        for node in ready[: max(free, 0)]:
            del waiting[node]
            try:
                self._running[node] = self._start(node, node, processes.run_node, self._ir, node, self._record.folder)
                self._usage_before[node] = _get_usage(nodes[node])
                nodes[node].state = RUNNING
            except MachineError as error:
                nodes[node].state, nodes[node].error = NODE_FAILED, error
                self._record.error = self._record.error or error
            self._save_change(node)

    def _watch(self) -> None:
        """Wait at most one tick for a reply or exit of a child, sample usage, and record the nodes that have ended."""
        waitables = [waitable for child in self._running.values() for waitable in child.waitables]
        wait(waitables, timeout=_TICK_SECONDS)
        for node, child in list(self._running.items()):
            record = self._record.nodes[node]
            child.sample()
            ended = child.poll()
            if ended:
                del self._running[node]
                self._record_outcome(record, child)
                self._keep(child)
            elif child.reply is None:
                _copy_usage(record, child)
        self._tick()

    def _record_outcome(self, node: NodeRecord, child: NodeProcess) -> None:
        outcome = self._get_outcome(child)
        node.state, node.error = outcome.state, outcome.error
        if outcome.earlier:
            # The record keeps the figures of the attempt that finished the node, not of the process that found it done.
            node.seconds, node.cpu_seconds, node.peak_memory_mb = self._usage_before[node.id]
        else:
            _copy_usage(node, child)
            node.rows, node.jobs = outcome.rows, outcome.jobs
            node.attempts += 1
            self._record.add_attempt(node)
        if outcome.state == NODE_FAILED:
            self._record.error = self._record.error or outcome.error
        self._save_change(node.id)

    def _get_outcome(self, child: NodeProcess) -> NodeOutcome:
        if child.reply is not None and isinstance(child.reply.value, NodeOutcome):
            return child.reply.value
        if self._signals.received:
            return NodeOutcome(INTERRUPTED)
        return NodeOutcome(NODE_FAILED, error=self._get_error(child))

    def _get_error(self, child: NodeProcess) -> PipelineError:
        if child.reply is not None and child.reply.error is not None:
            return child.reply.error
        # A child that has failed before it opened its log has written to the fork server's output.
        with contextlib.suppress(OSError):
            write_atomically(self._record.folder / "server.log", server_output())
        return child.exit_error()

    def _end_running(self, grace: float) -> None:
        """Ask all running nodes to end, and kill them after `grace` seconds or at a second signal."""
        for child in self._running.values():
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while self._running and time.monotonic() < deadline and self._signals.count < 2:
            self._watch()
        for child in self._running.values():
            child.signal(signal.SIGKILL)
        while self._running:
            self._watch()

    def _start(self, title: str, log: str, function: Callable[..., Any], *arguments: Any) -> NodeProcess:
        earlier = self._idle.pop() if self._idle else None
        return NodeProcess(title, self._record.log(log), function, *arguments, earlier=earlier)

    def _keep(self, child: NodeProcess) -> None:
        """Keep a child that has ended for the next function, if it can continue."""
        if child.can_continue:
            self._idle.append(child)

    def _call(self, title: str, function: Callable[..., Any], *arguments: Any, despite_signal: bool = False) -> Any:
        """Call a function in a child process.

        Args:
          title: Name of the work in the log and in errors.
          function: Function to call. Its module must be importable without TFX.
          arguments: Arguments of the function.
          despite_signal: Whether to continue if a signal has already arrived. A further signal stops the function.

        Returns:
          The return value of the function.

        Raises:
          InterruptedRun: A signal has stopped the function.
          PipelineError: The function failed, or its process ended without a result.
        """
        return self._await(self._start(title, _RUN_LOG, function, *arguments), despite_signal)

    def _await(self, child: NodeProcess, despite_signal: bool = False) -> Any:
        allowed = max(self._signals.count, 1) if despite_signal else 0
        try:
            while not child.poll():
                wait(child.waitables, timeout=_TICK_SECONDS)
                self._tick()
                if self._signals.count > allowed:
                    raise InterruptedRun
        except BaseException:
            child.signal(signal.SIGKILL)
            raise
        self._keep(child)
        if child.reply is None or child.reply.error is not None:
            raise self._get_error(child)
        return child.reply.value

    def _tick(self) -> None:
        self._record.tick()
        self._observer.tick()

    def _save_change(self, node: str | None = None) -> None:
        self._record.save()
        self._observer.node_changed(node)

    def _determine_result(self) -> tuple[str, int]:
        """Return the run's state and exit code."""
        if self._signals.received:
            return INTERRUPTED, 128 + self._signals.received
        error = self._record.error
        if error is not None:
            return (REJECTED if error.exit_code == GATE else FAILED), error.exit_code
        serving = self._record.summary.serving
        if self._record.summary.verdict == NOT_BLESSED or (serving is not None and not serving.passed):
            return REJECTED, GATE
        return DONE, 0


def _copy_usage(node: NodeRecord, child: NodeProcess) -> None:
    node.seconds, node.cpu_seconds, node.peak_memory_mb = _get_usage(child)


def _get_usage(source: NodeRecord | NodeProcess) -> tuple[float, float, float]:
    return source.seconds, source.cpu_seconds, source.peak_memory_mb


LOCK_FILE = "turn.lock"


@contextmanager
def exclusive_run(folder: Path, pipeline: str) -> Iterator[None]:
    """Hold a lock on a scheduled pipeline, so that only one run of the pipeline is in progress at a time.

    Args:
      folder: Output folder of the pipeline, `out/<pipeline>`.
      pipeline: Name of the pipeline.

    Raises:
      InputError: Another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK_FILE
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(file, wait=False))
        except BlockingIOError as error:
            raise InputError(
                f"a run of {pipeline} is in progress{_describe_holder(file)}, and a scheduled pipeline runs once at a "
                "time",
                "wait for its end, or stop it; without the schedule section several runs may be in progress",
            ) from error
        file.write_text(json.dumps({"process": os.getpid(), "since": time.time()}))
        yield


def _describe_holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text())
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
        return f" since {since}, in process {holder['process']}"
    # The holder has not written the file yet.
    except (OSError, ValueError, KeyError, TypeError):
        return ""
