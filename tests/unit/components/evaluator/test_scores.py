"""Areas and ranks of a binary task equal scikit-learn's for every distribution of the predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from sklearn import metrics

from components.evaluator import binned_sums, ordered_bins, scores
from components.evaluator.binned_sums import Counted, Slices
from components.evaluator.calibration import PrecisionOfTop, RecallOfTop, ScoreArea, ScorePrecisionRecallArea
from components.evaluator.intervals import ScoreBins
from tests.support.data.tolerances import float64_sum

ROWS = 4_000
NEAR = float64_sum(4 * ROWS)


def draw_predictions(kind: str, random: Any) -> Any:
    """Draw predictions; most kinds fall into only a few of 10,000 bins of equal width."""
    return {
        "rare": lambda: 10 ** random.uniform(-9, -4, ROWS),
        "narrow": lambda: random.uniform(0.5, 0.50005, ROWS),
        "near 1": lambda: 1 - 10 ** random.uniform(-7, -4, ROWS),
        "tied": lambda: random.integers(0, 9, ROWS) / 8,
        "logits": lambda: random.normal(0, 5, ROWS),
    }[kind]().astype(np.float32)


def draw_rows(kind: str, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return labels, predictions and weights. About a third of the rows with label 0 has weight 0."""
    random = np.random.default_rng(seed)
    predictions = draw_predictions(kind, random)
    rank = np.argsort(np.argsort(predictions)) / ROWS
    labels = (random.random(ROWS) < 0.3 * rank**2).astype(float)
    return labels, predictions, np.where(labels == 0, random.integers(0, 3, ROWS) * 10.0, 1.0)


def value(metric: Any, labels: Any, predictions: Any, weights: Any = None, order: Any = None) -> float:
    """Return the value of a metric, computed from five parts of the rows."""
    *counted, derived = metric.computations(example_weighted=weights is not None)
    results: dict[Any, Any] = {}
    parts = np.array_split(np.arange(len(labels)) if order is None else order, 5)
    for computation in counted:
        tables = []
        for rows in parts:
            slices = Slices([()], np.arange(len(rows)), np.zeros(len(rows), np.int64))
            powered_weights = None
            if weights is not None:
                powered_weights = np.where(weights[rows] > 0, weights[rows] ** float(computation.combiner.power), 0)
            binned = computation.combiner.bins(labels[rows], predictions[rows])
            tables.append(
                Counted(
                    [()], [binned_sums.count(binned, slices, powered_weights, ordered=computation.combiner.ordered)]
                )
            )
        _, [table] = binned_sums.merge([Counted(*binned_sums.merge(tables[:2])), *tables[2:]])
        results.update(computation.combiner.result(table.select_slice(0)))
    [result] = derived.result(results).values()
    return float(result)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["rare", "narrow", "near 1", "tied", "logits"])
def test_areas_are_exact(kind: str, weighted: bool) -> None:
    labels, predictions, weights = draw_rows(kind)
    row_weights = weights if weighted else None
    area = metrics.roc_auc_score(labels, predictions, sample_weight=row_weights)
    assert value(ScoreArea("auc"), labels, predictions, row_weights) == NEAR.approx(area)
    precision = metrics.average_precision_score(labels, predictions, sample_weight=row_weights)
    assert value(ScorePrecisionRecallArea("x"), labels, predictions, row_weights) == NEAR.approx(precision)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["rare", "narrow", "near 1"])
def test_top_rows_are_counted_as_rows(kind: str, weighted: bool) -> None:
    labels, predictions, weights = draw_rows(kind, 1)
    weights = weights if weighted else np.ones(ROWS)
    # Rows of weight 0 are ignored. Tied predictions count by a share, so choose a count that does not divide a tie.
    counted = np.flatnonzero(weights > 0)
    order = counted[np.argsort(-predictions[counted], kind="stable")]
    count = next(n for n in range(100, ROWS) if predictions[order[n - 1]] > predictions[order[n]])
    top = order[:count]
    hits = (weights * labels)[top].sum()
    row_weights = weights if weighted else None
    precision = value(PrecisionOfTop("x", count), labels, predictions, row_weights)
    assert precision == NEAR.approx(hits / weights[top].sum())
    recall = value(RecallOfTop("x", count), labels, predictions, row_weights)
    assert recall == NEAR.approx(hits / (weights * labels).sum())


def test_equal_predictions_count_by_a_share() -> None:
    labels, predictions = np.array([0.0, 1, 1, 1, 0]), np.array([0.1, 0.5, 0.5, 0.9, 0.5])
    # The top 2 rows are the row with 0.9 and one of the three rows with 0.5, which count a third each.
    assert value(PrecisionOfTop("x", 2), labels, predictions) == NEAR.approx((1 + 2 / 3) / 2)
    assert value(RecallOfTop("x", 2), labels, predictions) == NEAR.approx((1 + 2 / 3) / 3)
    assert value(PrecisionOfTop("x", 9), labels, predictions) == NEAR.approx(3 / 5)


@pytest.mark.parametrize("kind", ["rare", "narrow", "logits"])
def test_binned_predictions_stay_within_the_stated_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_bins, "MOST", 200)
    monkeypatch.setattr(ordered_bins, "FEWEST", 1)
    collected: list[ScoreBins] = []
    monkeypatch.setattr(scores, "roc_area", lambda bins: (collected.append(bins), 0.5)[1])
    labels, predictions, weights = draw_rows(kind, 2)
    random = np.random.default_rng(5)
    for order in (np.arange(ROWS), random.permutation(ROWS)):
        value(ScoreArea("auc"), labels, predictions, weights, order)
    monkeypatch.undo()
    first, second = collected
    # The bins do not depend on the order of the rows.
    np.testing.assert_array_equal(first.bins, second.bins)
    assert 50 < len(first.bins) <= 200
    area, precision = scores.error_bounds(first)
    exact = metrics.roc_auc_score(labels, predictions, sample_weight=weights)
    assert 0 < abs(scores.roc_area(first) - exact) <= area < 0.02
    exact = metrics.average_precision_score(labels, predictions, sample_weight=weights)
    assert 0 < abs(scores.average_precision(first) - exact) <= precision < 0.1
    low, high = ordered_bins.edges_of(first.bins)
    means = first.predictions / first.rows
    assert ((low <= means + 1e-12) & (means <= high + 1e-12)).all()


def test_slices_share_the_limit_of_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_bins, "MOST", 500)
    monkeypatch.setattr(ordered_bins, "TOTAL", 600)
    monkeypatch.setattr(ordered_bins, "FEWEST", 10)
    numbers = np.random.default_rng(3).random(1_000)
    slices = Slices([("a",), ("b",)], np.arange(1_000), (np.arange(1_000) >= 900).astype(np.int64))  # type: ignore[list-item]
    table = binned_sums.count((ordered_bins.bins_of(numbers), np.ones((1_000, 1))), slices, ordered=True)
    _, [merged] = binned_sums.merge([Counted(slices.keys, [table])])
    sizes = np.bincount(merged.slices)
    assert sizes[0] <= 300
    # The small slice keeps all distinct numbers.
    assert sizes[1] == 100
    assert merged.rows.sum() == 1_000


def test_area_is_the_same_if_rows_are_added_one_by_one() -> None:
    labels, predictions, _ = draw_rows("rare", 4)
    *counted, derived = ScoreArea("auc").computations()
    combiner, parts = counted[0].combiner, [counted[0].combiner.create_accumulator() for _ in range(3)]
    for row in range(300):
        element = tfma.metrics.StandardMetricInputs(
            label=labels[row : row + 1], prediction=predictions[row : row + 1], example_weight=np.array([1.0])
        )
        parts[row % 3] = combiner.add_input(parts[row % 3], element)
    results = combiner.extract_output(combiner.merge_accumulators(parts))
    [area] = derived.result(results).values()
    assert area == NEAR.approx(metrics.roc_auc_score(labels[:300], predictions[:300]))
