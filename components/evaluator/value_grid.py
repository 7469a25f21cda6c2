"""Chooses the values of a column for which partial dependence is measured, as rows of a sample that have them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from components.evaluator.binning import Ints
from components.evaluator.dependence import GridPoint

_ENDS = 0.01
"""Share of the numbers at either end that the grid leaves out, so that single outliers do not stretch a chart."""
_LONGEST = 200
"""Maximum length of a text in bytes, which excludes encoded images."""


class Grid(NamedTuple):
    """The points of a column.

    Attributes:
      numeric: Whether the values are numbers.
      points: The points.
      rows: By point, a row of the sample with the value; for the point `others`, all rows with other texts.
    """

    numeric: bool
    points: tuple[GridPoint, ...]
    rows: tuple[Ints, ...]

    def choose_rows(self, count: int, random: np.random.Generator) -> Ints:
        """Return rows that provide the values of the points, [points, count]; for `others`, random ones."""
        return np.stack([random.choice(rows, count) if len(rows) > 1 else np.repeat(rows, count) for rows in self.rows])


def make_grid(column: pa.Array, numbers: int, texts: int) -> Grid | str:
    """Return the grid of a column, or the reason why it does not have one.

    Numbers are at quantiles of equal distance (all values, if there are at most `numbers`). Texts are the most frequent
    ones, with a common point for all others. Missing values are a point.

    Args:
      column: Column of lists; see components.data.examples.
      numbers: Maximum number of points of numbers, two or more, in addition to missing values.
      texts: The same for texts.
    """
    if pa.types.is_null(column.type):
        return "all values are missing"
    offsets = np.asarray(column.offsets)
    counts = np.diff(offsets)
    if counts.max(initial=0) > 1:
        return "rows have several values"
    present, missing = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    values = column.values.take(pa.array(offsets[:-1][present]))
    is_numeric = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
    chosen = _choose_numbers(values, numbers) if is_numeric else _choose_texts(values, texts, len(counts))
    if isinstance(chosen, str):
        return chosen
    points, rows = [point for point, _ in chosen], [present[at] for _, at in chosen]
    if len(missing):
        points.append(GridPoint(None, len(missing) / len(counts), "missing"))
        rows.append(missing[:1])
    return Grid(is_numeric, tuple(points), tuple(rows)) if len(points) > 1 else "all values are equal"


def _choose_numbers(values: pa.Array, most: int) -> list[tuple[GridPoint, Ints]]:
    """Return at most `most` points with the places of their values."""
    numbers = values.to_numpy(zero_copy_only=False)
    order = np.argsort(numbers, kind="stable")
    order = order[np.isfinite(numbers[order])]
    # The first place of each different number.
    first = order[np.flatnonzero(np.diff(numbers[order], prepend=np.nan) != 0)]
    if len(first) > most:
        quantiles = np.linspace(_ENDS, 1 - _ENDS, most)
        places = order[np.round(quantiles * (len(order) - 1)).astype(np.int64)]
        first = places[np.flatnonzero(np.diff(numbers[places], prepend=np.nan) != 0)]
    return [(GridPoint(numbers[place].item()), np.array([place])) for place in first]


def _choose_texts(values: pa.Array, most: int, rows: int) -> list[tuple[GridPoint, Ints]] | str:
    """Return points with the places of their values, or the reason why there are none.

    Args:
      values: The values.
      most: Maximum number of points.
      rows: Number of rows, with and without values.
    """
    encoded = values.dictionary_encode()
    texts, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    frequencies = np.bincount(codes, minlength=len(texts))
    if max(map(len, texts), default=0) > _LONGEST:
        return f"texts are longer than {_LONGEST} bytes"
    if len(texts) > most and len(texts) > len(codes) / 2:
        return "most texts occur only once"
    by_frequency = sorted(range(len(texts)), key=lambda code: (-frequencies[code], texts[code]))
    shown = by_frequency if len(texts) <= most else by_frequency[: most - 1]
    points = []
    for code in shown:
        try:
            point = GridPoint(texts[code].decode(), float(frequencies[code] / rows))
        except UnicodeDecodeError:
            return "values are not valid UTF-8"
        points.append((point, np.flatnonzero(codes == code)[:1]))
    if len(shown) < len(texts):
        other_rows = np.flatnonzero(~np.isin(codes, shown))
        points.append((GridPoint(None, len(other_rows) / rows, "others"), other_rows))
    return points
