"""Turns the process that imports it into the server that nodes are forked from: all imported, nothing started.

Only `server.py` has it imported, by name, in multiprocessing's fork server. A process that is to be forked must
have no TensorFlow runtime in it: these imports start none of its threads, and nothing here calls an op.
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

from components.processes import kill_group, signal_at_parents_death
from pipeline.targets.environment import ENVIRONMENT

MODULES = (
    # First all sections: a class that knows its fields' docstrings looks for its source among all modules there are,
    # which takes a second once TensorFlow's are there.
    "pipeline.config.model",
    "components.pusher.state",
    *(f"components.{each}.plan" for each in ("data_gate", "evaluator", "features", "pusher", "trainer", "tuner")),
    "tensorflow",
    "tf_keras",
    "apache_beam",
    "apache_beam.runners.direct.direct_runner",
    "apache_beam.runners.portability.fn_api_runner.fn_runner",
    # This brings tfx.components with it, and so TFT, TFDV and TFMA. tfx.v1 would add the clients of Google's
    # cloud, a third more time, for nothing.
    "pipeline.nodes",
    "pipeline.build",
    "pipeline.metadata.gather",
    "pipeline.report.write",
)

_LEFT_OUT = "rfc3987_syntax"
"""Makes a parser for two seconds, when Kubernetes' client imports jsonschema, which does without."""


def _end_children(signum: int, _frame: Any) -> None:
    """The run's own process is gone: take the nodes along, with all that they have started."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in children:
        kill_group(int(child), signal.SIGKILL)
    os._exit(128 + signum)


def _preload() -> None:
    signal.signal(signal.SIGTERM, _end_children)
    signal_at_parents_death(signal.SIGTERM, parent=int(os.environ["PIPELINE_SERVER_PARENT"]))
    try:
        output = os.open(os.environ["PIPELINE_SERVER_OUTPUT"], os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        # The run is on its way out and has closed the file already: nobody needs a server any more.
        os._exit(0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It was held back until now, see server.py.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ["PIPELINE_SERVER_PID"] = str(os.getpid())
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Imports make millions of objects and hardly any garbage.
    gc.disable()
    sys.modules[_LEFT_OUT] = None  # type: ignore[assignment]  # importing it fails
    for module in MODULES:
        try:
            importlib.import_module(module)
        except Exception:
            # The node that needs it fails on the same import, and says so in its own log.
            traceback.print_exc(file=sys.stderr)
    del sys.modules[_LEFT_OUT]
    # Objects that the collector never visits again stay in pages that all children share.
    gc.collect()
    gc.freeze()
    gc.enable()


_preload()
