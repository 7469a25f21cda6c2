"""What the Evaluator saw of some rows: its own extractors, its own config, over the run's examples; a program.

    python evaluator_side.py RUN_OUTPUT ROWS > seen.json

seen: `examples` (serialized, base64), `columns` (column → value per row, None where it is missing), `predictions` and
`labels`, in the same order. Rows with a missing value come first.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import apache_beam as beam
import tensorflow as tf
import tensorflow_model_analysis as tfma
from apache_beam.options.pipeline_options import PipelineOptions
from google.protobuf import json_format
from tfx_bsl.public import tfxio


def main(run_output: Path, count: int) -> dict[str, Any]:
    """Takes some rows of the eval split through TFMA's extractors, as the Evaluator does it."""
    artifacts = run_output / "artifacts"
    rows = _rows(_only(artifacts / "ExampleGen/examples"), count)
    model = str(_only(artifacts / "Trainer/model") / "Format-Serving")
    evaluation = str(_only(artifacts / "Evaluator/evaluation"))
    config = tfma.load_eval_result(evaluation).config
    shared = tfma.default_eval_shared_model(eval_saved_model_path=model, eval_config=config)
    seen = _extract(rows, config, shared)
    return {
        "examples": [base64.b64encode(row).decode() for row in rows],
        "columns": _columns(rows),
        "predictions": [seen[row][0] for row in rows],
        "labels": [seen[row][1] for row in rows],
    }


def _only(folder: Path) -> Path:
    """The one artifact that a node made of a kind."""
    [artifact] = folder.iterdir()
    return artifact


def _rows(examples: Path, count: int) -> list[bytes]:
    """Serialized examples of the eval split, the ones with fewest values first; in the order of the files else."""
    files = sorted(str(path) for path in (examples / "Split-eval").iterdir())
    records = [record.numpy() for record in tf.data.TFRecordDataset(files, compression_type="GZIP").take(2000)]
    half = count // 2
    poor = sorted(range(len(records)), key=lambda at: len(_values(records[at])))[:half]
    full = [at for at in range(len(records)) if at not in poor][: count - half]
    return [records[at] for at in [*poor, *full]]


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


def _extract(rows: list[bytes], config: Any, shared: Any) -> dict[bytes, tuple[float, float]]:
    """Serialized example → (prediction, label), as the metrics get them."""
    found: dict[bytes, tuple[float, float]] = {}

    def collect(extracts: dict[str, Any]) -> None:
        rows = [row[0] for row in extracts[tfma.INPUT_KEY].tolist()] if extracts[tfma.INPUT_KEY].ndim > 1 else list(
            extracts[tfma.INPUT_KEY]
        )
        predictions = extracts[tfma.PREDICTIONS_KEY].reshape(-1).tolist()
        labels = extracts[tfma.LABELS_KEY].reshape(-1).tolist()
        found.update(zip(rows, zip(predictions, labels, strict=True), strict=True))

    source = tfxio.TFExampleBeamRecord(
        physical_format="inmem", telemetry_descriptors=["test"], raw_record_column_name=tfma.ARROW_INPUT_COLUMN
    )
    options = PipelineOptions(["--direct_running_mode=in_memory"])
    runner = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
    with beam.Pipeline(runner, options=options) as pipeline:
        batches = pipeline | beam.Create(rows) | source.BeamSource() | tfma.BatchedInputsToExtracts()
        for extractor in tfma.default_extractors(eval_config=config, eval_shared_model=shared):
            batches = batches | extractor.stage_name >> extractor.ptransform
        _ = batches | beam.Map(collect)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))) + "\n")
