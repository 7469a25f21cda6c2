"""Variables that are divided among devices. Every device computes with the part that it stores.

A device never holds a whole divided variable, its gradient or its moments. The inputs of a product or a convolution are
copied to all devices, and the outputs are concatenated on the first device (Shoeybi et al. 2019, Megatron-LM: column
parallelism, and for tables with narrow rows the parallelism of the vocabulary).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from components.compat.tensorflow import ShardedVariable, dispatchable
from components.models import sharding


class _Shards(ShardedVariable):
    """A variable that is divided along one axis, stored as one variable per device.

    Attributes:
      AXIS: The divided axis.
    """

    AXIS: ClassVar[int]

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the shards."""
        return self.variables[0].dtype

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of the whole variable."""
        shape = self.variables[0].shape.as_list()
        shape[self.AXIS] = sum(shard.shape[self.AXIS] for shard in self.variables)
        return tf.TensorShape(shape)


@dispatchable
class ColumnShards(_Shards):
    """A matrix, a table of IDs, or the kernel of a convolution, divided along its last axis: columns or filters.

    Products, convolutions and lookups are computed on the devices of the shards. Any other operation gets the whole
    variable.
    """

    AXIS = -1


@dispatchable
class RowShards(_Shards):
    """A table of IDs, divided into ranges of rows.

    A lookup reads each row on the device of its range. Any other operation gets the whole table.
    """

    AXIS = 0


@contextlib.contextmanager
def on_devices(
    stages: Sequence[Sequence[str]], stage_of: Mapping[str, int] | None = None, divides_rows: bool = True
) -> Iterator[None]:
    """Create variables in the block as shards on the devices of a stage if they can be divided, others on its first.

    Shards are initialized with zeros. The names of ColumnShards end with `part_0`, of RowShards with `range_0`.

    Args:
      stages: Names of the devices of every stage, for tf.device; all stages have the same number of devices.
      stage_of: Name of a variable, such as `hidden_0/kernel` → its stage; 0 for others.
      divides_rows: Whether tables whose columns cannot be divided are divided into ranges of rows.
    """

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable | _Shards:
        kind = _choose_division(options["name"], options.get("shape"), len(stages[0]))
        if kind is RowShards and not divides_rows:
            kind = None
        path = f"{tf.get_current_name_scope()}/{options['name']}"
        stage = (stage_of or {}).get(path)
        devices = stages[stage or 0]
        if kind is None:
            # An optimizer has chosen the devices of its moments.
            with contextlib.nullcontext() if stage is None else tf.device(devices[0]):
                return next_creator(**options)
        shape, shards = list(options["shape"]), []
        rows_or_columns, remainder = divmod(shape[kind.AXIS], len(devices))
        for number, device in enumerate(devices):
            shape[kind.AXIS] = rows_or_columns + (number < remainder)
            zeros = functools.partial(tf.zeros, tuple(shape), options["dtype"])
            name = f"{options['name']}/{'part' if kind is ColumnShards else 'range'}_{number}"
            with tf.device(device):
                part = {"initial_value": zeros, "shape": tf.TensorShape(shape), "name": name}
                shards.append(next_creator(**{**options, **part}))
        return kind(shards)

    with tf.device(stages[0][0]), tf.variable_creator_scope(create):
        yield


def _choose_division(
    name: str, shape: tf.TensorShape | None, parts: int
) -> type[ColumnShards] | type[RowShards] | None:
    """Return how a variable is divided; None if one device has the whole variable.

    Kernels of dense layers (rank 2) and of convolutions of images and volumes (ranks 4 and 5) are divided by columns.
    Kernels of rank 3 are not divided, because most belong to attention layers, whose products are tf.einsum.
    """
    if parts == 1 or shape is None:
        return None
    is_table = len(shape) == 2 and (sharding.is_table() or name == "embeddings")
    if not shape[-1] % parts and (is_table or (name == "kernel" and len(shape) in (2, 4, 5))):
        return ColumnShards
    return RowShards if is_table and shape[0] >= parts else None


tf.register_tensor_conversion_function(
    (ColumnShards, RowShards),
    lambda value, dtype=None, name=None, as_ref=False: tf.concat(value.variables, axis=value.AXIS, name=name),
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


@tf.experimental.dispatch_for_api(tf.nn.convolution, {"filters": ColumnShards})  # type: ignore[untyped-decorator]
def _convolution(*arguments: Any, **options: Any) -> tf.Tensor:
    bound = inspect.signature(tf.nn.convolution).bind(*arguments, **options).arguments
    images, kernel = bound.pop("input"), bound.pop("filters")
    channels = 1 if str(bound.get("data_format")).startswith("NC") else -1
    if images.shape[channels] != kernel.shape[-2]:
        # Filters of a group read the channels of their group only, so that a device may need several groups.
        return tf.nn.convolution(images, tf.convert_to_tensor(kernel), **bound)
    convolve = functools.partial(tf.nn.convolution, **bound)
    return tf.concat([_compute_on_device(convolve, images, shard) for shard in kernel.variables], axis=channels)


@tf.experimental.dispatch_for_api(tf.nn.embedding_lookup, {"params": ColumnShards})  # type: ignore[untyped-decorator]
def _embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> tf.Tensor:
    embeddings = []
    for shard in params.variables:
        with tf.device(shard.device):
            embeddings.append(tf.nn.embedding_lookup(shard, ids, max_norm, name))
    return tf.concat(embeddings, axis=-1)


@tf.experimental.dispatch_for_api(tf.nn.embedding_lookup, {"params": RowShards})  # type: ignore[untyped-decorator]
def _embedding_lookup_in_ranges(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> tf.Tensor:
    flat = tf.reshape(ids, [-1])
    sizes = [shard.shape[0] for shard in params.variables]
    ends = tf.constant(list(itertools.accumulate(sizes)), flat.dtype)
    owners = tf.searchsorted(ends, flat, side="right")
    positions = tf.dynamic_partition(tf.range(tf.size(flat)), owners, len(sizes))
    embeddings = []
    for shard, size, end, owned in zip(
        params.variables, sizes, tf.unstack(ends), tf.dynamic_partition(flat, owners, len(sizes)), strict=True
    ):
        with tf.device(shard.device):
            embeddings.append(tf.nn.embedding_lookup(shard, owned - (end - size), max_norm))
    width = params.variables[0].shape[1]
    return tf.reshape(tf.dynamic_stitch(positions, embeddings), [*tf.unstack(tf.shape(ids)), width], name)


def _multiply(vectors: tf.Tensor, matrix: ColumnShards) -> tf.Tensor:
    """Multiply vectors of shape […, rows] by a matrix of shape [rows, columns]; return […, columns]."""
    return tf.concat([_compute_on_device(_multiply_matrix, vectors, shard) for shard in matrix.variables], axis=-1)


def _multiply_matrix(vectors: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    flat = tf.matmul(tf.reshape(vectors, [-1, columns.shape[0]]), columns)
    return tf.reshape(flat, [*tf.unstack(tf.shape(vectors))[:-1], columns.shape[1]])


def _compute_on_device(
    function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], inputs: tf.Tensor, shard: tf.Variable
) -> tf.Tensor:
    """Compute a function of inputs and a shard, and later its gradients, on the device of the shard."""
    device = shard.device

    # TensorFlow would compute the gradients on the device of the tape, so all gradients would be on one device.
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def compute(inputs: tf.Tensor, part: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], list[tf.Tensor]]]:
        with tf.device(device), tf.GradientTape(persistent=True) as tape:
            tape.watch([inputs, part])
            result = function(inputs, part)

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            with tf.device(device):
                gradients: list[tf.Tensor] = tape.gradient(result, [inputs, part], upstream)
                return gradients

        return result, gradient

    with tf.device(device):
        return compute(inputs, shard.read_value())
