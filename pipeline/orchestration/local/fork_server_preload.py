"""Prepare multiprocessing's fork server, which imports this module: import the modules that nodes need.

A process with a running TensorFlow runtime cannot be forked, so the imports must not start threads of the runtime and
nothing here may call an op. This module acts on import. Only `processes.start_server` refers to it, by name.
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
"""Signal from the kernel when the run's process ends. It is not SIGTERM, which others send to process groups."""


def _end_children(signum: int, _frame: Any) -> None:
    """Kill all nodes and the processes that they have started, because the run's process has ended."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in children:
        kill_group(int(child), signal.SIGKILL)
    os._exit(128 + signum)


def _preload() -> None:
    # Ignore these signals: the run's process ends the nodes in order, and needs this server to clean up after them.
    for signum in RUN_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    # `processes.start_server` has blocked them until now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RUN_SIGNALS)
    signal.signal(_PARENT_ENDED, _end_children)
    signal_at_parents_death(_PARENT_ENDED, parent=int(os.environ["PIPELINE_SERVER_PARENT"]))
    try:
        output = os.open(os.environ["PIPELINE_SERVER_OUTPUT"], os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        # The run is ending and has already closed the file, so the server is not needed any more.
        os._exit(0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ["PIPELINE_SERVER_PID"] = str(os.getpid())
    import_all()


_preload()
