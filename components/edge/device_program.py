"""Run a TensorFlow Lite file on rows, and measure each prediction. It needs only NumPy and LiteRT, also on a device.

    python device_program.py MODEL.tflite INPUTS.npz OUTPUTS.npz

INPUTS.npz has the inputs of the rows by name, OUTPUTS.npz gets `predictions` and `milliseconds`, both [rows, ...].
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Columns: TypeAlias = "dict[str, npt.NDArray[Any]]"


class File:
    """A file that is loaded into TensorFlow Lite's interpreter.

    Args:
      content: Content of the file.
      threads: Number of threads of the interpreter.

    Attributes:
      invoke: Computes the prediction of the inputs that were set.
    """

    def __init__(self, content: bytes, threads: int) -> None:
        # Imported here because EdgeExporter's executor imports this module.
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(model_content=content, num_threads=threads)
        self._interpreter.allocate_tensors()
        # Look up inputs by name, because their order differs between files.
        self._inputs = self._interpreter.get_signature_runner().get_input_details()
        ((self._output_name, self._output),) = self._interpreter.get_signature_runner().get_output_details().items()
        self.invoke = self._interpreter.invoke

    def set_inputs(self, row: Columns) -> None:
        """Set the inputs, floats also of a file with integers; [1, ...]."""
        for name, details in self._inputs.items():
            self._interpreter.set_tensor(details["index"], _quantize(row[name], details))

    def predict(self, row: Columns) -> npt.NDArray[Any]:
        """Return the prediction of a row; [1, ...]."""
        self.set_inputs(row)
        self.invoke()
        prediction: npt.NDArray[Any] = self._interpreter.get_tensor(self._output["index"])
        scale, zero_point = self._output["quantization"]
        if not np.issubdtype(prediction.dtype, np.integer):
            return prediction
        return (prediction.astype(np.float32) - zero_point) * np.float32(scale)

    def predict_rows(self, rows: Columns) -> npt.NDArray[Any]:
        """Return the predictions of all rows; [rows, ...]."""
        return np.concatenate([self.predict(select_row(rows, row)) for row in range(count_rows(rows))])

    def describe_tensors(self) -> dict[str, dict[str, Any]]:
        """Return the fields of a `components.edge.verdict.TensorRange` of each input and of the output."""
        return {
            name: {
                "dtype": np.dtype(details["dtype"]).name,
                "scale": float(details["quantization"][0]),
                "zero_point": int(details["quantization"][1]),
            }
            for name, details in (*self._inputs.items(), (self._output_name, self._output))
        }


def _quantize(values: npt.NDArray[Any], details: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Convert floats to the integers of a quantized input; return other values unchanged."""
    scale, zero_point = details["quantization"]
    if not scale or not np.issubdtype(details["dtype"], np.integer):
        return values
    limits = np.iinfo(details["dtype"])
    stored = np.round(values / scale) + zero_point
    return np.clip(stored, limits.min, limits.max).astype(details["dtype"])


def count_rows(columns: Columns) -> int:
    """Return the number of rows of columns."""
    return len(next(iter(columns.values())))


def select_row(columns: Columns, row: int) -> Columns:
    """Return a row as columns of length 1."""
    return {name: values[row : row + 1] for name, values in columns.items()}


def main(model: str, inputs: str, outputs: str) -> None:
    """Predict and measure all rows; see the module's docstring."""
    with np.load(inputs) as file:
        rows = dict(file)
    loaded = File(Path(model).read_bytes(), threads=1)
    predictions, milliseconds = [], []
    for row in range(count_rows(rows)):
        one = select_row(rows, row)
        start = time.perf_counter_ns()
        predictions.append(loaded.predict(one))
        milliseconds.append((time.perf_counter_ns() - start) / 1e6)
    with Path(outputs).open("wb") as target:
        np.savez(target, predictions=np.concatenate(predictions), milliseconds=np.array(milliseconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
