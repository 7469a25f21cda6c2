"""The memory that a process may use."""

from __future__ import annotations

from components.base.memory import memory


def test_real_memory_is_plausible() -> None:
    total, available = memory()
    assert 0 < available <= total
