"""Calibration of logits whose error is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from sklearn.isotonic import IsotonicRegression
from tolerances import rounding

from components.trainer.calibration import fit_calibration, fit_isotonic, fit_temperature
from tests.unit.components.trainer.test_forest_learner import head

ROWS = 20_000


def sample(rows: int = ROWS) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Logits, [rows, 1], and labels with their probabilities."""
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (rows, 1)).astype(np.float32)
    return logits, (random.random(rows) < tf.sigmoid(logits).numpy()[:, 0]).astype(np.int64)


@pytest.mark.parametrize("wrong", [0.4, 1.0, 3.0])
def test_temperature_undoes_a_factor(wrong: float) -> None:
    logits, label = sample()
    calibrate = fit_temperature(head("binary"), logits * np.float32(wrong), label)
    np.testing.assert_allclose(calibrate(tf.constant(logits * wrong)), logits, rtol=0.05, atol=1e-6)


def test_temperature_of_several_classes() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (ROWS, 4)).astype(np.float32)
    label = np.argmax(logits + random.gumbel(size=logits.shape), axis=1)
    calibrate = fit_temperature(head("multiclass"), logits * 2, label)
    np.testing.assert_allclose(calibrate(tf.constant(logits * 2)), logits, rtol=0.05, atol=1e-6)


def test_no_error_in_a_few_rows_is_no_proof() -> None:
    logits = np.array([[-2.0], [2.0]] * 5, np.float32)
    sharpened = fit_temperature(head("binary"), logits, np.array([0, 1] * 5))(tf.constant(logits))
    assert 2 < sharpened[1, 0] < 3


def test_isotonic_regression_undoes_any_increasing_function() -> None:
    logits, label = sample()
    calibrate = fit_isotonic(np.sign(logits) * logits**2 + 1, label)
    given = np.array([[-1.5], [-0.5], [0.7], [1.8]], np.float32)
    found = tf.sigmoid(calibrate(tf.constant(np.sign(given) * given**2 + 1)))
    np.testing.assert_allclose(found, tf.sigmoid(given), atol=0.03)


def test_isotonic_regression_increases_and_is_never_certain() -> None:
    logits, label = sample(200)
    grid = tf.constant(np.linspace(-20, 20, 1000, dtype=np.float32)[:, np.newaxis])
    found = tf.sigmoid(fit_isotonic(logits, label)(grid)).numpy()[:, 0]
    assert (np.diff(found) >= -rounding(4).atol).all()
    assert found[0] == pytest.approx(1 / 202, rel=1e-3, abs=1e-6)
    assert found[-1] == pytest.approx(201 / 202, rel=1e-3, abs=1e-6)


def test_isotonic_regression_of_noise_is_a_constant() -> None:
    logits = np.array([[1.0], [2.0]], np.float32)
    found = fit_isotonic(logits, np.array([1, 0]))(tf.constant([[-3.0], [1.5], [9.0]]))
    np.testing.assert_allclose(found, [[0.0]] * 3, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_isotonic_regression_of_tied_logits_is_that_of_scikit_learn(weighted: bool) -> None:
    random = np.random.default_rng(0)
    group = random.integers(0, 4, 3000)
    logits = np.array([-2.0, -0.7, 0.1, 1.3], np.float32)[group]
    label = (random.random(3000) < np.array([0.1, 0.3, 0.5, 0.8])[group]).astype(np.int64)
    # Rows of weight 0 are not counted, and weights may depend on the label.
    weight = random.choice([0.0, 1.0, 2.5], 3000) * (1 + 3 * label) if weighted else np.ones(3000)
    expected = IsotonicRegression().fit(logits, label, sample_weight=weight).predict(logits)
    order = random.permutation(3000)
    for rows in (np.arange(3000), order):
        given = weight[rows].astype(np.float32) if weighted else None
        calibrate = fit_isotonic(logits[rows, np.newaxis], label[rows], given)
        found = tf.sigmoid(calibrate(tf.constant(logits[:, np.newaxis])))[:, 0]
        # Each probability is stored as a logit in float32.
        rounding(16).assert_close(found, expected)


def test_isotonic_regression_without_a_row_that_counts_changes_nothing() -> None:
    logits, label = sample(20)
    found = fit_isotonic(logits, label, np.zeros(20, np.float32))(tf.constant(logits))
    np.testing.assert_array_equal(found, logits)


@pytest.mark.parametrize("kind", ["temperature", "isotonic"])
def test_each_label_is_calibrated_by_itself(kind: Literal["temperature", "isotonic"]) -> None:
    (one, label), alone = sample(), head("binary")
    logits, labels = np.concatenate([3 * one, one[::-1] / 2], axis=1), np.stack([label, label[::-1]], axis=1)
    both = replace(alone, outputs=2, parts=(alone, alone))
    calibrated = fit_calibration(kind, both, logits, labels)(tf.constant(logits)).numpy()
    inside = np.abs(one[:, 0]) < 2
    for number, expected in enumerate((one, one[::-1])):
        rows = inside if number == 0 else inside[::-1]
        np.testing.assert_allclose(tf.sigmoid(calibrated[rows, number]), tf.sigmoid(expected[rows, 0]), atol=0.06)
