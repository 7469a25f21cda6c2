"""The config's metrics and slices, as TFMA gets them; bounds are not its business."""

from __future__ import annotations

import json
import re

import pytest
import tensorflow_model_analysis as tfma
import tf_keras
from pydantic import ValidationError

from components.evaluator.component import eval_config
from components.evaluator.config import METRICS, NUMBERED_METRICS, RATES, EvaluationConfig, metric


def config(**fields: object) -> tfma.EvalConfig:
    section = EvaluationConfig.model_validate(fields)
    return eval_config(section, "binary", "label", ("transform_labels",), "probability")


def classes(actual: tfma.EvalConfig) -> list[str]:
    return [metric.class_name for spec in actual.metrics_specs for metric in spec.metrics]


def slices(actual: tfma.EvalConfig) -> list[tuple[list[str], dict[str, str]]]:
    return [(list(spec.feature_keys), dict(spec.feature_values)) for spec in actual.slicing_specs]


def test_metrics_default_to_the_task_and_include_every_threshold() -> None:
    actual = config(
        thresholds={"recall": {"min": 0.5}}, slice_thresholds={"hour": {"precision": {"min": 0.5}, "auc": {"min": 0.5}}}
    )
    default = ["AUC", "AUCPrecisionRecall", "BinaryAccuracy", "BinaryCrossEntropy", "HistogramCalibration"]
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
    section = EvaluationConfig.model_validate({"thresholds": {"accuracy": {"min": 0.5}}})
    actual = eval_config(section, "multiclass", "label", (), "probabilities")
    computations = tfma.metrics.metric_specs.to_computations(actual.metrics_specs, eval_config=actual)
    names = {key.name for computation in computations for key in computation.keys}
    assert {"accuracy", "crossentropy"} <= names


def test_tfma_gets_no_threshold_and_so_blesses_nothing() -> None:
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
    assert slices(actual) == [([], {}), *((each, {}) for each in columns), ([], {"city": "New York"})]


def test_rates_of_groups_are_taken_at_the_users_probability() -> None:
    actual = config(metrics=["recall"], thresholds={"recall": {"min": 0.5}}, fairness={"column": "gender", "at": 0.25})
    rates = {
        metric.config for spec in actual.metrics_specs for metric in spec.metrics if '"thresholds"' in metric.config
    }
    assert rates == {f'{{"name": "{rate}", "thresholds": [0.25]}}' for rate in RATES}


def test_every_metric_is_one_that_tfma_knows_or_ours_under_another_name() -> None:
    known = tfma.metrics.metric_types.registered_metrics()
    for each in (*METRICS.values(), *(numbered for _, numbered, _ in NUMBERED_METRICS)):
        assert (each.tfma_class in known or hasattr(tf_keras.metrics, each.tfma_class)) is not bool(each.module)
    assert set(RATES.values()) < set(known)


def options(actual: tfma.EvalConfig) -> dict[str, dict[str, object]]:
    made = [metric for spec in actual.metrics_specs for metric in spec.metrics if metric.config]
    return {f"{metric.module}:{metric.class_name}": json.loads(metric.config) for metric in made}


def test_number_in_a_metrics_name_is_an_option_of_its_class() -> None:
    actual = options(config(metrics=["precision_at_0.7", "recall_at_50"], thresholds={"f1_at_0.25": {"min": 0.5}}))
    assert actual[":Precision"] == {"name": "precision_at_0.7", "thresholds": 0.7}
    assert actual[":F1Score"] == {"name": "f1_at_0.25", "thresholds": 0.25}
    assert actual["components.evaluator.calibration:RecallOfTop"] == {"name": "recall_at_50", "rows": 50}


def test_class_of_ones_own_is_named_by_its_path() -> None:
    section = EvaluationConfig.model_validate({"metrics": ["mine.metrics.Lift"], "thresholds": {"auc": {"min": 0.5}}})
    actual = options(eval_config(section, "binary", "label", (), "probability"))
    assert actual["mine.metrics:Lift"] == {"name": "mine.metrics.Lift"}
    assert section.modules() == ("mine.metrics",)


@pytest.mark.parametrize("example", [name for name, _, _ in NUMBERED_METRICS])
def test_every_numbered_metric_is_found_by_its_example(example: str) -> None:
    (task,) = metric(example).tasks
    section = EvaluationConfig.model_validate({"thresholds": {example: {"min": 0}}})
    actual = eval_config(section, task, "label", (), "x")
    computations = tfma.metrics.metric_specs.to_computations(actual.metrics_specs, eval_config=actual)
    assert example in {key.name for computation in computations for key in computation.keys}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("precision_at_1.5", "precision_at_1.5: expected a number between 0 and 1 or a whole one from 1 on"),
        ("precision_at_0", "precision_at_0: expected a number between 0 and 1"),
        ("accuracy_at_0.5", "unknown metric 'accuracy_at_0.5'; did you mean"),
        ("auc_at_3", "unknown metric 'auc_at_3'"),
        ("auk", "unknown metric 'auk'; did you mean 'auc'?"),
    ],
)
def test_name_without_a_metric_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        config(metrics=[name], thresholds={"auc": {"min": 0.5}})
