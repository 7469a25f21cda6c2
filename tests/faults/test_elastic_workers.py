"""Workers of an elastic cluster are lost, join or are too few: the training continues with the present workers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import MachineError
from tests.support.runs import trainer_runs
from tests.support.runs.elastic_cluster import ElasticCluster
from tests.support.runs.trainer_runs import Prepared, Training

STEPS = 900
ELASTIC: dict[str, Any] = {
    "steps": STEPS,
    "batch_size": 256,
    "learning_rate": 0.01,
    "checkpoint": {"every_steps": 100, "keep": 3},
    "strategy": {
        "kind": "parameter_server",
        "workers": 2,
        "max_workers": 4,
        "min_workers": 2,
        "ps": 2,
        "shard_over_mb": 0.0001,
    },
}
REPEATED = 3 * 10
"""Steps of the closures of the workers that are killed in these tests, at most."""


@pytest.mark.both_lines
@pytest.mark.slow
def test_workers_join_and_leave(prepared: Prepared, tmp_path: Path) -> None:
    # Enough steps for workers to join before the last step, also on a fast machine.
    steps = 3000
    with ElasticCluster(prepared, tmp_path, {**ELASTIC, "steps": steps}) as cluster:
        cluster.start("ps-0", "ps-1", "worker-2", "chief-0")
        cluster.until_logged("waiting for workers: expected at least 2 (training.strategy.min_workers), present: wor")
        cluster.start("worker-0")
        cluster.until_step(100)
        assert set(cluster.steps_by_worker()) == {"worker-0", "worker-2"}
        cluster.start("worker-1", "worker-3")
        cluster.until(lambda: len(cluster.steps_by_worker()) == 4)
        # The worker does not come back, and enough workers are left.
        cluster.kill("worker-0", "worker-2")
        lost = cluster.step()
        cluster.until_step(lost + 200)
        remaining = cluster.steps_by_worker()
        # Now too few workers are left.
        cluster.kill("worker-3")
        cluster.until_logged(
            "waiting for workers: expected at least 2 (training.strategy.min_workers), present: worker-1"
        )
        assert cluster.step() < steps
        cluster.start("worker-2")
        cluster.end()
        step_counts = cluster.steps_by_worker()
        assert steps <= cluster.step() <= steps + REPEATED
        assert step_counts["worker-0"] == remaining["worker-0"], "it took no step after it was lost"
        assert step_counts["worker-2"] > remaining["worker-2"], "it takes part again"
        assert steps - REPEATED <= sum(step_counts.values()) <= steps, "every step was taken by one of them"
    assert trainer_runs.auc(prepared, tmp_path) > 0.95


@pytest.mark.slow
def test_sigterm_while_there_are_too_few_workers_saves_a_checkpoint(prepared: Prepared, tmp_path: Path) -> None:
    with ElasticCluster(prepared, tmp_path, ELASTIC) as cluster:
        cluster.start("ps-0", "ps-1", "worker-0", "worker-1", "chief-0")
        cluster.until_step(150)
        cluster.kill("worker-0", "worker-1")
        cluster.until_logged("present: none")
        cluster.signal("chief-0", signal.SIGTERM)
        cluster.until_logged("received SIGTERM: saved a checkpoint at step")
        # A cluster with other numbers of workers and parameter servers continues the training.
        saved = cluster.step()
    strategy = {**ELASTIC["strategy"], "workers": 3, "ps": 1}
    (tmp_path / "chief-0.log").rename(tmp_path / "first.log")
    with ElasticCluster(prepared, tmp_path, {**ELASTIC, "strategy": strategy}) as cluster:
        cluster.start("ps-0", "worker-1", "worker-3", "chief-0")
        cluster.end()
        assert STEPS - saved - REPEATED <= sum(cluster.steps_by_worker().values()) <= STEPS - saved + 50
    assert trainer_runs.auc(prepared, tmp_path) > 0.95


@pytest.mark.slow
def test_worker_that_gives_no_answer_has_the_chief_restarted_without_it(prepared: Prepared, tmp_path: Path) -> None:
    config = {**ELASTIC, "strategy": {**ELASTIC["strategy"], "min_workers": 1}}
    with ElasticCluster(prepared, tmp_path, config, silent_seconds=5) as cluster:
        cluster.start("ps-0", "ps-1", "worker-0", "worker-1", "chief-0")
        cluster.until_step(150)
        cluster.signal("worker-1", signal.SIGSTOP)
        with pytest.raises(MachineError, match="exit code 138"):
            cluster.end()
        (tmp_path / "chief-0.log").rename(tmp_path / "first.log")
        cluster.start("chief-0")
        cluster.end()
        assert set(cluster.steps_by_worker()) == {"worker-0"}
        assert cluster.step() >= STEPS
    assert trainer_runs.auc(prepared, tmp_path) > 0.95


@pytest.mark.slow
def test_local_cluster_continues_without_a_worker_that_is_not_restarted(prepared: Prepared, tmp_path: Path) -> None:
    strategy = {**ELASTIC["strategy"], "min_workers": 1}
    # Read from the files, so that workers read their assigned batches.
    config = {**ELASTIC, "cache": "none", "max_restarts": 0, "strategy": strategy}
    running = Training(prepared, tmp_path, config)
    running.until_step(100)
    running.kill("worker-1")
    summary = running.end()
    assert STEPS <= summary["steps"] <= STEPS + REPEATED
    assert summary["restarts"] == 0
    assert "worker-1 was killed by SIGKILL" in running.log.read_text()
    assert "(joined: none; left: worker-1)" in (tmp_path / "run" / "logs" / "chief-0.log").read_text()
    assert trainer_runs.auc(prepared, tmp_path) > 0.95
