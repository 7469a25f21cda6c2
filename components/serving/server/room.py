"""What large requests may take of the memory, whichever API they come by."""

from __future__ import annotations

import gc

_IN_HAND = 16
"""Requests of the greatest size that may be in memory at once."""
_LEFT = 4
"""Requests of the greatest size that may have been answered before it is looked for what is left of them."""
_SMALL = 1 << 16
"""Bytes of a request that is taken however many large ones there are."""


class Room:
    """Counts what is in memory.

    Args:
      most_bytes: of one request.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held = self._left = 0

    def hold(self, size: int) -> None:
        """So many bytes of requests more are in memory; fewer, if it is negative."""
        self._held += size
        if size < -_SMALL:
            self._left -= size
            if self._left > _LEFT * self.most_bytes:
                # An error and the frames it came through hold each other, and the request. Python looks for such rings
                # when there are many objects, however large these are.
                self._left = 0
                gc.collect()

    def is_too_small(self, size: int) -> bool:
        """Whether a request of so many bytes, which are held already, is too much."""
        return size > _SMALL and self._held > _IN_HAND * self.most_bytes
