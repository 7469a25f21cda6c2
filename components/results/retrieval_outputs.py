"""Outputs of a retrieval besides `score`; components/trainer/item_index describes them."""

from __future__ import annotations

RANK = "rank"
POPULARITY_RANK = "popularity_rank"
RECOMMENDED = "recommended"
INTERACTIONS = "interactions"
INDEX_SIZE = "index_size"
ORDERS = frozenset({RANK, RECOMMENDED, INTERACTIONS})
"""Those that depend on the order of scores. Where two of them are nearly equal, rounding decides about the order, so
they may differ between two computations."""
