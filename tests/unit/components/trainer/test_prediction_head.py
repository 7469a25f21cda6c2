"""Tests of prediction heads: losses of networks and ensembles, class weights, and scales of regression labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.features import feature_names
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.trainer.checkpoint_evaluation import compute_scores
from components.trainer.head_creation import create_head
from components.trainer.prediction_head import PredictionHead
from tests.support.data.tolerances import float32_sum, rounding

FEATURES = FeaturesConfig.model_validate({"columns": {"x": "z_score"}})


class TransformGraph:
    """A transform graph that only contains the statistics of the label, as lines by file name."""

    def __init__(self, **lines: list[bytes]) -> None:
        self.vocabulary_by_name = lines.__getitem__


def head_of(task: Any, weights: Any = None, weight: str | None = None, **lines: list[bytes]) -> PredictionHead:
    plan = FeaturePlan(features=FEATURES, labels=(Label("y"),), task=task, weight=weight)
    return create_head(plan, TransformGraph(**lines), weights)


BINARY = {feature_names.LABEL_COUNTS: [b"30 0", b"10 1"]}
CLASSES = {feature_names.LABEL_COUNTS: [b"6 a", b"3 b", b"1 c"], feature_names.LABEL_CLASSES: [b"a", b"b", b"c"]}
LOSS = rounding(16)
"""Tolerance of losses and outputs, which take an exponential, a logarithm and a few products of values near 1."""
LABELS = {"binary": [0, 1, 1, 0], "multiclass": [2, 0, 1, 1], "regression": [5.0, 2.0, -1.0, 7.0]}
LINES = {
    "binary": BINARY,
    "multiclass": CLASSES,
    "regression": {feature_names.LABEL_SCALE: [b"4", b"0", b"3.0", b"2.0", b"1"]},
}


def logits(task: str, members: int | None) -> Any:
    outputs = 3 if task == "multiclass" else 1
    shape = (4, outputs) if members is None else (4, members, outputs)
    return tf.constant(np.random.default_rng(1).normal(size=shape), tf.float32)


@pytest.mark.parametrize("task", LABELS)
def test_loss_of_an_ensemble_is_the_mean_loss_of_its_members(task: str) -> None:
    head, label, member_logits = head_of(task, **LINES[task]), tf.constant(LABELS[task]), logits(task, 5)
    member_losses = [head.losses(label[:, None], member_logits[:, member]) for member in range(5)]
    LOSS.assert_close(head.losses(label, member_logits), np.mean(member_losses, axis=0))


@pytest.mark.parametrize(("task", "output"), [("binary", "probability"), ("multiclass", "probabilities")])
def test_output_of_an_ensemble_is_the_mean_probability(task: str, output: str) -> None:
    head, member_logits = head_of(task, **LINES[task]), 40 * logits(task, 5)
    member_outputs = [head.outputs_by_name(member_logits[:, member])[output] for member in range(5)]
    np.testing.assert_allclose(
        head.outputs_by_name(head.join_members(member_logits))[output],
        np.mean(member_outputs, axis=0),
        rtol=1e-4,
        atol=1e-7,
    )
    assert np.isfinite(head.join_members(member_logits)).all()


# Without do_not_convert, AutoGraph spends seconds on converting the metrics of tf_keras, with the same result.
@tf.autograph.experimental.do_not_convert
def test_loss_standardizes_a_regression_label_and_the_output_reverts_it() -> None:
    head, label = head_of("regression", **LINES["regression"]), tf.constant(LABELS["regression"])
    exact_logits = (label[:, None] - 3) / 2
    np.testing.assert_allclose(head.losses(label, exact_logits), 0, atol=1e-12)
    LOSS.assert_close(head.losses(label, exact_logits + 1), 1)
    LOSS.assert_close(head.outputs_by_name(head.join_members(exact_logits))["prediction"][:, 0], label)
    LOSS.assert_close(head.join_members(tf.stack([exact_logits - 1, exact_logits + 3], axis=1)), exact_logits + 1)
    (metric,) = head.metrics
    metric.update_state(label[:, None], exact_logits + 0.5)
    assert float(metric.result()) == float32_sum(4).approx(1.0)


@pytest.mark.parametrize("members", [None, 3])
def test_class_missing_in_the_training_split_has_probability_1e_7(members: int | None) -> None:
    head = head_of("multiclass", {"c": 2.0}, **CLASSES)
    losses = head.losses(tf.constant([-1, 0, 1, 1]), logits("multiclass", members))
    assert float(losses[0]) == rounding(8).approx(-np.log(1e-7))
    assert np.isfinite(losses).all()


@pytest.mark.parametrize(
    ("task", "config", "expected"),
    [
        ("binary", "balanced", {0: 40 / 60, 1: 2.0}),
        ("binary", {"1": 3.0}, {0: 1.0, 1: 3.0}),
        ("multiclass", "balanced", {0: 10 / 18, 1: 10 / 9, 2: 10 / 3}),
        ("multiclass", {"c": 5.0, "a": 0.5}, {0: 0.5, 1: 1.0, 2: 5.0}),
    ],
)
def test_class_weights_multiply_the_loss(task: str, config: Any, expected: dict[int, float]) -> None:
    label = tf.constant(LABELS[task])
    plain = head_of(task, **LINES[task]).losses(label, logits(task, 2))
    weighted = head_of(task, config, **LINES[task]).losses(label, logits(task, 2))
    rounding(4).assert_close(weighted / plain, [expected[value] for value in LABELS[task]])


WEIGHT_SCALE = [b"4", b"0", b"2.5", b"1.0", b"0"]


@pytest.mark.parametrize("task", LABELS)
@pytest.mark.parametrize("members", [None, 3])
def test_row_weights_are_divided_by_their_mean_and_multiply_class_weights(task: str, members: int | None) -> None:
    class_weights = None if task == "regression" else "balanced"
    label, task_logits = tf.constant(LABELS[task]), logits(task, members)
    plain = head_of(task, class_weights, **LINES[task]).losses(label, task_logits)
    head = head_of(task, class_weights, "w", **LINES[task], **{feature_names.WEIGHT_SCALE: WEIGHT_SCALE})
    weight = tf.constant([5.0, 0.0, 2.5, 1.0])
    rounding(4).assert_close(head.losses(label, task_logits, weight), plain * [2.0, 0.0, 1.0, 0.4])
    assert head.weight_of(label, weight) == float32_sum(4).approx(3.4)
    assert head_of(task, **LINES[task]).weight_of(label) == 4


def head_of_two_labels(task: Any, model: ModelConfig | None = None, **weights: float) -> PredictionHead:
    """Return the prediction head for two labels, `click` and `buy`."""
    plan = FeaturePlan(features=FEATURES, labels=(Label("y", "click"), Label("z", "buy")), task=task)
    lines = {f"{file}_{name}": file_lines for file, file_lines in LINES[task].items() for name in ("click", "buy")}
    return create_head(plan, TransformGraph(**lines), None, model or ModelConfig(kind="mmoe"), weights)


@pytest.mark.parametrize("task", ["binary", "regression"])
@pytest.mark.parametrize("members", [None, 3])
def test_loss_of_several_labels_is_the_weighted_sum_of_their_losses(task: str, members: int | None) -> None:
    head, single_head = head_of_two_labels(task, buy=3.0), head_of(task, **LINES[task])
    label = tf.constant([LABELS[task], LABELS[task][::-1]])
    label_logits = [logits(task, members), -2 * logits(task, members)]
    losses = [single_head.losses(label[number], label_logits[number]) for number in range(2)]
    total = head.losses(tf.transpose(label), tf.concat(label_logits, axis=-1))
    LOSS.assert_close(total, losses[0] + 3 * losses[1])
    joined = head.join_members(tf.concat(label_logits, axis=-1))
    LOSS.assert_close(
        joined, tf.concat([single_head.join_members(one_label_logits) for one_label_logits in label_logits], axis=1)
    )
    output = {"binary": "probability", "regression": "prediction"}[task]
    outputs = head.outputs_by_name(joined)
    assert set(outputs) == {f"{output}_click", f"{output}_buy"}
    expected = single_head.outputs_by_name(joined[:, 1:])[output]
    LOSS.assert_close(outputs[f"{output}_buy"], expected)


@tf.autograph.experimental.do_not_convert
def test_metrics_are_computed_for_every_label() -> None:
    head, label = head_of_two_labels("binary"), tf.constant([[0, 1], [1, 0], [1, 1], [0, 0]])
    label_logits = tf.constant([[-1.0, 2.0], [1.0, 3.0], [2.0, 1.0], [-2.0, 0.0]])
    for _ in range(2):
        for metric in head.metrics:
            metric.reset_state()
            metric.update_state(label, label_logits)
    assert [metric.name for metric in head.metrics] == ["auc_click", "auc_buy"]
    assert [float(metric.result()) for metric in head.metrics] == pytest.approx([1.0, 0.5], abs=0.01)


def test_esmm_also_outputs_the_conditional_probability_of_a_label() -> None:
    outputs = head_of_two_labels("binary", ModelConfig(kind="esmm")).outputs_by_name(
        tf.constant([[1.0, -1.0], [-3.0, -2.9], [90.0, 95.0]])
    )
    click, buy, share = (outputs[f"probability_{name}"].numpy() for name in ("click", "buy", "buy_given_click"))
    LOSS.assert_close(share, np.minimum(buy / click, 1))


def test_loss_of_a_chain_is_its_likelihood_or_the_losses_of_the_products() -> None:
    label = tf.constant([[0, 0], [1, 0], [1, 1], [0, 1]])
    label_logits = tf.constant([[0.3, -0.7], [1.0, -1.0], [-2.0, -3.0], [0.5, -2.0]])
    click, buy = tf.sigmoid(label_logits).numpy().T
    share = buy / click
    # A purchase implies a click, so the last row counts as a row with a click.
    expected = -np.log(
        [1 - click[0], click[1] * (1 - share[1]) ** 3, click[2] * share[2] ** 3, click[3] * share[3] ** 3]
    )
    # The loss is three times the logarithm of a ratio of two float32 probabilities of at least 0.05.
    rounding(60).assert_close(
        head_of_two_labels("binary", ModelConfig(kind="esmm"), buy=3.0).losses(label, label_logits), expected
    )
    product = ModelConfig(kind="esmm", chain_loss="product")
    # Both heads apply the same function to the same logits, so the results are identical.
    np.testing.assert_array_equal(
        head_of_two_labels("binary", product).losses(label, label_logits),
        head_of_two_labels("binary").losses(label, label_logits),
    )
    certain = head_of_two_labels("binary", ModelConfig(kind="esmm")).losses(label, tf.constant([[90.0, 90.0]] * 4))
    assert np.isfinite(certain).all()


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("members", [None, 3])
def test_loss_of_a_blended_row_is_the_weighted_sum_for_both_labels(task: str, members: int | None) -> None:
    head = head_of(task, "balanced", "w", **LINES[task], **{feature_names.WEIGHT_SCALE: WEIGHT_SCALE})
    label, task_logits = tf.constant(LABELS[task]), logits(task, members)
    second_label = tf.roll(label, 1, axis=0)
    shares = tf.constant([[1.0, 0.0], [0.25, 0.75], [0.5, 1.0], [0.0, 2.0]])
    losses = head.losses(tf.stack([label, second_label], axis=1), task_logits, shares)
    parts = [
        head.losses(row_labels, task_logits, shares[:, index]) for index, row_labels in enumerate((label, second_label))
    ]
    LOSS.assert_close(losses, parts[0] + parts[1])
    LOSS.assert_close(losses[0], head.losses(label, task_logits, tf.ones(4))[0])


def test_mean_loss_without_rows_of_positive_weight_is_an_error() -> None:
    head = head_of("binary", weight="w", **BINARY, **{feature_names.WEIGHT_SCALE: WEIGHT_SCALE})
    label, weight = tf.constant(LABELS["binary"]), tf.zeros(4)
    losses = head.losses(label[:, None], logits("binary", None), weight)
    with pytest.raises(InputError, match="expected rows with a weight above 0 among those held out"):
        head.mean(losses, head.weight_of(label, weight))


def test_evaluation_of_a_checkpoint_is_weighted() -> None:
    head = head_of("regression", None, "w", **LINES["regression"], **{feature_names.WEIGHT_SCALE: WEIGHT_SCALE})
    label, weight, row_logits = (
        tf.constant(LABELS["regression"])[:, None],
        tf.constant([5.0, 0.0, 2.5, 1.0]),
        tf.zeros([4, 1]),
    )

    def network(features: dict[str, Any], training: bool) -> Any:
        return features["x"]

    batches = [
        ({"x": row_logits[start : start + 3]}, label[start : start + 3], weight[start : start + 3]) for start in (0, 3)
    ]
    scores = compute_scores(network, head, batches)
    losses = head.losses(label, row_logits).numpy()
    assert len(scores.losses) == 4
    assert head.mean(scores.losses, scores.weight) == float32_sum(4).approx(np.average(losses, weights=weight))
    expected = np.average(np.abs(np.array(LABELS["regression"]) - 3), weights=weight)
    assert scores.metrics["mean_absolute_error"] == float32_sum(4).approx(expected)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ([b"4", b"1", b"2.0", b"1.0", b"0"], "received missing or not finite in 1 of 4 training rows"),
        ([b"4", b"0", b"2.0", b"1.0", b"3"], "received negative in 3 of 4 training rows"),
        ([b"4", b"0", b"0.0", b"1.0", b"0"], "received 0 in 4 of 4 training rows"),
    ],
)
def test_error_counts_the_rows_with_an_invalid_weight(scale: list[bytes], message: str) -> None:
    with pytest.raises(InputError, match=f"data.weight: expected a non-negative number in each row of 'w', {message}"):
        head_of("binary", None, "w", **BINARY, **{feature_names.WEIGHT_SCALE: scale})


@pytest.mark.parametrize(
    ("task", "lines", "weights", "message"),
    [
        ("binary", BINARY, {"one": 2.0}, "class_weights: the label has no value 'one'"),
        ("multiclass", CLASSES, {"A": 2.0}, "has no value 'A'; expected one of a, b, c"),
        (
            "regression",
            {feature_names.LABEL_SCALE: [b"4", b"1", b"3.0", b"2.0", b"1"]},
            None,
            "is missing in 1 of 4 training rows",
        ),
        (
            "binary",
            {feature_names.LABEL_COUNTS: [b"7 0", b"2 nan", b"1 1"]},
            None,
            "is missing in 2 of 10 training rows",
        ),
        (
            "multiclass",
            CLASSES | {feature_names.LABEL_COUNTS: [b"6 a", b"3 \x00missing", b"1 b"]},
            None,
            "is missing in 3 of 10 training rows",
        ),
        (
            "multiclass",
            CLASSES | {feature_names.LABEL_COUNTS: [b"6 a", b"3 \x00line break", b"1 b"]},
            None,
            "expected classes without line breaks, received one in 3 of 10 training rows of 'y'",
        ),
        (
            "multiclass",
            CLASSES | {feature_names.LABEL_COUNTS: [b"1 %d" % value for value in range(10_001)]},
            None,
            "expected at most 10,000 classes, received more in 'y'",
        ),
        ("binary", {feature_names.LABEL_COUNTS: [b"7 0"]}, None, "is constant: all 7 training rows hold 0"),
        (
            "binary",
            {feature_names.LABEL_COUNTS: [b"7 0", b"1 2"]},
            None,
            "and a binary label is 0 or 1",
        ),
    ],
)
def test_label_that_cannot_be_learned_is_an_error(task: str, lines: Any, weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        head_of(task, weights, **lines)
