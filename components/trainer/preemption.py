"""A flag that SIGTERM sets, for code that stops at a suitable point instead of at once."""

from __future__ import annotations

import signal
from types import FrameType


class PreemptionFlag:
    """Set when this process receives SIGTERM: its machine is preempted, or a user stops the run.

    As a context manager it restores the previous handler. It is not a threading.Event, because the handler runs in the
    main thread, which may hold the event's lock.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._previous = signal.signal(signal.SIGTERM, self._handle)

    def __enter__(self) -> PreemptionFlag:
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._previous)

    def is_set(self) -> bool:
        """Whether the signal was received."""
        return self._is_set

    def _handle(self, _signum: int, _frame: FrameType | None) -> None:
        self._is_set = True
