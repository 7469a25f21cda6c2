"""The lock of a node that runs by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.base.errors import InputError
from components.base.files import exclusive_lock
from pipeline.orchestration.single_node import exclusive_node


def test_a_node_that_is_running_is_reported(tmp_path: Path):
    with (
        exclusive_lock(tmp_path / "Trainer.lock"),
        pytest.raises(InputError, match="Trainer of run r1 is still running in another process"),
        exclusive_node(tmp_path, "Trainer", "r1"),
    ):
        pytest.fail("expected the lock to be held")


def test_an_error_of_the_node_itself_is_not_taken_for_a_held_lock(tmp_path: Path):
    with pytest.raises(BlockingIOError, match="a pipe is empty"), exclusive_node(tmp_path, "Trainer", "r1"):
        raise BlockingIOError("a pipe is empty")
