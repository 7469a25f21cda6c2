"""A pipeline with its rows, versions or artifacts in a bucket: runs, resumes, a rollback, predictions, serving."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from components.results import version_manifest
from pipeline.core.metadata.store import Store
from pipeline.inspection.report import content
from tests.support.data import people
from tests.support.runs.command import OWN_CODE, Runs, command, first_run
from tests.support.servers import object_stores
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.serving import serving

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(params=object_stores.SERVERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    with object_stores.serve(request.param, tmp_path) as store:
        yield store


def write_rows(store: ObjectStore, folder: Path) -> str:
    """Write two files of rows to the bucket, and return their pattern."""
    table = people.rows(600)
    for part in range(2):
        name = f"rows/part-{part}.csv"
        store.upload(name, people.write(folder / name, table[part::2]))
    store.upload("new.csv", people.write_new(folder / "new.csv"))
    # TensorFlow reads gs://, and does not know the address of an emulator.
    return f"{folder if store.url.startswith('gs://') else store.url}/rows/part-*.csv"


def test_pipeline_on_a_bucket(store: ObjectStore, tmp_path: Path) -> None:
    pattern = write_rows(store, tmp_path)
    later = store.url.replace("rides", "later")
    config = people.write_config(tmp_path / "people.yaml", Path("unused"))
    arguments = (
        "--config",
        str(config),
        "--set",
        f"data.path={pattern}",
        "--set",
        f"push.directory={later}/models/people",
    )
    own = first_run(tmp_path, "people", *arguments, environment=store.environment)
    assert (own.first.exit_code, own.first.nodes("failed")) == (2, {"Pusher"})
    headline = own.first.result["error"]["headline"]
    assert headline.startswith(f"{later}/models/people")
    assert "does not exist" in headline

    store.make_bucket("later")
    resumed = own.again("--resume", "latest", environment=store.environment)
    assert (resumed.exit_code, resumed.result["state"], resumed.result["verdict"]) == (0, "done", "blessed")
    assert resumed.result["run"] == own.first.result["run"]
    again = own.again("--set", "training.steps=210", environment=store.environment)
    assert (again.exit_code, again.nodes("cached") >= {"ExampleGen", "Transform"}) == (0, True)
    first, second = (int(ended.result["pushed_version"]) for ended in (resumed, again))

    folder = f"{later}/models/people"
    verified = command("models", "verify", "--models", folder, environment=store.environment)
    assert [line.split(":")[0] for line in verified.out.splitlines()] == [str(first), str(second)]
    rolled = command(
        "models", "rollback", *own.config, "--output", str(own.output.parent), environment=store.environment
    )
    assert rolled.out == f"{folder}: stable {first}; it was stable {second}\n"

    # The same rows on this machine result in the same examples, and so in the same model.
    local = ("--set", f"data.path={tmp_path}/rows/part-*.csv", "--set", f"push.directory={tmp_path}/pushed")
    copied = first_run(tmp_path / "local", "people", *arguments, *local)
    assert copied.first.exit_code == 0, copied.first.err
    assert copied.first.result["metrics"] == resumed.result["metrics"]

    mirrored = tmp_path / "mirror" / "people"
    ended = command("models", "mirror", "--models", folder, "--into", str(mirrored), environment=store.environment)
    assert (ended.exit_code, ended.out) == (0, f"{mirrored}: stable {first}\n")
    assert version_manifest.verify(mirrored / str(first)).run == resumed.result["run"]
    rows = tmp_path / "new.csv" if store.url.startswith("gs://") else f"{store.url}/new.csv"
    outputs = []
    for model, into in ((f"{folder}/{first}", "a"), (str(mirrored / str(first)), "b")):
        if model.startswith("gs://"):
            continue
        options = (
            "--model",
            model,
            "--data",
            str(rows),
            "--into",
            str(tmp_path / into),
            "--columns",
            "id",
            *own.config,
        )
        ended = command("predict", *options, "--format", "csv", environment=store.environment)
        assert ended.exit_code == 0, ended.err
        [file] = (tmp_path / into).glob("*.csv*")
        outputs.append(pyarrow.csv.read_csv(file))
    if not store.url.startswith("gs://"):
        into = f"{store.url}/predictions"
        options = ("--model", f"{folder}/{first}", "--data", str(rows), "--into", into, "--columns", "id", *own.config)
        ended = command("predict", *options, environment=store.environment)
        assert ended.exit_code == 0, ended.err
        written = store.names("predictions/")
        assert "_manifest.json" in written
        assert not [name for name in written if ".parts" in name]
    assert all(table.equals(outputs[0]) for table in outputs)
    assert outputs[0].num_rows == 300
    with serving(tmp_path / "server", f"--model_config_file={mirrored}/rollout/models.config") as server:
        server.wait("people", first)
        status, answer = server.ask(
            "POST",
            "/v1/models/people/labels/stable:predict",
            {
                "signature_name": "raw",
                "instances": [{"age": 40.5, "hours": 50, "city": "Paris"}],
            },
        )
        assert status == 200, answer


def start_on_a_bucket(store: ObjectStore, folder: Path, *only: str, **sections: Any) -> tuple[Runs, str]:
    """Run the people with artifacts in the bucket; return the runs and the URL of the artifacts."""
    if store.url.startswith("gs://"):
        pytest.skip("TensorFlow writes to gs:// itself, and does not know the address of an emulator")
    url = f"{store.url}/artifacts/people"
    sets = (f"runtime.artifacts={url}", f"push.directory={store.url}/models/people")
    arguments = (
        "--config",
        str(people.project(folder, **sections)),
        *(w for setting in sets for w in ("--set", setting)),
    )
    environment = {**store.environment, "PYTHONPATH": f"{store.environment['PYTHONPATH']}:{OWN_CODE['PYTHONPATH']}"}
    return first_run(folder, "people", *arguments, only=only, environment=environment), url


def list_copies(own: Runs) -> set[str]:
    """Return the files of the artifacts on this machine, relative to their root."""
    folder = own.output / "artifacts"
    paths = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return {str(path) for path in paths if ".system" not in path.parts}


def test_artifacts_in_a_bucket(store: ObjectStore, tmp_path: Path) -> None:
    own, url = start_on_a_bucket(store, tmp_path)
    assert own.first.exit_code == 0, own.first.err
    assert list_copies(own)
    # An artifact without files, such as an unused cache of analyzers, is an object in the bucket.
    names = store.names("artifacts/people/")
    assert {name for name in names if not name.endswith("/.empty")} == list_copies(own)
    with contextlib.closing(sqlite3.connect(own.output / "metadata.db")) as database:
        uris = {uri for (uri,) in database.execute("SELECT uri FROM Artifact WHERE uri != ''")}
    assert len(uris) > 10
    assert {uri.removesuffix("/value").rsplit("/", 3)[0] for uri in uris} == {url}
    # The summary of the run reads the copies.
    assert own.first.result["metrics"]["auc"] > 0.7
    check_run_without_copies(store, own, tmp_path / "elsewhere" / "out")


def check_run_without_copies(store: ObjectStore, own: Runs, output: Path) -> None:
    """Run a finished pipeline on another machine, which has the metadata, another folder and no artifacts."""
    other = replace(own, arguments=(*own.arguments[:-1], str(output)), output=output / own.pipeline)
    other.output.mkdir(parents=True)
    shutil.copy(own.output / "metadata.db", other.output)
    (other.output / "artifacts").mkdir()
    where = (*own.config, "--output", str(output))
    planned = command("plan", *where, "--json", environment=store.environment).result
    assert {node["id"] for node in planned["nodes"] if node["will"] == "run"} == {"LatestBlessedModel"}
    cached = other.again(environment=store.environment)
    assert cached.nodes("cached") == set(own.first.states) - {"LatestBlessedModel"}, cached.err
    assert list_copies(other) == set()

    # Everything that reads artifacts opens the bucket, and finds what the first machine finds on its disk.
    assert cached.result["metrics"] == own.first.result["metrics"]
    shown, shown_before = (
        command("runs", "show", run.result["run"], *own.config, *place, "--json", environment=store.environment).result
        for run, place in ((cached, ("--output", str(output))), (own.first, ("--output", str(own.output.parent))))
    )
    assert {**shown["summary"], "model": None} == {**shown_before["summary"], "model": None}
    assert shown["results"] == shown_before["results"]
    reports = []
    for runs, ended in ((other, cached), (own, own.first)):
        reader = Store(runs.output / "metadata.db")
        [run] = reader.runs_like(ended.result["run"])
        reports.append(content.collect(reader, runs.output / "logs", run))
    for name in ("missing", "columns", "anomalies", "vocabularies", "curves", "plots", "importance", "manifest"):
        assert getattr(reports[0], name) == getattr(reports[1], name), name
    assert reports[0].curves
    row = '{"age": 40.5, "hours": 50, "city": "Paris", "spent": 4.0}'
    explained = [
        command("explain", "--row", row, "--json", *own.config, "--output", str(place), environment=store.environment)
        for place in (output, own.output.parent)
    ]
    assert explained[0].result["rows"] == explained[1].result["rows"]
    assert list_copies(other) == set()

    retrained = other.again("--set", "training.steps=210", environment=store.environment)
    assert retrained.nodes("done") >= {"Trainer", "Evaluator", "Pusher"}, retrained.err
    assert retrained.nodes("cached") >= {"ExampleGen", "StatisticsGen", "SchemaGen", "Transform"}
    # Only what a node reads is copied.
    nodes = {path.partition("/")[0] for path in list_copies(other)}
    assert nodes >= {"ExampleGen", "Transform", "Trainer"}
    assert "ExampleValidator" not in nodes


def test_killed_run_resumes_with_artifacts_in_a_bucket(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "deed").write_text("abort")
    own_code = {
        "features": {"preprocessing_fn": "own_code.preprocessing_fn"},
        "model": {"run_fn": "own_code.run_fn"},
        "evaluation": {
            "label_key": "rich",
            "preprocessing": ["transform_features"],
            "metrics": ["auc"],
            "thresholds": {"auc": {"min": 0.7}},
        },
    }
    own, _ = start_on_a_bucket(store, tmp_path, "--to", "Transform", **own_code)
    environment = {**store.environment, "OWN_CODE_DEED": str(tmp_path / "deed")}
    environment["PYTHONPATH"] += f":{OWN_CODE['PYTHONPATH']}"
    died = own.again(environment=environment)
    assert (died.exit_code, died.nodes("failed")) == (1, {"Trainer"}), died.result["error"]
    # The Trainer's inputs come from the bucket.
    run = died.result["run"]
    shutil.rmtree(own.output / "artifacts")
    resumed = own.again("--resume", "latest", environment=environment)
    assert (resumed.exit_code, resumed.result["run"]) == (0, run), resumed.err
    assert resumed.nodes("done") >= {"Trainer", "Evaluator", "Pusher"}
