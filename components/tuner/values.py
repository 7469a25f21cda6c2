"""Values that a search has tried, as people read them; no KerasTuner is needed for that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """KerasTuner's values as the config has them: it knows no lists, so one is JSON there."""
    return {
        name: json.loads(value) if name == "hidden" and isinstance(value, str) else value
        for name, value in values.items()
    }


def shown(values: Mapping[str, Any]) -> str:
    """Values in one line."""
    told = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in plain(values).items()}
    return ", ".join(f"{name} {value}" for name, value in told.items())
