"""An exported model counts when it says, in a fresh process with TensorFlow alone, what the network here says."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from components.errors import MachineError
from components.trainer.reload import packed, unpacked
from components.trainer.rows import Rows

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""How far an answer may be off: a share of itself, and one of the largest answer. Both sides run one graph on a CPU;
what is left is float32's rounding, where threads share a sum."""

_REMEDY = "nothing is exported; whatever a model reads has to be a variable, or a file that its graph knows of"

Ask = Callable[[str, Mapping[str, Mapping[str, Any]]], dict[str, dict[str, str]]]


@contextmanager
def process() -> Iterator[Ask]:
    """A process that begins to import TensorFlow, and is asked once.

    Yields:
      A function of a model's folder and of signature → input → tensor, which gives signature → output → the answer,
      packed.
    """
    # It needs no accelerator, and this process may have taken all the memory of those that are there.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    with subprocess.Popen(
        [sys.executable, "-m", "components.trainer.reload"],
        cwd=Path(__file__).parents[2],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:

        def ask(model: str, signatures: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
            given = {name: {key: packed(each) for key, each in inputs.items()} for name, inputs in signatures.items()}
            place = model if "://" in model else str(Path(model).absolute())
            out, err = child.communicate(json.dumps({"model": place, "signatures": given}))
            if child.returncode:
                logging.error("the fresh process ended with exit code %d:\n%s", child.returncode, err)
                last = next(iter(reversed(err.strip().splitlines())), f"exit code {child.returncode}")
                raise MachineError(f"the exported model cannot be loaded and asked in a fresh process: {last}", _REMEDY)
            answered: dict[str, dict[str, str]] = json.loads(out)
            return answered

        try:
            yield ask
        except BaseException:
            child.kill()
            raise


def check(ask: Ask, model: str, rows: Rows, wanted: Mapping[str, Any]) -> None:
    """Holds the answers of `serving_default` and `raw` in a fresh process against those of the network here.

    Args:
      ask: of `process`.
      model: the folder of the SavedModel.
      rows: what is asked.
      wanted: output → what the network here answers to these rows.

    Raises:
      MachineError: the model does not load, or an answer differs; signature, output, row and values are told.
    """
    asked = {"serving_default": {"examples": rows.examples()}, "raw": rows.tensors()}
    for signature, answers in ask(model, asked).items():
        if set(answers) != set(wanted):
            raise MachineError(
                f"{signature} of the exported model: expected the outputs {_told(wanted)}, received {_told(answers)}",
                _REMEDY,
            )
        for output, expected in wanted.items():
            received = unpacked(answers[output], expected.dtype)
            _compare(f"{signature} of the exported model, {output}", expected.numpy(), received.numpy(), rows)


def _compare(what: str, expected: Any, received: Any, rows: Rows) -> None:
    if expected.shape != received.shape:
        raise MachineError(f"{what}: expected shape {expected.shape}, received {received.shape}", _REMEDY)
    if expected.dtype == object:
        same = expected == received
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        largest = float(finite.max()) if finite.size else 0.0
        same = np.isclose(received, expected, rtol=_RELATIVE, atol=_ABSOLUTE * largest, equal_nan=True)
    if not same.all():
        row = int(np.argwhere(~same)[0][0])
        raise MachineError(
            f"{what}, row {row}: expected {_told(expected[row])}, received {_told(received[row])}",
            _REMEDY,
            rows.told(row),
        )


def _told(values: Any) -> str:
    words = (each.decode(errors="replace") if isinstance(each, bytes) else each for each in np.ravel([*values]))
    return ", ".join(f"{each:.7g}" if isinstance(each, np.floating) else str(each) for each in words)
