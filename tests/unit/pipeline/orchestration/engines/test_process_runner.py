"""Beam's own worker processes: one that is killed ends the node. Their results: tests/contract/test_engine_runs.py."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import engine_program
import pytest
from command import ROOT, SECONDS

from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration import engines

pytestmark = pytest.mark.both_lines

RUNTIME = RuntimeConfig.model_validate({"direct": {"mode": "multi_processing", "workers": 2}})


@pytest.mark.extended
def test_node_ends_with_a_killed_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(Path(engine_program.__file__).parent)]))
    process = engine_program.start(engines.beam_args(RUNTIME), tmp_path)
    try:
        while not engine_program.workers(tmp_path):
            assert not process.has_ended(0.1)
        os.kill(engine_program.workers(tmp_path)[0], signal.SIGKILL)
        code, _, err = process.wait(SECONDS)
    finally:
        process.kill()
    assert code == 1
    assert "Worker subprocess exited with return code" in err
