"""A network in stages on different devices, through which parts of a batch travel at the same time.

While a device computes its stage for one part of a batch, the next device computes its stage for the previous part
(Huang et al. 2019, GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism). All parts travel
forwards before the first travels backwards. Unlike in the paper, activations are kept instead of computed again.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.compat.tensorflow import list_calls

Loss = Callable[[tf.Tensor], tf.Tensor]
"""Output of a network for a whole batch → its mean loss, a scalar, without the losses of layers."""
Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None
_Values = dict[int, tf.Tensor]
"""Number of a symbolic tensor of a network → its value, or its gradient."""


class Stage(NamedTuple):
    """The layers of a network that a device computes.

    Attributes:
      device: Name of the device for tf.device.
      network: The layers, from tensors of earlier stages to tensors that later stages read.
      inputs: Numbers of the tensors that the stage reads.
      outputs: Numbers of the tensors that later stages read, or that are the output of the network.
    """

    device: str
    network: tf_keras.Model
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class _Part(NamedTuple):
    """A stage, computed for a part of a batch.

    Attributes:
      inputs: Inputs that earlier stages have computed, as this stage has read them; floats only.
      outputs: Outputs of the stage.
      penalties: Losses of the layers.
      tape: Tape of the computation.
    """

    inputs: _Values
    outputs: _Values
    penalties: list[tf.Tensor]
    tape: tf.GradientTape


def assign_stages(network: tf_keras.Model, place: Mapping[str, int]) -> dict[str, int]:
    """Return layer → its stage.

    The stage of the first pattern that matches the name of a layer, or the name of one of its variables, is the stage
    of the layer. A layer that no pattern matches has the last stage of the layers that it reads.

    Args:
      network: The network.
      place: Pattern, such as `hidden_*`, `hidden_1` or `hidden_1/kernel` → stage.

    Raises:
      InputError: If a pattern does not match, or a layer reads a later stage.
    """
    names = {
        layer.name: (layer.name, *(variable.name.removesuffix(":0") for variable in layer.variables))
        for layer in network.layers
        if not isinstance(layer, tf_keras.layers.InputLayer)
    }
    for pattern in place:
        if not any(fnmatch.fnmatchcase(name, pattern) for several in names.values() for name in several):
            raise InputError(
                "training.strategy.place: expected patterns of the names of layers or of their variables, received "
                f"{pattern!r}, which matches none",
                f"choose from the layers {', '.join(names)}",
            )
    stages: dict[str, int] = {}
    producers: dict[int, str] = {}
    for call in list_calls(network):
        name = call.layer.name
        readers = {producers[id(tensor)]: stages[producers[id(tensor)]] for tensor in call.inputs}
        matching = (
            stage
            for pattern, stage in place.items()
            if any(fnmatch.fnmatchcase(own_name, pattern) for own_name in names.get(name, ()))
        )
        last = max(readers.values(), default=0)
        stage = stages.setdefault(name, next(matching, last))
        if stage < last:
            later = next(layer for layer, number in readers.items() if number == last)
            raise InputError(
                f"training.strategy.place: expected that a layer does not read later devices, received {name!r} on "
                f"{stage}, which reads {later!r} on {last}",
                f"place {name!r} on {last} or later",
            )
        producers |= {id(tensor): name for tensor in call.outputs}
    return stages


def list_variable_stages(network: tf_keras.Model, stages: Mapping[str, int]) -> dict[str, int]:
    """Return name of a variable → its stage, from layer → its stage."""
    return {
        variable.name.removesuffix(":0"): stages[layer.name] for layer in network.layers for variable in layer.variables
    }


def divide(network: tf_keras.Model, stages: Mapping[str, int], devices: Sequence[str]) -> list[Stage]:
    """Divide a network into stages that share its layers.

    Args:
      network: The network.
      stages: Layer → its stage.
      devices: Name of the device of every stage.
    """
    tensors: dict[int, Any] = {}
    produced: dict[int, int] = {}
    read_by: dict[int, set[int]] = {}
    for call in list_calls(network):
        stage = stages[call.layer.name]
        is_input = isinstance(call.layer, tf_keras.layers.InputLayer)
        for tensor in call.outputs:
            # The inputs of the network come from outside of all stages.
            produced[id(tensor)] = -1 if is_input else stage
            tensors[id(tensor)] = tensor
        for tensor in call.inputs:
            read_by.setdefault(id(tensor), set()).add(stage)
    read_by.setdefault(id(network.output), set()).add(len(devices))
    divided = []
    for stage, device in enumerate(devices):
        inputs = [key for key in tensors if produced[key] < stage and stage in read_by.get(key, ())]
        outputs = [key for key in tensors if produced[key] == stage and max(read_by.get(key, {-1})) > stage]
        part = tf_keras.Model(
            [tensors[key] for key in inputs], [tensors[key] for key in outputs], name=f"stage_{stage}"
        )
        divided.append(Stage(device, part, tuple(inputs), tuple(outputs)))
    return divided


def compute_gradients(
    network: tf_keras.Model,
    stages: Sequence[Stage],
    features: Mapping[str, tf.Tensor],
    compute_loss: Loss,
    parts: int,
    scale: float = 1.0,
) -> tuple[tf.Tensor, list[Gradient]]:
    """Compute the loss of a batch, and its gradients, part by part on the devices of the stages.

    Args:
      network: The network.
      stages: The network, divided.
      features: Input of the network → its values; the number of rows is a multiple of `parts`.
      compute_loss: Computes the loss from the network's output for all rows.
      parts: Number of parts of the batch.
      scale: Factor of the loss and of the gradients.

    Returns:
      The loss, and the gradient of each trainable variable of the network, None if the loss ignores it.
    """
    inputs = {id(tensor): tf.split(features[tensor.name], parts) for tensor in network.inputs}
    computed: list[list[_Part]] = [[] for _ in stages]
    outputs = []
    for number in range(parts):
        values = {key: split[number] for key, split in inputs.items()}
        for stage, earlier in zip(stages, computed, strict=True):
            earlier.append(_compute(stage, values, set(inputs), earlier[-1:]))
            values |= earlier[-1].outputs
        outputs.append(values[id(network.output)])
    penalties = [penalty for several in computed for part in several for penalty in part.penalties]
    with tf.device(stages[-1].device):
        with tf.GradientTape() as tape:
            output = tf.concat(outputs, axis=0)
            tape.watch(output)
            loss = compute_loss(output) * scale
        upstream = tf.split(tape.gradient(loss, output), parts)
        total = loss + tf.add_n(penalties) * (scale / parts) if penalties else loss
    terms: dict[int, list[Gradient]] = {id(variable): [] for variable in network.trainable_variables}
    finished: list[list[tf.Tensor]] = [[] for _ in stages]
    for number in range(parts):
        tensor_gradients = {id(network.output): upstream[number]}
        for index in reversed(range(len(stages))):
            stage = stages[index]
            with tf.device(stage.device), tf.control_dependencies(finished[index]):
                gradients = _differentiate(stage, computed[index][number], tensor_gradients, scale / parts)
            finished[index] = tf.nest.flatten([gradient for gradient in gradients if gradient is not None], True)
            for variable, gradient in zip(stage.network.trainable_variables, gradients, strict=True):
                terms[id(variable)].append(gradient)
    return total, [add_gradients(terms[id(variable)], variable.device) for variable in network.trainable_variables]


def add_gradients(gradients: Sequence[Gradient], device: str) -> Gradient:
    """Add up gradients of one variable on a device; they are all dense or all sparse."""
    present = [gradient for gradient in gradients if gradient is not None]
    if len(present) < 2:
        return present[0] if present else None
    with tf.device(device):
        if isinstance(present[0], tf.IndexedSlices):
            values = tf.concat([gradient.values for gradient in present], axis=0)
            indices = tf.concat([gradient.indices for gradient in present], axis=0)
            return tf.IndexedSlices(values, indices, present[0].dense_shape)
        return tf.add_n(present)


def _compute(stage: Stage, values: _Values, features: set[int], earlier: Sequence[_Part]) -> _Part:
    """Compute a stage for a part of a batch, after it has been computed for the earlier part."""
    # A device computes one part after the other. Without the order, a CPU would compute its stage for several parts.
    previous = [tensor for part in earlier for tensor in part.outputs.values()]
    with tf.device(stage.device), tf.control_dependencies(previous), tf.GradientTape() as tape:
        inputs = {key: tf.identity(values[key]) for key in stage.inputs}
        watched = {key: tensor for key, tensor in inputs.items() if tensor.dtype.is_floating and key not in features}
        tape.watch(list(watched.values()))
        outputs = tf.nest.flatten(stage.network(list(inputs.values()), training=True))
        return _Part(watched, dict(zip(stage.outputs, outputs, strict=True)), list(stage.network.losses), tape)


def _differentiate(stage: Stage, part: _Part, tensor_gradients: _Values, penalty_share: float) -> list[Gradient]:
    """Return the gradients of a stage's trainable variables, and add the gradients of its inputs to the gradients.

    Args:
      stage: The stage.
      part: The stage, computed for a part of a batch.
      tensor_gradients: Gradients of the outputs of the stage.
      penalty_share: Gradient of the losses of layers.
    """
    targets = [(tensor, tensor_gradients[key]) for key, tensor in part.outputs.items() if key in tensor_gradients]
    targets += [(penalty, tf.cast(penalty_share, penalty.dtype)) for penalty in part.penalties]
    variables = stage.network.trainable_variables
    if not targets:
        return [None] * len(variables)
    tensors, upstream = zip(*targets, strict=True)
    sources = [*part.inputs.values(), *variables]
    gradients: list[Gradient] = part.tape.gradient(list(tensors), sources, output_gradients=list(upstream))
    for key, gradient in zip(part.inputs, gradients, strict=False):
        if gradient is not None:
            known = tensor_gradients.get(key)
            tensor_gradients[key] = gradient if known is None else known + gradient
    return gradients[len(part.inputs) :]
