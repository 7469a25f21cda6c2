"""The collisions of hashed features, as Transform counted them in the training split."""

from __future__ import annotations

from dataclasses import dataclass

WARNING_SHARE = 0.25
"""Share of rows whose value shares its bucket with another value, from which a run warns."""


@dataclass(frozen=True)
class HashCollisions:
    """The collisions of a hashed feature.

    Attributes:
      feature: Name of the feature.
      buckets: Number of buckets.
      values: Number of distinct values in the training split.
      used: Number of buckets with at least one value.
      share_of_values: Share of the distinct values that share their bucket with another value.
      share_of_rows: Share of the rows whose value shares its bucket with another value.
      sampled: Share of the buckets that the figures were computed from. Below 1, the figures are estimates.
    """

    feature: str
    buckets: int
    values: int
    used: int
    share_of_values: float
    share_of_rows: float
    sampled: float

    @property
    def is_high(self) -> bool:
        """Whether a run warns about the collisions."""
        return self.share_of_rows >= WARNING_SHARE

    def __str__(self) -> str:
        about = "" if self.sampled == 1 else "about "
        return (
            f"{self.feature}: {about}{self.values:,} values in {about}{self.used:,} of {self.buckets:,} buckets; "
            f"{self.share_of_values:.1%} of the values, in {self.share_of_rows:.1%} of the rows, share their bucket"
        )
