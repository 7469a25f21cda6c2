"""Curves and matrices out of a few buckets, and the file that keeps them."""

from __future__ import annotations

import pytest

from components.evaluator import plots
from components.evaluator.plots import Bucket, Confusion, Drawn, Plots

BUCKETS = (
    Bucket(0.0, 0.1, 50.0, 5.0, 2.5),
    Bucket(0.1, 0.5, 20.0, 5.0, 6.0),
    Bucket(0.5, 0.6, 10.0, 5.0, 5.5),
    Bucket(0.9, 1.0, 20.0, 15.0, 19.0),
)


def test_the_roc_goes_from_no_positive_to_all() -> None:
    assert plots.roc(BUCKETS) == pytest.approx([(0, 0), (5 / 70, 0.5), (10 / 70, 20 / 30), (25 / 70, 25 / 30), (1, 1)])


def test_precision_begins_where_something_is_positive() -> None:
    wanted = [(0.5, 0.75), (20 / 30, 20 / 30), (25 / 30, 0.5), (1, 0.3)]
    assert plots.precision_recall(BUCKETS) == pytest.approx(wanted)


@pytest.mark.parametrize("labels", [0.0, 10.0])
def test_labels_that_are_all_alike_have_no_roc(labels: float) -> None:
    alike = [Bucket(0.0, 0.1, 10.0, labels, 1.0)]
    assert plots.roc(alike) == []
    assert bool(plots.precision_recall(alike)) is bool(labels)


def test_the_area_is_that_of_trapezoids() -> None:
    assert plots.area([(0.0, 0.0), (0.5, 1.0), (1.0, 1.0)]) == 0.75
    assert plots.area([]) == 0.0


def test_groups_have_about_equally_many_rows_and_lose_none() -> None:
    groups = plots.calibration(BUCKETS, 2)
    assert [(each.low, each.high, each.rows) for each in groups] == [(0.0, 0.1, 50.0), (0.1, 1.0, 50.0)]
    assert sum(each.labels for each in plots.calibration(BUCKETS, 10)) == 30
    assert plots.calibration([], 10) == []


def test_the_matrix_is_that_at_a_half() -> None:
    assert plots.at_threshold(BUCKETS).counts == ((60.0, 10.0), (10.0, 20.0))


def test_a_quantile_lies_where_so_many_rows_are_below() -> None:
    assert plots.quantile(BUCKETS, 0.25) == pytest.approx(0.05)
    assert plots.quantile(BUCKETS, 0.6) == pytest.approx(0.3)
    assert plots.quantile(BUCKETS, 1.0) == 1.0


def test_what_is_written_is_read() -> None:
    matrix = Drawn(confusion=Confusion((0, 3), 2, ((1.0, 0.0, 2.0), (0.0, 4.0, 0.0), (0.0, 0.0, 1.0))))
    for told in (
        Plots("multiclass", matrix, None),
        Plots("regression", Drawn(BUCKETS, BUCKETS), Drawn(BUCKETS)),
    ):
        assert Plots.from_json(told.to_json()) == told
