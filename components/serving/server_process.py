"""Prepare a process for the local server: set the environment and import the server before its options are known."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from components.compat.grpc import OLDER_POLLING
from components.compat.tensorflow import GROWING_GPU_MEMORY, import_for_predictions


def load() -> Callable[..., NoReturn]:
    """Return the function that runs the server with the options of its command line, and exits."""
    for name, value in (OLDER_POLLING | GROWING_GPU_MEMORY).items():  # before gRPC and TensorFlow are loaded
        os.environ.setdefault(name, value)
    import_for_predictions()
    from components.serving.server.app import main

    return lambda *options: sys.exit(main(options))
