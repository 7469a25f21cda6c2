"""Losses of `model.loss`: their values, the constants that minimize them, and the outputs of a served model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize
from sklearn import metrics
from tolerances import float32_sum, rounding

from components.base.errors import InputError
from components.features import feature_names
from components.features.config import FeaturesConfig
from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.trainer.prediction_head import PredictionHead, prediction_head

FEATURES = FeaturesConfig.model_validate({"columns": {"x": "z_score"}})
BINARY = {feature_names.LABEL_COUNTS: [b"30 0", b"10 1"]}
CLASSES = {feature_names.LABEL_COUNTS: [b"6 a", b"3 b", b"1 c"], feature_names.LABEL_CLASSES: [b"a", b"b", b"c"]}
RANDOM = np.random.default_rng(1)
LABELS = RANDOM.poisson(np.exp(RANDOM.normal(1, 0.5, 400))).astype(np.float32)
LEVELS = [0.1, 0.4, 0.8]
MEAN = float32_sum(len(LABELS), largest=30 / len(LABELS))
"""Tolerance of the mean of the losses of all rows, each below 30."""


def head(task: Any = "regression", labels: Any = LABELS, lines: Any = None, **model: Any) -> PredictionHead:
    scale = [len(labels), 0, labels.mean(dtype=float), labels.std(dtype=float), (labels < 0).sum()]
    lines = lines or {feature_names.LABEL_SCALE: [repr(float(each)).encode() for each in scale]}
    plan = FeaturePlan(features=FEATURES, label="y", task=task)
    graph = SimpleNamespace(vocabulary_by_name=lines.__getitem__)
    return prediction_head(plan, graph, None, ModelConfig.model_validate(model))


def predicted(made: PredictionHead, logits: Any, output: str = "prediction") -> Any:
    return made.outputs_by_name(tf.constant(logits, tf.float32))[output].numpy()


def mean_loss(made: PredictionHead, logits: Any, labels: Any = LABELS) -> float:
    rows = tf.repeat(tf.constant([logits], tf.float32), len(labels), axis=0)
    return float(tf.reduce_mean(made.losses(tf.constant(labels)[:, None], rows)))


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
    made = head(**model)
    found = optimize.minimize_scalar(lambda logit: mean_loss(made, [logit]), bounds=(-3, 3), method="bounded")
    assert predicted(made, [[found.x]])[0, 0] == pytest.approx(best, abs=0.05)


@pytest.mark.parametrize(("model", "power"), [({"loss": "poisson"}, 1), ({"loss": "tweedie"}, 1.5)])
def test_deviance_is_that_of_scikit_learn(model: dict[str, Any], power: float) -> None:
    made, logits = head(**model), RANDOM.normal(size=(len(LABELS), 1))
    losses = made.losses(tf.constant(LABELS)[:, None], tf.constant(logits, tf.float32))
    expected = metrics.mean_tweedie_deviance(LABELS, predicted(made, logits)[:, 0], power=power)
    assert 2 * float(tf.reduce_mean(losses)) * LABELS.mean() ** (2 - power) == MEAN.approx(expected)
    assert predicted(made, [[0.0]]) == rounding(8).approx(LABELS.mean()), "a new network predicts the mean"


def test_quantiles_are_those_of_scikit_learns_loss_and_never_cross() -> None:
    made, logits = head(loss="quantile", quantiles=LEVELS), RANDOM.normal(size=(len(LABELS), 3))
    values = logits * LABELS.std() + LABELS.mean()
    losses = made.losses(tf.constant(LABELS)[:, None], tf.constant(logits, tf.float32))
    expected = [metrics.mean_pinball_loss(LABELS, values[:, at], alpha=level) for at, level in enumerate(LEVELS)]
    assert float(tf.reduce_mean(losses)) * LABELS.std() == MEAN.approx(np.mean(expected))
    quantiles = predicted(made, logits, "quantiles")
    np.testing.assert_allclose(quantiles, np.sort(values, axis=1), rtol=1e-4, atol=1e-5)
    # 0.4 is nearest to 0.5.
    np.testing.assert_array_equal(predicted(made, logits), quantiles[:, 1:2])
    assert made.outputs == 3


def test_huber_is_the_squared_error_up_to_delta_and_then_a_line() -> None:
    made = head(loss="huber", huber_delta=2.0)
    unit = LABELS.std()
    # NumPy's deviation of 400 rows differs from the head's by some units in the last place.
    near = rounding(100)
    at = (LABELS.mean() + np.array([1.0, 2.0, 5.0])).astype(np.float32)
    losses = made.losses(tf.constant(at)[:, None], tf.zeros([3, 1])) * unit**2
    near.assert_close(losses, [1, 4, 2 * (2 * 5 - 2)])
    default = head(loss="huber").losses(tf.constant(at + 9 * unit)[:, None], tf.zeros([3, 1]))
    near.assert_close(default, 2 * ((at + 9 * unit - LABELS.mean()) / unit) - 1)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_loss_is_the_crossentropy_times_a_power_of_what_is_missing(task: Any, gamma: float) -> None:
    lines, outputs = (BINARY, 1) if task == "binary" else (CLASSES, 3)
    label, logits = tf.constant([0, 1, 1, 0]), tf.constant(RANDOM.normal(size=(4, outputs)) * 3, tf.float32)
    plain = head(task, lines=lines).losses(label, logits).numpy()
    made = head(task, lines=lines, loss="focal", focal_gamma=gamma)
    # A small loss has a still smaller product, and an exponential near 1.
    rounding(20, largest=0.1).assert_close(made.losses(label, logits), plain * (1 - np.exp(-plain)) ** gamma)
    certain = tf.constant([[99.0]] if outputs == 1 else [[0.0, 99.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(certain)
        loss = made.losses(tf.constant([1]), certain)
    assert np.isfinite(tape.gradient(loss, certain)).all()


@pytest.mark.parametrize("model", [{"loss": "poisson"}, {"loss": "quantile"}, {"loss": "huber"}])
def test_prediction_of_an_ensemble_is_the_mean_of_its_members(model: dict[str, Any]) -> None:
    made = head(**model)
    members = tf.sort(tf.constant(RANDOM.normal(size=(5, 4, made.outputs)), tf.float32), axis=2)
    alone = [predicted(made, members[:, at]) for at in range(4)]
    rounding(20, largest=10.0).assert_close(predicted(made, made.join_members(members)), np.mean(alone, axis=0))


@pytest.mark.parametrize("loss", ["poisson", "tweedie"])
def test_negative_label_is_counted_in_the_error(loss: str) -> None:
    with pytest.raises(InputError, match=rf"{loss} expected a non-negative label, .*negative in 2 of 4 training rows"):
        head(labels=np.array([-1.0, 2.0, -3.0, 4.0]), loss=loss)
    with pytest.raises(InputError, match="is constant: all 4 training rows hold 0"):
        head(labels=np.zeros(4), loss=loss)
    head(labels=np.array([-1.0, 2.0]), loss="huber")
