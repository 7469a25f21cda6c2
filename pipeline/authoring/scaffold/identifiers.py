"""Recognises identifiers by the name of the column, or by the form of its texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.authoring.protected_attributes import PERSONS, WORD

_NOUNS = (
    "account|booking|card|case|client|customer|device|employee|event|invoice|item|loan|member|order|passenger|patient|"
    "product|record|ride|session|student|ticket|transaction|trip|user"
)
NAME_OF_ID = re.compile(
    rf"{WORD}(?i:ids?|uuid|guid|key|index|idx|rowid|row|no|nr|number|ref|reference|hash)$"
    rf"|(?i:(?:{_NOUNS})(?:id|no|nr|number))$|(?i:^_?u?n?named?_0$)"
)
_GROUP = re.compile(
    rf"{WORD}(?i:id|uuid|guid)$|(?i:(?:{_NOUNS}|{PERSONS})(?:id|no|nr|number))$|(?i:^(?:{PERSONS}|nr)$)"
)
_CODE_NAMES = r"zip(?:_?code)?|post(?:al)?_?code|plz|phone(?:_number)?"
_REPEATED_ID = re.compile(rf"{WORD}(?i:id|uuid|guid|key|{_CODE_NAMES})$|(?i:(?:{_NOUNS})id)$")
_PROPER_NAME = re.compile(rf"{WORD}(?i:name|street|address)$|(?i:(?:first|last|full|sur|family|user|nick)_?name)$")
_FORMS = {
    "e-mail addresses": r"[^@\s]+@[^@\s]+\.[A-Za-z]+",
    "URLs": r"(?:https?|ftp)://\S+|www\.\S+",
    "UUIDs": r"\{?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}?",
    "hashes": r"(?:[0-9a-f]{2}){16,}",
    "telephone numbers": r"\+[0-9][0-9 ()/.-]{6,}",
    "IP addresses": r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}",
}
_TRIED = 1_000
_LEAST = 0.95
"""Minimum share of values in a form."""


def names_a_repeated_id(column: str) -> bool:
    """Check whether a column name means IDs or codes that may repeat: customer_id and zip_code, but not week_number."""
    return _REPEATED_ID.search(column) is not None


def names_a_group(column: str) -> bool:
    """Check whether a column name means persons or things that several rows may be about, such as patient_id."""
    return _GROUP.search(column) is not None


def holds_proper_names(column: str) -> bool:
    """Check whether a column name means names of persons or things, such as last_name or address."""
    return _PROPER_NAME.search(column) is not None


def form_of(texts: Sequence[str]) -> str | None:
    """Return the kind of identifier that texts contain, such as `e-mail addresses`; None for other texts."""
    tried = texts[:: max(1, len(texts) // _TRIED)]
    for identifier_kind, form in _FORMS.items():
        pattern = re.compile(rf"\s*(?:{form})\s*")
        if sum(pattern.fullmatch(text) is not None for text in tried) >= _LEAST * len(tried):
            return identifier_kind
    return None
