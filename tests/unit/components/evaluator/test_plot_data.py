"""Curves and matrices computed from buckets, and the file plots.json."""

from __future__ import annotations

import pytest
from tolerances import float64_sum

from components.evaluator import plot_data
from components.evaluator.plot_data import Bucket, Confusion, ModelPlots, Plots

NEAR = float64_sum(4)
"""Tolerance of sums of four buckets."""
BUCKETS = (
    Bucket(0.0, 0.1, 50.0, 5.0, 2.5),
    Bucket(0.1, 0.5, 20.0, 5.0, 6.0),
    Bucket(0.5, 0.6, 10.0, 5.0, 5.5),
    Bucket(0.9, 1.0, 20.0, 15.0, 19.0),
)


def test_roc_curve() -> None:
    expected = [(0, 0), (5 / 70, 0.5), (10 / 70, 20 / 30), (25 / 70, 25 / 30), (1, 1)]
    NEAR.assert_close(plot_data.roc(BUCKETS), expected)


def test_precision_recall_curve() -> None:
    expected = [(0.5, 0.75), (20 / 30, 20 / 30), (25 / 30, 0.5), (1, 0.3)]
    NEAR.assert_close(plot_data.precision_recall(BUCKETS), expected)


@pytest.mark.parametrize("labels", [0.0, 10.0])
def test_equal_labels_have_no_roc_curve(labels: float) -> None:
    alike = [Bucket(0.0, 0.1, 10.0, labels, 1.0)]
    assert plot_data.roc(alike) == []
    assert bool(plot_data.precision_recall(alike)) is bool(labels)


def test_area_by_trapezoids() -> None:
    assert plot_data.area([(0.0, 0.0), (0.5, 1.0), (1.0, 1.0)]) == 0.75
    assert plot_data.area([]) == 0.0


def test_groups_have_about_equal_numbers_of_rows() -> None:
    groups = plot_data.calibration(BUCKETS, 2)
    assert [(each.low, each.high, each.rows) for each in groups] == [(0.0, 0.1, 50.0), (0.1, 1.0, 50.0)]
    assert sum(each.labels for each in plot_data.calibration(BUCKETS, 10)) == 30
    assert plot_data.calibration([], 10) == []


def test_confusion_matrix_at_one_half() -> None:
    assert plot_data.at_threshold(BUCKETS).counts == ((60.0, 10.0), (10.0, 20.0))


def test_quantiles() -> None:
    assert plot_data.quantile(BUCKETS, 0.25) == NEAR.approx(0.05)
    assert plot_data.quantile(BUCKETS, 0.6) == NEAR.approx(0.3)
    assert plot_data.quantile(BUCKETS, 1.0) == 1.0


def test_written_file_is_read() -> None:
    matrix = ModelPlots(confusion=Confusion((0, 3), 2, ((1.0, 0.0, 2.0), (0.0, 4.0, 0.0), (0.0, 0.0, 1.0))))
    for plots in (
        Plots("multiclass", matrix, None),
        Plots("regression", ModelPlots(BUCKETS, BUCKETS), ModelPlots(BUCKETS)),
    ):
        assert Plots.from_json(plots.to_json()) == plots
