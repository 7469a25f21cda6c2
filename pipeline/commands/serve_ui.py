"""`runner.py serve-ui [CONFIG]`: the pages on all runs in a browser, also on those that go on."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import warnings
from pathlib import Path

from pipeline.commands import options as shared
from pipeline.paths import shown
from pipeline.targets.environment import ENVIRONMENT

HELP = (
    "Serve the pages on the runs on this machine: a list of all, and for each its report, made when it is asked for. "
    "What changes is shown while it does; Ctrl-C ends it."
)
_PORT = 8600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the store, which a first word names by its config as well, and --port."""
    shared.add_store(parser)
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", default=argparse.SUPPRESS, help="the pipeline, as --config names it"
    )
    parser.add_argument("--port", type=int, default=_PORT, help=f"to listen at (default: {_PORT}; 0: any that is free)")


def run(options: argparse.Namespace) -> int:
    """Serves until Ctrl-C or SIGTERM.

    Raises:
      InputError: the config is not valid, or there is no such port.
      MachineError: the store does not open, or the port is taken.
    """
    from pipeline.metadata.database import exists
    from pipeline.metadata.store import Store
    from pipeline.metadata.tables import NoTablesError
    from pipeline.report.live import Pages
    from pipeline.report.server import Server

    # Both end it in the same way, also where a shell that has put it into the background has SIGINT ignored.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    # A stock Evaluator's metrics are read by TFMA, whose imports have a lot to say.
    os.environ.update(ENVIRONMENT)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    place, logs, pipeline = shared.find_store(options)
    waits = not exists(place)
    if not waits:
        with contextlib.suppress(NoTablesError):
            Store(place)
    with contextlib.suppress(KeyboardInterrupt), Server(Pages(place, logs, pipeline), options.port) as server:
        name = shown(place) if isinstance(place, Path) else str(place)
        told = f"no run yet; waiting for {name}" if waits else f"runs of {name}"
        sys.stdout.write(f"{told}\n{server.address} (Ctrl-C ends it)\n")
        sys.stdout.flush()
        server.serve_forever()
    return 0
