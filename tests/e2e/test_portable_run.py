"""The shipped example on a Beam job service in another process gives the same model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runs.command import Runs, command
from tests.support.servers.beam_servers import Server, job_service, pool

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Yield a job service and a worker pool."""
    folder = tmp_path_factory.mktemp("beam")
    with job_service(folder / "service.log") as service, pool(folder / "pool") as workers:
        yield service, workers


def test_whole_pipeline_on_a_job_service_and_a_pool(taxi: Runs, servers: tuple[Server, Server], tmp_path: Path) -> None:
    service, workers = servers
    arguments = ("--local", "--json", "--output", str(tmp_path), "--engine", "portable")
    fields = (f"runtime.portable.job_endpoint={service.address}", f"runtime.portable.worker_pool={workers.address}")
    ended = command(*arguments, *(word for field in fields for word in ("--set", field)))
    assert (ended.exit_code, ended.err) == (0, "")
    result, direct = ended.result, taxi.first.result
    assert result["beam"] == [
        f"Beam: portable, job service {service.address}, EXTERNAL: workers in the pool {workers.address}"
    ]
    assert workers.workers_started >= 4, "ExampleGen, StatisticsGen, Transform and the Evaluator"
    assert ended.nodes("done") == taxi.first.nodes("done")
    assert (result["state"], result["verdict"], result["rows"]) == ("done", "blessed", direct["rows"])
    # Equal rows and features give an equal training and an equal model.
    assert set(result["metrics"]) == set(direct["metrics"])
    assert result["metrics"] == pytest.approx(direct["metrics"], abs=1e-3)
    assert [entry["slice"] for entry in result["slices"]] == [entry["slice"] for entry in direct["slices"]]
    assert result["serving"]["passed"]
