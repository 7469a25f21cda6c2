"""The form of a transformed feature for the model: numbers, or IDs to embed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Dense:
    """The spec of a feature of numbers: float32 of shape [batch] if the width is 1, otherwise [batch, width].

    The numbers of `piecewise_linear` are stored in a compact form, see `compact`.

    Attributes:
      width: Number of numbers per example.
      ordered: Whether the number, or the sum of the numbers, never decreases as the column's value increases.
      image: Height, width and channels if the numbers are the pixels of an image, row by row. The transformed feature
        is then the encoded image, string of shape [batch], which `images.decode` converts to the numbers.
    """

    width: int = 1
    ordered: bool = False
    image: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Ids:
    """The spec of a feature of IDs to embed: int64 in [0, cardinality), shape [batch] or [batch, values].

    The embeddings of several values are averaged. The ID 0 is padding in a feature with several values, otherwise it
    stands for a missing value.

    Attributes:
      cardinality: Number of IDs.
      values: Maximum number of values of an example.
      width: Width of the embedding. If None, the model chooses it.
      ordered: Whether a greater ID stands for a greater value.
      quotients: Number of rows for the quotients of IDs, if an embedding combines two rows; see Embedded.
      composition: How the two rows are combined.
      shares: Name of the feature whose embeddings this feature shares, if any.
      is_history: Whether the values are the events of a history, the latest event last, followed by padding.
      along: Name of the feature of the history whose events the values belong to, if any.
      is_weighted: Whether the values are IDs with weights, see `weighted_ids`. The embeddings are then added with these
        weights.
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
    is_weighted: bool = False


VocabularySize = Callable[[str], int]
"""Name of a vocabulary → number of its entries."""
