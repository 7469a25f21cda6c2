"""TFMA's config contains the metrics and slices of the pipeline's config, but not the thresholds."""

from __future__ import annotations

import json
import re

import pytest
import tensorflow_model_analysis as tfma
import tf_keras
from pydantic import ValidationError

from components.base.config_section import Task
from components.evaluator.config import METRICS, NUMBERED_METRICS, RATES, metric
from components.evaluator.eval_config import eval_config
from components.evaluator.plan import EvaluationPlan
from components.features.expression import Label

LABEL = Label("y")


def config(**fields: object) -> tfma.EvalConfig:
    return eval_config(plan("binary", fields), LABEL)


def plan(task: Task, fields: dict[str, object], **loss_fields: object) -> EvaluationPlan:
    return EvaluationPlan.model_validate({"evaluation": fields, "task": task, "labels": [LABEL], **loss_fields})


def classes(actual: tfma.EvalConfig) -> list[str]:
    return [metric.class_name for spec in actual.metrics_specs for metric in spec.metrics]


def slices(actual: tfma.EvalConfig) -> list[tuple[list[str], dict[str, str]]]:
    return [(list(spec.feature_keys), dict(spec.feature_values)) for spec in actual.slicing_specs]


def test_metrics_default_to_the_task_and_include_every_threshold() -> None:
    actual = config(
        thresholds={"recall": {"min": 0.5}}, slice_thresholds={"hour": {"precision": {"min": 0.5}, "auc": {"min": 0.5}}}
    )
    default = ["ScoreArea", "ScorePrecisionRecallArea", "BinaryAccuracy", "BinaryCrossEntropy", "HistogramCalibration"]
    assert classes(actual) == [
        "ExampleCount",
        *default,
        "Recall",
        "Precision",
        "HistogramPrevalence",
        "ConstantComparison",
        "BinaryDiagnostics",
    ]


def test_label_balance_is_only_measured_for_metrics_that_need_both_labels() -> None:
    actual = config(metrics=["recall"], thresholds={"recall": {"min": 0.5}})
    assert classes(actual) == ["ExampleCount", "Recall", "ConstantComparison", "BinaryDiagnostics"]


def test_metric_is_called_as_in_the_config() -> None:
    actual = eval_config(plan("multiclass", {"thresholds": {"accuracy": {"min": 0.5}}}), LABEL)
    computations = tfma.metrics.metric_specs.to_computations(actual.metrics_specs, eval_config=actual)
    names = {key.name for computation in computations for key in computation.keys}
    assert {"accuracy", "crossentropy"} <= names


def test_tfma_config_does_not_contain_thresholds() -> None:
    actual = config(
        thresholds={"auc": {"min": 0.9, "worse_by": 0.01}}, slice_thresholds={"hour": {"auc": {"worse_by": 0.1}}}
    )
    assert not tfma.metrics.metric_thresholds_from_metrics_specs(actual.metrics_specs, eval_config=actual)


def test_every_slice_is_requested_once() -> None:
    actual = config(
        thresholds={"auc": {"min": 0.9}},
        slices=["hour", ["hour", "day"], "payment"],
        slice_thresholds={
            "payment": {"auc": {"min": 0.5}},
            "payment = Cash": {"auc": {"min": 0.6}},
            "company": {"auc": {"min": 0.5}},
            "city = New York": {"auc": {"min": 0.5}, "recall": {"min": 0.5}},
        },
        fairness={"column": "gender"},
    )
    columns = [["hour"], ["hour", "day"], ["payment"], ["company"], ["gender"]]
    assert slices(actual) == [([], {}), *((column, {}) for column in columns), ([], {"city": "New York"})]


def test_rates_of_groups_use_the_configured_probability() -> None:
    actual = config(metrics=["recall"], thresholds={"recall": {"min": 0.5}}, fairness={"column": "gender", "at": 0.25})
    rates = {
        metric.config for spec in actual.metrics_specs for metric in spec.metrics if '"thresholds"' in metric.config
    }
    assert rates == {f'{{"name": "{rate}", "thresholds": [0.25]}}' for rate in RATES}


def test_every_metric_is_either_known_to_tfma_or_has_a_module_here() -> None:
    tfma_metrics = tfma.metrics.metric_types.registered_metrics()
    for metric_class in (*METRICS.values(), *(numbered for _, numbered, _ in NUMBERED_METRICS)):
        assert (
            metric_class.tfma_class in tfma_metrics or hasattr(tf_keras.metrics, metric_class.tfma_class)
        ) is not bool(metric_class.module)
    assert set(RATES.values()) < set(tfma_metrics)


def options(actual: tfma.EvalConfig) -> dict[str, dict[str, object]]:
    metrics = [metric for spec in actual.metrics_specs for metric in spec.metrics if metric.config]
    return {f"{metric.module}:{metric.class_name}": json.loads(metric.config) for metric in metrics}


def test_number_in_a_metric_name_is_an_option_of_its_class() -> None:
    actual = options(config(metrics=["precision_at_0.7", "recall_at_50"], thresholds={"f1_at_0.25": {"min": 0.5}}))
    assert actual[":Precision"] == {"name": "precision_at_0.7", "thresholds": 0.7}
    assert actual[":F1Score"] == {"name": "f1_at_0.25", "thresholds": 0.25}
    assert actual["components.evaluator.calibration:RecallOfTop"] == {"name": "recall_at_50", "rows": 50}


def test_user_defined_metric_is_named_by_its_path() -> None:
    evaluation_plan = plan("binary", {"metrics": ["mine.metrics.Lift"], "thresholds": {"auc": {"min": 0.5}}})
    actual = options(eval_config(evaluation_plan, LABEL))
    assert actual["mine.metrics:Lift"] == {"name": "mine.metrics.Lift"}
    assert evaluation_plan.evaluation.modules() == ("mine.metrics",)


@pytest.mark.parametrize("example", [name for name, _, _ in NUMBERED_METRICS])
def test_example_of_every_numbered_metric_is_accepted(example: str) -> None:
    for task in metric(example).tasks:
        actual = eval_config(plan(task, {"thresholds": {example: {"min": 0}}}), LABEL)
        computations = tfma.metrics.metric_specs.to_computations(actual.metrics_specs, eval_config=actual)
        assert example in {key.name for computation in computations for key in computation.keys}


COSTS = {"cost": {"fp": 1, "fn": 5}}


def test_decision_has_metrics_at_its_threshold() -> None:
    section = {"metrics": ["auc", "recall_at_0.7"], "thresholds": {"auc": {"min": 0.5}}, "decide": COSTS}
    actual = options(eval_config(plan("binary", section), LABEL, {"": 0.25}))
    at = {"thresholds": 0.25}
    assert actual[":Precision"] == {"name": "precision", **at}
    assert actual[":F1Score"] == {"name": "f1", **at}
    expected_cost = {"name": "cost", "costs": [1.0, 5.0], "threshold": 0.25}
    assert actual["components.evaluator.decision_cost:MeanCost"] == expected_cost
    assert actual["components.evaluator.plot_metrics:BinaryDiagnostics"]["at"] == 0.25
    assert actual["components.evaluator.constant:ConstantComparison"]["costs"] == [1.0, 5.0]


@pytest.mark.parametrize(("given", "expected"), [(None, 0.25), (0.4, 0.4)])
def test_rates_of_groups_use_the_threshold_unless_they_have_their_own(given: float | None, expected: float) -> None:
    section = {"thresholds": {"auc": {"min": 0.5}}, "fairness": {"column": "gender", "at": given}, "decide": "f1"}
    actual = options(eval_config(plan("binary", section), LABEL, {"": 0.25}))
    assert actual[":FallOut"]["thresholds"] == [expected]
    assert actual["components.evaluator.plot_metrics:BinaryDiagnostics"]["rates_at"] == expected


@pytest.mark.parametrize("weight", [None, "weight"])
def test_every_model_has_its_own_threshold(weight: str | None) -> None:
    section = {"thresholds": {"binary_accuracy": {"min": 0.5}}, "decide": COSTS}
    thresholds = {tfma.CANDIDATE_KEY: 0.25, tfma.BASELINE_KEY: 0.5}
    actual = eval_config(plan("binary", section, weight=weight), LABEL, thresholds)
    completed = tfma.utils.update_eval_config_with_defaults(actual, has_baseline=True, rubber_stamp=True)
    by_model = {
        tuple(spec.model_names): options(tfma.EvalConfig(metrics_specs=[spec])) for spec in actual.metrics_specs
    }
    assert by_model[tfma.CANDIDATE_KEY,][":BinaryAccuracy"]["threshold"] == 0.25
    # TFMA's own threshold is 0.5.
    assert by_model[tfma.BASELINE_KEY,][":BinaryAccuracy"] == {"name": "binary_accuracy"}
    parts = tfma.metrics.metric_specs.to_computations(completed.metrics_specs, eval_config=completed)
    keys = {(key.name, key.model_name) for part in parts for key in part.keys}
    for name in ("precision", "recall", "f1", "cost", "binary_accuracy", "auc", "example_count"):
        assert {model for key, model in keys if key == name} == set(thresholds), name
    # Models with the same threshold share their metrics.
    same = eval_config(plan("binary", section, weight=weight), LABEL, dict.fromkeys(thresholds, 0.25))
    assert [list(spec.model_names) for spec in same.metrics_specs] == [[]] * (2 if weight else 1)


BOUND: dict[str, object] = {"thresholds": {"mean_absolute_error": {"max": 1}}}


@pytest.mark.parametrize(
    ("loss_fields", "expected", "quantiles"),
    [
        ({"loss": "quantile", "quantiles": [0.5]}, ["quantile_loss"], [0.5]),
        (
            {"loss": "quantile", "quantiles": [0.1, 0.9]},
            ["quantile_loss", "interval_coverage", "interval_width"],
            [0.1, 0.9],
        ),
        ({"loss": "poisson"}, ["poisson_deviance"], []),
        ({"loss": "tweedie", "tweedie_power": 1.25}, ["tweedie_deviance_at_1.25"], []),
        ({"loss": "huber"}, [], None),
    ],
)
def test_metrics_of_the_loss_are_added(loss_fields: dict[str, object], expected: list[str], quantiles: object) -> None:
    actual = eval_config(plan("regression", BOUND, **loss_fields), LABEL)
    by_name = {
        json.loads(metric_config.config)["name"]: json.loads(metric_config.config)
        for metric_config in actual.metrics_specs[0].metrics[1:]
    }
    assert [name for name in by_name if name not in ("constant", "diagnostics")] == [
        *expected,
        "mean_squared_error",
        "mean_absolute_error",
    ]
    assert by_name["constant"].get("of_loss") == (expected[0] if expected else None)
    assert by_name["constant"].get("quantiles") == quantiles
    computations = tfma.metrics.metric_specs.to_computations(actual.metrics_specs, eval_config=actual)
    assert {*expected} <= {key.name for computation in computations for key in computation.keys}


def test_quantile_metric_knows_which_quantiles_the_model_predicts() -> None:
    section = {"thresholds": {"quantile_loss_at_0.9": {"max": 1}}}
    without_quantiles = options(eval_config(plan("regression", section), LABEL))
    quantile_plan = plan("regression", section, loss="quantile", quantiles=[0.5, 0.9])
    with_quantiles = options(eval_config(quantile_plan, LABEL))
    key = "components.evaluator.quantile_metrics:QuantileLoss"
    assert "quantiles" not in without_quantiles[key]
    assert with_quantiles[key]["quantiles"] == [0.5, 0.9]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tweedie_deviance_at_2.5", "tweedie_deviance_at_2.5: expected a number between 1 and 2"),
        ("precision_at_1.5", "precision_at_1.5: expected a number between 0 and 1 or a whole number from 1"),
        ("precision_at_0", "precision_at_0: expected a number between 0 and 1"),
        ("accuracy_at_0.5", "unknown metric 'accuracy_at_0.5'; did you mean"),
        ("auc_at_3", "unknown metric 'auc_at_3'"),
        ("auk", "unknown metric 'auk'; did you mean 'auc'?"),
    ],
)
def test_unknown_metric_is_rejected(name: str, message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        config(metrics=[name], thresholds={"auc": {"min": 0.5}})
