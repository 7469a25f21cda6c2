"""Where a request goes. What is answered is held by the contract tests of both APIs."""

from __future__ import annotations

import pytest

from components.serving.server import rest
from components.serving.server.service import Asked


@pytest.mark.parametrize(
    ("target", "what", "asked"),
    [
        ("/v1/models/taxi", "status", Asked("taxi")),
        ("/v1/models/taxi/versions/3:predict?pretty", "predict", Asked("taxi", version=3)),
        ("/v1/models/a%20b/labels/st%C3%A4ble:classify", "classify", Asked("a b", label="stäble")),
        ("http://proxied.example:80/v1/models/taxi/metadata", "metadata", Asked("taxi")),
        ("/monitoring/prometheus/metrics", "metrics", Asked("")),
    ],
)
def test_a_target_is_read(target: str, what: str, asked: Asked) -> None:
    place = rest._place(target)
    assert place is not None
    assert (place.what, place.asked) == (what, asked)


@pytest.mark.parametrize("target", ["*", "/", "http://[x", "http://[x/v1/models/taxi", "/v1/models/", "/v1/models/a/b"])
def test_what_leads_nowhere_is_no_error(target: str) -> None:
    assert rest._place(target) is None
