"""Images of other splits that look like an image of the training split, as StatisticsGen reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """Two images that look alike.

    Attributes:
      similarity: Cosine similarity, at most 1.
      name: Name of the image.
      train: Name of the image of the training split.
    """

    similarity: float
    name: str
    train: str


@dataclass(frozen=True)
class NearDuplicates:
    """The near duplicates in a split.

    Attributes:
      column: Name of the column of images.
      split: Name of the split.
      images: Number of images that were compared. Very small images and images of a single colour are not compared.
      found: Number of compared images that have a near duplicate in the training split.
      pairs: The most similar pairs.
      bounded: Number of images that share a hash with too many images of the training split, and were compared with
        some of them only, so that the most similar image may be another one.
    """

    column: str
    split: str
    images: int
    found: int
    pairs: tuple[Pair, ...] = ()
    bounded: int = 0

    @property
    def share(self) -> float:
        """The share of the images that have a near duplicate."""
        return self.found / self.images if self.images else 0.0

    def __str__(self) -> str:
        worst = "".join(f"; {pair.name} and {pair.train} of train" for pair in self.pairs[:1])
        bounded = f"; {self.bounded:,} were compared with some of many similar images" if self.bounded else ""
        found = f"{self.found:,} of {self.images:,} images look like one of train"
        return f"{self.split}: {self.column}: {found}{worst}{bounded}"
