"""Durations in the config: seconds, or a text such as 7d."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(rf"(\d+(?:\.\d+)?)\s*([{''.join(_UNITS)}])")


def _parse_duration(value: Any) -> Any:
    """Convert a text such as `7d` to seconds; leave the validation of other values to pydantic."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        return float(match[1]) * _UNITS[match[2]]
    if isinstance(value, str):
        raise ValueError(f"expected seconds, or a duration such as 90m, 12h, 7d or 2w, received {value!r}")
    return value


Duration = Annotated[float, BeforeValidator(_parse_duration, json_schema_input_type=float | str), Field(ge=0)]
"""Seconds, or a text such as 7d."""
