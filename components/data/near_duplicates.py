"""Images of other splits that look like one of the training split, as StatisticsGen reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """Two images that look alike.

    Attributes:
      similarity: cosine, at most 1.
      name: of the image.
      train: name of the image of the training split.
    """

    similarity: float
    name: str
    train: str


@dataclass(frozen=True)
class NearDuplicates:
    """What was found in a split.

    Attributes:
      column: of the images.
      split: with the images.
      images: number of the split's images that were compared; smaller ones and those of one colour were not.
      found: how many of these have a near duplicate in the training split.
      pairs: the most similar ones.
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
