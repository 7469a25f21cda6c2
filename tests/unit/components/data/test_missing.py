"""NaN is missing and -0.0 equals 0.0 everywhere that rows enter, as in pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from pyarrow import parquet
from scipy.spatial import distance

from components.data.column_comparison import compare
from components.data.examples import to_lists
from components.data.missing import drop_nan, nan_to_null, without_nan
from components.evaluator import grouped_rows
from components.evaluator.binned_sums import Slices
from components.evaluator.slices import slices_of
from components.features.column import column
from tests.support.data.tolerances import float64_sum
from tests.support.runs.ingest_runs import data, run_without_beam

NAN = float("nan")
VALUES = [1.5, NAN, None, -0.0, 0.0, NAN, -2.0]


def example(**values: float | None) -> bytes:
    """Return a serialized tf.Example with float features; None results in an empty list."""
    lists = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=[] if value is None else [value]))
        for name, value in values.items()
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString())


@pytest.mark.parametrize("type_", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_missing_numbers_are_those_of_pandas(type_: pa.DataType, start: int) -> None:
    numbers = [value if value is None else np.float16(value) for value in VALUES]
    received = nan_to_null(pa.array(numbers, type_).slice(start))
    assert received.type == type_
    expected = pd.Series(VALUES[start:], dtype=float)
    assert received.is_null().to_pylist() == expected.isna().tolist()
    present = received.drop_null().to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(present, expected.dropna().to_numpy(np.float64))
    assert [str(value) for value in present[present == 0]] == ["0.0"] * int((expected == 0).sum())


def test_batch_without_nan_is_returned_unchanged() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"a": pa.array([1.5, None]), "b": ["nan", "x"], "c": [1, 2], "d": [[0.5], None], "e": pa.nulls(2)}
    )
    assert without_nan(batch) is batch


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_nan_in_lists_is_a_null_or_dropped(make: Any) -> None:
    lists = pa.array([[7.0], [1.0, NAN], [NAN], [], None, [-0.0], [NAN, NAN]], make(pa.float32())).slice(1)
    # A list with one NaN is a missing value. In a longer list, a null keeps the positions of the other values.
    assert nan_to_null(lists).to_pylist() == [[1.0, None], None, [], None, [0.0], [None, None]]
    assert drop_nan(lists).to_pylist() == [[1.0], None, [], None, [0.0], None]
    assert nan_to_null(pa.array([[1.0, NAN], [2.0, 3.0]], pa.list_(pa.float64(), 2))).to_pylist() == [
        [1.0, None],
        [2.0, 3.0],
    ]


@pytest.mark.parametrize("format_", ["csv", "parquet", "tfrecord"])
def test_examples_and_groups_do_not_contain_nan(format_: str, tmp_path: Path) -> None:
    random, rows = np.random.default_rng(0), 600
    user = pd.Series(random.integers(-20, 20, rows) * 0.5).mask(random.random(rows) < 0.4)
    user[user == 0] = -0.0
    table = pd.DataFrame({"a": np.arange(rows) + 0.5, "u": user, "row": np.arange(rows)})
    path = tmp_path / f"t.{format_}"
    if format_ == "csv":
        table.to_csv(path, index=False, na_rep="nan")
    elif format_ == "parquet":
        parquet.write_table(pa.table({name: pa.array(table[name].to_numpy()) for name in table}), path)
    else:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for row in table.to_dict("records"):
                writer.write(example(**row))
    split = {"by": "group", "columns": "u", "train": 1, "eval": 1}
    result = run_without_beam(data(path, split=split), tmp_path / "out").rows
    received = {row["a"]: (name, row.get("u")) for name, split_rows in result.items() for row in split_rows}
    assert {a: u for a, (_, u) in received.items() if u is not None} == dict(
        table.dropna()[["a", "u"]].itertuples(index=False)
    )
    # NaN is not a group, so about half of its rows are in each split, within four standard deviations.
    splits_of_missing = [name for name, u in received.values() if u is None]
    assert len(splits_of_missing) == user.isna().sum()
    assert abs(splits_of_missing.count("eval") / len(splits_of_missing) - 0.5) < 4 * np.sqrt(
        0.25 / len(splits_of_missing)
    )
    splits_by_user: dict[Any, set[str]] = {}
    for name, u in received.values():
        if u is not None:
            splits_by_user.setdefault(repr(u), set()).add(name)
    assert len(splits_by_user) == user.nunique()
    assert all(len(names) == 1 for names in splits_by_user.values())


def test_monitor_counts_nan_as_missing() -> None:
    random = np.random.default_rng(1)
    reference, sample = random.normal(0, 1, 5000).astype(np.float32), random.normal(1.5, 1, 3000).astype(np.float32)
    reference[::20], sample[::5] = NAN, NAN
    [compared] = compare({"x": pa.array(reference)}, {"x": pa.array(sample)})
    assert compared.missing == (np.isnan(reference).mean(), np.isnan(sample).mean())
    known_reference, known_sample = (
        pd.Series(numbers).dropna().to_numpy(np.float64) for numbers in (reference, sample)
    )
    edges = [-np.inf, *np.nextafter(np.quantile(known_reference, np.arange(1, 10) / 10), np.inf), np.inf]
    p, q = (np.histogram(numbers, edges)[0] / len(numbers) for numbers in (known_reference, known_sample))
    near = float64_sum(20)
    assert compared.distance == near.approx(distance.jensenshannon(p, q, 2) ** 2)
    assert compared.psi == near.approx(((q - p) * np.log(q / p)).sum())


def test_slices_and_groups_do_not_contain_nan() -> None:
    values = pd.Series([0.5, NAN, -0.0, 0.0, None, NAN, 0.5], dtype=float)
    lists = pa.array([[value] for value in values], pa.large_list(pa.float64()))
    slices = slices_of(len(values), lambda _: lists, [tfma.SlicingSpec(feature_keys=["x"])])
    expected = {value: set(rows) for value, rows in values.groupby(values + 0.0).groups.items()}
    assert {
        key[0][1]: set(slices.rows[slices.numbers == number].tolist()) for number, key in enumerate(slices.keys)
    } == expected
    batch = to_lists(pa.RecordBatch.from_arrays([pa.array(values.to_numpy())], ["user"]))
    everything = Slices([()], np.arange(len(values)), np.zeros(len(values), np.int64))
    rows = np.zeros(len(values))
    grouped = grouped_rows.select_grouped(batch, "user", rows, {"": rows}, None, everything)
    assert pd.Series(grouped.groups).value_counts().tolist() == values.abs().value_counts().tolist()


def test_negative_zero_has_the_text_of_zero() -> None:
    zeros = column("x", tf.constant([-0.0, 0.0, 1.5]))
    words = zeros.texts().numpy()
    assert words[0] == words[1] != words[2]
    assert zeros.all_texts().flat_values.numpy().tolist() == words.tolist()


@pytest.mark.parametrize("format_", ["csv", "parquet", "tfrecord"])
def test_infinite_and_huge_numbers_are_missing_in_examples_and_in_the_transform_graph(
    format_: str, tmp_path: Path
) -> None:
    numbers = [np.inf, 1.5, -np.inf, 3.4e38, NAN, -3.3e38] + ([] if format_ == "tfrecord" else [1e39, -1e300])
    table = pd.DataFrame({"row": np.arange(200) + 0.5, "x": np.resize(numbers, 200)})
    path = tmp_path / f"t.{format_}"
    if format_ == "csv":
        table.to_csv(path, index=False)
    elif format_ == "parquet":
        parquet.write_table(pa.table({name: pa.array(table[name].to_numpy()) for name in table}), path)
    else:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for row in table.to_dict("records"):
                writer.write(example(**row))
    result = run_without_beam(data(path), tmp_path / "out").rows
    received = {row["row"]: row.get("x") for split_rows in result.values() for row in split_rows}
    with np.errstate(over="ignore"):
        singles = table["x"].astype(np.float32)
    expected = singles.where(np.isfinite(singles))
    assert [received[row] for row in table["row"]] == [None if np.isnan(x) else x for x in expected]
    in_graph = column("x", tf.constant(singles.to_numpy()[:, np.newaxis]))
    assert in_graph.present.numpy().tolist() == expected.notna().tolist()
