"""Skew between training and serving, inserted on purpose, fails the export; an export without it passes.

The export compares served values with the transformed examples and with the network in memory. A comparison of the
exported model with itself would not find the changes in this file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.base import child_process
from components.base.errors import MachineError
from components.compat import tft as compat
from components.data import skew_sample
from components.data.skew_sample import Predictions
from components.features import feature_names
from components.features.compact import CompactFeatures
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import inputs
from components.results.request_schema import Column, RequestSchema
from components.trainer import export as export_module
from components.trainer import model_export, skew_check
from components.trainer.export import export
from tests.support.data.all_operations import NOTHING, SCHEMA, small_plan, table
from tests.support.data.example_files import stored
from tests.support.programs import forked_export_check
from tests.support.runs.transform_runs import Transformed, transform

pytestmark = [pytest.mark.both_lines, pytest.mark.extended]

ROWS = 300
OUTPUT = "probability"
Export = Callable[[], Predictions]


@pytest.fixture(scope="module")
def transform_result(tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    folder = tmp_path_factory.mktemp("skew")
    tables = {"train": table(ROWS, 1, NOTHING), "eval": table(1, 2)}
    return transform(stored(folder / "in", "parquet", tables), SCHEMA, folder / "out", small_plan())


@pytest.fixture(scope="module")
def network(transform_result: Transformed) -> tf_keras.Model:
    """Return a small network, trained for a few steps on the transformed examples."""
    tf_keras.utils.set_random_seed(0)
    network_inputs_ = inputs(small_plan(), transform_result.output.vocabulary_size_by_name)
    network = build(ModelConfig(hidden=(8,)), network_inputs_, 1)
    rows = transform_result.rows("train")
    features = network_inputs(network, rows)
    label = tf.constant(rows[feature_names.LABEL], tf.float32)[:, tf.newaxis]
    optimizer = tf_keras.optimizers.legacy.SGD(0.1)
    # Run eagerly, because tracing would take longer.
    for _ in range(3):
        with tf.GradientTape() as tape:
            logits = network(features, training=True)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))
        weights = network.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return network


def network_inputs(network: tf_keras.Model, rows: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Return the inputs of the network from transformed rows."""
    stored_features = {tensor.name: tf.constant(rows[tensor.name]) for tensor in network.inputs}
    return CompactFeatures.find(small_plan().features).expand(stored_features)


@pytest.fixture
def run(
    transform_result: Transformed, network: tf_keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Export:
    """Export the network, with the sample that Transform wrote."""
    monkeypatch.setattr(child_process, "_PYTHON", forked_export_check.python())
    sample = skew_sample.read(str(transform_result.graph))
    assert sample is not None

    def export_model() -> Any:
        return export(network, outputs, small_plan(), transform_result.output, str(tmp_path / "model"), sample=sample)

    return export_model


def change_output(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Any], Any]) -> None:
    """Change an output of the transform in all exported graphs that compute it."""
    original = compat.LoadedTransformGraph.__call__

    def change_features(graph: Any, columns: Any, names: Any) -> Any:
        return {
            key: change(feature) if key == name else feature for key, feature in original(graph, columns, names).items()
        }

    monkeypatch.setattr(compat.LoadedTransformGraph, "__call__", change_features)


def outputs(logits: tf.Tensor) -> dict[str, tf.Tensor]:
    return {OUTPUT: tf.sigmoid(logits)}


def test_model_without_skew_passes_and_predicts_what_was_trained(
    run: Export, transform_result: Transformed, network: tf_keras.Model
) -> None:
    predictions = run()
    rows = [transform_result.rows(split) for split in ("train", "eval")]
    expected = np.concatenate([network(network_inputs(network, row)).numpy().ravel() for row in rows])
    expected = 1 / (1 + np.exp(-expected.astype(float)))
    received = predictions.outputs[OUTPUT]
    assert received.shape == (ROWS + 2, 1)
    np.testing.assert_allclose(np.sort(received.ravel()), np.sort(expected), rtol=1e-5, atol=1e-6)
    assert len({*predictions.examples.tolist()}) == ROWS + 2


def test_exported_graph_refuses_rows_that_cannot_be_right(
    transform_result: Transformed, network: tf_keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "_PYTHON", forked_export_check.python())
    requests = RequestSchema(columns={"row": Column(dtype="int64", required=True)})
    export(network, outputs, small_plan(), transform_result.output, str(tmp_path / "model"), schema=requests)
    predict = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    row, empty_row = (tf.train.Example() for _ in range(2))
    row.features.feature["row"].int64_list.value.append(1)
    empty_row.features.feature["rwo"].int64_list.value.append(1)
    assert predict(tf.constant([row.SerializeToString()]))[OUTPUT].shape == (1, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"row .*is required"):
        predict(tf.constant([row.SerializeToString(), empty_row.SerializeToString()]))


@pytest.mark.parametrize(
    ("dtype", "change", "where"),
    [
        (tf.float32, lambda value: value + 1.0, "price_log|price_piecewise_linear|row_z_score"),
        # Stay within the range of the IDs.
        (tf.int64, lambda value: tf.maximum(value - 1, 0), "price_bucketize|shop_vocab|tags_multi_hot"),
    ],
    ids=["floats", "ids"],
)
def test_transform_of_the_export_that_differs_is_an_error(
    dtype: tf.DType, change: Callable[[Any], Any], where: str, run: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = compat.LoadedTransformGraph.__call__

    def move_ids(graph: Any, columns: Any, names: Any) -> Any:
        computed = original(graph, columns, names)
        return {
            name: change(value) if value.dtype == dtype and name != feature_names.LABEL else value
            for name, value in computed.items()
        }

    monkeypatch.setattr(compat.LoadedTransformGraph, "__call__", move_ids)
    message = (
        rf"transform_features of the exported model, ({where}), row \d+: expected \S+, as in the transformed examples, "
        r"received \S+\n(  - \w+: .*\n)+"
    )
    with pytest.raises(MachineError, match=message):
        run()


def test_label_of_the_export_that_differs_is_an_error(run: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    change_output(monkeypatch, feature_names.LABEL, lambda label: 1 - label)
    with pytest.raises(MachineError, match=r"transform_labels of the exported model, label, row 0: expected [01]"):
        run()


def test_one_row_with_an_extreme_suffices(
    run: Export, transform_result: Transformed, monkeypatch: pytest.MonkeyPatch
) -> None:
    greatest = transform_result.rows("train")["row_z_score"].max()
    change_output(monkeypatch, "row_z_score", lambda value: tf.minimum(value, float(greatest) - 1e-3))
    with pytest.raises(MachineError, match=rf"row_z_score, row \d+: expected {greatest:.3f}"):
        run()


def test_exported_weights_that_differ_from_the_trained_ones_are_an_error(
    run: Export, network: tf_keras.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, save, compute = network.get_weights(), tf.saved_model.save, skew_check.compute

    def save_others(*arguments: Any, **options: Any) -> None:
        network.set_weights([weights * 1.01 for weights in trained])
        save(*arguments, **options)

    def compute_with_trained(*arguments: Any) -> Any:
        # Predict only now, so that the exported graph gives the same here as in the new process.
        network.set_weights(trained)
        return compute(*arguments)

    monkeypatch.setattr(export_module.tf.saved_model, "save", save_others)
    monkeypatch.setattr(export_module.skew_check, "compute", compute_with_trained)
    message = (
        r"serving_default of the exported model for the sample of Transform, probability, row \d+: "
        r"expected 0\.\d+, received 0\.\d+\n(  - \w+: .*\n)+"
    )
    with pytest.raises(MachineError, match=message):
        run()


def test_training_without_a_sample_is_an_error(tmp_path: Path) -> None:
    arguments: Any = SimpleNamespace(transform_graph_path=str(tmp_path))
    with pytest.raises(MachineError, match="expected a sample of the transformed rows, received none"):
        model_export.export_model(None, arguments, None)  # type: ignore[arg-type]
