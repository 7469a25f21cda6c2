"""Child processes of a local run, forked from a server that has imported TensorFlow and TFX once.

`start_server` starts multiprocessing's fork server, which imports `fork_server_preload`. A `NodeProcess` runs one
function in a fork of the server, in a separate session with a separate log. It reports the result or an error, and the
CPU time and memory used. A process that has only found a cached node runs the next function as well, because a fork
takes as long as the look-up. The module-level functions that a run calls in a child import TFX themselves, so that this
module never imports it.
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
from collections.abc import Callable, Iterator, Sequence
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
    """The message that a child sends after its function has ended.

    Attributes:
      value: Return value of the function. If the function has failed, None.
      error: Error of the function. If the function has succeeded, None.
      cpu_seconds: CPU time of the child and of the processes that it has started and waited for.
      peak_memory_mb: Peak resident memory of the child, in MiB.
    """

    value: Any
    error: PipelineError | None
    cpu_seconds: float
    peak_memory_mb: float

    @property
    def can_continue(self) -> bool:
        """Whether the process can run another function: it has only read and written metadata."""
        cached = isinstance(self.value, NodeOutcome) and self.value.state == CACHED
        return self.error is None and (cached or isinstance(self.value, RunSummary))


def enter(work: bytes, log: Path, title: str, connection: Connection) -> None:
    """Run a child process; this function does not return.

    Args:
      work: Pickled pair of the function and its arguments. It is pickled separately, so that a failure to load it is
        logged by this child.
      log: File for all output from here on, including the output of native libraries.
      title: Name of the work in the log.
      connection: Connection to the run's process, which receives a `Reply`. If the reply `can_continue`, the run's
        process sends the next `work`, `log` and `title`.
    """
    # Leave the terminal's process group, so that Ctrl-C reaches only the run's process, which then ends its children.
    os.setsid()
    signal_at_parents_death(signal.SIGKILL, parent=int(os.environ["PIPELINE_SERVER_PID"]))
    adopt_orphans()
    # Undo the settings inherited from the server, which ignores SIGTERM and SIGINT, and handles SIGUSR1.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    reply = _do_work(work, log, title)
    connection.send(reply)
    # The run's process closes its end of the connection when no further work remains.
    with contextlib.suppress(EOFError):
        while reply.can_continue:
            reply = _do_work(*connection.recv())
            connection.send(reply)
    logging.shutdown()
    # A process that user code has forked and not waited for would keep the locks of the node.
    kill_descendants()
    exit_now(0)


def _do_work(work: bytes, log: Path, title: str) -> Reply:
    value, error, (cpu_before, _) = None, None, measure_usage()
    try:
        _write_to(log, title)
        function, arguments = pickle.loads(work)  # noqa: S301 - sent by the parent process
        value = function(*arguments)
    except (Exception, SystemExit) as caught:
        logging.exception("%s failed", title)
        error = to_error(title, caught, "see the full cause in its log")
    cpu, peak = measure_usage()
    return Reply(value, error, cpu - cpu_before, peak)


def pickle_work(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
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


def measure_usage() -> tuple[float, float]:
    """Return the CPU-seconds of this process and its waited-for children, and its peak resident memory in MiB."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    status = Path("/proc/self/status").read_text()
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return cpu_seconds, peak_kb / 1024


_MB = 1 << 20
_UNKNOWN_EXIT_CODE = 255
_CRITICAL = re.compile(r"^\S+ \S+ C \S+: (.+)$", re.MULTILINE)
"""Matches a log line of level CRITICAL in the format that `_write_to` sets."""
_MEMORY_SHARE = 0.02
"""Maximum share of the time for which memory is measured. The kernel visits all pages of a process to find those that
it does not share, which takes 30 ms for 1 GB."""


class NodeProcess:
    """A function that runs in a fork of the server: mostly a node, else work on the pipeline or the records of a run.

    Args:
      title: Name of the work in the log and in errors.
      log: File for the output of the child.
      function: Function to call in the child. Its module must be importable without TFX.
      arguments: Arguments of the function.
      earlier: A child that `can_continue`. Its process runs the function if it is still alive. If None, a new process
        is forked.

    Attributes:
      reply: Message of the child after the function has ended. Until then, None.
      cpu_seconds: CPU time used so far by the child and its descendants.
      peak_memory_mb: Peak memory so far of the child and its descendants together, in MiB.

    Raises:
      MachineError: The fork server has ended.
    """

    def __init__(
        self,
        title: str,
        log: Path,
        function: Callable[..., Any],
        *arguments: Any,
        earlier: NodeProcess | None = None,
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
        self._memory_due = 0.0
        self._descendants: set[psutil.Process] = set()
        """All descendants seen so far. A signal to the child's process group does not reach those that have left it."""
        work = pickle_work(function, arguments)
        if earlier is not None and earlier._send(work, log, title):
            self._connection, self._process = earlier._connection, earlier._process
            self._cpu_before = earlier._cpu_before + earlier.cpu_seconds
        else:
            self._connection, self._process = _fork(work, log, title)
        # Sample now, so that figures exist for a child that exits at once.
        self.sample()

    @property
    def seconds(self) -> float:
        """Wall time from the start of the child to its end, or to now."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def waitables(self) -> list[Connection | int]:
        """Objects for `multiprocessing.connection.wait` that become ready at the reply or the exit of the child."""
        if self.reply or self._connection.closed:
            return [self._process.sentinel]
        return [self._connection, self._process.sentinel]

    @property
    def can_continue(self) -> bool:
        """Whether the process waits for another function, see `Reply.can_continue`."""
        return self.reply is not None and self.reply.can_continue

    def poll(self) -> bool:
        """Receive the reply if it has arrived; return whether the child has exited or can continue."""
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
            # Processes that the child has started and not waited for must not outlive it.
            self.signal(signal.SIGKILL)
            for process in self._descendants:
                # psutil compares start times, so that a later process with the same PID is not killed.
                with contextlib.suppress(psutil.Error):
                    process.kill()
            self._count_exactly()
        return True

    def sample(self) -> None:
        """Measure the CPU time and memory of the child and its descendants.

        A child that is killed does not send a reply, so these samples are its only figures.
        """
        try:
            root = psutil.Process(self._process.pid)
            processes = [root, *root.children(recursive=True)]
        except psutil.Error:
            return
        self._descendants |= set(processes[1:])
        cpu_seconds = 0.0
        for process in processes:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                cpu_seconds += times.user + times.system + times.children_user + times.children_system
        self.cpu_seconds = max(self.cpu_seconds, cpu_seconds - self._cpu_before)
        if time.monotonic() >= self._memory_due:
            self._sample_memory(processes)

    def _sample_memory(self, processes: Sequence[psutil.Process]) -> None:
        """Measure the memory of the child, which is the first process, and its descendants."""
        started, memory = time.monotonic(), 0
        for process in processes:
            with contextlib.suppress(psutil.Error):
                # Memory pages that descendants share with the child are counted once.
                memory += process.memory_info().rss if process is processes[0] else process.memory_full_info().uss
        self.peak_memory_mb = max(self.peak_memory_mb, memory / _MB)
        now = time.monotonic()
        self._memory_due = now + (now - started) / _MEMORY_SHARE

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal to the child's process group."""
        if self._process.pid is not None:
            kill_group(self._process.pid, signum)

    def end(self) -> None:
        """End a process that `can_continue`, and wait for its exit."""
        self._connection.close()
        self._process.join()

    def exit_error(self) -> PipelineError:
        """Return the error for a child that has exited without a reply."""
        code = self._process.exitcode
        if code is not None and code < 0:
            hint = " (the kernel does this when memory runs out)" if code == -signal.SIGKILL else ""
            return MachineError(f"{self.title} {describe_exit(code)}{hint}", "see its log; then --resume the run")
        # multiprocessing reports this code if the fork server could not send the exit code of the child.
        hint = " (its fork server was killed)" if code == _UNKNOWN_EXIT_CODE else ""
        return MachineError(
            f"{self.title} ended without a result, exit code {code}{hint}{self._find_logged_reason()}",
            "see its log and server.log; then --resume the run",
        )

    def _find_logged_reason(self) -> str:
        """Return the reason that a process has logged for ending itself, for example the loss of a Beam worker."""
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines: list[str] = _CRITICAL.findall(log.rpartition(f"=== {self.title},")[2])
        return f": {lines[-1]}" if lines else ""

    def _send(self, work: bytes, log: Path, title: str) -> bool:
        """Send the next function to the process; return whether the process is still alive."""
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
                # The child has exited, and `exit_error` reports its exit code.
                self._connection.close()

    def _count_exactly(self) -> None:
        if self.reply is not None:
            self.cpu_seconds = max(self.cpu_seconds, self.reply.cpu_seconds)
            self.peak_memory_mb = max(self.peak_memory_mb, self.reply.peak_memory_mb)


def _fork(work: bytes, log: Path, title: str) -> tuple[Connection, ForkServerProcess]:
    """Start a process; return our end of the connection, and the process."""
    # multiprocessing would start a killed server again, but without the environment that the server needs.
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
    """Run one node of the run whose record is in `folder`.

    The locks of the node are held until this process and all processes that it has forked have ended. If the run is
    killed, that is later than the end of the run's process.
    """
    from pipeline.orchestration import node

    with run_locks.after_earlier_attempt(folder, node_id), run_locks.artifacts_in_use(folder.parents[1]):
        return node.run_node(ir, node_id, folder.name)


def clean_up(ir: bytes, folder: Path) -> list[str]:
    """Clean up after killed nodes of the run whose record is in `folder`; return their IDs."""
    from pipeline.orchestration import node

    with contextlib.ExitStack() as stack:
        for graph_node in node.graph(ir):
            stack.enter_context(run_locks.after_earlier_attempt(folder, graph_node.id))
        return node.clean_up(ir, folder.name)


def summarize(reporting: Reporting, ir: bytes, run: str) -> RunSummary:
    """Return a summary of what the finished nodes of a run have produced."""
    from pipeline.orchestration import node

    return reporting.summarize(node.open_store(ir), run)


def write_report(reporting: Reporting, ir: bytes, logs: Path, run: str) -> Path | None:
    """Write the report of a run; return its path, or None if ML Metadata does not contain the run."""
    from pipeline.orchestration import node

    return reporting.write_report(node.open_store(ir), logs, run)


_ROOT = Path(__file__).parents[3]
_CONTEXT = multiprocessing.get_context("forkserver")
_PRELOAD = "pipeline.orchestration.local.fork_server_preload"
_MAX_TMPDIR_BYTES = 107 - len("/pymp-12345678/listener-12345678")
"""The path of a UNIX socket is limited to 107 bytes, and multiprocessing appends these names to TMPDIR."""
_LEAKED = "ignore:resource_tracker:UserWarning"
"""Filter for `python -W` with the beginning of a warning and its category."""


def start_server() -> None:
    """Start the fork server unless it is running; call this from the main thread only.

    The server imports its modules in the background, which takes about ten seconds.

    Raises:
      MachineError: The path in TMPDIR is too long for sockets.
    """
    if len(os.fsencode(tempfile.gettempdir())) > _MAX_TMPDIR_BYTES:
        raise MachineError(
            f"TMPDIR: expected a path of at most {_MAX_TMPDIR_BYTES} bytes, because sockets are created there, "
            f"received {tempfile.gettempdir()}",
            "set TMPDIR to a shorter path, such as /tmp",
        )
    # The main module is preloaded as well, because otherwise each child would import it before its work.
    _CONTEXT.set_forkserver_preload(["__main__", _PRELOAD])
    with _environment(_open_output().fileno()), _block_run_signals():
        forkserver.ensure_running()


def server_output() -> bytes:
    """Return the output so far of the server, and of children that had not yet opened their logs."""
    return os.pread(_open_output().fileno(), 1 << 20, 0)


def context() -> multiprocessing.context.ForkServerContext:
    """Return the multiprocessing context whose processes are forked from the server."""
    return _CONTEXT


@functools.cache
def _open_output() -> IO[bytes]:
    """Open the file for the server's output. It is unnamed and closed at exit, so a failed run copies its content."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when this process ends
    atexit.register(file.close)
    return file


@contextmanager
def _environment(output: int) -> Iterator[None]:
    """Set environment variables for a server that is started in the block; children inherit them from the server."""
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
    """Start multiprocessing's resource tracker without its warning about leaked semaphores.

    A killed task leaves behind the semaphores of a TensorFlow thread pool. The tracker removes them, but would also
    print a warning to the user's terminal.
    """
    sys.warnoptions.append(_LEAKED)
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(_LEAKED)


@contextmanager
def _block_run_signals() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this thread, and in programs started in the block until they unblock them.

    A signal to the whole process group then neither ends the server in its first instructions nor is lost to the run.
    """
    # Start the tracker first, because its start unblocks the signals.
    _start_tracker()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, RUN_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
