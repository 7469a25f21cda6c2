"""Tests for the location of a metadata store, as text and in a config."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from components.base.errors import InputError
from pipeline.authoring.config.runtime import MetadataConfig
from pipeline.core.metadata.location import Database, location


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("out/taxi/metadata.db", Path("out/taxi/metadata.db")),
        ("postgresql://ada@db/tfx", Database("postgresql", "db", 5432, "tfx", "ada")),
        ("mysql://ada%40x@[::1]:3307/a%20b", Database("mysql", "::1", 3307, "a b", "ada@x")),
    ],
)
def test_location_is_parsed_and_printed(text: str, expected: object):
    assert location(text) == expected
    assert location(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("oracle://ada@db/tfx", "received a URL with oracle://"),
        ("postgresql://ada:secret@db/tfx", "without a password"),  # pragma: allowlist secret
        ("postgresql://db/tfx", "received one without user$"),
        ("postgresql://ada@db", "received one without database$"),
        ("postgresql://ada@/tfx", "received one without host$"),
        ("mysql://ada@db:port/tfx", "cannot be parsed"),
    ],
)
def test_invalid_location_is_rejected(text: str, message: str):
    with pytest.raises(InputError) as raised:
        location(text)
    assert re.search(message, raised.value.headline)
    assert "METADATA_PASSWORD" in raised.value.remedy
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"host": "db"}, "no host for backend sqlite"),
        ({"backend": "postgresql", "host": "db", "user": "ada"}, "a database for backend postgresql"),
        ({"backend": "mysql", "host": "db", "database": "d", "user": "u", "port": 0}, "greater than or equal to 1"),
        ({"backend": "mysql", "host": "", "database": "d", "user": "u"}, "at least 1 character"),
    ],
)
def test_inconsistent_section_is_rejected(section: dict[str, object], message: str):
    with pytest.raises(ValidationError, match=message):
        MetadataConfig.model_validate(section)
