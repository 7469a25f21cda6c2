"""Tests for the checks before a run: the engine answers, its jar exists, and its workers can read the data."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError, MachineError
from pipeline.authoring.config import Config, Loaded
from pipeline.orchestration.engines import checks, flink_checks
from tests.support.data.small_config import load_small
from tests.support.fakes.fake_flink import FakeFlink, fake_flink


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return load_small(tmp_path)


def check(loaded: Loaded) -> None:
    checks.check(loaded.config, loaded.config.paths())


DATAFLOW = {"project": "p", "region": "us-central1", "image": "i", "temp_location": "gs://b/tmp"}


def use_engine(loaded: Loaded, engine: str, section: dict[str, Any], **more: Any) -> Loaded:
    """Return a copy of the config with another engine.

    Args:
      loaded: The config.
      engine: Name of the engine.
      section: Section of the engine.
      more: Further fields of `runtime`.
    """
    values = loaded.config.model_dump(by_alias=True)
    values["runtime"] |= {"engine": engine, engine: section, **more}
    return Loaded(Config.model_validate(values), loaded.document)


@pytest.mark.parametrize("engine", ["flink", "spark", "portable"])
def test_engine_must_answer(loaded: Loaded, engine: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        section = {"job_endpoint": f"localhost:{server.getsockname()[1]}"}
        check(use_engine(loaded, engine, section))
    with pytest.raises(MachineError) as raised:
        check(use_engine(loaded, engine, section))
    assert raised.value.headline == (
        f"engine {engine}: expected a server at {section['job_endpoint']}, received Connection refused"
    )


def test_worker_pool_must_answer(loaded: Loaded) -> None:
    with socket.create_server(("127.0.0.1", 0)) as job_server, socket.create_server(("127.0.0.1", 0)) as worker_pool:
        service, pool = (f"localhost:{server.getsockname()[1]}" for server in (job_server, worker_pool))
        section = {"job_endpoint": service, "worker_pool": pool}
        check(use_engine(loaded, "portable", section))
        worker_pool.close()
        with pytest.raises(MachineError, match=f"a server at {pool}"):
            check(use_engine(loaded, "portable", section))


@pytest.mark.parametrize("engine", ["flink", "spark"])
def test_jar_and_java_must_exist(loaded: Loaded, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar, java = tmp_path / "server.jar", tmp_path / "bin" / "java"
    settings = use_engine(loaded, engine, {"job_server_jar": str(jar)})
    with pytest.raises(InputError, match=f"runtime.{engine}.job_server_jar: expected a file, received"):
        check(settings)
    jar.touch()
    monkeypatch.setenv("PATH", str(java.parent))
    with pytest.raises(MachineError, match="expected java on PATH"):
        check(settings)
    java.parent.mkdir()
    java.touch(mode=0o755)
    check(settings)


@pytest.mark.parametrize(
    ("engine", "section"),
    [
        ("dataflow", DATAFLOW),
        ("flink", {"job_endpoint": "jobs.invalid:8099"}),
        ("spark", {"job_endpoint": "jobs.invalid:8099"}),
        ("portable", {"job_endpoint": "localhost:8099", "worker_pool": "pool.invalid:50000"}),
    ],
)
def test_engine_on_other_machines_cannot_read_local_files(
    loaded: Loaded, tmp_path: Path, engine: str, section: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=f"engine {engine} works on other machines") as raised:
        check(use_engine(loaded, engine, section))
    artifacts = f"runtime.artifacts: {tmp_path / 'out' / 'small' / 'artifacts'}"
    assert raised.value.details == (f"data.path: {tmp_path / 'rows.csv'}", artifacts)
    assert ("shared_folders=true" in raised.value.remedy) == (engine != "dataflow")
    with pytest.raises(InputError) as raised:
        check(use_engine(loaded, engine, section, artifacts="gs://bucket/out"))
    assert raised.value.details == (f"data.path: {tmp_path / 'rows.csv'}",)


def test_shared_folders_can_be_read_from_other_machines(loaded: Loaded) -> None:
    with pytest.raises(MachineError, match=r"expected a server at jobs\.invalid:8099"):
        check(use_engine(loaded, "flink", {"job_endpoint": "jobs.invalid:8099", "shared_folders": True}))


@pytest.fixture
def flink() -> Iterator[FakeFlink]:
    with fake_flink() as fake:
        fake.overview = {"slots-total": 4}
        yield fake


def use_flink(loaded: Loaded, flink: FakeFlink, **section: Any) -> Loaded:
    # The check only connects to the job server, so the fake REST API can stand in for it.
    return use_engine(loaded, "flink", {"job_endpoint": flink.address, "rest": flink.address, **section})


def test_flink_must_have_enough_slots(loaded: Loaded, flink: FakeFlink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flink_checks, "_SLOT_SECONDS", 0)
    check(use_flink(loaded, flink, parallelism=4))
    with pytest.raises(MachineError, match=r"expected 5 slots \(runtime.flink.parallelism\), received 4"):
        check(use_flink(loaded, flink, parallelism=5))
    flink.config["parallelism.default"] = "6"
    with pytest.raises(MachineError, match="expected 6 slots"):
        check(use_flink(loaded, flink))


def test_task_managers_may_register_late(loaded: Loaded, flink: FakeFlink) -> None:
    flink.overview = {"slots-total": 0}
    with ThreadPoolExecutor(1) as threads:
        checked = threads.submit(check, use_flink(loaded, flink, parallelism=2))
        assert flink.asked_for_slots.wait(60)
        flink.overview = {"slots-total": 2}
        checked.result(60)


@pytest.mark.parametrize(
    ("settings", "received"),
    [
        ({}, None),
        ({"restart-strategy": "none"}, None),
        ({"restart-strategy.type": "fixed-delay"}, None),
        ({"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "10"}, None),
        (
            {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "2147483647"},
            "2,147,483,647 attempts",
        ),
        ({"restart-strategy.type": "exponential-delay"}, "the strategy exponential-delay"),
    ],
)
def test_flink_must_not_restart_jobs_endlessly(
    loaded: Loaded, flink: FakeFlink, settings: dict[str, str], received: str | None
) -> None:
    flink.config = settings
    if received is None:
        check(use_flink(loaded, flink))
    else:
        with pytest.raises(InputError, match=f"expected at most 10 attempts, received {received}"):
            check(use_flink(loaded, flink))
    check(use_flink(loaded, flink, worker_cache_seconds=0))


def test_rest_api_of_flink_must_answer(loaded: Loaded, flink: FakeFlink) -> None:
    flink.overview = {}
    with pytest.raises(MachineError, match=f"expected Flink's REST API at {flink.address}"):
        check(use_flink(loaded, flink))
