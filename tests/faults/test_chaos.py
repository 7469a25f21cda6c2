"""Random faults in whole runs, see tests/support/chaos.py."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import chaos
import databases
import pytest


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="mounting a small disk takes root")
@pytest.mark.parametrize(
    ("strategy", "database"),
    [("none", None), ("multi_worker", None), ("parameter_server", None), ("none", "postgresql")],
)
def test_whatever_a_fault_leaves_behind_the_next_run_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, database: str | None
) -> None:
    monkeypatch.setenv("METADATA_PASSWORD", databases.PASSWORD)
    with databases.SERVERS[database]() if database else contextlib.nullcontext() as server:
        faults = list(chaos.Campaign(strategy, seed=7, folder=tmp_path, database=server).faults(12))
    assert not [each for each in faults if each.violations]
