"""The DAG under Airflow's CeleryExecutor with a real Redis: queues, and a pool."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from pipeline.authoring.config.airflow import AirflowConfig
from pipeline.authoring.config.orchestrators import ScheduleConfig
from pipeline.core.metadata.store import Store
from pipeline.orchestration.airflow import Dag, pipeline_file, write_dag
from pipeline.orchestration.local import processes
from tests.support.runs.command import ROOT
from tests.support.runs.toy_runs import compile_in_child
from tests.support.servers.airflow_site import Airflow, forking_airflow
from tests.support.servers.in_fork_server import in_child
from tests.support.servers.redis_server import redis

pytestmark = [pytest.mark.e2e, pytest.mark.orchestrator, pytest.mark.slow, pytest.mark.needs("airflow", "redis-server")]

NODES = ["Source", "Add", "Actor", "Rows"]


def start_worker(site: Airflow, queue: str) -> None:
    """Start a worker that takes the tasks of one queue, one at a time."""
    options = ("--queues", queue, "--celery-hostname", f"{queue}@%h", "--concurrency", "1", "--skip-serve-logs")
    site.start_part(f"worker-{queue}", "celery", "worker", *options, "--without-mingle", "--without-gossip")


def test_nodes_run_on_the_workers_of_their_queues(tmp_path: Path) -> None:
    compiled = functools.partial(compile_in_child, tmp_path, "chain", 1)
    ir, graph = in_child(tmp_path / "log", processes.compile_pipeline, compiled)
    schedule = ScheduleConfig.model_validate(
        {"every": "@yearly", "start": "2999-01-01", "retries": 3, "retry_minutes": 0}
    )
    section = AirflowConfig.model_validate(
        {"tasks": {"every": {"queue": "cpu"}, "Actor": {"queue": "gpu", "pool": "gpus", "pool_slots": 2}}}
    )
    with redis(tmp_path) as broker:
        environment = {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": broker.url,
        }
        home = tmp_path / "airflow"
        home.mkdir()
        with forking_airflow(home, environment) as site:
            file = pipeline_file(site.dags, "toy")
            file.parent.mkdir()
            file.write_bytes(ir)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", str(ROOT))
                write_dag(Dag("toy", graph, (), tmp_path / "logs", schedule, section), site.dags)
            site.fork("toy")
            site.command("pools", "set", "gpus", "2", "GPUs of the workers")
            site.knows("toy")
            start_worker(site, "cpu")
            site.trigger("toy", "manual__one")
            # Nobody takes the task of the other queue: it waits in Redis, after the tasks before it have ended.
            site.until(lambda: broker.command("LLEN", "gpu") == "1", "no task waits in Redis")
            assert sorted(map(str, filter(None, site.task_states("toy")))) == ["queued", "success", "success"]
            start_worker(site, "gpu")
            assert site.ended("toy") == {"manual__one": "success"}
            assert site.tasks("toy", "manual__one") == dict.fromkeys(NODES, ("success", 1))
            rows = site.ask("SELECT task_id, queue, pool, pool_slots FROM task_instance ORDER BY start_date")
            expected = dict.fromkeys(NODES, ("cpu", "default_pool", 1)) | {"Actor": ("gpu", "gpus", 2)}
            assert {row[0]: row[1:] for row in rows} == expected
            log = (site.home / "worker-gpu.log").read_text()
            assert log.count("succeeded in") == 1
    executions = Store(tmp_path / "metadata.db").executions("manual__one")
    assert [(execution.node, execution.state) for execution in executions] == [(node, "COMPLETE") for node in NODES]
