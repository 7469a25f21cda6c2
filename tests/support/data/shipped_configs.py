"""The configs that the project ships. Users write their own configs into the same folder, so tests do not list it."""

from __future__ import annotations

from pathlib import Path

NAMES = (
    "clicks",
    "digits",
    "ranking",
    "retrieval",
    "sales",
    "sessions",
    "shapes",
    "stock_penguin",
    "stock_taxi",
    "taxi",
)
CONFIGS = tuple(Path(__file__).parents[3] / "configs" / f"{name}.yaml" for name in NAMES)
