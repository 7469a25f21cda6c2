"""Extracts from some rows of a run's examples what the Evaluator received, with the run's config and TFMA's extractors.

`main` returns `examples` (serialized, base64), `unlabelled` (the same without the label's column), `columns` (column →
value per row, None where it is missing), `predictions` and `labels`, in the same order. Half of the rows are those with
most values missing.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_model_analysis as tfma
from apache_beam.options.pipeline_options import PipelineOptions
from tfx_bsl.public import tfxio

from components.data.example_encoder import encode
from components.data.examples import Examples
from pipeline.core.metadata.store import Store


def main(output: Path, run: str, count: int, label_column: str) -> dict[str, Any]:
    """Pass some rows of the eval split through TFMA's extractors, as the run's Evaluator did."""
    store = Store(output / "metadata.db")
    uris = {kind: store.artifacts(run, kind)[0].uri for kind in ("Examples", "Model", "ModelEvaluation")}
    rows = _rows(Path(uris["Examples"]), count, label_column)
    config = tfma.load_eval_result(uris["ModelEvaluation"]).config
    shared = tfma.default_eval_shared_model(f"{uris['Model']}/Format-Serving", eval_config=config)
    seen = _extract(rows, config, shared)
    examples = [_text(row) for row in rows]
    return {
        "examples": examples,
        "unlabelled": [_text(_without(label_column, row)) for row in rows],
        "columns": _columns(rows),
        "predictions": [seen[row][0] for row in examples],
        "labels": [seen[row][1] for row in examples],
    }


def _rows(examples: Path, count: int, label_column: str) -> list[bytes]:
    """Return serialized examples of the eval split: those with fewest values, and some from the whole range of labels.

    They are sorted by content, because the serialized bytes of an example may differ from run to run.
    """
    files = tuple(sorted(str(path) for path in (examples / "Split-eval").iterdir()))
    records = [record for batch in Examples(files, "parquet").batches() for record in encode(batch).to_pylist()]
    known = {record: sorted(_values(record).items()) for record in records}
    records.sort(key=lambda record: (len(known[record]), repr(known[record])))
    poor, other_records = records[: count // 2], records[count // 2 :]
    other_records.sort(key=lambda record: dict(known[record])[label_column])
    return [*poor, *(other_records[int(at)] for at in np.linspace(0, len(other_records) - 1, count - len(poor)))]


def _without(column: str, record: bytes) -> bytes:
    example = tf.train.Example.FromString(record)
    del example.features.feature[column]
    return bytes(example.SerializeToString())


def _values(record: bytes) -> dict[str, Any]:
    values = {}
    for name, feature in tf.train.Example.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind and getattr(feature, kind).value:
            value = getattr(feature, kind).value[0]
            values[name] = value.decode() if isinstance(value, bytes) else value
    return values


def _columns(rows: list[bytes]) -> dict[str, list[Any]]:
    parsed = [_values(row) for row in rows]
    names = {name for row in rows for name in tf.train.Example.FromString(row).features.feature}
    return {name: [values.get(name) for values in parsed] for name in sorted(names)}


def _extract(rows: list[bytes], config: Any, shared: Any) -> dict[str, tuple[float, float]]:
    """Return serialized example (base64) → (prediction, label), as the metrics get them."""
    source = tfxio.TFExampleBeamRecord(
        physical_format="inmem", telemetry_descriptors=["test"], raw_record_column_name=tfma.ARROW_INPUT_COLUMN
    )
    runner = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
    options = PipelineOptions(["--direct_running_mode=in_memory"])
    with tempfile.TemporaryDirectory() as folder:
        with beam.Pipeline(runner, options=options) as pipeline:
            batches = pipeline | beam.Create(rows) | source.BeamSource() | tfma.BatchedInputsToExtracts()
            for extractor in tfma.default_extractors(eval_config=config, eval_shared_model=shared):
                batches = batches | extractor.stage_name >> extractor.ptransform
            # Workers can only return results through a file.
            _ = batches | beam.FlatMap(_lines) | beam.io.WriteToText(f"{folder}/seen")
        lines = [line for file in Path(folder).iterdir() for line in file.read_text().splitlines()]
    return {row: (prediction, label) for row, prediction, label in map(json.loads, lines)}


def _lines(extracts: dict[str, Any]) -> Iterator[str]:
    rows = extracts[tfma.INPUT_KEY].reshape(-1)
    predictions, labels = (extracts[key].reshape(-1) for key in (tfma.PREDICTIONS_KEY, tfma.LABELS_KEY))
    for row, prediction, label in zip(rows, predictions.tolist(), labels.tolist(), strict=True):
        yield json.dumps([_text(row), prediction, label])


def _text(row: bytes) -> str:
    return base64.b64encode(row).decode()
