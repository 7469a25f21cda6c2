"""The inspection verbs on a real run of this project, and on a store that stock TFX has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.data import people
from tests.support.runs.command import Ended, Runs, command, light_command, program
from tests.support.runs.notebooks import execute
from tests.support.servers.ui_server import fetch_page, serve_pages

ours = pytest.mark.xdist_group("taxi")
pytestmark = pytest.mark.e2e


def query(output: Path, *arguments: str) -> Ended:
    ended = light_command(*arguments, "--store", str(output / "metadata.db"))
    assert (ended.exit_code, ended.err) == (0, "")
    return ended


@ours
def test_show_returns_what_the_run_printed_at_its_end(taxi: Runs):
    first = taxi.first.result
    rows = [json.loads(line) for line in query(taxi.output, "runs", "--json", "--limit", "0").out.splitlines()]
    row = next(row for row in rows if row["run"] == first["run"])
    assert (row["state"], row["verdict"], row["version"]) == ("done", "blessed", first["pushed_version"])
    assert row["metrics"] == first["metrics"]
    record = json.loads(query(taxi.output, "runs", "show", first["run"], "--json").out)
    assert set(record["nodes"]) == set(first["nodes"])
    for name, node in record["nodes"].items():
        assert node["cpu_seconds"] == first["nodes"][name]["cpu_seconds"]
    assert record["nodes"]["Trainer"]["parameters"]["custom_config.plan.model.kind"] == "wide_deep"


@ours
def test_pushed_version_leads_back_to_its_rows(taxi: Runs):
    first = taxi.first.result
    graph = json.loads(query(taxi.output, "store", "lineage", first["pushed_version"], "--format", "json").out)
    executions_by_node = {execution["node"]: execution for execution in graph["executions"]}
    assert {"ExampleGen", "SchemaGen", "Transform", "Trainer", "Evaluator", "InfraValidator", "Pusher"} <= set(
        executions_by_node
    )
    assert {execution["run"] for execution in executions_by_node.values()} == {first["run"]}
    assert graph["code"][str(executions_by_node["Trainer"]["id"])]
    # The manifest of the version and the metadata name the same config.
    manifest = json.loads((Path(first["pushed"]) / "manifest.json").read_text())
    assert graph["configs"][first["run"]] == manifest["config_digest"]
    [rows] = [
        artifact
        for artifact in graph["artifacts"]
        if artifact["uri"].endswith(f"examples/{executions_by_node['ExampleGen']['id']}")
    ]
    assert rows["properties"]["rows_read"] == 15_002


@pytest.fixture(scope="module")
def again(taxi: Runs) -> dict[str, Any]:
    """Return what a second run tells, with another number of steps."""
    return taxi.again("--set", "training.steps=20", "--to", "Trainer").result


@ours
def test_changed_field_is_the_reported_difference(taxi: Runs, again: dict[str, Any]):
    reason = json.loads(query(taxi.output, "runs", "why-not-cached", "Trainer", "--run", again["run"], "--json").out)
    changed = {difference["name"]: (difference["before"], difference["now"]) for difference in reason["differences"]}
    assert reason["earlier"]["run"] == taxi.first.result["run"]
    assert changed["custom_config.plan.training.steps"] == ("200", "20")
    assert {name.rpartition(".")[2] for name in changed} <= {"steps", "num_steps"}
    assert "was cached" in query(taxi.output, "runs", "why-not-cached", "Transform", "--run", again["run"]).out

    comparison = json.loads(query(taxi.output, "runs", "compare", taxi.first.result["run"], again["run"], "--json").out)
    assert comparison["config"] == {"training.steps": ["200", "20"]}
    assert (comparison["schema"], comparison["columns"]) == ({}, {})
    assert comparison["rows"]["train"][0] == comparison["rows"]["train"][1] == taxi.first.result["rows"]["train"]
    assert {row["metric"] for row in comparison["metrics"]} >= set(taxi.first.result["metrics"])

    columns = json.loads(query(taxi.output, "runs", "diff-data", taxi.first.result["run"], again["run"], "--json").out)[
        "columns"
    ]
    fare = next(column for column in columns if column["name"] == "fare")
    assert (fare["distance"], fare["before"]["rows"]) == (0, taxi.first.result["rows"]["train"])


@ours
def test_gc_keeps_all_artifacts_of_the_pushed_version(taxi: Runs, again: dict[str, Any]):
    assert again["state"] == "done"
    output = str(taxi.output.parent)
    result = command("store", "gc", "--keep", "1", "--json", "--output", output).result
    graph = json.loads(
        query(taxi.output, "store", "lineage", taxi.first.result["pushed_version"], "--format", "json").out
    )
    needed = {artifact["id"] for artifact in graph["artifacts"]}
    assert needed.isdisjoint(artifact["id"] for artifact in result["artifacts"])
    assert all(Path(artifact["uri"]).is_dir() for artifact in result["artifacts"]), "nothing was removed"


@ours
def test_notebook_runs_on_the_example(taxi: Runs):
    outputs = execute("history", taxi.output.parents[1])
    assert "blessed" in outputs[0]
    for output, words in zip(outputs[1:], (["ExampleGen"], ["learning_rate"], ["fare"], ["out"]), strict=False):
        assert all(word in output for word in words), outputs
    assert all(word in outputs[-1] for word in ("Examples", "Schema", "TransformGraph", "Model")), outputs


@pytest.fixture(scope="module")
def stock_taxi(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Run TFX's taxi example twice with TFX's runner; return the folder with the store, and the runs' IDs."""
    folder = tmp_path_factory.mktemp("stock_taxi")
    return folder, program("tests/support/programs/stock_taxi_run.py", request={"folder": str(folder)})["runs"]


@pytest.mark.slow
def test_stock_pipeline_is_shown_completely(stock_taxi: tuple[Path, list[str]]):
    folder, runs = stock_taxi
    rows = [json.loads(line) for line in query(folder, "runs", "--json").out.splitlines()]
    assert [row["run"] for row in rows] == runs[::-1]
    assert {(row["state"], row["verdict"]) for row in rows} == {("done", "blessed")}
    versions = [row["version"] for row in rows]
    assert all(versions)
    assert len(set(versions)) == 2
    # It imports TFMA, which alone reads the metrics of TFX's Evaluator.
    shown = command("runs", "show", runs[1], "--json", "--store", str(folder / "metadata.db"))
    record = json.loads(shown.out)["nodes"]
    assert {name: node["state"] for name, node in record.items()} == {
        **dict.fromkeys(("CsvExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform"), "cached"),
        **dict.fromkeys(("latest_blessed_model_resolver", "Trainer", "Evaluator", "Pusher"), "done"),
    }
    reason = json.loads(query(folder, "runs", "why-not-cached", "Trainer", "--json").out)
    changed = [(difference["name"], difference["before"], difference["now"]) for difference in reason["differences"]]
    assert changed == [("train_args.num_steps", "10", "11")]
    kinds = {json.loads(line)["type"] for line in query(folder, "store", "artifacts", "--json").out.splitlines()}
    assert {"Examples", "Schema", "TransformGraph", "Model", "ModelEvaluation", "ModelBlessing", "PushedModel"} <= kinds
    graph = json.loads(query(folder, "store", "lineage", versions[0], "--format", "json").out)
    runs_by_node = {execution["node"]: execution["run"] for execution in graph["executions"]}
    assert runs_by_node == {
        **dict.fromkeys(("CsvExampleGen", "StatisticsGen", "SchemaGen", "Transform"), runs[0]),
        **dict.fromkeys(("Trainer", "Evaluator", "Pusher"), runs[1]),
    }
    events = [json.loads(line) for line in query(folder, "store", "export", "--format", "openlineage").out.splitlines()]
    assert {event["eventType"] for event in events} == {"COMPLETE"}
    assert len(events) == 2 * len(record)


@pytest.mark.slow
def test_two_runs_of_a_stock_pipeline_are_compared(stock_taxi: tuple[Path, list[str]]):
    folder, runs = stock_taxi
    # The metrics of a stock Evaluator are read by TFMA.
    ended = command("runs", "compare", *runs, "--json", "--store", str(folder / "metadata.db"))
    assert (ended.exit_code, ended.err) == (0, "")
    comparison = ended.result
    assert (comparison["config"], comparison["schema"], comparison["columns"]) == (None, {}, {})
    assert sum(comparison["rows"][split][1] for split in ("train", "eval")) == 600
    [accuracy] = [row for row in comparison["metrics"] if row["metric"] == "binary_accuracy" and not row["slice"]]
    assert all(0 < accuracy[side] < 1 for side in ("before", "now"))
    assert comparison["verdict"] == ["blessed", "blessed"]
    columns = json.loads(query(folder, "runs", "diff-data", *runs, "--json").out)["columns"]
    assert {column["distance"] for column in columns} == {0, None}


@pytest.mark.slow
def test_stock_pipeline_has_its_pages(stock_taxi: tuple[Path, list[str]], tmp_path: Path):
    folder, runs = stock_taxi
    store = ("--store", str(folder / "metadata.db"))
    page = tmp_path / "report.html"
    ended = command("runs", "report", runs[1], "--model-card", "--into", str(page), *store)
    assert (ended.exit_code, ended.err) == (0, "")
    html = page.read_text(encoding="utf-8")
    assert "cannot be read" not in html
    for known in (
        *("no anomaly in train, eval", "The same rows as in run", "binary_accuracy", "epoch_loss", "trip_miles"),
        *("vocab_compute_and_apply_vocabulary", "latest_blessed_model_resolver", "ModelBlessing"),
    ):
        assert known in html, known
    for left_out in (
        *("the config of the run was not recorded", "the bounds of the model were not recorded"),
        "the manifest of the pushed version is missing",
    ):
        assert left_out in html, left_out
    card = json.loads((tmp_path / "model-card.json").read_text())
    assert [metric["type"] for metric in card["quantitative_analysis"]["performance_metrics"]] == ["binary_accuracy"]
    assert query(folder, "runs", "site", "--into", str(tmp_path)).out
    assert all(run in (tmp_path / "index.html").read_text(encoding="utf-8") for run in runs)
    with serve_pages(folder / "metadata.db") as (address, _):
        for path, known in (("", runs[0]), (f"run/{quote(runs[1])}/", "binary_accuracy")):
            assert known in fetch_page(address, path)


@pytest.mark.both_lines
@pytest.mark.slow
def test_store_of_stock_tfx_is_read_as_well(tmp_path: Path):
    people.write(tmp_path / "rows" / "people.csv", people.rows(), delimiter=",")
    runs = program("tests/support/programs/stock_run.py", request={"folder": str(tmp_path), "runs": 2})["runs"]
    rows = [json.loads(line) for line in query(tmp_path, "runs", "--json").out.splitlines()]
    assert [row["run"] for row in rows] == runs[::-1]
    assert [(row["pipeline"], row["state"]) for row in rows] == [("stock", "done")] * 2
    record = json.loads(query(tmp_path, "runs", "show", runs[1], "--json").out)
    states = {name: node["state"] for name, node in record["nodes"].items()}
    assert states == {"CsvExampleGen": "cached", "StatisticsGen": "cached", "SchemaGen": "done"}
    reason = json.loads(query(tmp_path, "runs", "why-not-cached", "SchemaGen", "--json").out)
    assert [difference["name"] for difference in reason["differences"]] == ["infer_feature_shape"]
    schemas = [
        json.loads(line)
        for line in query(tmp_path, "store", "artifacts", "--type", "Schema", "--json").out.splitlines()
    ]
    tree = query(tmp_path, "store", "lineage", f"artifact:{schemas[0]['id']}").out
    assert tree.index("SchemaGen") < tree.index("StatisticsGen") < tree.index("CsvExampleGen")
    comparison = json.loads(query(tmp_path, "runs", "compare", *runs, "--json").out)
    assert comparison["config"] is None
    assert comparison["rows"]["train"][0] == comparison["rows"]["train"][1] > 0
    # Where values are missing, no shape was inferred in the first place.
    assert set(comparison["schema"]) == set(people.COLUMNS) - {"city"}
