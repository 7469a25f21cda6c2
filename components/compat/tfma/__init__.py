"""Undocumented parts of TensorFlow Model Analysis (TFMA) that the metrics of this project use.

Checked with TFMA 0.47 and 0.52.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import calibration_plot, metric_types, metric_util
from tensorflow_model_analysis.slicer import slicer_lib

PREDICTIONS_PLOT: str = calibration_plot.CALIBRATION_PLOT_NAME
"""TFMA's name for the plot of labels by prediction, which TFMA's readers look for."""


def interval_computation(
    key: tfma.metrics.MetricKey, result: Callable[[Mapping[Any, Any]], dict[Any, Any]]
) -> metric_types.CIDerivedMetricComputation:
    """Return a computation that runs after all other computations, including the differences to a baseline.

    Differences can be computed between numbers, but not between values with intervals. TFMA therefore also computes the
    intervals of its metrics last, but it does not export the class for this.

    Args:
      key: Key of the computation.
      result: Function from the metrics of a slice to the metrics that replace them.
    """
    return metric_types.CIDerivedMetricComputation([key], result)


def with_output(eval_config: tfma.EvalConfig | None, output: str) -> tfma.EvalConfig | None:
    """Return a config that makes TFMA read the prediction from an output of the models. None stays None."""
    if eval_config is None:
        return None
    changed = tfma.EvalConfig()
    changed.CopyFrom(eval_config)
    for spec in changed.model_specs:
        spec.prediction_key = output
    return changed


def has_output(inputs: Any, model_name: str, output: str) -> bool:
    """Return whether a model has an output with this name. TFMA raises an error if it reads a missing output.

    Args:
      inputs: Input of a combiner, of type StandardMetricInputs.
      model_name: Name of the model; empty for the only model.
      output: Name of the output.
    """
    outputs = inputs.prediction[model_name] if model_name else inputs.prediction
    return isinstance(outputs, Mapping) and output in outputs


def label_prediction_weight(
    inputs: Any, eval_config: tfma.EvalConfig | None, **key: Any
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]]:
    """Yield the label, prediction and weight of an example as TFMA's metrics read them.

    Args:
      inputs: Input of a combiner, of type StandardMetricInputs.
      eval_config: TFMA's config.
      key: The arguments `model_name`, `output_name` and `example_weighted` of the metric.
    """
    for label, prediction, weight in metric_util.to_label_prediction_example_weight(
        inputs, eval_config=eval_config, flatten=False, **key
    ):
        yield np.asarray(label), np.asarray(prediction), np.asarray(weight)


def private(name: str) -> str:
    """Return the name of a private metric. Other computations can read it, but it is not written to files."""
    return f"_{name}"


def slice_value(text: str) -> str | int | float:
    """Convert a value of a SlicingSpec to the type that TFMA compares with a column. Digits become a number."""
    value: str | int | float = slicer_lib._to_type(text)
    return value
