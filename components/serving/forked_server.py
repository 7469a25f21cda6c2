"""The local server in a process that is forked from a node, so that it need not import TensorFlow again."""

from __future__ import annotations

import os
from collections.abc import Callable

from components.base.forked_process import ForkedProcess
from components.compat.grpc import OLDER_POLLING


class ForkedServer(ForkedProcess):
    """A process that becomes the local server; `run` takes the options of the server.

    Create it before this process starts other threads.
    """

    def __init__(self) -> None:
        super().__init__(_load_server)


def _load_server() -> Callable[..., int]:
    os.environ.update(OLDER_POLLING)
    from components.serving.server.app import main

    return lambda *options: main(options)
