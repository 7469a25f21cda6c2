"""The tables of `benchmarks.columns`: draw their rows, and write the configs for their runs."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import yaml
from pyarrow import csv

from data import taxi

STEPS, BATCH = 50, 512
_BLOCK = 20_000
"""Rows that are drawn and written at a time."""
_IDS = (
    *(1_000, 500, 800_000, 300_000, 300, 20, 10_000, 600, 3, 60_000, 5_000, 700_000, 3_000, 26, 10_000, 500_000),
    *(10, 4_000, 2_000, 4, 600_000, 15, 15, 80_000, 80, 60_000),
)
"""Distinct values in the 26 columns of ids, similar to the Criteo display advertising challenge."""


@dataclass(frozen=True)
class Shape:
    """A table and how it is used.

    Attributes:
      rows: Default number of rows.
      write: Function (path, rows) that writes a CSV file.
      columns: Number of columns x0000, x0001, … that are features with z_score. 0 means that another config is used,
        see `write_config`.
      label: Column or expression of the label.
      floor: Arguments of `columns_program.Features`, which match the costly features and hidden layers of the config.
      has_floor: Whether the floor is run as well. It holds all rows in memory.
    """

    rows: int
    write: Callable[[Path, int], None]
    columns: int = 0
    label: str = "y"
    floor: Mapping[str, Any] = field(default_factory=dict)
    has_floor: bool = True


def write_taxi(path: Path, rows: int) -> None:
    """Write simulated taxi trips."""
    subprocess.run([sys.executable, "-m", taxi.__name__, "--rows", str(rows), "--output", str(path)], check=True)


def write_floats(path: Path, rows: int, columns: int, missing: float = 0.0) -> None:
    """Write columns x0000, x0001, … of standard normal numbers with three decimals, and a label y of 0 and 1.

    Args:
      path: The CSV file.
      rows: Number of rows.
      columns: Number of columns without the label.
      missing: Share of empty fields.
    """
    draw = np.random.default_rng(1)
    with path.open("wb") as file:
        for start in range(0, rows, _BLOCK):
            count = min(_BLOCK, rows - start)
            values = draw.normal(size=(count, columns)).astype(np.float32).round(3)
            arrays: dict[str, Any] = {
                f"x{number:04d}": pa.array(values[:, number], mask=draw.random(count) < missing)
                for number in range(columns)
            }
            arrays["y"] = pa.array((values[:, 0] + draw.normal(size=count) > 0).astype(np.int64))
            _append(file, arrays, is_first=not start)


def _append(file: BinaryIO, arrays: Mapping[str, Any], is_first: bool) -> None:
    """Append rows; write the header without quotes, which Arrow would add and LightGBM cannot read."""
    if is_first:
        file.write(f"{','.join(arrays)}\n".encode())
    csv.write_csv(pa.table(dict(arrays)), file, csv.WriteOptions(include_header=False))


def write_clicks(path: Path, rows: int) -> None:
    """Write 13 columns of counts with a fifth missing, 26 columns of Zipf-distributed hexadecimal ids, and a label."""
    draw = np.random.default_rng(7)
    with path.open("wb") as file:
        for start in range(0, rows, _BLOCK):
            count = min(_BLOCK, rows - start)
            arrays: dict[str, Any] = {}
            logit = np.full(count, -1.2)
            for number in range(13):
                values = np.floor(draw.lognormal(2, 1.5, count)).astype(np.int64)
                logit += 0.05 * np.log1p(values) * (-1) ** number
                arrays[f"I{number + 1}"] = pa.array(values, mask=draw.random(count) < 0.2)
            for number, size in enumerate(_IDS):
                ids = np.minimum(draw.zipf(1.2, count), size).astype(np.uint64)
                logit += 0.15 * np.sin(ids % 1000 + number)
                arrays[f"C{number + 1}"] = pa.array(np.char.mod("%08x", ids * 2654435761 % 2**32))
            arrays["label"] = pa.array((draw.random(count) < 1 / (1 + np.exp(-logit))).astype(np.int64))
            _append(file, arrays, is_first=not start)


def _floats(rows: int, columns: int, has_floor: bool = True) -> Shape:
    return Shape(rows, functools.partial(write_floats, columns=columns), columns, has_floor=has_floor)


_TAXI = {
    "numbers": [],
    "logs": ["trip_miles", "trip_seconds", "fare"],
    "ids": [
        *("trip_start_hour", "trip_start_day", "trip_start_month", "pickup_community_area", "dropoff_community_area")
    ],
    "buckets": {
        "trip_miles": 30,
        "trip_seconds": 30,
        "fare": 60,
        "pickup_latitude": 20,
        "pickup_longitude": 20,
        "dropoff_latitude": 20,
        "dropoff_longitude": 20,
    },
    "hidden": [128, 64],
}
_COUNTS = [f"I{number + 1}" for number in range(13)]
_CLICKS = {"numbers": _COUNTS, "logs": _COUNTS, "bins": 48, "hidden": [128, 64]}
_GAPS = functools.partial(write_floats, columns=200, missing=0.1)
SHAPES: Mapping[str, Shape] = {
    "taxi": Shape(1_000_000, write_taxi, label="tips > 0.2 * fare", floor=_TAXI),
    "5000x200": _floats(5_000, 200),
    "5000x800": _floats(5_000, 800),
    "200000x200": Shape(200_000, _GAPS, floor={"bins": 48, "hidden": [128, 64]}),
    "criteo": Shape(1_000_000, write_clicks, label="label", floor=_CLICKS),
    "3000x1500": _floats(3_000, 1_500),
    # A row of 200 numbers has about 1,350 bytes.
    "300MB": _floats(222_000, 200, has_floor=False),
    "3GB": _floats(2_220_000, 200, has_floor=False),
}


def write_config(name: str, shape: Shape, table: Path, folder: Path) -> Path:
    """Write the config of a table, and return its path.

    Taxi trips have a config already. For other shapes without `columns`, `init` writes one, which is not measured;
    `settings` replaces its training and thresholds, so that all tables are trained alike.
    """
    path = folder / "config.yaml"
    if name == "taxi":
        return Path("configs/taxi.yaml")
    if not shape.columns:
        options = ["--data", str(table), "--label", shape.label, "--kind", "mlp", "--budget", "0"]
        files = ["--config", str(path), "--schema", str(folder / "schema.pbtxt")]
        subprocess.run([sys.executable, "runner.py", "init", *options, *files], check=True, stdout=subprocess.DEVNULL)
        return path
    columns = {f"x{number:04d}": "z_score" for number in range(shape.columns)}
    sections = {
        "data": {"path": str(table), "label": shape.label, "split": {"train": 4, "eval": 1}},
        "features": {"columns": columns},
        "model": {"kind": "mlp", "hidden": [64, 32]},
    }
    path.write_text(yaml.safe_dump(sections, sort_keys=False))
    return path


def settings(table: Path) -> list[str]:
    """Return the settings for all tables, in the form of `--set`."""
    return [
        f"data.path={table}",
        *("training.strategy.kind=none", f"training.steps={STEPS}", f"training.batch_size={BATCH}"),
        *("training.early_stopping=null", "training.checkpoint.every_steps=50"),
        # After a few steps the model may not be better than a constant, but it must be pushed.
        *("evaluation.thresholds={auc: {min: 0}}", "evaluation.slice_thresholds={}", "evaluation.constant=warn"),
    ]
