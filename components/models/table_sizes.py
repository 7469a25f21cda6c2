"""Compute the rows and bytes of a model's tables of IDs before the training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from components.features.base_op import Embedded
from components.features.config import Feature, FeaturesConfig
from components.models.config import ModelConfig

_WIDE = ("wide_deep", "dlrm", "linear")
"""The kinds with one weight per ID."""
WIDE = "wide"
"""Name of the layer with one weight per ID."""
QUOTIENTS = "quotients"
_FLOAT = 4
Entries = Callable[[Feature], int | None]
"""Function from a feature to the number of entries of its vocabulary; None if the number is unknown."""


@dataclass(frozen=True)
class TableSize:
    """The size of a table of IDs, or of a part of a table.

    Attributes:
      feature: Name of the feature with the IDs.
      kind: Kind of the table: embedding, quotients or weights.
      rows: Number of rows.
      width: Number of columns.
      most: Whether `rows` is an upper bound, because the size of the vocabulary is unknown.
      copies: Number of floats that training stores per weight: the weight, and what the optimizer keeps.
      table: Name of the layer that contains the table, together with the tables of other features.
    """

    feature: str
    kind: str
    rows: int
    width: int
    most: bool
    copies: int
    table: str

    @property
    def weights(self) -> int:
        """Bytes of the weights."""
        return self.rows * self.width * _FLOAT

    @property
    def bytes(self) -> int:
        """Bytes of the weights and of what the optimizer keeps."""
        return self.weights * self.copies


def table_sizes(
    model: ModelConfig,
    features: FeaturesConfig,
    entries: Entries,
    most: bool = True,
    outputs: int = 1,
    networks: int = 1,
    copies: int = 3,
) -> list[TableSize]:
    """Compute the sizes of a model's tables; empty if user code builds the model.

    Args:
      model: Section `model` of the config.
      features: Declared features.
      entries: Function that returns the sizes of vocabularies, as Transform counted them.
      most: Whether a vocabulary of unknown size counts with its maximum size. Otherwise it counts as empty.
      outputs: Number of logits of the model.
      networks: Number of networks that are trained, one per fold.
      copies: See `TableSize`.

    Returns:
      The tables of the features, in the order of the config. The rows of all networks are added.
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
        # A table that is shared with another column is counted there.
        if model.kind != "linear" and feature.shares is None:
            width = model.width(ids, op.embedding)
            tables.append(("embedding", width, name_embedding(model, width)))
        if model.kind in _WIDE:
            tables.append(("weights", outputs, WIDE))
        for kind, width, table in tables:
            sizes.append(TableSize(feature.name, kind, divided * networks, width, is_most, copies, table))
            if quotients:
                kind = f"{QUOTIENTS} of {kind}"
                sizes.append(TableSize(feature.name, kind, quotients * networks, width, is_most, copies, table))
    return sizes


def name_embedding(model: ModelConfig, width: int) -> str:
    """Return the name of the layer with the embeddings of a width."""
    return "embedding" if model.kind == "dlrm" else f"embedding_{width}"


def list_possible_tables(model: ModelConfig, features: FeaturesConfig) -> set[str]:
    """Return the names of all tables that a model may have, whatever the sizes of the vocabularies are."""
    embedded = [feature for feature in features.declared if isinstance(feature.op, Embedded)]
    names = {WIDE} if embedded and model.kind in _WIDE else set()
    if model.kind == "linear":
        return names
    for feature in embedded:
        configured = getattr(feature.op, "embedding", None)
        # Widths grow with the root of the number of IDs up to the width of the model.
        ids = [1] if configured else [4**power for power in range(32)]
        names |= {name_embedding(model, model.width(count, configured)) for count in ids}
    return names
