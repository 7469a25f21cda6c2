"""Where a mesh has the variables of a network, and the bytes of weights, gradients and moments on every device.

Both are computed from a network whose variables have no values, so they are known before a training. Not counted are
activations, and gradients that devices receive from other devices.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras

from components.compat.tensorflow import list_calls, variables_without_values
from components.features import graph_files
from components.models import column_sharding, folds, keras3, two_tower
from components.models.build import build
from components.models.inputs import inputs
from components.models.layers import Table
from components.models.stages import assign_stages, list_variable_stages
from components.trainer.config import StrategyConfig, TrainingConfig
from components.trainer.plan import TrainingPlan
from components.trainer.table_memory import count_outputs

FILE = "placement.json"
"""File of a ModelRun with the Placement of a mesh."""
_PART = re.compile(r"(.*)/(part|range)_(\d+):0")
_DIVISIONS = {"part": "columns", "range": "rows"}
_INDEX_BYTES = 8


@dataclass(frozen=True)
class PlacedVariable:
    """A variable of a network in a copy on a mesh.

    Attributes:
      name: Name, such as `hidden_0/kernel`.
      division: `columns` or `rows` if devices have parts of the variable; `whole` if one device has it.
      devices: Numbers of these devices, in the copy on the first devices.
      bytes: Bytes of the weights on each of these devices.
      gradients: Bytes of the gradients on each of these devices; for a table of IDs, the maximum, with the IDs.
      is_trained: Whether the optimizer updates the variable.
    """

    name: str
    division: str
    devices: tuple[int, ...]
    bytes: tuple[int, ...]
    gradients: tuple[int, ...]
    is_trained: bool


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a device, in bytes.

    Attributes:
      device: Name of the device, such as `CPU:0`; before the training, when its kind is unknown, its number.
      weights: Weights.
      gradients: Gradients of one step; at most, for tables of IDs.
      moments: What the optimizer keeps.
    """

    device: str
    weights: int
    gradients: int
    moments: int

    @property
    def bytes(self) -> int:
        """The sum of all."""
        return self.weights + self.gradients + self.moments

    def __str__(self) -> str:
        sizes = f"{self.weights:,} bytes of weights, {self.moments:,} bytes of moments, {self.gradients:,} of gradients"
        return f"{self.device}: {sizes}"


@dataclass(frozen=True)
class Placement:
    """The variables of a copy, in the order of the network, and the memory of all devices of the mesh."""

    variables: tuple[PlacedVariable, ...]
    devices: tuple[DeviceMemory, ...]

    def describe_variables(self) -> list[str]:
        """Return a line per division with the names of the variables that are placed so."""
        groups: dict[str, list[str]] = {}
        for variable in self.variables:
            devices = ", ".join(map(str, variable.devices))
            place = f"whole on device {devices}"
            if variable.division != "whole":
                place = f"divided by {variable.division} among the devices {devices}"
            groups.setdefault(place, []).append(variable.name)
        return [f"{place}: {', '.join(names)}" for place, names in groups.items()]

    def to_json(self) -> dict[str, Any]:
        """Return the placement as plain JSON values."""
        return {
            "variables": [dataclasses.asdict(variable) for variable in self.variables],
            "devices": [dataclasses.asdict(device) for device in self.devices],
        }


def compute_placement(plan: TrainingPlan, graph: str | None) -> Placement:
    """Compute where the variables of a plan's network will be, without memory for them.

    Args:
      plan: The features, the model and the training section, with the strategy mesh.
      graph: Folder of a transform graph, whose vocabularies provide the sizes. If None, vocabularies have their maximum
        size.

    Raises:
      InputError: If the network cannot be built.
    """
    paths = graph_files.paths(graph) if graph else {}
    most = {
        feature.vocabulary: int(getattr(feature.op, "size", 0) or getattr(feature.op, "most_entries", 0))
        for feature in plan.features.features.declared
        if feature.shares is None
    }

    def count_entries(vocabulary: str) -> int:
        return graph_files.entries(paths[vocabulary]) if vocabulary in paths else most.get(vocabulary, 0)

    features = inputs(plan.features, count_entries)
    # The network of a retrieval has two vectors as output.
    outputs = two_tower.outputs(plan.model) if plan.features.task == "retrieval" else count_outputs(plan, paths)

    def build_network() -> tf_keras.Model:
        network = build(plan.model, features, outputs)
        keras3.check_mesh(network)
        return network

    count = plan.training.folds or 1
    return place(plan.training, lambda: folds.cross_validated(build_network, count) if count > 1 else build_network())


def place(training: TrainingConfig, build_network: Callable[[], tf_keras.Model]) -> Placement:
    """Compute the placement of the variables of a network on the mesh of a training.

    Args:
      training: The training section, with the strategy mesh.
      build_network: Builds the network.
    """
    strategy, stage_of = training.strategy, {}
    with variables_without_values():
        if strategy.place:
            tf_keras.backend.reset_uids()
            network = build_network()
            stage_of = list_variable_stages(network, assign_stages(network, strategy.place))
        tf_keras.backend.reset_uids()
        devices = [["CPU:0"] * strategy.model] * strategy.stages
        with column_sharding.on_devices(devices, stage_of, divides_rows=not strategy.is_cluster):
            network = build_network()
    rows = training.batch_size // (strategy.data * (strategy.workers if strategy.is_cluster else 1))
    variables = tuple(list_variables(network, rows, strategy.model, stage_of))
    return Placement(variables, tuple(_compute_memory(variables, training.strategy, training.optimizer.copies - 1)))


def list_variables(
    copy: tf_keras.Model, rows: int, devices: int, stage_of: Mapping[str, int]
) -> Iterator[PlacedVariable]:
    """Yield the variables of a copy of a network.

    Args:
      copy: Network that was built in `column_sharding.on_devices`.
      rows: Number of rows of a batch that the copy computes.
      devices: Number of devices of a stage.
      stage_of: Name of a variable → its stage; 0 for others.
    """
    lookups = _count_lookups(copy)
    trained = {id(variable) for variable in copy.trainable_variables}
    groups: list[list[tf.Variable]] = []
    for variable in copy.variables:
        part = _PART.fullmatch(variable.name)
        if part and int(part[3]):
            groups[-1].append(variable)
        else:
            groups.append([variable])
    for parts in groups:
        part = _PART.fullmatch(parts[0].name)
        is_trained = id(parts[0]) in trained
        name = part[1] if part else parts[0].name.removesuffix(":0")
        first = stage_of.get(name, 0) * devices
        yield PlacedVariable(
            name,
            _DIVISIONS[part[2]] if part else "whole",
            tuple(range(first, first + len(parts))),
            tuple(count_bytes(variable) for variable in parts),
            tuple(_count_gradient_bytes(variable, lookups, rows) if is_trained else 0 for variable in parts),
            is_trained,
        )


def count_bytes(variable: tf.Variable) -> int:
    """Return the bytes of a variable or tensor of a known shape."""
    return int(math.prod(variable.shape) * variable.dtype.size)


def divide_among_rows(sizes: Sequence[int], rows: int) -> list[int]:
    """Return the row of the mesh that updates each variable with `shard_optimizer`: rows get about as many bytes.

    Args:
      sizes: Bytes of the trained variables of the network, in its order.
      rows: Number of rows of the mesh.
    """
    totals, updated_by = [0] * rows, []
    for size in sizes:
        row = totals.index(min(totals))
        totals[row] += size
        updated_by.append(row)
    return updated_by


def write(folder: str, placement: Placement) -> None:
    """Write the placement to a folder, for `read_devices`."""
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(f"{folder}/{FILE}", "w") as file:
        file.write(json.dumps(placement.to_json()))


def read_devices(folder: str) -> list[DeviceMemory]:
    """Read the memory of all devices from a folder; empty if the training in this folder did not use a mesh."""
    path = f"{folder}/{FILE}"
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path) as file:
        return [DeviceMemory(**device) for device in json.loads(file.read())["devices"]]


def _compute_memory(
    variables: Sequence[PlacedVariable], strategy: StrategyConfig, moments: int
) -> Iterator[DeviceMemory]:
    """Yield the memory of the devices of a mesh; an optimizer keeps a number of moments per weight."""
    trained = [variable for variable in variables if variable.is_trained]
    count = strategy.stages * strategy.model
    rows = divide_among_rows([sum(variable.bytes) for variable in trained], strategy.data)
    for row in range(strategy.data):
        weights, gradients, kept = ([0] * count for _ in range(3))
        for variable in variables:
            for device, size, gradient in zip(variable.devices, variable.bytes, variable.gradients, strict=True):
                weights[device] += size
                gradients[device] += gradient
        for variable, updated_by in zip(trained, rows, strict=True):
            if updated_by == row or not strategy.shard_optimizer:
                for device, size in zip(variable.devices, variable.bytes, strict=True):
                    kept[device] += size * moments
        for number, device_bytes in enumerate(zip(weights, gradients, kept, strict=True)):
            yield DeviceMemory(str(row * count + number), *device_bytes)


def _count_lookups(network: tf_keras.Model) -> dict[int, int]:
    """Return Python id of a variable of a table → number of IDs per row of a batch that are looked up in it."""
    lookups: dict[int, int] = {}
    networks = (network, *(module for module in network.submodules if isinstance(module, tf_keras.Model)))
    for call in (call for part in networks for call in list_calls(part)):
        if isinstance(call.layer, (Table, tf_keras.layers.Embedding)):
            count = sum(math.prod(tensor.shape[1:]) for tensor in call.inputs)
            for variable in call.layer.weights:
                lookups[id(variable)] = lookups.get(id(variable), 0) + count
    return lookups


def _count_gradient_bytes(variable: tf.Variable, lookups: Mapping[int, int], rows: int) -> int:
    """Return the bytes of the gradient of a variable, which for a table has a row per lookup and its ID."""
    if id(variable) not in lookups:
        return count_bytes(variable)
    return int(rows * lookups[id(variable)] * (variable.shape[-1] * variable.dtype.size + _INDEX_BYTES))
