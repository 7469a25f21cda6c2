"""Imported by multiprocessing's fork server: imports what nodes need, and starts no thread of TensorFlow's runtime.

A process with a TensorFlow runtime in it cannot be forked: these imports start none of its threads, and nothing here
calls an op. Only `processes.start_server` has this module imported, by name; it acts on import.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from components.base.processes import kill_group, signal_at_parents_death
from pipeline.orchestration.imports import import_all
from pipeline.orchestration.local.signals import RUN_SIGNALS

_PARENT_ENDED = signal.SIGUSR1
"""The signal that the kernel sends when the run's process ends. Not SIGTERM, which others send to process groups."""


def _end_children(signum: int, _frame: Any) -> None:
    """Kills all nodes, with the processes that they have started, when the run's process has ended."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in children:
        kill_group(int(child), signal.SIGKILL)
    os._exit(128 + signum)


def _preload() -> None:
    # The run's own process ends the nodes in order, and needs this server to clean up after them.
    for signum in RUN_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    # They were blocked until now, see `processes.start_server`.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RUN_SIGNALS)
    signal.signal(_PARENT_ENDED, _end_children)
    signal_at_parents_death(_PARENT_ENDED, parent=int(os.environ["PIPELINE_SERVER_PARENT"]))
    try:
        output = os.open(os.environ["PIPELINE_SERVER_OUTPUT"], os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        # The run is ending and has closed the file already: no server is needed any more.
        os._exit(0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ["PIPELINE_SERVER_PID"] = str(os.getpid())
    import_all()


_preload()
