"""The text of a run's config in the properties of its context, in parts.

An index of ML Metadata's schema for PostgreSQL takes no text of more than 2,704 bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

NAME = "config"
"""The first part; the others have a number after it."""
_CHARACTERS = 600
"""Of a part: at most 2,400 bytes."""


def parts(text: str) -> dict[str, str]:
    """Divides a text; returns property → part."""
    starts = range(0, max(len(text), 1), _CHARACTERS)
    return {_name(number): text[start : start + _CHARACTERS] for number, start in enumerate(starts)}


def joined(properties: Mapping[str, str]) -> str | None:
    """Join the parts that are among the properties; None if there are none."""
    if NAME not in properties:
        return None
    names = itertools.takewhile(properties.__contains__, map(_name, itertools.count()))
    return "".join(properties[name] for name in names)


def _name(number: int) -> str:
    return f"{NAME}_{number}" if number else NAME
