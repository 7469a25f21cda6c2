"""The input of the writers of the rollout's files: which versions serve, and on which servers."""

from __future__ import annotations

from dataclasses import dataclass

from components.pusher.config import RolloutConfig
from components.pusher.serving_state import Canary


@dataclass(frozen=True)
class RolloutSnapshot:
    """The state of a push folder at one point in time.

    Attributes:
      name: the model's name in requests.
      base_path: the push folder as the model servers see it.
      settings: the addresses of servers and proxies.
      stable: the stable version, or None.
      canary: the canary and its share, or None.
      previous: the version that a rollback goes back to, or None.
    """

    name: str
    base_path: str
    settings: RolloutConfig
    stable: int | None
    canary: Canary | None
    previous: int | None

    @property
    def versions(self) -> list[int]:
        """All versions that servers load: also the previous one, so that a rollback does not wait for loading."""
        canary = self.canary.version if self.canary else None
        return sorted({each for each in (self.stable, canary, self.previous) if each is not None})

    @property
    def weights(self) -> tuple[int, int]:
        """Shares of the stable version and of the canary as integers: percents, or hundredths of percents."""
        percent = self.canary.percent if self.canary else 0.0
        total = 100 if percent == int(percent) else 10_000
        share = round(percent * total / 100)
        return total - share, share
