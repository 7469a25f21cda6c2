"""Columnar counterparts of TFMA's combiners: the same results, from arrays of rows instead of one row at a time.

A counterpart assigns each row to a bin, with numbers to sum over the rows of a bin; all of its results are functions of
these sums. So one accumulator serves all metrics, and sums of parts of the data add up.

The parameters of TFMA's combiners are private attributes. Checked with TFMA 0.47 and 0.52.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from tensorflow_model_analysis.contrib.aggregates import binary_confusion_matrices as matrix_aggregates
from tensorflow_model_analysis.metrics import (
    binary_confusion_matrices,
    calibration_histogram,
    cross_entropy_metrics,
    example_count,
    mean_regression_error,
    metric_types,
    multi_class_confusion_matrix_metrics,
    tf_metric_wrapper,
)

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[Any]
"""Labels or predictions of a model, in its own type."""
Binned: TypeAlias = tuple[Ints, Floats]
"""The bin of each row, [rows], or several bins that it counts in, [rows, bins]; and its summands, [rows, sums]."""

LEAST_PROBABILITY = 1e-7
"""Smallest probability of the label in a crossentropy, as in tf_keras."""
DROPPED = np.iinfo(np.int64).min
"""The bin of rows that do not count."""


class Sums(NamedTuple):
    """The sums of some rows.

    Attributes:
      bins: the bins that have rows, ascending; [bins].
      rows: number of rows, or the sum of their weights; [bins].
      sums: sums of the summands, weighted likewise; [bins, sums].
    """

    bins: Ints
    rows: Floats
    sums: Floats

    def total(self) -> tuple[float, Floats]:
        """Return the number of rows that count, and the sums over all of them."""
        counted = self.bins != DROPPED
        return float(self.rows[counted].sum()), self.sums[counted].sum(axis=0)


class Columnar(Protocol):
    """What a metric computes from arrays.

    Attributes:
      output: the output of the model that it reads instead of the prediction; empty: the prediction.
      power: the power of the rows' weights that its sums are weighted by; 0: rows of a weight above 0 count.
      ordered: whether its bins are those of `ordered_bins`, of which a slice has a limited number.
    """

    @property
    def output(self) -> str: ...  # noqa: D102

    @property
    def power(self) -> int: ...  # noqa: D102

    @property
    def ordered(self) -> bool: ...  # noqa: D102

    def bins(self, labels: Numbers, predictions: Numbers) -> Binned:
        """Return bins and summands of rows.

        Args:
          labels: one for each row; [rows].
          predictions: [rows], or [rows, classes].
        """

    def result(self, sums: Sums) -> dict[Any, Any]:
        """Return what the combiner's extract_output returns for these rows."""


class _Counterpart(NamedTuple):
    bins: Callable[[Numbers, Numbers], Binned]
    result: Callable[[Sums], dict[Any, Any]]
    output: str = ""
    power: int = 1
    ordered: bool = False


def model_of(computation: metric_types.MetricComputation) -> str:
    """Return the name of the model whose labels and predictions a computation reads."""
    return str(computation.keys[0].model_name or "")


def counterpart(computation: metric_types.MetricComputation) -> Columnar | None:
    """Return the columnar counterpart of a computation's combiner; None if there is none."""
    key, combiner = computation.keys[0], computation.combiner
    parts = key.sub_key or key.aggregation_type or getattr(combiner, "_class_weights", None)
    if len(computation.keys) > 1 or parts or key.output_name:
        return None
    make = _COUNTERPARTS.get(type(combiner))
    return make(key, combiner) if make else None


def is_weighted(computation: metric_types.MetricComputation) -> bool:
    """Whether a computation reads the weights of the rows."""
    return bool(computation.keys[0].example_weighted)


def in_one_bin(*summands: Numbers) -> Binned:
    """Return rows that are all in bin 0, except those of which a summand is NaN."""
    values = np.stack([np.asarray(each, np.float64) for each in summands], axis=1)
    dropped = np.isnan(values).any(axis=1)
    return np.where(dropped, DROPPED, 0), np.where(dropped[:, np.newaxis], 0.0, values)


def _example_count(key: Any, _: Any) -> Columnar:
    def bins(labels: Numbers, _: Numbers) -> Binned:
        return np.zeros(len(labels), np.int64), np.empty((len(labels), 0))

    return _Counterpart(bins, lambda sums: {key: sums.total()[0]})


def _histogram(key: Any, combiner: Any) -> Columnar | None:
    if not (combiner._prediction_based_bucketing and combiner._fractional_labels):
        return None
    count = combiner._num_buckets

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        labels, predictions = probabilities(labels), finite(predictions)
        bucket = (predictions - combiner._left) / combiner._range * count + 1
        inside = np.clip(bucket, 0, count + 1).astype(np.int64)
        return inside, np.stack([labels, predictions], axis=1)

    def result(sums: Sums) -> dict[Any, Any]:
        columns = zip(sums.bins.tolist(), *sums.sums.T.tolist(), sums.rows.tolist(), strict=True)
        return {key: [calibration_histogram.Bucket(*bucket) for bucket in columns]}

    return _Counterpart(bins, result)


def _confusion_matrix(key: Any, combiner: Any) -> Columnar | None:
    if combiner._example_id_key or not combiner._enable_fractional_labels:
        return None
    thresholds = combiner._binary_confusion_matrices._thresholds
    # In the type of predictions: 0.7 is greater than the float32 nearest to it.
    ascending = np.sort(np.asarray(thresholds, np.float32))

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        # TFMA counts predictions above a threshold, the config promises those of at least the threshold: see `at_least`
        # in components/evaluator/eval_config.
        reached = np.searchsorted(ascending, finite(predictions).astype(np.float32), side="right")
        return reached.astype(np.int64), probabilities(labels)[:, np.newaxis]

    def result(sums: Sums) -> dict[Any, Any]:
        positives, negatives = sums.sums[:, 0], sums.rows - sums.sums[:, 0]
        entries = {}
        for threshold in thresholds:
            above = sums.bins > np.searchsorted(ascending, np.float32(threshold))
            true_positives, false_positives = (float(each[above].sum()) for each in (positives, negatives))
            matrix = matrix_aggregates.Matrix(
                tp=true_positives,
                tn=float(negatives.sum()) - false_positives,
                fp=false_positives,
                fn=float(positives.sum()) - true_positives,
            )
            entries[threshold] = matrix_aggregates._ThresholdEntry(matrix, [], [], [], [])
        return {key: entries}

    return _Counterpart(bins, result)


def _binary_crossentropy(key: Any, combiner: Any) -> Columnar | None:
    if combiner._from_logits or combiner._label_smoothing:
        return None

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        labels, predictions = labels.astype(np.float64), predictions.astype(np.float64)
        # With TFMA the loss of a certain prediction is NaN or infinite, and so is the mean of all rows.
        clipped = np.clip(predictions, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        losses = -labels * np.log(clipped) - (1 - labels) * np.log1p(-clipped)
        return _keeping_nan(np.where((predictions < 0) | (predictions > 1), np.nan, losses))

    return _Counterpart(bins, lambda sums: {key: mean(sums)})


def _mean_error(key: Any, combiner: Any) -> Columnar:
    error = _ERRORS[type(combiner)]

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        return in_one_bin(error(labels, predictions))

    return _Counterpart(bins, lambda sums: {key: mean(sums)})


def _class_confusion(key: Any, combiner: Any) -> Columnar | None:
    if len(combiner._thresholds) != 1:
        return None
    [threshold] = combiner._thresholds
    none = multi_class_confusion_matrix_metrics.NO_PREDICTED_CLASS_ID

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        best = predictions.argmax(axis=1)
        chosen = np.where(predictions[np.arange(len(best)), best] > threshold, best, none)
        return labels.astype(np.int64) * _CLASSES + chosen - none, np.empty((len(labels), 0))

    def result(sums: Sums) -> dict[Any, Any]:
        labels, chosen = np.divmod(sums.bins, _CLASSES)
        matrix = {
            multi_class_confusion_matrix_metrics.MatrixEntryKey(*cell): rows
            for *cell, rows in zip(labels.tolist(), (chosen + none).tolist(), sums.rows.tolist(), strict=True)
        }
        return {key: multi_class_confusion_matrix_metrics.Matrices({threshold: matrix})}

    return _Counterpart(bins, result)


def _keras(key: Any, combiner: Any) -> Columnar | None:
    """Return the counterpart of a metric of tf_keras; TFMA puts all of them into one combiner."""
    [configs], [losses] = combiner._metric_configs or [[]], combiner._loss_configs or [[]]
    if losses or len(configs) != 1 or configs[0]["class_name"] != "SparseCategoricalAccuracy":
        return None

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        return in_one_bin(predictions.argmax(axis=1) == labels)

    return _Counterpart(bins, lambda sums: {key: mean(sums)})


def mean(sums: Sums) -> float:
    """Return the mean of the only summand; NaN without rows."""
    rows, totals = sums.total()
    return float(totals[0]) / rows if rows else float("nan")


def probabilities(labels: Numbers) -> Floats:
    """Return labels as floats.

    Raises:
      ValueError: a label is not in [0, 1], as for TFMA's metrics of a binary task.
    """
    received: Floats = labels.astype(np.float64)
    wrong = ~((received >= 0) & (received <= 1))
    if wrong.any():
        raise ValueError(f"label: expected a number from 0 to 1, received {received[wrong][0]}; change data.label")
    return received


def finite(predictions: Numbers) -> Floats:
    """Return predictions as floats.

    Raises:
      ValueError: a prediction is NaN; TFMA cannot count it either.
    """
    received: Floats = predictions.astype(np.float64)
    if np.isnan(received).any():
        raise ValueError("prediction: expected a number, received NaN; train with a smaller training.learning_rate")
    return received


def _keeping_nan(summand: Floats) -> Binned:
    return np.zeros(len(summand), np.int64), summand[:, np.newaxis]


def _percentage_error(labels: Numbers, predictions: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(labels == 0, np.nan, 100 * np.abs((labels - predictions) / labels))


def _logarithmic_error(labels: Numbers, predictions: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return (np.log(labels + 1) - np.log(predictions + 1)).astype(np.float64) ** 2


_ERRORS: dict[type, Callable[[Numbers, Numbers], Numbers]] = {
    mean_regression_error._MeanAbsoluteErrorCombiner: lambda labels, predictions: np.abs(labels - predictions),
    # The difference has the type of label and prediction, its square is a Python float.
    mean_regression_error._MeanSquaredErrorCombiner: lambda labels, predictions: np.square(
        (labels - predictions).astype(np.float64)
    ),
    mean_regression_error._MeanAbsolutePercentageErrorCombiner: _percentage_error,
    mean_regression_error._MeanSquaredLogarithmicErrorCombiner: _logarithmic_error,
}
_COUNTERPARTS: dict[type, Callable[[Any, Any], Columnar | None]] = {
    example_count._ExampleCountCombiner: _example_count,
    calibration_histogram._CalibrationHistogramCombiner: _histogram,
    binary_confusion_matrices._BinaryConfusionMatrixCombiner: _confusion_matrix,
    cross_entropy_metrics._BinaryCrossEntropyCombiner: _binary_crossentropy,
    multi_class_confusion_matrix_metrics._MultiClassConfusionMatrixCombiner: _class_confusion,
    tf_metric_wrapper._CompilableMetricsCombiner: _keras,
    **dict.fromkeys(_ERRORS, _mean_error),
}
_CLASSES = 1 << 32
"""More than a task has classes."""
