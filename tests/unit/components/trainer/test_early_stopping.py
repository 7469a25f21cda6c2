"""Tests of early stopping: the weights with the lowest loss are kept, and resumed training continues to count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from components.trainer.early_stopping import EarlyStopping


def network(weight: float) -> Any:
    module = tf.Module()
    module.weight = tf.Variable(weight)
    return module


def weight_at(path: str | None) -> float:
    assert path is not None
    return float(tf.train.load_checkpoint(path).get_tensor("network/weight/.ATTRIBUTES/VARIABLE_VALUE"))


def test_training_ends_after_evaluations_without_a_lower_loss(tmp_path: Path) -> None:
    stopping = EarlyStopping(str(tmp_path), 2)
    assert stopping.path is None
    losses = [0.9, 0.5, 0.6, 0.4, 0.41, 0.4]
    has_ended = [stopping.update(10 * number, loss, network(number)) for number, loss in enumerate(losses, 1)]
    assert has_ended == [False] * 5 + [True]
    assert weight_at(stopping.path) == 4
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"best", "best-40"}, "older ones are deleted"


def test_four_evaluations_with_a_much_higher_loss_end_training(tmp_path: Path) -> None:
    """The lowest loss is 0.5, so 0.59 is within a fifth of it and 0.61 is not."""
    for folder, losses, ended_after in (
        ("high", [0.5, 0.61, 0.7, 0.8, 0.9], 5),
        ("near", [0.5, 0.61, 0.59, 0.59, 0.59, 0.59, 0.59, 0.59, 0.59, 0.59, 0.59], 11),
        ("recovers", [0.5, 0.7, 0.7, 0.7, 0.4, 0.7, 0.7, 0.7, 0.7], 9),
    ):
        (tmp_path / folder).mkdir()
        stopping = EarlyStopping(str(tmp_path / folder), 12)
        has_ended = [stopping.update(number, loss, network(number)) for number, loss in enumerate(losses, 1)]
        assert has_ended.index(True) + 1 == ended_after == len(losses), folder


def test_resumed_training_continues_to_count(tmp_path: Path) -> None:
    stopping = EarlyStopping(str(tmp_path), 2)
    assert [stopping.update(step, loss, network(step)) for step, loss in ((1, 0.5), (2, 0.6))] == [False, False]
    resumed = EarlyStopping(str(tmp_path), 2)
    assert not resumed.is_over
    assert not resumed.update(2, 0.1, network(7)), "a checkpoint is not counted twice"
    assert resumed.update(3, 0.7, network(3))
    assert resumed.curve == EarlyStopping(str(tmp_path), 2).curve == [(1, 0.5), (2, 0.6), (3, 0.7)]
    assert EarlyStopping(str(tmp_path), 2).is_over
    assert weight_at(resumed.path) == 1


def test_loss_of_nan_is_never_the_best(tmp_path: Path) -> None:
    stopping = EarlyStopping(str(tmp_path), 2)
    assert [stopping.update(step, float("nan"), network(step)) for step in (1, 2)] == [False, True]
    assert stopping.path is None


def test_training_without_patience_only_keeps_the_best_weights(tmp_path: Path) -> None:
    stopping = EarlyStopping(str(tmp_path), None)
    evaluated = [stopping.update(step, loss, network(step)) for step, loss in ((1, 0.4), (2, 0.6), (3, 0.5))]
    assert not any(evaluated)
    assert (stopping.loss, weight_at(stopping.path)) == (0.4, 1)
