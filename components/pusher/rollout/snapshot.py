"""The input of the modules that write the rollout's files: the versions that serve, and the servers."""

from __future__ import annotations

from dataclasses import dataclass

from components.pusher.config import RolloutConfig
from components.pusher.serving_state import Canary


@dataclass(frozen=True)
class RolloutSnapshot:
    """The state of a push folder at one point in time.

    Attributes:
      name: Name of the model in requests.
      base_path: Path of the push folder on the model servers.
      settings: Addresses of the servers and proxies.
      stable: Number of the stable version. None if no version is stable.
      canary: The canary and its share. None if no canary runs.
      previous: Number of the version to which a rollback returns. None if a rollback is not possible.
    """

    name: str
    base_path: str
    settings: RolloutConfig
    stable: int | None
    canary: Canary | None
    previous: int | None

    @property
    def versions(self) -> list[int]:
        """All versions that servers load, including the previous version, so that a rollback takes effect at once."""
        canary = self.canary.version if self.canary else None
        return sorted({version for version in (self.stable, canary, self.previous) if version is not None})

    @property
    def weights(self) -> tuple[int, int]:
        """Weights of the stable version and the canary in percent, or if necessary in hundredths of a percent."""
        percent = self.canary.percent if self.canary else 0.0
        total = 100 if percent == int(percent) else 10_000
        share = round(percent * total / 100)
        return total - share, share
