"""Tests for the lock of a node that an orchestrator starts separately."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.base.errors import InputError
from components.base.files import exclusive_lock
from pipeline.orchestration.single_node import exclusive_node


def test_running_node_is_reported(tmp_path: Path):
    with (
        exclusive_lock(tmp_path / "Trainer.lock"),
        pytest.raises(InputError, match="Trainer of run r1 is still running in another process"),
        exclusive_node(tmp_path, "Trainer", "r1"),
    ):
        pytest.fail("expected the lock to be held")


def test_error_of_the_node_is_not_mistaken_for_a_held_lock(tmp_path: Path):
    with pytest.raises(BlockingIOError, match="a pipe is empty"), exclusive_node(tmp_path, "Trainer", "r1"):
        raise BlockingIOError("a pipe is empty")
