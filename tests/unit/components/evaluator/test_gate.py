"""Rules of the gate: thresholds, slices that are not judged, gaps between groups and forced blessings."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from components.evaluator.config import EvaluationConfig
from components.evaluator.gate import judge
from components.evaluator.verdict import Check, Measured, SliceMetrics, Verdict, format_slice, join_verdicts
from components.results.decision import Decision

NAN = math.nan


def verdict(
    thresholds: dict[str, Any],
    metrics: dict[str, float],
    baseline: dict[str, float] | None = None,
    *others: SliceMetrics,
    force: str | None = None,
    **fields: Any,
) -> Verdict:
    """Return the verdict on a model with these metrics over 1,000 rows, and with metrics of other slices."""
    config = EvaluationConfig.model_validate({"thresholds": thresholds, **fields})
    whole = SliceMetrics({}, 1000, metrics, baseline or {})
    return judge(config, Measured(whole, others, compared=baseline is not None), force=force)


def cash(rows: int, metrics: dict[str, float], baseline: dict[str, float] | None = None) -> SliceMetrics:
    return SliceMetrics({"payment": "Cash"}, rows, metrics, baseline or {})


def card(rows: int, metrics: dict[str, float]) -> SliceMetrics:
    return SliceMetrics({"payment": "Card"}, rows, metrics, {})


@pytest.mark.parametrize(
    ("metric", "threshold", "value", "baseline", "passed", "bound", "why"),
    [
        pytest.param("auc", {"min": 0.9}, 0.9, None, True, "at least 0.9", None, id="at-the-least"),
        pytest.param("auc", {"min": 0.9}, 0.899, None, False, "at least 0.9", None, id="below-the-least"),
        pytest.param("recall", {"max": 0.5}, 0.5, None, True, "at most 0.5", None, id="at-the-most"),
        pytest.param("recall", {"max": 0.5}, 0.51, None, False, "at most 0.5", None, id="above-the-most"),
        pytest.param("auc", {"min": 0.0}, NAN, None, False, "at least 0", "not a number", id="nan-has-no-least"),
        pytest.param("auc", {"max": 1.0}, NAN, None, False, "at most 1", "not a number", id="nan-has-no-most"),
        pytest.param("auc", {"max": 1.0}, math.inf, None, False, "at most 1", "not a number", id="nor-has-infinity"),
        pytest.param(
            "auc", {"worse_by": 0.25}, 0.5, 0.75, True, "at most 0.25 below the baseline", None, id="as-much-worse"
        ),
        pytest.param(
            "auc", {"worse_by": 0.2}, 0.5, 0.75, False, "at most 0.2 below the baseline", None, id="too-much-worse"
        ),
        pytest.param("auc", {"worse_by": 0}, 0.9, 0.75, True, "at most 0 below the baseline", None, id="better"),
        pytest.param(
            "binary_crossentropy",
            {"worse_by": 0.25},
            0.75,
            0.5,
            True,
            "at most 0.25 above the baseline",
            None,
            id="lower-is-better",
        ),
        pytest.param(
            "binary_crossentropy",
            {"worse_by": 0.2},
            0.75,
            0.5,
            False,
            "at most 0.2 above the baseline",
            None,
            id="lower-is-better-and-it-is-not",
        ),
        pytest.param(
            "calibration",
            {"worse_by": 0.1},
            0.75,
            1.25,
            True,
            "at most 0.1 farther from 1 than the baseline",
            None,
            id="as-far-on-the-other-side",
        ),
        pytest.param(
            "calibration",
            {"worse_by": 0.1},
            1.5,
            1.25,
            False,
            "at most 0.1 farther from 1 than the baseline",
            None,
            id="farther-from-1",
        ),
        pytest.param(
            "mean_squared_error",
            {"worse_by_fraction": 0.25},
            10.0,
            8.0,
            True,
            "at most 25 % above the baseline",
            None,
            id="a-quarter-worse",
        ),
        pytest.param(
            "mean_squared_error",
            {"worse_by_fraction": 0.2},
            10.0,
            8.0,
            False,
            "at most 20 % above the baseline",
            None,
            id="a-quarter-is-too-much",
        ),
        pytest.param(
            "auc",
            {"worse_by": 0.1},
            0.5,
            None,
            True,
            "at most 0.1 below the baseline",
            "no earlier blessed model",
            id="nothing-to-compare-with",
        ),
        pytest.param(
            "auc",
            {"worse_by": 0.1},
            0.5,
            NAN,
            True,
            "at most 0.1 below the baseline",
            "the baseline's is not a number",
            id="a-baseline-that-is-nan",
        ),
        pytest.param(
            "auc",
            {"worse_by": 0.1},
            NAN,
            None,
            False,
            "at most 0.1 below the baseline",
            "not a number",
            id="nan-is-worse-than-nothing",
        ),
    ],
)
def test_bound(
    metric: str,
    threshold: dict[str, float],
    value: float,
    baseline: float | None,
    passed: bool,
    bound: str,
    why: str | None,
) -> None:
    judged = verdict({metric: threshold}, {metric: value}, None if baseline is None else {metric: baseline})
    [check] = judged.checks
    assert (check.bound, check.passed, check.why) == (bound, passed, why)
    assert check.value == (value if math.isfinite(value) else None)
    assert check.baseline == (None if baseline is None or math.isnan(baseline) else baseline)
    assert judged.blessed is passed


def test_every_bound_is_a_separate_check_and_all_must_pass() -> None:
    judged = verdict({"auc": {"min": 0.9, "max": 0.99, "worse_by": 0.01}}, {"auc": 0.95}, {"auc": 0.97})
    assert [(check.bound, check.passed) for check in judged.checks] == [
        ("at least 0.9", True),
        ("at most 0.99", True),
        ("at most 0.01 below the baseline", False),
    ]
    assert (judged.blessed, judged.forced, judged.failed) == (False, None, judged.checks[2:])


def test_metric_that_was_not_measured_fails() -> None:
    [check] = verdict({"auc": {"min": 0.1}}, {}).checks
    assert (check.passed, check.value, check.why) == (False, None, "not a number")


def test_split_without_rows_is_not_blessed() -> None:
    config = EvaluationConfig.model_validate({"thresholds": {"auc": {"min": 0.1}}})
    judged = judge(config, Measured(SliceMetrics({}, 0, {}, {}), (), compared=False), force=None)
    assert (judged.blessed, judged.rows) == (False, 0)


def test_slice_threshold_applies_to_every_value_of_its_column() -> None:
    slices = cash(60, {"auc": 0.7}, {"auc": 0.8}), card(70, {"auc": 0.5})
    judged = verdict(
        {"auc": {"min": 0.9}}, {"auc": 0.95}, None, *slices, slice_thresholds={"payment": {"auc": {"min": 0.6}}}
    )
    assert [(check.slice, check.rows, check.value, check.passed) for check in judged.checks] == [
        ({}, 1000, 0.95, True),
        ({"payment": "Card"}, 70, 0.5, False),
        ({"payment": "Cash"}, 60, 0.7, True),
    ]
    assert not judged.blessed


@pytest.mark.parametrize("name", ["payment = Cash", "payment=Cash", " payment =Cash "])
def test_slice_threshold_can_apply_to_a_single_value(name: str) -> None:
    slices = cash(60, {"auc": 0.7}), card(60, {"auc": 0.5}), SliceMetrics({"payment": "Cash", "hour": "3"}, 60, {}, {})
    judged = verdict(
        {"auc": {"min": 0.9}}, {"auc": 0.95}, None, *slices, slice_thresholds={name: {"auc": {"min": 0.6}}}
    )
    assert [check.slice for check in judged.checks] == [{}, {"payment": "Cash"}]
    assert judged.blessed


@pytest.mark.parametrize(
    ("slices", "actual"),
    [
        pytest.param([cash(49, {"auc": 0.1})], "not judged: 49 rows of 50", id="few-rows"),
        pytest.param([cash(49, {"auc": NAN})], "not judged: 49 rows of 50", id="few-rows-and-no-number"),
        pytest.param([], "not judged: 0 rows of 50", id="no-rows"),
        pytest.param(
            [cash(50, {"auc": 0.0, "prevalence": 0.0})], "not judged: all labels are alike", id="only-negatives"
        ),
        pytest.param(
            [cash(50, {"auc": 0.0, "prevalence": 1.0})], "not judged: all labels are alike", id="only-positives"
        ),
    ],
)
def test_slice_without_information_is_not_judged(slices: list[SliceMetrics], actual: str) -> None:
    judged = verdict(
        {"auc": {"min": 0.9}}, {"auc": 0.95}, None, *slices, slice_thresholds={"payment = Cash": {"auc": {"min": 0.6}}}
    )
    assert [(check.passed, check.judged, check.why) for check in judged.checks[1:]] == [(True, False, actual)]
    assert judged.blessed


def test_large_slice_whose_metric_is_nan_fails() -> None:
    thresholds = {"payment": {"binary_accuracy": {"min": 0.1}}}
    judged = verdict(
        {"auc": {"min": 0.9}}, {"auc": 0.95}, None, cash(50, {"binary_accuracy": NAN}), slice_thresholds=thresholds
    )
    assert (judged.checks[1].passed, judged.checks[1].why) == (False, "not a number")


def test_slice_without_usable_groups_is_not_judged_but_the_whole_split_fails() -> None:
    judged = verdict(
        {"gauc": {"min": 0.6}},
        {"gauc": NAN},
        None,
        cash(500, {"gauc": NAN}),
        slice_thresholds={"payment": {"gauc": {"min": 0.6}}},
    )
    assert [(check.passed, check.why) for check in judged.checks] == [
        (False, "no group has what the metric needs"),
        (True, "not judged: no group has what the metric needs"),
    ]


def test_whole_split_of_one_class_is_judged_and_fails() -> None:
    [check] = verdict({"auc": {"min": 0.0}}, {"auc": 1.0, "prevalence": 1.0}).checks
    assert (check.passed, check.judged, check.value, check.why) == (False, True, None, "all labels are alike")


def test_min_examples_decides_which_slices_are_judged() -> None:
    few = cash(3, {"auc": 0.1})
    fields = {"min_examples": 3, "slice_thresholds": {"payment": {"auc": {"min": 0.6}}}}
    assert not verdict({"auc": {"min": 0.9}}, {"auc": 0.95}, None, few, **fields).blessed


def groups(*rates: tuple[str, int, float]) -> list[SliceMetrics]:
    return [SliceMetrics({"gender": name}, rows, {"positive_rate": rate}, {}) for name, rows, rate in rates]


@pytest.mark.parametrize(
    ("measured", "value", "passed", "why"),
    [
        pytest.param(
            groups(("a", 50, 0.25), ("b", 50, 0.5), ("c", 50, 0.375)),
            0.25,
            True,
            "0.25 for a, 0.5 for b",
            id="as-far-apart-as-they-may-be",
        ),
        pytest.param(
            groups(("a", 50, 0.25), ("b", 50, 0.625)), 0.375, False, "0.25 for a, 0.625 for b", id="too-far-apart"
        ),
        pytest.param(
            groups(("a", 50, 0.25), ("b", 50, 0.5), ("c", 49, 1.0)),
            0.25,
            True,
            "0.25 for a, 0.5 for b",
            id="a-small-group-is-left-out",
        ),
        pytest.param(
            groups(("a", 50, 0.25), ("b", 49, 1.0)),
            None,
            True,
            "not judged: it takes two groups with 50 rows",
            id="one-group-alone",
        ),
        pytest.param(
            groups(("a", 50, 0.25), ("b", 50, NAN)),
            None,
            True,
            "not judged: it takes two groups with 50 rows",
            id="a-group-that-has-no-such-rate",
        ),
    ],
)
def test_gap_between_groups_is_bounded(
    measured: list[SliceMetrics], value: float | None, passed: bool, why: str
) -> None:
    fairness = {"column": "gender", "max_gap": {"positive_rate": 0.25}}
    judged = verdict({"auc": {"min": 0.9}}, {"auc": 0.95, "positive_rate": 1.0}, None, *measured, fairness=fairness)
    [gap] = judged.checks[1:]
    where, judgement = {"gender": "any two"}, value is not None
    assert gap == Check(
        "gap of positive_rate", where, "at most 0.25", value, None, None, passed, why, judgement, kind="gap"
    )
    assert judged.blessed is passed


def test_gap_is_reported_with_the_gap_of_the_baseline() -> None:
    gender_slices = [
        SliceMetrics({"gender": name}, 90, {"positive_rate": 0.5}, {"positive_rate": baseline_rate})
        for name, baseline_rate in (("a", 0.25), ("b", 0.75))
    ]
    fairness = {"column": "gender", "max_gap": {"positive_rate": 0.1}}
    judged = verdict({"auc": {"min": 0.9}}, {"auc": 0.95}, {"auc": 0.9}, *gender_slices, fairness=fairness)
    assert (judged.checks[1].value, judged.checks[1].baseline) == (0.0, 0.5)


def test_rates_without_a_bound_are_measured_but_not_checked() -> None:
    judged = verdict({"auc": {"min": 0.9}}, {"auc": 0.95}, None, *groups(("a", 99, 0.0)), fairness={"column": "gender"})
    assert len(judged.checks) == 1
    assert judged.slices[1].metrics == {"positive_rate": 0.0}


def test_rates_are_reported_for_groups_only() -> None:
    hour = SliceMetrics({"hour": "3"}, 99, {"auc": 0.5, "positive_rate": 0.5}, {"positive_rate": 0.5})
    judged = verdict({"auc": {"min": 0.9}}, {"auc": 0.95}, None, hour, fairness={"column": "gender"})
    assert judged.slices[1] == SliceMetrics({"hour": "3"}, 99, {"auc": 0.5}, {})


def test_forced_blessing_is_recorded_with_its_reason() -> None:
    judged = verdict({"auc": {"min": 0.9}}, {"auc": 0.5}, force="the old one is worse still")
    assert (judged.blessed, judged.forced) == (True, "the old one is worse still")
    assert [check.passed for check in judged.checks] == [False]


def test_model_that_passes_is_not_recorded_as_forced() -> None:
    judged = verdict({"auc": {"min": 0.9}}, {"auc": 0.95}, force="to be safe")
    assert (judged.blessed, judged.forced) == (True, None)


def test_measurements_begin_with_all_rows_and_omit_nan() -> None:
    slices = (
        card(5, {"auc": 0.0, "prevalence": 1.0, "recall": 0.5}),
        cash(7, {"auc": NAN, "recall": 0.25}, {"recall": 1.0}),
    )
    judged = verdict({"auc": {"min": 0.9}}, {"auc": 0.95, "prevalence": 0.5}, {"auc": 0.75}, *slices)
    assert judged.slices == (
        SliceMetrics({}, 1000, {"auc": 0.95}, {"auc": 0.75}),
        SliceMetrics({"payment": "Card"}, 5, {"recall": 0.5}, {}),
        SliceMetrics({"payment": "Cash"}, 7, {"recall": 0.25}, {"recall": 1.0}),
    )
    assert judged.rows == 1000


def test_written_verdict_is_read_back() -> None:
    judged = verdict({"auc": {"min": 0.9}}, {"auc": NAN}, {"auc": 0.75}, cash(7, {"auc": 0.5}), force="why not")
    assert Verdict.from_json(judged.to_json()) == judged


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        ({}, "auc: expected at least 0.6, received 0.5"),
        ({"slice": {"hour": "3", "day": "1"}}, "auc where hour = 3 and day = 1: expected at least 0.6, received 0.5"),
        ({"value": None, "why": "not a number"}, "auc: expected at least 0.6, received none (not a number)"),
        ({"baseline": 0.75}, "auc: expected at least 0.6, received 0.5, the baseline has 0.75"),
    ],
)
def test_check_is_formatted(change: dict[str, Any], actual: str) -> None:
    check = Check("auc", {}, "at least 0.6", 0.5, None, 9, passed=False, why=None)
    assert str(dataclasses.replace(check, **change)) == actual


def test_slice_is_formatted() -> None:
    assert format_slice({"a": "1", "b": "x y"}) == "a = 1 and b = x y"


def test_slice_without_interactions_is_not_judged() -> None:
    config = EvaluationConfig.model_validate(
        {"thresholds": {"recall_at_10": {"min": 0.1}}, "slice_thresholds": {"payment": {"recall_at_10": {"min": 0.1}}}}
    )
    slices = (cash(900, {"recall_at_10": NAN}), card(100, {"recall_at_10": 0.2}))
    measured = Measured(SliceMetrics({}, 1000, {"recall_at_10": 0.2}, {}), slices, False)
    result = judge(config, measured, None, task="retrieval")
    assert result.blessed
    assert [check.why for check in result.checks if not check.judged] == ["not judged: no row has label 1"]
    whole = Measured(SliceMetrics({}, 1000, {"recall_at_10": NAN}, {}), (), False)
    assert [check.why for check in judge(config, whole, None, task="retrieval").failed] == ["no row has label 1"]


@pytest.mark.parametrize(("precision", "passed"), [(0.9, True), (0.9 - 1e-16, True), (0.85, False)])
def test_decision_that_misses_its_precision_is_not_blessed(precision: float, passed: bool) -> None:
    metrics = {"precision": precision, "recall": 0.25, "f1": 0.4}
    decision = Decision(0.75, "highest recall at a precision of at least 0.9", "precision", 0.9, metrics, 400, 30)
    config = EvaluationConfig.model_validate({"thresholds": {"auc": {"min": 0.5}}})
    measured = Measured(SliceMetrics({}, 1000, {"auc": 0.9}, {}), (), compared=False)
    result = judge(config, measured, None, decision=decision)
    check = result.checks[-1]
    assert (result.blessed, check.passed, check.value, check.rows) == (passed, passed, precision, 400)
    assert str(check).startswith("precision of the decision: expected at least 0.9 on the validation rows, received 0.")
    assert check.why is not None
    assert check.why.endswith("" if passed else "recall 0.25, the highest precision of any threshold")
    assert judge(config, measured, "on purpose", decision=decision).blessed
    # Other goals do not have a bound.
    assert judge(config, measured, None, decision=Decision(0.75, "highest f1", metrics=metrics)).blessed


def test_decisions_of_several_labels_are_joined_and_read_back() -> None:
    decisions = {name: Decision(0.25, "highest f1", None, None, {"f1": 0.5}, 9, 3) for name in ("click", "buy")}
    config = EvaluationConfig.model_validate({"thresholds": {"auc": {"min": 0.5}}})
    measured = Measured(SliceMetrics({}, 1000, {"auc": 0.9}, {}), (), compared=False)
    verdicts = {
        name: dataclasses.replace(judge(config, measured, None, decision=decision), decisions={name: decision})
        for name, decision in decisions.items()
    }
    joined = join_verdicts(verdicts)
    assert joined.decisions == decisions
    assert Verdict.from_json(joined.to_json()) == joined
