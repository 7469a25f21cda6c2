"""Intervals are read from TFMA's results, whether our Evaluator or a stock Evaluator has written them."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
import tensorflow as tf
from tensorflow_model_analysis.proto import metrics_for_slice_pb2 as protos
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples

from components.base.errors import MachineError
from components.data.examples import ParquetWriter
from components.evaluator import executor, tfma_results
from components.evaluator.verdict import Measured, SliceMetrics


def number(value: float) -> protos.MetricValue:
    return protos.MetricValue(double_value={"value": value})


def test_interval_is_read_separately_from_its_metric(tmp_path: Path) -> None:
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


def test_evaluation_without_metrics_is_an_error(tmp_path: Path) -> None:
    def read_metrics(rows: int) -> Measured:
        examples = Examples()
        examples.uri, examples.split_names = str(tmp_path), artifact_utils.encode_split_names(["eval"])
        examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_PARQUET)
        (tmp_path / "Split-eval").mkdir(exist_ok=True)
        x = pa.array([[1.0]] * rows, pa.large_list(pa.float32()))
        writer = ParquetWriter(str(tmp_path / "Split-eval" / "data.parquet"), pa.schema({"x": x.type}))
        if rows:
            writer.write(pa.RecordBatch.from_arrays([x], ["x"]))
        writer.close()
        return executor._read_metrics(str(tmp_path), examples, has_baseline=False)

    for file in (None, tmp_path / "metrics-00000-of-00001.tfrecord"):
        if file:
            tf.io.TFRecordWriter(str(file)).close()
        with pytest.raises(MachineError, match=r"expected TFMA's metrics of the split eval in .*, received none"):
            read_metrics(rows=2)
    # An empty split is not an error here; the gate rejects it because it does not contain rows.
    assert read_metrics(rows=0) == Measured(SliceMetrics({}, 0, {}, {}), (), compared=False)
