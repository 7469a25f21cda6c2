"""How many values of hashed features share a bucket, as Transform counted them in the training split."""

from __future__ import annotations

from dataclasses import dataclass

WARNING_SHARE = 0.25
"""From this share of the values of all rows on, a run warns that they share their bucket with other values."""


@dataclass(frozen=True)
class HashCollisions:
    """The collisions of a hashed feature.

    Attributes:
      feature: Its name.
      buckets: Number of buckets.
      values: Number of distinct values in the training split.
      used: Number of buckets with a value.
      share_of_values: Share of the distinct values that share their bucket with another one.
      share_of_rows: Share of all values, each as often as rows have it, that share their bucket with another one.
      sampled: Share of the buckets that the figures were computed from; below 1 they are estimates.
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
        """Whether a run warns of it."""
        return self.share_of_rows >= WARNING_SHARE

    def __str__(self) -> str:
        about = "" if self.sampled == 1 else "about "
        return (
            f"{self.feature}: {about}{self.values:,} values in {about}{self.used:,} of {self.buckets:,} buckets; "
            f"{self.share_of_values:.1%} of the values, in {self.share_of_rows:.1%} of the rows, share their bucket"
        )
