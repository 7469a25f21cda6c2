"""Ctrl-C and SIGTERM during a run: the first one is noted and acted upon in order, the second one ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class InterruptedRun(BaseException):
    """Raised where the run stands, when it has to end at once. No `Exception`, so that nothing swallows it."""


class Signals:
    """Catches SIGINT and SIGTERM while it is entered; main thread only."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The first one that came."""
        self._count = 0
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Here already the first signal raises: for a call that would block, with nothing to tidy up."""
        self._at_once = True
        try:
            if self.received:
                raise InterruptedRun
            yield
        finally:
            self._at_once = False

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        self._count += 1
        self.received = self.received or signal.Signals(signum)
        # A third one finds the run ending at once already.
        if self._count == (1 if self._at_once else 2):
            raise InterruptedRun
