"""Tests of networks in stages: their gradients equal closed forms, and parts of a batch travel independently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.models.stages import Stage, assign_stages, compute_gradients, divide, list_variable_stages
from tests.support.data.tolerances import float32_sum

layers = tf_keras.layers
DECAY = 0.01


def linear(**options: Any) -> tf_keras.Model:
    """Return x * first * second + x * skip, without biases; x has 3 columns."""
    inputs = layers.Input((3,), name="x")
    hidden = layers.Dense(2, use_bias=False, name="encoder", **options)(inputs)
    skip = layers.Dense(1, use_bias=False, name="skip")(inputs)
    outputs = layers.Dense(1, use_bias=False, name="head", **options)(hidden)
    return tf_keras.Model({"x": inputs}, layers.Add(name="sum")([skip, outputs]))


def stages_of(network: tf_keras.Model, place: dict[str, int]) -> list[Stage]:
    stages = assign_stages(network, place)
    return divide(network, stages, ["CPU:0"] * (1 + max(stages.values())))


def test_layers_follow_patterns_and_the_layers_that_they_read() -> None:
    network = linear()
    assert assign_stages(network, {"head": 1}) == {"x": 0, "encoder": 0, "skip": 0, "head": 1, "sum": 1}
    stages = assign_stages(network, {"enc*": 1, "*/kernel": 2})
    assert stages == {"x": 0, "encoder": 1, "skip": 2, "head": 2, "sum": 2}
    assert list_variable_stages(network, stages) == {"encoder/kernel": 1, "skip/kernel": 2, "head/kernel": 2}


def test_pattern_without_a_layer_is_an_error_that_lists_the_layers() -> None:
    with pytest.raises(InputError, match="received 'decoder/\\*', which matches none") as raised:
        assign_stages(linear(), {"encoder/*": 0, "decoder/*": 1})
    assert set(raised.value.remedy.removeprefix("choose from the layers ").split(", ")) == {
        "encoder",
        "skip",
        "head",
        "sum",
    }


def test_layer_that_reads_a_later_stage_is_an_error() -> None:
    with pytest.raises(InputError, match="received 'head' on 0, which reads 'encoder' on 1") as raised:
        assign_stages(linear(), {"encoder": 1, "head": 0})
    assert raised.value.remedy == "place 'head' on 1 or later"


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("place", [{"head": 1}, {"encoder": 0, "skip": 1, "head": 2}])
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_gradients_of_stages_equal_the_closed_form(place: dict[str, int], parts: int, decay: float) -> None:
    network = linear(kernel_regularizer=tf_keras.regularizers.L2(decay) if decay else None)
    random = np.random.default_rng(0)
    x, target = (random.uniform(-1, 1, (6, width)).astype(np.float32) for width in (3, 1))
    weights = {name: random.uniform(-1, 1, shape) for name, shape in (("encoder", (3, 2)), ("skip", (3, 1)))}
    weights["head"] = random.uniform(-1, 1, (2, 1))
    for name, values in weights.items():
        network.get_layer(name).set_weights([values])
    loss, gradients = compute_gradients(
        network,
        stages_of(network, place),
        {"x": tf.constant(x)},
        lambda output: tf.reduce_mean(tf.square(output - target)),
        parts,
        scale=0.5,
    )
    encoder, skip, head = weights["encoder"], weights["skip"], weights["head"]
    error = x @ encoder @ head + x @ skip - target
    expected = {
        "encoder/kernel:0": x.T @ error @ head.T / 6 + decay * encoder,
        "skip/kernel:0": x.T @ error / 6,
        "head/kernel:0": (x @ encoder).T @ error / 6 + decay * head,
    }
    tolerance = float32_sum(36, largest=3.0)
    penalty = decay * (np.sum(encoder**2) + np.sum(head**2))
    tolerance.assert_close(loss, 0.5 * (np.mean(error**2) + penalty))
    for variable, gradient in zip(network.trainable_variables, gradients, strict=True):
        tolerance.assert_close(gradient, expected[variable.name], variable.name)


def find_ancestors(operation: tf.Operation) -> set[tf.Operation]:
    found, waiting = set(), [operation]
    while waiting:
        current = waiting.pop()
        for before in (*(tensor.op for tensor in current.inputs), *current.control_inputs):
            if before not in found:
                found.add(before)
                waiting.append(before)
    return found


def test_a_device_computes_parts_in_order_and_devices_do_not_wait_for_later_parts() -> None:
    network = linear()
    parts = stages_of(network, {"head": 1})

    @tf.function(autograph=False)
    def step(x: tf.Tensor) -> Any:
        return compute_gradients(network, parts, {"x": x}, tf.reduce_mean, 3)

    graph = step.get_concrete_function(tf.TensorSpec([6, 3])).graph
    products = [operation for operation in graph.get_operations() if operation.type == "MatMul"]
    forward = [operation for operation in products if "gradient" not in operation.name]
    first = [operation for operation in forward if "encoder" in operation.name]
    second = [operation for operation in forward if "head" in operation.name]
    assert (len(first), len(second)) == (3, 3)
    for number in range(3):
        assert first[number] in find_ancestors(second[number])
        for later in range(number + 1, 3):
            # A device computes one part after the other.
            assert first[number] in find_ancestors(first[later])
            assert second[number] in find_ancestors(second[later])
            # The first stage of a later part and the second stage of an earlier part can run at the same time.
            assert first[later] not in find_ancestors(second[number])
            assert second[number] not in find_ancestors(first[later])
