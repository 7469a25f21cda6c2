"""What a child does before and after its work: its own session, its own log, and a report of what it used."""

from __future__ import annotations

import datetime
import logging
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from components.errors import MachineError, PipelineError, find
from components.processes import signal_at_parents_death


@dataclass(frozen=True)
class Reply:
    """What a child tells at its end."""

    value: Any
    error: PipelineError | None
    cpu_seconds: float
    """Its own and that of the processes it has started and waited for."""
    peak_memory_mb: float


def enter(work: bytes, log: Path, title: str, connection: Connection) -> None:
    """A child's whole life; it never returns.

    Args:
      work: a pickled pair, the function and its arguments. Pickled apart, so that what cannot be loaded here is
        told in this child's log.
      log: the file that gets all output from here on, native libraries' too.
      title: what the log calls this attempt.
      connection: gets one `Reply`.
    """
    # Out of the terminal's reach: Ctrl-C is for the run's own process, which decides what becomes of the children.
    os.setsid()
    signal_at_parents_death(signal.SIGKILL, parent=int(os.environ["PIPELINE_SERVER_PID"]))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    value, error = None, None
    try:
        _write_to(log, title)
        function, arguments = pickle.loads(work)  # noqa: S301 - from our own parent
        value = function(*arguments)
    except (Exception, SystemExit) as caught:
        logging.exception("%s failed", title)
        error = find(caught) or _unexpected(title, caught)
    connection.send(Reply(value, error, *used()))
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # No finalizers: all is written and told, and native libraries now and then crash while they are taken down.
    os._exit(0)


def run_work(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    """The `work` argument of `enter`."""
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
    # What a log line that cannot be written (a full disk) has to say is not worth more noise.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    absl_logging = sys.modules.get("absl.logging")
    if absl_logging is not None:
        absl_logging.set_verbosity(absl_logging.INFO)


def _unexpected(title: str, error: BaseException) -> PipelineError:
    first_line = next(iter(str(error).strip().splitlines()), "")
    return MachineError(f"{title} failed: {type(error).__name__}: {first_line}", "see the full cause in its log")


def used() -> tuple[float, float]:
    """CPU-seconds of this process and its waited-for children, and its largest resident memory in MB."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    status = Path("/proc/self/status").read_text()
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return cpu_seconds, peak_kb / 1024
