"""The config's metrics, slices and thresholds, as TFMA gets them."""

from __future__ import annotations

import tensorflow_model_analysis as tfma

from components.evaluator.component import eval_config
from components.evaluator.config import METRICS, EvaluationConfig


def config(**fields: object) -> tfma.EvalConfig:
    section = EvaluationConfig.model_validate(fields)
    return eval_config(section, "binary", "label", ("transform_labels",), "probability")


def test_metrics_default_to_the_task_and_include_every_threshold() -> None:
    told = config(thresholds={"recall": {"min": 0.5}})
    names = [metric.class_name for spec in told.metrics_specs for metric in spec.metrics]
    assert names == ["ExampleCount", "AUC", "AUCPrecisionRecall", "BinaryAccuracy", "BinaryCrossEntropy", "Recall"]


def test_a_metric_is_called_as_in_the_config() -> None:
    section = EvaluationConfig.model_validate({"thresholds": {"accuracy": {"min": 0.5}}})
    told = eval_config(section, "multiclass", "label", (), "probabilities")
    measured = tfma.metrics.metric_specs.metric_thresholds_from_metrics_specs(told.metrics_specs, eval_config=told)
    assert {key.name for key in measured} == {"accuracy"}


def test_a_threshold_holds_for_the_whole_split_and_knows_which_way_is_better() -> None:
    told = config(
        metrics=["auc"],
        slices=["hour", ["hour", "day"]],
        thresholds={"auc": {"min": 0.9, "worse_by": 0.01}, "binary_crossentropy": {"max": 0.4, "worse_by": 0.02}},
    )
    assert [list(spec.feature_keys) for spec in told.slicing_specs] == [[], ["hour"], ["hour", "day"]]
    metrics = {metric.class_name: metric for spec in told.metrics_specs for metric in spec.metrics}
    (auc,) = metrics["AUC"].per_slice_thresholds
    assert [list(spec.feature_keys) for spec in auc.slicing_specs] == [[]]
    assert auc.threshold.value_threshold.lower_bound.value == 0.9
    assert auc.threshold.change_threshold.absolute.value == -0.01
    assert auc.threshold.change_threshold.direction == tfma.MetricDirection.HIGHER_IS_BETTER
    (loss,) = metrics["BinaryCrossEntropy"].per_slice_thresholds
    assert loss.threshold.value_threshold.upper_bound.value == 0.4
    assert loss.threshold.change_threshold.absolute.value == 0.02
    assert loss.threshold.change_threshold.direction == tfma.MetricDirection.LOWER_IS_BETTER


def test_every_metric_is_one_that_tfma_knows() -> None:
    known = tfma.metrics.metric_types.registered_metrics()
    import tf_keras

    for metric in METRICS.values():
        assert metric.tfma_class in known or hasattr(tf_keras.metrics, metric.tfma_class)
