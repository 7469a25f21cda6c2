"""Prediction heads: losses of networks and ensembles, class weights, the scale of a regression label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tolerances import float32_sum, rounding

from components.base.errors import InputError
from components.features import feature_names
from components.features.config import FeaturesConfig
from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.trainer.checkpoint_evaluation import compute_scores
from components.trainer.prediction_head import PredictionHead, prediction_head

FEATURES = FeaturesConfig.model_validate({"columns": {"x": "z_score"}})


class TransformGraph:
    """The label's statistics in a transform graph: file name → its lines."""

    def __init__(self, **lines: list[bytes]) -> None:
        self.vocabulary_by_name = lines.__getitem__


def head_of(task: Any, weights: Any = None, weight: str | None = None, **lines: list[bytes]) -> PredictionHead:
    plan = FeaturePlan(features=FEATURES, label="y", task=task, weight=weight)
    return prediction_head(plan, TransformGraph(**lines), weights)


BINARY = {feature_names.LABEL_COUNTS: [b"30 0", b"10 1"]}
CLASSES = {feature_names.LABEL_COUNTS: [b"6 a", b"3 b", b"1 c"], feature_names.LABEL_CLASSES: [b"a", b"b", b"c"]}
LOSS = rounding(16)
"""Tolerance of losses and outputs: an exponential, a logarithm and some products, all near 1."""
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
def test_each_member_of_an_ensemble_has_its_own_loss(task: str) -> None:
    head, label, given = head_of(task, **LINES[task]), tf.constant(LABELS[task]), logits(task, 5)
    alone = [head.losses(label[:, None], given[:, member]) for member in range(5)]
    LOSS.assert_close(head.losses(label, given), np.mean(alone, axis=0))


@pytest.mark.parametrize(("task", "output"), [("binary", "probability"), ("multiclass", "probabilities")])
def test_output_of_an_ensemble_is_the_mean_probability(task: str, output: str) -> None:
    head, given = head_of(task, **LINES[task]), 40 * logits(task, 5)
    alone = [head.outputs_by_name(given[:, member])[output] for member in range(5)]
    np.testing.assert_allclose(
        head.outputs_by_name(head.join_members(given))[output], np.mean(alone, axis=0), rtol=1e-4, atol=1e-7
    )
    assert np.isfinite(head.join_members(given)).all()


# AutoGraph would convert the metrics of tf_keras, in seconds, without any effect.
@tf.autograph.experimental.do_not_convert
def test_regression_label_is_standardized_in_the_loss_and_has_its_own_unit_in_the_output() -> None:
    head, label = head_of("regression", **LINES["regression"]), tf.constant(LABELS["regression"])
    right = (label[:, None] - 3) / 2
    np.testing.assert_allclose(head.losses(label, right), 0, atol=1e-12)
    LOSS.assert_close(head.losses(label, right + 1), 1)
    LOSS.assert_close(head.outputs_by_name(head.join_members(right))["prediction"][:, 0], label)
    LOSS.assert_close(head.join_members(tf.stack([right - 1, right + 3], axis=1)), right + 1)
    (metric,) = head.metrics
    metric.update_state(label[:, None], right + 0.5)
    assert float(metric.result()) == float32_sum(4).approx(1.0)


@pytest.mark.parametrize("members", [None, 3])
def test_class_that_is_not_in_the_training_split_has_probability_1e_7(members: int | None) -> None:
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
def test_class_weights(task: str, config: Any, expected: dict[int, float]) -> None:
    label = tf.constant(LABELS[task])
    plain = head_of(task, **LINES[task]).losses(label, logits(task, 2))
    weighted = head_of(task, config, **LINES[task]).losses(label, logits(task, 2))
    rounding(4).assert_close(weighted / plain, [expected[each] for each in LABELS[task]])


WEIGHT_SCALE = [b"4", b"0", b"2.5", b"1.0", b"0"]


@pytest.mark.parametrize("task", LABELS)
@pytest.mark.parametrize("members", [None, 3])
def test_weights_of_rows_are_relative_to_their_mean_and_multiply_those_of_classes(
    task: str, members: int | None
) -> None:
    of_classes = None if task == "regression" else "balanced"
    label, given = tf.constant(LABELS[task]), logits(task, members)
    plain = head_of(task, of_classes, **LINES[task]).losses(label, given)
    head = head_of(task, of_classes, "w", **LINES[task], **{feature_names.WEIGHT_SCALE: WEIGHT_SCALE})
    weight = tf.constant([5.0, 0.0, 2.5, 1.0])
    rounding(4).assert_close(head.losses(label, given, weight), plain * [2.0, 0.0, 1.0, 0.4])
    assert head.weight_of(label, weight) == float32_sum(4).approx(3.4)
    assert head_of(task, **LINES[task]).weight_of(label) == 4


def of_labels(task: Any, model: ModelConfig | None = None, **weights: float) -> PredictionHead:
    """Return the head of two labels, `click` and `buy`."""
    plan = FeaturePlan(features=FEATURES, labels={"click": "y", "buy": "z"}, task=task)
    lines = {f"{file}_{name}": each for file, each in LINES[task].items() for name in plan.labels}
    return prediction_head(plan, TransformGraph(**lines), None, model or ModelConfig(kind="mmoe"), weights)


@pytest.mark.parametrize("task", ["binary", "regression"])
@pytest.mark.parametrize("members", [None, 3])
def test_loss_of_several_labels_is_the_weighted_sum_of_theirs(task: str, members: int | None) -> None:
    head, alone = of_labels(task, buy=3.0), head_of(task, **LINES[task])
    label = tf.constant([LABELS[task], LABELS[task][::-1]])
    each = [logits(task, members), -2 * logits(task, members)]
    losses = [alone.losses(label[number], each[number]) for number in range(2)]
    found = head.losses(tf.transpose(label), tf.concat(each, axis=-1))
    LOSS.assert_close(found, losses[0] + 3 * losses[1])
    joined = head.join_members(tf.concat(each, axis=-1))
    LOSS.assert_close(joined, tf.concat([alone.join_members(one) for one in each], axis=1))
    output = {"binary": "probability", "regression": "prediction"}[task]
    outputs = head.outputs_by_name(joined)
    assert set(outputs) == {f"{output}_click", f"{output}_buy"}
    own = alone.outputs_by_name(joined[:, 1:])[output]
    LOSS.assert_close(outputs[f"{output}_buy"], own)


@tf.autograph.experimental.do_not_convert
def test_metrics_of_several_labels_are_those_of_each() -> None:
    head, label = of_labels("binary"), tf.constant([[0, 1], [1, 0], [1, 1], [0, 0]])
    given = tf.constant([[-1.0, 2.0], [1.0, 3.0], [2.0, 1.0], [-2.0, 0.0]])
    for _ in range(2):
        for metric in head.metrics:
            metric.reset_state()
            metric.update_state(label, given)
    assert [metric.name for metric in head.metrics] == ["auc_click", "auc_buy"]
    assert [float(metric.result()) for metric in head.metrics] == pytest.approx([1.0, 0.5], abs=0.01)


def test_esmm_has_the_probability_of_a_label_in_rows_with_the_one_before() -> None:
    outputs = of_labels("binary", ModelConfig(kind="esmm")).outputs_by_name(
        tf.constant([[1.0, -1.0], [-3.0, -2.9], [90.0, 95.0]])
    )
    click, buy, share = (outputs[f"probability_{name}"].numpy() for name in ("click", "buy", "buy_given_click"))
    LOSS.assert_close(share, np.minimum(buy / click, 1))


def test_loss_of_a_chain_is_the_likelihood_of_its_labels_or_the_loss_of_each_product() -> None:
    label = tf.constant([[0, 0], [1, 0], [1, 1], [0, 1]])
    given = tf.constant([[0.3, -0.7], [1.0, -1.0], [-2.0, -3.0], [0.5, -2.0]])
    click, both = tf.sigmoid(given).numpy().T
    share = both / click
    # A row with a purchase has a click.
    expected = -np.log(
        [1 - click[0], click[1] * (1 - share[1]) ** 3, click[2] * share[2] ** 3, click[3] * share[3] ** 3]
    )
    # The logarithm of a ratio of two float32 probabilities of 0.05 or more, times 3.
    rounding(60).assert_close(of_labels("binary", ModelConfig(kind="esmm"), buy=3.0).losses(label, given), expected)
    product = ModelConfig(kind="esmm", chain_loss="product")
    # The same function of the same logits.
    np.testing.assert_array_equal(
        of_labels("binary", product).losses(label, given), of_labels("binary").losses(label, given)
    )
    certain = of_labels("binary", ModelConfig(kind="esmm")).losses(label, tf.constant([[90.0, 90.0]] * 4))
    assert np.isfinite(certain).all()


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("members", [None, 3])
def test_loss_of_a_blended_row_is_that_of_both_labels_with_their_shares(task: str, members: int | None) -> None:
    head = head_of(task, "balanced", "w", **LINES[task], **{feature_names.WEIGHT_SCALE: WEIGHT_SCALE})
    label, given = tf.constant(LABELS[task]), logits(task, members)
    other = tf.roll(label, 1, axis=0)
    shares = tf.constant([[1.0, 0.0], [0.25, 0.75], [0.5, 1.0], [0.0, 2.0]])
    losses = head.losses(tf.stack([label, other], axis=1), given, shares)
    parts = [head.losses(each, given, shares[:, at]) for at, each in enumerate((label, other))]
    LOSS.assert_close(losses, parts[0] + parts[1])
    LOSS.assert_close(losses[0], head.losses(label, given, tf.ones(4))[0])


def test_rows_held_out_without_a_weight_above_0_have_no_mean_loss() -> None:
    head = head_of("binary", weight="w", **BINARY, **{feature_names.WEIGHT_SCALE: WEIGHT_SCALE})
    label, weight = tf.constant(LABELS["binary"]), tf.zeros(4)
    losses = head.losses(label[:, None], logits("binary", None), weight)
    with pytest.raises(InputError, match="expected rows with a weight above 0 among those held out"):
        head.mean(losses, head.weight_of(label, weight))


def test_evaluation_of_a_checkpoint_is_weighted() -> None:
    head = head_of("regression", None, "w", **LINES["regression"], **{feature_names.WEIGHT_SCALE: WEIGHT_SCALE})
    label, weight, given = (
        tf.constant(LABELS["regression"])[:, None],
        tf.constant([5.0, 0.0, 2.5, 1.0]),
        tf.zeros([4, 1]),
    )

    def network(features: dict[str, Any], training: bool) -> Any:
        return features["x"]

    batches = [({"x": given[at : at + 3]}, label[at : at + 3], weight[at : at + 3]) for at in (0, 3)]
    scores = compute_scores(network, head, batches)
    losses = head.losses(label, given).numpy()
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
def test_row_without_a_weight_is_counted_in_the_error(scale: list[bytes], message: str) -> None:
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
