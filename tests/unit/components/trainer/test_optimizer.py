"""The lazy Adam: tf_keras' own where a gradient is dense, the named rows and no others where it is sparse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mirrored_adam
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from in_fork_server import in_child
from tolerances import Tolerance, rounding

from components.trainer.optimizer import adam

# It reads and writes what tf_keras' Adam keeps to itself.
pytestmark = pytest.mark.both_lines

ROWS, WIDTH = 6, 2
START = np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
BATCHES = [
    ([1, 3, 1], [[1.0, -2.0], [0.5, 0.25], [3.0, 1.0]]),
    ([3], [[-1.0, 4.0]]),
    ([4, 4, 1], [[0.1, 0.2], [0.3, -0.2], [-2.0, 0.0]]),
]
"""Of each step, the rows that the gradient names and their gradients; some rows twice, some never."""
NEAR = Tolerance(rtol=1e-4, atol=rounding(2).atol)
"""In float32, 1 - 0.999 is not exact to more; beside it the rounding of values near 1."""


def sparse(rows: Sequence[int], values: Any) -> Any:
    return tf.IndexedSlices(tf.constant(values, tf.float32), tf.constant(rows, tf.int64), tf.constant(START.shape))


def reference(batches: Sequence[tuple[Sequence[int], Any]], rate: float) -> tuple[Any, Any, Any]:
    """Variable, m and v after the steps: Algorithm 1 of Kingma & Ba on the named rows, epsilon as tf_keras has it."""
    variable, m, v = START.astype(np.float64), np.zeros((ROWS, WIDTH)), np.zeros((ROWS, WIDTH))
    for step, (rows, values) in enumerate(batches, start=1):
        gradient = np.zeros((ROWS, WIDTH))
        np.add.at(gradient, rows, values)
        named = np.unique(rows)
        m[named] = 0.9 * m[named] + 0.1 * gradient[named]
        v[named] = 0.999 * v[named] + 0.001 * gradient[named] ** 2
        corrected = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        variable[named] -= corrected * m[named] / (np.sqrt(v[named]) + 1e-7)
    return variable, m, v


def slots(optimizer: Any) -> tuple[Any, Any]:
    """Return the moments m and v of the only variable."""
    return tuple(next(slot.numpy() for slot in optimizer.variables if f"/{name}/" in slot.name) for name in "mv")


def test_dense_gradients_are_those_of_tf_keras() -> None:
    ours, theirs = tf.Variable(START), tf.Variable(START)
    lazy, plain = adam(0.1), tf_keras.optimizers.Adam(0.1, jit_compile=False)
    random = np.random.default_rng(0)
    for _ in range(5):
        gradient = tf.constant(random.normal(size=START.shape), tf.float32)
        lazy.apply_gradients([(gradient, ours)])
        plain.apply_gradients([(gradient, theirs)])
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_named_rows_follow_adam_and_the_others_stay() -> None:
    variable, optimizer = tf.Variable(START), adam(0.1)
    step = tf.function(lambda gradient: optimizer.apply_gradients([(gradient, variable)]), autograph=False)
    for rows, values in BATCHES:
        step(sparse(rows, values))
    m, v = slots(optimizer)
    for found, wanted in zip((variable.numpy(), m, v), reference(BATCHES, 0.1), strict=True):
        NEAR.assert_close(found, wanted)
    unnamed = [0, 2, 5]
    np.testing.assert_array_equal(variable.numpy()[unnamed], START[unnamed])
    assert not m[unnamed].any()
    assert not v[unnamed].any()


def test_row_keeps_its_value_and_moments_while_it_is_not_named() -> None:
    variable, optimizer = tf.Variable(START), adam(0.1)
    optimizer.apply_gradients([(sparse([1], [[1.0, 2.0]]), variable)])
    before = [values[1].copy() for values in (variable.numpy(), *slots(optimizer))]
    optimizer.apply_gradients([(sparse([2], [[1.0, 2.0]]), variable)])
    np.testing.assert_array_equal([values[1] for values in (variable.numpy(), *slots(optimizer))], before)


def test_cosine_schedule_is_followed() -> None:
    variable, optimizer = tf.Variable(START), adam(tf_keras.optimizers.schedules.CosineDecay(0.1, decay_steps=4))
    moved = []
    for _ in range(5):
        before = variable.numpy()
        optimizer.apply_gradients([(sparse([1], [[1.0, 1.0]]), variable)])
        moved.append(float((before - variable.numpy())[1, 0]))
    # A gradient that never changes moves Adam by the learning rate itself.
    np.testing.assert_allclose(moved, [0.1 * (1 + np.cos(np.pi * step / 4)) / 2 for step in range(5)], atol=1e-5)


def test_scaled_loss_with_an_infinite_gradient_changes_nothing() -> None:
    variable = tf.Variable(START)
    optimizer = tf_keras.mixed_precision.LossScaleOptimizer(adam(0.1), initial_scale=4.0)

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


def test_two_mirrored_replicas_take_the_steps_of_one(tmp_path: Path) -> None:
    # Each replica has every other row of a batch, so that a row is named by both; tf_keras sums their gradients.
    batches = [(rows * 2, values * 2) for rows, values in BATCHES]
    found_states = in_child(tmp_path / "log", mirrored_adam.states, START.tolist(), batches)
    for replicas, wanted in zip(found_states, reference(batches, 0.1), strict=True):
        for found in replicas:
            NEAR.assert_close(found, wanted)


def test_weight_decay_takes_from_matrices_alone() -> None:
    named = {
        name: tf.Variable(tf.ones([2, 2]), name=name)
        for name in ("hidden_0/kernel", "embedding_4/rows", "hidden_0/bias", "hidden_0/into", "norm/gamma")
    }
    optimizer = adam(0.5, weight_decay=0.1)
    optimizer.build(list(named.values()))
    optimizer.apply_gradients([(tf.zeros([2, 2]), variable) for variable in named.values()])
    left = {name: float(variable[0, 0]) for name, variable in named.items()}
    assert left.pop("hidden_0/kernel") == rounding(4).approx(0.95)
    assert set(left.values()) == {1.0}


def test_tables_follow_adagrad_where_they_have_a_rate_of_their_own() -> None:
    variable, other = tf.Variable(START), tf.Variable(START)
    schedule = tf_keras.optimizers.schedules.CosineDecay(0.1, decay_steps=1)
    optimizer = adam(schedule, table_learning_rate=0.3, batch_size=4)
    step = tf.function(
        lambda given, dense: optimizer.apply_gradients([(given, variable), (dense, other)]), autograph=False
    )
    wanted, squares = START.astype(np.float64), np.full(START.shape, 0.1)
    for rows, values in BATCHES:
        summed = np.zeros(START.shape)
        # The loss is a mean of four examples.
        np.add.at(summed, rows, 4 * np.array(values))
        squares += summed**2
        wanted -= 0.3 * summed / np.sqrt(squares)
        before = other.numpy()
        step(sparse(rows, values), tf.ones(START.shape))
    NEAR.assert_close(variable.numpy(), wanted)
    # The schedule, which has long come to its end, is for the rest.
    np.testing.assert_array_equal(other.numpy(), before)


def test_size_of_a_batch_does_not_change_what_adagrad_makes_of_an_example() -> None:
    def after(batch_size: int) -> Any:
        variable, optimizer = tf.Variable(START), adam(0.1, table_learning_rate=0.3, batch_size=batch_size)
        optimizer.apply_gradients([(sparse([1], np.array([[1.0, -2.0]]) / batch_size), variable)])
        return variable.numpy()

    NEAR.assert_close(after(2), after(256))
