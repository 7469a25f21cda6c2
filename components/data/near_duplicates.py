"""Images of other splits that look like one of the training split, as StatisticsGen reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """Two images that look alike.

    Attributes:
      similarity: Cosine, at most 1.
      name: Of the image.
      train: Name of the image of the training split.
    """

    similarity: float
    name: str
    train: str


@dataclass(frozen=True)
class NearDuplicates:
    """What was found in a split.

    Attributes:
      column: Of the images.
      split: With the images.
      images: Number of the split's images that were compared; smaller ones and those of one colour were not.
      found: How many of these have a near duplicate in the training split.
      pairs: The most similar ones.
    """

    column: str
    split: str
    images: int
    found: int
    pairs: tuple[Pair, ...] = ()

    @property
    def share(self) -> float:
        """The share of the images that have a near duplicate."""
        return self.found / self.images if self.images else 0.0

    def __str__(self) -> str:
        worst = "".join(f"; {pair.name} and {pair.train} of train" for pair in self.pairs[:1])
        return f"{self.split}: {self.column}: {self.found:,} of {self.images:,} images look like one of train{worst}"
