"""Random faults in whole runs, see tests/support/programs/chaos.py."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from tests.support.programs import chaos
from tests.support.programs.chaos_airflow import AirflowCampaign
from tests.support.servers import databases
from tests.support.servers.flink_cluster import flink_cluster, needs_engines

SEEDS, FAULTS = (7, 8, 9), 4
"""A test of more faults could take longer, on a busy machine, than a test may."""

needs_disk = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("mount"), reason="mounting a small disk takes root"
)


@pytest.mark.slow
@needs_disk
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("strategy", "database"),
    [("none", None), ("multi_worker", None), ("parameter_server", None), ("none", "postgresql")],
)
def test_whatever_a_fault_leaves_behind_the_next_run_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, database: str | None, seed: int
) -> None:
    monkeypatch.setenv("METADATA_PASSWORD", databases.PASSWORD)
    with databases.SERVERS[database]() if database else contextlib.nullcontext() as server:
        faults = list(chaos.Campaign(strategy, seed=seed, folder=tmp_path, database=server).faults(FAULTS))
    assert len(faults) == FAULTS
    assert not [fault for fault in faults if fault.violations]


@pytest.mark.slow
@pytest.mark.engine
@needs_engines
@needs_disk
@pytest.mark.parametrize("seed", SEEDS)
def test_run_on_flink_completes_after_any_fault(tmp_path: Path, seed: int) -> None:
    with flink_cluster(tmp_path / "flink") as cluster:
        faults = list(chaos.Campaign("none", seed=seed, folder=tmp_path, cluster=cluster).faults(FAULTS))
    assert len(faults) == FAULTS
    assert not [fault for fault in faults if fault.violations]


@pytest.mark.slow
@pytest.mark.needs("airflow")
@needs_disk
@pytest.mark.parametrize("seed", SEEDS)
def test_run_under_airflow_completes_after_any_fault(tmp_path: Path, seed: int) -> None:
    faults = list(AirflowCampaign(seed=seed, folder=tmp_path).faults(FAULTS))
    assert len(faults) == FAULTS
    assert not [fault for fault in faults if fault.violations]
