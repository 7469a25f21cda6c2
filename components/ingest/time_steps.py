"""The steps of time series: a fixed duration, or months of the calendar."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from components.base.errors import InputError
from components.data.date_texts import Unit
from components.ingest.split_assignment import MICROS, Micros
from components.ingest.window_config import EVERY

Ints: TypeAlias = npt.NDArray[np.int64]
_DAY = 86_400_000_000
_SIZES = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": _DAY, "w": 7 * _DAY, "mo": 1, "y": 12}
_MOST = 1_000
"""Maximum number of different differences that are kept; regular series have few."""


@dataclass(frozen=True)
class Step:
    """The distance of two neighbours in a series.

    Attributes:
      size: Microseconds, or months.
      in_months: Whether `size` is a number of months.
    """

    size: int
    in_months: bool = False

    @classmethod
    def parse(cls, text: str, unit: Unit) -> Step:
        """Parse `data.windows.every`.

        Args:
          text: A text that EVERY matches.
          unit: Unit of a number without unit.
        """
        match = EVERY.fullmatch(text)
        if match is None:
            raise ValueError(f"expected a step such as 1d, received {text!r}")
        number, name = match.groups()
        return cls(int(number) * (_SIZES[name] if name else MICROS[unit]), name in ("mo", "y"))

    @property
    def has_days(self) -> bool:
        """Whether a step is a whole number of days or months."""
        return self.in_months or self.size % _DAY == 0

    def count(self, times: Micros, anchors: Micros) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the number of steps from anchors to times, [rows], and whether it is a whole number, bool [rows].

        Args:
          times: Microseconds since 1970; [rows].
          anchors: Times at or before them; [rows].
        """
        distances = month_of(times) - month_of(anchors) if self.in_months else times - anchors
        numbers, rest = np.divmod(distances, self.size)
        return numbers, rest == 0

    def add(self, times: Micros, numbers: Ints, month_ends: bool) -> Micros:
        """Return the times that are some steps after other times.

        Args:
          times: Microseconds since 1970; [rows].
          numbers: Numbers of steps; [rows].
          month_ends: Whether months are added such that the result is the last day of a month. Otherwise the day of the
            month stays the same, or becomes the last day in a shorter month.
        """
        if not self.in_months:
            return np.asarray(times + numbers * self.size)
        months = month_of(times)
        days, clock = np.divmod(times - _start_of(months), _DAY)
        later = months + numbers * self.size
        last = (_start_of(later + 1) - _start_of(later)) // _DAY - 1
        return np.asarray(_start_of(later) + (last if month_ends else np.minimum(days, last)) * _DAY + clock)


@dataclass(frozen=True)
class Differences:
    """The differences of neighbouring times in series, from which the step is inferred.

    Attributes:
      micros: Microseconds → number of differences.
      months: Number of months → number of differences.
      offsets: Up to two different distances from the start of the month, in microseconds.
      month_ends: Whether all times are on the last day of a month.
    """

    micros: Counter[int] = field(default_factory=Counter)
    months: Counter[int] = field(default_factory=Counter)
    offsets: frozenset[int] = frozenset()
    month_ends: bool = True

    @classmethod
    def measure(cls, times: Micros, is_first: npt.NDArray[np.bool_]) -> Differences:
        """Measure the differences of rows.

        Args:
          times: Microseconds since 1970, ascending within a series; [rows].
          is_first: Whether the row is the first of its series, bool [rows].
        """
        inside = ~is_first[1:]
        months = month_of(times)
        offsets = np.unique(times - _start_of(months))
        return cls(
            _count(np.diff(times)[inside]),
            _count(np.diff(months)[inside]),
            frozenset(offsets[:2].tolist()),
            are_month_ends(times),
        )

    def merge(self, other: Differences) -> Differences:
        """Return the differences of both."""
        return Differences(
            Counter(dict(_most_common(self.micros + other.micros)[:_MOST])),
            self.months + other.months,
            frozenset(sorted(self.offsets | other.offsets)[:2]),
            self.month_ends and other.month_ends,
        )

    def infer(self) -> Step:
        """Return the most frequent difference; the smallest of several.

        It is a number of months if all times are at the same place in their month, or on the last days of months.

        Raises:
          InputError: If no series has two different times.
        """
        if not self.micros:
            raise InputError(
                "data.windows: expected a series with two different times, received none", "set data.windows.every"
            )
        if self.months and (len(self.offsets) == 1 or self.month_ends):
            return Step(_most_common(self.months)[0][0], in_months=True)
        return Step(_most_common(self.micros)[0][0])


def merge_differences(parts: Iterable[Differences]) -> Differences:
    """Return the differences of several parts of the rows."""
    return functools.reduce(Differences.merge, parts, Differences())


def are_month_ends(times: Micros) -> bool:
    """Return whether all times are on the last day of a month."""
    return bool((_start_of(month_of(times) + 1) - times <= _DAY).all())


def to_iso(times: Micros, has_days: bool) -> npt.NDArray[np.str_]:
    """Return times as ISO 8601 texts, [rows]; as dates if `has_days` is true and all times are midnights."""
    is_date = has_days and not (times % _DAY).any()
    return np.datetime_as_string(times.astype("datetime64[us]"), "D" if is_date else "s")


def month_of(times: Micros) -> Ints:
    """Return the number of the month since January 1970; [rows]."""
    return times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def _start_of(months: Ints) -> Micros:
    return months.astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)


def _count(differences: Ints) -> Counter[int]:
    """Count the positive differences."""
    values, counts = np.unique(differences[differences > 0], return_counts=True)
    return Counter(dict(_most_common(dict(zip(values.tolist(), counts.tolist(), strict=True)))[:_MOST]))


def _most_common(counts: dict[int, int]) -> list[tuple[int, int]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
