"""A program that converts a model's signature to TensorFlow Lite, runs the files and measures their latency.

    python -m components.edge.conversion_process < request.json

A process of its own, since the converter can abort. The request has `model`, its folder; `signature`; `folder`, with
`eval.npz` and `train.npz`, the signature's inputs; and `variants`, each with `name`, `quantize`, `representative`, and
`model`, the folder of its model.

A file takes one row at a time: only an operation whose shapes are all known can be delegated to XNNPACK or an
accelerator.

For each variant it writes `NAME.tflite`; `NAME.npy`, the predictions of the rows of eval.npz; and last `NAME.json`,
with `latencies` or `error`. The float32 file of the model that latencies are compared with is `reference.tflite`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from components.compat.tensorflow import import_for_predictions
from components.errors import is_of_machine
from components.files import write_atomically
from components.processes import signal_at_parents_death

Columns: TypeAlias = "dict[str, npt.NDArray[Any]]"

_THREADS = (1, 2)
_WARM_UP, _PAIRS = 50, 500
_OPERATION = re.compile(r"(?:'|^\s*)(tfl?\.[A-Z]\w+)(?:'|\(tensor)", re.MULTILINE)
REFERENCE = "reference"


def main(request: dict[str, Any]) -> None:
    """Converts, runs and measures the variants."""
    folder = Path(request["folder"])
    rows, representative = (_columns(folder / name) for name in ("eval.npz", "train.npz"))
    reference = folder / f"{REFERENCE}.tflite"
    for variant in request["variants"]:
        name = variant["name"]
        try:
            if not reference.exists():
                full = {"quantize": "none", "model": request["model"]}
                reference.write_bytes(_convert(full, request["signature"], representative))
            content = _convert(variant, request["signature"], representative)
            (folder / f"{name}.tflite").write_bytes(content)
            np.save(folder / f"{name}.npy", _predictions(content, rows))
            result: dict[str, Any] = {
                "latencies": [_latency(content, reference.read_bytes(), rows, each) for each in _THREADS]
            }
        except (MemoryError, OSError):
            # These say nothing about the variant.
            raise
        except Exception as error:
            # TensorFlow's own type for too little memory is not a MemoryError.
            if is_of_machine(f"{type(error).__name__}: {error}"):
                raise
            result = {"error": failure(str(error))}
        write_atomically(folder / f"{name}.json", json.dumps(result))


def failure(text: str) -> str:
    """Returns an error of the converter or the interpreter in one line: the operations that it names, and its end."""
    operations = ", ".join(dict.fromkeys(_OPERATION.findall(text)))
    last = next(iter(reversed(text.strip().splitlines())), "no message").strip()[:200]
    if _OPERATION.search(last):
        return operations
    return f"{operations}: {last}" if operations else last


def _columns(path: Path) -> Columns:
    with np.load(path) as file:
        return dict(file)


def _convert(variant: Mapping[str, Any], signature: str, representative: Columns) -> bytes:
    """Converts a signature of a variant's model; returns the file."""
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
        # Without the float operations: those that cannot be quantized are an error, which names them.
        converter.target_spec.supported_ops = [
            ops.TFLITE_BUILTINS_INT8
            if quantize == "int8"
            else ops.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        ]
        count = min(variant["representative"], len(next(iter(representative.values()))))
        converter.representative_dataset = lambda: (_row(representative, row) for row in range(count))
    return bytes(converter.convert())


def _row(columns: Columns, row: int) -> Columns:
    return {name: values[row : row + 1] for name, values in columns.items()}


class _File:
    """A file in the interpreter.

    Args:
      content: the file.
      threads: of the interpreter.
    """

    def __init__(self, content: bytes, threads: int) -> None:
        # Late: EdgeExporter's executor imports this module.
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(model_content=content, num_threads=threads)
        self._interpreter.allocate_tensors()
        # By name: the tensors of a signature's inputs have another order in each file.
        inputs = self._interpreter.get_signature_runner().get_input_details()
        self._inputs = {name: each["index"] for name, each in inputs.items()}
        (output,) = self._interpreter.get_output_details()
        self._output = output["index"]
        self.invoke = self._interpreter.invoke

    def set_inputs(self, row: Columns) -> None:
        """Sets the inputs, [1, ...]."""
        for name, index in self._inputs.items():
            self._interpreter.set_tensor(index, row[name])

    def predict(self, row: Columns) -> npt.NDArray[Any]:
        """Returns the prediction of a row, [1, ...]."""
        self.set_inputs(row)
        self.invoke()
        prediction: npt.NDArray[Any] = self._interpreter.get_tensor(self._output)
        return prediction


def _predictions(content: bytes, rows: Columns) -> npt.NDArray[Any]:
    """The predictions of all rows, [rows, ...]."""
    file = _File(content, max(_THREADS))
    return np.concatenate([file.predict(_row(rows, row)) for row in range(len(next(iter(rows.values()))))])


def _latency(content: bytes, reference: bytes, rows: Columns, threads: int) -> dict[str, Any]:
    """The latency of one row in this many threads, in pairs with the reference, after a warm-up."""
    both = [_File(each, threads) for each in (content, reference)]
    for each in both:
        each.set_inputs(_row(rows, 0))
    for _ in range(_WARM_UP):
        for each in both:
            each.invoke()
    # Pairs, in alternating order: what else the machine does slows both.
    times = np.array([_pair(both, swapped=bool(number % 2)) for number in range(_PAIRS)])
    own = times[:, 0]
    return {
        "threads": threads,
        "p50_ms": float(np.median(own)),
        "p99_ms": float(np.percentile(own, 99)),
        "speedup": float(np.median(times[:, 1] / own)),
    }


def _pair(both: list[_File], swapped: bool) -> tuple[float, float]:
    first = [_milliseconds(each) for each in (reversed(both) if swapped else both)]
    return (first[1], first[0]) if swapped else (first[0], first[1])


def _milliseconds(file: _File) -> float:
    start = time.perf_counter_ns()
    file.invoke()
    return (time.perf_counter_ns() - start) / 1e6


if __name__ == "__main__":
    signal_at_parents_death(signal.SIGKILL, os.getppid())
    import_for_predictions()
    main(json.load(sys.stdin))
