"""Data and model parallelism in one process, over a mesh of devices.

Each row of the mesh has a copy of the network and takes its part of every batch. Within a row, matrices, the filters of
convolutions and tables of IDs are divided among the devices, see column_sharding. The gradients of a shard are summed
over the devices that have the same shard, so a device stores gradients and moments only for its variables. Every device
receives the gradients of all other devices and adds them in the same order, so the copies stay equal.

With `multi_worker`, every process has a mesh, and the gradients are also summed over the processes.

With `place`, a copy consists of stages, which have separate devices, see stages. The devices of a stage divide its
variables.

With `shard_optimizer`, only one row of the mesh has the moments of a variable: it adds up the gradients, updates the
variable, and the other rows copy it (stage 1 of Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training
Trillion Parameter Models).

TensorFlow's DTensor would do the same, but in 2.16 and 2.21 it lacks a layout for ResourceScatterAdd, which updates the
rows of a table, and for FusedBatchNormV3, which layer normalization uses.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.compat.tensorflow import has_slots, optimizer_slots
from components.models import column_sharding, keras3
from components.models.stages import Gradient, add_gradients
from components.trainer.config import StrategyConfig
from components.trainer.gradients import LossAndGradients
from components.trainer.input_pipeline import Batch
from components.trainer.placement import DeviceMemory, Placement, count_bytes, divide_among_rows, list_variables

T = TypeVar("T")


@dataclass(frozen=True)
class Mesh:
    """The devices of a training.

    Attributes:
      devices: Names of the devices for tf.device, [data][stages * model].
      stages: Number of stages of a copy of the network.
    """

    devices: tuple[tuple[str, ...], ...]
    stages: int = 1

    @property
    def data(self) -> int:
        """Number of parts of a batch."""
        return len(self.devices)

    @property
    def model(self) -> int:
        """Number of devices of a stage."""
        return len(self.devices[0]) // self.stages

    def list_stages(self, row: int) -> list[tuple[str, ...]]:
        """Return the devices of the stages of a row."""
        return [self.devices[row][stage * self.model :][: self.model] for stage in range(self.stages)]


class Replica(NamedTuple):
    """A copy of the network on one row of the mesh.

    Attributes:
      network: Network with its variables on these devices.
      optimizer: Optimizer of the network, not yet built.
      loss_and_gradients: Computes loss and gradients of the copy's part of a batch.
    """

    network: tf_keras.Model
    optimizer: tf_keras.optimizers.Optimizer
    loss_and_gradients: LossAndGradients


def create_mesh(config: StrategyConfig, gpus: int) -> Mesh:
    """Return the mesh that the config declares, of GPUs, or of CPU devices on a machine without GPUs.

    Args:
      config: The size of the mesh.
      gpus: Number of GPUs that TensorFlow sees.

    Raises:
      InputError: If there are GPUs, but too few, or several processes.
    """
    count = config.data * config.stages * config.model
    if gpus and config.is_cluster:
        raise InputError(
            f"training.strategy: expected no GPUs for workers with a mesh, received {gpus}, which multi_worker would "
            "use as separate replicas",
            "choose kind mesh, or hide the GPUs with CUDA_VISIBLE_DEVICES=-1",
        )
    if gpus and gpus < count:
        raise InputError(
            f"training.strategy: expected at most as many devices as GPUs, {gpus}, received data {config.data} times "
            f"model {config.model}" + (f" times {config.stages} devices of place" if config.place else ""),
            "choose a smaller mesh; with CUDA_VISIBLE_DEVICES=-1 its devices are logical devices of the CPU",
        )
    names = [f"{'GPU' if gpus else 'CPU'}:{number}" for number in range(count)]
    width = count // config.data
    return Mesh(tuple(tuple(names[row * width :][:width]) for row in range(config.data)), config.stages)


def create_devices(config: StrategyConfig) -> Mesh:
    """Return the mesh, and create the logical CPU devices it needs; call it before the first op of this process.

    Raises:
      InputError: If there are GPUs, but too few.
    """
    created = create_mesh(config, len(tf.config.list_physical_devices("GPU")))
    if created.devices[0][0].startswith("CPU"):
        [cpu] = tf.config.list_physical_devices("CPU")
        devices = [tf.config.LogicalDeviceConfiguration()] * sum(len(row) for row in created.devices)
        tf.config.set_logical_device_configuration(cpu, devices)
    return created


class MeshCopies:
    """The copies of a network and its optimizer on a mesh.

    Args:
      mesh: The devices.
      create_replica: Creates a copy from the first devices of its stages; called in the scope of its devices.
      network: The network on the host, with the initial weights.
      optimizer: The network's optimizer, built, with the initial `iterations` and moments.
      shards_optimizer: Whether each row has the moments of some variables only.
      stage_of: Name of a variable → its stage; 0 for others.
      workers: Strategy of several processes with a mesh each, whose gradients are added up; None for one process.

    Raises:
      InputError: If the network contains a Keras 3 model.
    """

    def __init__(
        self,
        mesh: Mesh,
        create_replica: Callable[[Sequence[str]], Replica],
        network: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer,
        shards_optimizer: bool = False,
        stage_of: Mapping[str, int] | None = None,
        workers: tf.distribute.Strategy | None = None,
    ) -> None:
        keras3.check_mesh(network)
        self._workers = workers
        self._mesh, self._stage_of = mesh, stage_of or {}
        self._optimizer = optimizer
        self._replicas: list[Replica] = []
        # The row that updates each trainable variable of a copy; None if every row updates all of them.
        self._rows: list[int] | None = None
        for row in range(mesh.data):
            stages = mesh.list_stages(row)
            # Collective operations need gradients with the same number of rows in every step.
            with column_sharding.on_devices(stages, self._stage_of, divides_rows=workers is None):
                replica = create_replica([devices[0] for devices in stages])
                if shards_optimizer:
                    self._rows = _divide_variables(network, replica.network, mesh.data)
                replica.optimizer.build(self._select(row, replica.network.trainable_variables))
                self._replicas.append(replica)
        pairs = [list(_match_variables(network, optimizer, replica)) for replica in self._replicas]
        # Every row has all weights, and with shards_optimizer only one row has the moments of a variable.
        self._variables = {id(whole): (whole, parts) for whole, parts in itertools.chain(*reversed(pairs))}
        for replica in self._replicas:
            replica.optimizer.iterations.assign(optimizer.iterations)
        for whole, parts in itertools.chain(*pairs):
            with tf.device("CPU:0"):
                values = [whole]
                if len(parts) > 1:
                    axis = _find_divided_axis(whole, parts)
                    values = tf.split(whole, [part.shape[axis] for part in parts], axis)
            for part, value in zip(parts, values, strict=True):
                part.assign(value)

    @property
    def iterations(self) -> tf.Variable:
        """The variable that counts the steps of the mesh."""
        return self._replicas[0].optimizer.iterations

    def step(self, batch: Batch) -> tf.Tensor:
        """Take one step of all copies.

        Args:
          batch: A batch whose size is a multiple of the rows of the mesh.

        Returns:
          The mean loss, a float32 scalar; with several processes, the part of this process.
        """
        losses, gradients = [], []
        rows = list(zip(self._mesh.devices, self._replicas, strict=True))
        for (devices, replica), part in zip(rows, _divide_batch(batch, self._mesh.data), strict=True):
            with tf.device(devices[0]):
                loss, part_gradients = replica.loss_and_gradients(part)
            losses.append(loss)
            gradients.append(part_gradients)
        terms = list(zip(*gradients, strict=True))
        if self._workers is not None:
            first = self._replicas[0].network.trainable_variables
            sums = [add_gradients(several, variable.device) for several, variable in zip(terms, first, strict=True)]
            terms = [(gradient,) for gradient in _add_over_workers(sums, self._workers)]
        for row, (devices, replica) in enumerate(rows):
            variables = self._select(row, replica.network.trainable_variables)
            parts = self._select(row, terms)
            sums = [add_gradients(several, variable.device) for several, variable in zip(parts, variables, strict=True)]
            with tf.device(devices[0]):
                replica.optimizer.apply_gradients(zip(sums, variables, strict=True))
        self._copy_updates()
        return tf.add_n(losses)

    def _select(self, row: int, of_variables: Iterable[T]) -> list[T]:
        """Return the items of the trainable variables that a row updates."""
        if self._rows is None:
            return list(of_variables)
        return [item for item, updated_by in zip(of_variables, self._rows, strict=True) if updated_by == row]

    def _copy_updates(self) -> None:
        """Copy each variable from the row that updates it to the others."""
        if self._rows is None:
            return
        copies = zip(*(replica.network.trainable_variables for replica in self._replicas), strict=True)
        for row, variables in zip(self._rows, copies, strict=True):
            for variable in variables:
                if variable is not variables[row]:
                    with tf.device(variable.device):
                        variable.assign(variables[row])

    def collect_progress(self) -> None:
        """Copy the number of steps and the learning rate to the optimizer on the host."""
        optimizer = self._replicas[0].optimizer
        self._optimizer.iterations.assign(optimizer.iterations)
        self._optimizer.learning_rate.assign(optimizer.learning_rate)

    def collect(self) -> None:
        """Copy weights and moments to the network and the optimizer on the host."""
        for whole, parts in self._variables.values():
            # A GPU may lack the memory for the complete variable.
            with tf.device("CPU:0"):
                value = tf.concat(parts, _find_divided_axis(whole, parts)) if len(parts) > 1 else parts[0]
            whole.assign(value)

    def memory(self) -> dict[str, tuple[int, int]]:
        """Return the bytes of the weights and of the optimizer's moments on each device."""
        weights, moments = Counter[str](), Counter[str]()
        for replica in self._replicas:
            for variable in replica.network.variables:
                weights[_shorten(variable.device)] += count_bytes(variable)
        for row, replica in enumerate(self._replicas):
            for variable in self._select(row, replica.network.trainable_variables):
                for slot in optimizer_slots(replica.optimizer, variable):
                    moments[_shorten(slot.device)] += count_bytes(slot)
        return {device: (weights[device], moments[device]) for devices in self._mesh.devices for device in devices}

    def measure_placement(self, batch_size: int) -> Placement:
        """Return where the variables are; weights and moments are measured on the devices.

        Args:
          batch_size: Number of rows of a batch.
        """
        rows = batch_size // self._mesh.data
        variables = tuple(list_variables(self._replicas[0].network, rows, self._mesh.model, self._stage_of))
        gradients = Counter[str]()
        for devices in self._mesh.devices:
            for variable in variables:
                for number, size in zip(variable.devices, variable.gradients, strict=True):
                    gradients[devices[number]] += size
        return Placement(
            variables,
            tuple(
                DeviceMemory(device, weights, gradients[device], moments)
                for device, (weights, moments) in self.memory().items()
            ),
        )


def _add_over_workers(gradients: Sequence[Gradient], workers: tf.distribute.Strategy) -> list[Gradient]:
    """Add up the gradients of all processes; every process gets the sums."""

    def add(*terms: Gradient) -> list[Gradient]:
        sums: list[Gradient] = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, list(terms))
        return sums

    # The optimizers cannot run in a replica of the strategy, because their variables do not belong to it.
    sums = iter(workers.run(add, args=tuple(gradient for gradient in gradients if gradient is not None)))
    return [None if gradient is None else next(sums) for gradient in gradients]


def _match_variables(
    network: tf_keras.Model, optimizer: tf_keras.optimizers.Optimizer, replica: Replica
) -> Iterator[tuple[tf.Variable, Sequence[tf.Variable]]]:
    """Yield every weight and moment of a network with its parts in a copy; a single part if it is not divided."""
    remaining = iter(replica.network.variables)
    trained = {id(variable) for variable in network.trainable_variables}
    for whole in network.variables:
        parts = [next(remaining)]
        while sum(count_bytes(part) for part in parts) < count_bytes(whole):
            parts.append(next(remaining))
        yield whole, parts
        if id(whole) in trained and has_slots(replica.optimizer, parts[0]):
            slots = zip(*(optimizer_slots(replica.optimizer, part) for part in parts), strict=True)
            yield from zip(optimizer_slots(optimizer, whole), slots, strict=True)


def _find_divided_axis(whole: tf.Variable, parts: Sequence[tf.Variable]) -> int:
    """Return the axis along which a variable is divided into parts."""
    return [size != part_size for size, part_size in zip(whole.shape, parts[0].shape, strict=True)].index(True)


def _divide_variables(network: tf_keras.Model, copy: tf_keras.Model, rows: int) -> list[int]:
    """Return the row that updates each trainable variable of a copy.

    All parts of a variable of the network belong to the same row.
    """
    remaining = iter(copy.trainable_variables)
    sizes = [count_bytes(variable) for variable in network.trainable_variables]
    updated_by: list[int] = []
    for size, row in zip(sizes, divide_among_rows(sizes, rows), strict=True):
        while size > 0:
            size -= count_bytes(next(remaining))
            updated_by.append(row)
    return updated_by


def _divide_batch(batch: Batch, count: int) -> list[Batch]:
    """Divide a batch into equal parts."""
    with tf.device("CPU:0"):
        tensors = [tf.split(tensor, count) for tensor in tf.nest.flatten(batch)]
    return [tf.nest.pack_sequence_as(batch, part) for part in zip(*tensors, strict=True)]


def _shorten(device: str) -> str:
    spec = tf.DeviceSpec.from_string(device)
    return f"{spec.device_type}:{spec.device_index}"
