"""Writes small evaluations with TFMA itself, as a stock Evaluator does, and reads them back, in a child."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.records import RunSummary

# Label, prediction, hour: the hours differ in how good the predictions are.
ROWS = [(0, 0.1, 1), (1, 0.9, 1), (0, 0.2, 1), (1, 0.8, 1), (0, 0.6, 2), (1, 0.4, 2), (0, 0.3, 2), (1, 0.7, 2)]


def write_evaluation(folder: Path) -> None:
    """Evaluate ROWS, overall and by hour, with a baseline that is always wrong; write TFMA's files."""
    import tensorflow as tf
    import tensorflow_model_analysis as tfma
    from apache_beam.options.pipeline_options import PipelineOptions
    from tensorflow_model_analysis.proto import config_pb2

    def example(label: float, prediction: float, hour: int) -> bytes:
        values = {"label": float(label), "prediction": prediction, "wrong": 1.0 - label}
        features = {
            key: tf.train.Feature(float_list=tf.train.FloatList(value=[value])) for key, value in values.items()
        }
        features["hour"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[hour]))
        return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())

    metrics = [config_pb2.MetricConfig(class_name=name) for name in ("BinaryAccuracy", "ExampleCount")]
    specs = [
        config_pb2.ModelSpec(name="candidate", label_key="label", prediction_key="prediction"),
        config_pb2.ModelSpec(name="baseline", label_key="label", prediction_key="wrong", is_baseline=True),
    ]
    config = config_pb2.EvalConfig(
        model_specs=specs,
        slicing_specs=[config_pb2.SlicingSpec(), config_pb2.SlicingSpec(feature_keys=["hour"])],
        metrics_specs=[config_pb2.MetricsSpec(metrics=metrics)],
    )
    records = folder.with_suffix(".tfrecord")
    with tf.io.TFRecordWriter(str(records)) as writer:
        for row in ROWS:
            writer.write(example(*row))
    tfma.run_model_analysis(
        eval_config=config,
        data_location=str(records),
        output_path=str(folder),
        pipeline_options=PipelineOptions(["--direct_running_mode=in_memory"]),
    )


def write_statistics(folder: Path, rows: dict[str, int]) -> None:
    """Write statistics that contain only the number of rows per split."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    for split, count in rows.items():
        (folder / f"Split-{split}").mkdir(parents=True)
        statistics = statistics_pb2.DatasetFeatureStatisticsList()
        statistics.datasets.add(num_examples=count)
        (folder / f"Split-{split}" / "FeatureStats.pb").write_bytes(statistics.SerializeToString())


def read_facts(store: Path, run: str) -> RunSummary:
    """Return the facts of a run in an SQLite store."""
    from pipeline.core.metadata.store import Store
    from pipeline.inspection.run_summary import summarize

    return summarize(Store(store), run)
