"""Two towers end to end: three strategies train them; the model has an index of all items, and finds and ranks them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet

from tests.support.runs.command import Ended, command, make_data
from tests.support.servers.serving import predict, serving

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

STRATEGIES = {
    "none": "{kind: none}",
    "multi_worker": "{kind: multi_worker, workers: 2}",
    "parameter_server": "{kind: parameter_server, workers: 2, ps: 1, shard_over_mb: 0.01}",
}
ASKED = 30
QUERY = ("past_items", "past_categories", "past_times", "time")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the rows into a folder; runs in this folder share the nodes before the Trainer."""
    folder = tmp_path_factory.mktemp("retrieval")
    make_data("sessions", "--rows", "51200", "--output", str(folder / "sessions.parquet"))
    return folder


def train(folder: Path, strategy: str, *fields: str) -> Ended:
    settings = (f"data.path={folder / 'sessions.parquet'}", f"training.strategy={STRATEGIES[strategy]}", *fields)
    sets = [word for field in settings for word in ("--set", field)]
    return command("--local", "--json", "--config", "configs/retrieval.yaml", *sets, "--output", str(folder / "out"))


def queries(table: Any, rows: int) -> dict[str, Any]:
    """Return the columns of a query as a client sends them."""
    columns: dict[str, Any] = {"time": np.array(table["time"][:rows])}
    for name in QUERY[:-1]:
        values = table[name].to_pylist()[:rows]
        most = max(map(len, values))
        columns[name] = np.array([[*value, *[tf.int64.min] * (most - len(value))] for value in values], np.int64)
    return columns


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_towers_train_and_their_model_finds_items(folder: Path, tmp_path: Path, strategy: str) -> None:
    ended = train(folder, strategy)
    assert ended.exit_code == 0, ended.out or ended.err
    result = ended.result
    assert (result["rows_read"], result["verdict"]) == (51_200, "blessed")
    # Recommending popular items reaches 0.27.
    assert result["metrics"]["recall_at_10"] > 0.3
    pushed = Path(result["pushed"])
    table = parquet.read_table(folder / "sessions.parquet").slice(1000, 200)
    parquet.write_table(table.select(list(QUERY)), tmp_path / "queries.parquet")
    options = ("--data", str(tmp_path / "queries.parquet"), "--into", str(tmp_path / "found"))
    ended = command("predict", "--model", str(pushed), "--signature", "top_k", *options)
    assert ended.exit_code == 0, ended.err
    answers_ = parquet.read_table(tmp_path / "found").to_pandas()
    assert len(answers_) == 200
    columns = queries(table, ASKED)
    with serving(tmp_path, "--model_name=items", f"--model_base_path={pushed.parent}") as server:
        server.wait("items", int(pushed.name))
        inputs = {name: values.tolist() for name, values in columns.items()}
        status, answer = server.ask("POST", "/v1/models/items:predict", {"signature_name": "top_k", "inputs": inputs})
        assert status == 200, answer
        with server.stubs() as (stub, _):
            tensors = {name: tf.constant(column) for name, column in columns.items()}
            response = stub.Predict(predict("items", "query", **tensors))
    by_rest = {name: np.array(values) for name, values in answer["outputs"].items()}
    np.testing.assert_allclose(by_rest["scores"], np.stack(answers_["scores"])[:ASKED], rtol=1e-4, atol=1e-5)
    assert (by_rest["items"] == np.stack(answers_["items"])[:ASKED]).mean() > 0.95
    assert {*by_rest["items"].ravel()} <= {*parquet.read_table(folder / "sessions.parquet")["item"].to_pylist()}
    # The scores equal the products of the vectors that the other two signatures compute.
    rows = parquet.read_table(folder / "sessions.parquet").to_pandas().drop_duplicates("item").set_index("item")
    best = rows.loc[by_rest["items"][:, 0]]
    item = tf.saved_model.load(str(pushed)).signatures["item"]
    vectors = item(
        item=tf.constant(best.index.to_numpy()),
        category=tf.constant(best["category"].to_numpy()),
        price=tf.constant(best["price"].to_numpy(), tf.float32),
    )["vector"].numpy()
    query = tf.make_ndarray(response.outputs["vector"])
    np.testing.assert_allclose((query * vectors).sum(axis=1), by_rest["scores"][:, 0], rtol=1e-4, atol=1e-5)


def test_metrics_are_those_of_the_ranks_and_the_constant_is_popularity(folder: Path, tmp_path: Path) -> None:
    result = train(folder, "none").result
    options = ("--data", str(folder / "sessions.parquet"), "--into", str(tmp_path / "predicted"))
    ended = command("predict", "--model", result["pushed"], *options)
    assert ended.exit_code == 0, ended.err
    rows = parquet.read_table(folder / "sessions.parquet", columns=["item", "clicked", "time"]).to_pandas()
    predicted = parquet.read_table(tmp_path / "predicted").to_pandas()
    count = result["rows"]["eval"]
    is_eval = rows["time"] >= rows["time"].nlargest(count).iloc[-1]
    assert is_eval.sum() == count
    train_rows = rows[~is_eval]
    counts = train_rows.groupby("item")["clicked"].sum()
    # All items of the training split are in the index; those that only the eval split has are misses.
    np.testing.assert_array_equal(predicted["index_size"], len(counts))
    np.testing.assert_array_equal(predicted["rank"] == 0, ~np.isin(rows["item"], counts.index))
    clicks = rows[is_eval & (rows["clicked"] == 1)]
    ranks = predicted.loc[clicks.index, "rank"].to_numpy()
    reciprocal = np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0)
    metrics = result["metrics"]
    assert metrics["recall_at_10"] == pytest.approx(((ranks > 0) & (ranks <= 10)).mean(), abs=2e-3)
    assert metrics["mrr"] == pytest.approx(reciprocal.mean(), abs=1e-3)
    recommended = np.stack(predicted.loc[clicks.index, "recommended"])
    assert metrics["coverage_at_10"] == pytest.approx(len(np.unique(recommended)) / len(counts), abs=5e-3)
    interactions = np.stack(predicted.loc[clicks.index, "interactions"])
    assert metrics["popularity_at_10"] == pytest.approx(interactions.mean(), rel=1e-3, abs=1e-3)
    # The popularity rank orders items by their number of interactions.
    known = np.isin(rows["item"], counts.index)
    popular = predicted.loc[known, "popularity_rank"].to_numpy()
    item_counts = counts[rows.loc[known, "item"]].to_numpy()
    assert (np.diff(item_counts[np.argsort(popular, kind="stable")]) <= 0).all()


def test_warm_start_and_early_stopping(folder: Path) -> None:
    ended = train(
        folder, "none", "training.warm_start=true", "training.early_stopping=2", "training.checkpoint.every_steps=100"
    )
    assert ended.exit_code == 0, ended.out or ended.err
    assert ended.result["metrics"]["recall_at_10"] > 0.3


@pytest.mark.parametrize("kind", ["ease", pytest.param("item_knn", marks=pytest.mark.extended)])
def test_weights_between_items_are_served_without_seen_items(folder: Path, tmp_path: Path, kind: str) -> None:
    ended = train(
        folder,
        "none",
        "data.split={by: within, columns: [user, item], train: 4, eval: 1}",
        "features.columns={user: vocab, item: vocab}",
        f"model={{kind: {kind}, item: [item]}}",
        "training={}",
        "evaluation={group: user, exclude_seen: user, thresholds: {group_recall_at_10: {min: 0.01}}, constant: warn}",
    )
    assert ended.exit_code == 0, ended.out or ended.err
    result = ended.result
    generated = (folder / "out/retrieval/artifacts/ExampleGen/examples").iterdir()
    newest = max(generated, key=lambda path: int(path.name))
    rows = parquet.read_table(newest / "Split-train", columns=["user", "item", "clicked"]).to_pandas()
    rows = rows.explode(["user", "item", "clicked"]).astype(np.int64)
    items, users = np.unique(rows["item"]), np.unique(rows["user"])
    clicks = rows[rows["clicked"] == 1]
    chosen = np.zeros((len(users), len(items)))
    chosen[np.searchsorted(users, clicks["user"]), np.searchsorted(items, clicks["item"])] = 1

    asked_users = np.append(users[:50], -1)
    parquet.write_table(pa.table({"user": asked_users}), tmp_path / "users.parquet")
    options = ("--data", str(tmp_path / "users.parquet"), "--into", str(tmp_path / "found"))
    ended = command("predict", "--model", result["pushed"], "--signature", "top_k", *options)
    assert ended.exit_code == 0, ended.err
    answers = parquet.read_table(tmp_path / "found")
    retrieved, scores = (np.stack(answers[name].to_pylist()) for name in ("items", "scores"))
    at = np.searchsorted(items, retrieved)
    assert not np.take_along_axis(chosen[:50], at[:50], axis=1).any(), "items that the user has clicked"
    if kind == "ease":
        gram = chosen.T @ chosen
        inverse = np.linalg.inv(gram + 250 * np.eye(len(items)))
        expected = chosen[:50] @ (np.eye(len(items)) - inverse / np.diag(inverse))
        best = -np.sort(-np.where(chosen[:50] > 0, -np.inf, expected), axis=1)[:, :10]
        np.testing.assert_allclose(scores[:50], best, rtol=1e-3, atol=1e-5)
    counts = clicks.groupby("item").size().reindex(items, fill_value=0).to_numpy()
    assert counts[at[50]].tolist() == (-np.sort(-counts))[:10].tolist(), "an unknown user gets popular items"
    assert result["metrics"]["group_recall_at_10"] > 0.05
