"""Names of the outputs of a retrieval model other than `score`, which components/trainer/item_index describes."""

from __future__ import annotations

RANK = "rank"
POPULARITY_RANK = "popularity_rank"
RECOMMENDED = "recommended"
INTERACTIONS = "interactions"
INDEX_SIZE = "index_size"
ORDERS = frozenset({RANK, RECOMMENDED, INTERACTIONS})
"""Outputs that depend on the order of the scores. If two scores are nearly equal, their order depends on rounding, so
these outputs may differ between two computations."""
