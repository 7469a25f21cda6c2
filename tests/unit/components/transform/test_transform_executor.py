"""Transform's graph and examples equal the output of TFX's executor on real trips and on random tables."""

from __future__ import annotations

import copy
import logging
import math
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tfx
from google.protobuf import text_format
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.transform.executor import Executor as StockExecutor
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2, transform_pb2
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from components.base.errors import InputError
from components.compat import tft as compat
from components.data import examples
from components.data.examples import Format
from components.features import feature_names, graph_files
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.features.unparsed_dates import UnparsedDates
from components.transform import apply, declared_analysis, executor, transform_graph
from data import clicks
from pipeline.authoring.config import load
from tests.support.data.all_operations import NOTHING, SCHEMA, small_plan, stock_plan, table
from tests.support.data.example_files import stored
from tests.support.data.tolerances import float64_sum
from tests.support.runs.ingest_runs import FORMATS, TWO_WORKERS, data, ingest
from tests.support.runs.transform_runs import Transformed, transform

both_lines = pytest.mark.both_lines
TRIPS = 3_000
TABLES = {"train": table(400, 1), "eval": table(100, 2, NOTHING)}
SPLITS = ("train", "eval")


def assert_equal(ours: Transformed, stock: Transformed, key: str | None = None) -> None:
    """Compare the files of the graph, except the graph itself, byte for byte, and compare examples up to rounding.

    Args:
      ours: Output of this project's executor.
      stock: Expected output.
      key: Feature that distinguishes the rows. If None, the rows must be in the same order.
    """
    assert ours.files().keys() == stock.files().keys()
    for name, content in stock.files().items():
        if name.endswith(feature_names.LABEL_SCALE):
            # Beam's batches vary between runs, so the sums behind TFX's moments are rounded differently.
            numbers = [*map(float, content.split())]
            largest = max((abs(number) for number in numbers[2:4] if math.isfinite(number)), default=0.0)
            near = pytest.approx(numbers, rel=1e-12, abs=1e-12 * largest)
            assert [*map(float, ours.files()[name].split())] == near
        else:
            assert ours.files()[name] == content, name
    for split in SPLITS:
        received, expected = ours.rows(split), stock.rows(split)
        assert received.keys() == expected.keys()
        orders = [np.argsort(rows[key], kind="stable") if key else slice(None) for rows in (received, expected)]
        for name, feature in expected.items():
            assert received[name].dtype == feature.dtype
            received_values, expected_values, where = received[name][orders[0]], feature[orders[1]], f"{split} {name}"
            if feature.dtype == np.float32:
                np.testing.assert_allclose(received_values, expected_values, rtol=1e-5, atol=1e-6, err_msg=where)
            else:
                np.testing.assert_array_equal(received_values, expected_values, err_msg=where)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Return TFX's output for all operations."""
    folder = tmp_path_factory.mktemp("stock")
    return transform(stored(folder / "in", "tfrecord", TABLES), SCHEMA, folder / "out", stock_plan(), StockExecutor)


@both_lines
@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "tfrecord"])
def test_every_operation_equals_tfxs(
    form: Format, stock: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small limits result in several batches, vocabulary parts, calls of the graph and files.
    monkeypatch.setattr(examples, "BATCH_ROWS", 150)
    monkeypatch.setattr(declared_analysis, "_MOST_ENTRIES", 100)
    monkeypatch.setattr(transform_graph, "_CALL_BYTES", 100_000)
    monkeypatch.setattr(declared_analysis, "_CALL_VALUES", 3_000)
    monkeypatch.setattr(apply, "_SHARD", 100_000)
    ours = transform(stored(tmp_path / "in", form, TABLES), SCHEMA, tmp_path / "out", stock_plan())
    assert_equal(ours, stock)
    (artifact,) = ours.examples
    assert len(list(Path(artifact.uri).glob("Split-train/*"))) > 1
    payload = example_gen_pb2.FORMAT_PARQUET if form == "parquet" else example_gen_pb2.FORMAT_TF_EXAMPLE
    assert examples_utils.get_payload_format(artifact) == payload


_TEXTS = st.sampled_from([b"", b"a", b"b | c", b"c|d|a|", "É".encode(), b"\xff\xfe", b"a\nb"]) | st.binary(max_size=6)
_DATES = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda date: date.isoformat().encode())
_INTS = st.integers(-(2**40), 2**40)
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "count": st.none() | st.integers(-3, 3) | _INTS,
            "price": st.none() | st.floats(width=32, allow_infinity=False),
            "shop": st.none() | _TEXTS,
            "seats": st.none() | st.lists(_INTS, min_size=1, max_size=4),
            "pair": st.lists(_INTS, min_size=2, max_size=2),
            "tags": st.none() | st.lists(_TEXTS, min_size=1, max_size=3),
            "left": st.none() | _TEXTS,
            "when": st.none() | _DATES,
            "stamp": st.none() | _INTS,
            "note": st.none() | st.text(max_size=12).map(str.encode),
            "row": _INTS,
        }
    ),
    min_size=1,
    max_size=30,
)


@both_lines
@pytest.mark.slow
# The test has several parts because TFX needs up to two minutes for 60 features on a busy machine.
@pytest.mark.parametrize("part", range(4))
def test_random_tables_are_transformed_as_by_stock_tfx(part: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    @seed(part)
    @settings(max_examples=2, deadline=None, database=None, phases=[Phase.generate])
    @given(train=_ROWS, eval_rows=_ROWS, rows=st.integers(1, 30))
    def check(train: list[dict[str, Any]], eval_rows: list[dict[str, Any]], rows: int) -> None:
        tables = {
            split: table(0, 0, *({**NOTHING, **row} for row in split_rows))
            for split, split_rows in (("train", train), ("eval", eval_rows))
        }
        folder = tmp_path_factory.mktemp("random")
        expected = transform(
            stored(folder / "records", "tfrecord", tables), SCHEMA, folder / "stock", stock_plan(), StockExecutor
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(examples, "BATCH_ROWS", rows)
            ours = transform(stored(folder / "in", "parquet", tables), SCHEMA, folder / "out", stock_plan())
        assert_equal(ours, expected)

    check()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Return this project's output for a few operations on several batches."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examples, "BATCH_ROWS", 30)
        return transform(stored(folder / "in", "parquet", TABLES), SCHEMA, folder / "out", small_plan())


@both_lines
def test_columns_equal_the_transformed_schema(small: Transformed) -> None:
    schema = small.output.transformed_metadata.schema
    (path,) = (Path(small.examples[0].uri) / "Split-train").iterdir()
    written = parquet.read_schema(path)
    assert written.names == [feature.name for feature in schema.feature]
    assert {str(field.type) for field in written} == {"large_list<item: float>", "large_list<item: int64>"}
    assert parquet.read_metadata(path).num_rows == TABLES["train"].num_rows
    lengths = {len(value) for value in parquet.read_table(path).column("price_piecewise_linear").to_pylist()}
    # The compact form of a value is its bin and its position inside the bin.
    assert lengths == {2}


@both_lines
@pytest.mark.slow
@pytest.mark.parametrize("name", ["taxi", "clicks"])
def test_example_configs_are_transformed_as_by_tfx(name: str, tmp_path: Path) -> None:
    config = load(f"configs/{name}.yaml").config
    path = tmp_path / f"{name}.csv"
    if name == "taxi":
        whole = Path(tfx.__file__ or "").parent / "examples/chicago_taxi_pipeline/data/simple/data.csv"
        path.write_text("".join(whole.read_text().splitlines(keepends=True)[: TRIPS + 1]))
    else:
        clicks.make(TRIPS, 0, path)
    examples_by_format = {
        form: ingest(data(path, split=config.data.split), tmp_path / form, stored=form) for form in FORMATS
    }
    schema = _schema(config.schema_.path, examples_by_format["parquet"])
    feature_plan = FeaturePlan(features=config.features, labels=config.data.declared_labels, task=config.data.task)
    stock = transform(examples_by_format["tfrecord"], schema, tmp_path / "stock", feature_plan, StockExecutor)
    assert_equal(transform(examples_by_format["parquet"], schema, tmp_path / "out", feature_plan), stock)


def _schema(path: str | None, examples_artifact: standard_artifacts.Examples) -> schema_pb2.Schema:
    """Return the curated schema. If the config does not name a schema, return one in which every column is optional."""
    if path:
        return text_format.Parse(Path(path).read_text(), schema_pb2.Schema())
    types = {"int64": schema_pb2.INT, "float": schema_pb2.FLOAT, "large_binary": schema_pb2.BYTES}
    columns = parquet.read_schema(next(Path(examples_artifact.uri).glob("Split-train/*")))
    return schema_pb2.Schema(
        feature=[
            schema_pb2.Feature(
                name=field.name, type=types[str(field.type.value_type)], value_count=schema_pb2.ValueCount(max=1)
            )
            for field in columns
        ]
    )


@both_lines
@pytest.mark.slow
@pytest.mark.parametrize(("label", "task"), [("shop", "multiclass"), ("price", "regression")])
def test_labels_of_other_tasks_equal_tfxs(label: str, task: Any, tmp_path: Path) -> None:
    features = FeaturesConfig.model_validate({"columns": {"row": "pass_through"}})
    feature_plan = FeaturePlan(features=features, labels=(Label(label),), task=task)
    expected = transform(
        stored(tmp_path / "records", "tfrecord", TABLES), SCHEMA, tmp_path / "stock", feature_plan, StockExecutor
    )
    ours = transform(stored(tmp_path / "in", "parquet", TABLES), SCHEMA, tmp_path / "out", feature_plan)
    assert_equal(ours, expected)
    (feature,) = [
        schema_feature
        for schema_feature in ours.output.transformed_metadata.schema.feature
        if schema_feature.name == feature_names.LABEL
    ]
    # The range of a multiclass label follows from its vocabulary.
    assert feature.int_domain.max == (5 if task == "multiclass" else 0)


def test_weight_is_passed_through_and_weights_the_label(tmp_path: Path) -> None:
    features = FeaturesConfig.model_validate({"columns": {"row": "pass_through"}})
    feature_plan = FeaturePlan(features=features, labels=(Label("price"),), task="regression", weight="row")
    ours = transform(stored(tmp_path / "in", "parquet", TABLES), SCHEMA, tmp_path / "out", feature_plan)
    rows = ours.rows("train")
    weights, price = (rows[name].astype(float) for name in (feature_names.WEIGHT, feature_names.LABEL))
    np.testing.assert_array_equal(weights, rows["row_pass_through"])
    assert rows[feature_names.WEIGHT].dtype == np.float32
    known = np.isfinite(price)
    mean = np.average(price[known], weights=weights[known])
    deviation = np.sqrt(np.average((price[known] - mean) ** 2, weights=weights[known]))
    label_scale, weight_scale = (
        [float(line) for line in ours.output.vocabulary_by_name(name)]
        for name in (feature_names.LABEL_SCALE, feature_names.WEIGHT_SCALE)
    )
    expected = [400, (~known).sum(), mean, deviation, (price[known] < 0).sum()]
    assert label_scale == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert weight_scale == float64_sum(400).approx([400, 0, weights.mean(), weights.std(), 0])


@both_lines
def test_texts_that_are_not_dates_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = [*[b"2024-03-01 17:05:00+00"] * 95, b"2024-3-1", b" ", None, b"soon", b"31.12.2024"]
    train = TABLES["train"].slice(0, len(texts))
    dates = pa.array([text and [text] for text in texts], train.schema.field("when").type)
    columns = {**dict(zip(train.schema.names, train.columns, strict=True)), "when": dates}
    tables = {"train": pa.RecordBatch.from_pydict(columns), "eval": TABLES["eval"]}
    features = FeaturesConfig.model_validate({"columns": {"when": {"date_parts": ["month", "hour"]}}})
    feature_plan = FeaturePlan(features=features, labels=(Label("count > 0"),), task="binary")
    with caplog.at_level(logging.INFO):
        ours = transform(stored(tmp_path / "in", "parquet", tables), SCHEMA, tmp_path / "out", feature_plan)
    [column] = graph_files.read_unparsed_dates(str(ours.graph))
    assert column == UnparsedDates("when", "ymd", 98, 2, "31.12.2024")
    assert column.is_high
    [record] = [log_record for log_record in caplog.records if log_record.message.startswith("dates: ")]
    assert record.levelno == logging.WARNING
    assert record.message.startswith("dates: when: 2 of 98 texts (2.0%), such as '31.12.2024', are not dates")


@both_lines
@pytest.mark.slow
def test_result_does_not_depend_on_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "BATCH_ROWS", 20)
    examples_artifact = stored(tmp_path / "in", "parquet", TABLES)
    single = transform(examples_artifact, SCHEMA, tmp_path / "one", small_plan())
    threads = transform(examples_artifact, SCHEMA, tmp_path / "threads", small_plan(), beam=TWO_WORKERS)
    assert_equal(threads, single, "row_z_score")
    program, out = Path(__file__).parents[3] / "support/programs/forked_transform.py", tmp_path / "forked"
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, str(program), examples_artifact.uri, str(out)]
    assert subprocess.run(command, env=environment, check=False, timeout=300).returncode == 0
    forked = copy.deepcopy(threads.examples[0])
    forked.uri = str(out / "examples")
    assert_equal(Transformed(out / "graph", [forked]), single, "row_z_score")


@pytest.mark.slow
def test_run_is_reproducible(small: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "BATCH_ROWS", 30)
    repeated = transform(stored(tmp_path / "in", "parquet", TABLES), SCHEMA, tmp_path / "out", small_plan())
    for split in SPLITS:
        assert [batch.to_pydict() for batch in small.batches(split)] == [b.to_pydict() for b in repeated.batches(split)]


@pytest.mark.extended
def test_splits_artifacts_and_outputs_can_be_selected(tmp_path: Path) -> None:
    first, second = (
        stored(tmp_path / str(seed), "parquet", {"train": table(60, seed), "eval": table(20, seed)}) for seed in (3, 4)
    )
    config = proto_utils.proto_to_json(transform_pb2.SplitsConfig(analyze=["train", "eval"], transform=["eval"]))
    ours = transform([first, second], SCHEMA, tmp_path / "out", small_plan(), splits_config=config)
    assert [artifact.split_names for artifact in ours.examples] == ['["eval"]', '["eval"]']
    assert [len(ours.rows("eval", number)["label"]) for number in (0, 1)] == [20, 20]
    assert sum(int(line.split()[0]) for line in _lines(ours, feature_names.LABEL_COUNTS)) == 160
    graph_only = transform(first, SCHEMA, tmp_path / "graph", small_plan(), materialize=False)
    assert graph_only.examples == []
    assert sum(int(line.split()[0]) for line in _lines(graph_only, feature_names.LABEL_COUNTS)) == 60


@pytest.mark.slow
def test_only_new_files_of_several_spans_are_analyzed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def rows(seed: int) -> pa.RecordBatch:
        return table(60, seed, *[{**NOTHING, "shop": b"only %d" % seed}] * 40)

    spans = [stored(tmp_path / f"in-{seed}", "parquet", {name: rows(seed) for name in SPLITS}) for seed in (5, 6, 7)]
    analyzed: list[str] = []
    states = declared_analysis._Requirements.states

    def record_ranges(self: Any, ranges: Any) -> Any:
        listed = list(ranges)
        analyzed.extend(Path(file_range.path).parents[1].name for file_range in listed)
        return states(self, listed)

    monkeypatch.setattr(declared_analysis._Requirements, "states", record_ranges)

    def run(
        number: int, examples_artifact: list[standard_artifacts.Examples], features: FeaturePlan, **more: Any
    ) -> Transformed:
        analyzed.clear()
        cache = tmp_path / f"cache/{number}"
        return transform(examples_artifact, SCHEMA, tmp_path / f"out-{number}", features, cache=cache, **more)

    plan_with_other_label = small_plan().model_copy(update={"labels": (Label("price > 5"),)})

    first = run(1, spans[:2], small_plan(), materialize=False)
    assert analyzed == ["in-5", "in-6"]
    cached = run(2, spans[1:], small_plan())
    assert analyzed == ["in-7"]
    # The cache contains the counts of span 5, but span 5 is not part of this run, so its values are not in a
    # vocabulary.
    assert {b"only 5", b"only 6"} < {*_lines(first, "shop_vocab")}
    assert {b"only 6", b"only 7"} < {*_lines(cached, "shop_vocab")}
    assert b"only 5" not in _lines(cached, "shop_vocab")
    fresh = transform(spans[1:], SCHEMA, tmp_path / "fresh", small_plan())
    assert cached.files() == fresh.files()
    for split in SPLITS:
        for number in (0, 1):
            for name, feature in fresh.rows(split, number).items():
                np.testing.assert_array_equal(cached.rows(split, number)[name], feature)
    # A cache is complete: it does not depend on the cache of an earlier execution.
    shutil.rmtree(tmp_path / "cache/1")
    run(3, spans[1:], small_plan(), materialize=False)
    assert analyzed == []
    run(4, spans[1:], plan_with_other_label, materialize=False)
    assert analyzed == ["in-6", "in-7"], "other features have other states"
    for entry in (tmp_path / "cache").glob("*/states-*"):
        entry.write_bytes(entry.read_bytes()[:-10])
    damaged = run(5, spans[1:], small_plan(), materialize=False)
    assert analyzed == ["in-6", "in-7"]
    assert damaged.files() == fresh.files()
    assert "the file is analyzed again" in caplog.text


def _lines(transformed: Transformed, name: str) -> list[bytes]:
    return Path(transformed.output.vocabulary_file_by_name(name)).read_bytes().splitlines()


@both_lines
@pytest.mark.parametrize("form", ["parquet", pytest.param("tfrecord", marks=pytest.mark.extended)])
def test_splits_without_rows_are_transformed(form: Format, tmp_path: Path) -> None:
    empty_tables = {name: rows.slice(0, 0) for name, rows in TABLES.items()}
    ours = transform(stored(tmp_path / "in", form, empty_tables), SCHEMA, tmp_path / "out", small_plan())
    assert _lines(ours, "shop_vocab") == [b"\x00"]
    for split in SPLITS:
        assert sum(batch.num_rows for batch in ours.batches(split)) == 0


OWN = "own_transforms.two_phases"


@pytest.fixture(scope="module")
def own_stock(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Return TFX's output for a user-defined preprocessing_fn."""
    # Without the repair, TFX's executor cannot copy Beam's nodes either.
    compat.repair_deep_copies()
    folder = tmp_path_factory.mktemp("own")
    return transform(stored(folder / "in", "tfrecord", TABLES), SCHEMA, folder / "out", OWN, StockExecutor)


@both_lines
@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "tfrecord"])
def test_user_function_with_two_phases_equals_tfxs(form: Format, own_stock: Transformed, tmp_path: Path) -> None:
    ours = transform(stored(tmp_path / "in", form, TABLES), SCHEMA, tmp_path / "out", OWN)
    assert_equal(ours, own_stock)
    tags = [row for batch in ours.batches("train") for row in batch.to_pydict()["tags"]]
    assert tags == TABLES["train"].to_pydict()["tags"], "a row without values is null"


def own_plan(function: str) -> FeaturePlan:
    features = FeaturesConfig(preprocessing_fn=function)
    return FeaturePlan(features=features, labels=(Label("count"),), task="binary")


@both_lines
def test_failing_user_function_is_reported_with_its_line(tmp_path: Path) -> None:
    examples_artifact = stored(tmp_path / "in", "parquet", TABLES)
    with pytest.raises(
        InputError, match=r"own_transforms.py:\d+: own_transforms.fails failed: ValueError: no such luck"
    ):
        transform(examples_artifact, SCHEMA, tmp_path / "out", own_plan("own_transforms.fails"))


@pytest.mark.extended
@both_lines
def test_ragged_tensors_are_rejected(tmp_path: Path) -> None:
    examples_artifact = stored(tmp_path / "in", "parquet", TABLES)
    with pytest.raises(InputError, match=r"expected dense or sparse tensors, received ragged tensors: words"):
        transform(examples_artifact, SCHEMA, tmp_path / "out", own_plan("own_transforms.ragged"))


@both_lines
def test_operation_that_does_not_fit_its_column_is_reported(tmp_path: Path) -> None:
    features = FeaturesConfig.model_validate({"columns": {"shop": "z_score"}})
    examples_artifact = stored(tmp_path / "in", "parquet", TABLES)
    with pytest.raises(InputError, match=r"features.columns.shop: z_score takes .*, and the column shop holds bytes"):
        transform(
            examples_artifact,
            SCHEMA,
            tmp_path / "out",
            FeaturePlan(features=features, labels=(Label("count > 1"),), task="binary"),
        )


@both_lines
def test_unsupported_options_are_left_to_tfx(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(StockExecutor, "Do", lambda _, *arguments: calls.append(arguments))
    # These methods read the output of TFX's executor, which is replaced here and does not write any.
    for name in ("write_sample", "check"):
        monkeypatch.setattr(executor._Task, name, lambda _: None)
    examples_artifact = stored(tmp_path / "in", "tfrecord", TABLES)
    with caplog.at_level(logging.INFO):
        transform(examples_artifact, SCHEMA, tmp_path / "out", small_plan(), disable_statistics=0)
    assert "Transform uses TFX's executor because of statistics" in caplog.text
    assert len(calls) == 1
    columns = stored(tmp_path / "columns", "parquet", TABLES)
    message = "expected TFRecords, which TFX's executor reads, received Parquet; statistics needs it"
    with pytest.raises(InputError, match=re.escape(message)):
        transform(columns, SCHEMA, tmp_path / "refused", small_plan(), disable_statistics=0)
    assert len(calls) == 1
