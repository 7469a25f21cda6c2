"""The score of an anomaly model equals the share of smaller errors, computed with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.features import feature_names
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.trainer.anomaly_score import fit_score
from components.trainer.head_creation import create_head
from components.trainer.prediction_head import AnomalyHead
from tests.unit.components.trainer.test_prediction_head import FEATURES, TransformGraph

RANDOM = np.random.default_rng(2)
ERRORS = RANDOM.gamma(2, size=(3000, 1)).astype(np.float32)


def score(errors: Any, contamination: float = 0.05, given: Any = ERRORS, weight: Any = None) -> Any:
    outputs = fit_score(AnomalyHead(contamination=contamination), given, weight)(tf.constant(errors))
    assert set(outputs) == {"score", "is_anomaly", "error"}
    np.testing.assert_array_equal(outputs["error"], errors)
    np.testing.assert_array_equal(outputs["is_anomaly"], outputs["score"].numpy() >= np.float32(1 - contamination))
    return outputs["score"].numpy()[:, 0]


def test_score_is_the_share_of_smaller_errors() -> None:
    later = RANDOM.gamma(2, size=(5000, 1)).astype(np.float32)
    expected = (ERRORS[:, 0] < later).mean(axis=1)
    np.testing.assert_allclose(score(later), expected, atol=2e-3)


@pytest.mark.parametrize("contamination", [0.01, 0.2])
def test_contamination_is_the_share_of_anomalies_among_the_given_rows(contamination: float) -> None:
    np.testing.assert_allclose((score(ERRORS) >= 1 - contamination).mean(), contamination, atol=2e-3)


def test_larger_errors_have_larger_scores_beyond_the_given_errors() -> None:
    largest = float(ERRORS.max())
    errors = np.array([[-5.0], [0.0], [1.0], [largest], [largest + 1], [largest + 100], [largest * 1000]], np.float32)
    scores = score(errors)
    assert (np.diff(scores) > 0).all()
    assert 0 < scores[0] < scores[-1] < 1


def test_weights_count_as_repeated_rows() -> None:
    weight = RANDOM.integers(0, 4, len(ERRORS)).astype(np.float32)
    repeated = np.repeat(ERRORS, weight.astype(int), axis=0)
    later = RANDOM.gamma(2, size=(500, 1)).astype(np.float32)
    np.testing.assert_allclose(score(later, weight=weight), score(later, given=repeated), atol=2e-3)


def test_equal_errors_have_a_score_of_one_half() -> None:
    scores = score(np.array([[0.0], [1.0], [2.0]], np.float32), given=np.ones((10, 1), np.float32))
    assert scores[0] < scores[1] < scores[2]


def make_head(label: str, counts: list[bytes]) -> Any:
    plan = FeaturePlan(features=FEATURES, labels=(Label(label),), task="anomaly")
    graph: Any = TransformGraph(**{feature_names.LABEL_COUNTS: counts})
    return create_head(plan, graph, model=ModelConfig(kind="autoencoder", contamination=0.03))


def test_head_ignores_the_label() -> None:
    heads = [make_head("", []), make_head("y", [b"7 0"]), make_head("y", [b"7 0", b"1 1"])]
    for head in heads:
        assert head.contamination == 0.03
        np.testing.assert_array_equal(head.losses(tf.constant([0, 1]), tf.constant([[3.0], [4.0]])), [3.0, 4.0])
    members = tf.constant(RANDOM.normal(size=(4, 3, 1)), tf.float32)
    np.testing.assert_allclose(heads[0].join_members(members), members.numpy().mean(axis=1), atol=1e-6)


def test_labels_of_other_values_are_rejected() -> None:
    message = "expected 1 for anomalies and 0 for other rows, received 'y' with the values no, yes in the training"
    with pytest.raises(InputError, match=message):
        make_head("y", [b"7 no", b"3 yes"])
