"""Tests of the size of an exported graph: each column adds few nodes, and signatures share the transform graph."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2

from components.compat import tft as compat
from components.features import compact
from components.features.analysis import constant
from components.features.column_group import Columns
from components.features.plan import FeaturePlan
from components.features.preprocessing import DeclaredOperations
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import inputs
from components.results.request_schema import Column, RequestSchema
from components.serving.server import json_codec
from components.serving.server.errors import RequestError
from components.serving.server.saved_model import SavedModel
from components.serving.server.warm_up import warm_up
from components.trainer import export_check, request_columns
from components.trainer.export import export
from components.transform.raw_batches import RawBatches
from tests.support.data.graph_nodes import count_nodes

pytestmark = pytest.mark.both_lines


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    # Reset the default graph, because eager operations of other tests leave unnamed tensors in its collections.
    tf.compat.v1.reset_default_graph()
    monkeypatch.setattr(export_check, "prediction_process", contextlib.nullcontext)
    monkeypatch.setattr(export_check, "check", lambda *_: None)


def signatures(columns: int, folder: Path, schema: RequestSchema | None = None, op: Any = "z_score") -> Any:
    """Export a model whose float columns use `op` and `missing`, load it, and return its signatures."""
    names = [f"x{number}" for number in range(columns)]
    plan = FeaturePlan.model_validate(
        {
            "features": {"columns": {name: [op, "missing"] for name in names}},
            "labels": [{"text": "y"}],
            "task": "regression",
        }
    )
    raw_schema = schema_pb2.Schema(
        feature=[schema_pb2.Feature(name=name, type=schema_pb2.FLOAT) for name in (*names, "y")]
    )
    # These rows serve as moments for z_score and as the edges of three bins for piecewise_linear.
    numbers = np.array([[1.0], [2.0], [3.0], [9.0]]).repeat(columns, axis=1)
    results = {plan.features.declared[0].name: constant(numbers), "label/0": constant(np.zeros(0))}
    compat.write_transform_graph(
        lambda columns: DeclaredOperations(plan, Columns(columns)).outputs(results),
        RawBatches(raw_schema, None).specs,
        {},
        str(folder),
    )
    compat.write_schema(raw_schema, str(folder / tft.TFTransformOutput.RAW_METADATA_DIR))
    transform = tft.TFTransformOutput(str(folder))
    network = build(ModelConfig(hidden=(4,)), inputs(plan, transform.vocabulary_size_by_name), 1)
    export(network, lambda logits: {"prediction": logits}, plan, transform, str(folder / "model"), schema=schema)
    if schema:
        request_columns.write(schema, str(folder / "model"))
    return tf.saved_model.load(str(folder / "model")).signatures


MAX_NODES_PER_COLUMN = {"serving_default": 20, "raw": 24, "transform_features": 16, "transform_labels": 8}
"""Maximum number of graph nodes that one more column with two features may add to each signature: the components of
its sparse tensor in three functions, the inputs of the network, the outputs, and the nodes that split and join them."""


@pytest.mark.extended
@pytest.mark.usefixtures("_unchecked")
def test_signatures_have_few_nodes_per_column(tmp_path: Path) -> None:
    few, many = signatures(5, tmp_path / "few"), signatures(25, tmp_path / "many")
    counts = {name: (count_nodes(many[name]) - count_nodes(few[name])) / 20 for name in MAX_NODES_PER_COLUMN}
    assert {name: count for name, count in counts.items() if count > MAX_NODES_PER_COLUMN[name]} == {}


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.slow
def test_splitting_a_batch_adds_the_same_number_of_nodes_for_any_column_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for part_bytes in (1, 1 << 30):
        monkeypatch.setattr(compact, "_PART_BYTES", part_bytes)
        tf.compat.v1.reset_default_graph()
        loaded = [
            signatures(columns, tmp_path / f"{part_bytes}-{columns}", op={"piecewise_linear": {"bins": 3}})["raw"]
            for columns in (5, 25)
        ]
        # The bodies of loops are functions of the library, so count the nodes of those as well.
        libraries = [signature.graph.as_graph_def().library.function for signature in loaded]
        counts.append([sum(len(function.node_def) for function in library) for library in libraries])
    assert counts[0][0] > counts[1][0]
    assert counts[0][1] - counts[0][0] <= counts[1][1] - counts[1][0]


@pytest.mark.usefixtures("_unchecked")
def test_signatures_share_the_functions_of_features_and_prediction(tmp_path: Path) -> None:
    loaded = signatures(3, tmp_path)
    called = {name: _find_called_functions(loaded[name]) for name in ("serving_default", "raw", "transform_features")}
    assert len(set.intersection(*called.values())) == 1
    assert len(called["serving_default"] & called["raw"]) == 2


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.extended
def test_matrix_signature_of_a_wide_model_predicts_the_same_as_the_raw_signature(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"x{number}" for number in range(100)]
    schema = RequestSchema(columns={name: Column(dtype="float32", required=name == "x5") for name in names})
    loaded = signatures(100, tmp_path, schema)
    values = np.random.default_rng(1).normal(size=(7, 100)).astype(np.float32)
    values[3, [0, 50]] = np.nan
    by_column = {name: tf.constant(column) for name, column in zip(names, values.T, strict=True)}
    expected = loaded["raw"](**by_column)["prediction"].numpy()
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(loaded["matrix"](float32=values)["prediction"], expected, atol=1e-5)

    served = SavedModel(tmp_path / "model", 1)
    warm_up(served, tmp_path / "model")
    assert "refuses the warm-up row" not in caplog.text
    signature = served.signatures["matrix"]
    np.testing.assert_allclose(signature.run({"float32": values})["prediction"], expected, atol=1e-5)
    row = [None if np.isnan(value) else value for value in values[3].tolist()]
    from_json = json_codec.inputs({"instances": [row]}, signature)
    np.testing.assert_allclose(signature.run(from_json)["prediction"], expected[3:4], atol=1e-5)
    values[6, 5] = np.nan
    with pytest.raises(RequestError, match=r"column 'x5': expected a value in each row, .* in row 6"):
        signature.run({"float32": values})
    served.close()


def _find_called_functions(signature: Any) -> set[str]:
    """Return the names of the functions that the signature's wrapped function calls."""
    (wrapped,) = [node for node in signature.graph.as_graph_def().node if "PartitionedCall" in node.op]
    functions = {function.signature.name: function for function in signature.graph.as_graph_def().library.function}
    nodes = functions[wrapped.attr["f"].func.name].node_def
    return {node.attr["f"].func.name for node in nodes if "PartitionedCall" in node.op}
