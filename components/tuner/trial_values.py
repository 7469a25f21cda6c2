"""The values of trials in readable form; without KerasTuner, so that reports import it quickly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert KerasTuner's values to the form of the config. KerasTuner does not support lists, so they are JSON."""
    return {
        name: json.loads(value) if name == "hidden" and isinstance(value, str) else value
        for name, value in values.items()
    }


def one_line(values: Mapping[str, Any]) -> str:
    """Return the values in one line, such as `learning_rate 0.01, hidden [64]`."""
    rounded = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in plain(values).items()}
    return ", ".join(f"{name} {value}" for name, value in rounded.items())
