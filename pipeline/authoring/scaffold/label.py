"""Derives the learning task (binary, multiclass or regression) from the values of a label."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import skew
from sklearn.isotonic import isotonic_regression

from components.base.config_section import Task
from components.base.errors import InputError
from components.base.names import column_name, did_you_mean
from components.data.decimals import number_text
from components.features import expression, label_values
from pipeline.authoring.protected_attributes import WORD
from pipeline.authoring.scaffold.sample import Table, kind, numbers, texts

_CLASSES = 30
"""Maximum number of distinct integers that are classes. More of them are a quantity."""
_ROWS_OF_NUMBER = 5
"""Minimum mean number of rows per distinct integer for classes. With fewer rows, classes could not be learned."""
_VALUES_OF_QUANTITY = 7
"""Minimum number of distinct integers that may be a quantity. Fewer frequencies rise and fall by chance."""
_RARE_END = 0.1
"""Maximum frequency of the rarer end of a quantity, as a share of the greatest frequency."""
_UNEVEN, _UNEVEN_OF_MANY, _MANY_VALUES = 0.05, 0.1, 10
"""Maximum mean deviation, beyond noise, from frequencies that rise and then fall, as a share of the frequency; and the
same from so many integers on, whose frequencies hardly rise and fall by chance."""
_SKEWED = 0.5
"""Skewness from which numbers that begin at 0 are counts."""
_LONG_TAIL = 2.0
"""Skewness from which positive numbers have a long tail, as prices often have."""
_CLASS_NAME = re.compile(rf"{WORD}(?i:class|type|kind|category|code|group|cluster|species)$")
_QUANTITY_NAME = re.compile(
    rf"{WORD}(?i:age|amount|bedrooms|children|cost|count|counts|days|educ|education|experience|grade|hours|income|kids|"
    r"minutes|months|num|number|price|qty|quantity|rating|rooms|school|score|size|speed|visits|weeks|year|years|yr)"
    r"(?:_|(?=[A-Z])|\d*$)"
)
_NAMED_VALUES = 5
"""Minimum number of distinct integers of a column whose name means a quantity, or that begin at 0 and have gaps."""
_ROWS_OF_CLASS = 10
"""Minimum number of rows of a class. init warns about classes with fewer rows."""
_MOST_CLASSES = 1_000
_NEGATIVE = frozenset({"0", "no", "n", "false", "f", "negative", "none", "off", "absent"})


@dataclass(frozen=True)
class LearningTask:
    """A label and the learning task that its values make.

    Attributes:
      label: Value for `data.label`: a column or an expression.
      task: binary, multiclass or regression.
      columns: Columns that the label depends on.
      values: Labels of the sample, float64, shape [rows]: 0 or 1, the index of the class, or the number to predict.
        Missing labels are NaN.
      classes: Value → number of rows, the most frequent value first. Empty for a regression.
      notes: Comments for the config.
      loss: `model.loss`, if it is not the default of the task.
    """

    label: str
    task: Task
    columns: tuple[str, ...]
    values: npt.NDArray[np.float64]
    classes: Mapping[str, int]
    notes: tuple[str, ...]
    loss: Literal["poisson"] | None = None


def learning_task_of(table: Table, label: str, task: Task | None = None) -> LearningTask:
    """Derive the learning task of a label.

    Args:
      table: Sample of the data.
      label: Column, by its name in the header or in the config, or an expression such as `tips > 0.2 * fare`.
      task: Kind of prediction. If None, it is derived from the values.

    Raises:
      InputError: If a column does not exist, if the expression does not fit the types of the columns, or if the label
        cannot be learned.
    """
    name = column_name(label)
    if name in table.columns:
        return _derive_from_column(name, table.columns[name], task)
    try:
        parsed = expression.parse(label)
    except ValueError as error:
        raise InputError(f"--label: {error}", "give --label a column of the data, or a comparison of some") from error
    for column in parsed.columns:
        if column not in table.columns:
            raise InputError(
                f"--label: the data has no column {column!r}{did_you_mean(column, table.columns)}",
                "give --label a column of the data",
            )
    return _derive_from_expression(parsed, table, task)


def _derive_from_expression(parsed: expression.Expression, table: Table, task: Task | None) -> LearningTask:
    """Derive the learning task of an expression: binary for a comparison, regression for a number."""
    try:
        value = label_values.evaluate(parsed, table.columns)
    except TypeError as error:
        kinds = ", ".join(f"{name} holds {kind(table.columns[name])}" for name in parsed.columns)
        raise InputError(
            f"--label: {parsed.text!r} cannot be computed: {kinds}",
            "compare text with text and numbers with numbers, as in --label \"income == '>50K'\"",
        ) from error
    if value.dtype == bool:
        return _check(
            LearningTask(parsed.text, "binary", parsed.columns, value.astype(float), _count_values(value * 1), ()), task
        )
    return _check(LearningTask(parsed.text, "regression", parsed.columns, value.astype(float), {}, ()), task)


def _derive_from_column(name: str, column: pa.Array, task: Task | None) -> LearningTask:
    """Derive the learning task of a column from the number of its distinct values.

    Texts and few distinct integers are classes, unless the integers are a quantity. Other numbers are a regression. In
    between, the user has to decide.
    """
    column_kind = kind(column)
    if column_kind in ("missing", "lists"):
        problem = "has no value in any row" if column_kind == "missing" else "holds lists"
        raise InputError(f"--label: the column {name!r} {problem}", "give --label a column with one value in each row")
    # An empty text is a missing label in the pipeline as well.
    empty = pc.sum(pc.equal(pc.binary_length(column), 0)).as_py() if column_kind == "bytes" else 0
    _check_complete(name, column.null_count + (empty or 0), len(column))
    if column_kind == "bytes":
        return _check(_derive_from_texts(name, texts(column), task), task)
    values = numbers(column)
    _check_complete(name, int((~np.isfinite(values)).sum()), len(values))
    distinct, frequencies = np.unique(values, return_counts=True)
    integers = bool((distinct == np.round(distinct)).all())
    if task != "multiclass" and integers and _is_quantity(name, distinct, frequencies):
        return _check(_make_quantity(name, values, task), task)
    if task is None and integers and _CLASSES < len(distinct) <= min(_MOST_CLASSES, len(values) / _ROWS_OF_NUMBER):
        raise InputError(
            f"--label: {name!r} holds {len(distinct):,} different whole numbers, {distinct[0]:.0f} to "
            f"{distinct[-1]:.0f}, in {len(values):,} rows: they are a quantity, or codes of classes",
            f"give --task regression to predict the number, or --task multiclass to predict which of the "
            f"{len(distinct):,} it is",
        )
    if task == "regression" or (task is None and not (integers and len(distinct) <= _CLASSES)):
        return _check(LearningTask(name, "regression", (name,), values, {}, _describe_tail(values)), task)
    if len(distinct) == 2 and task in (None, "binary"):
        if set(distinct) == {0.0, 1.0}:
            return LearningTask(name, "binary", (name,), values, _count_values(values.astype(int)), ())
        # The pipeline expects a binary label of 0 and 1, so compare the column with the greater value.
        low, high = (number_text(int(value) if integers else value) for value in distinct)
        label = f"{expression.column_text(name)} == {high}"
        positive = values == distinct[1]
        note = f"1 stands for {name} = {high}, 0 for {low}"
        return LearningTask(label, "binary", (name,), positive * 1.0, _count_values(positive * 1), (note,))
    if len(distinct) > _MOST_CLASSES:
        raise InputError(
            f"--task: multiclass needs at most {_MOST_CLASSES:,} classes, and {name!r} holds {len(distinct):,} numbers",
            "give --task regression, or compare the column, as in --label 'price > 100'",
        )
    codes = np.searchsorted(distinct, values)
    classes = _count_values(values.astype(int) if integers else values)
    return _check(LearningTask(name, "multiclass", (name,), codes * 1.0, classes, _rare(classes)), task)


def _is_quantity(name: str, distinct: npt.NDArray[np.float64], frequencies: npt.NDArray[np.int64]) -> bool:
    """Check whether integers are a quantity, such as a count or a grade, and not codes of classes.

    The name decides if it means one of them, as year and type do. Otherwise the frequencies of a quantity rise and then
    fall, and one end is rare. The frequencies of codes have no order. Rare integers cannot be learned as classes. The
    gaps of counts are described in `_has_gaps_of_counts`.

    Args:
      name: Name of the column.
      distinct: The integers, ascending; shape [integers].
      frequencies: Number of rows per integer; shape [integers].
    """
    if _CLASS_NAME.search(name) or len(distinct) < _NAMED_VALUES:
        return False
    if _QUANTITY_NAME.search(name):
        return True
    if _has_gaps_of_counts(distinct, frequencies):
        return True
    if len(distinct) < _VALUES_OF_QUANTITY:
        return False
    if len(distinct) <= _CLASSES and frequencies.sum() < _ROWS_OF_NUMBER * len(distinct):
        return True
    return _rises_and_falls(frequencies, int(frequencies.argmax()))


def _has_gaps_of_counts(distinct: npt.NDArray[np.float64], frequencies: npt.NDArray[np.int64]) -> bool:
    """Check whether integers that begin at 0 are counts with gaps, such as 0, 1, 2, 3, 7, 12.

    The gaps of codes have no order. Those of counts widen, if an answer such as "monthly" stands for 12. Or only rare
    counts are absent: large ones, and if most rows are 0, as with cigarettes per day, also others. Codes such as 0, 10,
    20 have the same distance from each other, and a single gap before the last one may be the code of a missing value,
    such as 9 or 99.

    Args:
      distinct: The integers, ascending; shape [integers].
      frequencies: Number of rows per integer; shape [integers].
    """
    distances = np.diff(distinct)
    if distinct[0] != 0 or not (distances > distances.min()).any():
        return False
    gaps_widen = (np.diff(distances) >= 0).all() and (distances > distances.min()).sum() > 1
    mostly_zero = len(distinct) >= _MANY_VALUES and 2 * frequencies[0] > frequencies.sum()
    is_sparse = distinct[-1] >= 2 * len(distinct)
    return bool(is_sparse and (gaps_widen or mostly_zero)) or _rises_and_falls(frequencies, 0)


def _rises_and_falls(frequencies: npt.NDArray[np.int64], peak: int) -> bool:
    """Check whether frequencies rise up to the index `peak` and then fall, except for noise, and one end is rare."""
    if min(frequencies[0], frequencies[-1]) > _RARE_END * frequencies[peak]:
        return False
    rising = isotonic_regression(frequencies[: peak + 1])
    falling = isotonic_regression(frequencies[peak:], increasing=False)
    expected = np.concatenate([rising, falling[1:]])
    beyond_noise = np.abs(frequencies - expected) - 2 * np.sqrt(expected) - 1
    most = _UNEVEN if len(frequencies) < _MANY_VALUES else _UNEVEN_OF_MANY
    return bool((np.maximum(beyond_noise, 0) / expected).mean() <= most)


def _make_quantity(name: str, values: npt.NDArray[np.float64], task: Task | None) -> LearningTask:
    """Return the learning task of a column of integers that are a quantity; counts have the loss of counts."""
    is_count = bool(values.min() == 0 and skew(values) > _SKEWED)
    kind_text = "counts" if is_count else "a quantity"
    note = f"whole numbers, {values.min():,.0f} to {values.max():,.0f}, most of them near {np.median(values):,.0f}: "
    note += f"{kind_text}; --task multiclass would make them classes"
    notes = (note,) if task is None else ()
    return LearningTask(name, "regression", (name,), values, {}, notes, "poisson" if is_count else None)


def _describe_tail(values: npt.NDArray[np.float64]) -> tuple[str, ...]:
    """Return a note about positive numbers with a long tail, for which another loss may be better.

    It is a note only, because the root of the mean squared error changed by +0.3, +2.3 and -2.2 % on the tables
    sacramento, hitters and college.
    """
    if values.min() <= 0 or skew(values) <= _LONG_TAIL:
        return ()
    return ("positive with a long tail: try model.loss: poisson, which allows greater errors of greater numbers",)


def _derive_from_texts(name: str, values: npt.NDArray[np.object_], task: Task | None) -> LearningTask:
    """Derive the learning task of a column of texts: binary for two distinct texts, otherwise multiclass."""
    if task == "regression":
        raise InputError(
            f"--task: regression expects numbers, and the column {name!r} holds texts such as {values[0]!r}",
            "remove --task, or give another --label",
        )
    counts = Counter(values.tolist())
    if len(counts) == 2 and task in (None, "binary"):
        positive = _positive(counts)
        is_positive = values == positive
        label = f"{expression.column_text(name)} == {positive!r}"
        (negative,) = set(counts) - {positive}
        note = f"1 stands for {positive!r}, 0 for {negative!r}"
        return LearningTask(label, "binary", (name,), is_positive * 1.0, _count_values(is_positive * 1), (note,))
    if len(counts) > _MOST_CLASSES:
        raise InputError(
            f"--label: the column {name!r} holds {len(counts):,} different texts, too many for classes",
            "give --label a column with fewer values, or compare it, as in --label \"state == 'sold'\"",
        )
    codes = {value: index for index, value in enumerate(sorted(counts))}
    classes = dict(counts.most_common())
    return LearningTask(
        name, "multiclass", (name,), np.array([codes[text] for text in values], float), classes, _rare(classes)
    )


def _positive(counts: Counter[str]) -> str:
    """Return the positive one of two values: the value that does not mean "no", or else the rarer value."""
    negative = [value for value in counts if value.strip().lower() in _NEGATIVE]
    if len(negative) == 1:
        return next(value for value in counts if value not in negative)
    return min(counts, key=lambda value: (counts[value], value))


def _check(derived: LearningTask, task: Task | None) -> LearningTask:
    """Check that the label has at least two values, and that its task is the task that the user requested."""
    finite = derived.values[np.isfinite(derived.values)]
    if len(np.unique(finite)) < 2:
        raise InputError(
            f"--label: {derived.label!r} is the same in all {len(derived.values):,} rows",
            "give --label a column that differs between rows, or --data with several outcomes",
        )
    if task and task != derived.task:
        raise InputError(
            f"--task: {task} does not fit the label {derived.label!r}, which makes a {derived.task} task",
            "remove --task, or give another --label",
        )
    return derived


def _check_complete(name: str, missing: int, rows: int) -> None:
    if missing:
        raise InputError(
            f"--label: {name!r} is missing in {missing:,} of {rows:,} rows",
            "remove these rows or fill in the label, or give --label a comparison as \"state == 'sold'\", in which "
            "a missing value counts as no",
        )


def _rare(classes: Mapping[str, int]) -> tuple[str, ...]:
    rare = [f"{value!r} ({rows})" for value, rows in classes.items() if rows < _ROWS_OF_CLASS]
    return (f"too few rows to be learned or evaluated: {', '.join(rare[:10])}",) if rare else ()


def _count_values(values: npt.NDArray[np.generic]) -> dict[str, int]:
    return {str(value): count for value, count in Counter(values.tolist()).most_common()}
