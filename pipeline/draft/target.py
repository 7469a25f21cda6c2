"""From what the user calls the label to a task, and to a label that the pipeline can learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from components.errors import InputError
from components.features import expression
from components.names import column_name, did_you_mean
from components.section import Task
from pipeline.draft.table import Table, kind, numbers, texts

_CLASSES = 30
"""Distinct whole numbers up to which a label is a class rather than a quantity."""
_ROWS_OF_CLASS = 10
"""Rows of a class below which init warns."""
_MOST_CLASSES = 1_000
_NEGATIVE = frozenset({"0", "no", "n", "false", "f", "negative", "none", "off", "absent"})


@dataclass(frozen=True)
class Goal:
    """What is to be learned.

    Attributes:
      label: for `data.label`: a column or an expression.
      task: binary, multiclass or regression.
      columns: those that the label is computed from.
      values: the label of each row: 0 or 1, the class's index, or the number; NaN where it is missing.
      classes: how many rows each value has, the most frequent first; of a regression none.
      notes: what the user should know.
    """

    label: str
    task: Task
    columns: tuple[str, ...]
    values: Any
    classes: Mapping[str, int]
    notes: tuple[str, ...]


def goal(table: Table, given: str, task: Task | None = None) -> Goal:
    """The goal that a label means.

    Args:
      table: the data.
      given: a column, by its name in the header or in the config, or an expression such as `tips > 0.2 * fare`.
      task: what kind of prediction; None: found from the values.

    Raises:
      InputError: there is no such column, the expression fits no column, or nothing can be learned of the label.
    """
    name = column_name(given)
    if name in table.columns:
        return _of_column(name, table.columns[name], task)
    try:
        parsed = expression.parse(given)
    except ValueError as error:
        raise InputError(f"--label: {error}", "name a column of the data, or compare some of them") from error
    for column in parsed.columns:
        if column not in table.columns:
            raise InputError(
                f"--label: the data has no column {column!r}{did_you_mean(column, table.columns)}",
                "name a column of the data",
            )
    return _of_expression(parsed, table, task)


def _of_expression(parsed: expression.Expression, table: Table, task: Task | None) -> Goal:
    operands = {name: _operand(table.columns[name]) for name in parsed.columns}
    try:
        with np.errstate(all="ignore"):
            value = parsed.evaluate(operands, _Arithmetic())
    except TypeError as error:
        held = ", ".join(f"{name} holds {kind(table.columns[name])}" for name in parsed.columns)
        raise InputError(
            f"--label: {parsed.text!r} cannot be computed: {held}",
            "compare text with text and numbers with numbers, as in income == '>50K'",
        ) from error
    value = np.asarray(value)
    if value.dtype == bool:
        return _checked(Goal(parsed.text, "binary", parsed.columns, value.astype(float), _counted(value * 1), ()), task)
    return _checked(Goal(parsed.text, "regression", parsed.columns, value.astype(float), {}, ()), task)


def _of_column(name: str, column: pa.Array, task: Task | None) -> Goal:
    found = kind(column)
    if found in ("missing", "lists"):
        told = "has no value in any row" if found == "missing" else "holds lists"
        raise InputError(f"--label: the column {name!r} {told}", "name a column with one value in each row")
    _expect_whole(name, column.null_count, len(column))
    if found == "bytes":
        return _checked(_of_texts(name, texts(column), task), task)
    values = numbers(column)
    _expect_whole(name, int((~np.isfinite(values)).sum()), len(values))
    distinct = np.unique(values)
    whole = bool((distinct == np.round(distinct)).all())
    if task == "regression" or (task is None and not (whole and len(distinct) <= _CLASSES)):
        return _checked(Goal(name, "regression", (name,), values, {}, ()), task)
    if len(distinct) == 2 and task in (None, "binary"):
        if set(distinct) == {0.0, 1.0}:
            return Goal(name, "binary", (name,), values, _counted(values.astype(int)), ())
        high = f"{int(distinct[1])}" if whole else f"{distinct[1]:g}"
        positive = values == distinct[1]
        note = f"1 stands for {name} = {high}, 0 for {distinct[0]:g}"
        return Goal(f"{name} == {high}", "binary", (name,), positive * 1.0, _counted(positive * 1), (note,))
    codes = np.searchsorted(distinct, values)
    classes = _counted(values.astype(int) if whole else values)
    return _checked(Goal(name, "multiclass", (name,), codes * 1.0, classes, _rare(classes)), task)


def _of_texts(name: str, values: Any, task: Task | None) -> Goal:
    counts = Counter(values.tolist())
    if len(counts) == 2 and task in (None, "binary"):
        positive = _positive(counts)
        is_it = values == positive
        label = f"{name} == {positive!r}"
        (other,) = set(counts) - {positive}
        note = f"1 stands for {positive!r}, 0 for {other!r}"
        return Goal(label, "binary", (name,), is_it * 1.0, _counted(is_it * 1), (note,))
    if len(counts) > _MOST_CLASSES:
        raise InputError(
            f"--label: the column {name!r} holds {len(counts):,} different texts, too many for classes",
            "name a column with fewer values, or compare it, as in state == 'sold'",
        )
    codes = {value: index for index, value in enumerate(sorted(counts))}
    classes = dict(counts.most_common())
    return Goal(name, "multiclass", (name,), np.array([codes[each] for each in values], float), classes, _rare(classes))


def _positive(counts: Counter[str]) -> str:
    """The value that is asked about: not the one that says no, or else the rarer one."""
    said_no = [value for value in counts if value.strip().lower() in _NEGATIVE]
    if len(said_no) == 1:
        return next(value for value in counts if value not in said_no)
    return min(counts, key=lambda value: (counts[value], value))


def _checked(found: Goal, task: Task | None) -> Goal:
    """The goal, if something can be learned of it, and if it is of the task that was asked for."""
    known = found.values[np.isfinite(found.values)]
    if len(np.unique(known)) < 2:
        raise InputError(
            f"--label: {found.label!r} is the same in all {len(found.values):,} rows",
            "choose a label that differs between rows, or data that holds both outcomes",
        )
    if task and task != found.task:
        raise InputError(
            f"--task: {task} does not fit the label {found.label!r}, which makes a {found.task} task",
            "leave --task out, or name another label",
        )
    return found


def _expect_whole(name: str, missing: int, rows: int) -> None:
    if missing:
        raise InputError(
            f"--label: {name!r} is missing in {missing:,} of {rows:,} rows",
            "leave these rows out of the data, or fill the label in",
        )


def _rare(classes: Mapping[str, int]) -> tuple[str, ...]:
    rare = [f"{value!r} ({rows})" for value, rows in classes.items() if rows < _ROWS_OF_CLASS]
    return (f"too few rows to be learned or judged: {', '.join(rare[:10])}",) if rare else ()


def _counted(values: Any) -> dict[str, int]:
    return {str(value): count for value, count in Counter(values.tolist()).most_common()}


def _operand(column: pa.Array) -> Any:
    return texts(column) if kind(column) == "bytes" else numbers(column)


class _Arithmetic:
    """The operations of a label expression on NumPy's arrays; a comparison with a missing value is false."""

    def constant(self, value: Any) -> Any:
        """A number or a text of the expression."""
        return value

    def not_equal(self, left: Any, right: Any) -> Any:
        """Different, and neither is missing."""
        return (left != right) & _known(left) & _known(right)

    def __getattr__(self, name: str) -> Any:
        """NumPy's operation of that name."""
        return getattr(np, name)


def _known(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.array([each is not None for each in value]) if value.dtype == object else ~np.isnan(value)
    return True
