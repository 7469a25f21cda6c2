"""Gradients at a checkpoint equal NumPy's, and their histograms count each of them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import tf_keras
from pyarrow import parquet

from components.features import feature_names
from components.trainer.config import TensorBoardConfig, TrainingConfig
from components.trainer.gradient_histograms import GradientProbe, _merge_rows
from components.trainer.input_pipeline import InputPipeline
from components.trainer.prediction_head import BinaryHead
from components.trainer.tensorboard_writer import TensorBoardWriter
from tests.support.data.tolerances import float32_sum
from tests.support.programs.training_output import curves

ROWS, BATCH, WIDTH = 40, 32, 3


def make_pipeline(folder: Path, cache: str) -> InputPipeline:
    random = np.random.default_rng(2)
    values = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    labels = random.integers(0, 2, (ROWS, 1)).astype(np.float32)
    columns = {"x": values.tolist(), feature_names.LABEL: labels.tolist()}
    arrays = {name: pa.array(column, pa.large_list(pa.float32())) for name, column in columns.items()}
    parquet.write_table(pa.table(arrays), folder / "examples", row_group_size=10)
    spec = {
        "x": tf.io.FixedLenFeature([WIDTH], tf.float32),
        feature_names.LABEL: tf.io.FixedLenFeature([], tf.float32),
    }
    config = TrainingConfig.model_validate({"cache": cache, "batch_size": BATCH})
    return InputPipeline([str(folder / "examples")], spec, config, BATCH)


def make_network() -> tf_keras.Model:
    tensor = tf_keras.layers.Input((WIDTH,), name="x")
    layer = tf_keras.layers.Dense(1, name="linear", kernel_initializer=tf_keras.initializers.RandomNormal(seed=3))
    return tf_keras.Model({"x": tensor}, layer(tensor))


def differentiate(network: tf_keras.Model, batch: Any) -> dict[str, Any]:
    """Return the gradients of the mean crossentropy of a linear model, by NumPy in float64."""
    kernel, bias = (weight.numpy().astype(np.float64) for weight in network.trainable_variables)
    features, label = batch[0]["x"].numpy().astype(np.float64), batch[1].numpy()
    errors = 1 / (1 + np.exp(-(features @ kernel + bias))) - label
    return {"linear/kernel:0": features.T @ errors / len(label), "linear/bias:0": errors.mean(axis=0)}


@pytest.mark.parametrize(("cache", "parts"), [("memory", 1), ("none", 3)])
def test_gradients_equal_those_of_numpy_after_every_checkpoint(tmp_path: Path, cache: str, parts: int) -> None:
    network = make_network()
    probe = GradientProbe(network, BinaryHead(), make_pipeline(tmp_path, cache), parts)
    with TensorBoardWriter(str(tmp_path), "gradients", TensorBoardConfig(gradients=True)) as writer:
        expected = {}
        for step in (10, 20):
            gradients = probe.compute()
            expected[step] = differentiate(network, probe._batch)
            assert gradients.keys() == expected[step].keys()
            for name, gradient in gradients.items():
                float32_sum(BATCH, largest=4.0).assert_close(gradient.numpy(), expected[step][name])
            writer.gradients(step, gradients)
            network.set_weights([weight + 1 for weight in network.get_weights()])
    written = curves(tmp_path / "gradients")
    assert written.keys() == {"gradient/linear/kernel:0", "gradient/linear/bias:0"}
    for name, buckets_by_step in written.items():
        for step, buckets in buckets_by_step.items():
            values = expected[step][name.removeprefix("gradient/")].ravel()
            assert buckets[:, 2].sum() == values.size
            occupied = buckets[buckets[:, 2] > 0]
            float32_sum(BATCH, largest=4.0).assert_close(np.array([occupied[0, 0]]), values.min(keepdims=True))
            float32_sum(BATCH, largest=4.0).assert_close(np.array([occupied[-1, 1]]), values.max(keepdims=True))
    assert len(np.unique(probe._batch[0]["x"].numpy()[:, 0])) == BATCH
    assert probe._compute.experimental_get_tracing_count() == 1


def test_rows_of_a_table_occur_once() -> None:
    values = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    merged = _merge_rows(tf.IndexedSlices(values, tf.constant([7, 2, 7]), tf.constant([1_000_000_000, 2])))
    assert merged.numpy().tolist() == [[6.0, 8.0], [3.0, 4.0]]


def test_values_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    with TensorBoardWriter(str(tmp_path), "gradients", TensorBoardConfig()) as writer:
        writer.gradients(1, {"w": tf.constant([1.0, float("nan"), 2.0, float("inf")])})
    [buckets] = curves(tmp_path / "gradients")["gradient/w"].values()
    assert buckets[:, 2].sum() == 2
