"""StatisticsGen's artifact equals the artifact of TFX's executor on real trips and on random tables."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
import tfx
from google.protobuf import json_format, text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.statistics_gen.executor import Executor as StockExecutor
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts

from components.data import examples
from components.data.examples import Format
from components.statistics.executor import Executor
from tests.support.data.example_files import stored
from tests.support.runs import ingest_runs
from tests.support.runs.ingest_runs import BEAM, TWO_WORKERS, data, ingest

pytestmark = pytest.mark.both_lines
TRIPS = 4_000
ROWS = 3_000
FLOAT_TOLERANCE = 1e-12
"""Tolerance of means and deviations, relative to the largest value. Thousands of float64 are added in another order."""
QUANTILE_TOLERANCE = 1e-3
"""Tolerance of quantiles, relative to the range of a column. TFDV's sketch guarantees twice this value."""


def statistics(
    examples_artifact: standard_artifacts.Examples,
    out: Path,
    executor: type[BaseBeamExecutor] = Executor,
    beam: tuple[str, ...] = BEAM,
    schema: standard_artifacts.Schema | None = None,
    **properties: Any,
) -> standard_artifacts.ExampleStatistics:
    """Run an executor as the launcher does; return the artifact."""
    artifact = standard_artifacts.ExampleStatistics()
    artifact.uri = str(out)
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(beam), tmp_dir=str(out / "tmp"), unique_id="1")
    inputs = {"examples": [examples_artifact], **({"schema": [schema]} if schema else {})}
    executor(context).Do(inputs, {"statistics": [artifact]}, properties)
    return artifact


def read_split(artifact: standard_artifacts.ExampleStatistics, split: str) -> Any:
    (dataset,) = tfdv.load_stats_binary(f"{artifact.uri}/Split-{split}/FeatureStats.pb").datasets
    return dataset


def assert_equal(ours: Any, stock: Any) -> None:
    """Compare two DatasetFeatureStatistics exactly, except for means, deviations and quantiles."""
    assert [feature.path for feature in ours.features] == [feature.path for feature in stock.features]
    for feature, expected in zip(ours.features, stock.features, strict=True):
        spread = expected.num_stats.max - expected.num_stats.min
        received = json_format.MessageToDict(feature)
        _compare(received, json_format.MessageToDict(expected), str(expected.path.step), spread, expected.num_stats)
    assert ours.num_examples == stock.num_examples


def _compare(ours: Any, stock: Any, where: str, spread: float, numbers: Any) -> None:
    if isinstance(stock, dict):
        assert ours.keys() == stock.keys(), where
        for key, value in stock.items():
            _compare(ours[key], value, f"{where}.{key}", spread, numbers)
    elif isinstance(stock, list):
        assert len(ours) == len(stock), where
        for at, value in enumerate(stock):
            _compare(ours[at], value, f"{where}[{at}]", spread, numbers)
    elif where.endswith((".mean", ".stdDev", ".avgLength", ".avgNumValues")):
        largest = max(abs(numbers.min), abs(numbers.max))
        tolerance = FLOAT_TOLERANCE * largest if math.isfinite(largest) else 0.0
        assert _float(ours) == pytest.approx(_float(stock), rel=FLOAT_TOLERANCE, abs=tolerance, nan_ok=True), where
    elif where.endswith((".median", ".lowValue", ".highValue")):
        tolerance = QUANTILE_TOLERANCE * spread if math.isfinite(spread) else math.inf
        assert _float(ours) == pytest.approx(_float(stock), rel=1e-9, abs=tolerance, nan_ok=True), where
    elif where.endswith(".sampleCount") and ".numStats." in where:
        total = numbers.common_stats.tot_num_values
        assert ours == pytest.approx(stock, rel=1e-9, abs=2 * QUANTILE_TOLERANCE * total), where
    else:
        assert ours == stock, where


def _float(value: Any) -> float:
    # JSON represents infinity and NaN as strings.
    return float(value)


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> dict[Format, standard_artifacts.Examples]:
    """Return real trips in both formats, divided into the same splits."""
    folder = tmp_path_factory.mktemp("trips")
    table = Path(tfx.__file__ or "").parent / "examples/chicago_taxi_pipeline/data/simple/data.csv"
    with table.open("rb") as file:
        (folder / "trips.csv").write_bytes(b"".join(next(file) for _ in range(TRIPS + 1)))
    return {form: ingest(data(folder / "trips.csv"), folder / form, stored=form) for form in ingest_runs.FORMATS}


@pytest.fixture(scope="module")
def stock(
    trips: dict[Format, standard_artifacts.Examples], tmp_path_factory: pytest.TempPathFactory
) -> standard_artifacts.ExampleStatistics:
    trips["tfrecord"].span = trips["parquet"].span = 7
    return statistics(trips["tfrecord"], tmp_path_factory.mktemp("stock"), StockExecutor)


@pytest.mark.extended
@pytest.mark.parametrize("stored", ingest_runs.FORMATS)
@pytest.mark.parametrize("beam", [BEAM, TWO_WORKERS])
def test_artifact_equals_tfxs_on_real_trips(
    trips: dict[Format, standard_artifacts.Examples],
    stock: standard_artifacts.ExampleStatistics,
    tmp_path: Path,
    stored: Format,
    beam: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(examples, "BATCH_ROWS", 1_000)
    ours = statistics(trips[stored], tmp_path, beam=beam)
    assert ours.split_names == stock.split_names
    assert ours.span == stock.span == 7
    expected = json_format.MessageToDict(stock.mlmd_artifact)["customProperties"]
    assert json_format.MessageToDict(ours.mlmd_artifact)["customProperties"] == expected
    for split in ("train", "eval"):
        assert [path.name for path in (tmp_path / f"Split-{split}").iterdir()] == ["FeatureStats.pb"]
        assert_equal(read_split(ours, split), read_split(stock, split))


def random_table(seed: int) -> pa.RecordBatch:
    """Return a table with missing values, lists, text that is not UTF-8, many distinct strings and an empty column."""
    random = np.random.default_rng(seed)

    def some(values: list[Any], missing: float) -> list[Any]:
        return [None if random.random() < missing else value for value in values]

    def lists(values: list[Any]) -> list[list[Any]]:
        ends = np.sort(random.integers(0, len(values) + 1, ROWS - 1))
        return [list(row_values) for row_values in np.split(np.array(values, object), ends)]

    words = [b"w%d" % word for word in random.zipf(1.4, ROWS) % 4_000]
    return pa.RecordBatch.from_pydict(
        {
            "int": pa.array(some(random.integers(-5, 50, ROWS).tolist(), random.random()), pa.int64()),
            "float": pa.array(some(random.normal(100, 30, ROWS).astype(np.float32).tolist(), 0.1), pa.float32()),
            "nan": pa.array(np.where(random.random(ROWS) < 0.1, np.nan, 1.5).astype(np.float32)),
            "word": pa.array(some(words, 0.2), pa.binary()),
            "raw": pa.array([[b"\xff", b"", "é".encode()][at] for at in random.integers(0, 3, ROWS)], pa.binary()),
            "ints": pa.array(some(lists(random.integers(0, 9, 2 * ROWS).tolist()), 0.3), pa.list_(pa.int64())),
            "tags": pa.array(some(lists(words), 0.3), pa.list_(pa.binary())),
            "nothing": pa.nulls(ROWS),
            "rare": pa.array([None] * (ROWS - 1) + [[3.5, 4.5]], pa.list_(pa.float32())),
        }
    )


@pytest.mark.slow
def test_statistics_equal_tfxs_on_random_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {f"seed{seed}": random_table(seed) for seed in range(4)}
    monkeypatch.setattr(examples, "BATCH_ROWS", 400)
    ours = statistics(stored(tmp_path / "parquet", "parquet", tables), tmp_path / "ours")
    monkeypatch.undo()
    theirs = statistics(stored(tmp_path / "tfrecord", "tfrecord", tables), tmp_path / "stock", StockExecutor)
    for split in tables:
        assert_equal(read_split(ours, split), read_split(theirs, split))


ONE = pa.RecordBatch.from_pydict({"a": pa.array(range(1_000)), "b": pa.array([b"x", b"y"] * 500)})
NONE = ONE.slice(0, 0)


def test_split_without_rows_has_statistics(tmp_path: Path) -> None:
    ours = statistics(stored(tmp_path / "in", "parquet", {"train": ONE, "eval": NONE}), tmp_path / "out")
    assert [read_split(ours, split).num_examples for split in ("train", "eval")] == [1_000, 0]


def test_splits_are_excluded_and_sampled(tmp_path: Path) -> None:
    examples_artifact = stored(tmp_path / "in", "parquet", {"train": ONE, "eval": ONE, "test": ONE})
    rates = json.dumps({"train": 0.5, "other": 0.1})
    ours = statistics(examples_artifact, tmp_path / "out", exclude_splits='["test"]', sample_rate_by_split=rates)
    assert json.loads(ours.split_names) == ["train", "eval"]
    assert 350 < read_split(ours, "train").num_examples < 650
    assert read_split(ours, "eval").num_examples == 1_000
    assert not (tmp_path / "out/Split-test").exists()


def test_schema_is_added_to_the_options(tmp_path: Path) -> None:
    schema = standard_artifacts.Schema()
    schema.uri = str(tmp_path / "schema")
    (tmp_path / "schema").mkdir()
    message = text_format.Parse(
        'feature { name: "a" type: INT int_domain { is_categorical: true } }', schema_pb2.Schema()
    )
    (tmp_path / "schema/schema.pbtxt").write_text(text_format.MessageToString(message))
    examples_artifact = stored(tmp_path / "in", "parquet", {"train": ONE})
    # Categorical integers are counted like strings.
    assert (
        read_split(statistics(examples_artifact, tmp_path / "1", schema=schema), "train")
        .features[0]
        .string_stats.unique
        == 1_000
    )
    options = tfdv.StatsOptions(schema=message).to_json()
    with pytest.raises(ValueError, match="received both"):
        statistics(examples_artifact, tmp_path / "2", schema=schema, stats_options_json=options)


def test_unsupported_options_are_left_to_tfx(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = tfdv.StatsOptions(feature_allowlist=["b"]).to_json()
    examples_artifact = stored(tmp_path / "in", "parquet", {"train": ONE})
    with caplog.at_level(logging.INFO):
        ours = statistics(examples_artifact, tmp_path / "out", stats_options_json=options)
    assert "StatisticsGen uses TFX's executor because of feature_allowlist" in caplog.text
    assert [feature.path.step[0] for feature in read_split(ours, "train").features] == ["b"]


@pytest.mark.extended
def test_weighted_statistics_equal_tfxs(tmp_path: Path) -> None:
    weights = pa.array([float(at % 3) for at in range(1_000)], pa.float32())
    table = pa.RecordBatch.from_arrays([*ONE.columns, weights], ["a", "b", "w"])
    options = tfdv.StatsOptions(weight_feature="w").to_json()
    ours, stock = (
        read_split(
            statistics(
                stored(tmp_path / form, form, {"train": table}), tmp_path / name, executor, stats_options_json=options
            ),
            "train",
        )
        for form, name, executor in (("parquet", "ours", Executor), ("tfrecord", "stock", StockExecutor))
    )
    assert_equal(ours, stock)
    assert ours.features[0].num_stats.weighted_numeric_stats.mean == pytest.approx(500, abs=1)
    assert ours.weighted_num_examples == stock.weighted_num_examples == 999


def test_negative_weight_is_an_error(tmp_path: Path) -> None:
    options = tfdv.StatsOptions(weight_feature="a").to_json()
    table = pa.RecordBatch.from_pydict({"a": pa.array([1, -1, 2])})
    with pytest.raises(Exception, match="a non-negative number in each row of 'a', received a negative number"):
        statistics(stored(tmp_path / "in", "parquet", {"train": table}), tmp_path / "out", stats_options_json=options)
