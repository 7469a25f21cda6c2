"""Check of an exported model: a new process, with TensorFlow only, must predict the same as the network here.

The process is forked before the training, see `waiting_process`, because importing TensorFlow would take longer than
the rest of the check. At that time neither TensorFlow's runtime nor any object of the training exists.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.base.errors import MachineError
from components.base.files import is_remote
from components.base.forked_process import ForkedProcess, is_single_threaded
from components.base.processes import LostProcessError, describe_exit, with_second_try
from components.results.retrieval_outputs import ORDERS
from components.trainer import export_check_process
from components.trainer.export_check_process import decode_array, encode_array
from components.trainer.probe_rows import ProbeRows
from components.trainer.skew_check import FEATURES, LABELS, PREDICTIONS, Arrays, TrainedRows

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""Tolerances, relative to the value and to the largest value of the output. Both processes run the same graph on a CPU,
so only the rounding of float32 sums that several threads compute may differ."""

_SAME_ORDER = 0.9
"""Minimum share of equal numbers in a ranking."""

_REMEDY = "make everything that the model reads a variable, or an asset file of its graph; nothing was exported"

Predict = Callable[[str, Mapping[str, Mapping[str, tf.Tensor]]], dict[str, dict[str, str]]]
"""(model folder, signature → input → tensor) → signature → output → encoded array, see `encode_array`."""

_waiting: list[ForkedProcess] = []
"""The process that `waiting_process` has forked, until it is used."""


@contextmanager
def waiting_process() -> Iterator[None]:
    """Fork the process that `prediction_process` uses in the block, if this process is still single-threaded."""
    if is_single_threaded():
        _waiting.append(ForkedProcess(_load))
    try:
        yield
    finally:
        while _waiting:
            _end(_waiting.pop())


@contextmanager
def prediction_process() -> Iterator[Predict]:
    """Provide a process that runs the signatures of a model once: the waiting one, or a new interpreter.

    Yields:
      A function that sends the request, and waits for the response. It raises MachineError if the process fails, or if
        the process and its replacement are killed.
    """
    first = _waiting.pop() if _waiting else _start()
    unused = [first]

    def answer(request: str) -> str:
        return _ask(unused.pop() if unused else _start(), request)

    def predict(model: str, signatures: Mapping[str, Mapping[str, tf.Tensor]]) -> dict[str, dict[str, str]]:
        encoded = {
            name: {key: encode_array(tensor.numpy()) for key, tensor in inputs.items()}
            for name, inputs in signatures.items()
        }
        path = model if is_remote(model) else str(Path(model).absolute())
        request = json.dumps({"model": path, "signatures": encoded})
        response: dict[str, dict[str, str]] = json.loads(with_second_try(lambda: answer(request)))
        return response

    try:
        yield predict
    finally:
        _end(first)


_Process = ForkedProcess | subprocess.Popen[str]
_WITHOUT_ACCELERATORS = {"CUDA_VISIBLE_DEVICES": "-1"}
"""Hide the accelerators, because this process may have allocated all of their memory."""


def _load() -> Callable[..., int]:
    os.environ.update(_WITHOUT_ACCELERATORS)
    return export_check_process.answer


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", export_check_process.__name__],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **_WITHOUT_ACCELERATORS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _ask(process: _Process, request: str) -> str:
    """Send a request to a process, and return its response when it ends.

    Raises:
      MachineError: If the process fails.
    """
    if isinstance(process, ForkedProcess):
        code, out, err = _ask_forked(process, request)
    else:
        with process:
            out, err = process.communicate(request)
        code = process.returncode
    if code:
        raise _create_error(code, err)
    return out


def _ask_forked(process: ForkedProcess, request: str) -> tuple[int, str, str]:
    with tempfile.TemporaryDirectory(prefix="export-check-") as folder:
        sent, received, log = (Path(folder, name) for name in ("request.json", "response.json", "log"))
        sent.write_text(request)
        process.run(str(sent), str(received), log=log)
        code = process.wait()
        err = log.read_text(errors="replace") if log.exists() else ""
        return code, received.read_text() if not code else "", err


def _end(process: _Process) -> None:
    with process:
        process.kill()


def _create_error(code: int, err: str) -> MachineError:
    ended = f"the process that checks the exported model {describe_exit(code)}"
    logging.error("%s:\n%s", ended, err)
    if code < 0:
        return LostProcessError(
            ended,
            "if memory was short, give the machine more; then --resume the run; nothing was exported",
        )
    last = next(iter(reversed(err.strip().splitlines())), f"exit code {code}")
    return MachineError(f"the exported model cannot be loaded and run in a new process: {last}", _REMEDY)


def check(
    predict: Predict,
    model: str,
    rows: ProbeRows,
    expected: Mapping[str, tf.Tensor],
    trained: TrainedRows | None = None,
    matrices: Mapping[str, tf.Tensor] | None = None,
) -> None:
    """Compare the exported model in a new process with the network here, and with the results of training.

    Args:
      predict: The function that `prediction_process` yields.
      model: Folder of the SavedModel.
      rows: Inputs of `serving_default` and `raw`, which must predict the same.
      expected: Output → the predictions for these rows by the exported graph.
      trained: Rows of the sample, whose features, labels and predictions must equal training's; None without a sample.
      matrices: The same rows as inputs of `matrix`; None if the model does not have this signature.

    Raises:
      MachineError: If the model does not load, or a value differs. The error names signature, output, row and values.
    """
    probes = rows.examples()
    inputs = {"serving_default": {"examples": probes}, "raw": rows.tensors()}
    if matrices:
        inputs["matrix"] = dict(matrices)
    parts = dict.fromkeys(inputs, slice(None))
    if trained:
        parts["serving_default"] = slice(len(probes))
        inputs["serving_default"] = {"examples": tf.concat([probes, tf.constant(trained.examples)], axis=0)}
        inputs |= trained.inputs()
    response = {
        signature: {name: decode_array(text) for name, text in outputs.items()}
        for signature, outputs in predict(model, inputs).items()
    }
    values = {name: value.numpy() for name, value in expected.items()}
    if trained:
        # Compare them first, because a different transform makes the predictions differ as well.
        for signature in (FEATURES, LABELS):
            trained.compare_features(signature, response[signature])
    for signature, part in parts.items():
        outputs = response[signature]
        if set(outputs) != set(expected):
            raise MachineError(
                f"{signature} of the exported model: expected the outputs {_describe(expected)}, "
                f"received {_describe(outputs)}",
                _REMEDY,
            )
        _compare_predictions(f"{signature} of the exported model", values, outputs, part, rows)
    if trained:
        where = f"{PREDICTIONS} of the exported model for the sample of Transform"
        _compare_predictions(
            where, trained.expected[PREDICTIONS], response[PREDICTIONS], slice(len(probes), None), trained
        )


def _compare_predictions(
    where: str, expected: Arrays, received: Arrays, part: slice, rows: ProbeRows | TrainedRows
) -> None:
    """Compare the outputs for a part of the received rows."""
    for output, values in expected.items():
        _compare(f"{where}, {output}", values, received[output][part], rows, order=output in ORDERS)


def _compare(
    where: str, expected: npt.NDArray[Any], received: npt.NDArray[Any], rows: ProbeRows | TrainedRows, *, order: bool
) -> None:
    if expected.shape != received.shape:
        raise MachineError(f"{where}: expected shape {expected.shape}, received {received.shape}", _REMEDY)
    if expected.dtype == object:
        same = expected == received
    elif order:
        # Most are equal: scores that differ by no more than rounding are rare.
        same = np.full(expected.shape, np.mean(expected == received) >= _SAME_ORDER)
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        largest = float(finite.max()) if finite.size else 0.0
        same = np.isclose(received, expected, rtol=_RELATIVE, atol=_ABSOLUTE * largest, equal_nan=True)
    if not same.all():
        row = int(np.argwhere(~same)[0][0])
        raise MachineError(
            f"{where}, row {row}: expected {_describe(expected[row])}, received {_describe(received[row])}",
            _REMEDY,
            rows.describe(row),
        )


def _describe(values: Iterable[Any]) -> str:
    items = (value.decode(errors="replace") if isinstance(value, bytes) else value for value in np.ravel([*values]))
    return ", ".join(f"{item:.7g}" if isinstance(item, np.floating) else str(item) for item in items)
