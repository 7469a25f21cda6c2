"""The process that converts variants of a model to TensorFlow Lite, runs the files and measures their latency.

It is a separate process because the converter can abort it. The request contains:

    model        Folder of the full model, whose float32 file is the reference for latencies.
    signature    Name of the signature to convert.
    description  The fields of a ModelDescription, for the metadata of the files.
    folder       Folder with `eval.npz` and `train.npz`, the signature's inputs. The results are written to it.
    variants     A list of objects with `name`, `quantize`, `io`, `representative`, and `model`, the folder of the
                 variant.

A file accepts one row at a time, because an operation can be delegated to XNNPACK or an accelerator only if all its
shapes are known.

For every variant, the process writes `NAME.tflite`; `NAME.npy`, the predictions of the rows of eval.npz; and last
`NAME.json`, with `latencies` and `tensors`, or `error`. The float32 file of the full model is `reference.tflite`.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from components.base.errors import is_of_machine
from components.base.files import write_atomically
from components.compat.tensorflow import import_for_predictions
from components.edge import file_metadata
from components.edge.device_program import Columns, File, select_row
from components.edge.file_metadata import ModelDescription

_THREADS = (1, 2)
_WARM_UP, _PAIRS = 50, 500
_OPERATION = re.compile(r"(?:'|^\s*)(tfl?\.[A-Z]\w+)(?:'|\(tensor)", re.MULTILINE)
REFERENCE = "reference"


def load() -> Callable[[dict[str, Any]], None]:
    """Import TensorFlow, and return the function that handles the request."""
    # Hide accelerators, because TensorFlow Lite's files run on a CPU.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import_for_predictions()
    return main


def main(request: dict[str, Any]) -> None:
    """Convert, run and measure the variants of a request; see the module's docstring."""
    folder = Path(request["folder"])
    rows, representative = (_load_columns(folder / name) for name in ("eval.npz", "train.npz"))
    reference = folder / f"{REFERENCE}.tflite"
    description = ModelDescription.from_dict(request["description"])
    for variant in request["variants"]:
        name = variant["name"]
        try:
            if not reference.exists():
                full = {"quantize": "none", "io": "float32", "model": request["model"]}
                reference.write_bytes(_convert(full, request["signature"], representative))
            content = _convert(variant, request["signature"], representative)
            content = file_metadata.add(content, description, name)
            (folder / f"{name}.tflite").write_bytes(content)
            np.save(folder / f"{name}.npy", File(content, max(_THREADS)).predict_rows(rows))
            result: dict[str, Any] = {
                "tensors": File(content, 1).describe_tensors(),
                "latencies": [_measure_latency(content, reference.read_bytes(), rows, threads) for threads in _THREADS],
            }
        except (MemoryError, OSError):
            # The machine is short of memory or disk space: this is not a property of the variant.
            raise
        except Exception as error:
            # TensorFlow's error for too little memory is not a MemoryError.
            if is_of_machine(f"{type(error).__name__}: {error}"):
                raise
            result = {"error": summarize_error(str(error))}
        write_atomically(folder / f"{name}.json", json.dumps(result))


def summarize_error(text: str) -> str:
    """Shorten an error of the converter or the interpreter to one line: the operations in it, and its last line.

    Args:
      text: Message of an exception, or the standard error stream of an aborted process.
    """
    operations = ", ".join(dict.fromkeys(_OPERATION.findall(text)))
    last = next(iter(reversed(text.strip().splitlines())), "no message").strip()[:200]
    if _OPERATION.search(last):
        return operations
    return f"{operations}: {last}" if operations else last


def _load_columns(path: Path) -> Columns:
    with np.load(path) as file:
        return dict(file)


def _convert(variant: Mapping[str, Any], signature: str, representative: Columns) -> bytes:
    """Convert a signature of a variant's model, and return the content of the file."""
    import tensorflow as tf

    model = tf.saved_model.load(variant["model"])
    function = model.signatures[signature]
    specs = function.structured_input_signature[1]
    one_row = {name: tf.TensorSpec([1, *spec.shape[1:]], spec.dtype, name=name) for name, spec in specs.items()}
    predict = tf.function(lambda **row: function(**row), autograph=False).get_concrete_function(**one_row)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([predict], model)
    quantize = variant["quantize"]
    if quantize != "none":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if quantize in ("int8", "int16x8"):
        ops = tf.lite.OpsSet
        # Exclude the float operations, so that an operation that cannot be quantized is an error that names it.
        converter.target_spec.supported_ops = [
            ops.TFLITE_BUILTINS_INT8
            if quantize == "int8"
            else ops.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        ]
        converter.inference_input_type = converter.inference_output_type = tf.as_dtype(variant["io"])
        count = min(variant["representative"], len(next(iter(representative.values()))))
        converter.representative_dataset = lambda: (select_row(representative, row) for row in range(count))
    return bytes(converter.convert())


def _measure_latency(content: bytes, reference: bytes, rows: Columns, threads: int) -> dict[str, Any]:
    """Measure the latency of one row with a number of threads, after a warm-up, and compare it with the reference.

    Returns:
      The fields of a `components.edge.verdict.Latency`.
    """
    variant_and_reference = [File(file_content, threads) for file_content in (content, reference)]
    for file in variant_and_reference:
        file.set_inputs(select_row(rows, 0))
    for _ in range(_WARM_UP):
        for file in variant_and_reference:
            file.invoke()
    # Measure in pairs and in alternating order, so that other load on the machine affects both files equally.
    times = np.array([_time_pair(variant_and_reference, swapped=bool(number % 2)) for number in range(_PAIRS)])
    variant_times = times[:, 0]
    return {
        "threads": threads,
        "p50_ms": float(np.median(variant_times)),
        "p99_ms": float(np.percentile(variant_times, 99)),
        "speedup": float(np.median(times[:, 1] / variant_times)),
    }


def _time_pair(files: list[File], swapped: bool) -> tuple[float, float]:
    """Return the times of two files in milliseconds; if `swapped`, the second file runs first."""
    times = [_time_call(file) for file in (reversed(files) if swapped else files)]
    return (times[1], times[0]) if swapped else (times[0], times[1])


def _time_call(file: File) -> float:
    start = time.perf_counter_ns()
    file.invoke()
    return (time.perf_counter_ns() - start) / 1e6
