"""Data and model parallelism in one process, over a mesh of devices.

Each row of the mesh has a copy of the network and takes its part of every batch. Within a row the columns of matrices
are divided among the devices, see column_sharding. The gradients of a shard are summed over the devices that have the
same shard, so no device has a gradient, or moments, of more than its own variables. Each of them receives the gradients
of all the others and adds them in the same order, so the copies stay equal.

TensorFlow's DTensor would do the same, but in 2.16 and 2.21 it has no layout for ResourceScatterAdd, with which the
rows of a table are updated, nor for FusedBatchNormV3, which layer normalization uses.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.compat.tensorflow import adam_slots
from components.models import column_sharding
from components.trainer.config import StrategyConfig
from components.trainer.input_pipeline import Batch

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None
LossAndGradients: TypeAlias = Callable[[Batch], tuple[tf.Tensor, list[Gradient]]]
"""A batch → a part of the mean loss, and the gradient of each trainable variable, None if it has no effect on it."""


@dataclass(frozen=True)
class Mesh:
    """The devices of a training.

    Attributes:
      devices: names of tf.device, [data][model].
    """

    devices: tuple[tuple[str, ...], ...]

    @property
    def data(self) -> int:
        """The number of parts of a batch."""
        return len(self.devices)


class Replica(NamedTuple):
    """A copy of the network on one row of the mesh.

    Attributes:
      network: with its variables on these devices.
      optimizer: its optimizer, built.
      loss_and_gradients: of its part of a batch.
    """

    network: tf_keras.Model
    optimizer: tf_keras.optimizers.Optimizer
    loss_and_gradients: LossAndGradients


def mesh(config: StrategyConfig, gpus: int) -> Mesh:
    """Make the mesh that the config declares, of GPUs, or of devices of the CPU if there are no GPUs.

    Args:
      config: the size of the mesh.
      gpus: the number of GPUs that TensorFlow sees.

    Raises:
      InputError: there are GPUs, but too few.
    """
    count = config.data * config.model
    if gpus and gpus < count:
        raise InputError(
            f"training.strategy: expected at most as many devices as GPUs, {gpus}, received data {config.data} times "
            f"model {config.model}",
            "choose a smaller mesh; with CUDA_VISIBLE_DEVICES=-1 its devices are logical ones of the CPU",
        )
    names = [f"{'GPU' if gpus else 'CPU'}:{number}" for number in range(count)]
    return Mesh(tuple(tuple(names[row * config.model :][: config.model]) for row in range(config.data)))


def create_devices(config: StrategyConfig) -> Mesh:
    """Make the mesh, and the logical devices of the CPU that it takes; before the first op of this process.

    Raises:
      InputError: there are GPUs, but too few.
    """
    made = mesh(config, len(tf.config.list_physical_devices("GPU")))
    if made.devices[0][0].startswith("CPU"):
        [cpu] = tf.config.list_physical_devices("CPU")
        devices = [tf.config.LogicalDeviceConfiguration()] * (config.data * config.model)
        tf.config.set_logical_device_configuration(cpu, devices)
    return made


class MeshCopies:
    """The copies of a network and its optimizer on a mesh.

    Args:
      mesh: the devices.
      replica: makes a copy; called in the scope of its devices.
      network: the network whose weights the copies begin with, on the host.
      optimizer: its optimizer, built; with `iterations` and moments to begin with.
    """

    def __init__(
        self,
        mesh: Mesh,
        replica: Callable[[], Replica],
        network: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer,
    ) -> None:
        self._mesh = mesh
        self._optimizer = optimizer
        self._replicas: list[Replica] = []
        for devices in mesh.devices:
            with column_sharding.on_devices(devices):
                self._replicas.append(replica())
        self._variables = [list(_matched(network, optimizer, each)) for each in self._replicas]
        for each in self._replicas:
            each.optimizer.iterations.assign(optimizer.iterations)
        for whole, parts in itertools.chain(*self._variables):
            with tf.device("CPU:0"):
                values = tf.split(whole, len(parts), axis=-1) if len(parts) > 1 else [whole]
            for part, value in zip(parts, values, strict=True):
                part.assign(value)
        for device, (weights, moments) in self.memory().items():
            logging.info("%s: %s bytes of weights, %s bytes of moments", device, f"{weights:,}", f"{moments:,}")

    @property
    def iterations(self) -> tf.Variable:
        """The variable that counts the steps of the mesh."""
        return self._replicas[0].optimizer.iterations

    def step(self, batch: Batch) -> tf.Tensor:
        """Take one step of all copies.

        Args:
          batch: its size is a multiple of the rows of the mesh.

        Returns:
          The mean loss, a float32 scalar.
        """
        losses, gradients = [], []
        rows = list(zip(self._mesh.devices, self._replicas, strict=True))
        for (devices, replica), part in zip(rows, _parts(batch, self._mesh.data), strict=True):
            with tf.device(devices[0]):
                loss, own = replica.loss_and_gradients(part)
            losses.append(loss)
            gradients.append(own)
        for devices, replica in rows:
            variables = replica.network.trainable_variables
            sums = [_sum(each, variable.device) for *each, variable in zip(*gradients, variables, strict=True)]
            with tf.device(devices[0]):
                replica.optimizer.apply_gradients(zip(sums, variables, strict=True))
        return tf.add_n(losses)

    def collect_progress(self) -> None:
        """Copy the number of steps and the learning rate to the optimizer on the host."""
        own = self._replicas[0].optimizer
        self._optimizer.iterations.assign(own.iterations)
        self._optimizer.learning_rate.assign(own.learning_rate)

    def collect(self) -> None:
        """Copy weights and moments to the network and the optimizer on the host."""
        for whole, parts in self._variables[0]:
            # On a GPU there may be no memory for the whole of it.
            with tf.device("CPU:0"):
                value = tf.concat(parts, axis=-1) if len(parts) > 1 else parts[0]
            whole.assign(value)

    def memory(self) -> dict[str, tuple[int, int]]:
        """Return the bytes of the weights and of the optimizer's moments on each device."""
        weights, moments = Counter[str](), Counter[str]()
        for replica in self._replicas:
            for variable in replica.network.variables:
                weights[variable.device] += _bytes(variable)
            for variable in replica.network.trainable_variables:
                for slot in adam_slots(replica.optimizer, variable):
                    moments[slot.device] += _bytes(slot)
        return {_short(device): (weights[device], moments[device]) for device in sorted(weights)}


def _matched(
    network: tf_keras.Model, optimizer: tf_keras.optimizers.Optimizer, replica: Replica
) -> Iterator[tuple[tf.Variable, Sequence[tf.Variable]]]:
    """Yield each weight and each moment of a network, and the parts that it has in a copy; one part if it is whole."""
    remaining = iter(replica.network.variables)
    trained = {id(variable) for variable in network.trainable_variables}
    for whole in network.variables:
        parts = [next(remaining)]
        while sum(_bytes(part) for part in parts) < _bytes(whole):
            parts.append(next(remaining))
        yield whole, parts
        if id(whole) in trained:
            of_parts = zip(*(adam_slots(replica.optimizer, part) for part in parts), strict=True)
            yield from zip(adam_slots(optimizer, whole), of_parts, strict=True)


def _parts(batch: Batch, count: int) -> list[Batch]:
    """Equal parts of a batch."""
    with tf.device("CPU:0"):
        tensors = [tf.split(tensor, count) for tensor in tf.nest.flatten(batch)]
    return [tf.nest.pack_sequence_as(batch, part) for part in zip(*tensors, strict=True)]


def _sum(gradients: Sequence[Gradient], device: str) -> Gradient:
    """Return the sum of one variable's gradients, which are all dense or all sparse."""
    present = [each for each in gradients if each is not None]
    if len(present) < 2:
        return gradients[0]
    with tf.device(device):
        if isinstance(present[0], tf.IndexedSlices):
            values = tf.concat([each.values for each in present], axis=0)
            indices = tf.concat([each.indices for each in present], axis=0)
            return tf.IndexedSlices(values, indices, present[0].dense_shape)
        return tf.add_n(present)


def _bytes(variable: tf.Variable) -> int:
    return int(math.prod(variable.shape) * variable.dtype.size)


def _short(device: str) -> str:
    spec = tf.DeviceSpec.from_string(device)
    return f"{spec.device_type}:{spec.device_index}"
