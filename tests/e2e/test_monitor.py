"""Monitor compares served requests with the training rows of the answering version: real server, real log."""

from __future__ import annotations

import hmac
import json
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tests.support.data import doc_pages, people
from tests.support.runs.command import Ended, Runs, command
from tests.support.servers.serving import serving

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines]

ROWS = 600
Row = dict[str, Any]


def to_request(row: Row) -> Row:
    """Convert a row to the inputs of the signature `raw`."""
    age = float("nan") if row["age"] == "NA" else row["age"]
    return {"age": age, "hours": row["hours"], "city": row["city"]}


def log(pushed: str, folder: Path, change: Callable[[Row], Row], *options: str, secret: str = "") -> Path:
    """Send changed rows of new people to a server, and return its request log; the key is `id`.

    Args:
      pushed: The version that answers.
      folder: Folder for the server and its log.
      change: Function that changes a row before it is sent.
      options: Further options of the server.
      secret: Secret of the hashes of private columns.
    """
    version = Path(pushed)
    # Other tests push into the same folder.
    shutil.copytree(version, folder / "people" / version.name)
    models = ("--model_name=people", f"--model_base_path={folder / 'people'}")
    options = (*models, f"--request_log={folder / 'log'}", "--request_log_key=id", *options)
    with serving(folder, *options, environment={"TFX_PIPELINE_LOG_SECRET": secret}) as server:
        server.wait("people", int(version.name))
        table = people.rows(ROWS, seed=11)
        for at in range(0, ROWS, 50):
            rows = [{**to_request(change(row)), "id": number} for number, row in enumerate(table[at : at + 50], at)]
            body = {"signature_name": "raw", "instances": rows}
            status, answer = server.ask("POST", "/v1/models/people:predict", body)
            assert status == 200, answer
        assert server.stop() == 0
    return folder / "log"


def labels(path: Path, count: int, key: str = "id", **more: Callable[[int, Row], Any]) -> Path:
    """Write a file with the incomes of the first people in `log`; return its path."""
    rows = enumerate(people.rows(ROWS, seed=11)[:count])
    return people.write(
        path,
        [
            {key: at, "income": row["income"], **{name: value(at, row) for name, value in more.items()}}
            for at, row in rows
        ],
    )


def monitor(runs: Runs, requests: Path, *arguments: str) -> Ended:
    return command("monitor", *common_options(runs), "--requests", str(requests), *arguments)


def common_options(runs: Runs) -> tuple[str, ...]:
    return (*runs.config, "--output", str(runs.output.parent))


def test_same_people_have_not_drifted(small: Runs, tmp_path: Path):
    requests = log(small.first.result["pushed"], tmp_path, lambda row: row)
    ended = monitor(small, requests)
    assert ended.exit_code == 0, ended.out + ended.err
    version = Path(small.first.result["pushed"]).name
    assert f"version {version}, 600 rows (600 compared) against training (" in ended.out
    assert "no drift" in ended.out
    few = monitor(small, requests, "--set", "monitor.least_rows=601")
    assert (few.exit_code, "not judged" in few.out) == (0, True)

    # The same requests a day and a half earlier: the window before.
    [file] = requests.iterdir()
    _, time, suffix = file.name.split("-")
    shutil.copy(file, requests / f"requests-{int(time) - 129_600 * 10**9}-{suffix}")
    judgements = monitor(small, requests, "--json").result["judgements"]
    assert [row["reference"] for row in judgements] == ["training", "the window before"]
    assert [row["reference_rows"] for row in judgements][1] == judgements[1]["rows"] == ROWS
    assert all(column["distance"] == 0 for column in judgements[1]["columns"])
    assert judgements[1]["findings"] == []


def test_drifted_columns_are_named_and_no_others(small: Runs, tmp_path: Path):
    requests = log(
        small.first.result["pushed"],
        tmp_path,
        lambda row: {**row, "hours": row["hours"] + 30, "city": row["city"] and "Oslo"},
    )
    keep = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    notify = json.dumps([{"command": [sys.executable, "-c", keep, str(tmp_path / "notified")]}])
    prometheus = ("--prometheus", str(tmp_path / "metrics.prom"))
    ended = monitor(small, requests, "--json", *prometheus, "--set", f"notify={notify}")
    assert ended.exit_code == 3, ended.err
    [judged] = ended.result["judgements"]
    findings = {(finding["column"], finding["what"]) for finding in judged["findings"]}
    # More hours change the predictions.
    assert findings == {
        ("hours", "distance"),
        ("hours", "out of range"),
        ("hours", "tails"),
        ("city", "distance"),
        ("city", "new values"),
        ("probability", "distance"),
    }
    note = json.loads((tmp_path / "notified").read_text())
    assert (note["event"], note["run"], set(note["details"]["columns"])) == (
        "drift",
        None,
        {column for column, _ in findings},
    )
    assert note["details"]["version"] == judged["version"]
    metrics = (tmp_path / "metrics.prom").read_text()
    version = Path(small.first.result["pushed"]).name
    assert f'tfx_pipeline_monitor_drifted{{column="hours",reference="training",version="{version}"}} 1.0' in metrics
    assert f'tfx_pipeline_monitor_drifted{{column="age",reference="training",version="{version}"}} 0.0' in metrics


def test_private_columns_are_compared_and_joined_by_their_hashes(
    small: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    secret = "a secret of 23 bytes..."  # noqa: S105  # pragma: allowlist secret
    private = {"id": "hash", "city": "hash", "age": "drop"}
    options = [f"--request_log_private={name}={action}" for name, action in private.items()]
    # A fifth of the people lives in a town that training has not seen.
    requests = log(
        small.first.result["pushed"],
        tmp_path,
        lambda row: {**row, "city": "Vik" if row["hours"] % 5 == 0 else row["city"]},
        *options,
        secret=secret,
    )
    files = [str(path) for path in requests.iterdir()]
    content = b"".join(tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator())
    inputs = prediction_log_pb2.PredictionLog.FromString(
        next(tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator())
    ).predict_log.request.inputs
    assert set(inputs) == {"id", "city", "hours"}
    assert tf.make_ndarray(inputs["hours"])[0] == people.rows(ROWS, seed=11)[0]["hours"]
    for text in ("Vik", "Paris", "Łódź", "New; York"):
        assert text.encode() not in content
    key = hmac.new(secret.encode(), b"id\x000", "sha256").hexdigest()[:32]
    assert tf.make_ndarray(inputs["id"])[0] == key.encode()

    [block] = doc_pages.blocks(doc_pages.ROOT / "docs" / "how-to" / "request-log.md", "python")
    (tmp_path / "read.py").write_text(block.replace("/var/log/requests", str(requests)))
    runpy.run_path(str(tmp_path / "read.py"))
    lines = capsys.readouterr().out.split("{")[1:]
    assert len(lines) == ROWS / 50
    assert key in lines[0]

    labels(tmp_path / "labels.csv", ROWS)
    section = {"requests": str(requests), "labels": str(tmp_path / "labels.csv"), "key": "id", "private": private}
    arguments = ("monitor", *common_options(small), "--set", f"monitor={json.dumps(section)}", "--json")
    ended = command(*arguments, environment={"TFX_PIPELINE_LOG_SECRET": secret})
    assert ended.exit_code == 3, ended.err
    [judged] = ended.result["judgements"]
    by_name = {column["name"]: column for column in judged["columns"]}
    assert {"age", "city", "hours"} & by_name.keys() == {"city", "hours"}
    cities = pd.Series([row["city"] for row in people.rows(ROWS, seed=11)])
    changed = pd.Series([row["hours"] % 5 == 0 for row in people.rows(ROWS, seed=11)])
    expected = changed.sum() / (changed | (cities != "")).sum()
    assert by_name["city"]["new"] == pytest.approx(expected, abs=1e-9)
    assert ("city", "new values") in {(finding["column"], finding["what"]) for finding in judged["findings"]}
    [outcome] = ended.result["outcomes"]
    assert (outcome["keyed"], outcome["labelled"]) == (ROWS, ROWS)
    refused = command(*arguments, environment={"TFX_PIPELINE_LOG_SECRET": ""})
    expected_text = "TFX_PIPELINE_LOG_SECRET: expected a secret of at least 16 bytes, received 0"
    assert (refused.exit_code, expected_text in refused.err) == (2, True), refused.err


def area(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the area under the ROC curve: the share of pairs in the right order."""
    above = scores[positive][:, np.newaxis] - scores[~positive]
    return float((above > 0).mean() + (above == 0).mean() / 2)


def read_predictions(requests: Path) -> np.ndarray:
    """Return the recorded predictions in the order of the sent rows, read without monitoring's code."""
    records = tf.data.TFRecordDataset([str(path) for path in requests.iterdir()], "GZIP").as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(record).predict_log for record in records]
    return np.concatenate([tf.make_ndarray(log.response.outputs["probability"]).ravel() for log in logs])


def test_metrics_of_later_labels_beside_the_evaluators(small: Runs, tmp_path: Path):
    requests = log(small.first.result["pushed"], tmp_path, lambda row: row)
    file = labels(tmp_path / "labels" / "1.csv", 560)
    section = {"labels": str(tmp_path / "labels"), "key": "id", "thresholds": {"auc": {"worse_by": 0.02}}}
    settings = ("--set", f"monitor={json.dumps({'requests': str(requests), **section})}")

    def run_monitor(*arguments: str) -> Ended:
        return command("monitor", *common_options(small), *settings, *arguments)

    ended = run_monitor("--json", "--prometheus", str(tmp_path / "metrics.prom"))
    assert ended.exit_code == 0, ended.out + ended.err
    [outcome] = ended.result["outcomes"]
    assert {name: outcome[name] for name in ("rows", "keyed", "labelled")} == {
        "rows": ROWS,
        "keyed": ROWS,
        "labelled": 560,
    }
    overall, *slices = outcome["slices"]
    rich = np.array([row["income"] == ">50K" for row in people.rows(ROWS, seed=11)[:560]])
    # Ten thousand bins.
    assert overall["metrics"]["auc"] == pytest.approx(area(read_predictions(requests)[:560], rich), abs=1e-3)
    low, high = overall["intervals"]["auc"]
    assert low < overall["metrics"]["auc"] < high
    assert overall["baseline"]["auc"] == pytest.approx(small.first.result["metrics"]["auc"], abs=1e-6)
    cities = [row["city"] for row in people.rows(ROWS, seed=11)[:560]]
    assert {entry["slice"]["city"]: entry["rows"] for entry in slices} == {
        city: cities.count(city) for city in {*cities} - {""}
    }
    [check] = outcome["checks"]
    assert check["bound"] == "at most 0.02 below the baseline"
    metrics = (tmp_path / "metrics.prom").read_text()
    assert 'tfx_pipeline_monitor_labelled_rows{label="",version="' in metrics
    assert 'tfx_pipeline_monitor_bound_exceeded{metric="auc",version="' in metrics
    shown = run_monitor("--html", str(tmp_path / "page.html"))
    assert "560 of 600 rows with a label (600 with a key): no bound exceeded" in shown.out
    assert "560 of 600 rows have a label; 600 have a key." in (tmp_path / "page.html").read_text()

    # Requests do not contain the column `spent`.
    groups = ("--set", "evaluation.metrics=[auc, gauc]", "--set", "evaluation.group=spent")
    ended = run_monitor("--json", *groups, "--set", "monitor.thresholds={gauc: {min: 0.5}}")
    [check] = ended.result["outcomes"][0]["checks"]
    assert (ended.exit_code, check["passed"]) == (0, True), ended.err
    assert check["why"] == "not judged: no group of labelled rows has what the metric needs"

    # The last row with a key counts: these people have the same incomes as the others.
    opposite = {">50K": "<=50K", "<=50K": ">50K"}
    wrong = labels(tmp_path / "labels" / "2.csv", 300, income=lambda at, row: opposite[row["income"]])
    refused = run_monitor("--json")
    assert refused.exit_code == 3, refused.err
    [outcome] = refused.result["outcomes"]
    [check] = outcome["checks"]
    assert (check["metric"], check["passed"]) == ("auc", False)
    assert "95 % interval -" in check["why"]
    rich[:300] = ~rich[:300]
    assert check["value"] == pytest.approx(area(read_predictions(requests)[:560], rich), abs=1e-3)
    due = run_monitor("--set", "monitor.least_rows=561")
    assert (due.exit_code, "not judged: too few labels" in due.out) == (0, True), due.out

    # A label that is not known yet and a value of a wrong type are not errors.
    wrong.unlink()
    labels(file, 560, income=lambda at, row: "NA" if at < 60 else row["income"])
    [outcome] = run_monitor("--json").result["outcomes"]
    assert outcome["labelled"] == 500
    # The same requests a day and a half earlier.
    [recent] = requests.iterdir()
    _, time, suffix = recent.name.split("-")
    shutil.copy(recent, requests / f"requests-{int(time) - 129_600 * 10**9}-{suffix}")
    [outcome] = run_monitor("--json", "--set", "monitor.label_window=3d").result["outcomes"]
    assert (outcome["rows"], outcome["labelled"]) == (2 * ROWS, 1000)
    file.unlink()
    early = run_monitor()
    assert (early.exit_code, "600 with a key, of which none has a label yet" in early.out) == (0, True), early.err
    labels(file, 10, key="idd")
    ended = run_monitor()
    assert (ended.exit_code, "monitor.key: expected a column of" in ended.err) == (2, True), ended.err


def test_what_cannot_be_compared_is_named(small: Runs, tmp_path: Path):
    ended = monitor(small, tmp_path)
    assert (ended.exit_code, "expected files of a request log, received none" in ended.err) == (2, True)
    ended = command("monitor", *common_options(small))
    assert (ended.exit_code, "expected a section monitor, or --requests" in ended.err) == (2, True)


@pytest.mark.slow
def test_run_is_due_when_requests_have_drifted(tmp_path: Path):
    def comes(span: int) -> None:
        people.write(tmp_path / str(span) / "people.csv", people.rows(500, seed=span))

    comes(1)
    config = people.write_config(
        tmp_path / "people.yaml",
        tmp_path / "{SPAN}" / "people.csv",
        schedule={"start": "2026-01-01", "only_if": "drift", "drift": 0.9},
        monitor={"requests": str(tmp_path / "served" / "log")},
    )
    arguments = ("--config", str(config), "--output", str(tmp_path / "out"))
    run = command("--local", *arguments, "--json")
    assert run.exit_code == 0, run.err
    comes(2)
    assert command("due", *arguments).exit_code == 3
    log(run.result["pushed"], tmp_path / "served", lambda row: {**row, "hours": row["hours"] + 30})
    due = command("due", *arguments)
    assert due.exit_code == 0
    assert due.out.startswith("due: requests have drifted, and span 2 is new: hours ")


@pytest.mark.slow
def test_node_monitors_two_versions_of_earlier_runs(tmp_path: Path):
    section = {"requests": str(tmp_path / "log"), "labels": str(tmp_path / "labels.csv"), "key": "id"}
    bound = {"auc": {"worse_by": 0.2}}
    config = people.project(tmp_path, "people", monitor={**section, "least_rows": 200, "thresholds": bound})
    arguments = ("--local", "--config", str(config), "--output", str(tmp_path / "out"), "--json")
    # This version is hardly trained, but the gate passes it.
    evaluation = "evaluation={metrics: [auc], constant: warn, thresholds: {auc: {min: 0}}}"
    first = command(*arguments, "--set", "training.steps=1", "--set", evaluation)
    assert first.exit_code == 0, first.err
    # No version has received a request yet.
    assert (first.states["Monitor"], first.result["results"]["Monitor"]["judgements"]) == ("done", [])
    second = command(*arguments)
    assert second.exit_code == 0, second.err
    a, b = (int(Path(ended.result["pushed"]).name) for ended in (first, second))

    serve = tmp_path / "models.config"
    serve.write_text(
        f'model_config_list {{ config {{ name: "people" base_path: "{tmp_path / "out" / "people" / "pushed"}" '
        "model_version_policy { all { } } } }"
    )
    table = people.rows(ROWS, seed=11)
    with serving(
        tmp_path, f"--model_config_file={serve}", f"--request_log={tmp_path / 'log'}", "--request_log_key=id"
    ) as server:
        for number in (a, b):
            server.wait("people", number)
        for at in range(0, ROWS, 50):
            # Every key has two rows.
            rows = [{**to_request(table[number // 2]), "id": number // 2} for number in range(at, at + 50)]
            path = f"/v1/models/people/versions/{(a, b)[at // 50 % 2]}:predict"
            status, answer = server.ask("POST", path, {"signature_name": "raw", "instances": rows})
            assert status == 200, answer
        assert server.stop() == 0
    incomes = [{"id": at, "income": row["income"]} for at, row in enumerate(table[: ROWS // 2])]
    people.write(tmp_path / "labels.csv", incomes)

    third = command(*arguments)
    assert (third.states["Pusher"], third.states["Monitor"]) == ("cached", "done"), third.err
    monitor_result = third.result["results"]["Monitor"]
    assert [(outcome["version"], outcome["labelled"]) for outcome in monitor_result["outcomes"]] == [
        (a, ROWS // 2),
        (b, ROWS // 2),
    ]
    [difference] = monitor_result["differences"]
    assert (difference["a"], difference["b"], difference["units"]) == (a, b, ROWS // 2)
    better_by = difference["metrics"]["auc"]
    assert better_by["interval"][0] > 0
    by_version = [outcome["slices"][0]["metrics"]["auc"] for outcome in monitor_result["outcomes"]]
    assert better_by["value"] == pytest.approx(by_version[1] - by_version[0], abs=1e-6)
    assert "mean label" in difference["metrics"]
    assert command(*arguments).states["Monitor"] == "cached"

    # The command gives the same findings.
    ended = command("monitor", *arguments[1:-1], "--json")
    assert {name: ended.result[name] for name in ("outcomes", "differences")} == {
        name: monitor_result[name] for name in ("outcomes", "differences")
    }
    show = command("runs", "show", *arguments[1:-1])
    assert "monitoring" in show.out

    # Labels that have changed are read again; whether findings stop a run is up to the config.
    people.write(tmp_path / "labels.csv", [{"id": at, "income": (">50K", "<=50K")[at % 2]} for at in range(ROWS // 2)])
    warned = command(*arguments)
    assert (warned.exit_code, warned.states["Monitor"]) == (0, "done"), warned.err
    findings = [check for check in warned.result["results"]["Monitor"]["outcomes"][1]["checks"] if not check["passed"]]
    assert [finding["metric"] for finding in findings] == ["auc"]
    stopped = command(*arguments, "--set", "monitor.findings=refuse")
    assert (stopped.exit_code, stopped.states["Monitor"], stopped.result["state"]) == (3, "failed", "rejected")
    assert "monitoring stops the run: 1 finding in the requests" in stopped.result["error"]["headline"]
