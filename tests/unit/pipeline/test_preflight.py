"""What would end a push is told before the run begins."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from components.errors import InputError, MachineError
from pipeline import preflight
from pipeline.config import Config, Loaded, load


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    (tmp_path / "rows.csv").write_text("fare,tips\n1.5,0\n")
    config = tmp_path / "small.yaml"
    config.write_text(
        f"data: {{path: {tmp_path / 'rows.csv'}, label: tips}}\n"
        "features: {columns: {fare: z_score}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        f"push: {{directory: {tmp_path / 'pushed'}, signing_key_env: MY_KEY}}\n"
        f"runtime: {{output: {tmp_path / 'out'}}}\n"
    )
    return load(str(config))


def test_nothing_stands_in_the_way(loaded: Loaded) -> None:
    preflight.check(loaded)


def test_a_damaged_state_of_the_push_folder(loaded: Loaded, tmp_path: Path) -> None:
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "registry.json").write_text('{"stable": 1')
    with pytest.raises(InputError, match=r"registry\.json is damaged"):
        preflight.check(loaded)


def test_a_signing_key_that_did_not_arrive(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "")
    with pytest.raises(InputError, match="MY_KEY is set, and empty"):
        preflight.check(loaded)


def hashed(loaded: Loaded, kind: str = "mlp", cluster: str = "local", **options: int) -> Config:
    """The config whose feature is a hash of 100 million buckets."""
    values = loaded.config.model_dump(by_alias=True)
    values["features"]["columns"]["fare"] = [{"op": "hash", "buckets": 100_000_000, **options}]
    values["model"]["kind"], values["training"]["cluster"] = kind, cluster
    return Config.model_validate(values)


@pytest.mark.parametrize(
    ("kind", "options", "numbers"),
    [("mlp", {}, 16), ("mlp", {"embedding": 3}, 3), ("wide_deep", {"embedding": 3}, 4), ("dlrm", {}, 17)],
)
def test_a_table_of_ids_that_no_memory_holds(loaded: Loaded, kind: str, options: dict[str, int], numbers: int) -> None:
    config = hashed(loaded, kind, **options)
    needed = (100_000_000 + 1) * numbers * 3 * 4
    assert preflight._of_tables(config, needed) == []
    (problem,) = preflight._of_tables(config, needed - 1)
    assert problem.key == ("features", "columns", "fare", 0, "hash")
    size = f"{needed / 2**30:.1f}"
    assert f"take {size} GiB in training, that of 'fare_hash' {size}, and this machine has {size}" in problem.message


def test_a_table_of_ids_that_is_not_held_here(loaded: Loaded) -> None:
    assert preflight._of_tables(hashed(loaded, cluster="given"), 1) == []


def test_what_is_refused_before_a_run_is_the_memory_of_this_machine(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight.doctor, "memory", lambda: (2**30, 2**29))
    with pytest.raises(InputError, match=r"small.yaml:2: features.columns.fare.*this machine has 1.0; lower"):
        preflight.check(Loaded(hashed(loaded), loaded.document))


DATAFLOW = {"project": "p", "region": "us-central1", "image": "i", "temp_location": "gs://b/tmp"}


def on(loaded: Loaded, engine: str, section: dict[str, Any], **more: Any) -> Loaded:
    """The same config with another engine."""
    values = loaded.config.model_dump(by_alias=True)
    values["runtime"] |= {"engine": engine, engine: section, **more}
    return Loaded(Config.model_validate(values), loaded.document)


@pytest.mark.parametrize("engine", ["flink", "spark", "portable"])
def test_an_engine_has_to_answer(loaded: Loaded, engine: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        section = {"job_endpoint": f"localhost:{server.getsockname()[1]}"}
        preflight.check(on(loaded, engine, section))
    with pytest.raises(MachineError) as raised:
        preflight.check(on(loaded, engine, section))
    assert raised.value.headline == (
        f"engine {engine}: expected somebody to answer at {section['job_endpoint']}, received Connection refused"
    )


def test_each_pool_has_to_answer(loaded: Loaded) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        pools = [f"localhost:{server.getsockname()[1]}" for server in (one, two)]
        preflight.check(on(loaded, "portable", {"worker_pools": pools}))
        two.close()
        with pytest.raises(MachineError, match=f"answer at {pools[1]}"):
            preflight.check(on(loaded, "portable", {"worker_pools": pools}))


@pytest.mark.parametrize("engine", ["flink", "spark"])
def test_a_jar_has_to_be_there_and_java_with_it(
    loaded: Loaded, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar, java = tmp_path / "server.jar", tmp_path / "bin" / "java"
    asked = on(loaded, engine, {"job_server_jar": str(jar)})
    with pytest.raises(InputError, match=f"runtime.{engine}.job_server_jar: expected a file, and there is none at"):
        preflight.check(asked)
    jar.touch()
    monkeypatch.setenv("PATH", str(java.parent))
    with pytest.raises(MachineError, match="there is no java on PATH"):
        preflight.check(asked)
    java.parent.mkdir()
    java.touch(mode=0o755)
    preflight.check(asked)


@pytest.mark.parametrize(
    ("engine", "section"),
    [
        ("dataflow", DATAFLOW),
        ("flink", {"job_endpoint": "jobs.invalid:8099"}),
        ("spark", {"job_endpoint": "jobs.invalid:8099"}),
        ("portable", {"worker_pools": ["pool.invalid:50000"]}),
    ],
)
def test_an_engine_on_other_machines_cannot_read_this_ones_disk(
    loaded: Loaded, tmp_path: Path, engine: str, section: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=f"engine {engine} works on other machines") as raised:
        preflight.check(on(loaded, engine, section))
    artifacts = f"runtime.artifacts: {tmp_path / 'out' / 'small' / 'artifacts'}"
    assert raised.value.details == (f"data.path: {tmp_path / 'rows.csv'}", artifacts)
    assert ("shared_folders=true" in raised.value.remedy) == (engine != "dataflow")
    with pytest.raises(InputError) as raised:
        preflight.check(on(loaded, engine, section, artifacts="gs://bucket/out"))
    assert raised.value.details == (f"data.path: {tmp_path / 'rows.csv'}",)


def test_folders_that_are_shared_are_read_from_everywhere(loaded: Loaded) -> None:
    with pytest.raises(MachineError, match=r"expected somebody to answer at jobs\.invalid:8099"):
        preflight.check(on(loaded, "flink", {"job_endpoint": "jobs.invalid:8099", "shared_folders": True}))
