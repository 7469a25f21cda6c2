"""A child seen from the run: started, watched, measured, and ended with everything it has started."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from components.errors import MachineError, PipelineError
from components.processes import kill_group
from pipeline.targets.child import Reply, enter, run_work
from pipeline.targets.server import context

_MB = 1 << 20


class Task:
    """One child process and what is known about it so far."""

    def __init__(self, title: str, log: Path, function: Callable[..., Any], *arguments: Any) -> None:
        self.title = title
        self.log = log
        self.reply: Reply | None = None
        self.cpu_seconds = 0.0
        self.peak_memory_mb = 0.0
        self._started = time.monotonic()
        self._connection, theirs = context().Pipe(duplex=False)
        work = run_work(function, arguments)
        self._process = context().Process(target=enter, args=(work, log, title, theirs), name=title)
        self._process.start()
        theirs.close()
        self._ended: float | None = None
        # So that also one that dies at once has figures.
        self.sample()

    @property
    def seconds(self) -> float:
        """Wall time from its start to now, or to its end."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def waitables(self) -> list[Connection | int]:
        """What `multiprocessing.connection.wait` can wait for: its word, or its end."""
        return (
            [self._process.sentinel]
            if self.reply or self._connection.closed
            else [
                self._connection,
                self._process.sentinel,
            ]
        )

    def poll(self) -> bool:
        """Takes its reply if there is one; whether it has ended."""
        self._receive()
        if self._process.exitcode is None:
            return False
        if self._ended is None:
            self._receive()
            self._ended = time.monotonic()
            self._connection.close()
            # What it has started and not waited for must not outlive it.
            self.signal(signal.SIGKILL)
            self._count_exactly()
        return True

    def sample(self) -> None:
        """Measures the child and all processes below it; a killed one has no other figures than these."""
        try:
            root = psutil.Process(self._process.pid)
            processes = [root, *root.children(recursive=True)]
        except psutil.Error:
            return
        cpu_seconds, memory = 0.0, 0
        for process in processes:
            try:
                times, resident = process.cpu_times(), process.memory_info().rss
            except psutil.Error:
                continue
            cpu_seconds += times.user + times.system + times.children_user + times.children_system
            memory += resident
        self.cpu_seconds = max(self.cpu_seconds, cpu_seconds)
        self.peak_memory_mb = max(self.peak_memory_mb, memory / _MB)

    def signal(self, signum: signal.Signals) -> None:
        """Signals the child's whole process group."""
        if self._process.pid is not None:
            kill_group(self._process.pid, signum)

    def death(self) -> PipelineError:
        """Why there is no reply, for a child that has ended without one."""
        code = self._process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = " (the kernel does this when memory runs out)" if name == "SIGKILL" else ""
            return MachineError(f"{self.title} was killed by {name}{hint}", "see its log; then --resume the run")
        return MachineError(f"{self.title} ended without a word, exit code {code}", "see its log and server.log")

    def _receive(self) -> None:
        if self.reply is None and not self._connection.closed and self._connection.poll():
            try:
                self.reply = self._connection.recv()
            except (EOFError, OSError):
                # It died; its exit code tells how.
                self._connection.close()

    def _count_exactly(self) -> None:
        if self.reply is not None:
            self.cpu_seconds = max(self.cpu_seconds, self.reply.cpu_seconds)
            self.peak_memory_mb = max(self.peak_memory_mb, self.reply.peak_memory_mb)
