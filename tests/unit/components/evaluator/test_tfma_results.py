"""Intervals as TFMA writes them, ours and those of a stock Evaluator that computes them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow_model_analysis.proto import metrics_for_slice_pb2 as protos

from components.errors import MachineError
from components.evaluator import executor, tfma_results


def number(value: float) -> protos.MetricValue:
    return protos.MetricValue(double_value={"value": value})


def test_interval_is_read_beside_its_metric_and_not_as_one(tmp_path: Path) -> None:
    record = protos.MetricsForSlice()
    actual = record.metric_keys_and_values
    for name, ends in {"auc": (0.5, 0.9), "loss": (0.5, math.nan), "example_count": (3.0, 5.0)}.items():
        interval = {"lower_bound": number(ends[0]), "upper_bound": number(ends[1])}
        for model in ("candidate", "baseline"):
            actual.add(key={"name": name, "model_name": model}, value=number(4.0), confidence_interval=interval)
    ends = {"value": {"value": 2.0}, "lower_bound": {"value": 1.0}, "upper_bound": {"value": 3.0}}
    actual.add(key={"name": "bounded"}, value=protos.MetricValue(bounded_value=ends))
    actual.add(key={"name": "alone"}, value=number(1.0))
    with tf.io.TFRecordWriter(str(tmp_path / "metrics-00000-of-00001.tfrecord")) as writer:
        writer.write(record.SerializeToString())
    [result] = tfma_results.read(str(tmp_path))
    assert result.rows == 4
    assert result.metrics == {"auc": 4.0, "loss": 4.0, "bounded": 2.0, "alone": 1.0}
    assert result.intervals == {"auc": (0.5, 0.9), "bounded": (1.0, 3.0)}
    assert result.baseline == {"auc": 4.0, "loss": 4.0}


def test_evaluation_without_metrics_gives_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"expected TFMA's metrics in .*, received no file"):
        executor._measurements(str(tmp_path))
    # An empty split has a file without records: the gate judges it as a split without rows.
    tf.io.TFRecordWriter(str(tmp_path / "metrics-00000-of-00001.tfrecord")).close()
    assert executor._measurements(str(tmp_path)) == []
