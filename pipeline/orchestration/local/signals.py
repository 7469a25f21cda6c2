"""Handles SIGINT and SIGTERM during a run: the first one ends the run in order, the second one without grace."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

RUN_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What ends a run. Terminals and service managers send them to all processes; only the run's own acts on them."""


class InterruptedRun(BaseException):
    """Raised where the run has to stop at once. Not an `Exception`, so that no handler of errors swallows it."""


class Signals:
    """Records SIGINT and SIGTERM while it is entered; main thread only.

    A signal is only recorded, and the scheduler's loops check for it at every tick: an exception that a signal handler
    raises anywhere would also interrupt the closing of the run. `interrupting` is the one exception.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The first signal received."""
        self.count = 0
        """How many were received."""
        self._interrupting = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        for signum in RUN_SIGNALS:
            self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Lets a signal raise InterruptedRun in the block: for a call that blocks, with nothing to clean up after it.

        Raises:
          InterruptedRun: a signal arrives in the block, or has arrived before it.
        """
        self._interrupting = True
        try:
            if self.received:
                raise InterruptedRun
            yield
        finally:
            self._interrupting = False

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.received = self.received or signal.Signals(signum)
        if self._interrupting:
            # Once: what handles the exception must not be interrupted by the next signal.
            self._interrupting = False
            raise InterruptedRun
