"""Tests of the optimizers: their updates equal the published formulas, and Adam only changes rows with a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from pydantic import ValidationError

from components.compat.tensorflow import optimizer_slots
from components.trainer.optimizer import create_optimizer
from components.trainer.optimizer_config import OptimizerConfig
from tests.support.data.tolerances import Tolerance, rounding
from tests.support.programs import mirrored_adam
from tests.support.servers.in_fork_server import in_child

# The optimizer uses private attributes of tf_keras' Adam, which can change between versions.
pytestmark = pytest.mark.both_lines

ROWS, WIDTH = 6, 2
START = np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
BATCHES = [
    ([1, 3, 1], [[1.0, -2.0], [0.5, 0.25], [3.0, 1.0]]),
    ([3], [[-1.0, 4.0]]),
    ([4, 4, 1], [[0.1, 0.2], [0.3, -0.2], [-2.0, 0.0]]),
]
"""For every step, the row numbers of the sparse gradient and their values. Some rows occur twice, others never."""
NEAR = Tolerance(rtol=1e-4, atol=rounding(2).atol)
"""1 - 0.999 has a relative error of 1e-4 in float32; the absolute tolerance covers the rounding of values near 1."""


def sparse(rows: Sequence[int], values: Any) -> Any:
    return tf.IndexedSlices(tf.constant(values, tf.float32), tf.constant(rows, tf.int64), tf.constant(START.shape))


def reference(batches: Sequence[tuple[Sequence[int], Any]], rate: float) -> tuple[Any, Any, Any]:
    """Return the variable, m and v after the steps, computed in float64.

    Algorithm 1 of Kingma & Ba (2015) is applied to the rows that a step names, with epsilon placed as in tf_keras.
    """
    variable, m, v = START.astype(np.float64), np.zeros((ROWS, WIDTH)), np.zeros((ROWS, WIDTH))
    for step, (rows, values) in enumerate(batches, start=1):
        gradient = np.zeros((ROWS, WIDTH))
        np.add.at(gradient, rows, values)
        unique_rows = np.unique(rows)
        m[unique_rows] = 0.9 * m[unique_rows] + 0.1 * gradient[unique_rows]
        v[unique_rows] = 0.999 * v[unique_rows] + 0.001 * gradient[unique_rows] ** 2
        corrected = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        variable[unique_rows] -= corrected * m[unique_rows] / (np.sqrt(v[unique_rows]) + 1e-7)
    return variable, m, v


def slots(optimizer: Any) -> tuple[Any, Any]:
    """Return the moments m and v of the only variable."""
    return tuple(next(slot.numpy() for slot in optimizer.variables if f"/{name}/" in slot.name) for name in "mv")


def test_dense_gradients_are_applied_as_in_tf_keras() -> None:
    lazy_variable, plain_variable = tf.Variable(START), tf.Variable(START)
    lazy, plain = create_optimizer(0.1), tf_keras.optimizers.Adam(0.1, jit_compile=False)
    random = np.random.default_rng(0)
    for _ in range(5):
        gradient = tf.constant(random.normal(size=START.shape), tf.float32)
        lazy.apply_gradients([(gradient, lazy_variable)])
        plain.apply_gradients([(gradient, plain_variable)])
        # The operation computes 1 - 0.999 in float32, whose relative error is 1e-5.
        np.testing.assert_allclose(lazy_variable.numpy(), plain_variable.numpy(), rtol=0, atol=1e-5)


def test_adam_updates_only_the_rows_that_a_gradient_names() -> None:
    variable, optimizer = tf.Variable(START), create_optimizer(0.1)
    step = tf.function(lambda gradient: optimizer.apply_gradients([(gradient, variable)]), autograph=False)
    for rows, values in BATCHES:
        step(sparse(rows, values))
    m, v = slots(optimizer)
    for actual, expected in zip((variable.numpy(), m, v), reference(BATCHES, 0.1), strict=True):
        NEAR.assert_close(actual, expected)
    unnamed = [0, 2, 5]
    np.testing.assert_array_equal(variable.numpy()[unnamed], START[unnamed])
    assert not m[unnamed].any()
    assert not v[unnamed].any()


def test_row_without_a_gradient_keeps_its_value_and_moments() -> None:
    variable, optimizer = tf.Variable(START), create_optimizer(0.1)
    optimizer.apply_gradients([(sparse([1], [[1.0, 2.0]]), variable)])
    before = [values[1].copy() for values in (variable.numpy(), *slots(optimizer))]
    optimizer.apply_gradients([(sparse([2], [[1.0, 2.0]]), variable)])
    np.testing.assert_array_equal([values[1] for values in (variable.numpy(), *slots(optimizer))], before)


def test_cosine_schedule_is_followed() -> None:
    variable, optimizer = (
        tf.Variable(START),
        create_optimizer(tf_keras.optimizers.schedules.CosineDecay(0.1, decay_steps=4)),
    )
    moved = []
    for _ in range(5):
        before = variable.numpy()
        optimizer.apply_gradients([(sparse([1], [[1.0, 1.0]]), variable)])
        moved.append(float((before - variable.numpy())[1, 0]))
    # With a constant gradient, Adam moves a variable by exactly the learning rate.
    np.testing.assert_allclose(moved, [0.1 * (1 + np.cos(np.pi * step / 4)) / 2 for step in range(5)], atol=1e-5)


def test_infinite_gradient_of_a_scaled_loss_is_skipped() -> None:
    variable = tf.Variable(START)
    optimizer = tf_keras.mixed_precision.LossScaleOptimizer(create_optimizer(0.1), initial_scale=4.0)

    @tf.function(autograph=False)
    def step(gradient: Any) -> None:
        optimizer.get_scaled_loss(tf.constant(0.0))
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients([gradient]), [variable], strict=True))

    step(sparse([1], [[np.inf, 0.0]]))
    np.testing.assert_array_equal(variable.numpy(), START)
    assert float(optimizer.loss_scale) == 2.0
    step(sparse([3], [[2.0, 2.0]]))
    assert (variable.numpy()[3] < START[3]).all()
    np.testing.assert_array_equal(np.delete(variable.numpy(), 3, axis=0), np.delete(START, 3, axis=0))


def test_two_mirrored_replicas_take_the_same_steps_as_one(tmp_path: Path) -> None:
    # Every row occurs twice, so that both replicas name it. tf_keras sums the gradients of the replicas.
    batches = [(rows * 2, values * 2) for rows, values in BATCHES]
    mirrored_states = in_child(tmp_path / "log", mirrored_adam.states, START.tolist(), batches)
    for replicas, expected in zip(mirrored_states, reference(batches, 0.1), strict=True):
        for actual in replicas:
            NEAR.assert_close(actual, expected)


def test_weight_decay_shrinks_only_matrices() -> None:
    variables = {
        name: tf.Variable(tf.ones([2, 2]), name=name)
        for name in ("hidden_0/kernel", "embedding_4/rows", "hidden_0/bias", "hidden_0/into", "norm/gamma")
    }
    optimizer = create_optimizer(0.5, weight_decay=0.1)
    optimizer.build(list(variables.values()))
    optimizer.apply_gradients([(tf.zeros([2, 2]), variable) for variable in variables.values()])
    values = {name: float(variable[0, 0]) for name, variable in variables.items()}
    assert values.pop("hidden_0/kernel") == rounding(4).approx(0.95)
    assert set(values.values()) == {1.0}


def test_table_learning_rate_trains_tables_with_adagrad() -> None:
    variable, dense_variable = tf.Variable(START), tf.Variable(START)
    schedule = tf_keras.optimizers.schedules.CosineDecay(0.1, decay_steps=1)
    optimizer = create_optimizer(schedule, table_learning_rate=0.3, rows=4)
    step = tf.function(
        lambda slices, dense: optimizer.apply_gradients([(slices, variable), (dense, dense_variable)]), autograph=False
    )
    expected, squares = START.astype(np.float64), np.full(START.shape, 0.1)
    for rows, values in BATCHES:
        summed = np.zeros(START.shape)
        # The loss is the mean over four examples, so the gradient of one example is four times the value.
        np.add.at(summed, rows, 4 * np.array(values))
        squares += summed**2
        expected -= 0.3 * summed / np.sqrt(squares)
        before = dense_variable.numpy()
        step(sparse(rows, values), tf.ones(START.shape))
    NEAR.assert_close(variable.numpy(), expected)
    # Only other variables follow the schedule, which ended after the first step.
    np.testing.assert_array_equal(dense_variable.numpy(), before)


def test_batch_size_does_not_change_the_adagrad_update_of_an_example() -> None:
    def after(batch_size: int) -> Any:
        variable, optimizer = tf.Variable(START), create_optimizer(0.1, table_learning_rate=0.3, rows=batch_size)
        optimizer.apply_gradients([(sparse([1], np.array([[1.0, -2.0]]) / batch_size), variable)])
        return variable.numpy()

    NEAR.assert_close(after(2), after(256))


def compute_sgd(gradients: Sequence[Any], nesterov: bool) -> Any:
    weights, velocity = START.astype(np.float64), np.zeros(START.shape)
    for gradient in gradients:
        velocity = 0.9 * velocity - RATE * gradient
        weights += 0.9 * velocity - RATE * gradient if nesterov else velocity
    return weights


def compute_adagrad(gradients: Sequence[Any]) -> Any:
    weights, squares = START.astype(np.float64), np.full(START.shape, 0.1)
    for gradient in gradients:
        squares += gradient**2
        weights -= RATE * gradient / np.sqrt(squares + 1e-7)
    return weights


def compute_lion(gradients: Sequence[Any]) -> Any:
    """Compute Algorithm 2 of Chen et al. 2023, Symbolic Discovery of Optimization Algorithms."""
    weights, momentum = START.astype(np.float64), np.zeros(START.shape)
    for gradient in gradients:
        weights -= RATE * np.sign(0.9 * momentum + 0.1 * gradient)
        momentum = 0.99 * momentum + 0.01 * gradient
    return weights


def compute_ftrl(gradients: Sequence[Any], l1: float, l2: float) -> Any:
    """Compute Algorithm 1 of McMahan et al. 2013, Ad Click Prediction, with beta 0 and sums of squares from 0.1."""
    weights, squares, linear = START.astype(np.float64), np.full(START.shape, 0.1), np.zeros(START.shape)
    for gradient in gradients:
        total = squares + gradient**2
        linear += gradient - (np.sqrt(total) - np.sqrt(squares)) / RATE * weights
        squares = total
        shrunk = np.maximum(np.abs(linear) - l1, 0) * np.sign(linear)
        weights = -shrunk / (np.sqrt(squares) / RATE + 2 * l2)
    return weights


RATE = 0.1


@pytest.mark.parametrize(
    ("options", "compute"),
    [
        ({"kind": "sgd"}, lambda gradients: compute_sgd(gradients, nesterov=False)),
        ({"kind": "sgd", "nesterov": True}, lambda gradients: compute_sgd(gradients, nesterov=True)),
        ({"kind": "sgd", "momentum": 0.0}, lambda gradients: START - RATE * np.sum(gradients, axis=0)),
        ({"kind": "adagrad"}, compute_adagrad),
        ({"kind": "lion"}, compute_lion),
        ({"kind": "ftrl"}, lambda gradients: compute_ftrl(gradients, 0, 0)),
        ({"kind": "ftrl", "l1": 0.5, "l2": 0.1}, lambda gradients: compute_ftrl(gradients, 0.5, 0.1)),
    ],
)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_updates_equal_the_published_formulas(options: dict[str, Any], compute: Any, is_sparse: bool) -> None:
    variable, optimizer = tf.Variable(START), create_optimizer(RATE, config=OptimizerConfig(**options))
    step = tf.function(lambda gradient: optimizer.apply_gradients([(gradient, variable)]), autograph=False)
    gradients = []
    # Every row has a gradient, because the kinds differ in whether they update the others.
    random = np.random.default_rng(0)
    for _ in range(4):
        gradient = random.normal(size=START.shape).astype(np.float32)
        # The first row occurs twice in a sparse gradient, with half of its values each.
        halves = np.concatenate([gradient[:1] / 2, gradient[1:], gradient[:1] / 2])
        step(sparse([*range(ROWS), 0], halves) if is_sparse else tf.constant(gradient))
        gradients.append(gradient)
    NEAR.assert_close(variable.numpy(), compute(gradients))


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_gradients_are_clipped_by_their_joint_norm(kind: Any) -> None:
    clips = {"momentum": 0.0} if kind == "sgd" else {}
    config = OptimizerConfig(kind=kind, clip_norm=2.0, **clips)
    table, matrix = tf.Variable(START), tf.Variable([[1.0]])
    optimizer = create_optimizer(1.0, config=config)
    # The row 1 occurs twice: its gradient is [4, 0]. With [3] of the matrix, the norm is 5.
    gradient = sparse([1, 1], [[3.0, 0.0], [1.0, 0.0]])
    optimizer.apply_gradients([(gradient, table), (tf.constant([[3.0]]), matrix)])
    if kind == "sgd":
        np.testing.assert_allclose(START[1] - table.numpy()[1], [4 * 2 / 5, 0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(matrix.numpy(), [[1 - 3 * 2 / 5]], rtol=1e-6, atol=1e-6)
    else:
        m, v = (slot.numpy() for slot in optimizer_slots(optimizer, table))
        np.testing.assert_allclose(m[1], [0.1 * 4 * 2 / 5, 0], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(v[1], [0.001 * (4 * 2 / 5) ** 2, 0], rtol=1e-4, atol=1e-7)


def test_gradients_are_clipped_by_value() -> None:
    config = OptimizerConfig(kind="sgd", momentum=0.0, clip_value=0.5)
    table, matrix = tf.Variable(START), tf.Variable([[1.0, 1.0]])
    optimizer = create_optimizer(1.0, config=config)
    gradient = sparse([1, 1], [[0.4, 0.1], [0.4, 0.1]])
    optimizer.apply_gradients([(gradient, table), (tf.constant([[-3.0, 0.25]]), matrix)])
    np.testing.assert_allclose(START[1] - table.numpy()[1], [0.5, 0.2], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(matrix.numpy(), [[1.5, 0.75]], rtol=1e-6, atol=1e-6)


def test_adamw_decays_matrices_as_adam_with_a_weight_decay() -> None:
    matrix = tf.Variable(tf.ones([2, 2]), name="hidden/kernel")
    optimizer = create_optimizer(0.5, weight_decay=0.1, config=OptimizerConfig(kind="adamw"))
    optimizer.build([matrix])
    optimizer.apply_gradients([(tf.zeros([2, 2]), matrix)])
    np.testing.assert_allclose(matrix.numpy(), 0.95, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["adam", "sgd", "adagrad", "ftrl", "lion"])
def test_memory_of_an_optimizer_is_known_before_training(kind: Any) -> None:
    config = OptimizerConfig(kind=kind)
    variable, optimizer = tf.Variable(tf.zeros([50, 2])), create_optimizer(0.1, config=config)
    optimizer.build([variable])
    kept = [slot for slot in optimizer.variables if slot.shape == variable.shape]
    assert config.copies == 1 + len(kept)
    assert len(optimizer_slots(optimizer, variable)) == len(kept)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"momentum": 0.5}, "momentum: expected kind sgd, received adam; remove momentum"),
        ({"kind": "sgd", "momentum": 0, "nesterov": True}, "nesterov: expected a momentum above 0, received 0"),
        ({"kind": "lion", "l1": 0.1}, "l1: expected kind ftrl, received lion; remove l1"),
        ({"clip_norm": 1, "clip_value": 1}, "expected clip_norm or clip_value, received both; remove one"),
        ({"accumulate": 0}, "greater than 0"),
    ],
)
def test_options_of_another_optimizer_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        OptimizerConfig.model_validate(fields)
    assert message in str(raised.value)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_gradients_of_tables_are_rounded_to_16_bits_after_they_were_merged_and_clipped(clip: float | None) -> None:
    random = np.random.default_rng(3)
    values, dense = random.normal(size=(6, 2)).astype(np.float32), random.normal(size=3).astype(np.float32)
    rows = np.array([4, 1, 4, 0, 1, 4])
    config = OptimizerConfig(kind="sgd", momentum=0.0, clip_value=clip)
    optimizer = create_optimizer(0.5, config=config, table_gradients="bfloat16")
    table, bias = tf.Variable(tf.ones([5, 2])), tf.Variable(tf.ones([3]))
    optimizer.build([table, bias])
    gradients = tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant([5, 2])), tf.constant(dense)
    optimizer.apply_gradients(zip(gradients, (table, bias), strict=True))
    merged = np.zeros((5, 2), np.float32)
    np.add.at(merged, rows, values)
    if clip:
        merged, dense = np.clip(merged, -clip, clip), np.clip(dense, -clip, clip)
    # bfloat16 has the upper 16 bits of a float32, rounded to the nearest even number.
    bits = merged.view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    rounding(2, largest=4.0).assert_close(table, 1 - 0.5 * rounded)
    rounding(2, largest=4.0).assert_close(bias, 1 - 0.5 * dense)
    assert table.dtype == tf.float32
