"""`runner.py runs serve`: serve the list of runs and their reports, including active runs."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import warnings
from pathlib import Path

from components.compat.tensorflow import ENVIRONMENT
from pipeline.cli import options as shared
from pipeline.core.text import display_path

HELP = (
    "Serve pages about this machine's runs: the list of runs, and the report of each, created on request. The pages "
    "update themselves; Ctrl-C ends the server."
)
EXAMPLE = "python runner.py runs serve --port 8600"
_PORT = 8600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_store(parser)
    parser.add_argument(
        "--port", type=int, default=_PORT, help=f"port to listen on (default: {_PORT}; 0: any free port)"
    )


def run(options: argparse.Namespace) -> int:
    from pipeline.core.metadata.location import exists
    from pipeline.core.metadata.sql import NoTablesError
    from pipeline.core.metadata.store import Store
    from pipeline.inspection.report.live_pages import Pages
    from pipeline.inspection.report.server import Server

    # Set the handler of SIGINT as well, because a shell starts background processes with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # TFMA, which reads the metrics of a stock Evaluator, logs a lot when it is imported.
    os.environ.update(ENVIRONMENT)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    location, logs, pipeline = shared.find_store(options)
    is_missing = not exists(location)
    if not is_missing:
        with contextlib.suppress(NoTablesError):
            Store(location)
    with contextlib.suppress(KeyboardInterrupt), Server(Pages(location, logs, pipeline), options.port) as server:
        name = display_path(location) if isinstance(location, Path) else str(location)
        status = f"no run yet; waiting for {name}" if is_missing else f"runs of {name}"
        sys.stdout.write(f"{status}\n{server.address} (Ctrl-C ends it)\n")
        sys.stdout.flush()
        server.serve_forever()
    return 0
