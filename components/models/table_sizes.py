"""Rows and bytes of a model's tables of ids, and the memory that they take in each task, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from components.features.base_op import Embedded
from components.features.config import Feature, FeaturesConfig
from components.models.config import ModelConfig

_WIDE = ("wide_deep", "dlrm", "linear")
"""The kinds with a weight for each id."""
_FLOAT = 4
COPIES = 3
"""Numbers that training keeps of each weight: the weight, and two of Adam's."""

Entries = Callable[[Feature], int | None]
"""A feature → the number of entries of its vocabulary; None if it is not known."""


@dataclass(frozen=True)
class TableSize:
    """A table of ids, or a part of one.

    Attributes:
      feature: The feature whose ids it has.
      kind: Embedding, quotients or weights.
      rows: How many.
      width: Of a row.
      most: Whether `rows` is the most that there can be: the vocabulary is not known yet.
    """

    feature: str
    kind: str
    rows: int
    width: int
    most: bool

    @property
    def weights(self) -> int:
        """Bytes of the weights."""
        return self.rows * self.width * _FLOAT

    @property
    def bytes(self) -> int:
        """Bytes of the weights and of the optimizer's numbers."""
        return self.weights * COPIES


def table_sizes(
    model: ModelConfig,
    features: FeaturesConfig,
    entries: Entries,
    most: bool = True,
    outputs: int = 1,
    networks: int = 1,
) -> list[TableSize]:
    """Compute the tables of a model of `model.kind`; none if the model is the user's own.

    Args:
      model: The network.
      features: The declared features.
      entries: Those of vocabularies, as Transform counted them.
      most: Whether a vocabulary of which they are not known counts with its greatest size, otherwise with none.
      outputs: Logits of the model.
      networks: How many networks are trained: one for each fold.

    Returns:
      The tables of each feature, in the order of the config; several networks have each row several times.
    """
    if model.run_fn or model.build or not model.has_network:
        return []
    sizes = []
    for feature in features.declared:
        op = feature.op
        if not isinstance(op, Embedded):
            continue
        counted = entries(feature) if op.most_entries else 0
        is_most = most and counted is None
        ids = op.rows + ((op.most_entries if most else 0) if counted is None else counted)
        divided = -(-ids // op.quotient_remainder) if op.quotient_remainder else ids
        quotients = -(-ids // divided) if op.quotient_remainder else 0
        tables = []
        # What an event of a history shares with another column is there.
        if model.kind != "linear" and feature.shares is None:
            tables.append(("embedding", model.width(ids, op.embedding)))
        if model.kind in _WIDE:
            tables.append(("weights", outputs))
        for kind, width in tables:
            sizes.append(TableSize(feature.name, kind, divided * networks, width, is_most))
            if quotients:
                sizes.append(TableSize(feature.name, f"quotients of {kind}", quotients * networks, width, is_most))
    return sizes
