"""Where a store is, as text and as a config says it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from components.errors import InputError
from pipeline.config.metadata import MetadataConfig
from pipeline.metadata.database import Database, location


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("out/taxi/metadata.db", Path("out/taxi/metadata.db")),
        ("postgresql://ada@db/tfx", Database("postgresql", "db", 5432, "tfx", "ada")),
        ("mysql://ada%40x@[::1]:3307/a%20b", Database("mysql", "::1", 3307, "a b", "ada@x")),
    ],
)
def test_what_a_text_names(text: str, expected: object):
    assert location(text) == expected
    assert location(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("oracle://ada@db/tfx", "begins oracle://"),
        ("postgresql://ada:secret@db/tfx", "without a password"),  # pragma: allowlist secret
        ("postgresql://db/tfx", "received less"),
        ("postgresql://ada@db", "received less"),
        ("postgresql://ada@/tfx", "received less"),
        ("mysql://ada@db:port/tfx", "cannot be read"),
    ],
)
def test_what_is_no_place_is_told(text: str, told: str):
    with pytest.raises(InputError, match=told) as refused:
        location(text)
    assert "METADATA_PASSWORD" in refused.value.remedy
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"host": "db"}, "no host for backend sqlite"),
        ({"backend": "postgresql", "host": "db", "user": "ada"}, "a database for backend postgresql"),
        ({"backend": "mysql", "host": "db", "database": "d", "user": "u", "port": 0}, "greater than or equal to 1"),
        ({"backend": "mysql", "host": "", "database": "d", "user": "u"}, "at least 1 character"),
        ({"backend": "mysql", "host": "h", "database": "d", "user": "u", "tls": {"ca": "a", "key": "k"}}, "together"),
    ],
)
def test_what_does_not_fit_is_told(section: dict[str, object], told: str):
    with pytest.raises(ValidationError, match=told):
        MetadataConfig.model_validate(section)
