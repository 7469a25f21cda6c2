"""`runner.py worker-pool`: Beam's Python workers for Flink, Spark or another engine, on this machine."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import warnings

HELP = (
    "Run a pool of Beam's Python workers (the EXTERNAL environment) until the process ends. Start one beside each of "
    "the engine's workers, with the same code as the run. Whoever reaches the port can run any code in the pool."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="localhost", help="address to listen at (default: only this machine)")
    parser.add_argument("--port", type=int, default=50000, help="port to listen at (default: 50000; 0: any)")
    parser.add_argument(
        "--start-seconds", type=float, default=60, metavar="S", help="how long a worker may take to connect (60)"
    )


def run(options: argparse.Namespace) -> int:
    """Serves until the process ends; the first line on stdout is the address."""
    from components.compat.tensorflow import QUIET
    from pipeline.orchestration.imports import import_all

    os.environ.update(QUIET)
    warnings.filterwarnings("ignore", category=FutureWarning)
    import_all()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr, force=True)
    from pipeline.orchestration.engines.worker_pool import serve

    # Ctrl-C ends the workers as well, without a traceback of each.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(options.host, options.port, options.start_seconds, _print_address)
    return 0


def _print_address(address: str) -> None:
    sys.stdout.write(f"worker pool at {address}\n")
    sys.stdout.flush()
