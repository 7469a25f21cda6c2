"""Curves and confusion matrices are computed from buckets and stored in plots.json."""

from __future__ import annotations

import pytest

from components.evaluator import plot_data
from components.evaluator.plot_data import Bucket, Confusion, ModelPlots, Plots
from components.evaluator.verdict import MissedClasses
from tests.support.data.tolerances import float64_sum

NEAR = float64_sum(4)
"""Tolerance of sums over four buckets."""
BUCKETS = (
    Bucket(0.0, 0.1, 50.0, 5.0, 2.5),
    Bucket(0.1, 0.5, 20.0, 5.0, 6.0),
    Bucket(0.5, 0.6, 10.0, 5.0, 5.5),
    Bucket(0.9, 1.0, 20.0, 15.0, 19.0),
)


def test_roc_curve_is_computed_from_buckets() -> None:
    expected = [(0, 0), (5 / 70, 0.5), (10 / 70, 20 / 30), (25 / 70, 25 / 30), (1, 1)]
    NEAR.assert_close(plot_data.roc(BUCKETS), expected)


def test_precision_recall_curve_is_computed_from_buckets() -> None:
    expected = [(0.5, 0.75), (20 / 30, 20 / 30), (25 / 30, 0.5), (1, 0.3)]
    NEAR.assert_close(plot_data.precision_recall(BUCKETS), expected)


@pytest.mark.parametrize("labels", [0.0, 10.0])
def test_roc_curve_is_empty_if_all_labels_are_equal(labels: float) -> None:
    alike = [Bucket(0.0, 0.1, 10.0, labels, 1.0)]
    assert plot_data.roc(alike) == []
    assert bool(plot_data.precision_recall(alike)) is bool(labels)


def test_area_is_computed_by_the_trapezoidal_rule() -> None:
    assert plot_data.area([(0.0, 0.0), (0.5, 1.0), (1.0, 1.0)]) == 0.75
    assert plot_data.area([]) == 0.0


def test_calibration_groups_have_about_equal_numbers_of_rows() -> None:
    groups = plot_data.calibration(BUCKETS, 2)
    assert [(group.low, group.high, group.rows) for group in groups] == [(0.0, 0.1, 50.0), (0.1, 1.0, 50.0)]
    assert sum(group.labels for group in plot_data.calibration(BUCKETS, 10)) == 30
    assert plot_data.calibration([], 10) == []


def test_confusion_matrix_uses_the_threshold_one_half() -> None:
    assert plot_data.at_threshold(BUCKETS).counts == ((60.0, 10.0), (10.0, 20.0))


def test_quantiles_are_interpolated_within_buckets() -> None:
    assert plot_data.quantile(BUCKETS, 0.25) == NEAR.approx(0.05)
    assert plot_data.quantile(BUCKETS, 0.6) == NEAR.approx(0.3)
    assert plot_data.quantile(BUCKETS, 1.0) == 1.0


def test_written_plots_are_read_back() -> None:
    matrix = ModelPlots(confusion=Confusion((0, 3), 2, ((1.0, 0.0, 2.0), (0.0, 4.0, 0.0), (0.0, 0.0, 1.0))))
    for plots in (
        Plots("multiclass", matrix, None),
        Plots("regression", ModelPlots(BUCKETS, BUCKETS), ModelPlots(BUCKETS)),
    ):
        assert Plots.from_json(plots.to_json()) == plots


def test_missed_classes_have_rows_and_none_is_recognized() -> None:
    confusion = Confusion((-1, 0, 2, 5), 3, ((0, 4, 0, 0, 0), (0, 9, 0, 1, 0), (0, 2, 0, 5, 0), (0, 0, 0, 0, 0)))
    plots = Plots("multiclass", ModelPlots(confusion=confusion), None)
    missed = plot_data.find_missed_classes(plots, ["cat", "cow", "dog"])
    assert missed is not None
    assert (missed.rows, str(missed)) == ({"dog": 7}, "the model never recognizes dog (7 rows): recall 0 %")


@pytest.mark.parametrize(
    ("probability", "expected"),
    [(0.25, "the model never recognizes 1 (3 rows): recall 0 % at probability 0.5"), (0.75, None)],
)
def test_label_of_a_binary_task_is_missed_at_one_half(probability: float, expected: str | None) -> None:
    buckets = (Bucket(0.1, 0.2, 7, 0, 1), Bucket(probability, probability + 0.1, 3, 3, 2))
    missed = plot_data.find_missed_classes(Plots("binary", ModelPlots(predictions=buckets), None), [])
    assert (str(missed) if missed else None) == expected


@pytest.mark.parametrize(("at", "rows"), [(0.25, None), (0.5, "3 rows"), (0.625, "3 rows")])
def test_label_of_a_binary_task_is_missed_at_the_threshold_of_the_model(at: float, rows: str | None) -> None:
    buckets = (Bucket(0.1, 0.2, 7, 0, 1), Bucket(0.25, 0.35, 3, 3, 2))
    plots = Plots("binary", ModelPlots(predictions=buckets, at=at), None)
    assert Plots.from_json(plots.to_json()) == plots
    missed = plot_data.find_missed_classes(plots, [])
    assert (str(missed) if missed else None) == (
        rows and f"the model never recognizes 1 ({rows}): recall 0 % at probability {at:g}"
    )


def test_missed_classes_are_named_up_to_five() -> None:
    missed = MissedClasses({f"{number}": 1.0 for number in range(7)}, None)
    assert str(missed).endswith("4 (1 rows) and 2 more classes: recall 0 %")


def test_numbers_have_no_classes() -> None:
    buckets = (Bucket(0.1, 0.2, 7, 1, 1),)
    assert plot_data.find_missed_classes(Plots("regression", ModelPlots(predictions=buckets), None), []) is None
