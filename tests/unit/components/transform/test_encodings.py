"""`target_mean`, `count` and `geo_distance` after Transform, compared with pandas, scikit-learn and closed forms."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from tensorflow_transform.tf_metadata import schema_utils

from components.base.errors import InputError, MachineError
from components.data import example_encoder, skew_sample
from components.data.examples import Format
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan, RowKey
from components.features.transforms.encodings import haversine
from components.transform import drawn_rows
from components.transform.executor import StockExecutor
from tests.support.data.example_files import stored
from tests.support.data.tolerances import float32_sum, float64_sum, rounding
from tests.support.runs.ingest_runs import FORMATS, TWO_WORKERS
from tests.support.runs.transform_runs import Transformed, transform

ROWS, FOLDS, SMOOTHING = 300, 3, 4.0
KINDS = ("shop", "code", "price")
"""Columns with keys of text, int and float."""


def people(rows: int, seed: int, first: int) -> pd.DataFrame:
    """Return random rows; about a tenth of the keys is missing, and some keys are in one split only."""
    random = np.random.default_rng(seed)
    code = random.zipf(1.4, rows) % 60
    label = random.random(rows) < (code % 4 + 1) / 6
    table = pd.DataFrame(
        {
            "shop": [f"shop {number}" if number % 9 else "" for number in code],
            "code": code - 5,
            "price": (code % 13 / 10 - 0.3).astype(np.float32),
            "label": label.astype(np.int64),
            "grade": np.where(random.random(rows) < 0.4, "C", np.where(label, "a\tb", "B")),
            "amount": (random.normal(code, 2.0, rows) + 1000).astype(np.float32),
            "weight": random.integers(1, 4, rows).astype(np.float32),
            "group": code % 11,
            "row": np.arange(first, first + rows),
        }
    )
    for name in KINDS:
        table[name] = table[name].astype(object).where(random.random(rows) > 0.1, None)
    return table


def batch_of(table: pd.DataFrame) -> pa.RecordBatch:
    types = {"price": pa.float32(), "amount": pa.float32(), "weight": pa.float32()}
    types |= {"shop": pa.binary(), "grade": pa.binary()}
    columns = {}
    for name in table:
        values = [value.encode() if isinstance(value, str) else value for value in table[name]]
        columns[name] = pa.array(
            [None if value is None else [value] for value in values], pa.list_(types.get(name, pa.int64()))
        )
    return pa.RecordBatch.from_pydict(columns)


SPEC: dict[str, Any] = {
    **{name: tf.io.VarLenFeature(tf.int64) for name in ("code", "label", "group", "row")},
    **{name: tf.io.VarLenFeature(tf.float32) for name in ("price", "amount", "weight")},
    **{name: tf.io.VarLenFeature(tf.string) for name in ("shop", "grade")},
}
SCHEMA = schema_utils.schema_from_feature_spec(SPEC)
TABLES = {"train": people(ROWS, 1, 0), "eval": people(100, 2, ROWS)}
MEAN = {"target_mean": {"smoothing": SMOOTHING, "folds": FOLDS}}


def plan(task: str = "binary", label: str = "label", columns: Any = None, **more: Any) -> FeaturePlan:
    chosen = columns or {name: [MEAN, "count"] for name in KINDS} | {"row": "pass_through"}
    features = FeaturesConfig.model_validate({"columns": chosen})
    return FeaturePlan.model_validate({"features": features, "labels": (Label(label),), "task": task, **more})


def run(folder: Path, feature_plan: FeaturePlan, form: Format = "parquet", **more: Any) -> Transformed:
    batches = {split: batch_of(table) for split, table in TABLES.items()}
    return transform(stored(folder / "in", form, batches), SCHEMA, folder / "out", feature_plan, **more)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    return run(tmp_path_factory.mktemp("binary"), plan())


def fold_of_rows(rows: int, first: int = 0) -> npt.NDArray[np.int64]:
    """Return the folds of the rows of a row group."""
    return np.random.default_rng([first, 0]).integers(0, 1 << 31, rows) % FOLDS


def encode(
    keys: pd.Series,
    train: pd.DataFrame,
    key: str,
    label: npt.NDArray[np.float64],
    weight: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[np.float64]:
    """Compute the smoothed means of keys in rows of the training split, with pandas."""
    weight = np.ones(len(train)) if weight is None else weight
    mean = np.average(label, weights=weight)
    deviation = math.sqrt(np.average((label - mean) ** 2, weights=weight))
    sums = pd.DataFrame({"key": train[key], "w": weight, "wy": weight * label}).groupby("key", dropna=False).sum()
    added = SMOOTHING * weight.mean()
    means = (sums.wy + added * mean) / (sums.w + added)
    table = {("missing" if pd.isna(at) else at): value for at, value in means.items()}
    found = [table.get("missing" if pd.isna(value) else value, mean) for value in keys]
    return (np.array(found) - mean) / deviation


def assert_means(
    written: Transformed, label: npt.NDArray[np.float64], weight: npt.NDArray[np.float64] | None = None, at: int = 0
) -> None:
    """Compare the features of both splits with pandas; `at` selects the number of a class."""
    train = TABLES["train"]
    folds = fold_of_rows(ROWS)
    for name in KINDS:
        served = encode(TABLES["eval"][name], train, name, label, weight)
        close = float32_sum(8, largest=4)
        close.assert_close(written.rows("eval")[f"{name}_target_mean"].reshape(100, -1)[:, at], served, name)
        trained = np.zeros(ROWS)
        for fold in range(FOLDS):
            inside, others = folds == fold, folds != fold
            fold_weight = None if weight is None else weight[others]
            trained[inside] = encode(train[name][inside], train[others], name, label[others], fold_weight)
        close.assert_close(written.rows("train")[f"{name}_target_mean"].reshape(ROWS, -1)[:, at], trained, name)


def test_means_and_means_out_of_fold_equal_pandas(binary: Transformed) -> None:
    assert_means(binary, TABLES["train"].label.to_numpy(float))
    assert binary.rows("eval")["shop_target_mean"].dtype == np.float32


@pytest.mark.extended
def test_means_of_an_expression_a_number_and_classes_equal_pandas(tmp_path: Path) -> None:
    train = TABLES["train"]
    assert_means(run(tmp_path / "expression", plan(label="amount > 1010")), (train.amount > 1010).to_numpy(float))
    assert_means(run(tmp_path / "number", plan("regression", "amount")), train.amount.to_numpy(float))
    classes = run(tmp_path / "classes", plan("multiclass", "grade"))
    assert classes.rows("eval")["shop_target_mean"].shape == (100, 3)
    for at, (grade, _) in enumerate(Counter(train.grade).most_common()):
        assert_means(classes, (train.grade == grade).to_numpy(float), at=at)
    weighted = run(tmp_path / "weighted", plan(weight="weight"))
    assert_means(weighted, train.label.to_numpy(float), train.weight.to_numpy(float))


def test_counts_are_logarithms_of_rows(binary: Transformed) -> None:
    for name in KINDS:
        counts = Counter(TABLES["train"][name].dropna())
        for split, table in TABLES.items():
            expected = np.log1p([0 if value is None else counts[value] for value in table[name]])
            float32_sum(1, largest=6).assert_close(binary.rows(split)[f"{name}_count"], expected)


@pytest.mark.extended
def test_label_of_a_row_does_not_change_its_feature(binary: Transformed, tmp_path: Path) -> None:
    changed = TABLES["train"].copy()
    folds = fold_of_rows(ROWS)
    row = int(np.flatnonzero(changed[list(KINDS)].notna().all(axis=1))[0])
    changed.loc[row, "label"] = 1 - changed.label[row]
    batches = {"train": batch_of(changed), "eval": batch_of(TABLES["eval"])}
    written = transform(stored(tmp_path / "in", "parquet", batches), SCHEMA, tmp_path / "out", plan())
    for name in KINDS:
        feature = f"{name}_target_mean"
        before, after = binary.rows("train")[feature], written.rows("train")[feature]
        np.testing.assert_array_equal(before[folds == folds[row]], after[folds == folds[row]])
        others = (folds != folds[row]) & (changed[name] == changed[name][row])
        assert (before[others] != after[others]).all()
        assert others.any()


@pytest.mark.extended
def test_rows_of_a_group_are_in_one_fold(tmp_path: Path) -> None:
    columns = {"group": MEAN, "row": "pass_through"}
    by_group = run(tmp_path, plan(columns=columns, row_key=RowKey(by="group", columns=("group",))))
    # A group is known in no other fold, just as the groups of the eval split are not known.
    assert not by_group.rows("train")["group_target_mean"].any()
    assert by_group.rows("eval")["group_target_mean"].any()


@pytest.mark.extended
def test_result_does_not_depend_on_formats_row_groups_and_the_cache(
    binary: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form in FORMATS:
        written = run(tmp_path / form, plan(), form)
        for name, values in binary.rows("train").items():
            np.testing.assert_array_equal(written.rows("train")[name], values)
    monkeypatch.setattr("components.data.examples.BATCH_ROWS", 40)
    one = run(tmp_path / "one", plan("regression", "amount"))
    threads = run(tmp_path / "threads", plan("regression", "amount"), beam=TWO_WORKERS)
    cached = run(tmp_path / "cached", plan("regression", "amount"), cache=tmp_path / "cache/1")
    again = run(tmp_path / "again", plan("regression", "amount"), cache=tmp_path / "cache/2")
    for split in TABLES:
        rows = one.rows(split)
        for other in (threads, cached, again):
            order = np.argsort(other.rows(split)["row_pass_through"], kind="stable")
            for name, values in rows.items():
                float32_sum(8, largest=1100).assert_close(other.rows(split)[name][order], values)
    # The rows of a row group are drawn separately.
    label = TABLES["train"].amount.to_numpy(float)
    folds = np.concatenate([fold_of_rows(min(40, ROWS - start), start // 40) for start in range(0, ROWS, 40)])
    others = folds != folds[0]
    expected = encode(TABLES["train"].shop[:1], TABLES["train"][others], "shop", label[others])
    float32_sum(8, largest=4).assert_close(one.rows("train")["shop_target_mean"][:1], expected)


def test_sample_has_the_features_that_are_served(binary: Transformed) -> None:
    sample = skew_sample.read(str(binary.graph))
    assert sample is not None
    # Only training rows have a number below ROWS.
    rows = np.array(sample.raw.column(sample.raw.schema.get_field_index("row")).to_pylist())[:, 0]
    assert sorted(rows[rows < ROWS]) == list(range(ROWS))
    parsed = tf.io.parse_example(example_encoder.encode(batch_of(TABLES["train"])).to_pylist(), SPEC)
    served = binary.output.transform_features_layer()(parsed)
    table = parquet.read_table(sample.transformed_path)
    for name in KINDS:
        feature = f"{name}_target_mean"
        received = np.array(table.column(feature).to_pylist())[rows < ROWS, 0]
        np.testing.assert_array_equal(received, served[feature].numpy()[rows[rows < ROWS]])
        assert (binary.rows("train")[feature] != served[feature].numpy()).mean() > 0.5


def test_training_rows_may_differ_from_served_rows_in_means_only() -> None:
    def make_batch(mean: float, other: float) -> pa.RecordBatch:
        columns = {"shop_target_mean": [mean], "shop_count": [other]}
        arrays = {name: pa.array([values], pa.large_list(pa.float32())) for name, values in columns.items()}
        return pa.RecordBatch.from_pydict(arrays)

    drawn_rows.check_served(plan(), make_batch(1, 2), make_batch(3, 2))
    with pytest.raises(MachineError, match=r"shop_count of a training row: expected \[2.5\].*, received \[2.0\]"):
        drawn_rows.check_served(plan(), make_batch(1, 2), make_batch(1, 2.5))


def test_rows_with_several_values_are_encoded(tmp_path: Path) -> None:
    table = TABLES["train"].copy()
    batch = batch_of(table)
    lists = pa.array([[1, 2] if row % 3 else [1] for row in range(ROWS)], pa.list_(pa.int64()))
    at = batch.schema.get_field_index("group")
    columns = [lists if number == at else column for number, column in enumerate(batch.columns)]
    batch = pa.RecordBatch.from_arrays(columns, batch.schema.names)
    columns_of_plan = {"shop": MEAN, "group": {"multi_hot": {"size": 2}}}
    written = transform(
        stored(tmp_path / "in", "parquet", {"train": batch, "eval": batch_of(TABLES["eval"])}),
        *(SCHEMA, tmp_path / "out", plan(columns=columns_of_plan)),
    )
    label, folds = table.label.to_numpy(float), fold_of_rows(ROWS)
    inside = folds == 0
    expected = encode(table.shop[inside], table[~inside], "shop", label[~inside])
    float32_sum(8, largest=4).assert_close(written.rows("train")["shop_target_mean"][inside], expected)


def test_stock_executor_refuses_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected this project's executor"):
        run(tmp_path, plan(), "tfrecord", executor=StockExecutor)


@pytest.mark.extended
def test_means_of_noise_do_not_raise_the_loss(tmp_path: Path) -> None:
    random = np.random.default_rng(3)

    def make_noise(rows: int, first: int) -> pd.DataFrame:
        known = random.normal(size=rows).astype(np.float32)
        label = (random.random(rows) < 1 / (1 + np.exp(-known))).astype(np.int64)
        code = random.integers(0, rows // 3, rows)
        return pd.DataFrame({"code": code, "price": known, "label": label, "row": np.arange(first, first + rows)})

    tables = {"train": make_noise(3000, 0), "eval": make_noise(3000, 3000)}
    columns = {"code": {"target_mean": {"smoothing": 1}}, "price": "pass_through", "row": "pass_through"}
    batches = {split: batch_of(table) for split, table in tables.items()}
    written = transform(stored(tmp_path / "in", "parquet", batches), SCHEMA, tmp_path / "out", plan(columns=columns))
    train, other = written.rows("train"), written.rows("eval")
    parsed = tf.io.parse_example(example_encoder.encode(batches["train"]).to_pylist(), SPEC)
    own_label = written.output.transform_features_layer()(parsed)["code_target_mean"].numpy()

    def measure(*numbers: npt.NDArray[Any], served: tuple[str, ...]) -> float:
        model = LogisticRegression(C=1e6).fit(np.stack(numbers, axis=1), train["label"])
        probability = model.predict_proba(np.stack([other[name] for name in served], axis=1))[:, 1]
        return float(log_loss(other["label"], probability))

    price, both = ("price_pass_through",), ("price_pass_through", "code_target_mean")
    without = measure(train[price[0]], served=price)
    out_of_fold = measure(*(train[name] for name in both), served=both)
    naive = measure(train[price[0]], own_label, served=both)
    assert out_of_fold < without + 0.005
    assert naive > without + 0.1


def places() -> dict[str, list[Any]]:
    random = np.random.default_rng(4)
    degrees = {
        "lat": random.uniform(-90, 90, ROWS), "lon": random.uniform(-180, 180, ROWS),
        "to_lat": random.uniform(-90, 90, ROWS), "to_lon": random.uniform(-180, 180, ROWS),
    }  # fmt: skip
    columns: dict[str, list[Any]] = {name: values.astype(np.float32).tolist() for name, values in degrees.items()}
    columns["lat"][3], columns["to_lon"][4], columns["lat"][5], columns["lon"][6] = None, None, 90.5, -180.5
    return columns


def test_distances_equal_the_angles_between_vectors(tmp_path: Path) -> None:
    columns = places()
    spec = dict.fromkeys(columns, tf.io.VarLenFeature(tf.float32)) | {"label": tf.io.VarLenFeature(tf.int64)}
    chosen = [
        {"geo_distance": {"longitude": "lon", "to": ["to_lat", "to_lon"]}},
    ]
    features = {"lat": chosen, "to_lat": {"geo_distance": {"longitude": "to_lon", "to": [48.137, 11.575]}}}
    batch = pa.RecordBatch.from_pydict(
        {
            **{
                name: pa.array([None if value is None else [value] for value in values], pa.list_(pa.float32()))
                for name, values in columns.items()
            },
            "label": pa.array([[row % 2] for row in range(ROWS)], pa.list_(pa.int64())),
        }
    )
    written = transform(
        stored(tmp_path / "in", "parquet", {"train": batch, "eval": batch.slice(0, 10)}),
        *(schema_utils.schema_from_feature_spec(spec), tmp_path / "out", plan(columns=features)),
    )
    degrees = {name: np.array(values, np.float32).astype(float) for name, values in columns.items()}
    munich = np.full(ROWS, 48.137), np.full(ROWS, 11.575)
    for name, ends in (
        ("lat", (degrees["lat"], degrees["lon"], degrees["to_lat"], degrees["to_lon"])),
        ("to_lat", (degrees["to_lat"], degrees["to_lon"], *munich)),
    ):
        known = np.isfinite(ends).all(axis=0) & (np.abs(ends[0]) <= 90) & (np.abs(ends[1]) <= 180)
        logs = np.log1p(6371.0088 * angles(*ends))
        expected = np.where(known, (logs - logs[known].mean()) / logs[known].std(), 0)
        received = written.rows("train")[f"{name}_geo_distance"]
        assert known.sum() in (ROWS - 4, ROWS - 1)
        # The decimals of a float32 coordinate differ from it by up to 8e-6 degrees, which is a metre.
        rounding(4, largest=30).assert_close(received, np.nan_to_num(expected))


def angles(lat: Any, lon: Any, to_lat: Any, to_lon: Any) -> Any:
    """Return the angles between places in radians, from their vectors."""

    def vectors(latitude: Any, longitude: Any) -> Any:
        latitude, longitude = np.radians(latitude), np.radians(longitude)
        return np.stack(
            [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], axis=-1
        )

    first, second = vectors(lat, lon), vectors(to_lat, to_lon)
    return np.arctan2(np.linalg.norm(np.cross(first, second), axis=-1), (first * second).sum(axis=-1))


def test_distances_of_special_places() -> None:
    radius = 6371.0088
    ends = {
        (10.0, 20.0, 10.0, 20.0): 0,
        (0.0, 0.0, 90.0, 77.0): math.pi / 2 * radius,
        (0.0, -90.0, 0.0, 90.0): math.pi * radius,
        (12.5, 180.0, 12.5, -180.0): 0,
        (0.0, 0.0, 0.0, 1.0): math.pi / 180 * radius,
    }
    columns = tf.constant(list(map(list, ends)), tf.float64)
    received = haversine(*tf.unstack(columns, axis=1)).numpy()
    # The half angle of a full turn is not exactly pi, and near it the arcsine doubles the digits that are lost.
    float64_sum(4, largest=radius).assert_close(received, list(ends.values()))
