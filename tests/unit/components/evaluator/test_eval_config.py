"""The config's metrics and slices, as TFMA gets them; bounds are not its business."""

from __future__ import annotations

import tensorflow_model_analysis as tfma
import tf_keras

from components.evaluator.component import eval_config
from components.evaluator.config import METRICS, RATES, EvaluationConfig


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
        "BinaryDiagnostics",
    ]


def test_label_balance_is_only_measured_for_metrics_that_need_both_labels() -> None:
    actual = config(metrics=["recall"], thresholds={"recall": {"min": 0.5}})
    assert classes(actual) == ["ExampleCount", "Recall", "BinaryDiagnostics"]


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
    for metric in METRICS.values():
        assert (metric.tfma_class in known or hasattr(tf_keras.metrics, metric.tfma_class)) is not bool(metric.module)
    assert set(RATES.values()) < set(known)
