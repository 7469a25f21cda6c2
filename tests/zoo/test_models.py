"""A whole run for each table of `zoo_models`, against pandas, NumPy and scikit-learn: the splits, the answers of every
serving form, the metrics, and whether the model has learned the rule behind the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import tensorflow as tf
import yaml
import zoo_models
import zoo_stores
from pyarrow import parquet
from zoo_models import RUNS, Run

from components.base.config_section import Task
from components.ingest.config import Format, SplitConfig
from components.models.config import Kind
from tests.support.data.tolerances import Tolerance
from tests.support.runs.command import Ended, command

SAME = Tolerance(1e-4, 1e-5)
"""Of predictions in batches of other sizes."""
MEASURED = Tolerance(2e-4, 2e-4)
"""Of a metric of float32 predictions."""
MISSING_INT = -(2**63)
ERRORS = ("mean_absolute_error",)
ELSEWHERE = {"bigquery"}
"""Formats that need a service: test_tables has a table whose rows are those of a query."""

Predictions = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Finished:
    """A finished run.

    Attributes:
      run: its table and config.
      ended: Output of the command.
      folder: Folder of the data and the outputs.
      splits: split → the numbers of its rows.
    """

    run: Run
    ended: Ended
    folder: Path
    splits: Mapping[str, npt.NDArray[np.int64]]

    @property
    def model(self) -> Path:
        """The folder of the pushed model."""
        return Path(self.ended.result["pushed"])

    @property
    def rows(self) -> pd.DataFrame:
        """The rows of the eval split."""
        return self.run.rows.iloc[self.splits["eval"]]


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.xdist_group(f"zoo-{name}")) for name in RUNS]
)
def zoo_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    run, folder = RUNS[request.param](), tmp_path_factory.mktemp(request.param)
    data = {"path": str(run.store(run.rows, folder)), "bad_rows": {"max_fraction": 0}, **run.sections["data"]}
    config = {**run.sections, "data": data, "serving": {"check": "none"}}
    (folder / "zoo.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    ended = command("--local", "--json", "--config", str(folder / "zoo.yaml"), "--output", str(folder / "out"))
    result = ended.result
    assert (ended.exit_code, result["verdict"]) == (0, "blessed"), (result["error"], result["checks"], ended.err)
    return Finished(run, ended, folder, dict(_splits(run, folder / "out" / "zoo")))


def _splits(run: Run, output: Path) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield each split and the numbers of its rows, from the files of ExampleGen."""
    [examples] = (output / "artifacts" / "ExampleGen" / "examples").iterdir()
    key = "row" if "row" in parquet.read_schema(next(examples.glob("*/*.parquet"))).names else "image"
    number = dict(zip(run.rows[key], run.rows["row"], strict=True))
    for folder in sorted(examples.glob("Split-*")):
        files = sorted(folder.glob("*.parquet"))
        values = [value for file in files for [value] in parquet.read_table(file, columns=[key])[key].to_pylist()]
        yield folder.name.removeprefix("Split-"), np.sort([number[value] for value in values])


@pytest.mark.slow
def test_rows_are_in_the_splits_of_the_rule(zoo_run: Finished) -> None:
    run, splits = zoo_run.run, zoo_run.splits
    np.testing.assert_array_equal(np.sort(np.concatenate(list(splits.values()))), run.rows["row"])
    for split, is_inside in (run.splits or {}).items():
        np.testing.assert_array_equal(splits[split], run.rows["row"][is_inside])
    for column in run.kept_together:
        train, evaluated = (set(run.rows[column].iloc[rows]) for rows in (splits["train"], splits["eval"]))
        assert not train & evaluated
    by = run.sections["data"]["split"]
    if by["by"].startswith("within"):
        whole, train = (rows.groupby("user").size() for rows in (run.rows, run.rows.iloc[splits["train"]]))
        np.testing.assert_allclose(train / whole, 0.8, atol=1 / whole.min())
    if by["by"] == "within_time":
        last = run.rows.iloc[splits["train"]].groupby("user")["time"].max()
        assert (zoo_run.rows["time"].to_numpy() > last[zoo_run.rows["user"]].to_numpy()).all()


@pytest.mark.slow
def test_every_serving_form_answers_the_same(zoo_run: Finished) -> None:
    model = tf.saved_model.load(str(zoo_run.model))
    served = serve(model, zoo_run.rows)
    forms = {"serving_default"} | ({"transform_labels"} if zoo_run.run.outputs else set())
    for name, answers in FORMS.items():
        if name in model.signatures:
            forms.add(name)
            assert_same(answers(model, zoo_run.rows), served, name)
    if "top_k" in model.signatures:
        forms |= assert_ranked(model, zoo_run, served)
    assert set(model.signatures) == forms
    # The command writes a column with the class of a row, and a column per probability.
    of_classes = {"prediction": name_classes(served)} if "classes" in served else {}
    if "predicted" in served:
        of_classes = {"prediction": join_classes(served)}
    assert_same(predict(zoo_run), {**served, **of_classes}, "predict")


@pytest.mark.slow
def test_metrics_are_those_of_the_predictions(zoo_run: Finished) -> None:
    served = serve(tf.saved_model.load(str(zoo_run.model)), zoo_run.rows)
    for name, output in zoo_run.run.outputs.items():
        predictions = served[name].reshape(len(zoo_run.rows), -1)
        if name in ("probabilities", "predicted"):
            predictions = (name_classes if name == "probabilities" else join_classes)(served)
        else:
            predictions = predictions[:, 0]
        expected = output.compute(output.label[zoo_run.splits["eval"]], predictions)
        MEASURED.assert_close(zoo_run.ended.result["metrics"][output.metric], expected, output.metric)
        assert expected <= output.least if output.metric in ERRORS else expected >= output.least


@pytest.mark.slow
def test_two_towers_have_to_be_as_good_as_the_blessed_ease(tmp_path: Path) -> None:
    """The gate's baseline is the latest blessed model, even if it has another kind."""
    run = RUNS["ease"]()
    data = {"path": str(run.store(run.rows, tmp_path)), **run.sections["data"]}
    evaluation = {**run.sections["evaluation"], "thresholds": {"group_recall_at_10": {"min": 0.01, "worse_by": 0.02}}}
    ended = {}
    for kind, training in (("ease", {}), ("two_tower", {"steps": 2, "learning_rate": 1e-6})):
        model = {"kind": kind, "item": ["item"]}
        config = {**run.sections, "data": data, "model": model, "training": training, "evaluation": evaluation}
        file = tmp_path / "zoo.yaml"
        file.write_text(yaml.safe_dump({**config, "serving": {"check": "none"}}), encoding="utf-8")
        ended[kind] = command("--local", "--json", "--config", str(file), "--output", str(tmp_path / "out"))
    assert (ended["ease"].exit_code, ended["two_tower"].exit_code) == (0, 3), ended["two_tower"].out
    [check] = [check for check in ended["two_tower"].result["checks"] if "the baseline" in check["bound"]]
    assert (check["passed"], check["baseline"]) == (False, ended["ease"].result["metrics"]["group_recall_at_10"])


def test_every_capability_is_in_a_run() -> None:
    assert zoo_models.used("model.kind") == set(get_args(Kind))
    assert zoo_models.used("data.task") == set(get_args(Task))
    assert zoo_models.used("data.split.by") == set(get_args(SplitConfig.model_fields["by"].annotation))
    assert zoo_models.used("data.format") | ELSEWHERE == set(get_args(Format))


def serve(model: Any, rows: pd.DataFrame) -> Predictions:
    """Call `serving_default` with tf.Examples; return the answers."""
    return _arrays(model.signatures["serving_default"](_examples(rows)))


def _serve_raw(model: Any, rows: pd.DataFrame) -> Predictions:
    """Return the answers to one tensor for each column."""
    signature = model.signatures["raw"]
    specs = signature.structured_input_signature[1]
    return _arrays(signature(**{name: _tensor(rows[name], spec) for name, spec in specs.items()}))


def _serve_transformed(model: Any, rows: pd.DataFrame) -> Predictions:
    """Return the answers to the features that the model computes."""
    features = model.signatures["transform_features"](_examples(rows))
    return _arrays(model.signatures["transformed"](**features))


FORMS: dict[str, Callable[[Any, pd.DataFrame], Predictions]] = {
    "raw": _serve_raw,
    "transform_features": _serve_transformed,
    "transformed": _serve_transformed,
}
"""Signature → its predictions of rows."""


def predict(zoo_run: Finished) -> Predictions:
    """Return the predictions of the command, for the rows of the eval split."""
    folder, config = zoo_run.folder / "to_predict", str(zoo_run.folder / "zoo.yaml")
    folder.mkdir()
    store = zoo_stores.store_csv if zoo_run.run.store is zoo_stores.store_two_files else zoo_run.run.store
    data, output = store(zoo_run.rows, folder), zoo_run.folder / "predicted"
    given = ("--config", config, "--model", str(zoo_run.model), "--data", str(data), "--into", str(output))
    ended = command("predict", *given)
    assert ended.exit_code == 0, ended.out + ended.err
    predicted = parquet.read_table(output).to_pandas()
    if store is zoo_stores.store_images:
        # In the order of the files' names.
        names = [f"{row.label}/{row.row}" for row in zoo_run.rows.itertuples()]
        predicted = predicted.iloc[np.argsort(np.argsort(names))]
    if "predicted" in tf.saved_model.load(str(zoo_run.model)).signatures["serving_default"].structured_outputs:
        predicted["prediction"] = ["|".join(sorted(names)) for names in predicted["prediction"]]
    return {name: np.stack(predicted[name].to_numpy()) for name in predicted}


def assert_same(answers: Predictions, served: Predictions, form: str) -> None:
    """Check that the common outputs are equal."""
    common = set(answers) & set(served)
    assert common, form
    for name in common:
        values, expected = (np.asarray(outputs[name]).reshape(len(outputs[name]), -1) for outputs in (answers, served))
        if expected.dtype.kind == "f":
            SAME.assert_close(values, expected, f"{form}: {name}")
        else:
            np.testing.assert_array_equal(values, expected, err_msg=f"{form}: {name}")


def assert_ranked(model: Any, zoo_run: Finished, served: Predictions) -> set[str]:
    """Check that `top_k` returns a row's item at its rank, and omits the items that the user has seen.

    Returns:
      The signatures that were called.
    """
    users = zoo_run.rows["user"].to_numpy()
    top_items = model.signatures["top_k"](user=tf.constant(users, tf.int64))["items"].numpy()
    ranks, items = served["rank"].ravel(), zoo_run.rows["item"].to_numpy()
    is_found = (ranks > 0) & (ranks <= top_items.shape[1])
    assert is_found.any()
    np.testing.assert_array_equal(top_items[is_found, ranks[is_found] - 1], items[is_found])
    seen = zoo_run.run.rows.iloc[zoo_run.splits["train"]].groupby("user")["item"].agg(set)
    assert not any(set(row) & seen[user] for user, row in zip(users, top_items, strict=True))
    called = {"top_k"}
    if "item" in model.signatures:
        every = np.unique(zoo_run.run.rows["item"].iloc[zoo_run.splits["train"]])
        vectors = model.signatures["item"](item=tf.constant(every, tf.int64))["vector"].numpy()
        queries = model.signatures["query"](user=tf.constant(users, tf.int64))["vector"].numpy()
        scores = queries @ vectors.T
        scores[[[item in seen[user] for item in every] for user in users]] = -np.inf
        best = np.take_along_axis(scores, np.argsort(-scores, axis=1)[:, : top_items.shape[1]], axis=1)
        of_found = np.take_along_axis(scores, np.searchsorted(every, top_items), axis=1)
        SAME.assert_close(of_found, best, "top_k")
        called |= {"item", "query"}
    return called


def name_classes(served: Predictions) -> npt.NDArray[Any]:
    """Return the names of the classes with the greatest probabilities."""
    best = served["probabilities"].argmax(axis=1)
    return np.array([row[at].decode() for row, at in zip(served["classes"], best, strict=True)])


def join_classes(served: Predictions) -> npt.NDArray[Any]:
    """Return the sorted names of the predicted classes, joined by |."""
    rows = zip(served["classes"], served["predicted"] > 0, strict=True)
    return np.array(["|".join(sorted(name.decode() for name in names[mask])) for names, mask in rows])


def _examples(rows: pd.DataFrame) -> tf.Tensor:
    return tf.constant([zoo_stores.example(row) for row in rows.to_dict("records")])


def _tensor(values: pd.Series, spec: tf.TensorSpec) -> tf.Tensor:
    """Return a column for `raw`, with missing values encoded as the signature expects."""
    if spec.shape.rank == 2:
        most = max(map(len, values))
        return tf.constant([[*value, *[MISSING_INT] * (most - len(value))] for value in values], spec.dtype)
    default = {tf.string: "", tf.int64: MISSING_INT}.get(spec.dtype, np.nan)
    return tf.constant([default if zoo_stores.is_missing(value) else value for value in values], spec.dtype)


def _arrays(tensors: Mapping[str, tf.Tensor]) -> Predictions:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
