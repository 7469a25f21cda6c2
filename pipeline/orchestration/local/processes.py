"""Child processes of a local run, forked from a server that has imported TensorFlow and TFX once.

`start_server` starts multiprocessing's fork server, which imports `fork_server_preload`. A `ChildProcess` runs one
function in a fork of it, in a session of its own, with its own log, and reports the result, an error and what it used.
A process that has only looked a node up in the cache runs the next one as well: a fork takes as long as the look-up.
The functions below are the ones that a run calls there: TFX is imported only in the child, never by this module.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import logging
import multiprocessing
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import IO, Any

import psutil

from components.base.errors import MachineError, PipelineError, to_error
from components.base.processes import (
    adopt_orphans,
    describe_exit,
    exit_now,
    kill_descendants,
    kill_group,
    signal_at_parents_death,
)
from pipeline.core import run_locks
from pipeline.core.records import CACHED, GraphNode, NodeOutcome, RunSummary
from pipeline.orchestration.local.signals import RUN_SIGNALS
from pipeline.orchestration.reporting import Reporting


@dataclass(frozen=True)
class Reply:
    """What a child sends before it exits."""

    value: Any
    error: PipelineError | None
    cpu_seconds: float
    """Of the child, and of the processes that it has started and waited for."""
    peak_memory_mb: float

    @property
    def can_continue(self) -> bool:
        """Whether the process can run another function: it has only read and written metadata."""
        cached = isinstance(self.value, NodeOutcome) and self.value.state == CACHED
        return self.error is None and (cached or isinstance(self.value, RunSummary))


def enter(work: bytes, log: Path, title: str, connection: Connection) -> None:
    """Run a child; do not return.

    Args:
      work: a pickled pair, the function and its arguments. Pickled separately, so that a failure to load it is in this
        child's log.
      log: the file for all output from here on, including that of native libraries.
      title: the name of this attempt in the log.
      connection: receives a `Reply`. After one that `can_continue` it sends the next `work`, `log` and `title`.
    """
    # Not in the terminal's process group: Ctrl-C is for the run's own process, which then ends its children.
    os.setsid()
    signal_at_parents_death(signal.SIGKILL, parent=int(os.environ["PIPELINE_SERVER_PID"]))
    adopt_orphans()
    # The server ignores both, and has a handler for the third.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    reply = _reply(work, log, title)
    connection.send(reply)
    # The other end is closed when there is no more work.
    with contextlib.suppress(EOFError):
        while reply.can_continue:
            reply = _reply(*connection.recv())
            connection.send(reply)
    logging.shutdown()
    # A process that user code has forked, and not waited for, would keep the locks of the node.
    kill_descendants()
    exit_now(0)


def _reply(work: bytes, log: Path, title: str) -> Reply:
    value, error, (cpu_before, _) = None, None, used()
    try:
        _write_to(log, title)
        function, arguments = pickle.loads(work)  # noqa: S301 - from our own parent
        value = function(*arguments)
    except (Exception, SystemExit) as caught:
        logging.exception("%s failed", title)
        error = to_error(title, caught, "see the full cause in its log")
    cpu, peak = used()
    return Reply(value, error, cpu - cpu_before, peak)


def run_work(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    """Return the `work` argument of `enter`."""
    return pickle.dumps((function, arguments))


def _write_to(log: Path, title: str) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    sys.stdout.write(f"=== {title}, {now}, process {os.getpid()} ===\n")
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        force=True,
    )
    # A log line that cannot be written (a full disk) must not print a traceback for itself.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    absl_logging = sys.modules.get("absl.logging")
    if absl_logging is not None:
        absl_logging.set_verbosity(absl_logging.INFO)


def used() -> tuple[float, float]:
    """CPU-seconds of this process and its waited-for children, and its largest resident memory in MB."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    status = Path("/proc/self/status").read_text()
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return cpu_seconds, peak_kb / 1024


_MB = 1 << 20
_UNKNOWN_EXIT_CODE = 255
_CRITICAL = re.compile(r"^\S+ \S+ C \S+: (.+)$", re.MULTILINE)
"""A line of this level, in the format that `_write_to` sets."""


class ChildProcess:
    """A function in a child process, with its reply and its usage so far.

    Args:
      title: its name in the log and in errors.
      log: the file for its output.
      function: importable without TFX here.
      arguments: its arguments.
      earlier: a child that `can_continue`, whose process runs the function if it is still alive.

    Raises:
      MachineError: the fork server has ended.
    """

    def __init__(
        self,
        title: str,
        log: Path,
        function: Callable[..., Any],
        *arguments: Any,
        earlier: ChildProcess | None = None,
    ) -> None:
        self.title = title
        self.log = log
        self.reply: Reply | None = None
        self.cpu_seconds = 0.0
        self.peak_memory_mb = 0.0
        self._connection: Connection
        self._process: ForkServerProcess
        self._cpu_before = 0.0
        self._started = time.monotonic()
        self._ended: float | None = None
        self._descendants: set[psutil.Process] = set()
        """Those seen so far. A child that is killed cannot end the ones that have left its group."""
        work = run_work(function, arguments)
        if earlier is not None and earlier._send(work, log, title):
            self._connection, self._process = earlier._connection, earlier._process
            self._cpu_before = earlier._cpu_before + earlier.cpu_seconds
        else:
            self._connection, self._process = _fork(work, log, title)
        # So that a child that exits at once has figures as well.
        self.sample()

    @property
    def seconds(self) -> float:
        """Wall time from its start to now, or to its end."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def waitables(self) -> list[Connection | int]:
        """What `multiprocessing.connection.wait` can wait for: the reply, or the exit."""
        return (
            [self._process.sentinel]
            if self.reply or self._connection.closed
            else [
                self._connection,
                self._process.sentinel,
            ]
        )

    @property
    def can_continue(self) -> bool:
        """Whether its process waits for another function; see `Reply.can_continue`."""
        return self.reply is not None and self.reply.can_continue

    def poll(self) -> bool:
        """Receives the reply if there is one; returns whether the child has exited, or can continue."""
        self._receive()
        if self._process.exitcode is None:
            if not self.can_continue:
                return False
            if self._ended is None:
                self._ended = time.monotonic()
                self._count_exactly()
            return True
        if self._ended is None:
            self._receive()
            self._ended = time.monotonic()
            self._connection.close()
            # Processes that it has started and not waited for must not outlive it.
            self.signal(signal.SIGKILL)
            for process in self._descendants:
                # psutil compares the start time, so that a later process with the same number is not killed.
                with contextlib.suppress(psutil.Error):
                    process.kill()
            self._count_exactly()
        return True

    def sample(self) -> None:
        """Measures the child and its descendants; for a child that is killed these are the only figures."""
        try:
            root = psutil.Process(self._process.pid)
            processes = [root, *root.children(recursive=True)]
        except psutil.Error:
            return
        self._descendants |= set(processes[1:])
        cpu_seconds, memory = 0.0, 0
        for process in processes:
            try:
                times = process.cpu_times()
                # What a descendant shares with the child that it was forked from counts once.
                memory += process.memory_info().rss if process is root else process.memory_full_info().uss
            except psutil.Error:
                continue
            cpu_seconds += times.user + times.system + times.children_user + times.children_system
        self.cpu_seconds = max(self.cpu_seconds, cpu_seconds - self._cpu_before)
        self.peak_memory_mb = max(self.peak_memory_mb, memory / _MB)

    def signal(self, signum: signal.Signals) -> None:
        """Signals the child's process group."""
        if self._process.pid is not None:
            kill_group(self._process.pid, signum)

    def end(self) -> None:
        """End a process that `can_continue`."""
        self._connection.close()
        self._process.join()

    def exit_error(self) -> PipelineError:
        """Return the error for a child that has exited without a reply."""
        code = self._process.exitcode
        if code is not None and code < 0:
            hint = " (the kernel does this when memory runs out)" if code == -signal.SIGKILL else ""
            return MachineError(f"{self.title} {describe_exit(code)}{hint}", "see its log; then --resume the run")
        # multiprocessing reports this code if the fork server could not send the child's.
        hint = " (its fork server was killed)" if code == _UNKNOWN_EXIT_CODE else ""
        return MachineError(
            f"{self.title} ended without a result, exit code {code}{hint}{self._logged_reason()}",
            "see its log and server.log; then --resume the run",
        )

    def _logged_reason(self) -> str:
        """Return what a process has logged about why it ended itself, for example after it lost a worker of Beam."""
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines: list[str] = _CRITICAL.findall(log.rpartition(f"=== {self.title},")[2])
        return f": {lines[-1]}" if lines else ""

    def _send(self, work: bytes, log: Path, title: str) -> bool:
        """Send the next function to its process; return whether that is still alive."""
        try:
            self._connection.send((work, log, title))
        except OSError:
            return False
        return self._process.exitcode is None

    def _receive(self) -> None:
        if self.reply is None and not self._connection.closed and self._connection.poll():
            try:
                self.reply = self._connection.recv()
            except (EOFError, OSError):
                # It has exited; the exit code is reported.
                self._connection.close()

    def _count_exactly(self) -> None:
        if self.reply is not None:
            self.cpu_seconds = max(self.cpu_seconds, self.reply.cpu_seconds)
            self.peak_memory_mb = max(self.peak_memory_mb, self.reply.peak_memory_mb)


def _fork(work: bytes, log: Path, title: str) -> tuple[Connection, ForkServerProcess]:
    """Start a process; return this end of its connection, and the process."""
    # A server that was killed is started again, and only this gives it the environment that it needs.
    start_server()
    connection, child_end = context().Pipe()
    process = context().Process(target=enter, args=(work, log, title, child_end), name=title)
    try:
        process.start()
    except (EOFError, OSError) as error:
        connection.close()
        raise MachineError(
            f"{title} could not start: the fork server has ended ({type(error).__name__})",
            "see server.log; then --resume the run",
        ) from error
    finally:
        child_end.close()
    return connection, process


def compile_pipeline(compile_: Callable[[], bytes]) -> tuple[bytes, tuple[GraphNode, ...]]:
    """Return the compiled pipeline and its graph."""
    ir = compile_()
    from pipeline.orchestration import node

    return ir, node.graph(ir)


def make_partial(
    ir: bytes, run: str, from_nodes: tuple[str, ...], to_nodes: tuple[str, ...]
) -> tuple[bytes, tuple[GraphNode, ...]]:
    """Return the pipeline as a partial run, and its graph."""
    from pipeline.orchestration import node

    partial = node.prepare(ir, run, from_nodes, to_nodes)
    return partial, node.graph(partial)


def run_node(ir: bytes, node_id: str, folder: Path) -> NodeOutcome:
    """One node of the run whose record is in `folder`.

    Its locks are held until this process, and all that it has forked, have ended: a run that is killed ends earlier.
    """
    from pipeline.orchestration import node

    with run_locks.after_earlier_attempt(folder, node_id), run_locks.artifacts_in_use(folder.parents[1]):
        return node.run_node(ir, node_id, folder.name)


def clean_up(ir: bytes, folder: Path) -> list[str]:
    """Close unfinished executions of killed nodes of the run whose record is in `folder`; return the nodes' ids."""
    from pipeline.orchestration import node

    with contextlib.ExitStack() as stack:
        for each in node.graph(ir):
            stack.enter_context(run_locks.after_earlier_attempt(folder, each.id))
        return node.clean_up(ir, folder.name)


def summarize(reporting: Reporting, ir: bytes, run: str) -> RunSummary:
    """Return what the finished nodes of a run have produced."""
    from pipeline.orchestration import node

    return reporting.summarize(node.open_store(ir), run)


def write_report(reporting: Reporting, ir: bytes, logs: Path, run: str) -> Path | None:
    """Write the run's report; None if ML Metadata has no such run."""
    from pipeline.orchestration import node

    return reporting.write_report(node.open_store(ir), logs, run)


_ROOT = Path(__file__).parents[3]
_CONTEXT = multiprocessing.get_context("forkserver")
_PRELOAD = "pipeline.orchestration.local.fork_server_preload"
_MOST_BYTES_OF_TMPDIR = 107 - len("/pymp-12345678/listener-12345678")
"""The path of a UNIX socket has at most 107 bytes; multiprocessing adds these names."""
_LEAKED = "ignore:resource_tracker:UserWarning"
"""As python -W takes it: how a warning begins, and its type."""


def start_server() -> None:
    """Start the server, which imports for about ten seconds in the background, unless it runs; main thread only."""
    if len(os.fsencode(tempfile.gettempdir())) > _MOST_BYTES_OF_TMPDIR:
        raise MachineError(
            f"TMPDIR: expected a path of at most {_MOST_BYTES_OF_TMPDIR} bytes, as sockets of processes lie there, "
            f"received {tempfile.gettempdir()}",
            "set TMPDIR to a shorter path, such as /tmp",
        )
    # The main module as well: otherwise each child would import it before its own work.
    _CONTEXT.set_forkserver_preload(["__main__", _PRELOAD])
    with _environment(_output().fileno()), _block_run_signals():
        forkserver.ensure_running()


def server_output() -> bytes:
    """Return what the server, and children that could not yet write to their own logs, have printed so far."""
    return os.pread(_output().fileno(), 1 << 20, 0)


def context() -> multiprocessing.context.ForkServerContext:
    """Return the multiprocessing context whose processes are forks of the server."""
    return _CONTEXT


@functools.cache
def _output() -> IO[bytes]:
    """Return the file for the server's output. It has no name and ends with this process; a failed run copies it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when this process ends
    atexit.register(file.close)
    return file


@contextmanager
def _environment(output: int) -> Iterator[None]:
    """Set environment variables for the server that is started in the block; children inherit them from it."""
    before = dict(os.environ)
    # Python 3.10's fork server does not inherit sys.path, so it would not find this project.
    paths = [str(_ROOT), *filter(None, [before.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["PIPELINE_SERVER_OUTPUT"] = f"/proc/{os.getpid()}/fd/{output}"
    os.environ["PIPELINE_SERVER_PARENT"] = str(os.getpid())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _start_tracker() -> None:
    """Start multiprocessing's tracker, which removes the semaphores of processes that were killed.

    A killed task leaves those of a thread pool of TensorFlow. The tracker would print a warning to the user's terminal.
    """
    sys.warnoptions.append(_LEAKED)
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(_LEAKED)


@contextmanager
def _block_run_signals() -> Iterator[None]:
    """Blocks SIGINT and SIGTERM in this thread; a program started in the block has them blocked until it unblocks them.

    So a signal to the whole process group neither ends the server in its first instructions nor is lost to the run.
    """
    # Its own start would unblock the signals half-way.
    _start_tracker()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, RUN_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
