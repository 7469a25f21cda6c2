"""Every feature operation under one contract: one graph in training and serving, stated dtypes and ranges."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from components.errors import InputError
from components.features import names, ops
from components.features.column import column
from components.features.config import OPS, FeaturesConfig
from components.features.ops import Dense, Ids
from components.features.plan import FeaturePlan
from components.features.preprocessing import preprocessing_fn
from components.models.inputs import inputs
from pipeline.config.runtime import RuntimeConfig
from pipeline.engines import beam_args

OPTIONS: dict[str, dict[str, Any]] = {
    "z_score": {},
    "log": {},
    "min_max": {},
    "clip": {"low": 1, "high": 12},
    "pass_through": {},
    "missing": {},
    "piecewise_linear": {"bins": 5},
    "bucketize": {"buckets": 4},
    "vocab": {"size": 3, "oov_buckets": 2},
    "hash": {"buckets": 7},
    "image": {"height": 4, "width": 4},
}
COLUMNS = {"int": "count", "float": "price", "bytes": "shop"}
LABEL = "price > 10 and count > 1"


def png(grey: int) -> bytes:
    """A picture of 8 by 8 pixels of one grey."""
    return bytes(tf.io.encode_png(tf.fill([8, 8, 1], tf.constant(grey, tf.uint8))).numpy())


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Random rows; about a fifth of the values is missing."""
    random = np.random.default_rng(seed)

    def maybe(value: Any) -> Any:
        return None if random.random() < 0.2 else value

    return [
        {
            "count": maybe(int(random.integers(-5, 20))),
            "price": maybe(float(np.float32(random.lognormal(2, 1)))),
            "shop": maybe(bytes(random.choice([b"a", b"b", b"c", b"d", b"\xc3\xa9"]))),
            "picture": maybe(png(int(random.integers(0, 255)))),
            "row": index,
        }
        for index in range(count)
    ]


def plan() -> FeaturePlan:
    """Every operation on every column whose dtype it takes."""
    chosen = {
        name: [{op: OPTIONS[op]} for op, kind in OPS.items() if dtype in kind.takes and op != "image"]
        for dtype, name in COLUMNS.items()
    }
    features = FeaturesConfig.model_validate(
        {"columns": {**chosen, "picture": {"image": OPTIONS["image"]}, "row": "z_score"}}
    )
    return FeaturePlan(features=features, label=LABEL, task="binary")


SPEC = {
    "count": tf.io.VarLenFeature(tf.int64),
    "price": tf.io.VarLenFeature(tf.float32),
    "shop": tf.io.VarLenFeature(tf.string),
    "picture": tf.io.VarLenFeature(tf.string),
    "row": tf.io.VarLenFeature(tf.int64),
}


@pytest.fixture(scope="module")
def transformed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[Any], Any]:
    """Training rows, their transformed features as Transform computes them, and the graph that serving loads."""
    folder: Path = tmp_path_factory.mktemp("ops")
    given = rows(200, seed=1)
    metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(SPEC))
    told = {"plan": plan().model_dump_json()}
    options = beam.options.pipeline_options.PipelineOptions(beam_args(RuntimeConfig()))
    with tft_beam.Context(temp_dir=str(folder / "tmp")), beam.Pipeline(options=options) as pipeline:
        data = pipeline | beam.Create([{k: [] if v is None else [v] for k, v in row.items()} for row in given])
        (out, _), transform = (data, metadata) | tft_beam.AnalyzeAndTransformDataset(
            lambda features: preprocessing_fn(features, told)
        )
        _ = transform | tft_beam.WriteTransformFn(str(folder / "graph"))
        _ = (
            out
            | beam.Map(lambda row: base64.b64encode(pickle.dumps(dict(row))).decode())
            | beam.io.WriteToText(str(folder / "out"), shard_name_template="")
        )
    lines = (folder / "out").read_text().splitlines()
    trained = [pickle.loads(base64.b64decode(line)) for line in lines]  # noqa: S301 - written a line above
    return given, trained, tft.TFTransformOutput(str(folder / "graph"))


def serve(transform: tft.TFTransformOutput, given: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The features of rows as a served model computes them: from serialized tf.Examples."""
    parsed = tf.io.parse_example([example(row) for row in given], SPEC)
    return {name: value.numpy() for name, value in transform.transform_features_layer()(parsed).items()}


def example(row: dict[str, Any]) -> bytes:
    feature = {}
    for name, value in row.items():
        if value is None:
            continue
        if isinstance(value, bytes):
            feature[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        elif isinstance(value, float):
            feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
        else:
            feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def chosen() -> list[tuple[str, str]]:
    return [(name, op.op) for name, ops_ in plan().features.columns.items() for op in ops_]


def test_every_registered_operation_is_under_contract() -> None:
    assert {op for _, op in chosen()} == set(OPS) == {kind.model_fields["op"].default for kind in ops.OPERATIONS}


def test_training_and_serving_compute_the_same(transformed: Any) -> None:
    given, trained, transform = transformed
    served = serve(transform, given)
    order = np.argsort([row["row_z_score"] for row in trained])
    assert len(order) == len(given)
    for name, values in served.items():
        np.testing.assert_allclose(
            np.stack([trained[index][name] for index in order]), values, rtol=1e-5, atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize(("name", "op"), chosen())
def test_a_feature_is_what_it_says_to_the_model(transformed: Any, name: str, op: str) -> None:
    _, _, transform = transformed
    fresh = [*rows(100, seed=2), dict.fromkeys(SPEC)]
    feature = names.feature(name, op)
    values = serve(transform, fresh)[feature]
    gives = inputs(plan(), transform.vocabulary_size_by_name).features[feature]
    assert np.isfinite(values).all()
    if isinstance(gives, Ids):
        assert values.dtype == np.int64
        assert values.shape == (101,)
        assert values.min() >= 0
        assert values.max() < gives.cardinality
        missing = np.array([row[name] is None for row in fresh])
        assert (values[missing] == 0).all(), "a missing value has id 0"
        assert (values[~missing] != 0).all(), "and no other value has"
    else:
        assert isinstance(gives, Dense)
        assert values.dtype == np.float32
        assert values.shape == ((101,) if gives.width == 1 else (101, gives.width))
        if name != "row":
            assert (values[-1] == (op == "missing")).all(), "a missing number is 0, a missing picture is black"


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["int", "float", "bytes"])
def test_an_operation_refuses_a_dtype_it_does_not_take(op: str, dtype: Any) -> None:
    chosen_op = FeaturesConfig.model_validate({"columns": {"x": {op: OPTIONS[op]}}}).columns["x"][0]
    if dtype in chosen_op.takes:
        return
    tensor = {"int": tf.constant([1], tf.int64), "float": tf.constant([1.0]), "bytes": tf.constant([b"a"])}[dtype]
    with pytest.raises(InputError, match=f"features.columns.x: {op} takes .*, and the column holds {dtype}"):
        ops.need(chosen_op, column("x", tensor), "x")


def test_the_label_is_false_where_a_value_is_missing(transformed: Any) -> None:
    given, _, transform = transformed
    label = serve(transform, given)[names.LABEL]
    want = [
        row["price"] is not None and row["count"] is not None and row["price"] > 10 and row["count"] > 1
        for row in given
    ]
    assert label.tolist() == [int(answer) for answer in want]
    assert label.dtype == np.int64
