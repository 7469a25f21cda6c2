"""Tests for the end of nodes with Beam's workers, and for the addresses on which they listen.

tests/contract/test_engine_runs.py tests the results of such nodes.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration import engines
from tests.support.programs import engine_program
from tests.support.runs.command import ROOT, SECONDS
from tests.support.servers.beam_servers import job_service
from tests.support.servers.listening import listens_on_loopback

pytestmark = pytest.mark.both_lines

RUNTIME = RuntimeConfig.model_validate({"direct": {"mode": "multi_processing", "workers": 2}})


@pytest.mark.extended
def test_node_ends_with_a_killed_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(Path(engine_program.__file__).parent)]))
    process = engine_program.start(engines.beam_args(RUNTIME), tmp_path)
    try:
        while not engine_program.workers(tmp_path):
            assert not process.has_ended(0.1)
        is_local = listens_on_loopback(process.pid)
        os.kill(engine_program.workers(tmp_path)[0], signal.SIGKILL)
        code, _, err = process.wait(SECONDS)
    finally:
        process.kill()
    assert is_local
    assert code == 1
    assert "Worker subprocess exited with return code" in err


@pytest.mark.extended
def test_node_with_loopback_workers_listens_on_loopback_only(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with job_service(tmp_path / "service.log") as service:
        section = {"engine": "portable", "portable": {"job_endpoint": service.address}}
        process = engine_program.start(engines.beam_args(RuntimeConfig.model_validate(section)), work)
        try:
            while not engine_program.workers(work):
                assert not process.has_ended(0.1)
            is_local = listens_on_loopback(process.pid)
            (work / "go").touch()
            code, _, err = process.wait(SECONDS)
        finally:
            process.kill()
    assert is_local
    assert code == 0, err
    assert engine_program.result(work) == str(sum(range(engine_program.ELEMENTS)))
