"""Tests that products, lookups and gradients of a matrix in column shards equal the results of the whole matrix."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.feature_spec import Dense, Ids
from components.models import layers, sharding
from components.models.build import build
from components.models.column_sharding import ColumnShards, RowShards, on_devices
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


def convolve(images: Any, kernel: Any, stride: int) -> Any:
    """Return the convolution without padding of images [batch, height, width, channels] in NumPy."""
    windows = np.lib.stride_tricks.sliding_window_view(images, kernel.shape[:2], axis=(1, 2))[:, ::stride, ::stride]
    return np.einsum("bijcyx,yxco->bijo", windows, kernel)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_and_gradients_equal_the_whole_kernel(stride: int) -> None:
    random = np.random.default_rng(2)
    images, kernel = random.uniform(-1, 1, (2, 6, 5, 3)), random.uniform(-1, 1, (3, 2, 3, 4))
    images, kernel = images.astype(np.float32), kernel.astype(np.float32)
    with on_devices([DEVICES]):
        layer = tf_keras.layers.Conv2D(4, (3, 2), strides=stride, use_bias=False)
        layer.build(images.shape)
    assert isinstance(layer.kernel, ColumnShards)
    assert layer.kernel.shape == (3, 2, 3, 4)
    for shard, values in zip(layer.kernel, np.split(kernel, 2, axis=3), strict=True):
        shard.assign(values)
    expected = convolve(images, kernel, stride)
    weights = random.uniform(-1, 1, expected.shape).astype(np.float32)

    def compute() -> Any:
        pixels = tf.constant(images)
        with tf.GradientTape() as tape:
            tape.watch(pixels)
            result = layer(pixels)
            loss = tf.reduce_sum(result * weights)
        return result, *tape.gradient(loss, [pixels, *layer.kernel])

    # The gradient of a linear function in a direction is the difference of its values.
    direction = random.uniform(-1, 1, images.shape).astype(np.float32)
    kernel_direction = random.uniform(-1, 1, kernel.shape).astype(np.float32)
    for result, image_gradient, *kernel_gradients in (compute(), tf.function(compute, autograph=False)()):
        float32_sum(18).assert_close(result, expected)
        float32_sum(18 * expected.size).assert_close(
            np.sum(image_gradient * direction), np.sum(convolve(direction, kernel, stride) * weights)
        )
        float32_sum(18 * expected.size).assert_close(
            np.sum(np.concatenate(kernel_gradients, axis=3) * kernel_direction),
            np.sum(convolve(images, kernel_direction, stride) * weights),
        )


def test_convolution_of_groups_uses_the_whole_kernel() -> None:
    images = np.random.default_rng(3).normal(size=(1, 3, 3, 4)).astype(np.float32)
    kernel = np.random.default_rng(4).normal(size=(1, 1, 2, 4)).astype(np.float32)
    divided = ColumnShards([tf.Variable(part) for part in np.split(kernel, 2, axis=3)])
    result = tf.nn.convolution(tf.constant(images), divided)
    expected = [images[..., :2] @ kernel[0, 0, :, :2], images[..., 2:] @ kernel[0, 0, :, 2:]]
    float32_sum(2, largest=9.0).assert_close(result, np.concatenate(expected, axis=-1))


@pytest.mark.parametrize("rows", [7, 8])
def test_lookup_in_ranges_of_rows_equals_the_whole_table(rows: int) -> None:
    values = np.random.default_rng(5).normal(size=(rows, 3)).astype(np.float32)
    with on_devices([DEVICES]), sharding.table():
        table = tf.Variable(tf.zeros(values.shape), name="rows", shape=values.shape, dtype=tf.float32)
    assert isinstance(table, RowShards)
    assert table.shape == values.shape
    first, second = table.variables
    first.assign(values[:4])
    second.assign(values[4:])
    np.testing.assert_array_equal(tf.convert_to_tensor(table), values)
    ids = np.array([[rows - 1, 0, 3], [4, 3, 3]])

    def compute(ids: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            vectors = tf.nn.embedding_lookup(table, ids)
            loss = tf.reduce_sum(vectors * tf.constant([[[1.0], [2.0], [4.0]], [[8.0], [16.0], [32.0]]]))
        return vectors, tape.gradient(loss, list(table))

    expected = np.zeros(values.shape, np.float32)
    np.add.at(expected, ids, np.array([[1, 2, 4], [8, 16, 32]])[:, :, np.newaxis])
    spec = tf.TensorSpec([None, 3], tf.int64)
    for vectors, gradients in (
        compute(tf.constant(ids)),
        tf.function(compute, autograph=False, input_signature=[spec])(tf.constant(ids)),
    ):
        np.testing.assert_array_equal(vectors, values[ids])
        sums = [
            tf.math.unsorted_segment_sum(gradient.values, gradient.indices, shard.shape[0])
            for gradient, shard in zip(gradients, table, strict=True)
        ]
        np.testing.assert_array_equal(tf.concat(sums, axis=0), expected)
        # A device gets gradients only of its rows, because an optimizer would change the moments of other rows.
        assert [len(gradient.indices) for gradient in gradients] == [4, 2]


def test_embeddings_of_keras_are_divided_and_kernels_of_attention_are_not() -> None:
    with on_devices([DEVICES]):
        embedding = tf_keras.layers.Embedding(5, 4)
        vectors = embedding(tf.constant([[0, 3]]))
        attention = tf_keras.layers.MultiHeadAttention(2, 4)
        attention(vectors, vectors)
    assert isinstance(embedding.embeddings, ColumnShards)
    assert vectors.shape == (1, 2, 4)
    assert all(isinstance(variable, tf.Variable) for variable in attention.weights)
    assert len(attention.weights) == 8


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


def test_columns_are_divided_if_the_devices_divide_them_and_otherwise_rows_of_tables() -> None:
    inputs = Inputs({"a": Dense(), "b": Dense(2), "x": Ids(300), "y": Ids(3)})
    with on_devices([DEVICES]):
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
        "wide/rows/range_0:0": (152, 1),
        "wide/rows/range_1:0": (151, 1),
    }


def test_variables_are_not_divided_on_one_device() -> None:
    with on_devices([DEVICES[:1]]):
        layer = tf_keras.layers.Dense(4)
        layer.build((None, 3))
        table = layers.Table([3], 2, "uniform")
        table([tf.constant([1], tf.int64)])
    assert tuple(layer.kernel.shape) == (3, 4)
    assert isinstance(layer.kernel, tf.Variable)
    assert isinstance(table.rows, tf.Variable)
