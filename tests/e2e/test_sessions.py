"""Histories and two labels end to end: three strategies train `esmm`, which reads histories as `din` does; its model
serves lists, predicts files, orders items, and knows a purchase as what follows a click.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet
from sklearn.metrics import ndcg_score, roc_auc_score

from tests.support.runs.command import Ended, command, make_data
from tests.support.servers.serving import predict, serving

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

STRATEGIES = {
    "none": "{kind: none}",
    "multi_worker": "{kind: multi_worker, workers: 2}",
    "parameter_server": "{kind: parameter_server, workers: 2, ps: 1, shard_over_mb: 1}",
}
OUTPUTS = ("probability_click", "probability_purchase")
ASKED = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the rows into a folder; runs in this folder share the nodes before the Trainer."""
    folder = tmp_path_factory.mktemp("sessions")
    make_data("sessions", "--rows", "102400", "--output", str(folder / "sessions.parquet"))
    return folder


def train(folder: Path, strategy: str, *fields: str) -> Ended:
    settings = (f"data.path={folder / 'sessions.parquet'}", f"training.strategy={STRATEGIES[strategy]}", *fields)
    sets = [word for field in settings for word in ("--set", field)]
    return command("--local", "--json", "--config", "configs/sessions.yaml", *sets, "--output", str(folder / "out"))


def pad_histories(table: Any, rows: int) -> dict[str, Any]:
    """Pad histories as a client of the signature `raw` sends them."""
    columns: dict[str, Any] = {}
    for name in table.column_names:
        values = table[name].to_pylist()[:rows]
        if isinstance(values[0], list):
            most = max(map(len, values))
            values = [[*value, *[tf.int64.min] * (most - len(value))] for value in values]
        columns[name] = np.array(values, np.float32 if name == "price" else np.int64)
    return columns


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_attention_trains_serves_lists_and_predicts_files(folder: Path, tmp_path: Path, strategy: str) -> None:
    ended = train(folder, strategy)
    assert ended.exit_code == 0, ended.out or ended.err
    result = ended.result
    assert (result["rows_read"], result["verdict"]) == (102_400, "blessed")
    assert result["metrics"]["click/auc"] > 0.68
    assert result["metrics"]["purchase/auc"] > 0.62

    table = parquet.read_table(folder / "sessions.parquet").drop(["clicked", "purchased"]).slice(1000, 200)
    parquet.write_table(table, tmp_path / "new.parquet")
    pushed = Path(result["pushed"])
    options = ("--data", str(tmp_path / "new.parquet"), "--into", str(tmp_path / "predicted"))
    ended = command("predict", "--model", str(pushed), *options)
    assert ended.exit_code == 0, ended.err
    table_of_answers = parquet.read_table(tmp_path / "predicted")
    predicted = {name: table_of_answers[name].to_numpy() for name in OUTPUTS}
    columns = pad_histories(table, ASKED)
    with serving(tmp_path, "--model_name=sessions", f"--model_base_path={pushed.parent}") as server:
        server.wait("sessions", int(pushed.name))
        inputs = {name: values.tolist() for name, values in columns.items()}
        status, answer = server.ask("POST", "/v1/models/sessions:predict", {"signature_name": "raw", "inputs": inputs})
        assert status == 200, answer
        with server.stubs() as (stub, _):
            response = stub.Predict(
                predict("sessions", "raw", **{name: tf.constant(column) for name, column in columns.items()})
            )
    for name, of_file in predicted.items():
        by_rpc = tf.make_ndarray(response.outputs[name])[:, 0]
        np.testing.assert_allclose(by_rpc, of_file[:ASKED], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.array(answer["outputs"][name])[:, 0], by_rpc, rtol=1e-5, atol=1e-7)
        assert by_rpc.max() - by_rpc.min() > 0.01


def test_labels_arrive_one_after_the_other(folder: Path, tmp_path: Path) -> None:
    result = train(folder, "none").result
    pushed, least = Path(result["pushed"]), 500
    rows = parquet.read_table(folder / "sessions.parquet").slice(0, least)
    columns = pad_histories(rows.drop(["clicked", "purchased"]), least)
    with serving(
        tmp_path,
        *("--model_name=sessions", f"--model_base_path={pushed.parent}"),
        *(f"--request_log={tmp_path / 'log'}", "--request_log_key=order"),
    ) as server:
        server.wait("sessions", int(pushed.name))
        inputs = {name: values.tolist() for name, values in columns.items()} | {"order": list(range(least))}
        status, answer = server.ask("POST", "/v1/models/sessions:predict", {"signature_name": "raw", "inputs": inputs})
        assert status == 200, answer
        assert server.stop() == 0

    # The purchases of the last items are not known yet.
    known = 420
    later = rows["purchased"].to_pylist()[:known] + [None] * (least - known)
    arrived = pa.table({"order": range(least), "clicked": rows["clicked"], "purchased": pa.array(later, pa.int64())})
    parquet.write_table(arrived, tmp_path / "labels.parquet")
    section = {"requests": str(tmp_path / "log"), "labels": str(tmp_path / "labels.parquet"), "key": "order"}
    bounds = {"auc": {"min": 0.5}, "purchase/auc": {"min": 0.999}}
    monitor = {**section, "least_rows": known, "thresholds": bounds}

    def run_monitor(*arguments: str) -> Ended:
        options = ("--config", "configs/sessions.yaml", "--set", f"monitor={json.dumps(monitor)}")
        return command("monitor", *options, "--output", str(folder / "out"), *arguments)

    ended = run_monitor("--json", "--prometheus", str(tmp_path / "metrics.prom"))
    assert ended.exit_code == 3, ended.err
    outcomes = {outcome["label"]: outcome for outcome in ended.result["outcomes"]}
    assert {name: outcome["labelled"] for name, outcome in outcomes.items()} == {"click": least, "purchase": known}
    for name, outcome in outcomes.items():
        metrics = outcome["slices"][0]
        scores = np.array(answer["outputs"][f"probability_{name}"])[:, 0][: outcome["labelled"]]
        true = rows[f"{name}ed" if name == "click" else "purchased"].to_numpy()[: outcome["labelled"]]
        assert metrics["metrics"][f"{name}/auc"] == pytest.approx(roc_auc_score(true, scores), abs=1e-3)
        assert metrics["baseline"][f"{name}/auc"] == pytest.approx(result["metrics"][f"{name}/auc"], abs=1e-6)
    failed = [check["metric"] for outcome in outcomes.values() for check in outcome["checks"] if not check["passed"]]
    assert failed == ["purchase/auc"]
    text = (tmp_path / "metrics.prom").read_text()
    assert f'labelled_rows{{label="purchase",version="{pushed.name}"}} {known}.0' in text
    shown = run_monitor("--html", str(tmp_path / "page.html")).out
    assert f"version {pushed.name}, purchase: {known} of {least} rows with a label ({least} with a key): purch" in shown
    assert f"Version {pushed.name}, purchase, by labels that have arrived" in (tmp_path / "page.html").read_text()

    # The file contains only one of the labels.
    parquet.write_table(arrived.drop(["clicked"]), tmp_path / "labels.parquet")
    ended = run_monitor("--json")
    assert "monitor.labels: expected the column 'clicked' of data.labels.click, received none" in ended.err
    assert ended.exit_code == 2


def test_order_within_users_is_that_of_the_predictions(folder: Path, tmp_path: Path) -> None:
    result = train(folder, "none").result
    options = ("--data", str(folder / "sessions.parquet"), "--into", str(tmp_path / "predicted"))
    ended = command("predict", "--model", result["pushed"], *options)
    assert ended.exit_code == 0, ended.err
    rows = parquet.read_table(folder / "sessions.parquet", columns=["user", "clicked", "time"]).to_pandas()
    rows["score"] = parquet.read_table(tmp_path / "predicted")["probability_click"].to_numpy()
    count = result["rows"]["eval"]
    rows = rows[rows["time"] >= rows["time"].nlargest(count).iloc[-1]]
    assert len(rows) == count
    areas, sizes, gains = [], [], []
    for _, row in rows.groupby("user"):
        if row["clicked"].any() and len(row) > 1:
            gains.append(ndcg_score([row["clicked"]], [row["score"]], k=10))
            if not row["clicked"].all():
                areas.append(roc_auc_score(row["clicked"], row["score"]))
                sizes.append(len(row))
        elif row["clicked"].any():
            gains.append(1.0)
    assert len(areas) > 50
    assert result["metrics"]["click/gauc"] == pytest.approx(np.average(areas, weights=sizes), abs=1e-4)
    assert result["metrics"]["click/ndcg_at_10"] == pytest.approx(np.mean(gains), abs=1e-4)


def test_attention_is_better_than_the_mean_of_a_history(folder: Path) -> None:
    single_label = ("data.labels={}", "data.label=clicked", "evaluation.thresholds={auc: {min: 0.5}}")
    attention, mean = (
        train(folder, "none", *single_label, f"model.kind={kind}").result["metrics"]["auc"]
        for kind in ("din", "dcn_v2")
    )
    assert attention > mean + 0.005


def test_purchase_is_learned_as_what_follows_a_click(folder: Path, tmp_path: Path) -> None:
    result = train(folder, "none").result
    options = ("--data", str(folder / "sessions.parquet"), "--into", str(tmp_path / "predicted"))
    assert command("predict", "--model", result["pushed"], *options).exit_code == 0
    predicted = parquet.read_table(tmp_path / "predicted")
    click, purchase, share = (
        predicted[f"probability_{name}"].to_numpy() for name in ("click", "purchase", "purchase_given_click")
    )
    assert (purchase <= click + 1e-6).all()
    np.testing.assert_allclose(share, purchase / click, rtol=1e-3, atol=1e-5)
    clicked, purchased = (
        parquet.read_table(folder / "sessions.parquet")[name].to_numpy() == 1 for name in ("clicked", "purchased")
    )
    assert purchased[~clicked].sum() == 0
    assert roc_auc_score(purchased[clicked], share[clicked]) > 0.6

    row = json.dumps({"item": 1, "category": 2, "price": 10.0, "position": 0, "past_items": [1, 5]})
    output = "probability_purchase_given_click"
    explained = command(
        *("explain", "--json", "--config", "configs/sessions.yaml", "--output", str(folder / "out")),
        *("--row", row, "--prediction", output),
    )
    assert explained.exit_code == 0, explained.err
    (explained_row,) = explained.result["rows"]
    assert explained_row["output"] == output
    total = sum(column["contribution"] for column in explained_row["columns"])
    assert explained_row["baseline"] + total == pytest.approx(explained_row["prediction"], abs=1e-5)
