"""A config is divided into parts that every database can store, and is joined from them."""

from __future__ import annotations

import pytest

from components.base import recorded_config


@pytest.mark.parametrize("text", ["", "{}", "x" * 600, "ü" * 601, "𝄞" * 9000])
def test_parts_are_short_and_joined_to_the_text(text: str) -> None:
    parts = recorded_config.parts(text)
    assert all(len(part.encode()) <= 2400 for part in parts.values())
    assert recorded_config.join({**dict(reversed(parts.items())), "other": "y"}) == text


def test_run_without_a_config_is_read_as_none_and_a_single_part_is_accepted() -> None:
    assert recorded_config.join({"other": "x"}) is None
    assert recorded_config.join({"config": "y" * 5000}) == "y" * 5000
