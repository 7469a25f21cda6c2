"""`runner.py node worker-pool`: run Beam's Python workers for Flink, Spark or another engine on this machine."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import warnings

HELP = (
    "Run a pool of Beam's Python workers (the EXTERNAL environment) until the process ends. Start a pool next to each "
    "worker of the engine, with the same code as the run. Anyone who can reach the port can run any code in the pool."
)
EXAMPLE = "python runner.py node worker-pool --host 0.0.0.0 --port 50000"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="localhost", help="address to listen on (default: only this machine)")
    parser.add_argument("--port", type=int, default=50000, help="port to listen on (default: 50000; 0: any free port)")
    parser.add_argument(
        "--start-seconds",
        type=float,
        default=60,
        metavar="S",
        help="time within which a worker must connect (default: 60)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until the process ends. The first line on stdout contains the address."""
    from components.compat.tensorflow import QUIET
    from pipeline.orchestration.imports import import_all

    os.environ.update(QUIET)
    warnings.filterwarnings("ignore", category=FutureWarning)
    import_all()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr, force=True)
    from pipeline.orchestration.engines.worker_pool import serve

    # With the default handler, Ctrl-C ends the pool and its workers without a traceback from every worker.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(options.host, options.port, options.start_seconds, _print_address)
    return 0


def _print_address(address: str) -> None:
    sys.stdout.write(f"worker pool at {address}\n")
    sys.stdout.flush()
