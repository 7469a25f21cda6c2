"""The parts of a config: short enough for every database, and the same text together."""

from __future__ import annotations

import pytest

from components.base import recorded_config


@pytest.mark.parametrize("text", ["", "{}", "x" * 600, "ü" * 601, "𝄞" * 9000])
def test_parts_are_short_and_the_text_together(text: str) -> None:
    parts = recorded_config.parts(text)
    assert all(len(part.encode()) <= 2400 for part in parts.values())
    assert recorded_config.joined({**dict(reversed(parts.items())), "other": "y"}) == text


def test_runs_without_and_with_one_part() -> None:
    assert recorded_config.joined({"other": "x"}) is None
    assert recorded_config.joined({"config": "y" * 5000}) == "y" * 5000
