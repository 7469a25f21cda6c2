"""Run variants on a device of the user, through a command of the user."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.base.errors import MachineError
from components.edge.config import DeviceConfig
from components.edge.device_program import Columns
from components.edge.gate import Rows, finite_or_none
from components.edge.verdict import DeviceResult

_LINES = 5


def run_on_device(
    config: DeviceConfig, file: Path, columns: Columns, rows: Rows, expected: npt.NDArray[np.floating]
) -> DeviceResult:
    """Run a file on a device; return its metric and latencies, and how far its predictions are from this machine's.

    Args:
      config: The command, and its number of rows.
      file: The file of a variant.
      columns: Name → inputs of the rows, [rows, ...].
      rows: The rows' labels.
      expected: Predictions of the file on this machine for the same rows, [rows, ...].

    Raises:
      MachineError: If the command fails, takes too long, or does not write what is expected.
    """
    count = min(config.rows, len(expected))
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
        np.savez(inputs, **{name: values[:count] for name, values in columns.items()})
        paths = {"{model}": str(file), "{inputs}": str(inputs), "{outputs}": str(outputs)}
        # Other braces, as in a script of a shell, stay as they are.
        command = list(config.command)
        for name, path in paths.items():
            command = [word.replace(name, path) for word in command]
        what = f"edge: the device's command {config.command[0]!r}"
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=60 * config.max_minutes)
            with np.load(outputs) as result:
                predictions, milliseconds = result["predictions"], result["milliseconds"]
        except subprocess.CalledProcessError as error:
            last = error.stderr.strip().splitlines()[-_LINES:]
            raise MachineError(
                f"{what} ended with {error.returncode}", "connect the device, or fix the command", last
            ) from error
        except subprocess.TimeoutExpired as error:
            raise MachineError(
                f"{what} took more than {config.max_minutes:g} minutes", "connect the device, or lower device.rows"
            ) from error
        except (OSError, KeyError, ValueError) as error:
            raise MachineError(
                f"{what}: expected an NPZ file with predictions and milliseconds in {{outputs}}, received {error}",
                "write this file; components/edge/device_program.py is an example",
            ) from error
    shape = expected[:count].shape
    if predictions.size != expected[:count].size or milliseconds.shape != (count,):
        raise MachineError(
            f"{what}: expected predictions of shape {list(shape)} and {count} milliseconds, received shapes "
            f"{list(predictions.shape)} and {list(milliseconds.shape)}",
            "write the prediction and the milliseconds of each row of {inputs}",
        )
    if not np.isfinite(predictions).all():
        raise MachineError(
            f"{what}: expected finite predictions as on this machine, received NaN or infinite values",
            "check the device's interpreter and its accelerator",
        )
    predictions = predictions.reshape(shape)
    difference = np.abs(predictions - expected[:count]).max()
    p50, p99 = (float(np.percentile(milliseconds, share)) for share in (50, 99))
    return DeviceResult(count, p50, p99, float(difference), finite_or_none(rows.head(count).metric(predictions)))
