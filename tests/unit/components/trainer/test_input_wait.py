"""Tests of measuring how long a training waits for input."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.results.input_wait import SECONDS, WAITED, describe
from components.trainer import input_wait
from components.trainer.input_wait import InputWait
from components.trainer.steps import Stop
from components.trainer.strategy import Distribution
from components.trainer.training_loop import SynchronousSteps

pytestmark = pytest.mark.both_lines

PAUSE, COUNT = 0.2, 3


def pause(number: Any) -> Any:
    time.sleep(PAUSE)
    return number


class Input:
    """An input pipeline whose batches take some time, and are not prepared in advance."""

    def __init__(self, is_slow: bool) -> None:
        self.is_slow = is_slow

    def dataset(self, shard: Any) -> tf.data.Dataset:
        numbers = tf.data.Dataset.counter(tf.constant(shard.start, tf.int64))
        options = tf.data.Options()
        options.autotune.enabled = False
        if self.is_slow:
            numbers = numbers.map(lambda number: tf.numpy_function(pause, [number], tf.int64, stateful=True))
        return numbers.with_options(options)


@pytest.mark.parametrize("is_slow", [False, True])
def test_time_of_the_input_is_distinguished_from_the_time_of_the_steps(is_slow: bool) -> None:
    def step(number: tf.Tensor) -> tf.Tensor:
        paused = tf.numpy_function(pause, [number], tf.int64, stateful=True)
        return tf.cast(tf.ensure_shape(paused, []), tf.float32)

    iterations: Any = tf.Variable(0, dtype=tf.int64)
    steps = SynchronousSteps(
        Distribution(tf.distribute.get_strategy()),
        step,
        Input(is_slow),  # type: ignore[arg-type]
        iterations,
        COUNT,
    )
    started = time.monotonic()
    steps.run(COUNT, Stop)
    seconds = time.monotonic() - started
    # The steps take as long as their pauses, and at least this time does not count.
    assert steps.input_wait <= seconds - COUNT * PAUSE + 0.01
    if is_slow:
        # tf.data may have read one batch before the first step.
        assert steps.input_wait >= (COUNT - 1) * PAUSE / 2


def test_wait_is_written_and_read(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    assert input_wait.read(folder) is None
    input_wait.write(folder, InputWait(100.0, 37.0))
    assert input_wait.read(folder) == InputWait(100.0, 37.0)


@pytest.mark.parametrize(
    ("counts", "is_described"),
    [
        ({}, False),
        ({SECONDS: 100, WAITED: 37}, True),
        ({SECONDS: 100, WAITED: 19}, False),
        ({SECONDS: 5, WAITED: 90}, False),
    ],
)
def test_long_waits_of_long_trainings_are_described(counts: dict[str, int], is_described: bool) -> None:
    text = describe(counts)
    assert (text is not None) == is_described
    if text:
        assert "waited for input in 37 % of its time: raise training.memory_mb" in text
