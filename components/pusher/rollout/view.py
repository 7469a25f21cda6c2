"""What the writers of the rollout's files see: which versions serve, and where."""

from __future__ import annotations

from dataclasses import dataclass

from components.pusher.config import RolloutConfig
from components.pusher.state import Canary


@dataclass(frozen=True)
class View:
    """A moment of a push folder.

    Attributes:
      name: the model's name in requests.
      base_path: the push folder as the model servers see it.
      settings: where the servers and proxies are.
      stable: the version that serves, or none.
      canary: the one that gets a share, or none.
      previous: the one that a rollback goes back to, or none.
    """

    name: str
    base_path: str
    settings: RolloutConfig
    stable: int | None
    canary: Canary | None
    previous: int | None

    @property
    def versions(self) -> list[int]:
        """All that servers hold: the previous one too, so that a rollback waits for no loading."""
        canary = self.canary.version if self.canary else None
        return sorted({each for each in (self.stable, canary, self.previous) if each is not None})

    @property
    def weights(self) -> tuple[int, int]:
        """Shares of the stable version and of the canary as whole numbers: percents, or hundredths of them."""
        percent = self.canary.percent if self.canary else 0.0
        whole = 100 if percent == int(percent) else 10_000
        share = round(percent * whole / 100)
        return whole - share, share
