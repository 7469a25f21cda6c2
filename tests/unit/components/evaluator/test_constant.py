"""The best constant prediction, compared with a model: the same as from all rows, whatever parts were summed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics
from tolerances import float64_sum

from components.base.config_section import Task
from components.evaluator import binned_sums
from components.evaluator.binned_sums import Counted, Slices
from components.evaluator.binning import Sums
from components.evaluator.constant import ConstantComparison
from components.evaluator.constant.paired import Compared
from components.evaluator.error_metrics import deviances

ROWS = 3_000
SHARE = float64_sum(3)
"""Tolerance of shares of the rows, from exact counts."""


def compared(
    task: Task, labels: Any, predictions: Any, parts: int = 3, weights: Any = None, **of_loss: Any
) -> dict[str, Compared]:
    """Return what the columnar executor computes of rows in several parts."""
    made = ConstantComparison("constant", task, **of_loss)
    weighted = weights is not None
    computations = made.computations(model_names=[""], output_names=[""], example_weighted=weighted)
    combined = [each for each in computations if hasattr(each, "combiner")]
    results: dict[Any, Any] = {}
    for each in combined:
        ours = each.combiner
        # The prediction of a model of quantiles is one of them.
        of_output = predictions[:, 0] if of_loss.get("quantiles") and not ours.output else predictions
        own_weights = None if weights is None else weights**ours.power
        results.update(ours.result(_sums(ours, labels, of_output, parts, own_weights)))
    derived, interval = (each for each in computations if not hasattr(each, "combiner"))
    values, bounds = derived.result(results), interval.result(results)
    found: dict[str, Compared] = {}
    for key, value in values.items():
        if key.name.startswith("constant "):
            metric = key.name.removeprefix("constant ")
            gain = next((other for other in values if other.name == f"gain over the constant {metric}"), None)
            bounded = None if gain is None else bounds[gain]
            ends = (bounded.lower_bound.value, bounded.upper_bound.value) if hasattr(bounded, "lower_bound") else None
            found[metric] = Compared(value, math.nan if gain is None else values[gain], ends)
    return found


def _sums(metric: Any, labels: Any, predictions: Any, parts: int, weights: Any) -> Sums:
    counted = []
    for rows in np.array_split(np.arange(len(labels)), parts):
        slices = Slices([()], np.arange(len(rows)), np.zeros(len(rows), np.int64))
        own, binned = None if weights is None else weights[rows], metric.bins(labels[rows], predictions[rows])
        counted.append(Counted([()], [binned_sums.count(binned, slices, own)]))
    _, [table] = binned_sums.merge(counted)
    return table.select_slice(0)


def paired(constant: Any, model: Any) -> Compared:
    """Return the comparison, from the losses of each row."""
    difference = constant - model
    half = stats.t.ppf(0.975, len(difference) - 1) * difference.std(ddof=1) / math.sqrt(len(difference))
    gain = difference.mean()
    return Compared(constant.mean(), gain, (gain - half, gain + half))


def assert_equal(actual: Compared, expected: Compared) -> None:
    # The gain is a difference of two losses, whose size its rounding has.
    room = 1e-6 * abs(expected.value)
    assert (actual.value, actual.gain) == pytest.approx((expected.value, expected.gain), rel=1e-6, abs=room)
    assert actual.interval == pytest.approx(expected.interval, rel=1e-6, abs=room)


def test_prior_of_a_binary_task() -> None:
    random = np.random.default_rng(1)
    label = (random.random(ROWS) < 0.2).astype(np.int64)
    answer = np.clip(0.2 + 0.3 * (label - 0.2) + random.normal(0, 0.1, ROWS), 0.01, 0.99).astype(np.float32)
    found, prior, own = compared("binary", label, answer), label.mean(), answer.astype(float)

    def losses(probability: Any) -> Any:
        return -label * np.log(probability) - (1 - label) * np.log(1 - probability)

    assert_equal(found["binary_crossentropy"], paired(losses(prior), losses(own)))
    assert_equal(found["brier_score"], paired((label - prior) ** 2, (label - own) ** 2))
    assert found["binary_accuracy"].value == SHARE.approx(1 - prior)
    assert found["auc_precision_recall"].value == SHARE.approx(prior)
    # Mann and Whitney's variance without any relation of label and prediction.
    area, positives = metrics.roc_auc_score(label, own), label.sum()
    half = 1.96 * math.sqrt((ROWS + 1) / (12 * positives * (ROWS - positives)))
    assert found["auc"].value == 0.5
    assert found["auc"].gain == pytest.approx(area - 0.5, abs=1e-3)
    assert found["auc"].interval == pytest.approx((area - 0.5 - half, area - 0.5 + half), abs=1e-3)


def test_shares_of_classes() -> None:
    random = np.random.default_rng(2)
    # -1 and 3 are classes that the model does not have.
    label = random.choice([-1, 0, 1, 2, 3], ROWS, p=[0.02, 0.5, 0.3, 0.15, 0.03])
    shares = random.dirichlet([1, 1, 1], ROWS)
    shares[np.arange(ROWS), label.clip(0, 2)] += 0.5
    shares /= shares.sum(axis=1, keepdims=True)
    found, known = compared("multiclass", label, shares), (label >= 0) & (label < 3)

    def losses(probabilities: Any) -> Any:
        return np.where(known, -np.log(probabilities[np.arange(ROWS), label.clip(0, 2)]), -np.log(1e-7))

    counts = np.bincount(label[known])
    constant = np.tile(counts / counts.sum(), (ROWS, 1))
    assert_equal(found["crossentropy"], paired(losses(constant), losses(shares)))
    assert found["accuracy"].value == SHARE.approx(counts.max() / ROWS)
    hits = shares.argmax(axis=1) == label
    recalls = [hits[label == each].mean() for each in range(3)]
    assert found["balanced_accuracy"].value == SHARE.approx(1 / 3)
    assert found["balanced_accuracy"].gain == SHARE.approx(np.mean(recalls) - 1 / 3)
    half = 1.96 * math.sqrt(sum(each * (1 - each) / rows for each, rows in zip(recalls, counts, strict=True))) / 3
    gain = found["balanced_accuracy"].gain
    assert found["balanced_accuracy"].interval == pytest.approx((gain - half, gain + half), rel=0.02, abs=1e-3)


@pytest.mark.parametrize("offset", [0.0, -50.0, 1000.0])
@pytest.mark.parametrize("kind", ["normal", "whole numbers", "mostly zero"])
def test_mean_and_median_of_a_regression(kind: str, offset: float) -> None:
    random = np.random.default_rng(3)
    label = random.normal(size=ROWS) * 30 + offset
    if kind == "whole numbers":
        label = np.round(label / 10)
    elif kind == "mostly zero":
        label = np.where(random.random(ROWS) < 0.6, 0.0, label)
    answer = label + random.normal(size=ROWS) * label.std()
    found = compared("regression", label, answer)
    assert_equal(found["mean_squared_error"], paired((label - label.mean()) ** 2, (label - answer) ** 2))
    expected = paired(np.abs(label - np.median(label)), np.abs(label - answer))
    actual = found["mean_absolute_error"]
    # The median's bin has a relative width of 0.001.
    assert (actual.value, actual.gain) == pytest.approx((expected.value, expected.gain), abs=2e-3 * expected.value)
    assert actual.interval == pytest.approx(expected.interval, abs=2e-3 * expected.value)
    assert found["root_mean_squared_error"].value == pytest.approx(label.std(), rel=1e-6, abs=1e-6)
    assert found["r_squared"].value == 0


@pytest.mark.parametrize("levels", [[0.5], [0.1, 0.5, 0.9], [0.05, 0.2]])
@pytest.mark.parametrize("kind", ["normal", "whole numbers"])
def test_quantiles_of_a_regression(kind: str, levels: list[float]) -> None:
    random = np.random.default_rng(3)
    label = random.normal(size=ROWS) * 30 + 7
    label = np.round(label / 10) if kind == "whole numbers" else label
    answer = label[:, None] + random.normal(size=(ROWS, len(levels))) * label.std()
    found = compared("regression", label, answer, of_loss="quantile_loss", quantiles=levels)

    def losses(predicted: Any) -> Any:
        errors = label[:, None] - predicted
        return np.maximum(np.array(levels) * errors, (np.array(levels) - 1) * errors).mean(axis=1)

    own = np.quantile(label, levels)
    expected, actual = paired(losses(own), losses(answer)), found["quantile_loss"]
    assert (actual.value, actual.gain) == pytest.approx((expected.value, expected.gain), abs=2e-3 * expected.value)
    assert actual.interval == pytest.approx(expected.interval, abs=2e-3 * expected.value)
    if len(levels) > 1:
        assert found["interval_coverage"].value == SHARE.approx(levels[-1] - levels[0])
        assert found["interval_width"].value == pytest.approx(own[-1] - own[0], rel=0.02, abs=0.01)
    assert "mean_squared_error" in found


@pytest.mark.parametrize(("name", "power"), [("poisson_deviance", 1.0), ("tweedie_deviance_at_1.25", 1.25)])
def test_deviance_of_the_mean(name: str, power: float) -> None:
    random = np.random.default_rng(3)
    answer = np.exp(random.normal(size=ROWS))
    label = random.poisson(answer)
    found = compared("regression", label, answer, of_loss=name)[name]
    constant, model = (deviances(label, each, power) for each in (np.full(ROWS, label.mean()), answer))
    assert constant.mean() == float64_sum(ROWS).approx(
        metrics.mean_tweedie_deviance(label, np.full(ROWS, label.mean()), power=power)
    )
    assert_equal(found, paired(constant, model))
    assert compared("regression", np.zeros(9), np.ones(9), of_loss=name)[name].value == 0
    assert math.isnan(compared("regression", np.full(9, -1), np.ones(9), of_loss=name)[name].value)
    negative = compared("regression", label, -answer, of_loss=name)[name]
    assert (math.isfinite(negative.value), math.isfinite(negative.gain)) == (True, False)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "quantiles", "deviance"])
def test_weighted_rows_count_as_repeated_ones_with_the_interval_of_the_effective_sample_size(task: Any) -> None:
    random = np.random.default_rng(7)
    weights = random.integers(1, 5, 800).astype(float)
    label = random.integers(0, 3, 800) if task == "multiclass" else random.integers(0, 2, 800)
    answer = np.clip(0.5 + (label - 0.5) * 0.4 + random.normal(0, 0.2, 800), 0.01, 0.99)
    of_loss: dict[str, Any] = {}
    if task == "multiclass":
        answer = random.dirichlet([1, 1, 1], 800) + 0.3 * np.eye(3)[label]
        answer /= answer.sum(axis=1, keepdims=True)
    elif task not in ("binary", "multiclass"):
        label = random.poisson(3, 800).astype(float)
        answer = label + random.random(800)
        of_loss = {"of_loss": "poisson_deviance"} if task == "deviance" else {}
        if task == "quantiles":
            answer = answer[:, None] + np.array([-1.0, 1.0])
            of_loss = {"of_loss": "quantile_loss", "quantiles": [0.1, 0.9]}
        task = "regression"
    times = weights.astype(int)
    repeated = compared(task, np.repeat(label, times), np.repeat(answer, times, axis=0), **of_loss)
    found = compared(task, label, answer, weights=weights, **of_loss)
    plain = compared(task, label, answer, **of_loss)
    alike = compared(task, label, answer, weights=np.full(800, 7.0), **of_loss)
    assert found.keys() == repeated.keys() == plain.keys()
    shrink = math.sqrt(weights.sum() ** 2 / (weights**2).sum() / weights.sum())
    for name, each in found.items():
        assert (each.value, each.gain) == pytest.approx(
            (repeated[name].value, repeated[name].gain), rel=1e-6, abs=1e-7, nan_ok=True
        )
        assert alike[name].interval == pytest.approx(plain[name].interval, rel=1e-6, abs=1e-7)
        if each.interval:
            widths = [each.interval[1] - each.interval[0] for each in (each, repeated[name])]
            assert widths[1] / widths[0] == pytest.approx(shrink, rel=0.02, abs=1e-3)


def test_median_among_large_numbers_close_to_each_other_is_not_known() -> None:
    random = np.random.default_rng(3)
    label = 1e6 + random.normal(size=ROWS)
    found = compared("regression", label, label + random.normal(size=ROWS))
    assert found["mean_squared_error"].value == pytest.approx(label.var(), rel=1e-6, abs=1e-7)
    assert math.isnan(found["mean_absolute_error"].value)


@pytest.mark.parametrize(
    ("task", "label", "answer"),
    [
        ("binary", [0, 1, 1], [0.1, 1.5, 0.7]),
        ("multiclass", [0, 1, 1], [[3.0, -1.0], [0.5, 0.5], [0.5, 0.5]]),
        ("multiclass", [0, 1, 1], [[0.9, 0.9], [0.5, 0.5], [0.5, 0.5]]),
    ],
)
def test_predictions_that_are_no_probabilities_are_not_compared(task: Task, label: Any, answer: Any) -> None:
    found = compared(task, np.array(label), np.array(answer))
    assert all(math.isnan(each.value) for each in found.values())


@pytest.mark.parametrize(
    ("task", "label", "answer", "metric"),
    [
        ("multiclass", [0, 1, 1], [[0.5, 0.5], [np.nan, np.nan], [0.5, 0.5]], "crossentropy"),
        ("regression", [0.0, 1.0, 2.0], [0.0, np.nan, 2.0], "mean_squared_error"),
    ],
)
def test_prediction_that_is_no_number_gives_no_gain(task: Task, label: Any, answer: Any, metric: str) -> None:
    found = compared(task, np.array(label), np.array(answer))[metric]
    assert math.isfinite(found.value)
    assert math.isnan(found.gain)


def test_labels_that_are_all_alike() -> None:
    alike = np.full(50, 7.0)
    found = compared("regression", alike, alike + 1)
    assert (found["mean_squared_error"].value, found["mean_absolute_error"].value) == (0.0, 0.0)
    binary = compared("binary", np.ones(50), np.full(50, 0.9))
    assert binary["binary_crossentropy"].value == 0.0
    assert math.isnan(binary["auc"].gain)
    classes = compared("multiclass", np.ones(50, np.int64), np.full((50, 2), 0.5))
    assert classes["crossentropy"].value == 0.0
    assert math.isnan(classes["balanced_accuracy"].gain)


def test_certain_and_wrong_prediction_has_a_finite_loss() -> None:
    found = compared("binary", np.array([0, 1] * 50), np.array([1.0] + [0.5] * 99))
    assert found["binary_crossentropy"].gain == pytest.approx((math.log(2) + math.log(1e-7)) / 100, abs=1e-4)


def test_popularity_of_a_retrieval() -> None:
    random = np.random.default_rng(5)
    labels = (random.random(ROWS) < 0.3).astype(np.int64)
    own, popular = random.integers(0, 30, ROWS), random.integers(0, 60, ROWS)
    found = compared("retrieval", labels, np.stack([own, popular], axis=1))
    clicked = labels == 1

    def reciprocal(ranks: Any) -> Any:
        return np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0.0)[clicked]

    def recall(ranks: Any) -> Any:
        return ((ranks > 0) & (ranks <= 10))[clicked].astype(float)

    # Higher is better: the gain is the model's value minus that of popularity.
    for name, measure in (("mrr", reciprocal), ("recall_at_10", recall)):
        model, constant = measure(own), measure(popular)
        expected = paired(model, constant)
        assert_equal(found[name], Compared(constant.mean(), expected.gain, expected.interval))
    assert math.isnan(compared("retrieval", np.zeros(9, int), np.ones((9, 2), int))["mrr"].value)
    assert math.isnan(compared("retrieval", np.ones(9, int), np.full(9, np.nan))["mrr"].value)
