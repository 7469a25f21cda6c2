"""What becomes of each column: the operations that make features of it, or why it is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.draft.table import Table, kind, numbers, texts
from pipeline.draft.target import Goal

_BINS = (4, 48)
"""Least and most bins of a number; a plain trial on the taxi example was best with 48."""
_ROWS_OF_BIN = 50
_LONG_TAIL = 3.0
"""Skewness from which on a logarithm is taken."""
_STEPS = 64
"""Different whole numbers up to which each may have a bin of its own, which tells the model all there is to know."""
_CODES = 256
"""Different whole numbers up to which they may be codes, which get a vector each beside their size."""
_ROWS_OF_CODE = 20
_MISSING = 0.001
"""Share of missing values from which on the model is told where they are."""
_WIDE = 40
"""Columns from which on a whole number gets no vector: so many tables cost more than they tell."""
_VOCABULARY = 50_000
_UNIQUE = 0.9
"""Share of different values from which on a text is an identifier, or free text."""
_WORDS = 3
"""Words of a text, at the median, from which on it is free text."""
_SEVERAL = "|;,"
_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")
_TIME_NAME = re.compile(r"(^|_)(time|timestamp|date|datetime|ts|at|created|updated)($|_)", re.IGNORECASE)
_ID_NAME = re.compile(r"(^|_)(id|uuid|guid|key|index|idx|rowid|row)$|^_?u?n?named?_0$", re.IGNORECASE)
_SECONDS = {"seconds": 1, "milliseconds": 1000}
_EPOCH = (946_684_800, 4_102_444_800)
"""2000 to 2100, in seconds since 1970."""
_WEAK = 0.75
"""Area under the ROC curve below which a column of the label's expression may stay: alone it tells little of it."""


@dataclass(frozen=True)
class Chosen:
    """A column that is a feature.

    Attributes:
      ops: as `features.columns` has them.
      why: what was seen of the column.
      ids: different values that get a vector each.
      numbers: numbers that the model gets.
    """

    ops: tuple[Any, ...]
    why: str
    ids: int = 0
    numbers: int = 0


@dataclass(frozen=True)
class LeftOut:
    """A column that is none, and why."""

    why: str


def choose(table: Table, goal: Goal) -> dict[str, Chosen | LeftOut]:
    """What becomes of each column of a table."""
    strongest = max(goal.columns, key=lambda name: _tells(table.columns[name], goal))
    chosen: dict[str, Chosen | LeftOut] = {}
    for name, column in table.columns.items():
        if name in goal.columns and (name == strongest or _tells(column, goal) >= _WEAK):
            chosen[name] = LeftOut("the label" if len(goal.columns) == 1 else "the label is computed from it")
        else:
            chosen[name] = _column(name, column, table, goal)
    return chosen


def _column(name: str, column: pa.Array, table: Table, goal: Goal) -> Chosen | LeftOut:
    found = kind(column)
    if found == "missing":
        return LeftOut("no value in any row")
    if found == "lists":
        return _lists(column)
    known = column.drop_null()
    distinct = pc.count_distinct(known).as_py()
    if found == "float" and (numbers_known := _finite(column)).size:
        distinct = len(np.unique(numbers_known))
    if distinct < 2:
        return LeftOut("the same in all rows" + (" that have it" if column.null_count else ""))
    if _is_copy(column, distinct, goal):
        return LeftOut("a copy of the label: each of its values stands for one value of the label")
    missing = column.null_count / len(column)
    if found == "bytes":
        return _text(name, texts(column), distinct, missing)
    return _number(name, column, distinct, missing, len(table.columns))


def _number(name: str, column: pa.Array, distinct: int, missing: float, columns: int) -> Chosen | LeftOut:
    values = _finite(column)
    whole = kind(column) == "int"
    if whole and (unit := _epoch(values)) and (_TIME_NAME.search(name) or distinct > 0.5 * len(values)):
        return _date(np.array(values, f"datetime64[{'s' if unit == 'seconds' else 'ms'}]"), {"unit": unit}, missing)
    if whole and distinct > 100 and distinct == len(values) and (_ID_NAME.search(name) or _in_a_row(values)):
        return LeftOut("a number of its own in each row: an identifier")
    if whole and _ID_NAME.search(name) and distinct > 0.5 * len(values):
        return LeftOut(f"{distinct:,} values in {len(values):,} rows: an identifier")
    least, greatest = values.min(), values.max()
    tail = bool(least >= 0 and _skewness(values) > _LONG_TAIL)
    told = [f"{_short(least)} … {_short(greatest)}"]
    zeros = float((values == 0).mean())
    told += [f"{zeros:.0%} zeros"] * (zeros >= 0.2 and distinct > 2)
    told += ["long tail"] * tail + _missing(missing)
    often = len(values) >= _ROWS_OF_CODE * distinct
    ops: list[Any] = ["log" if tail else "z_score"]
    width, ids = 1, 0
    if distinct > 2:
        bins = int(np.clip(len(values) // _ROWS_OF_BIN, *_BINS))
        bins = distinct - 1 if whole and often and distinct <= _STEPS else min(bins, distinct - 1)
        ops.append({"piecewise_linear": {"bins": bins}})
        width += bins
    if whole and _STEPS < distinct <= _CODES and often and columns <= _WIDE:
        ops.append("vocab")
        ids = distinct
        told.insert(1, f"{distinct} values")
    elif missing >= _MISSING:
        ops.append("missing")
        width += 1
    return Chosen(tuple(ops), ", ".join(told), ids, width)


def _text(name: str, values: Any, distinct: int, missing: float) -> Chosen | LeftOut:
    known = values[np.array([each is not None for each in values])]
    if all(_TIME.fullmatch(each) for each in known[:1000]):
        return _date(np.array([each[:19].replace(" ", "T") for each in known], "datetime64[s]"), {}, missing)
    told = [f"{distinct:,} texts", *_missing(missing)]
    if separator := _separator(known, distinct):
        pieces = {piece.strip() for each in known for piece in each.split(separator)}
        several = int(np.quantile([each.count(separator) + 1 for each in known], 0.99))
        options = {"separator": separator, "max_values": max(2, several), "size": min(len(pieces), _VOCABULARY)}
        told.insert(1, f"several of {len(pieces):,} values in each")
        return Chosen(({"split": options},), ", ".join(told), len(pieces))
    if distinct > _UNIQUE * len(known) and len(known) >= 20:
        words = np.median([len(each.split()) for each in known])
        if words < _WORDS:
            return LeftOut(f"{distinct:,} texts in {len(known):,} rows: an identifier, or nothing that comes again")
        told.append(f"{words:.0f} words at the median")
        return Chosen(("text",), ", ".join(told), 10_000)
    if distinct > 0.5 * len(known) and _ID_NAME.search(name):
        return LeftOut(f"{distinct:,} texts in {len(known):,} rows: an identifier")
    size = min(distinct, _VOCABULARY)
    # A text that came once or twice has taught its vector nothing.
    rare = {"min_frequency": 3, "oov_buckets": 10} if distinct > 100 else {}
    return Chosen(({"vocab": {"size": size, **rare}},), ", ".join(told), size)


def _date(values: Any, options: Mapping[str, Any], missing: float) -> Chosen | LeftOut:
    """Only what comes again in a date: the day itself is over when the model serves."""
    parts = []
    for part, unit in (("month", "M"), ("weekday", "D"), ("hour", "h"), ("minute", "m")):
        truncated = values.astype(f"datetime64[{unit}]")
        coarser = values.astype(f"datetime64[{'YMDh'['MDhm'.index(unit)]}]")
        varies = len(np.unique(truncated)) > 1 if part == "weekday" else (truncated != coarser).any()
        if varies and part != "minute":
            parts.append(part)
    told = f"{values.min().astype(str)[:10]} … {values.max().astype(str)[:10]}; the date itself never comes again"
    if not parts:
        return LeftOut(f"a time, {told}")
    told = ", ".join([told, *_missing(missing)])
    return Chosen(({"date_parts": {"parts": parts, **options}},), told, 12 + 7 + 24)


def _lists(column: pa.Array) -> Chosen | LeftOut:
    if not pa.types.is_binary(column.type.value_type) and not pa.types.is_integer(column.type.value_type):
        return LeftOut("lists of numbers; an operation of your own could read them")
    distinct = pc.count_distinct(column.flatten()).as_py()
    several = int(np.quantile(np.asarray(pc.list_value_length(column).fill_null(0)), 0.99))
    options = {"max_values": max(2, several), "size": min(distinct, _VOCABULARY)}
    return Chosen(({"split": options},), f"several of {distinct:,} values in each", distinct)


def _finite(column: pa.Array) -> Any:
    values = numbers(column)
    return values[np.isfinite(values)]


def _separator(known: Any, distinct: int) -> str | None:
    """What stands between several values in one text, if the texts are made of few."""
    for separator in _SEVERAL:
        holding = sum(separator in each for each in known[:5000]) / min(len(known), 5000)
        if holding >= 0.3:
            pieces = {piece.strip() for each in known for piece in each.split(separator)}
            words = np.mean([len(piece.split()) for piece in list(pieces)[:1000]])
            if len(pieces) <= 0.5 * distinct and words <= _WORDS:
                return separator
    return None


def _epoch(values: Any) -> str | None:
    """The unit of a time since 1970, if the numbers can be one."""
    for unit, factor in _SECONDS.items():
        if values.min() >= _EPOCH[0] * factor and values.max() <= _EPOCH[1] * factor:
            return unit
    return None


def _in_a_row(values: Any) -> bool:
    return bool(values.max() - values.min() < 2 * len(values))


def _skewness(values: Any) -> float:
    deviation = values.std()
    return float((((values - values.mean()) / deviation) ** 3).mean()) if deviation else 0.0


def _is_copy(column: pa.Array, distinct: int, goal: Goal) -> bool:
    """Whether each value of a column means one value of the label, and the other way round, as far as rows tell."""
    if goal.task == "regression":
        if kind(column) == "bytes":
            return False
        values = numbers(column)
        both = np.isfinite(values) & np.isfinite(goal.values)
        if both.sum() < 3 or values[both].std() == 0 or goal.values[both].std() == 0:
            return False
        # Columns are float32, and so no correlation is exact.
        return bool(abs(np.corrcoef(values[both], goal.values[both])[0, 1]) > 1 - 1e-9)
    classes = len(goal.classes)
    if column.null_count or distinct != classes:
        return False
    codes = np.asarray(column.dictionary_encode().indices)
    pairs = np.unique(np.stack([codes, goal.values.astype(int)]), axis=1)
    return bool(pairs.shape[1] == classes)


def _tells(column: pa.Array, goal: Goal) -> float:
    """How well a column alone orders the label, as an area under the ROC curve; of a text 1."""
    if kind(column) not in ("int", "float") or goal.task == "multiclass":
        return 1.0
    values = np.nan_to_num(numbers(column))
    label = goal.values > (0 if goal.task == "binary" else np.median(goal.values))
    if label.all() or not label.any():
        return 0.5
    in_order = np.sort(values)
    ranks: Any = np.searchsorted(in_order, values, "left") + np.searchsorted(in_order, values, "right")
    positive = int(label.sum())
    area = (ranks[label].sum() / 2 - positive**2 / 2) / (positive * (len(label) - positive))
    return float(max(area, 1 - area))


def _missing(share: float) -> list[str]:
    return [f"{share:.1%} missing" if share >= 0.001 else "few missing"] if share else []


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e9 else f"{value:.4g}"
