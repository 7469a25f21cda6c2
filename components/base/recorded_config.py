"""Stores the text of a run's config in the properties of its context, divided into parts.

The parts are needed because an index in ML Metadata's PostgreSQL schema rejects texts of more than 2,704 bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

NAME = "config"
"""Name of the property with the first part. The names of further parts end with a number."""
_CHARACTERS = 600
"""Number of characters in a part. Encoded in UTF-8, they take at most 2,400 bytes."""


def parts(text: str) -> dict[str, str]:
    """Divide a text into parts, and return them by property name."""
    starts = range(0, max(len(text), 1), _CHARACTERS)
    return {_name(number): text[start : start + _CHARACTERS] for number, start in enumerate(starts)}


def join(properties: Mapping[str, str]) -> str | None:
    """Join the parts in the properties of a context. Return None if the properties do not contain a config."""
    if NAME not in properties:
        return None
    names = itertools.takewhile(properties.__contains__, map(_name, itertools.count()))
    return "".join(properties[name] for name in names)


def _name(number: int) -> str:
    return f"{NAME}_{number}" if number else NAME
