"""Tests that calibration corrects logits with a known error."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from sklearn.isotonic import IsotonicRegression

from components.features.expression import Label
from components.trainer.calibration import fit_calibration, fit_isotonic, fit_temperature
from components.trainer.prediction_head import CompositeHead
from tests.support.data.tolerances import rounding
from tests.unit.components.trainer.test_forest_learner import head

ROWS = 20_000


def sample(rows: int = ROWS) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return random calibrated data: float32 logits of shape [rows, 1], and int64 labels drawn accordingly."""
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (rows, 1)).astype(np.float32)
    return logits, (random.random(rows) < tf.sigmoid(logits).numpy()[:, 0]).astype(np.int64)


@pytest.mark.parametrize("wrong", [0.4, 1.0, 3.0])
def test_temperature_reverts_a_factor_on_the_logits(wrong: float) -> None:
    logits, label = sample()
    calibrate = fit_temperature(head("binary"), logits * np.float32(wrong), label)
    np.testing.assert_allclose(calibrate(tf.constant(logits * wrong)), logits, rtol=0.05, atol=1e-6)


def test_temperature_reverts_a_factor_on_the_logits_of_several_classes() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (ROWS, 4)).astype(np.float32)
    label = np.argmax(logits + random.gumbel(size=logits.shape), axis=1)
    calibrate = fit_temperature(head("multiclass"), logits * 2, label)
    np.testing.assert_allclose(calibrate(tf.constant(logits * 2)), logits, rtol=0.05, atol=1e-6)


def test_temperature_sharpens_a_few_correct_rows_only_a_little() -> None:
    logits = np.array([[-2.0], [2.0]] * 5, np.float32)
    sharpened = fit_temperature(head("binary"), logits, np.array([0, 1] * 5))(tf.constant(logits))
    assert 2 < sharpened[1, 0] < 3


def test_isotonic_regression_reverts_an_increasing_function() -> None:
    logits, label = sample()
    calibrate = fit_isotonic(np.sign(logits) * logits**2 + 1, label)
    test_logits = np.array([[-1.5], [-0.5], [0.7], [1.8]], np.float32)
    calibrated = tf.sigmoid(calibrate(tf.constant(np.sign(test_logits) * test_logits**2 + 1)))
    np.testing.assert_allclose(calibrated, tf.sigmoid(test_logits), atol=0.03)


def test_isotonic_regression_increases_and_never_outputs_0_or_1() -> None:
    logits, label = sample(200)
    grid = tf.constant(np.linspace(-20, 20, 1000, dtype=np.float32)[:, np.newaxis])
    calibrated = tf.sigmoid(fit_isotonic(logits, label)(grid)).numpy()[:, 0]
    assert (np.diff(calibrated) >= -rounding(4).atol).all()
    assert calibrated[0] == pytest.approx(1 / 202, rel=1e-3, abs=1e-6)
    assert calibrated[-1] == pytest.approx(201 / 202, rel=1e-3, abs=1e-6)


def test_isotonic_regression_of_noise_is_a_constant() -> None:
    logits = np.array([[1.0], [2.0]], np.float32)
    calibrated = fit_isotonic(logits, np.array([1, 0]))(tf.constant([[-3.0], [1.5], [9.0]]))
    np.testing.assert_allclose(calibrated, [[0.0]] * 3, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_isotonic_regression_of_tied_logits_equals_scikit_learn(weighted: bool) -> None:
    random = np.random.default_rng(0)
    group = random.integers(0, 4, 3000)
    logits = np.array([-2.0, -0.7, 0.1, 1.3], np.float32)[group]
    label = (random.random(3000) < np.array([0.1, 0.3, 0.5, 0.8])[group]).astype(np.int64)
    # Include rows of weight 0, which must not count, and weights that depend on the label.
    weight = random.choice([0.0, 1.0, 2.5], 3000) * (1 + 3 * label) if weighted else np.ones(3000)
    expected = IsotonicRegression().fit(logits, label, sample_weight=weight).predict(logits)
    order = random.permutation(3000)
    for rows in (np.arange(3000), order):
        row_weights = weight[rows].astype(np.float32) if weighted else None
        calibrate = fit_isotonic(logits[rows, np.newaxis], label[rows], row_weights)
        calibrated = tf.sigmoid(calibrate(tf.constant(logits[:, np.newaxis])))[:, 0]
        # The calibration stores every probability as a logit in float32.
        rounding(16).assert_close(calibrated, expected)


def test_isotonic_regression_without_weighted_rows_is_the_identity() -> None:
    logits, label = sample(20)
    calibrated = fit_isotonic(logits, label, np.zeros(20, np.float32))(tf.constant(logits))
    np.testing.assert_array_equal(calibrated, logits)


@pytest.mark.parametrize("kind", ["temperature", "isotonic"])
def test_labels_are_calibrated_separately(kind: Literal["temperature", "isotonic"]) -> None:
    (label_logits, label), binary_head = sample(), head("binary")
    logits, labels = (
        np.concatenate([3 * label_logits, label_logits[::-1] / 2], axis=1),
        np.stack([label, label[::-1]], axis=1),
    )
    parts = {Label(name, name): binary_head for name in ("click", "buy")}
    multi_label_head = CompositeHead(outputs=2, parts=parts, label_weights=(1.0, 1.0))
    calibrated = fit_calibration(kind, multi_label_head, logits, labels)(tf.constant(logits)).numpy()
    inside = np.abs(label_logits[:, 0]) < 2
    for number, expected in enumerate((label_logits, label_logits[::-1])):
        rows = inside if number == 0 else inside[::-1]
        np.testing.assert_allclose(tf.sigmoid(calibrated[rows, number]), tf.sigmoid(expected[rows, 0]), atol=0.06)
