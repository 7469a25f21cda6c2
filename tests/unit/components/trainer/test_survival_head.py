"""The prediction head of a survival task, against closed forms and numerical integrals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from scipy import integrate, optimize

from components.base.errors import InputError
from components.features import feature_names
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.trainer.calibration import fit_calibration
from components.trainer.head_creation import create_head
from components.trainer.prediction_head import SurvivalHead
from tests.support.data.tolerances import Tolerance, rounding
from tests.unit.components.trainer.test_prediction_head import FEATURES, TransformGraph

NEAR = rounding(32)
ENDS, HAZARDS = np.array([2.0, 5.0, 9.0]), np.array([0.1, 0.3, 0.05])
RANDOM = np.random.default_rng(4)
TIMES = np.array([0.0, 1.0, 2.0, 2.5, 5.0, 7.0, 9.0, 30.0])
LABELS = np.column_stack([TIMES, np.arange(8) % 2]).astype(np.float32)
LOGITS = RANDOM.normal(size=(8, 3)).astype(np.float32)


def make_head(counts: list[bytes], lines: list[bytes]) -> SurvivalHead:
    plan = FeaturePlan(features=FEATURES, labels=(Label("days", event="died"),), task="survival", intervals=3)
    head = create_head(
        plan,
        TransformGraph(**{feature_names.LABEL_COUNTS: counts, feature_names.LABEL_TIMES: lines}),  # type: ignore[arg-type]
    )
    assert isinstance(head, SurvivalHead)
    return head


INTERVALS = [f"{end} {hazard}".encode() for end, hazard in zip(ENDS, HAZARDS, strict=True)]
HEAD = make_head([b"60 0", b"40 1"], [b"100", b"0", b"0", *INTERVALS])


def hazard_at(time: float, logits: npt.NDArray[Any]) -> float:
    """Return the hazard just before a time."""
    interval = min(int(np.searchsorted(ENDS, time)), 2)
    return float(HAZARDS[interval] * np.exp(logits[interval]))


def survival_at(time: float, logits: npt.NDArray[Any]) -> float:
    """Return exp(-integral of the hazard)."""
    points = [end for end in ENDS[:2] if end < time]
    return float(np.exp(-integrate.quad(lambda moment: hazard_at(moment, logits), 0, time, points=points or None)[0]))


def test_loss_is_the_negative_log_likelihood() -> None:
    expected = []
    for (time, happened), logits in zip(LABELS, LOGITS, strict=True):
        density = hazard_at(time, logits) if happened else 1.0
        expected.append(-np.log(density * survival_at(time, logits)))
    NEAR.assert_close(HEAD.losses(tf.constant(LABELS), tf.constant(LOGITS)), np.array(expected))


def test_logits_of_zero_predict_the_hazards_of_all_rows() -> None:
    outputs = HEAD.outputs_by_name(tf.zeros([2, 3]))
    NEAR.assert_close(outputs["cumulative_hazard"], np.tile(np.cumsum(HAZARDS * np.diff(ENDS, prepend=0)), (2, 1)))


def test_prediction_is_the_integral_of_the_survival() -> None:
    outputs = HEAD.outputs_by_name(tf.constant(LOGITS))
    assert set(outputs) == {"prediction", "survival", "cumulative_hazard", "times"}
    for row, logits in enumerate(LOGITS):
        expected = integrate.quad(lambda time: survival_at(time, logits), 0, 9, points=ENDS[:2])[0]  # noqa: B023
        NEAR.assert_close(outputs["prediction"][row, 0], expected)
        NEAR.assert_close(outputs["survival"][row], [survival_at(end, logits) for end in ENDS])
        NEAR.assert_close(outputs["times"][row], ENDS)
    NEAR.assert_close(HEAD.outputs_by_name(tf.fill([1, 3], -60.0))["prediction"][0, 0], 9.0)


def test_members_of_an_ensemble_are_joined_by_their_mean_survival() -> None:
    members = tf.constant(RANDOM.normal(size=(4, 7, 3)), tf.float32)
    expected = np.mean([HEAD.outputs_by_name(members[:, at])["survival"] for at in range(7)], axis=0)
    NEAR.assert_close(HEAD.outputs_by_name(HEAD.join_members(members))["survival"], expected)


def test_temperature_has_the_lowest_loss() -> None:
    """The temperature has a normal prior of deviation 0.25 on its logarithm."""
    labels, logits = np.tile(LABELS, (40, 1)), RANDOM.normal(size=(320, 3)).astype(np.float32)
    calibrate = fit_calibration("temperature", HEAD, logits, labels)

    def loss(logarithm: float) -> float:
        losses = HEAD.losses(tf.constant(labels), tf.constant(logits * np.float32(np.exp(-logarithm))))
        return float(np.mean(losses) + (logarithm / 0.25) ** 2 / 2 / len(labels))

    expected = np.exp(optimize.minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)
    Tolerance(1e-3, 1e-3).assert_close((logits[:1] / calibrate(tf.constant(logits[:1])).numpy())[0], [expected] * 3)


@pytest.mark.parametrize(
    ("counts", "lines", "message"),
    [
        ([b"9 0"], [b"9", b"0", b"0"], "data.event: expected 1 for events and 0 for other rows, received 'died' with"),
        ([b"6 a", b"3 b"], [b"9", b"0", b"0"], "received 'died' with the values a, b in the training split"),
        ([b"6 0", b"2 1", b"1 nan"], [b"9", b"0", b"0"], "data.event: 'died' is missing in 1 of 9 training rows"),
        ([b"6 0", b"3 1"], [b"9", b"2", b"0"], "data.label: 'days' is missing in 2 of 9 training rows"),
        ([b"6 0", b"3 1"], [b"9", b"0", b"1"], "survival expected a non-negative label, received 'days'"),
        ([b"6 0", b"3 1"], [b"9", b"0", b"0"], "expected events after time 0 in the training split, received 3 events"),
    ],
)
def test_labels_that_cannot_be_learned_are_rejected(counts: list[bytes], lines: list[bytes], message: str) -> None:
    with pytest.raises(InputError) as raised:
        make_head(counts, lines)
    assert message in str(raised.value)


def test_a_label_without_censored_rows_is_learned() -> None:
    assert make_head([b"9 1"], [b"9", b"0", b"0", b"4.0 0.25"]).outputs == 1
