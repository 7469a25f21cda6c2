"""The prediction head of a multilabel task, and its calibration, against scikit-learn and SciPy."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize, special
from sklearn import metrics

from components.base.class_set import ClassSetConfig
from components.base.errors import InputError
from components.features import feature_names
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.trainer.calibration import fit_calibration
from components.trainer.head_creation import create_head
from components.trainer.prediction_head import MultilabelHead
from tests.support.data.tolerances import Tolerance, rounding
from tests.unit.components.trainer.test_prediction_head import FEATURES, TransformGraph

ROWS, NAMES, WIDTH = 200, ["a", "b", "c"], 5
RANDOM = np.random.default_rng(6)
LOGITS = RANDOM.normal(size=(ROWS, 3)).astype(np.float32)
IS_CLASS = RANDOM.random((ROWS, 3)) < special.expit(np.array([0.5, 1.0, 2.0]) * LOGITS)
LABELS = np.pad(IS_CLASS, [(0, 0), (0, WIDTH - 3)]).astype(np.float32)
NEAR = rounding(32)


def make_head(counts: list[bytes], classes: list[bytes]) -> MultilabelHead:
    plan = FeaturePlan(features=FEATURES, labels=(Label("y"),), task="multilabel", classes=ClassSetConfig(size=WIDTH))
    lines = {feature_names.LABEL_COUNTS: counts, feature_names.LABEL_CLASSES: classes}
    head = create_head(plan, TransformGraph(**lines))  # type: ignore[arg-type]
    assert isinstance(head, MultilabelHead)
    return head


HEAD = make_head([b"30 a", b"20 b", b"10 c"], [b"a", b"b", b"c"])


def test_loss_is_the_mean_log_loss_of_the_classes() -> None:
    probabilities = special.expit(LOGITS.astype(float))
    expected = np.mean([metrics.log_loss(IS_CLASS[:, at], probabilities[:, at]) for at in range(3)])
    NEAR.assert_close(np.mean(HEAD.losses(tf.constant(LABELS), tf.constant(LOGITS))), expected)
    [metric] = HEAD.metrics
    metric.update_state(LABELS, LOGITS)
    NEAR.assert_close(metric.result(), metrics.hamming_loss(IS_CLASS, LOGITS >= 0))


def test_members_of_an_ensemble_are_joined_by_their_mean_probability() -> None:
    members = tf.constant(RANDOM.normal(size=(4, 7, 3)), tf.float32)
    expected = special.expit(members.numpy().astype(float)).mean(axis=1)
    NEAR.assert_close(tf.sigmoid(HEAD.join_members(members)), expected)
    label = tf.constant(LABELS[:4])
    mean = np.mean([HEAD.losses(label, members[:, member]) for member in range(7)], axis=0)
    NEAR.assert_close(HEAD.losses(label, members), mean)


def test_outputs_have_the_names_the_probabilities_and_the_decisions_of_all_classes() -> None:
    outputs = HEAD.outputs_by_name(tf.constant([[0.0, -1e-3, 3.0], [-9.0, 9.0, -1.0]]))
    assert outputs["classes"].numpy().tolist() == [[b"a", b"b", b"c"]] * 2
    assert outputs["predicted"].numpy().tolist() == [[1, 0, 1], [0, 1, 0]]
    NEAR.assert_close(outputs["probabilities"][1], special.expit([-9.0, 9.0, -1.0]))


def test_each_class_has_a_temperature() -> None:
    """The temperature has a normal prior of deviation 0.25 on its logarithm."""
    calibrate = fit_calibration("temperature", HEAD, LOGITS, LABELS)
    divisors = LOGITS[:1] / calibrate(tf.constant(LOGITS[:1])).numpy()
    for at in range(3):
        label, logits = IS_CLASS[:, at], LOGITS[:, at].astype(float)

        def loss(logarithm: float, label: Any = label, logits: Any = logits) -> float:
            probability = special.expit(logits * np.exp(-logarithm))
            return float(metrics.log_loss(label, probability) + (logarithm / 0.25) ** 2 / 2 / ROWS)

        expected = np.exp(optimize.minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)
        Tolerance(1e-3, 1e-3).assert_close(divisors[0, at], expected)


def test_isotonic_calibration_gives_each_class_its_share_of_labels() -> None:
    calibrate = fit_calibration("isotonic", HEAD, LOGITS, LABELS)
    probabilities = special.expit(calibrate(tf.constant(LOGITS)).numpy())
    np.testing.assert_allclose(probabilities.mean(axis=0), IS_CLASS.mean(axis=0), atol=0.03)


def test_rarer_classes_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    counts = [b"30 a", b"20 b", b"4 \0missing", b"2 c", b"1 d"]
    with caplog.at_level(logging.INFO):
        head = make_head(counts, [b"a", b"b"])
    assert head.outputs == 2
    assert "2 classes; 4 training rows without a class; ignored 2 rarer classes with 3 values" in caplog.text


@pytest.mark.parametrize(
    ("counts", "classes", "message"),
    [
        ([b"30 a"], [b"a"], "multilabel expected at least 2 classes in the training split, received 1 in 'y'"),
        ([b"9 \0missing"], [], "expected at least 2 classes in the training split, received 0"),
        (
            [b"7 a", b"2 b", b"1 \0line break"],
            [b"a", b"b"],
            "expected classes without line breaks, received one in 1 of 10 values of the training split of 'y'",
        ),
    ],
)
def test_labels_that_cannot_be_learned_are_rejected(counts: list[bytes], classes: list[bytes], message: str) -> None:
    with pytest.raises(InputError) as raised:
        make_head(counts, classes)
    assert message in str(raised.value)
