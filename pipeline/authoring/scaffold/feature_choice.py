"""Chooses features: the operations for a column, or the reason why the column is excluded."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import skew
from sklearn.metrics import roc_auc_score

from components.data.date_texts import Order
from components.features.date_ops import SPANS, Part
from components.features.text_ops import Text
from pipeline.authoring.config.exported_names import input_problem
from pipeline.authoring.scaffold.date_texts import dates_in
from pipeline.authoring.scaffold.identifiers import NAME_OF_ID, form_of, holds_proper_names, names_a_repeated_id
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import Table, kind, numbers, texts

_BINS = (4, 48)
"""Minimum and maximum number of bins for a column of numbers. 48 was best in a trial on the taxi example."""
_ROWS_OF_BIN = 50
_LONG_TAIL = 3.0
"""Skewness above which a column also gets its logarithm as a feature."""
_STEPS = 64
"""Maximum number of distinct integers for which every integer may have a separate bin."""
_CODES = 256
"""Maximum number of distinct integers that may be codes, which get an embedding in addition to the number."""
_ROWS_OF_CODE = 20
_MISSING = 0.001
"""Minimum share of missing values for which the model gets an indicator of missing values."""
_WIDE = 40
"""Maximum number of columns of a table whose integers get embeddings, which cost more than they help in wide tables."""
_VOCABULARY = 50_000
_UNIQUE = 0.9
"""Share of distinct values above which a column of texts contains identifiers or free text."""
_WORDS = 3
"""Median number of words from which texts that hardly repeat are free text."""
_SENTENCE = 5
"""The same minimum for texts that repeat, and for columns whose name says that they contain names."""
_MANY_TEXTS = 1_000
"""Number of distinct texts above which sentences are free text although they repeat."""
_SEPARATORS = "|;,"
_TIME_NAME = re.compile(r"(^|_)(time|timestamp|date|datetime|ts|at|created|updated)($|_)", re.IGNORECASE)
_ID_NAME = NAME_OF_ID
_SECONDS = {"seconds": 1, "milliseconds": 1000}
_EPOCH = (946_684_800, 4_102_444_800)
"""2000 to 2100, in seconds since 1970."""
_NAMED_EPOCH = (-2_208_988_800, 31_536_000)
"""Bounds for a column whose name says that it contains times: 1900 for the first time, and 1971 for the median, in
seconds since 1970. Smaller numbers may be durations, or dates such as 20241231."""
_WORDS_OF_TEXTS = 10_000
"""Size of a vocabulary of words and pairs of words."""
_COMPARED, _KEYS = 2_000, 8
"""Number of rows by which columns are searched for copies, before they are compared in all rows; and the number of rows
of columns of numbers that hardly repeat."""
_ROUNDING = 1e-9
"""Distance of a correlation from 1 that the rounding of float32 makes."""
_SHARE_OF_WORDS, _MOST_WORDS = 0.99, 2_000
"""Share of the texts of which all words and pairs are used, and their maximum number."""
_DATE_PARTS: tuple[tuple[Part, str, str | None], ...] = (
    ("year", "Y", None),
    ("month", "M", "datetime64[Y]"),
    ("day", "D", "datetime64[M]"),
    ("weekday", "D", None),
    ("hour", "h", "datetime64[D]"),
)
"""Part of a date, its unit, and the unit in which dates without that part would be whole."""
_WEAK = 0.75
"""AUC below which a column of the label's expression may be a feature, because it hardly predicts the label alone."""


@dataclass(frozen=True)
class FeatureChoice:
    """A column that is a feature.

    Attributes:
      ops: Operations, as in `features.columns`.
      why: Properties of the column, as a comment in the config.
      ids: Number of values with an embedding.
      numbers: Number of numeric inputs of the model.
    """

    ops: tuple[Any, ...]
    why: str
    ids: int = 0
    numbers: int = 0

    @property
    def is_history(self) -> bool:
        """Whether the column contains lists of earlier values of another column."""
        return any(isinstance(op, dict) and "sequence" in op for op in self.ops)


@dataclass(frozen=True)
class ExcludedColumn:
    """A column that is not a feature, and the reason."""

    why: str


def choose(
    table: Table, task: LearningTask, date_order: Order | None = None
) -> dict[str, FeatureChoice | ExcludedColumn]:
    """Choose the features of every column.

    Args:
      table: Sample of the data.
      task: Label and learning task.
      date_order: Order of day, month and year for texts such as 01/02/2024, which can be read in two ways.

    Returns:
      Column name → its features, or the reason why it is excluded.

    Raises:
      InputError: If the dates of a column can be read in two ways, and `date_order` is None.
    """
    strongest = max(task.columns, key=lambda name: _auc(table.columns[name], task))
    choices: dict[str, FeatureChoice | ExcludedColumn] = {}
    first_names: dict[str, str] = {}
    for name, column in table.columns.items():
        first_name = first_names.setdefault(name.lower(), name) if name not in task.columns else name
        if name not in task.columns and (reason := input_problem(name)):
            choices[name] = ExcludedColumn(reason)
        elif first_name != name:
            choices[name] = ExcludedColumn(f"its name differs from {first_name} only in case: rename it in the data")
        elif name in task.columns and (name == strongest or _auc(column, task) >= _WEAK):
            choices[name] = ExcludedColumn("the label" if len(task.columns) == 1 else "the label is computed from it")
        else:
            choices[name] = _column(name, column, table, task, date_order)
    features = [name for name, choice in choices.items() if isinstance(choice, FeatureChoice)]
    for name, original in _find_copies(table, features).items():
        choices[name] = ExcludedColumn(f"a copy of {original}: each value corresponds to one of its values")
    return choices


def _find_copies(table: Table, names: Sequence[str]) -> dict[str, str]:
    """Find columns whose values determine the values of an earlier column, and the other way round, in all rows.

    Names and their codes have to correspond one to one. Numbers have to be equal, or in another unit, such as
    kilometres and miles.

    Args:
      table: Sample of the data.
      names: Columns to compare.

    Returns:
      Column → the first column that it is a copy of.
    """
    originals: dict[bytes, list[str]] = {}
    copies: dict[str, str] = {}
    for name in names:
        column = table.columns[name]
        if kind(column) == "lists":
            continue
        head = column.slice(0, _COMPARED)
        codes = _encode(head)
        is_same = _is_rescaled
        if 2 * (int(codes.max(initial=-1)) + 1) <= len(codes):
            key, is_same = hashlib.blake2b(codes).digest(), _is_renamed
        elif kind(column) == "bytes":
            continue
        else:
            # In another unit, values have the same distance from the mean in standard deviations, or the opposite one.
            key = np.round(np.abs(_standardize(numbers(head))[:_KEYS]), 3).tobytes()
        alike = originals.setdefault(key, [])
        if original := next((other for other in alike if is_same(column, table.columns[other])), None):
            copies[name] = original
        else:
            alike.append(name)
    return copies


def _is_renamed(column: pa.Array, other: pa.Array) -> bool:
    """Check whether two columns are texts or their codes, and the values correspond one to one.

    Measurements that correspond to a name, such as the size of a shop, are no codes. A model learns more from them.
    """
    if kind(column) != "bytes" and kind(other) != "bytes":
        return _is_rescaled(column, other)
    are_names = all(kind(each) == "bytes" or _is_code(each) for each in (column, other))
    return are_names and np.array_equal(_encode(column), _encode(other))


def _is_code(column: pa.Array) -> bool:
    values = np.unique(_finite(column))
    return bool(len(values) and (values == np.round(values)).all() and np.ptp(values) < 2 * len(values))


def _encode(column: pa.Array) -> npt.NDArray[np.int32]:
    """Return the number of each value in the order of the first rows, shape [rows]; -1 for missing values."""
    indices = column.dictionary_encode().indices
    return np.ascontiguousarray(indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int32)


def _is_rescaled(column: pa.Array, other: pa.Array) -> bool:
    """Check whether two columns of numbers are equal, except for their unit and zero point."""
    if kind(column) == "bytes" or kind(other) == "bytes":
        return False
    first, second = numbers(column), numbers(other)
    are_finite = np.isfinite(first)
    return np.array_equal(are_finite, np.isfinite(second)) and _is_linear(first[are_finite], second[are_finite])


def _standardize(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    finite = values[np.isfinite(values)]
    with np.errstate(invalid="ignore", divide="ignore"):
        return (values - finite.mean()) / finite.std()


def _is_linear(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> bool:
    """Check whether finite values are a linear function of others, except for the rounding of float32."""
    if len(first) < 3 or not first.std() or not second.std():
        return False
    return bool(abs(np.corrcoef(first, second)[0, 1]) > 1 - _ROUNDING)


def _column(
    name: str, column: pa.Array, table: Table, task: LearningTask, date_order: Order | None
) -> FeatureChoice | ExcludedColumn:
    """Choose the operations for a column, or the reason to exclude it.

    Args:
      name: Name of the column.
      column: Values of the sample.
      table: Sample of the data.
      task: Label and learning task.
      date_order: Order of day, month and year for dates that can be read in two ways.
    """
    column_kind = kind(column)
    if column_kind == "missing":
        return ExcludedColumn("no value in any row")
    if column_kind == "lists":
        return _lists(column)
    distinct = pc.count_distinct(column.drop_null()).as_py()
    # NaN and infinity are missing values, so they do not count as distinct values.
    if column_kind == "float" and (finite := _finite(column)).size:
        distinct = len(np.unique(finite))
    if distinct < 2:
        return ExcludedColumn("the same in all rows" + (" that have it" if column.null_count else ""))
    if _is_copy(column, distinct, task):
        return ExcludedColumn("a copy of the label: each value corresponds to one value of the label")
    missing = column.null_count / len(column)
    if column_kind == "bytes":
        notes = [table.hints[name]] if name in table.hints else []
        return _text(name, texts(column), distinct, missing, notes, date_order)
    if column_kind == "int" and names_a_repeated_id(name) and 2 < distinct <= 0.5 * (len(column) - column.null_count):
        return vocabulary(distinct, [f"{distinct:,} ids or codes that repeat", *_missing(missing)])
    return _number(name, column, distinct, missing, len(table.columns))


def _number(name: str, column: pa.Array, distinct: int, missing: float, columns: int) -> FeatureChoice | ExcludedColumn:
    """Choose the operations for a column of numbers, or exclude an identifier.

    Args:
      name: Name of the column.
      column: Values of the sample, int64 or float32.
      distinct: Number of distinct values.
      missing: Share of missing values.
      columns: Number of columns of the table.
    """
    values = _finite(column)
    integer = kind(column) == "int"
    is_named = bool(_TIME_NAME.search(name))
    if integer and (unit := epoch_unit(values, is_named)) and (is_named or distinct > 0.5 * len(values)):
        return _date(np.array(values, f"datetime64[{'s' if unit == 'seconds' else 'ms'}]"), {"unit": unit}, missing)
    # Nearly consecutive integers that differ in all rows are row numbers, whatever the name of the column.
    if integer and distinct > 100 and distinct == len(values) and (_ID_NAME.search(name) or _is_dense(values)):
        return ExcludedColumn("a different number in each row: an identifier")
    if integer and _ID_NAME.search(name) and distinct > 0.5 * len(values):
        return ExcludedColumn(f"{distinct:,} values in {len(values):,} rows: an identifier")
    least, greatest = values.min(), values.max()
    tail = bool(distinct > 2 and least >= 0 and skew(values) > _LONG_TAIL)
    notes = [f"{_short(least)} … {_short(greatest)}"]
    zeros = float((values == 0).mean())
    notes += [f"{zeros:.0%} zeros"] * (zeros >= 0.2 and distinct > 2)
    notes += ["long tail"] * tail + _missing(missing)
    often = len(values) >= _ROWS_OF_CODE * distinct
    # Keep the number itself, because the logarithm alone would hide a linear effect.
    ops: list[Any] = ["z_score", "log"] if tail else ["z_score"]
    width, ids = len(ops), 0
    if distinct > 2:
        # An integer with few distinct values, all of them frequent, gets a separate bin per value.
        bins = int(np.clip(len(values) // _ROWS_OF_BIN, *_BINS))
        bins = distinct - 1 if integer and often and distinct <= _STEPS else min(bins, distinct - 1)
        ops.append({"piecewise_linear": {"bins": bins}})
        width += bins
    if integer and _STEPS < distinct <= _CODES and often and columns <= _WIDE:
        ops.append("vocab")
        ids = distinct
        notes.insert(1, f"{distinct} values")
    elif missing >= _MISSING:
        ops.append("missing")
        width += 1
    return FeatureChoice(tuple(ops), ", ".join(notes), ids, width)


def _text(
    name: str,
    values: npt.NDArray[np.object_],
    distinct: int,
    missing: float,
    hints: Sequence[str],
    date_order: Order | None,
) -> FeatureChoice | ExcludedColumn:
    """Choose the operations for a column of texts: dates, several values in a text, free text, or a vocabulary.

    Identifiers and names that hardly repeat are excluded, because the model would memorize them.

    Args:
      name: Name of the column.
      values: Texts of the sample, str or None where missing.
      distinct: Number of distinct texts.
      missing: Share of missing values.
      hints: Notes on other ways to read the column.
      date_order: Order of day, month and year for dates that can be read in two ways.
    """
    present = values[np.array([text is not None for text in values])]
    if dates := dates_in(name, present, date_order):
        options = {} if dates.order == "ymd" else {"order": dates.order}
        invalid = [f"{dates.invalid_count:,} texts are no dates"] if dates.invalid_count else []
        return _date(dates.values, options, missing, [*([dates.why] if dates.why else []), *invalid])
    form = form_of(present)
    content = form or ("codes of digits" if all(text.isdigit() for text in present) else "texts")
    notes = [f"{distinct:,} {content}", *_missing(missing), *hints]
    if not form and (separator := _separator(present, distinct)):
        parts = {part.strip() for text in present for part in text.split(separator)}
        most = int(np.quantile([text.count(separator) + 1 for text in present], 0.99))
        split = {"separator": separator, "max_values": max(2, most), "size": min(len(parts), _VOCABULARY)}
        notes.insert(1, f"several of {len(parts):,} values in each")
        return FeatureChoice(({"split": split},), ", ".join(notes), len(parts))
    counts = [len(text.split()) for text in present]
    words = float(np.median(counts))
    unique = distinct > _UNIQUE * len(present) and len(present) >= 20
    is_id = form is not None or words < _WORDS or (words < _SENTENCE and holds_proper_names(name))
    in_rows = f"{distinct:,} {content} in {len(present):,} rows"
    if unique and is_id:
        reason = "identifiers" if form else "names" if holds_proper_names(name) else "an identifier, or no repeats"
        return ExcludedColumn("; ".join((f"{in_rows}: {reason}", *hints)))
    mostly_unique = distinct > 0.5 * len(present)
    if unique or (words >= _SENTENCE and (mostly_unique or distinct > _MANY_TEXTS)):
        notes.append(f"{words:.0f} words at the median")
        notes += ["nearly all different: check that its words mean something"] * unique
        # Hashed, the pairs of words of many texts would share IDs. TF-IDF lowered the loss on two of
        # three tables of texts by a sixth or more; see docs/how-to/features.md.
        text_options: dict[str, Any] = {"vocabulary": _WORDS_OF_TEXTS, "weighting": "tf_idf"}
        # As many words and pairs as nearly all texts have; the default would drop the pairs of longer texts.
        most = min(2 * int(np.quantile(counts, _SHARE_OF_WORDS)), _MOST_WORDS)
        text_options |= {"max_values": most} if most > Text.model_fields["max_values"].default else {}
        return FeatureChoice(({"text": text_options},), ", ".join(notes), _WORDS_OF_TEXTS)
    if mostly_unique and len(present) >= 20 and (form or _ID_NAME.search(name) or holds_proper_names(name)):
        return ExcludedColumn(f"{in_rows}: {'names' if holds_proper_names(name) else 'an identifier'}")
    return vocabulary(distinct, notes)


def vocabulary(distinct: int, notes: Sequence[str]) -> FeatureChoice:
    """Return the choice for a column of IDs or codes.

    Args:
      distinct: Number of distinct values.
      notes: Properties of the column, for the comment.
    """
    size = min(distinct, _VOCABULARY)
    # One or two rows are not enough to train the embedding of a value.
    rare = {"min_frequency": 3, "oov_buckets": 10} if distinct > 100 else {}
    return FeatureChoice(({"vocab": {"size": size, **rare}},), ", ".join(notes), size)


def _date(
    values: npt.NDArray[np.datetime64], options: Mapping[str, Any], missing: float, notes: Sequence[str] = ()
) -> FeatureChoice | ExcludedColumn:
    """Choose the parts of a date that vary. The date itself lies in the past when the model serves."""
    parts: list[Part] = []
    for part, unit, coarser in _DATE_PARTS:
        truncated = values.astype(f"datetime64[{unit}]")
        if len(np.unique(truncated)) > 1 and (coarser is None or (truncated != truncated.astype(coarser)).any()):
            parts.append(part)
    note = f"{values.min().astype(str)[:10]} … {values.max().astype(str)[:10]}; the date itself does not repeat"
    if not parts:
        return ExcludedColumn(f"a time, {note}")
    # Which country's holidays matter does not follow from the data.
    holidays = ["for public holidays, add holiday to parts, and holidays: DE"] if "weekday" in parts else []
    note = ", ".join([*notes, note, *_missing(missing), *holidays])
    ids = sum(SPANS[part].count for part in parts if part in SPANS)
    return FeatureChoice(({"date_parts": {"parts": parts, **options}},), note, ids, numbers=parts.count("year"))


def _lists(column: pa.Array) -> FeatureChoice | ExcludedColumn:
    if not pa.types.is_binary(column.type.value_type) and not pa.types.is_integer(column.type.value_type):
        return ExcludedColumn("lists of numbers; an operation of your own could read them")
    distinct = pc.count_distinct(column.flatten()).as_py()
    most = int(np.quantile(np.asarray(pc.list_value_length(column).fill_null(0)), 0.99))
    options = {"max_values": max(2, most), "size": min(distinct, _VOCABULARY)}
    return FeatureChoice(({"split": options},), f"several of {distinct:,} values in each", distinct)


def _finite(column: pa.Array) -> npt.NDArray[np.float64]:
    values = numbers(column)
    return values[np.isfinite(values)]


def _separator(present: npt.NDArray[np.object_], distinct: int) -> str | None:
    """Return the separator of texts that contain several values; None if the parts do not repeat between rows."""
    for separator in _SEPARATORS:
        share = sum(separator in text for text in present[:5000]) / min(len(present), 5000)
        # A real separator occurs in many texts, and divides them into short parts that repeat in other rows.
        if share >= 0.3:
            parts = {part.strip() for text in present for part in text.split(separator)}
            words = np.mean([len(part.split()) for part in list(parts)[:1000]])
            if len(parts) <= 0.5 * distinct and words <= _WORDS:
                return separator
    return None


def epoch_unit(values: npt.NDArray[np.float64], is_named: bool = False) -> str | None:
    """Return the unit of times since 1970, or None if the numbers are not times.

    Args:
      values: The numbers, shape [n].
      is_named: Whether the name of the column says that it contains times. They may then be of the 20th century.
    """
    first, median = _NAMED_EPOCH if is_named else (_EPOCH[0], _EPOCH[0])
    for unit, factor in _SECONDS.items():
        is_late = values.min() >= first * factor and np.median(values) >= median * factor
        if is_late and values.max() <= _EPOCH[1] * factor:
            return unit
    return None


def _is_dense(values: npt.NDArray[np.float64]) -> bool:
    return bool(values.max() - values.min() < 2 * len(values))


def _is_copy(column: pa.Array, distinct: int, task: LearningTask) -> bool:
    """Check whether the values of a column and of the label correspond one to one in the sample."""
    if task.task == "regression":
        if kind(column) == "bytes":
            return False
        values = numbers(column)
        are_finite = np.isfinite(values) & np.isfinite(task.values)
        return _is_linear(values[are_finite], task.values[are_finite])
    classes = len(task.classes)
    if column.null_count or distinct != classes:
        return False
    codes = np.asarray(column.dictionary_encode().indices)
    pairs = np.unique(np.stack([codes, task.values.astype(int)]), axis=1)
    return bool(pairs.shape[1] == classes)


def _auc(column: pa.Array, task: LearningTask) -> float:
    """Return the AUC, 0.5 to 1, of a column as the only predictor of the label.

    Return 1 for a column of texts and for a multiclass label, where the AUC is not defined.
    """
    if kind(column) not in ("int", "float") or task.task == "multiclass":
        return 1.0
    label = task.values > (0 if task.task == "binary" else np.median(task.values))
    if label.all() or not label.any():
        return 0.5
    area = float(roc_auc_score(label, np.nan_to_num(numbers(column))))
    return max(area, 1 - area)


def _missing(share: float) -> list[str]:
    return [f"{share:.1%} missing" if share >= 0.001 else "few missing"] if share else []


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e9 else f"{value:.4g}"
