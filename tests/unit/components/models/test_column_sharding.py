"""Tests that products, lookups and gradients of a matrix in column shards equal the results of the whole matrix."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.feature_spec import Dense, Ids
from components.models import layers
from components.models.build import build
from components.models.column_sharding import ColumnShards, on_devices
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from tests.support.data.tolerances import float32_sum

PRODUCT = float32_sum(3, largest=4.0)
"""Tolerance of sums of three products, each of at most 3 times 1.3."""
GRADIENT = float32_sum(4, largest=15.0)
"""Tolerance of sums over four columns, with weights of up to 11 times 1.3."""
DEVICES = ("CPU:0", "CPU:0")
"""Both shards are on the same device, since tests run on a single CPU."""


def shards(values: Any) -> ColumnShards:
    return ColumnShards([tf.Variable(part) for part in np.split(np.asarray(values, np.float32), 2, axis=1)])


@pytest.fixture(scope="module")
def matrix() -> Any:
    return np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("product", "by_shard"),
    [
        (lambda left, matrix: tf.matmul(left, matrix), True),
        (lambda left, matrix: tf.matmul(a=left, b=matrix, name="named"), True),
        (lambda left, matrix: tf.matmul(left, matrix, transpose_a=True), False),
        (lambda left, matrix: tf.tensordot(left, matrix, 1), True),
        (lambda left, matrix: tf.tensordot(left, matrix, [[1], [0]]), True),
        (lambda left, matrix: tf.tensordot(left, matrix, [[0], [0]]), False),
    ],
)
def test_products_and_gradients_equal_the_whole_matrix(matrix: Any, product: Any, by_shard: bool) -> None:
    left = tf.Variable(tf.ones([3, 3]) * [[1.0, -2.0, 3.0]])

    def compute(variable: Any, parts: list[tf.Variable]) -> Any:
        with tf.GradientTape() as tape:
            result = product(left, variable)
            loss = tf.reduce_sum(result * tf.reshape(tf.range(12.0), [3, 4]))
        return result, tape.gradient(loss, [left, *parts])

    whole, divided = tf.Variable(matrix), shards(matrix)
    expected, (left_gradient, whole_gradient) = compute(whole, [whole])
    in_graph = tf.function(functools.partial(compute, divided, list(divided)), autograph=False)
    for actual, (actual_left_gradient, *shard_gradients) in (compute(divided, list(divided)), in_graph()):
        PRODUCT.assert_close(actual, expected)
        GRADIENT.assert_close(actual_left_gradient, left_gradient)
        # These gradients are sums of whole numbers, and therefore exact.
        np.testing.assert_array_equal(tf.concat(shard_gradients, axis=1), whole_gradient)
    products = [
        operation for operation in in_graph.get_concrete_function().graph.get_operations() if operation.type == "MatMul"
    ]
    assert len(products) == (2 * 3 if by_shard else 3), "one, and two in its gradient, for each shard"


def test_members_of_an_ensemble_are_multiplied_with_shards(matrix: Any) -> None:
    members = np.random.default_rng(1).normal(size=(5, 2, 3)).astype(np.float32)
    product = tf.tensordot(tf.constant(members), shards(matrix), [[2], [0]])
    PRODUCT.assert_close(product, members @ matrix)
    PRODUCT.assert_close(tf.matmul(tf.constant(members), shards(matrix)), members @ matrix)


def test_lookup_has_sparse_gradients_for_every_shard(matrix: Any) -> None:
    divided, ids = shards(matrix), tf.constant([[2, 0], [2, 2]], tf.int64)
    with tf.GradientTape() as tape:
        rows = tf.nn.embedding_lookup(divided, ids)
        loss = tf.reduce_sum(rows)
    np.testing.assert_array_equal(rows, matrix[ids.numpy()])
    assert rows.shape == (2, 2, 4)
    for gradient in tape.gradient(loss, list(divided)):
        assert isinstance(gradient, tf.IndexedSlices)
        np.testing.assert_array_equal(tf.math.unsorted_segment_sum(gradient.values, gradient.indices, 3)[2], [3, 3])


def test_other_operations_use_the_whole_matrix(matrix: Any) -> None:
    divided = shards(matrix)
    assert divided.shape == (3, 4)
    assert divided.dtype == tf.float32
    np.testing.assert_array_equal(tf.convert_to_tensor(divided), matrix)
    PRODUCT.assert_close(tf.einsum("bi,io->bo", tf.ones([1, 3]), divided)[0], matrix.sum(axis=0))


def test_matrices_are_divided_if_the_devices_divide_their_columns() -> None:
    inputs = Inputs({"a": Dense(), "b": Dense(2), "x": Ids(300), "y": Ids(3)})
    with on_devices(DEVICES):
        network = build(ModelConfig(kind="wide_deep", hidden=(6, 5, 4), normalisation="layer"), inputs, 1)
    shapes = {variable.name: tuple(variable.shape) for variable in network.variables if "norm" not in variable.name}
    assert shapes == {
        "embedding_16/rows/part_0:0": (300, 8),
        "embedding_16/rows/part_1:0": (300, 8),
        "embedding_4/rows/part_0:0": (3, 2),
        "embedding_4/rows/part_1:0": (3, 2),
        "hidden_0/kernel/part_0:0": (23, 3),
        "hidden_0/kernel/part_1:0": (23, 3),
        "hidden_0/bias:0": (6,),
        "hidden_1/kernel:0": (6, 5),
        "hidden_1/bias:0": (5,),
        "hidden_2/kernel/part_0:0": (5, 2),
        "hidden_2/kernel/part_1:0": (5, 2),
        "hidden_2/bias:0": (4,),
        "deep_logits/kernel:0": (4, 1),
        "deep_logits/bias:0": (1,),
        "wide/rows:0": (303, 1),
    }


def test_variables_are_not_divided_on_one_device() -> None:
    with on_devices(DEVICES[:1]):
        layer = tf_keras.layers.Dense(4)
        layer.build((None, 3))
        table = layers.Table([3], 2, "uniform")
        table([tf.constant([1], tf.int64)])
    assert tuple(layer.kernel.shape) == (3, 4)
    assert isinstance(layer.kernel, tf.Variable)
    assert isinstance(table.rows, tf.Variable)
