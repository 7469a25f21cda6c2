"""Tests of the losses of `model.loss`: their values, the constants that minimize them, and the served outputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize
from sklearn import metrics

from components.base.errors import InputError
from components.features import feature_names
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.trainer.head_creation import create_head
from components.trainer.prediction_head import PredictionHead
from tests.support.data.tolerances import float32_sum, rounding

FEATURES = FeaturesConfig.model_validate({"columns": {"x": "z_score"}})
BINARY = {feature_names.LABEL_COUNTS: [b"30 0", b"10 1"]}
CLASSES = {feature_names.LABEL_COUNTS: [b"6 a", b"3 b", b"1 c"], feature_names.LABEL_CLASSES: [b"a", b"b", b"c"]}
RANDOM = np.random.default_rng(1)
LABELS = RANDOM.poisson(np.exp(RANDOM.normal(1, 0.5, 400))).astype(np.float32)
LEVELS = [0.1, 0.4, 0.8]
MEAN = float32_sum(len(LABELS), largest=30 / len(LABELS))
"""Tolerance of the mean loss of all rows. The loss of every row is below 30."""


def head(task: Any = "regression", labels: Any = LABELS, lines: Any = None, **model: Any) -> PredictionHead:
    scale = [len(labels), 0, labels.mean(dtype=float), labels.std(dtype=float), (labels < 0).sum()]
    lines = lines or {feature_names.LABEL_SCALE: [repr(float(number)).encode() for number in scale]}
    plan = FeaturePlan(features=FEATURES, labels=(Label("y"),), task=task)
    graph = SimpleNamespace(vocabulary_by_name=lines.__getitem__)
    return create_head(plan, graph, None, ModelConfig.model_validate(model))


def predict(loss_head: PredictionHead, logits: Any, output: str = "prediction") -> Any:
    return loss_head.outputs_by_name(tf.constant(logits, tf.float32))[output].numpy()


def mean_loss(loss_head: PredictionHead, logits: Any, labels: Any = LABELS) -> float:
    rows = tf.repeat(tf.constant([logits], tf.float32), len(labels), axis=0)
    return float(tf.reduce_mean(loss_head.losses(tf.constant(labels)[:, None], rows)))


@pytest.mark.parametrize(
    ("model", "best"),
    [
        ({"loss": "poisson"}, LABELS.mean()),
        ({"loss": "tweedie", "tweedie_power": 1.3}, LABELS.mean()),
        ({"loss": "quantile", "quantiles": [0.8]}, np.quantile(LABELS, 0.8)),
        ({"loss": "huber", "huber_delta": 1e-3}, np.median(LABELS)),
        ({"loss": "huber", "huber_delta": 1e3}, LABELS.mean()),
        ({}, LABELS.mean()),
    ],
)
def test_best_constant_is_the_statistic_that_the_loss_estimates(model: dict[str, Any], best: float) -> None:
    loss_head = head(**model)
    optimum = optimize.minimize_scalar(lambda logit: mean_loss(loss_head, [logit]), bounds=(-3, 3), method="bounded")
    assert predict(loss_head, [[optimum.x]])[0, 0] == pytest.approx(best, abs=0.05)


@pytest.mark.parametrize(("model", "power"), [({"loss": "poisson"}, 1), ({"loss": "tweedie"}, 1.5)])
def test_twice_the_loss_equals_the_deviance_of_scikit_learn(model: dict[str, Any], power: float) -> None:
    loss_head, logits = head(**model), RANDOM.normal(size=(len(LABELS), 1))
    losses = loss_head.losses(tf.constant(LABELS)[:, None], tf.constant(logits, tf.float32))
    expected = metrics.mean_tweedie_deviance(LABELS, predict(loss_head, logits)[:, 0], power=power)
    assert 2 * float(tf.reduce_mean(losses)) * LABELS.mean() ** (2 - power) == MEAN.approx(expected)
    assert predict(loss_head, [[0.0]]) == rounding(8).approx(LABELS.mean()), "a new network predicts the mean"


def test_quantile_loss_equals_scikit_learn_and_quantiles_never_cross() -> None:
    loss_head, logits = head(loss="quantile", quantiles=LEVELS), RANDOM.normal(size=(len(LABELS), 3))
    values = logits * LABELS.std() + LABELS.mean()
    losses = loss_head.losses(tf.constant(LABELS)[:, None], tf.constant(logits, tf.float32))
    expected = [metrics.mean_pinball_loss(LABELS, values[:, index], alpha=level) for index, level in enumerate(LEVELS)]
    assert float(tf.reduce_mean(losses)) * LABELS.std() == MEAN.approx(np.mean(expected))
    quantiles = predict(loss_head, logits, "quantiles")
    np.testing.assert_allclose(quantiles, np.sort(values, axis=1), rtol=1e-4, atol=1e-5)
    # The prediction is the quantile whose level is nearest to 0.5, here 0.4.
    np.testing.assert_array_equal(predict(loss_head, logits), quantiles[:, 1:2])
    assert loss_head.outputs == 3


def test_huber_is_the_squared_error_up_to_delta_and_then_a_line() -> None:
    loss_head = head(loss="huber", huber_delta=2.0)
    unit = LABELS.std()
    # The standard deviation computed by NumPy differs from the head's by a few units in the last place.
    near = rounding(100)
    labels = (LABELS.mean() + np.array([1.0, 2.0, 5.0])).astype(np.float32)
    losses = loss_head.losses(tf.constant(labels)[:, None], tf.zeros([3, 1])) * unit**2
    near.assert_close(losses, [1, 4, 2 * (2 * 5 - 2)])
    default = head(loss="huber").losses(tf.constant(labels + 9 * unit)[:, None], tf.zeros([3, 1]))
    near.assert_close(default, 2 * ((labels + 9 * unit - LABELS.mean()) / unit) - 1)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_loss_is_the_crossentropy_times_a_power_of_one_minus_the_probability(task: Any, gamma: float) -> None:
    lines, outputs = (BINARY, 1) if task == "binary" else (CLASSES, 3)
    label, logits = tf.constant([0, 1, 1, 0]), tf.constant(RANDOM.normal(size=(4, outputs)) * 3, tf.float32)
    plain = head(task, lines=lines).losses(label, logits).numpy()
    loss_head = head(task, lines=lines, loss="focal", focal_gamma=gamma)
    # For a small loss, exp(-loss) is near 1 and the product is even smaller than the loss: compare absolute values.
    rounding(20, largest=0.1).assert_close(loss_head.losses(label, logits), plain * (1 - np.exp(-plain)) ** gamma)
    certain = tf.constant([[99.0]] if outputs == 1 else [[0.0, 99.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(certain)
        loss = loss_head.losses(tf.constant([1]), certain)
    assert np.isfinite(tape.gradient(loss, certain)).all()


@pytest.mark.parametrize("model", [{"loss": "poisson"}, {"loss": "quantile"}, {"loss": "huber"}])
def test_prediction_of_an_ensemble_is_the_mean_of_the_members_predictions(model: dict[str, Any]) -> None:
    loss_head = head(**model)
    members = tf.sort(tf.constant(RANDOM.normal(size=(5, 4, loss_head.outputs)), tf.float32), axis=2)
    member_predictions = [predict(loss_head, members[:, member]) for member in range(4)]
    rounding(20, largest=10.0).assert_close(
        predict(loss_head, loss_head.join_members(members)), np.mean(member_predictions, axis=0)
    )


@pytest.mark.parametrize("loss", ["poisson", "tweedie"])
def test_error_counts_the_rows_with_a_negative_label(loss: str) -> None:
    with pytest.raises(InputError, match=rf"{loss} expected a non-negative label, .*negative in 2 of 4 training rows"):
        head(labels=np.array([-1.0, 2.0, -3.0, 4.0]), loss=loss)
    with pytest.raises(InputError, match="is constant: all 4 training rows hold 0"):
        head(labels=np.zeros(4), loss=loss)
    head(labels=np.array([-1.0, 2.0]), loss="huber")
