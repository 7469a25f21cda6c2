"""Imported by multiprocessing's fork server: imports what nodes need, and starts no thread of TensorFlow's runtime.

A process with a TensorFlow runtime in it cannot be forked: these imports start none of its threads, and nothing here
calls an op. Only `processes.start_server` has this module imported, by name; it acts on import.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from components.compat.jsonschema import import_jsonschema
from components.compat.tensorflow import set_environment
from components.processes import kill_group, signal_at_parents_death
from pipeline.orchestration.local.signals import RUN_SIGNALS

MODULES = (
    # All config sections first: a section reads its fields' docstrings from its source, which it looks for among all
    # imported modules; once TensorFlow's are imported, that takes a second.
    "pipeline.authoring.config.root",
    "components.pusher.serving_state",
    *(f"components.{each}.plan" for each in ("data_gate", "evaluator", "features", "pusher", "trainer", "tuner")),
    "tensorflow",
    "tf_keras",
    "apache_beam",
    "apache_beam.runners.direct.direct_runner",
    "apache_beam.runners.portability.fn_api_runner.fn_runner",
    # This imports tfx.components, and so TFT, TFDV and TFMA. tfx.v1 would also import Google Cloud's clients, which
    # takes a third longer and is not needed.
    "pipeline.orchestration.node",
    "pipeline.authoring.build",
    "pipeline.inspection.run_summary",
    "pipeline.inspection.report.write",
)

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
    set_environment()
    # Imports create millions of objects and hardly any garbage.
    gc.disable()
    import_jsonschema()
    for module in MODULES:
        try:
            importlib.import_module(module)
        except Exception:
            # The node that needs it fails on the same import, and has the traceback in its own log.
            traceback.print_exc(file=sys.stderr)
    # Objects that the collector never visits again stay in pages that all children share.
    gc.collect()
    gc.freeze()
    gc.enable()


_preload()
