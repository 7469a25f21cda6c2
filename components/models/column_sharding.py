"""Matrices whose columns are divided among devices: each device multiplies by its own columns.

No device has a whole matrix, its gradient or its moments; the inputs of the product are copied to all devices, and the
outputs are concatenated on the first one (Shoeybi et al. 2019, Megatron-LM, column parallelism).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from components.compat.tensorflow import ShardedVariable, dispatchable
from components.models import sharding


@dispatchable
class ColumnShards(ShardedVariable):
    """A matrix, [rows, columns], as one variable of [rows, columns / devices] on each device.

    Products by it and lookups in it are computed where its shards are; any other operation gets the whole matrix.
    """

    @property
    def dtype(self) -> tf.DType:
        """The dtype of each shard."""
        return self.variables[0].dtype

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of the matrix."""
        rows, columns = self.variables[0].shape
        return tf.TensorShape([rows, columns * len(self.variables)])


@contextmanager
def on_devices(devices: Sequence[str]) -> Iterator[None]:
    """Create the variables of the block on devices: matrices in shards, all others on the first device.

    In shards are the kernels of dense layers and the tables of ids whose number of columns is a multiple of the number
    of devices. Shards are initialized with zeros.

    Args:
      devices: Names of tf.device.
    """

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable | ColumnShards:
        if len(devices) == 1 or not _is_divisible(options["name"], options.get("shape"), len(devices)):
            return next_creator(**options)
        rows, columns = options["shape"]
        shards = []
        for number, device in enumerate(devices):
            with tf.device(device):
                values = tf.zeros([rows, columns // len(devices)], options["dtype"])
                name = f"{options['name']}/part_{number}"
                shards.append(next_creator(**{**options, "initial_value": values, "shape": values.shape, "name": name}))
        return ColumnShards(shards)

    with tf.device(devices[0]), tf.variable_creator_scope(create):
        yield


def _is_divisible(name: str, shape: tf.TensorShape | None, parts: int) -> bool:
    """Whether a variable is a matrix of a dense layer, or a table of ids, with a multiple of so many columns."""
    return (name == "kernel" or sharding.is_table()) and shape is not None and len(shape) == 2 and not shape[1] % parts


tf.register_tensor_conversion_function(
    ColumnShards, lambda value, dtype=None, name=None, as_ref=False: tf.concat(value.variables, axis=1, name=name)
)


@tf.experimental.dispatch_for_api(tf.matmul, {"b": ColumnShards})  # type: ignore[untyped-decorator]
def _matmul(*arguments: Any, **options: Any) -> tf.Tensor:
    given = inspect.signature(tf.matmul).bind(*arguments, **options).arguments
    left, matrix = given.pop("a"), given.pop("b")
    if any(value for name, value in given.items() if name != "name"):
        return tf.matmul(left, tf.convert_to_tensor(matrix), **given)
    return _product(left, matrix)


@tf.experimental.dispatch_for_api(tf.tensordot, {"b": ColumnShards})  # type: ignore[untyped-decorator]
def _tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> tf.Tensor:
    if axes == 1 or axes == [[a.shape.rank - 1], [0]]:
        return _product(a, b)
    return tf.tensordot(a, tf.convert_to_tensor(b), axes, name)


@tf.experimental.dispatch_for_api(tf.nn.embedding_lookup, {"params": ColumnShards})  # type: ignore[untyped-decorator]
def _embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> tf.Tensor:
    found = []
    for shard in params.variables:
        with tf.device(shard.device):
            found.append(tf.nn.embedding_lookup(shard, ids, max_norm, name))
    return tf.concat(found, axis=-1)


def _product(left: tf.Tensor, matrix: ColumnShards) -> tf.Tensor:
    """[…, rows] times [rows, columns] → […, columns]."""
    return tf.concat([_product_by_shard(left, shard) for shard in matrix.variables], axis=-1)


def _product_by_shard(left: tf.Tensor, shard: tf.Variable) -> tf.Tensor:
    device = shard.device

    # TensorFlow's own gradient would be computed where the tape is, so that all gradients were on one device.
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def product(left: tf.Tensor, columns: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], list[tf.Tensor]]]:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            with tf.device(device):
                rows = tf.reshape(upstream, [-1, columns.shape[1]])
                of_left = tf.reshape(tf.matmul(rows, columns, transpose_b=True), tf.shape(left))
                return [of_left, tf.matmul(tf.reshape(left, [-1, columns.shape[0]]), rows, transpose_a=True)]

        with tf.device(device):
            flat = tf.matmul(tf.reshape(left, [-1, columns.shape[0]]), columns)
            return tf.reshape(flat, [*tf.unstack(tf.shape(left))[:-1], columns.shape[1]]), gradient

    with tf.device(device):
        return product(left, shard.read_value())
