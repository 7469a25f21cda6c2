"""Handle SIGINT and SIGTERM during a run: the first signal ends the run in order, the second kills the nodes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

RUN_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a run. Terminals send them to all processes of a group, but only the run's process acts on them."""


class InterruptedRun(BaseException):
    """Raised if the run has to stop at once. It is not an `Exception`, so that error handlers do not catch it."""


class Signals:
    """Records SIGINT and SIGTERM while this context is entered; for the main thread only.

    Signals are only recorded, and the scheduler's loops check for them at every tick. If the signal handler raised an
    exception, it could also interrupt the closing of the run. Only a block of `interrupting` can be interrupted.

    Attributes:
      received: The first signal that was received. If no signal was received, None.
      count: Number of signals that were received.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.count = 0
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
        """Let a signal raise InterruptedRun in the block. Use it for a blocking call that does not need clean-up.

        Raises:
          InterruptedRun: A signal arrives in the block, or has arrived before it.
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
            # Raise only once, because a further signal must not interrupt the handling of the exception.
            self._interrupting = False
            raise InterruptedRun
