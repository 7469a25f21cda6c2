"""The metrics of a survival task equal sums over all rows and pairs of rows, and intervals those of a bootstrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate

from components.evaluator import ordered_bins
from components.evaluator.plan import EvaluationPlan
from tests.support.data import columnar_results
from tests.support.data.columnar_results import bounds_of, value_of

Array = npt.NDArray[Any]
ROWS, ENDS = 1200, np.array([3.0, 8.0, 15.0, 31.0, 60.0])
RANDOM = np.random.default_rng(12)
SCORES = RANDOM.normal(size=ROWS)
STARTS = np.append(0.0, ENDS[:-1])


def predict(scores: Array) -> Array:
    """Return the expected time, the cumulative hazards and the times, [rows, 11]."""
    rates = np.exp(scores)[:, np.newaxis] * np.array([0.02, 0.05, 0.03, 0.04, 0.01])
    cumulative = np.cumsum(rates * (ENDS - STARTS), axis=1)
    expected = np.round(60 / (1 + np.exp(scores)), 1)
    return np.column_stack([expected, cumulative, np.tile(ENDS, (len(scores), 1))]).astype(np.float32)


def draw_labels(scores: Array, random: np.random.Generator) -> Array:
    """Return whole days, so that many times are equal, with about a third of the rows censored."""
    waits, ends = random.exponential(25 / np.exp(0.7 * scores)), random.uniform(0, 90, len(scores))
    return np.column_stack([np.ceil(np.minimum(waits, ends)), waits <= ends]).astype(np.float32)


PREDICTIONS = predict(SCORES)
LABELS = draw_labels(SCORES, RANDOM)
WEIGHTS = RANDOM.uniform(0, 3, ROWS)


def compute_losses(labels: Array, predictions: Array) -> Array:
    losses = []
    for (time, happened), row in zip(labels, predictions.astype(float), strict=True):
        steps = np.diff(row[1:6], prepend=0.0) / (ENDS - STARTS)
        interval = next((at for at, end in enumerate(ENDS) if time <= end), 4)
        cumulative = sum(
            rate * (min(time, end if at < 4 else np.inf) - start)
            for at, (rate, start, end) in enumerate(zip(steps, STARTS, ENDS, strict=True))
            if time > start
        )
        losses.append(cumulative - (np.log(steps[interval]) if happened else 0.0))
    return np.array(losses)


def compute_likelihood(labels: Array, predictions: Array, weights: Array) -> float:
    return float(np.average(compute_losses(labels, predictions), weights=weights))


def compute_concordance(labels: Array, predictions: Array, weights: Array) -> float:
    times, happened, expected = *labels.T, predictions[:, 0]
    is_later = (times[:, None] < times) | ((times[:, None] == times) & (happened == 0))
    pairs = is_later * happened[:, None] * weights[:, None] * weights
    order = (expected[:, None] < expected) + (expected[:, None] == expected) / 2
    return float((pairs * order).sum() / pairs.sum())


def estimate_survival(times: Array, happened: Array, weights: Array, at: float, censoring: bool = False) -> float:
    """Return Kaplan and Meier's estimate at a time, of the event or of censoring."""
    value = 1.0
    for time in np.unique(times[times <= at]):
        events, censored = (float(weights[(times == time) & (happened == kind)].sum()) for kind in (1, 0))
        at_risk = float(weights[times >= time].sum())
        # Events at a time precede the rows that are censored at this time.
        value *= 1 - (censored / (at_risk - events) if censored else 0) if censoring else 1 - events / at_risk
    return value


def compute_brier(labels: Array, survival: Array, weights: Array) -> float:
    """Return the integrated Brier score of survivals at ENDS[:4], [rows, 4]."""
    times, happened = labels.T
    scores = []
    for end, predicted in zip(ENDS[:4], survival.T, strict=True):
        until = estimate_survival(times, happened, weights, end, censoring=True)
        total = 0.0
        for time, event, probability, weight in zip(times, happened, predicted, weights, strict=True):
            if time > end:
                total += weight * (1 - probability) ** 2 / until
            elif event:
                before = estimate_survival(times, happened, weights, time - 0.5, censoring=True)
                total += weight * probability**2 / before
        scores.append(total / weights.sum())
    return float(integrate.trapezoid(scores, ENDS[:4]) / (ENDS[3] - ENDS[0]))


EXPECTED = {
    "negative_log_likelihood": compute_likelihood,
    "concordance": compute_concordance,
    "integrated_brier_score": lambda y, p, w: compute_brier(y, np.exp(-p[:, 1:5].astype(float)), w),
}


def evaluate(labels: Array, predictions: Array, weights: Array | None = None, parts: int = 1) -> dict[str, Any]:
    """Return the results by name, from the merged sums of some parts of the rows."""
    plan = EvaluationPlan.model_validate(
        {
            "evaluation": {"thresholds": {"concordance": {"min": 0.5}}},
            "task": "survival",
            "prediction_key": "prediction",
        }
        | {"labels": [{"text": "days", "event": "died"}], "weight": None if weights is None else "w"}
    )
    return columnar_results.evaluate(
        plan, labels, lambda output: predictions if output else predictions[:, 0], weights, parts
    )


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("parts", [1, 7])
def test_metrics_are_sums_over_rows_and_pairs(weights: Array | None, parts: int) -> None:
    results, given = evaluate(LABELS, PREDICTIONS, weights, parts), np.ones(ROWS) if weights is None else weights
    for name, function in EXPECTED.items():
        expected = function(LABELS, PREDICTIONS, given)
        np.testing.assert_allclose(value_of(results[name]), expected, atol=2e-5, rtol=1e-5, err_msg=name)


@pytest.mark.extended
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_intervals_are_those_of_a_bootstrap(weights: Array | None) -> None:
    results, random = evaluate(LABELS, PREDICTIONS, weights), np.random.default_rng(1)
    draws = [random.integers(0, ROWS, ROWS) for _ in range(100)]
    given = np.ones(ROWS) if weights is None else weights
    for name in ("negative_log_likelihood", "concordance"):
        if name == "concordance":
            drawn = [compute_concordance(LABELS[rows], PREDICTIONS[rows], given[rows]) for rows in draws]
        else:
            losses = compute_losses(LABELS, PREDICTIONS)
            drawn = [float(np.average(losses[rows], weights=given[rows])) for rows in draws]
        low, high = bounds_of(results[name])
        assert low < value_of(results[name]) < high
        np.testing.assert_allclose((high - low) / 2, 1.96 * np.std(drawn), rtol=0.3, atol=0, err_msg=name)


def test_constant_has_the_hazards_of_all_rows() -> None:
    results, (times, happened) = evaluate(LABELS, PREDICTIONS), LABELS.T.astype(float)
    loss = 0.0
    for at, start in enumerate(STARTS):
        end = ENDS[at] if at < 4 else np.inf
        events = float(happened[(times > start) & (times <= end)].sum())
        exposure = float(np.clip(times - start, 0, end - start).sum())
        loss += events - events * np.log(events / exposure)
    np.testing.assert_allclose(value_of(results["constant negative_log_likelihood"]), loss / ROWS, atol=1e-6, rtol=1e-6)
    gain = value_of(results["gain over the constant negative_log_likelihood"])
    expected = loss / ROWS - compute_likelihood(LABELS, PREDICTIONS, np.ones(ROWS))
    np.testing.assert_allclose(gain, expected, atol=1e-5)
    curve = [estimate_survival(times, happened, np.ones(ROWS), end) for end in ENDS[:4]]
    brier = compute_brier(LABELS, np.tile(curve, (ROWS, 1)), np.ones(ROWS))
    np.testing.assert_allclose(value_of(results["constant integrated_brier_score"]), brier, atol=1e-6)
    assert value_of(results["constant concordance"]) == 0.5
    low, high = bounds_of(results["gain over the constant concordance"])
    assert low < value_of(results["concordance"]) - 0.5 < high


def test_many_distinct_pairs_share_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = value_of(evaluate(LABELS, PREDICTIONS)["concordance"])
    for name, most in (("MOST", 200), ("FEWEST", 200), ("TOTAL", 200)):
        monkeypatch.setattr(ordered_bins, name, most)
    coarse = evaluate(LABELS, PREDICTIONS, parts=3)
    np.testing.assert_allclose(value_of(coarse["concordance"]), exact, atol=0.02)


def test_pairs_of_which_neither_is_known_to_be_earlier_do_not_count() -> None:
    censored = LABELS * np.array([1.0, 0.0], np.float32)
    results = evaluate(censored, PREDICTIONS)
    assert np.isnan(value_of(results["concordance"]))
    assert np.isfinite(value_of(results["negative_log_likelihood"]))


def test_times_after_all_rows_are_censored_are_left_out() -> None:
    labels = np.column_stack([np.minimum(LABELS[:, 0], 10), LABELS[:, 1] * (LABELS[:, 0] < 10)]).astype(np.float32)
    assert np.isfinite(value_of(evaluate(labels, PREDICTIONS)["integrated_brier_score"]))
