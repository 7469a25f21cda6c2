"""Make the rows of forecasts from the rows of time series: pairs of an origin and a step after it.

All series of a partition are sorted once, by series and time. Every row then has a key that grows by one per step of
its series, so that the row k steps before another one is found by a binary search for the key minus k: a missing step
is not found, and its value is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.base.errors import InputError
from components.data.date_texts import Unit
from components.data.forecast_columns import NAIVE, SCALE
from components.ingest import moving_statistics
from components.ingest.row_filter import read_numbers
from components.ingest.split_assignment import MICROS, Micros, as_text, times_of
from components.ingest.time_steps import Differences, Step, are_month_ends, to_iso
from components.ingest.window_config import HORIZON, ORIGIN, IngestedWindows

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Rows: TypeAlias = npt.NDArray[np.int64]
"""Indices of rows, or -1 for a row that does not exist; [rows]."""
_ROWS = 1 << 14
"""Maximum number of rows of a batch."""


class Series:
    """The rows of whole series, sorted by series and time.

    Args:
      batches: Rows of all series of a partition in any order: columns of text (binary), int64, float64 or null, or of
        lists of these.
      config: The windows.
      unit: Unit of times that are numbers.
      decimal: Decimal sign of numbers in text, a point or a comma.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], config: IngestedWindows, unit: Unit, decimal: str = "."
    ) -> None:
        self._config, self._unit, self._decimal = config, unit, decimal
        columns = _join(list(batches))
        codes = _encode_series([columns[name] for name in config.by], len(columns[config.time]))
        times, _ = times_of(columns[config.time], unit)
        order = np.lexsort((times, codes))
        taken = pa.array(order)
        self._columns = {name: column.take(taken) for name, column in columns.items()}
        self._times: Micros = times[order]
        codes = codes[order]
        self._is_first = np.append(True, codes[1:] != codes[:-1])[: len(codes)]
        # The number of the first row of every row's series.
        self._starts: Rows = np.maximum.accumulate(np.where(self._is_first, np.arange(len(codes)), 0))

    def differences(self) -> Differences:
        """Return the differences of neighbouring times."""
        return Differences.measure(self._times, self._is_first)

    def rows(self, step: Step, *, only_last: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield a row per origin and step of the horizon.

        Args:
          step: The distance of two steps.
          only_last: Whether to forecast: the origins are the last known labels of the series, and the rows do not need
            a label. Otherwise all steps with a known label are origins, and rows without a label are left out.

        Raises:
          InputError: If a series has two rows at one step, or a time between two steps.
        """
        keys, label = self._make_keys(step), self._numbers(self._config.label)
        known = np.flatnonzero(~np.isnan(label))
        if only_last:
            # The row is the last known one of its series if the next known row is in another series.
            known = known[np.append(np.diff(self._starts[known]) > 0, True)[: len(known)]]
        horizon = np.array(self._config.horizon)
        size = max(1, _ROWS // len(horizon))
        features = self._features(keys, known)
        scales = self._scales(keys, label, known)
        for at in range(0, len(known), size):
            origins = known[at : at + size]
            targets = _find(keys, keys[origins][:, np.newaxis] + horizon).ravel()
            numbers = np.tile(horizon, len(origins))
            places = np.repeat(np.arange(at, at + len(origins)), len(horizon))
            if not only_last:
                is_known = (targets >= 0) & ~np.isnan(label[targets])
                targets, numbers, places = targets[is_known], numbers[is_known], places[is_known]
            if not len(places):
                continue
            origins = known[places]
            computed = {name: values[places] for name, values in features.items()}
            computed[NAIVE] = self._forecast_naively(keys, label, origins, numbers)
            computed[SCALE] = scales[places]
            computed[self._config.label] = np.where(targets >= 0, label[targets], np.nan)
            columns = {name: column.take(pa.array(origins)) for name, column in self._columns.items()}
            columns[ORIGIN] = columns[self._config.time]
            columns[HORIZON] = pa.array(numbers)
            columns[self._config.time] = self._target_times(step, origins, targets, numbers)
            # The history of a prediction may lack the weight.
            for name in columns.keys() & set(self._config.moved):
                columns[name] = _take(self._columns[name], targets)
            columns |= {name: pa.array(values, mask=~np.isfinite(values)) for name, values in computed.items()}
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _make_keys(self, step: Step) -> Ints:
        """Return a key per row, ascending, that grows by one per step. Keys of different series are far apart."""
        numbers, is_step = step.count(self._times, self._times[self._starts])
        if not is_step.all():
            row = int(np.flatnonzero(~is_step)[0])
            raise InputError(
                f"data.windows: expected times that are whole steps apart, received {self._describe(row)} after "
                f"{self._describe(int(self._starts[row]))}",
                "set data.windows.every to the distance of two steps, or correct the times",
            )
        repeated = np.flatnonzero((np.diff(numbers) == 0) & ~self._is_first[1:])
        if len(repeated):
            row = int(repeated[0])
            raise InputError(
                f"data.windows: expected one row per series and time, received {self._describe(row)} and "
                f"{self._describe(row + 1)}",
                "remove one of the rows, or add a column that distinguishes the series to data.windows.by",
            )
        config = self._config
        windows = [steps for name in ("mean", "std", "min", "max") for steps in getattr(config.rolling, name)]
        reach = max(*config.horizon, *config.lags, *windows, config.season * (max(config.horizon) + 1))
        ends = np.flatnonzero(np.append(self._is_first[1:], True)) if len(numbers) else np.empty(0, np.int64)
        lengths = numbers[ends] + reach + 1
        first_keys = np.cumsum(lengths) - lengths
        return np.asarray(numbers + first_keys[np.cumsum(self._is_first) - 1])

    def _describe(self, row: int) -> str:
        """Return the series and time of a row, for a message."""
        names = (*self._config.by, self._config.time)
        values = (as_text(self._columns[name])[row].as_py().decode(errors="replace") for name in names)
        return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))

    def _numbers(self, name: str) -> Floats:
        """Return the numbers of a column, NaN where missing; [rows]."""
        numbers, _ = read_numbers(self._columns[name], self._decimal)
        return np.asarray(numbers.cast(pa.float64(), safe=False).fill_null(np.nan))

    def _features(self, keys: Ints, rows: Rows) -> dict[str, Floats]:
        """Return the lags and statistics of the past of some rows; [rows]."""
        config, features = self._config, {}
        for name in config.past:
            values = self._numbers(name)
            for lag in config.lags:
                features[f"{name}_lag_{lag}"] = _value_at(values, _find(keys, keys[rows] - (lag - 1)))
            for steps in config.rolling.mean:
                count, mean, _ = moving_statistics.moments(values, self._count_rows(keys, rows, steps), rows)
                features[f"{name}_mean_{steps}"] = np.where(count > 0, mean, np.nan)
            for steps in config.rolling.std:
                count, _, squares = moving_statistics.moments(values, self._count_rows(keys, rows, steps), rows)
                deviations = np.sqrt(squares / np.maximum(count - 1, 1))
                features[f"{name}_std_{steps}"] = np.where(count > 1, deviations, np.nan)
            for statistic, merge in (("min", np.fmin), ("max", np.fmax)):
                for steps in getattr(config.rolling, statistic):
                    lengths = self._count_rows(keys, rows, steps)
                    features[f"{name}_{statistic}_{steps}"] = moving_statistics.extremes(values, lengths, rows, merge)
        return features

    def _count_rows(self, keys: Ints, rows: Rows, steps: int) -> Ints:
        """Return the number of rows in the last steps up to some rows, which differs if steps are missing; [rows]."""
        first = np.searchsorted(keys, keys[rows] - (steps - 1))
        return np.asarray(rows - np.maximum(first, self._starts[rows]) + 1)

    def _scales(self, keys: Ints, label: Floats, rows: Rows) -> Floats:
        """Return the mean absolute error of the seasonal naive forecast in the past of some rows; NaN if unknown.

        Source: R. J. Hyndman and A. B. Koehler, Another look at measures of forecast accuracy, 2006.
        """
        errors = np.abs(label - _value_at(label, _find(keys, keys - self._config.season)))
        count, mean, _ = moving_statistics.moments(errors, rows - self._starts[rows] + 1, rows)
        return np.where(count > 0, mean, np.nan)

    def _forecast_naively(self, keys: Ints, label: Floats, origins: Rows, numbers: Ints) -> Floats:
        """Return the value of the last season at the same place in the season; the last value if that is missing."""
        season = self._config.season
        back = numbers - season * -(-numbers // season)
        values = _value_at(label, _find(keys, keys[origins] + back))
        return np.where(np.isnan(values), label[origins], values)

    def _target_times(self, step: Step, origins: Rows, targets: Rows, numbers: Ints) -> pa.Array:
        """Return the times of the targets as the column has them, computed for targets without a row."""
        column = self._columns[self._config.time]
        if (targets >= 0).all():
            return column.take(pa.array(targets))
        times = step.add(self._times[origins], numbers, are_month_ends(self._times))
        if pa.types.is_binary(column.type):
            computed = pa.array(to_iso(times, step.has_days).tolist(), pa.string()).cast(pa.binary())
        else:
            computed = pa.array(times / MICROS[self._unit]).cast(column.type, safe=False)
        return pc.coalesce(_take(column, targets), computed)


def _find(keys: Ints, wanted: Ints) -> Rows:
    """Return the rows with these keys; -1 where there is none. The shape is that of `wanted`."""
    if not len(keys):
        return np.full(wanted.shape, -1)
    rows = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[rows] == wanted, rows, -1)


def _value_at(values: Floats, rows: Rows) -> Floats:
    return np.where(rows >= 0, values[rows], np.nan) if len(values) else np.empty(0)


def _take(column: pa.Array, rows: Rows) -> pa.Array:
    """Return the values of rows; null for -1."""
    return column.take(pa.array(rows, mask=rows < 0))


def _encode_series(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return a number per row, which orders series by the texts of their columns; [rows]."""
    codes = np.zeros(rows, np.int64)
    for column in columns:
        coded = as_text(column).dictionary_encode()
        words = np.array(coded.dictionary.to_pylist(), object)
        ranks = np.empty(len(words), np.int64)
        ranks[np.argsort(words)] = np.arange(len(words))
        codes = codes * max(len(words), 1) + ranks[np.asarray(coded.indices)]
        # Number the pairs that occur, so that products of several columns stay small.
        _, codes = np.unique(codes, return_inverse=True)
    return codes


def _join(batches: list[pa.RecordBatch]) -> dict[str, pa.Array]:
    """Concatenate the columns of batches whose types may differ, such as whole numbers and others."""
    names = dict.fromkeys(name for batch in batches for name in batch.schema.names)
    columns = {}
    for name in names:
        parts = [
            batch.column(at) if (at := batch.schema.get_field_index(name)) >= 0 else pa.nulls(batch.num_rows)
            for batch in batches
        ]
        columns[name] = pa.concat_arrays(_unify(parts))
    return columns


def _unify(parts: list[pa.Array]) -> list[pa.Array]:
    """Convert arrays to a common type: numbers to floats, others to text."""
    types = {part.type for part in parts if not pa.types.is_null(part.type)}
    if len(types) > 1:
        is_number = all(pa.types.is_integer(type_) or pa.types.is_floating(type_) for type_ in types)
        return [part.cast(pa.float64(), safe=False) if is_number else as_text(part) for part in parts]
    return [part.cast(type_) for part in parts for type_ in types] if types else parts
