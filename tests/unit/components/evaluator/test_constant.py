"""The comparison with the best constant prediction equals a computation over all rows, however they are divided."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from components.base.config_section import Task
from components.evaluator import binned_sums
from components.evaluator.binned_sums import Counted, Slices
from components.evaluator.binning import Sums
from components.evaluator.constant import ConstantComparison
from components.evaluator.constant.paired import Compared
from components.evaluator.error_metrics import deviances
from tests.support.data.tolerances import float64_sum

ROWS = 3_000
SHARE = float64_sum(3)
"""Tolerance of shares of the rows, which are computed from exact counts."""


def compare(
    task: Task, labels: Any, predictions: Any, parts: int = 3, weights: Any = None, **of_loss: Any
) -> dict[str, Compared]:
    """Compute the comparison as the columnar executor does, with the rows in several parts."""
    comparison = ConstantComparison("constant", task, **of_loss)
    weighted = weights is not None
    computations = comparison.computations(model_names=[""], output_names=[""], example_weighted=weighted)
    combined = [computation for computation in computations if hasattr(computation, "combiner")]
    results: dict[Any, Any] = {}
    for computation in combined:
        combiner = computation.combiner
        # A model of quantiles predicts several values; metrics without an output read the first quantile.
        output = predictions[:, 0] if of_loss.get("quantiles") and not combiner.output else predictions
        powered_weights = None if weights is None else weights**combiner.power
        results.update(combiner.result(_sums(combiner, labels, output, parts, powered_weights)))
    derived, interval = (computation for computation in computations if not hasattr(computation, "combiner"))
    values, bounds = derived.result(results), interval.result(results)
    by_metric: dict[str, Compared] = {}
    for key, value in values.items():
        if key.name.startswith("constant "):
            metric = key.name.removeprefix("constant ")
            gain = next((gain_key for gain_key in values if gain_key.name == f"gain over the constant {metric}"), None)
            bounded = None if gain is None else bounds[gain]
            ends = (bounded.lower_bound.value, bounded.upper_bound.value) if hasattr(bounded, "lower_bound") else None
            by_metric[metric] = Compared(value, math.nan if gain is None else values[gain], ends)
    return by_metric


def _sums(metric: Any, labels: Any, predictions: Any, parts: int, weights: Any) -> Sums:
    counted = []
    for rows in np.array_split(np.arange(len(labels)), parts):
        slices = Slices([()], np.arange(len(rows)), np.zeros(len(rows), np.int64))
        part_weights, binned = None if weights is None else weights[rows], metric.bins(labels[rows], predictions[rows])
        counted.append(Counted([()], [binned_sums.count(binned, slices, part_weights)]))
    _, [table] = binned_sums.merge(counted)
    return table.select_slice(0)


def compare_pairs(constant: Any, model: Any) -> Compared:
    """Compute the comparison from the losses of every row, with a paired t interval of the gain."""
    difference = constant - model
    half = stats.t.ppf(0.975, len(difference) - 1) * difference.std(ddof=1) / math.sqrt(len(difference))
    gain = difference.mean()
    return Compared(constant.mean(), gain, (gain - half, gain + half))


def assert_equal(actual: Compared, expected: Compared) -> None:
    # The gain is the difference of two losses, so its rounding error is relative to the losses and not to the gain.
    tolerance = 1e-6 * abs(expected.value)
    assert (actual.value, actual.gain) == pytest.approx((expected.value, expected.gain), rel=1e-6, abs=tolerance)
    assert actual.interval == pytest.approx(expected.interval, rel=1e-6, abs=tolerance)


def test_binary_model_is_compared_with_the_prior() -> None:
    random = np.random.default_rng(1)
    label = (random.random(ROWS) < 0.2).astype(np.int64)
    answer = np.clip(0.2 + 0.3 * (label - 0.2) + random.normal(0, 0.1, ROWS), 0.01, 0.99).astype(np.float32)
    comparison, prior, predicted = compare("binary", label, answer), label.mean(), answer.astype(float)

    def losses(probability: Any) -> Any:
        return -label * np.log(probability) - (1 - label) * np.log(1 - probability)

    assert_equal(comparison["binary_crossentropy"], compare_pairs(losses(prior), losses(predicted)))
    assert_equal(comparison["brier_score"], compare_pairs((label - prior) ** 2, (label - predicted) ** 2))
    assert comparison["binary_accuracy"].value == SHARE.approx(1 - prior)
    assert comparison["auc_precision_recall"].value == SHARE.approx(prior)
    # Variance of the Mann-Whitney statistic if label and prediction are independent.
    area, positives = metrics.roc_auc_score(label, predicted), label.sum()
    half = 1.96 * math.sqrt((ROWS + 1) / (12 * positives * (ROWS - positives)))
    assert comparison["auc"].value == 0.5
    assert comparison["auc"].gain == pytest.approx(area - 0.5, abs=1e-3)
    assert comparison["auc"].interval == pytest.approx((area - 0.5 - half, area - 0.5 + half), abs=1e-3)


def test_multiclass_model_is_compared_with_the_shares_of_the_classes() -> None:
    random = np.random.default_rng(2)
    # -1 and 3 are classes that the model does not know.
    label = random.choice([-1, 0, 1, 2, 3], ROWS, p=[0.02, 0.5, 0.3, 0.15, 0.03])
    shares = random.dirichlet([1, 1, 1], ROWS)
    shares[np.arange(ROWS), label.clip(0, 2)] += 0.5
    shares /= shares.sum(axis=1, keepdims=True)
    comparison, known = compare("multiclass", label, shares), (label >= 0) & (label < 3)

    def losses(probabilities: Any) -> Any:
        return np.where(known, -np.log(probabilities[np.arange(ROWS), label.clip(0, 2)]), -np.log(1e-7))

    counts = np.bincount(label[known])
    constant = np.tile(counts / counts.sum(), (ROWS, 1))
    assert_equal(comparison["crossentropy"], compare_pairs(losses(constant), losses(shares)))
    assert comparison["accuracy"].value == SHARE.approx(counts.max() / ROWS)
    hits = shares.argmax(axis=1) == label
    exact = compare_pairs((label != counts.argmax()) * 1.0, 1.0 - hits)
    assert comparison["accuracy"].gain == SHARE.approx(exact.gain)
    assert comparison["accuracy"].interval == pytest.approx(exact.interval, rel=1e-3, abs=1e-6)
    recalls = [hits[label == number].mean() for number in range(3)]
    assert comparison["balanced_accuracy"].value == SHARE.approx(1 / 3)
    assert comparison["balanced_accuracy"].gain == SHARE.approx(np.mean(recalls) - 1 / 3)
    half = 1.96 * math.sqrt(sum(recall * (1 - recall) / rows for recall, rows in zip(recalls, counts, strict=True))) / 3
    gain = comparison["balanced_accuracy"].gain
    assert comparison["balanced_accuracy"].interval == pytest.approx((gain - half, gain + half), rel=0.02, abs=1e-3)


@pytest.mark.parametrize("offset", [0.0, -50.0, 1000.0])
@pytest.mark.parametrize("kind", ["normal", "whole numbers", "mostly zero"])
def test_regression_is_compared_with_the_mean_and_the_median(kind: str, offset: float) -> None:
    random = np.random.default_rng(3)
    label = random.normal(size=ROWS) * 30 + offset
    if kind == "whole numbers":
        label = np.round(label / 10)
    elif kind == "mostly zero":
        label = np.where(random.random(ROWS) < 0.6, 0.0, label)
    answer = label + random.normal(size=ROWS) * label.std()
    comparison = compare("regression", label, answer)
    assert_equal(comparison["mean_squared_error"], compare_pairs((label - label.mean()) ** 2, (label - answer) ** 2))
    expected = compare_pairs(np.abs(label - np.median(label)), np.abs(label - answer))
    of_mean, actual = comparison["mean_absolute_error_of_mean"], comparison["mean_absolute_error"]
    exact = compare_pairs(np.abs(label - label.mean()), np.abs(label - answer))
    assert (of_mean.value, of_mean.gain) == pytest.approx((exact.value, exact.gain), abs=2e-3 * exact.value)
    assert of_mean.interval == pytest.approx(exact.interval, abs=2e-3 * exact.value)
    # The median is known up to the width of its bin, which is 0.1 % of its value.
    assert (actual.value, actual.gain) == pytest.approx((expected.value, expected.gain), abs=2e-3 * expected.value)
    assert actual.interval == pytest.approx(expected.interval, abs=2e-3 * expected.value)
    assert comparison["root_mean_squared_error"].value == pytest.approx(label.std(), rel=1e-6, abs=1e-6)
    assert comparison["r_squared"].value == 0


@pytest.mark.parametrize("levels", [[0.5], [0.1, 0.5, 0.9], [0.05, 0.2]])
@pytest.mark.parametrize("kind", ["normal", "whole numbers"])
def test_quantile_regression_is_compared_with_the_quantiles_of_the_labels(kind: str, levels: list[float]) -> None:
    random = np.random.default_rng(3)
    label = random.normal(size=ROWS) * 30 + 7
    label = np.round(label / 10) if kind == "whole numbers" else label
    answer = label[:, None] + random.normal(size=(ROWS, len(levels))) * label.std()
    comparison = compare("regression", label, answer, of_loss="quantile_loss", quantiles=levels)

    def losses(predicted: Any) -> Any:
        errors = label[:, None] - predicted
        return np.maximum(np.array(levels) * errors, (np.array(levels) - 1) * errors).mean(axis=1)

    constant = np.quantile(label, levels)
    expected, actual = compare_pairs(losses(constant), losses(answer)), comparison["quantile_loss"]
    assert (actual.value, actual.gain) == pytest.approx((expected.value, expected.gain), abs=2e-3 * expected.value)
    assert actual.interval == pytest.approx(expected.interval, abs=2e-3 * expected.value)
    if len(levels) > 1:
        assert comparison["interval_coverage"].value == SHARE.approx(levels[-1] - levels[0])
        assert comparison["interval_width"].value == pytest.approx(constant[-1] - constant[0], rel=0.02, abs=0.01)
    assert "mean_squared_error" in comparison


@pytest.mark.parametrize(("name", "power"), [("poisson_deviance", 1.0), ("tweedie_deviance_at_1.25", 1.25)])
def test_deviance_is_compared_with_the_deviance_of_the_mean(name: str, power: float) -> None:
    random = np.random.default_rng(3)
    answer = np.exp(random.normal(size=ROWS))
    label = random.poisson(answer)
    comparison = compare("regression", label, answer, of_loss=name)[name]
    constant, model = (deviances(label, prediction, power) for prediction in (np.full(ROWS, label.mean()), answer))
    assert constant.mean() == float64_sum(ROWS).approx(
        metrics.mean_tweedie_deviance(label, np.full(ROWS, label.mean()), power=power)
    )
    assert_equal(comparison, compare_pairs(constant, model))
    assert compare("regression", np.zeros(9), np.ones(9), of_loss=name)[name].value == 0
    assert math.isnan(compare("regression", np.full(9, -1), np.ones(9), of_loss=name)[name].value)
    negative = compare("regression", label, -answer, of_loss=name)[name]
    assert (math.isfinite(negative.value), math.isfinite(negative.gain)) == (True, False)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "quantiles", "deviance"])
def test_weighted_rows_count_as_repeated_rows_and_intervals_use_the_effective_sample_size(task: Any) -> None:
    random = np.random.default_rng(7)
    weights = random.integers(1, 5, 800).astype(float)
    label = random.integers(0, 3, 800) if task == "multiclass" else random.integers(0, 2, 800)
    answer = np.clip(0.5 + (label - 0.5) * 0.4 + random.normal(0, 0.2, 800), 0.01, 0.99)
    loss_options: dict[str, Any] = {}
    if task == "multiclass":
        answer = random.dirichlet([1, 1, 1], 800) + 0.3 * np.eye(3)[label]
        answer /= answer.sum(axis=1, keepdims=True)
    elif task not in ("binary", "multiclass"):
        label = random.poisson(3, 800).astype(float)
        answer = label + random.random(800)
        loss_options = {"of_loss": "poisson_deviance"} if task == "deviance" else {}
        if task == "quantiles":
            answer = answer[:, None] + np.array([-1.0, 1.0])
            loss_options = {"of_loss": "quantile_loss", "quantiles": [0.1, 0.9]}
        task = "regression"
    times = weights.astype(int)
    repeated = compare(task, np.repeat(label, times), np.repeat(answer, times, axis=0), **loss_options)
    weighted = compare(task, label, answer, weights=weights, **loss_options)
    plain = compare(task, label, answer, **loss_options)
    equally_weighted = compare(task, label, answer, weights=np.full(800, 7.0), **loss_options)
    assert weighted.keys() == repeated.keys() == plain.keys()
    shrink = math.sqrt(weights.sum() ** 2 / (weights**2).sum() / weights.sum())
    for name, comparison in weighted.items():
        assert (comparison.value, comparison.gain) == pytest.approx(
            (repeated[name].value, repeated[name].gain), rel=1e-6, abs=1e-7, nan_ok=True
        )
        assert equally_weighted[name].interval == pytest.approx(plain[name].interval, rel=1e-6, abs=1e-7)
        if comparison.interval:
            widths = [comparison.interval[1] - comparison.interval[0] for comparison in (comparison, repeated[name])]
            assert widths[1] / widths[0] == pytest.approx(shrink, rel=0.02, abs=1e-3)


def test_median_of_large_numbers_close_to_each_other_is_unknown() -> None:
    random = np.random.default_rng(3)
    label = 1e6 + random.normal(size=ROWS)
    comparison = compare("regression", label, label + random.normal(size=ROWS))
    assert comparison["mean_squared_error"].value == pytest.approx(label.var(), rel=1e-6, abs=1e-7)
    assert math.isnan(comparison["mean_absolute_error"].value)


@pytest.mark.parametrize(
    ("task", "label", "answer"),
    [
        ("binary", [0, 1, 1], [0.1, 1.5, 0.7]),
        ("multiclass", [0, 1, 1], [[3.0, -1.0], [0.5, 0.5], [0.5, 0.5]]),
        ("multiclass", [0, 1, 1], [[0.9, 0.9], [0.5, 0.5], [0.5, 0.5]]),
    ],
)
def test_predictions_that_are_not_probabilities_are_not_compared(task: Task, label: Any, answer: Any) -> None:
    comparison = compare(task, np.array(label), np.array(answer))
    assert all(math.isnan(metric.value) for metric in comparison.values())


@pytest.mark.parametrize(
    ("task", "label", "answer", "metric"),
    [
        ("multiclass", [0, 1, 1], [[0.5, 0.5], [np.nan, np.nan], [0.5, 0.5]], "crossentropy"),
        ("regression", [0.0, 1.0, 2.0], [0.0, np.nan, 2.0], "mean_squared_error"),
    ],
)
def test_gain_is_nan_if_a_prediction_is_nan(task: Task, label: Any, answer: Any, metric: str) -> None:
    comparison = compare(task, np.array(label), np.array(answer))[metric]
    assert math.isfinite(comparison.value)
    assert math.isnan(comparison.gain)


def test_constant_has_no_loss_if_all_labels_are_equal() -> None:
    labels = np.full(50, 7.0)
    comparison = compare("regression", labels, labels + 1)
    assert (comparison["mean_squared_error"].value, comparison["mean_absolute_error"].value) == (0.0, 0.0)
    binary = compare("binary", np.ones(50), np.full(50, 0.9))
    assert binary["binary_crossentropy"].value == 0.0
    assert math.isnan(binary["auc"].gain)
    classes = compare("multiclass", np.ones(50, np.int64), np.full((50, 2), 0.5))
    assert classes["crossentropy"].value == 0.0
    assert math.isnan(classes["balanced_accuracy"].gain)


def test_certain_and_wrong_prediction_has_a_finite_loss() -> None:
    comparison = compare("binary", np.array([0, 1] * 50), np.array([1.0] + [0.5] * 99))
    assert comparison["binary_crossentropy"].gain == pytest.approx((math.log(2) + math.log(1e-7)) / 100, abs=1e-4)


def test_retrieval_is_compared_with_popularity() -> None:
    random = np.random.default_rng(5)
    labels = (random.random(ROWS) < 0.3).astype(np.int64)
    model_ranks, popularity_ranks = random.integers(0, 30, ROWS), random.integers(0, 60, ROWS)
    comparison = compare("retrieval", labels, np.stack([model_ranks, popularity_ranks], axis=1))
    clicked = labels == 1

    def reciprocal(ranks: Any) -> Any:
        return np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0.0)[clicked]

    def recall(ranks: Any) -> Any:
        return ((ranks > 0) & (ranks <= 10))[clicked].astype(float)

    # Higher is better, so the gain is the value of the model minus the value of popularity.
    for name, measure in (("mrr", reciprocal), ("recall_at_10", recall)):
        model, constant = measure(model_ranks), measure(popularity_ranks)
        expected = compare_pairs(model, constant)
        assert_equal(comparison[name], Compared(constant.mean(), expected.gain, expected.interval))
    assert math.isnan(compare("retrieval", np.zeros(9, int), np.ones((9, 2), int))["mrr"].value)
    assert math.isnan(compare("retrieval", np.ones(9, int), np.full(9, np.nan))["mrr"].value)
