"""Matrices whose columns are divided among devices. Every device multiplies by the columns that it stores.

A device never holds a whole matrix, its gradient or its moments. The inputs of the product are copied to all devices,
and the outputs are concatenated on the first device (Shoeybi et al. 2019, Megatron-LM, column parallelism).
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
    """A matrix of shape [rows, columns], stored as one variable of shape [rows, columns / devices] per device.

    Products and lookups are computed on the devices of the shards. Any other operation gets the whole matrix.
    """

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the shards."""
        return self.variables[0].dtype

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of the matrix."""
        rows, columns = self.variables[0].shape
        return tf.TensorShape([rows, columns * len(self.variables)])


@contextmanager
def on_devices(devices: Sequence[str]) -> Iterator[None]:
    """Create matrices in the block as shards on devices, and all other variables on the first device.

    A kernel of a dense layer or a table of IDs is sharded if its number of columns is a multiple of the number of
    devices. Shards are initialized with zeros.

    Args:
      devices: Names of devices for tf.device.
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
    """Return whether a variable is a kernel or a table of IDs whose number of columns is a multiple of `parts`."""
    return (name == "kernel" or sharding.is_table()) and shape is not None and len(shape) == 2 and not shape[1] % parts


tf.register_tensor_conversion_function(
    ColumnShards, lambda value, dtype=None, name=None, as_ref=False: tf.concat(value.variables, axis=1, name=name)
)


@tf.experimental.dispatch_for_api(tf.matmul, {"b": ColumnShards})  # type: ignore[untyped-decorator]
def _matmul(*arguments: Any, **options: Any) -> tf.Tensor:
    bound = inspect.signature(tf.matmul).bind(*arguments, **options).arguments
    vectors, matrix = bound.pop("a"), bound.pop("b")
    if any(value for name, value in bound.items() if name != "name"):
        return tf.matmul(vectors, tf.convert_to_tensor(matrix), **bound)
    return _multiply(vectors, matrix)


@tf.experimental.dispatch_for_api(tf.tensordot, {"b": ColumnShards})  # type: ignore[untyped-decorator]
def _tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> tf.Tensor:
    if axes == 1 or axes == [[a.shape.rank - 1], [0]]:
        return _multiply(a, b)
    return tf.tensordot(a, tf.convert_to_tensor(b), axes, name)


@tf.experimental.dispatch_for_api(tf.nn.embedding_lookup, {"params": ColumnShards})  # type: ignore[untyped-decorator]
def _embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> tf.Tensor:
    embeddings = []
    for shard in params.variables:
        with tf.device(shard.device):
            embeddings.append(tf.nn.embedding_lookup(shard, ids, max_norm, name))
    return tf.concat(embeddings, axis=-1)


def _multiply(vectors: tf.Tensor, matrix: ColumnShards) -> tf.Tensor:
    """Multiply vectors of shape […, rows] by a matrix of shape [rows, columns]; return […, columns]."""
    return tf.concat([_multiply_by_shard(vectors, shard) for shard in matrix.variables], axis=-1)


def _multiply_by_shard(vectors: tf.Tensor, shard: tf.Variable) -> tf.Tensor:
    device = shard.device

    # TensorFlow would compute the gradients on the device of the tape, so all gradients would be on one device.
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def product(vectors: tf.Tensor, columns: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], list[tf.Tensor]]]:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            with tf.device(device):
                rows = tf.reshape(upstream, [-1, columns.shape[1]])
                vectors_gradient = tf.reshape(tf.matmul(rows, columns, transpose_b=True), tf.shape(vectors))
                flat = tf.reshape(vectors, [-1, columns.shape[0]])
                return [vectors_gradient, tf.matmul(flat, rows, transpose_a=True)]

        with tf.device(device):
            flat = tf.matmul(tf.reshape(vectors, [-1, columns.shape[0]]), columns)
            return tf.reshape(flat, [*tf.unstack(tf.shape(vectors))[:-1], columns.shape[1]]), gradient

    with tf.device(device):
        return product(vectors, shard.read_value())
