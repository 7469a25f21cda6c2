"""Simulate any number of taxi trips from the real ones, for benchmarks: a bootstrap with jitter.

A simulated trip is a real one drawn with replacement. Its fare, tip, miles and seconds vary by a few percent, and it
starts some weeks earlier or later, on the same day of the week and in the same hour. Coordinates, areas and names are
unchanged; missing values and zeros are preserved.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from data.draws import Keys, normal, uniform
from data.tables import blocks, is_written, table_file

Ints: TypeAlias = npt.NDArray[np.int64]

_SPREAD = 0.05
"""Standard deviation of the jitter, as a share of the value."""
_WEEKS = 4
"""A simulated trip starts up to this many weeks before or after its real one."""
_QUARTER, _HOUR, _DAY = 900, 3_600, 86_400
"""Seconds; the real trips start on a quarter of an hour."""
_PERIOD = (1_356_998_400, 1_483_228_800)
"""The years of the real trips, 2013 to 2016, in seconds since 1970 (UTC)."""


class Trips:
    """Simulates trips from real trips.

    Args:
      path: CSV file of the real trips with the columns described in data/README.md.
      seed: Seed of the simulation.
    """

    def __init__(self, path: Path, seed: int) -> None:
        options = csv.ConvertOptions(strings_can_be_null=True)
        # One chunk per column, because drawing rows from a column of many chunks is a hundred times slower.
        self._real = csv.read_csv(path, convert_options=options).combine_chunks()
        self._seed = seed

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns, which are the same as in the real trips."""
        return self._real.schema

    def make_block(self, start: int, stop: int) -> pa.Table:
        """Return the simulated trips `start` to `stop - 1`."""
        keys = np.arange(start, stop, dtype=np.uint64)
        drawn = self._real.take(pa.array((uniform(self._seed, "trip", keys) * self._real.num_rows).astype(np.int64)))
        columns = self._vary_money(drawn, keys) | self._vary_distance(drawn, keys) | self._vary_start(drawn, keys)
        return pa.table([columns.get(name, drawn[name]) for name in self.schema.names], schema=self.schema)

    def _vary_money(self, trips: pa.Table, keys: Keys) -> dict[str, pa.Array]:
        """Vary fare and tip together, in whole cents, so that their ratio is preserved."""
        fare, tip = (np.rint(trips[name].to_numpy() * 100).astype(np.int64) for name in ("fare", "tips"))
        new_fare = self._jitter("fare", fare, keys)
        new_tip = np.rint(tip * (new_fare / np.maximum(fare, 1))).astype(np.int64)
        # Rounding to cents must not move a tip across the threshold of the label (tips > 20 % of the fare), nor onto
        # it, where float32 and float64 disagree.
        generous = tip * 5 > fare
        new_tip = np.where(generous, np.maximum(new_tip, new_fare // 5 + 1), np.minimum(new_tip, (new_fare - 1) // 5))
        new_tip = np.where(tip == 0, 0, np.maximum(new_tip, 0))
        return {"fare": pa.array(new_fare / 100), "tips": pa.array(new_tip / 100)}

    def _vary_distance(self, trips: pa.Table, keys: Keys) -> dict[str, pa.Array]:
        """Vary hundredths of miles and whole seconds; seconds are missing in a few trips."""
        miles = np.rint(trips["trip_miles"].to_numpy() * 100).astype(np.int64)
        seconds = trips["trip_seconds"]
        new_seconds = self._jitter("seconds", seconds.fill_null(0).to_numpy(), keys)
        return {
            "trip_miles": pa.array(self._jitter("miles", miles, keys) / 100),
            "trip_seconds": pa.array(new_seconds, mask=seconds.is_null().to_numpy()),
        }

    def _vary_start(self, trips: pa.Table, keys: Keys) -> dict[str, pa.Array]:
        """Draw a start on the same weekday in the same hour, and compute the calendar columns."""
        real = trips["trip_start_timestamp"].to_numpy()
        weeks = np.floor(uniform(self._seed, "weeks", keys) * (2 * _WEEKS + 1)).astype(np.int64) - _WEEKS
        shift = weeks * 7 * _DAY
        shift = np.where((real + shift < _PERIOD[0]) | (real + shift >= _PERIOD[1]), -shift, shift)
        quarter = np.floor(uniform(self._seed, "quarter", keys) * 4).astype(np.int64) * _QUARTER
        start = real // _HOUR * _HOUR + quarter + shift
        months = start.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
        return {"trip_start_timestamp": pa.array(start), "trip_start_month": pa.array(months % 12 + 1)}

    def _jitter(self, name: str, values: Ints, keys: Keys) -> Ints:
        """Vary whole numbers by a few percent; zero stays zero, and nothing else becomes zero."""
        moved = np.rint(values * np.exp(_SPREAD * normal(self._seed, name, keys))).astype(np.int64)
        return np.where(values > 0, np.maximum(moved, 1), values)


def make(real: Path, rows: int, seed: int, output: Path) -> str:
    """Write `rows` simulated trips to `output` unless they exist; return a line for the terminal."""
    trips = Trips(real, seed)
    started = time.perf_counter()
    if is_written(output, rows, trips.make_block):
        return f"{output}: already exists, nothing to do"
    with table_file(output, trips.schema) as sink:
        for start, stop in blocks(rows):
            sink.write_table(trips.make_block(start, stop))
    return f"{output}: {rows:,} rows, {output.stat().st_size:,} bytes, {time.perf_counter() - started:.1f} s"
