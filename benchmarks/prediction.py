"""Compare batch prediction of taxi trips with the model's computation, TFX's BulkInferrer and a loop over rows.

    python -m benchmarks.prediction                    1,000,000 trips; about six minutes
    python -m benchmarks.prediction --rows 100_000     any other number

The trips are simulated, and the model is trained by configs/taxi.yaml in one process. Each side is a process, and its
figures do not include imports. Slow sides predict a tenth of the trips. At the end, the predictions are compared with
the responses of the model server for the same rows.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import grpc
import numpy as np
import pyarrow as pa
import tensorflow as tf
from pyarrow import parquet
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from benchmarks import measure
from benchmarks.measure import Facts, Measurement
from benchmarks.prediction_program import tensors
from data import taxi
from data.output import positive

ROWS = 1_000_000
_SHARE = 10
"""Slow sides predict one row of this number of rows."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=positive, default=ROWS, help="number of trips")
    parser.add_argument("--rounds", type=positive, default=3)
    options = parser.parse_args(arguments)
    few = max(options.rows // _SHARE, 1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        settings = ("--set", "training.strategy.kind=none", "--set", "serving.check=none", "--json")
        model = json.loads(measure.run_taxi(folder, *settings).read_text().splitlines()[-1])["pushed"]
        trips = {
            name: _trips(folder / name, rows)
            for name, rows in (
                ("all.parquet", options.rows),
                ("all.csv", options.rows),
                ("few.csv", few),
                ("few.parquet", few),
            )
        }
        examples = _examples(folder, few)
        sides = {
            "ours, Parquet": ("ours", trips["all.parquet"], options.rows),
            "ours, CSV": ("ours", trips["all.csv"], options.rows),
            "ours, Parquet, a tenth": ("ours", trips["few.parquet"], few),
            "model alone": ("model", trips["all.parquet"], options.rows),
            "BulkInferrer, TFRecords, a tenth": ("bulk-inferrer", examples, few),
            "loop over rows, CSV, a tenth": ("loop", trips["few.csv"], few),
        }

        def run(name: str, number: int) -> Measurement:
            side, rows, count = sides[name]
            output = folder / f"{name.replace(' ', '-')}-{number}" / "out"
            output.parent.mkdir()
            command = [sys.executable, "-m", "benchmarks.prediction_program", side, model, str(rows), str(output)]
            return measure.run(command, output.parent / "log", rows=count)

        measured = measure.in_turns({name: functools.partial(run, name) for name in sides}, options.rounds)
        alone, per_row = measured["model alone"], "work.cpu_per_row"
        facts: Facts = {
            f"CPU time, {name} / model alone": measure.ratio(measured[name], alone, per_row)
            for name in sides
            if name != "model alone"
        }
        facts["peak memory, all rows / a tenth"] = measure.ratio(
            measured["ours, Parquet"], measured["ours, Parquet, a tenth"], "work.peak_mb"
        )
        facts["largest difference to the server's answers"] = _difference(
            Path(model), trips["all.parquet"], folder / "ours,-Parquet-0" / "out"
        )
    command = " ".join(["python -m benchmarks.prediction", *(sys.argv[1:] if arguments is None else arguments)])
    print(measure.record("prediction", command, measured, facts))


def _trips(path: Path, rows: int) -> Path:
    subprocess.run([sys.executable, "-m", taxi.__name__, "--rows", str(rows), "--output", str(path)], check=True)
    return path


def _examples(folder: Path, rows: int) -> Path:
    """Write trips as TFRecords of tf.Examples for BulkInferrer; return their folder."""
    source, examples = _trips(folder / "examples.csv", rows), folder / "examples"
    examples.mkdir()
    command = [sys.executable, "-m", "benchmarks.ingest_program", "ours", str(source), str(examples)]
    measure.run(command, folder / "examples.log")
    return examples


def _difference(model: Path, rows: Path, predictions: Path) -> float:
    """Return the largest difference between the predictions and the responses of a model server over gRPC."""
    predicted = pa.concat_tables(map(parquet.read_table, sorted(predictions.glob("*.parquet"))))
    expected, at, largest = np.asarray(predicted.column("probability")), 0, 0.0
    command = [sys.executable, "runner.py", "serve", "--models", str(model.parent), "--grpc-port=0", "--rest-port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        log = []
        for line in server.stderr or ():
            log.append(line)
            if "is loaded" in line:
                break
        [address] = re.findall(r"gRPC at (\S+)", "".join(log))
        with grpc.insecure_channel(address) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for columns in tensors(str(model), rows):
                request = predict_pb2.PredictRequest()
                request.model_spec.name, request.model_spec.signature_name = "taxi", "raw"
                for name, values in columns.items():
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
                answer = tf.make_ndarray(stub.Predict(request).outputs["probability"])[:, 0]
                largest = max(largest, float(np.abs(answer - expected[at : at + len(answer)]).max()))
                at += len(answer)
        server.terminate()
    if at != len(expected):
        raise RuntimeError(f"expected {len(expected)} answers, received {at}")
    return largest


if __name__ == "__main__":
    main()
