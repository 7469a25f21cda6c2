"""Transform's executor: its graph and examples compared with those of TFX's, on real trips and on random tables."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import ingest_runs
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from all_operations import NOTHING, SPEC, plan, rows, values
from example_files import stored
from google.protobuf import text_format
from ingest_runs import FORMATS, TWO_WORKERS, data, ingest
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import schema_utils
from tfx.components.transform.executor import Executor as StockExecutor
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from transform_runs import Transformed, transform

from components.data import examples
from components.data.examples import Format
from components.errors import InputError
from components.features import feature_names
from components.features.config import FeaturesConfig
from components.features.plan import FeaturePlan
from components.transform import apply, declared_analysis, transform_graph
from pipeline.authoring.config import load

pytestmark = pytest.mark.both_lines
TRIPS = 3_000
SCHEMA = schema_utils.schema_from_feature_spec(SPEC)
_TYPES = {tf.int64: pa.int64(), tf.float32: pa.float32(), tf.string: pa.binary()}


def table(of_rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows of `all_operations` as a table of lists; a row without a value is null."""
    columns = {name: [values(row[name]) or None for row in of_rows] for name in SPEC}
    return pa.RecordBatch.from_pydict(
        {name: pa.array(column, pa.list_(_TYPES[SPEC[name].dtype])) for name, column in columns.items()}
    )


TABLES = {"train": table(rows(400, seed=1)), "eval": table([*rows(100, seed=2), NOTHING])}


def assert_equal(ours: Transformed, stock: Transformed, splits: tuple[str, ...] = ("train", "eval")) -> None:
    """Compares all files of the graph byte for byte but the graph itself, and the features within float rounding."""
    assert ours.files().keys() == stock.files().keys()
    for name, content in stock.files().items():
        assert ours.files()[name] == content, name
    for split in splits:
        received, expected = ours.rows(split), stock.rows(split)
        assert received.keys() == expected.keys()
        for name, feature in expected.items():
            assert received[name].dtype == feature.dtype
            if feature.dtype == np.float32:
                np.testing.assert_allclose(received[name], feature, rtol=1e-5, atol=1e-6, err_msg=f"{split} {name}")
            else:
                np.testing.assert_array_equal(received[name], feature, err_msg=f"{split} {name}")


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """TFX's output for all operations."""
    folder = tmp_path_factory.mktemp("stock")
    return transform(stored(folder / "in", "tfrecord", TABLES), SCHEMA, folder / "out", plan(), StockExecutor)


@pytest.mark.parametrize("form", FORMATS)
def test_every_operation_is_transformed_as_by_tfx(
    form: Format, stock: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several batches, parts of vocabularies, calls of the graph and files.
    monkeypatch.setattr(examples, "BATCH_ROWS", 150)
    monkeypatch.setattr(declared_analysis, "_MOST_ENTRIES", 100)
    monkeypatch.setattr(transform_graph, "_CALL_ROWS", 64)
    monkeypatch.setattr(apply, "_SHARD", 100_000)
    ours = transform(stored(tmp_path / "in", form, TABLES), SCHEMA, tmp_path / "out", plan())
    assert_equal(ours, stock)
    (artifact,) = ours.examples
    assert len(list(Path(artifact.uri).glob("Split-train/*"))) > 1
    assert examples_utils.get_payload_format(artifact) == (
        example_gen_pb2.FORMAT_PARQUET if form == "parquet" else example_gen_pb2.FORMAT_TF_EXAMPLE
    )


def test_workers_give_the_same_result(stock: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "BATCH_ROWS", 50)
    given = stored(tmp_path / "in", "parquet", TABLES)
    ours = transform(given, SCHEMA, tmp_path / "out", plan(), beam=TWO_WORKERS)
    # Rows are in another order: which worker has which rows is up to Beam.
    assert ours.files() == stock.files()
    for split in TABLES:
        received, expected = ours.rows(split), stock.rows(split)
        order, stock_order = (np.argsort(each["row_z_score"], kind="stable") for each in (received, expected))
        for name, feature in expected.items():
            np.testing.assert_allclose(received[name][order], feature[stock_order], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("config", ["taxi", "clicks"])
def test_the_examples_configs_are_transformed_as_by_tfx(config: str, tmp_path: Path) -> None:
    loaded = load(f"configs/{config}.yaml").config
    (source,) = (
        sorted(Path(loaded.data.path).glob("*.csv"))[:1]
        if Path(loaded.data.path).is_dir()
        else [Path(loaded.data.path)]
    )
    head = source.read_text().splitlines(keepends=True)[: TRIPS + 1]
    (tmp_path / "head.csv").write_text("".join(head))
    given = ingest(data(tmp_path / "head.csv", split={"train": 2, "eval": 1}), tmp_path / "in")
    schema = _schema(loaded.schema_.path, given)
    chosen = FeaturePlan(features=loaded.features, label=loaded.data.label, task=loaded.data.task)
    expected = transform(given, schema, tmp_path / "stock", chosen, StockExecutor)
    assert_equal(transform(given, schema, tmp_path / "out", chosen), expected)


def _schema(path: str | None, given: Any) -> schema_pb2.Schema:
    if path:
        return text_format.Parse(Path(path).read_text(), schema_pb2.Schema())
    types = {"int": schema_pb2.INT, "float": schema_pb2.FLOAT, "bytes": schema_pb2.BYTES}
    kinds: dict[str, str] = __import__("json").loads(given.get_string_custom_property("column_types"))
    return schema_pb2.Schema(
        feature=[
            schema_pb2.Feature(name=name, type=types[kind], value_count=schema_pb2.ValueCount(max=1))
            for name, kind in kinds.items()
        ]
    )
