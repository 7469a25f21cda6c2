"""The shipped example, from 15,002 real trips to a pushed model; and the nodes that a second run repeats."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from components.base import recorded_config
from pipeline.inspection import training_curves
from tests.support.data import doc_pages
from tests.support.runs.command import ROOT, Runs

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("taxi")]

NODES = {
    "ExampleGen",
    "StatisticsGen",
    "SchemaGen",
    "ExampleValidator",
    "DataGate",
    "Transform",
    "Trainer",
    "LatestBlessedModel",
    "Evaluator",
    "InfraValidator",
    "Pusher",
}


@pytest.mark.both_lines
def test_one_command_takes_the_rows_to_a_pushed_model(taxi: Runs):
    assert (taxi.first.exit_code, taxi.first.err) == (0, "")
    result = taxi.first.result
    assert (result["state"], result["verdict"], result["error"]) == ("done", "blessed", None)
    assert taxi.first.nodes("done") == NODES
    # Every trip is in one split.
    assert result["rows_read"] == 15_002 == result["rows"]["train"] + result["rows"]["eval"]
    assert result["nodes"]["ExampleGen"]["rows"] == 15_002
    assert result["metrics"]["auc"] >= 0.945
    assert result["training"].items() >= {"steps": 200, "restarts": 0, "repeated": 0, "damaged": 0}.items()
    assert result["rows_evaluated"] == result["rows"]["eval"]


def test_pages_show_the_rows_of_this_run(taxi: Runs):
    # docs/how-to/monitoring.md has tables of requests.
    pages = [page for page in doc_pages.PAGES if page.name != "monitoring.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    lines = re.findall(r"^rows: train ([\d,]+), eval ([\d,]+) \(of 15,002 read\)$", text, re.MULTILINE)
    tables = re.findall(r"^overall +([\d,]+) .*\n(?:.*\n){0,2}(?:payment_type|trip_start_day) = ", text, re.MULTILINE)
    assert min(len(lines), len(tables)) >= 3
    rows = taxi.first.result["rows"]
    for train, evaluated in lines:
        # Of the example with two edited trips, those two may be in the other split.
        assert abs(int(train.replace(",", "")) - rows["train"]) <= 2
        assert abs(int(evaluated.replace(",", "")) - rows["eval"]) <= 2
    assert {int(count.replace(",", "")) for count in tables} == {rows["eval"]}


def test_model_server_has_answered_as_predicted_and_its_rows_warm_the_version_up(taxi: Runs):
    serving_result = taxi.first.result["serving"]
    assert (serving_result["passed"], serving_result["why"]) == (True, None)
    assert serving_result["sampled"] > 100
    assert serving_result["max_difference"] < 1e-5
    assert (Path(taxi.first.result["pushed"]) / "assets.extra" / "tf_serving_warmup_requests").is_file()


def test_model_that_is_too_slow_for_its_budget_is_not_pushed(taxi: Runs):
    before = taxi.pushed
    again = taxi.again("--set", "serving.max_p99_ms=0.01")
    result = again.result
    assert (again.exit_code, result["state"], result["verdict"]) == (3, "rejected", "blessed")
    assert again.nodes("done") - {"LatestBlessedModel"} == {"InfraValidator", "Pusher"}
    assert "expected 99 of 100 requests to take 0.01 ms at most" in result["serving"]["why"]
    assert result["pushed"] is None
    assert taxi.pushed == before


def test_two_workers_have_trained_in_step(taxi: Runs):
    folders = {"train", "tasks", "checkpoints", "logs"}
    assert {entry.name for entry in taxi.model_run.iterdir()} == {*folders, "input_wait.json"}
    curves = training_curves.read(taxi.model_run / "tasks")
    for name in ("steps_per_second", "peak_memory_mb", "sent_mb_per_second"):
        assert set(curves[f"task/{name}"]) == {"worker-0", "worker-1"}
    for worker in ("worker-0", "worker-1"):
        assert "step 200: loss" in (taxi.model_run / "logs" / f"{worker}.log").read_text()


def test_slices_make_up_the_whole(taxi: Runs):
    result = taxi.first.result
    assert {"Cash", "Credit Card"} <= {entry["slice"]["payment_type"] for entry in result["slices"]}
    assert sum(entry["rows"] for entry in result["slices"]) == result["rows"]["eval"]
    # Metrics that are undefined in a slice, such as the AUC of rows without a tip, are omitted.
    assert all(set(entry["metrics"]) <= set(result["metrics"]) for entry in result["slices"])
    assert all("binary_accuracy" in entry["metrics"] for entry in result["slices"])


def test_every_bound_of_the_config_was_checked(taxi: Runs):
    checks = [(check["metric"], check["slice"], check["bound"]) for check in taxi.first.result["checks"]]
    constant = (
        f"below the constant's {taxi.first.result['constant']['binary_crossentropy']['value']:.6g} beyond the interval"
    )
    assert checks == [
        ("auc", {}, "at least 0.93"),
        ("auc", {}, "at most 0.005 below the baseline"),
        ("binary_accuracy", {}, "at least 0.85"),
        ("auc", {"payment_type": "Credit Card"}, "at least 0.6"),
        ("binary_crossentropy", {}, constant),
    ]
    assert all(check["passed"] for check in taxi.first.result["checks"])
    # payment_type alone has an AUC of 0.93, which does not count as leakage.
    assert taxi.first.result["warnings"] == []


def test_run_record_contains_the_verdict(taxi: Runs):
    result = taxi.first.result
    record = json.loads((taxi.output / "logs" / result["run"] / "run.json").read_text())
    assert [record[key] for key in ("verdict", "checks", "metrics")] == [
        result[key] for key in ("verdict", "checks", "metrics")
    ]


def test_every_node_reports_its_seconds_and_memory(taxi: Runs):
    for node in taxi.first.result["nodes"].values():
        assert 0 < node["cpu_seconds"] < 600
        assert 0 < node["seconds"] < taxi.first.result["seconds"]
        assert node["peak_memory_mb"] > 50


def test_all_that_a_run_makes_lies_in_its_folder(taxi: Runs):
    result, output = taxi.first.result, taxi.output
    assert sorted(path.name for path in output.iterdir()) == [
        "artifacts",
        "artifacts.lock",
        "logs",
        "metadata.db",
        "pushed",
    ]
    assert Path(result["pushed"]) == output / "pushed" / result["pushed_version"]
    assert (output / "pushed" / result["pushed_version"] / "saved_model.pb").is_file()
    for node in NODES:
        log = output / "logs" / result["run"] / f"{node}.log"
        assert log.read_text().startswith(f"=== {node}, ")
        assert result["nodes"][node]["log"] == str(log)


def test_run_has_written_its_report_and_names_it(taxi: Runs):
    report = Path(taxi.first.result["report"])
    assert report == taxi.output / "logs" / taxi.first.result["run"] / "report.html"
    page = report.read_text()
    assert taxi.first.result["pushed_version"] in page
    # Everything that a run records is present, except entries that need an earlier run.
    assert re.findall(r"Left out: ([^<]*)", page) == ["no earlier run of the pipeline has trained another model."]


def test_resolved_config_is_recorded_with_the_run(taxi: Runs):
    with sqlite3.connect(f"{(taxi.output / 'metadata.db').as_uri()}?mode=ro", uri=True) as store:
        properties = store.execute(
            "SELECT ContextProperty.name, string_value FROM ContextProperty JOIN Context ON Context.id = context_id "
            "WHERE Context.name = ?",
            [taxi.first.result["run"]],
        ).fetchall()
    store.close()
    recorded = json.loads(recorded_config.join(dict(properties)) or "")
    assert recorded["training"]["steps"] == 200
    # The recorded config also contains values that the file leaves out.
    assert recorded["training"]["seed"] == 1
    assert recorded["pipeline"]["name"] == "taxi"


@pytest.mark.both_lines
def test_second_run_with_nothing_changed_is_all_cache(taxi: Runs):
    again = taxi.again()
    assert again.exit_code == 0
    # The resolver is not cached: it looks the baseline up in every run.
    assert again.nodes("cached") >= NODES - {"LatestBlessedModel"}
    assert again.result["run"] != taxi.first.result["run"]
    assert [again.result[key] for key in ("pushed", "metrics", "verdict", "rows")] == [
        taxi.first.result[key] for key in ("pushed", "metrics", "verdict", "rows")
    ]


def test_stricter_threshold_rejects_the_model_without_training_again(taxi: Runs):
    before = taxi.pushed
    bounds = ("evaluation.thresholds={auc: {min: 0.99}}", "evaluation.slice_thresholds={}")
    stricter = (*bounds, "evaluation.metrics=[auc]", "evaluation.slices=[]")
    again = taxi.again(*(word for field in stricter for word in ("--set", field)))
    result = again.result
    assert (again.exit_code, result["state"], result["verdict"]) == (3, "rejected", "not blessed")
    assert again.nodes("done") - {"LatestBlessedModel"} == {"Evaluator", "Pusher"}
    [failure] = [check for check in result["checks"] if not check["passed"]]
    assert (failure["metric"], failure["bound"]) == ("auc", "at least 0.99")
    assert failure["value"] == pytest.approx(result["metrics"]["auc"], abs=1e-6)
    assert result["pushed"] is None
    assert taxi.pushed == before


def test_edited_schema_is_validated_again(taxi: Runs, tmp_path: Path):
    schema = tmp_path / "taxi.pbtxt"
    shutil.copy(ROOT / "schema" / "taxi.pbtxt", schema)
    with schema.open("a") as file:
        file.write("# A word more, and it is another schema.\n")
    again = taxi.again("--set", f"schema.path={schema}", "--to", "DataGate")
    assert again.exit_code == 0
    assert again.nodes("done") == {"SchemaGen", "ExampleValidator", "DataGate"}
    assert again.nodes("cached") == {"ExampleGen", "StatisticsGen"}
