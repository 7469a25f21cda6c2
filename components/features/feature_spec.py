"""The shape of a transformed feature for the model: numbers, or ids to embed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Dense:
    """The spec of a feature of numbers: float32, shape [batch] if the width is 1, else [batch, width].

    Attributes:
      width: How many numbers.
      ordered: Whether the number, or the sum of the numbers, never decreases as the column's value increases.
      image: Height, width and channels if the numbers are the pixels of an image, row by row. The transformed feature
        is then the encoded image, string [batch], from which `images.decoded` computes the numbers.

    The numbers of `piecewise_linear` are stored in a compact form too, see `compact`.
    """

    width: int = 1
    ordered: bool = False
    image: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Ids:
    """The spec of a feature of ids to embed: int64 in [0, cardinality), shape [batch] or [batch, values].

    The embeddings of several values are averaged; there 0 is padding, else it is the id of a missing value.

    Attributes:
      cardinality: Number of ids.
      values: Greatest number of values of an example.
      width: Width of the embedding; None: the model decides.
      ordered: Whether a greater id stands for a greater value.
      quotients: Number of rows for the quotients of ids, if a vector is composed of two rows; see Embedded.
      composition: How it is composed.
      shares: The feature whose embeddings it has, if they are not its own.
      is_history: Whether the values are events, the latest one last; padding follows them.
      along: The feature of the history whose events the values belong to.
    """

    cardinality: int
    values: int = 1
    width: int | None = None
    ordered: bool = False
    quotients: int | None = None
    composition: Literal["product", "sum"] = "product"
    shares: str | None = None
    is_history: bool = False
    along: str | None = None


VocabularySize = Callable[[str], int]
"""Name of a vocabulary → number of its entries."""
