"""The gate compares a model with the best constant prediction and checks for columns that leak the label."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from components.evaluator.config import EvaluationConfig
from components.evaluator.gate import judge
from components.evaluator.importance import ColumnImportance, Estimate, Importance, SliceImportance
from components.evaluator.verdict import ConstantMetric, Measured, SliceMetrics, Verdict
from components.features.leakage import Leak, Leakage
from tests.support.data.tolerances import float64_sum

NAN = math.nan


def judge_with_constant(
    metrics: dict[str, ConstantMetric],
    rows: int = 1000,
    *,
    uncalibrated: str | None = None,
    force: str | None = None,
    leakage: Leakage | None = None,
    **fields: Any,
) -> Verdict:
    """Return the verdict on a model that meets its thresholds, given the metrics of the best constant prediction."""
    config = EvaluationConfig.model_validate({"thresholds": {"recall": {"min": 0}}, **fields})
    whole = SliceMetrics({}, rows, {"recall": 1.0}, {"binary_crossentropy": 0.6}, constant=metrics)
    return judge(config, Measured(whole, (), True), force, leakage, uncalibrated=uncalibrated)


LOSS = "binary_crossentropy"


@pytest.mark.parametrize(
    ("constant", "rows", "passed", "why"),
    [
        pytest.param(
            ConstantMetric(0.5, 0.2, (0.15, 0.25)),
            80,
            True,
            "better by 0.2, 95 % interval 0.15 to 0.25, 80 rows",
            id="few-rows-are-enough-for-a-good-model",
        ),
        pytest.param(
            ConstantMetric(0.5, 0.02, (-0.01, 0.05)),
            80,
            False,
            "better by 0.02, 95 % interval -0.01 to 0.05, 80 rows: too few for a verdict",
            id="within-the-interval",
        ),
        pytest.param(
            ConstantMetric(0.5, -0.02, (-0.05, 0.01)),
            80,
            False,
            "worse by 0.02, 95 % interval -0.01 to 0.05, 80 rows",
            id="no-better",
        ),
        pytest.param(ConstantMetric(0.5, 1e-17, (1e-17, 1e-17)), 80, False, "better by 1e-17, 95 %", id="as-good"),
        pytest.param(
            ConstantMetric(0.5, 0.2),
            1,
            False,
            "better by 0.2, no interval, 1 row: too few for a verdict",
            id="one-row",
        ),
        pytest.param(ConstantMetric(0.5, NAN), 80, False, "not a number", id="nan"),
        pytest.param(ConstantMetric(0.0, -0.1, (-0.2, 0.0)), 80, False, "all labels are alike", id="alike"),
        pytest.param(
            ConstantMetric(NAN, NAN),
            80,
            True,
            "not judged: labels or predictions are no probabilities",
            id="no-probabilities",
        ),
    ],
)
def test_model_must_beat_the_constant_by_more_than_the_interval(
    constant: ConstantMetric, rows: int, passed: bool, why: str
) -> None:
    result = judge_with_constant({"auc": ConstantMetric(0.5, 0.3, (0.2, 0.4)), LOSS: constant}, rows)
    (_, check) = result.checks
    assert (check.metric, check.passed, result.blessed) == (LOSS, passed, passed)
    assert str(check.why).startswith(why)
    assert check.rows == rows


def test_check_of_the_constant_is_formatted() -> None:
    result = judge_with_constant({LOSS: ConstantMetric(0.5, -0.25, (-0.5, -0.125))})
    assert str(result.failed[0]) == (
        "binary_crossentropy: expected below the constant's 0.5 beyond the interval, received 0.75, "
        "the baseline has 0.6 (worse by 0.25, 95 % interval 0.125 to 0.5, 1,000 rows)"
    )
    assert not result.warnings


def test_constant_warn_reports_a_model_that_does_not_beat_the_constant_as_a_warning() -> None:
    result = judge_with_constant({LOSS: ConstantMetric(0.5, -0.25, (-0.5, -0.125))}, constant="warn")
    assert (result.blessed, len(result.checks)) == (True, 1)
    [warning] = result.warnings
    assert warning.startswith(
        "binary_crossentropy: expected below the constant's 0.5 beyond the interval, received 0.75"
    )


def test_forced_blessing_overrides_the_check_of_the_constant() -> None:
    worse = {LOSS: ConstantMetric(0.5, -0.25, (-0.5, -0.125))}
    result = judge_with_constant(worse, force="known")
    assert (result.blessed, result.forced, len(result.failed)) == (True, "known", 1)


@pytest.mark.parametrize(
    ("squared", "absolute", "passed"),
    [
        ((1.0, 2.0), (1.0, 2.0), True),
        ((-1.0, 2.0), (1.0, 2.0), True),
        ((1.0, 2.0), (-2.0, -1.0), True),
        ((-1.0, 2.0), (-2.0, -1.0), False),
    ],
)
def test_regression_must_beat_the_constant_in_one_of_two_errors(
    squared: tuple[float, float], absolute: tuple[float, float], passed: bool
) -> None:
    errors = {"mean_squared_error": squared, "mean_absolute_error": absolute}
    result = judge_with_constant({name: ConstantMetric(9.0, sum(ends) / 2, ends) for name, ends in errors.items()})
    assert result.blessed is passed
    assert [check.metric for check in result.checks[1:]] == list(errors)
    for check in result.checks[1:]:
        judged = min(errors[check.metric]) > 0 or not passed
        assert check.judged is judged
        if not judged:
            better_metric = next(name for name in errors if name != check.metric)
            assert check.why == f"not judged: {better_metric} is better than the constant's"


@pytest.mark.parametrize(
    ("task_metric", "name", "bound"),
    [
        ("crossentropy", "accuracy", "above the constant's 0.5 beyond the interval"),
        ("mean_squared_error", "mean_absolute_error_of_mean", "below the mean's 0.5 beyond the interval"),
        ("poisson_deviance", "mean_absolute_error_of_mean", "below the mean's 0.5 beyond the interval"),
    ],
)
@pytest.mark.parametrize(("gain", "passed"), [(-0.2, False), (-0.05, True), (0.2, True)])
def test_model_with_a_better_loss_must_not_be_clearly_worse_in_what_people_read(
    task_metric: str, name: str, bound: str, gain: float, passed: bool
) -> None:
    better, compared = ConstantMetric(9.0, 1.0, (0.5, 1.5)), ConstantMetric(0.5, gain, (gain - 0.1, gain + 0.1))
    constant = {task_metric: better, name: compared}
    result = judge_with_constant(constant)
    assert result.blessed is passed
    assert [(check.metric, check.bound) for check in result.failed] == (
        [] if passed else [(name.removesuffix("_of_mean"), bound)]
    )
    # Weights of classes, and quantiles, may be so on purpose.
    assert judge_with_constant(constant, uncalibrated="class_weights").blessed or task_metric != "crossentropy"
    assert judge_with_constant({**constant, "quantile_loss": better}).blessed


@pytest.mark.parametrize("metric", ["quantile_loss", "poisson_deviance", "tweedie_deviance_at_1.5"])
@pytest.mark.parametrize("gain", [0.5, -0.5, NAN])
def test_model_with_another_loss_is_compared_by_its_loss(metric: str, gain: float) -> None:
    better = ConstantMetric(9.0, 1.0, (0.5, 1.5))
    ends = None if math.isnan(gain) else (gain - 0.1, gain + 0.1)
    constant = {"mean_squared_error": better, metric: ConstantMetric(2.0, gain, ends)}
    result = judge_with_constant(constant)
    assert (result.checks[-1].metric, len(result.checks), result.blessed) == (metric, 2, gain > 0)
    unknown = judge_with_constant({metric: ConstantMetric(NAN)})
    assert unknown.blessed
    assert str(unknown.checks[-1].why).startswith("not judged: ")


@pytest.mark.parametrize(("metric", "value", "loss"), [("auc", 0.5, LOSS), ("balanced_accuracy", 0.25, "crossentropy")])
def test_uncalibrated_model_is_compared_by_a_metric_that_ignores_calibration(
    metric: str, value: float, loss: str
) -> None:
    constant = {loss: ConstantMetric(0.1, -0.5, (-0.6, -0.4)), metric: ConstantMetric(value, 0.125, (0.1, 0.15))}
    assert not judge_with_constant(constant).blessed
    result = judge_with_constant(constant, uncalibrated="class_weights")
    [_, check] = result.checks
    assert result.blessed
    assert (check.metric, check.value) == (metric, value + 0.125)
    assert check.bound == f"above the constant's {value:g} beyond the interval"
    assert str(check.why).endswith("probabilities are not calibrated because of class_weights")
    weak = {**constant, metric: ConstantMetric(value, 0.0, (-0.1, 0.1))}
    assert not judge_with_constant(weak, uncalibrated="class_weights").blessed


def test_constant_is_reported_for_the_whole_split_only() -> None:
    constant = {"auc": ConstantMetric(0.5, NAN), LOSS: ConstantMetric(0.5, 0.2, (0.1, 0.3))}
    config = EvaluationConfig.model_validate({"thresholds": {"recall": {"min": 0}}})
    whole, cash = (
        SliceMetrics(slice_, 9, {"recall": 1.0}, {}, constant=constant) for slice_ in ({}, {"payment": "Cash"})
    )
    result = judge(config, Measured(whole, (cash,), compared=False), force=None)
    assert [slice_metrics.constant for slice_metrics in result.slices] == [{LOSS: constant[LOSS]}, {}]
    assert Verdict.from_json(result.to_json()) == result


LEAKS = Leakage((Leak("refund", "value", 0.9996, 0.998, "it alone predicts the label: AUC 0.9996"),))


def test_leakage_is_a_warning() -> None:
    result = judge_with_constant({}, leakage=LEAKS)
    assert (result.blessed, len(result.checks)) == (True, 1)
    assert result.warnings == (
        "leakage of refund: expected below 0.998, received 0.9996 (it alone predicts the label: AUC 0.9996; remove it "
        "if it is not known when the model predicts)",
    )
    assert Verdict.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    ("leakage", "blessed", "metric", "why"),
    [
        (LEAKS, False, "leakage of refund", "it alone predicts the label: AUC 0.9996; remove it"),
        (Leakage(), True, "leakage", "None"),
        (Leakage(unknown="80 rows of 500"), True, "leakage", "not judged: 80 rows of 500"),
    ],
)
def test_leakage_can_be_rejected(leakage: Leakage, blessed: bool, metric: str, why: str) -> None:
    config = EvaluationConfig.model_validate({"thresholds": {"recall": {"min": 0}}, "leakage": "refuse"})
    result = judge(config, Measured(SliceMetrics({}, 80, {"recall": 1.0}, {}), (), False), None, leakage)
    check = result.checks[-1]
    assert (result.blessed, check.metric, result.warnings) == (blessed, metric, ())
    assert str(check.why).startswith(why)


COLUMN = ColumnImportance("refund", Estimate(0.4), Estimate(0.8, (0.7, 0.85)))
IMPORTANCE = Importance("binary_crossentropy", 1, (SliceImportance({}, 900, 0.2, (COLUMN,)),))


@pytest.mark.parametrize(
    ("importance", "most", "passed", "value", "why"),
    [
        (IMPORTANCE, 0.8, True, 0.8, "binary_crossentropy +0.4 with other rows' values, 95 % interval 0.7 to 0.85"),
        (IMPORTANCE, 0.75, False, 0.8, "binary_crossentropy +0.4 with other rows' values, 95 % interval 0.7 to 0.85"),
        (replace(IMPORTANCE, slices=(SliceImportance({}, 900, 0.2, ()),)), 0.5, True, None, "not judged: the column"),
        (Importance(unknown="1 rows of 2"), 0.5, False, None, "1 rows of 2"),
        (None, 0.5, False, None, "it was not measured"),
    ],
)
def test_importance_of_a_column_is_bounded(
    importance: Importance | None, most: float, passed: bool, value: float | None, why: str
) -> None:
    config = EvaluationConfig.model_validate({"thresholds": {"recall": {"min": 0}}, "max_importance": {"refund": most}})
    result = judge(config, Measured(SliceMetrics({}, 900, {"recall": 1.0}, {}), (), False), None, importance=importance)
    check = result.checks[-1]
    assert (result.blessed, check.passed, check.value) == (passed, passed, value)
    assert (check.metric, check.bound) == ("importance of refund", f"at most {most:g}")
    assert str(check.why).startswith(why)


@pytest.mark.parametrize(
    ("recall", "reciprocal", "blessed"),
    [
        (ConstantMetric(0.2, 0.1, (0.05, 0.15)), ConstantMetric(0.1, 0.01, (-0.01, 0.03)), True),
        (ConstantMetric(0.2, 0.01, (-0.02, 0.04)), ConstantMetric(0.1, -0.01, (-0.03, 0.01)), False),
        # Popularity reaches 0 here although the labels differ, so the verdict must not be that all labels are alike.
        (ConstantMetric(0.0, 0.1, (0.05, 0.15)), ConstantMetric(0.0, 0.1, (0.05, 0.15)), True),
        (ConstantMetric(NAN, NAN), ConstantMetric(NAN, NAN), True),
    ],
)
def test_retrieval_must_beat_popularity_in_one_of_two_metrics(
    recall: ConstantMetric, reciprocal: ConstantMetric, blessed: bool
) -> None:
    result = judge_with_constant({"recall_at_10": recall, "ndcg_at_10": recall, "mrr": reciprocal})
    assert result.blessed is blessed
    checks = {check.metric: check for check in result.checks if check.metric in ("recall_at_10", "mrr")}
    assert len(checks) == 2
    if math.isnan(recall.value):
        assert checks["mrr"].why == "not judged: no row has label 1"
    else:
        assert checks["recall_at_10"].bound == f"above the constant's {recall.value:g} beyond the interval"
        assert checks["recall_at_10"].value == float64_sum(2).approx(recall.value + (recall.gain or 0))
