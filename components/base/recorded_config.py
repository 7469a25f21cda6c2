"""Stores a long text, such as a run's config, in properties of ML Metadata, divided into parts.

The parts are needed because an index in ML Metadata's PostgreSQL schema rejects texts of more than 2,704 bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

NAME = "config"
"""Name of the property with the first part. The names of further parts end with a number."""
_CHARACTERS = 600
"""Number of characters in a part. Encoded in UTF-8, they take at most 2,400 bytes."""


def parts(text: str, name: str = NAME) -> dict[str, str]:
    """Divide a text into parts, and return them by property name.

    Args:
      text: The text.
      name: Name of the property with the first part.
    """
    starts = range(0, max(len(text), 1), _CHARACTERS)
    return {_make_name(name, number): text[start : start + _CHARACTERS] for number, start in enumerate(starts)}


def join(properties: Mapping[str, str], name: str = NAME) -> str | None:
    """Join the parts in the properties of a context or an artifact. Return None if they do not contain the text.

    Args:
      properties: Texts by property name.
      name: Name of the property with the first part.
    """
    if name not in properties:
        return None
    names = itertools.takewhile(properties.__contains__, (_make_name(name, number) for number in itertools.count()))
    return "".join(properties[part_name] for part_name in names)


def _make_name(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name
