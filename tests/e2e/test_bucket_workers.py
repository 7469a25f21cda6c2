"""Airflow and Kubeflow with workers that share no disk: every node has its own, and artifacts come from the bucket."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pipeline.core.metadata.location import Database
from pipeline.core.metadata.store import Store
from tests.support.data import people
from tests.support.runs.command import ROOT, Ended, Runs, command, first_run
from tests.support.runs.lineage_edges import edges
from tests.support.servers import airflow_site, another_machine, kubeflow_pipelines, object_stores, own_disk
from tests.support.servers.databases import PASSWORD, SERVERS
from tests.support.servers.forked_command import ForkedCommand, interpreter
from tests.support.servers.object_stores import ObjectStore

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.orchestrator,
    pytest.mark.slow,
    pytest.mark.skipif(not another_machine.is_possible(), reason="own mounts take root"),
]
_SECONDS = 600
"""No command takes this long: it only ends one that hangs."""


@pytest.fixture(params=[object_stores.SEAWEEDFS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    with object_stores.serve(request.param, tmp_path) as store:
        yield store


def select_options(store: ObjectStore, database: Database, config: Path) -> tuple[str, ...]:
    """Return the options of a pipeline whose rows, artifacts and versions are in the bucket."""
    settings = (
        f"data.path={store.url}/people.csv",
        f"runtime.artifacts={store.url}/artifacts",
        f"push.directory={store.url}/models/people",
        f"metadata.backend={database.backend}",
        f"metadata.host={database.host}",
        f"metadata.port={database.port}",
        f"metadata.database={database.name}",
        f"metadata.user={database.user}",
    )
    return ("--config", str(config), *(word for setting in settings for word in ("--set", setting)))


def run_on_this_machine(folder: Path, config: Path) -> Runs:
    """Run the same pipeline with its rows, artifacts and versions on this machine's disk."""
    local = first_run(folder / "local", "people", "--config", str(config))
    assert local.first.exit_code == 0, local.first.err
    return local


def check_exchange(store: ObjectStore, disks: Path, artifacts: str = "") -> None:
    """Check that each disk has only the artifacts that its node has read or written, all of which the bucket has."""
    files = own_disk.list_files(disks, artifacts)
    in_bucket = {name for name in store.names("artifacts/") if not name.endswith("/.empty")}
    assert set().union(*files.values()) == in_bucket
    producers = {node: {name.partition("/")[0] for name in names} for node, names in files.items()}
    expected = {
        "ExampleGen": {"ExampleGen"},
        "StatisticsGen": {"ExampleGen", "StatisticsGen"},
        "Transform": {"ExampleGen", "SchemaGen", "Transform"},
    }
    assert {node: producers[node] for node in expected} == expected
    assert producers["Trainer"] >= {"Transform", "Trainer"}
    assert "ExampleValidator" not in producers["Trainer"]
    assert producers["Pusher"] >= {"Trainer", "Evaluator", "Pusher"}


def show_run(run: str, options: tuple[str, ...], environment: Mapping[str, str]) -> Ended:
    """Show a run on a machine that has no copies."""
    return command("runs", "show", run, *options, "--json", environment=environment)


@pytest.mark.needs("airflow")
def test_airflow(store: ObjectStore, tmp_path: Path) -> None:
    config, out = people.project(tmp_path), tmp_path / "out"
    local = run_on_this_machine(tmp_path, config)
    store.upload("people.csv", tmp_path / "people.csv")
    own = own_disk.make_environment(out, tmp_path / "disks")
    secret = {"METADATA_PASSWORD": PASSWORD}
    # Airflow's own interpreter does not get the packages of the project.
    of_workers = {name: value for name, value in store.environment.items() if name != "PYTHONPATH"}
    home = tmp_path / "airflow"
    home.mkdir()
    with (
        interpreter(own_disk.main, home, _SECONDS) as python,
        airflow_site.airflow(home, python, {**of_workers, **own, **secret}) as site,
    ):
        database = site.database.add("people")
        options = (*select_options(store, database, config), "--set", f"runtime.output={out}")
        environment = {**store.environment, **secret}
        written = command("--airflow", *options, "--output", str(site.dags), environment=environment)
        assert (written.exit_code, written.err) == (0, "")
        site.fork("people")
        site.knows("people")
        nodes = set(local.first.states)
        for number, run in enumerate(("first", "second"), start=1):
            site.trigger("people", run)
            assert site.ended("people", runs=number)[run] == "success", site.tasks("people", run)
            assert site.tasks("people", run) == dict.fromkeys(nodes, ("success", 1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("METADATA_PASSWORD", PASSWORD)
            reader = Store(database)
            assert edges(reader, "first") == edges(Store(local.output / "metadata.db"), local.first.result["run"])
            states = {execution.node: execution.state for execution in reader.executions("second")}
        assert {node for node, state in states.items() if state == "CACHED"} == nodes - {"LatestBlessedModel"}
        summary = show_run("second", options, environment).result["summary"]
    assert summary["metrics"] == pytest.approx(local.first.result["metrics"], abs=1e-6)
    assert not [path for path in out.rglob("*") if path.is_file()]
    check_exchange(store, tmp_path / "disks", "people/artifacts")
    # The worker that runs last has all results for the report.
    [report] = (tmp_path / "disks").glob("Pusher-*/people/logs/first/report.html")
    assert "Left out: the model was not evaluated" not in report.read_text()


class Pods(kubeflow_pipelines.Cluster):
    """A cluster whose containers share the volume of the claim, but have artifacts on separate disks."""

    def execute(self, task: str, arguments: list[str], environment: dict[str, str]) -> None:
        forked = ForkedCommand(own_disk.main, arguments, ROOT, {**os.environ, **environment})
        code, _, err = forked.wait(_SECONDS)
        assert code == 0, (task, err[-4000:])


@kubeflow_pipelines.needs_kfp
def test_kubeflow(store: ObjectStore, tmp_path: Path) -> None:
    config, volume = people.project(tmp_path), tmp_path / "volume"
    local = run_on_this_machine(tmp_path, config)
    store.upload("people.csv", tmp_path / "people.csv")
    artifacts = volume / "out" / "people" / "artifacts"
    own = own_disk.make_environment(artifacts, tmp_path / "disks")
    variables = {**store.environment, **own}
    keys = {"METADATA_PASSWORD": PASSWORD, "AWS_SECRET_ACCESS_KEY": variables.pop("AWS_SECRET_ACCESS_KEY")}
    section = {
        "image": "example.com/pipeline:1",
        "claim": "pipeline",
        "mount": str(volume),
        "environment": variables,
        "secrets": {name: {"secret": "keys", "key": name} for name in keys},  # pragma: allowlist secret
    }
    with SERVERS["postgresql"]() as server:
        options = select_options(store, server.location, config)
        file = tmp_path / "pipeline.yaml"
        environment = {**store.environment, **keys}
        settings = ("--set", f"kubeflow={json.dumps(section)}")
        written = command("--kubeflow", *options, *settings, "--output", str(file), environment=environment)
        assert (written.exit_code, written.err) == (0, "")
        pods = Pods(tmp_path / "cluster", {("keys", name): value for name, value in keys.items()})
        run = pods.run(kubeflow_pipelines.read(file))
        where = ("--output", str(volume / "out"))
        summary = show_run(run, (*options, *where), environment).result["summary"]
    assert summary["metrics"] == pytest.approx(local.first.result["metrics"], abs=1e-6)
    assert pods.artifacts["evaluator"]["metrics"]["metadata"] == pytest.approx(summary["metrics"], abs=1e-6)
    # Kubeflow's page names places that outlive the containers.
    assert pods.artifacts["example-gen"]["examples"]["uri"].startswith(f"{store.url}/artifacts/ExampleGen/examples/")
    assert pods.artifacts["trainer"]["model"]["uri"].startswith(f"{store.url}/artifacts/Trainer/model/")
    assert pods.artifacts["pusher"]["pushed_model"]["uri"] == f"{store.url}/models/people/{summary['pushed_version']}"
    assert not list(artifacts.iterdir())
    check_exchange(store, tmp_path / "disks")
