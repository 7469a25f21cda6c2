"""Tests for the locks of artifacts and of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.base.errors import InputError, MachineError
from components.base.files import exclusive_lock
from pipeline.core import run_locks


def test_runs_share_the_lock_of_artifacts_and_gc_does_not(tmp_path: Path) -> None:
    output = tmp_path / "out" / "toy"
    with (
        run_locks.artifacts_in_use(output),
        run_locks.artifacts_in_use(output),
        pytest.raises(InputError, match="gc: expected no active run"),
        run_locks.artifacts_unused(output),
    ):
        pytest.fail("expected the lock to be held")
    with run_locks.artifacts_unused(output), pytest.raises(InputError), run_locks.artifacts_unused(output):
        pytest.fail("expected the lock to be held")


def test_node_waits_for_the_end_of_an_earlier_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier_lock = exclusive_lock(run_locks.get_node_lock_path(tmp_path, "A"))
    earlier_lock.__enter__()
    monkeypatch.setattr(run_locks.time, "sleep", lambda _: earlier_lock.__exit__(None, None, None))
    with run_locks.after_earlier_attempt(tmp_path, "A"):
        monkeypatch.undo()
        monkeypatch.setattr(run_locks, "_WAIT_SECONDS", 0)
        with pytest.raises(MachineError, match="earlier attempt at A"), run_locks.after_earlier_attempt(tmp_path, "A"):
            pytest.fail("expected the lock to be held")
