"""Check of an exported model: a new process, with TensorFlow only, must predict the same as the network here.

The process is forked before the training, see `waiting_process`, because importing TensorFlow would take longer than
the rest of the check. At that time neither TensorFlow's runtime nor any object of the training exists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.base.child_process import WaitingProcess, is_single_threaded
from components.base.errors import MachineError
from components.base.processes import LostProcessError, describe_exit, with_second_try
from components.results.model_outputs import depends_on_rounding
from components.trainer import export_check_process
from components.trainer.export_check_process import SignatureArrays
from components.trainer.probe_rows import ProbeRows
from components.trainer.skew_check import FEATURES, LABELS, PREDICTIONS, Arrays, TrainedRows

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""Tolerances, relative to the value and to the largest value of the output. Both processes run the same graph on a CPU,
so only the rounding of float32 sums that several threads compute may differ."""

_SAME_ORDER = 0.9
"""Minimum share of equal numbers in a ranking, and of equal decisions."""

_REMEDY = "make everything that the model reads a variable, or an asset file of its graph; nothing was exported"

Predict: TypeAlias = Callable[[str, Mapping[str, Mapping[str, tf.Tensor]]], SignatureArrays]
"""(model folder, signature → input → tensor) → signature → output → array."""

_waiting: list[WaitingProcess] = []
"""The process that `waiting_process` has forked, until it is used."""


@contextmanager
def waiting_process() -> Iterator[None]:
    """Fork the process that `prediction_process` uses in the block, if this process is still single-threaded."""
    if is_single_threaded():
        _waiting.append(_start(fork=True))
    try:
        yield
    finally:
        while _waiting:
            _waiting.pop().end()


@contextmanager
def prediction_process() -> Iterator[Predict]:
    """Provide a process that runs the signatures of a model once: the waiting one, or a new interpreter.

    Yields:
      A function that sends the request, and waits for the response. It raises MachineError if the process fails, or if
        the process and its replacement are killed.
    """
    first = _waiting.pop() if _waiting else _start(fork=False)
    unused = [first]

    def predict(model: str, signatures: Mapping[str, Mapping[str, tf.Tensor]]) -> SignatureArrays:
        inputs = {
            name: {key: tensor.numpy() for key, tensor in tensors.items()} for name, tensors in signatures.items()
        }
        return with_second_try(lambda: _ask(unused.pop() if unused else _start(fork=False), model, inputs))

    try:
        yield predict
    finally:
        first.end()


def _start(*, fork: bool) -> WaitingProcess:
    return WaitingProcess(export_check_process.__name__, fork=fork)


def _ask(process: WaitingProcess, model: str, inputs: SignatureArrays) -> SignatureArrays:
    """Send a request to a process, and return its response when it ends.

    Raises:
      MachineError: If the process fails.
    """
    process.run(model, inputs)
    if code := process.wait():
        raise _create_error(code, process.output())
    response: SignatureArrays = process.result()
    return response


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
    response = predict(model, inputs)
    values = {name: value.numpy() for name, value in expected.items()}
    if trained:
        # Compare them first, because a different transform makes the predictions differ as well.
        for signature in {FEATURES, LABELS} & trained.expected.keys():
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
        _compare(f"{where}, {output}", values, received[output][part], rows, order=depends_on_rounding(output))


def _compare(
    where: str, expected: npt.NDArray[Any], received: npt.NDArray[Any], rows: ProbeRows | TrainedRows, *, order: bool
) -> None:
    if expected.shape != received.shape:
        raise MachineError(f"{where}: expected shape {expected.shape}, received {received.shape}", _REMEDY)
    if expected.dtype == object:
        same = expected == received
    elif order:
        # Most are equal: scores that differ by no more than rounding, from each other or from a threshold, are rare.
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
