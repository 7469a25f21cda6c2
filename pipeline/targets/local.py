"""Runs a pipeline on this machine: each node in a process of its own, side by side where nothing stands between."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from components.errors import GATE, PipelineError
from pipeline.graph import CACHED, LEAVE, REUSE, SKIPPED, GraphNode, NodeOutcome
from pipeline.graph import DONE as NODE_DONE
from pipeline.graph import FAILED as NODE_FAILED
from pipeline.metadata.facts import NOT_BLESSED
from pipeline.targets import work
from pipeline.targets.record import RUNNING, NodeRecord, RunRecord, new_run, old_run
from pipeline.targets.result import DONE, FAILED, INTERRUPTED, REJECTED, RunResult, refused
from pipeline.targets.screen import Mode, Screen
from pipeline.targets.server import server_output, start_server
from pipeline.targets.signals import InterruptedRun, Signals
from pipeline.targets.task import Task

__all__ = ["LocalJob", "run", "start_server"]

_TICK_SECONDS = 0.25
_GRACE_SECONDS = 5.0
_ENDED_WELL = (NODE_DONE, CACHED, SKIPPED)
# What is asked of children besides the nodes (compile, clean up, read the results) writes to this log.
_RUN_LOG = "pipeline"


@dataclass(frozen=True)
class LocalJob:
    """What to run, and how.

    Args:
      pipeline: its name.
      output: its folder, `out/<pipeline>`; the run writes into `logs/<run>/` there.
      compile: makes the serialized pipeline; called in a child, so it must pickle and import TFX only when called.
      resume: the id of a run to go on with, or `latest`.
      from_nodes: run these and what follows them, on the outputs of an earlier run.
      to_nodes: run these and what they need, no more.
      parallel: nodes side by side at most; 0 means as many as there are cores.
      screen: `live`, `plain` or `json`.
    """

    pipeline: str
    output: Path
    compile: Callable[[], bytes]
    resume: str | None = None
    from_nodes: tuple[str, ...] = ()
    to_nodes: tuple[str, ...] = ()
    parallel: int = 0
    screen: Mode = "plain"


def run(job: LocalJob) -> RunResult:
    """Runs the job to its end, and shows it while it goes; whatever goes wrong is in the result. Main thread only."""
    logs = job.output / "logs"
    try:
        if job.resume is None:
            record = new_run(logs, job.pipeline, job.from_nodes, job.to_nodes)
        else:
            record = old_run(logs, job.pipeline, job.resume)
    except PipelineError as error:
        return refused(error, job.resume or "", job.pipeline)
    try:
        with Signals() as signals, Screen(job.screen, record) as screen:
            return _Run(job, record, screen, signals).to_the_end()
    finally:
        record.close()


class _Run:
    """One run, from compiling to the facts at its end."""

    def __init__(self, job: LocalJob, record: RunRecord, screen: Screen, signals: Signals) -> None:
        self._job = job
        self._record = record
        self._screen = screen
        self._signals = signals
        self._ir = b""
        self._running: dict[str, Task] = {}
        self._started = time.monotonic()
        self._imported = 0.0

    def to_the_end(self) -> RunResult:
        try:
            self._go()
        except InterruptedRun:
            self._end_running(grace=0.0)
        except PipelineError as error:
            self._record.error = self._record.error or error
        state, exit_code = self._verdict()
        self._record.state = state
        self._record.save()
        report = self._report()
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
            self._record.facts,
            record.folder,
            report,
        )

    def _go(self) -> None:
        start_server()
        graph = self._compile()
        self._record.add_nodes({node.id: node.upstream for node in graph})
        if self._job.resume is not None:
            self._ask("clean up", work.clean_up, self._ir, self._record.run)
        self._schedule(graph)
        if self._signals.received or self._record.error:
            self._ask("clean up", work.clean_up, self._ir, self._record.run, to_the_end=True)
        if self._signals.received is None:
            self._record.facts = self._ask("read results", work.read_facts, self._ir, self._record.run)

    def _report(self) -> Path | None:
        """Has the run's report written; whatever goes wrong with that stands in the log, and changes nothing."""
        if not self._ir:
            return None
        arguments = (self._ir, self._record.folder.parent, self._record.run)
        try:
            written: Path | None = self._ask("write the report", work.write_report, *arguments, to_the_end=True)
        except (PipelineError, InterruptedRun):
            return None
        return written

    def _compile(self) -> tuple[GraphNode, ...]:
        # The first child waits for the server's imports, and there is nothing to tidy up yet.
        with self._signals.at_once():
            compiling = self._start("compile", _RUN_LOG, work.compile_pipeline, self._job.compile)
        graph: tuple[GraphNode, ...]
        self._ir, graph = self._await(compiling)
        self._imported = time.monotonic() - self._started
        from_nodes, to_nodes = self._record.from_nodes, self._record.to_nodes
        if from_nodes or to_nodes:
            arguments = (self._ir, self._record.run, from_nodes, to_nodes)
            self._ir, graph = self._ask("prepare partial run", work.make_partial, *arguments)
        return graph

    def _schedule(self, graph: tuple[GraphNode, ...]) -> None:
        """Starts each node when the ones before it are done, until all are, one failed, or a signal came."""
        nodes = self._record.nodes
        for node in graph:
            if node.action in (REUSE, LEAVE):
                nodes[node.id].state = CACHED if node.action == REUSE else SKIPPED
        waiting = {node.id: node for node in graph if nodes[node.id].state not in _ENDED_WELL}
        self._changed()
        while (waiting or self._running) and not self._signals.received:
            if self._record.error is None:
                self._start_ready(waiting)
            if not self._running:
                return
            self._watch()
        self._end_running(_GRACE_SECONDS)

    def _start_ready(self, waiting: dict[str, GraphNode]) -> None:
        nodes = self._record.nodes
        room = (self._job.parallel or os.cpu_count() or 1) - len(self._running)
        ready = [
            node.id
            for node in waiting.values()
            # A node upstream may lie outside this pipeline's graph: then it is nothing to wait for.
            if all(nodes[above].state in _ENDED_WELL for above in node.upstream if above in nodes)
        ]
        for node in ready[: max(room, 0)]:
            del waiting[node]
            nodes[node].state = RUNNING
            self._running[node] = self._start(node, node, work.run_node, self._ir, node, self._record.run)
            self._changed(node)

    def _watch(self) -> None:
        """Waits until a child has something to say, but no longer than a tick; measures, and settles what ended."""
        wait([each for task in self._running.values() for each in task.waitables], timeout=_TICK_SECONDS)
        for node, task in list(self._running.items()):
            record = self._record.nodes[node]
            task.sample()
            ended = task.poll()
            if ended:
                del self._running[node]
                self._settle(record, task)
            elif task.reply is None:
                _show_usage(record, task)
        self._tick()

    def _settle(self, node: NodeRecord, task: Task) -> None:
        outcome = self._outcome(task)
        node.state, node.error = outcome.state, outcome.error
        # A node that an earlier attempt has finished keeps that attempt's figures.
        if not outcome.earlier:
            _show_usage(node, task)
            node.rows = outcome.rows
            node.attempts += 1
            self._record.add_attempt(node)
        if outcome.state == NODE_FAILED:
            self._record.error = self._record.error or outcome.error
        self._changed(node.id)

    def _outcome(self, task: Task) -> NodeOutcome:
        if task.reply is not None and isinstance(task.reply.value, NodeOutcome):
            return task.reply.value
        if self._signals.received:
            return NodeOutcome(INTERRUPTED)
        return NodeOutcome(NODE_FAILED, error=self._failure(task))

    def _failure(self, task: Task) -> PipelineError:
        if task.reply is not None and task.reply.error is not None:
            return task.reply.error
        # A child that could not even begin has printed why where the server prints.
        (self._record.folder / "server.log").write_bytes(server_output())
        return task.death()

    def _end_running(self, grace: float) -> None:
        """Asks all running nodes to end, and after the grace ends them."""
        for task in self._running.values():
            task.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while self._running and time.monotonic() < deadline:
            self._watch()
        for task in self._running.values():
            task.signal(signal.SIGKILL)
        while self._running:
            self._watch()

    def _start(self, title: str, log: str, function: Callable[..., Any], *arguments: Any) -> Task:
        return Task(title, self._record.log(log), function, *arguments)

    def _ask(self, title: str, function: Callable[..., Any], *arguments: Any, to_the_end: bool = False) -> Any:
        """Has a child do something for the run, and returns what it found.

        Args:
          title: what the log and an error call it.
          function: the work.
          arguments: its arguments.
          to_the_end: go on although a signal has come; only a second one stops it.
        """
        return self._await(self._start(title, _RUN_LOG, function, *arguments), to_the_end)

    def _await(self, task: Task, to_the_end: bool = False) -> Any:
        try:
            while not task.poll():
                wait(task.waitables, timeout=_TICK_SECONDS)
                self._tick()
                if self._signals.received and not to_the_end:
                    raise InterruptedRun
        finally:
            task.signal(signal.SIGKILL)
        if task.reply is None or task.reply.error is not None:
            raise self._failure(task)
        return task.reply.value

    def _tick(self) -> None:
        self._record.tick()
        self._screen.tick()

    def _changed(self, node: str | None = None) -> None:
        self._record.save()
        self._screen.change(node)

    def _verdict(self) -> tuple[str, int]:
        """The run's state and exit code."""
        if self._signals.received:
            return INTERRUPTED, 128 + self._signals.received
        error = self._record.error
        if error is not None:
            return (REJECTED if error.exit_code == GATE else FAILED), error.exit_code
        serving = self._record.facts.serving
        if self._record.facts.verdict == NOT_BLESSED or (serving is not None and not serving.passed):
            return REJECTED, GATE
        return DONE, 0


def _show_usage(node: NodeRecord, task: Task) -> None:
    node.seconds, node.cpu_seconds, node.peak_memory_mb = task.seconds, task.cpu_seconds, task.peak_memory_mb
