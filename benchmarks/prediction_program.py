"""Run a side of the benchmark of batch prediction: import, do the work and print the measurement.

python -m benchmarks.prediction_program SIDE MODEL ROWS OUTPUT

| side | ROWS | what it does |
|---|---|---|
| `ours` | Parquet or CSV | the work of `runner.py predict` after its imports, in one process |
| `model` | Parquet | the model's computation: its signature `raw` on prepared tensors of 8,192 rows |
| `bulk-inferrer` | a folder of TFRecords of tf.Examples | the executor of TFX's BulkInferrer |
| `loop` | CSV | csv.DictReader, a tf.Example for each row, `serving_default` 1,000 rows at a time, csv.writer |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import measure

_ROWS = 8192
_LOOP_ROWS = 1000


def main(side: str, model: str, rows: Path, output: Path) -> None:
    """Do the work of a side, and print the measurement as one line of JSON."""
    from components.compat.tensorflow import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    # These functions import and prepare before the measurement begins.
    prepare: dict[str, Callable[[], Callable[[], object]]] = {
        "ours": lambda: _ours(model, rows, output),
        "model": lambda: _model(model, rows),
        "bulk-inferrer": lambda: _bulk_inferrer(model, rows, output),
        "loop": lambda: _loop(model, rows, output),
    }
    measure.report(prepare[side]())


def _ours(model: str, rows: Path, output: Path) -> Callable[[], object]:
    from components.ingest.config import DataConfig
    from pipeline.authoring.config.runtime import RuntimeConfig
    from pipeline.orchestration import prediction

    data = DataConfig(path=(str(rows),), label="none")
    runtime = RuntimeConfig.model_validate({"direct": {"mode": "in_memory"}})
    return lambda: prediction.predict(model, {}, data, runtime, str(output))


def tensors(model: str, rows: Path) -> Iterator[dict[str, Any]]:
    """Yield the inputs of the signature `raw` for rows in Parquet, 8,192 at a time, as NumPy arrays by name."""
    from pyarrow import parquet

    from components.data import saved_model
    from components.data.examples import to_lists
    from components.ingest.column_types import KINDS, ColumnConverter
    from components.predictor import model_interface

    interface = model_interface.read(model)
    specs = saved_model.load(model)["raw"].inputs
    kinds = {name: KINDS[type_] for name, type_ in (interface.columns or {}).items()}
    with parquet.ParquetFile(rows) as file:
        for batch in file.iter_batches(_ROWS, columns=list(specs)):
            converted, _ = ColumnConverter({}, kinds, None).convert(batch)
            # The trips have one value per row, and no value that stands for a missing value.
            yield dict(saved_model.raw_columns(to_lists(converted), specs) or {})


def _model(model: str, rows: Path) -> Callable[[], object]:
    import tensorflow as tf

    loaded = tf.saved_model.load(model)
    signature = loaded.signatures["raw"]
    batches = [{name: tf.constant(values) for name, values in batch.items()} for batch in tensors(model, rows)]
    signature(**batches[0])
    return lambda: [signature(**batch) for batch in batches]


def _bulk_inferrer(model: str, rows: Path, output: Path) -> Callable[[], object]:
    from tfx.components.bulk_inferrer.executor import Executor
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.proto import bulk_inferrer_pb2
    from tfx.types import standard_artifacts
    from tfx.utils import proto_utils

    from pipeline.authoring.config.runtime import RuntimeConfig
    from pipeline.orchestration.engines import beam_args

    examples, trained, result = (
        standard_artifacts.Examples(),
        standard_artifacts.Model(),
        standard_artifacts.InferenceResult(),
    )
    examples.uri, examples.split_names = str(rows), '["train", "eval"]'
    # TFX looks for the SavedModel in a folder of this name.
    (output.parent / "Format-Serving").symlink_to(model)
    trained.uri, result.uri = str(output.parent), str(output)
    context = BaseBeamExecutor.Context(
        beam_pipeline_args=beam_args(RuntimeConfig()), tmp_dir=str(output) + "-tmp", unique_id="1"
    )
    properties = {
        "model_spec": proto_utils.proto_to_json(bulk_inferrer_pb2.ModelSpec(model_signature_name=["serving_default"])),
        "data_spec": proto_utils.proto_to_json(bulk_inferrer_pb2.DataSpec()),
    }
    return lambda: Executor(context).Do(
        {"examples": [examples], "model": [trained]}, {"inference_result": [result]}, properties
    )


def _loop(model: str, rows: Path, output: Path) -> Callable[[], object]:
    import csv

    import tensorflow as tf

    loaded = tf.saved_model.load(model)
    signature, specs = loaded.signatures["serving_default"], loaded.signatures["raw"].structured_input_signature[1]

    def example(row: dict[str, str]) -> bytes:
        features = {}
        for name, spec in specs.items():
            if text := row[name]:
                if spec.dtype == tf.string:
                    features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
                elif spec.dtype == tf.int64:
                    features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(float(text))]))
                else:
                    features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[float(text)]))
        return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())

    def work() -> None:
        with rows.open(newline="") as source, output.open("w", newline="") as target:
            writer, pending = csv.writer(target), []
            for row in csv.DictReader(source):
                pending.append(example(row))
                if len(pending) == _LOOP_ROWS:
                    writer.writerows(signature(examples=tf.constant(pending))["probability"].numpy())
                    pending.clear()
            if pending:
                writer.writerows(signature(examples=tf.constant(pending))["probability"].numpy())

    return work


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
