"""Early stopping: the weights of the lowest loss stay, and a training that is taken up again goes on waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from pydantic import ValidationError

from components.trainer.best import Best
from components.trainer.config import TrainingConfig


def network(weight: float) -> Any:
    made = tf.Module()
    made.weight = tf.Variable(weight)
    return made


def weight_at(path: str | None) -> float:
    assert path is not None
    return float(tf.train.load_checkpoint(path).get_tensor("network/weight/.ATTRIBUTES/VARIABLE_VALUE"))


def test_training_ends_when_it_has_not_been_better_for_so_many_looks(tmp_path: Path) -> None:
    best = Best(str(tmp_path), 2)
    assert best.path is None
    losses = [0.9, 0.5, 0.6, 0.4, 0.41, 0.4]
    ended = [best.look(10 * look, loss, network(look)) for look, loss in enumerate(losses, 1)]
    assert ended == [False] * 5 + [True]
    assert weight_at(best.path) == 4
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"best", "best-40"}, "older ones are gone"


def test_a_training_that_is_taken_up_again_goes_on_waiting(tmp_path: Path) -> None:
    before = Best(str(tmp_path), 2)
    assert [before.look(step, loss, network(step)) for step, loss in ((1, 0.5), (2, 0.6))] == [False, False]
    again = Best(str(tmp_path), 2)
    assert not again.over
    assert not again.look(2, 0.1, network(7)), "a checkpoint that was looked at before is not counted twice"
    assert again.look(3, 0.7, network(3))
    assert Best(str(tmp_path), 2).over
    assert weight_at(again.path) == 1


def test_a_loss_that_is_not_finite_is_never_the_best(tmp_path: Path) -> None:
    best = Best(str(tmp_path), 2)
    assert [best.look(step, float("nan"), network(step)) for step in (1, 2)] == [False, True]
    assert best.path is None


def test_it_is_for_one_process() -> None:
    TrainingConfig.model_validate({"early_stopping": 3, "strategy": {"kind": "mirrored"}})
    with pytest.raises(ValidationError, match="early_stopping is for training in one process, and multi_worker takes"):
        TrainingConfig.model_validate({"early_stopping": 3, "strategy": {"kind": "multi_worker"}})
