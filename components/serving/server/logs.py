"""The log of the server and of the processes of its versions."""

from __future__ import annotations

import logging

_QUIET = {"tensorflow": logging.ERROR, "grpc": logging.CRITICAL, "aiohttp": logging.CRITICAL}
"""TensorFlow logs every file that it reads; gRPC and aiohttp log a traceback for every invalid request."""


def configure_logging() -> None:
    """Log to stderr, without what other packages log about files and requests."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(message)s", force=True)
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)
