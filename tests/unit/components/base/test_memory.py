"""The memory available to a process is measured."""

from __future__ import annotations

from components.base.memory import memory


def test_measured_memory_is_plausible() -> None:
    total, available = memory()
    assert 0 < available <= total
