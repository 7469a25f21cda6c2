"""The labels in the transform graph: compute the tensor that loss and metrics use from columns or expressions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from components.base.errors import InputError
from components.base.limits import MOST_CLASSES
from components.features import feature_names, text_values
from components.features.analysis import Requirement, Scale, SurvivalTimes, Vocabulary
from components.features.column import Column
from components.features.expression import Label
from components.features.plan import FeaturePlan


class TensorArithmetic:
    """The operations of a label expression on tensors. A comparison with a missing value is false.

    Numbers are float64, so that integers up to 2**53 compare exactly, and floats compare as the decimals in the data. A
    missing number is NaN. A missing text is NO_LABEL, which differs from every text.
    """

    def constant(self, value: float | str) -> tf.Tensor:
        """Return a scalar tensor, float64 or string."""
        return tf.constant(value) if isinstance(value, str) else tf.constant(value, tf.float64)

    def not_equal(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        """Return whether two values differ and neither is missing; bool, shape [batch]."""
        return tf.logical_and(tf.not_equal(left, right), tf.logical_and(_is_present(left), _is_present(right)))

    def __getattr__(self, name: str) -> Any:
        """Return TensorFlow's function with this name."""
        return getattr(tf.math, name)


@dataclass(frozen=True)
class LabelTensor:
    """The label of a plan, and the statistics of the training split that it uses.

    The values of the label and their counts become the vocabulary `feature_names.LABEL_COUNTS`. The Trainer reads the
    classes from it, and rejects a constant label before training. Several labels have one vocabulary per label.

    Attributes:
      requirements: Statistics that the label requires.
      finish: Function from the results of the requirements to the label. The label has the shape [batch], or [batch,
        labels] if there are several. It is int64 0 or 1 for binary, retrieval and anomaly, an int64 index into the
        vocabulary `feature_names.LABEL_CLASSES` for multiclass, and float32 for regression. For multilabel, it is
        float32 0 or 1 of shape [batch, plan.classes.size], with a column per class of this vocabulary, followed by
        columns of 0. For survival, it is float32 of shape [batch, 2]: the time, and 1 if the event happened at the
        time, otherwise 0.
    """

    requirements: tuple[Requirement, ...]
    finish: Callable[[Sequence[tf.Tensor]], tf.Tensor]


def label(plan: FeaturePlan, columns: Mapping[str, Column], weights: tf.Tensor | None = None) -> LabelTensor:
    """Compute the label of a plan, or all labels in the order of the config.

    Args:
      plan: Plan with the labels and the task.
      columns: Name → raw column, with all columns of the labels.
      weights: Weights of the rows in mean and standard deviation of a regression label. If None, all rows have the same
        weight.

    Raises:
      InputError: If the label's expression does not fit the types of its columns.
    """
    labels = [_compute_label(declared, plan, columns, weights) for declared in plan.labels]
    if len(labels) == 1:
        return labels[0]
    ends = list(itertools.accumulate((len(label.requirements) for label in labels), initial=0))

    def finish(results: Sequence[tf.Tensor]) -> tf.Tensor:
        parts = zip(labels, itertools.pairwise(ends), strict=True)
        return tf.stack([label.finish(results[start:end]) for label, (start, end) in parts], axis=1)

    return LabelTensor(tuple(requirement for label in labels for requirement in label.requirements), finish)


def _compute_label(
    declared: Label, plan: FeaturePlan, columns: Mapping[str, Column], weights: tf.Tensor | None
) -> LabelTensor:
    parsed, counts_name = declared.expression, declared.add_name(feature_names.LABEL_COUNTS)
    if plan.task == "multilabel":
        return _compute_class_set(declared, plan, columns[parsed.columns[0]])
    if plan.task == "multiclass":
        texts, known = _classes(columns[parsed.columns[0]])
        classes = Vocabulary(tf.boolean_mask(texts, known), feature_names.LABEL_CLASSES, MOST_CLASSES)
        return LabelTensor(
            (_count_texts(texts, counts_name), classes), lambda results: tft.apply_vocabulary(texts, results[1])
        )
    if not declared.text:
        # The input pipeline expects a label in each row. The task anomaly ignores it.
        present = columns[plan.features.columns_read[0]].present
        return LabelTensor((), lambda _: tf.zeros_like(present, tf.int64))
    value = _evaluate(declared, columns)
    if plan.task == "survival":
        return _compute_survival(declared, value, plan, columns, weights)
    if plan.task == "regression":
        scale = Scale(tf.cast(value, tf.float64), declared.add_name(feature_names.LABEL_SCALE), weights)
        return LabelTensor((scale,), lambda _: tf.cast(value, tf.float32))
    texts, classes = _binarize(value)
    item_counts = [] if plan.item is None else _count_items(columns[plan.item], classes)
    return LabelTensor((_count_texts(texts, counts_name), *item_counts), lambda _: classes)


def _compute_class_set(declared: Label, plan: FeaturePlan, column: Column) -> LabelTensor:
    if column.dtype == "float":
        raise InputError(
            f"{declared}: multilabel expected texts or whole numbers, received floats in {declared.text!r}",
            f"set data.types to {{{column.name}: bytes}}, or choose another label",
        )
    parts = text_values.parts(column, plan.classes.separator)
    classes = parts.with_flat_values(_countable(parts.flat_values))
    is_empty = tf.equal(classes.row_lengths(), 0)
    rows_without_class = tf.boolean_mask(tf.fill(tf.shape(is_empty), feature_names.NO_LABEL), is_empty)
    requirements = (
        _count_texts(tf.concat([classes.flat_values, rows_without_class], axis=0), feature_names.LABEL_COUNTS),
        Vocabulary(classes.flat_values, feature_names.LABEL_CLASSES, plan.classes.size, plan.classes.min_frequency),
    )

    def finish(results: Sequence[tf.Tensor]) -> tf.Tensor:
        numbers = classes.with_flat_values(tft.apply_vocabulary(classes.flat_values, results[1]))
        # Classes that the vocabulary lacks are -1.
        known = tf.ragged.boolean_mask(numbers, numbers >= 0)
        return text_values.multi_hot(known, plan.classes.size)

    return LabelTensor(requirements, finish)


def _compute_survival(
    declared: Label, time: tf.Tensor, plan: FeaturePlan, columns: Mapping[str, Column], weights: tf.Tensor | None
) -> LabelTensor:
    if time.dtype == tf.string:
        raise InputError(
            f"{declared}: survival expected a time as a number, received text in {declared.text!r}",
            "choose a column of numbers, such as days",
        )
    time = tf.cast(time, tf.float64)
    texts, happened = _binarize(_evaluate(declared.event_label, columns))
    times = SurvivalTimes(time, tf.cast(happened, tf.float64), feature_names.LABEL_TIMES, plan.intervals or 1, weights)
    return LabelTensor(
        (_count_texts(texts, feature_names.LABEL_COUNTS), times),
        lambda _: tf.stack([tf.cast(time, tf.float32), tf.cast(happened, tf.float32)], axis=1),
    )


def label_values(declared: Label, plan: FeaturePlan, columns: Mapping[str, Column]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the label of rows as numbers whose mean is a share or a mean, without statistics of other rows.

    Returns:
      The name of the class, string, which is empty unless the task is multiclass; and the number, float64: 1 for
      multiclass, otherwise the label. The number is NaN if the row has no label. Both have the shape [batch].

    Raises:
      InputError: If the label's expression does not fit the types of its columns.
    """
    parsed = declared.expression
    if plan.task == "multiclass":
        texts, known = _classes(columns[parsed.columns[0]])
        numbers = tf.ones_like(texts, tf.float64)
    else:
        value = _evaluate(declared, columns)
        texts = tf.fill(tf.shape(value), "")
        known = (
            tf.ones_like(value, tf.bool)
            if value.dtype == tf.bool
            else _is_present(_countable(value) if value.dtype == tf.string else value)
        )
        numbers = tf.cast(value if plan.task == "regression" else _binarize(value)[1], tf.float64)
    return texts, tf.where(known, numbers, tf.constant(float("nan"), tf.float64))


def _classes(column: Column) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the classes as strings, or the text for rows without a class, and whether a row has one; both [batch]."""
    texts = column.decimal_texts() if column.dtype == "float" else column.texts()
    texts = tf.where(column.present, _countable(texts), tf.fill(tf.shape(texts), feature_names.NO_LABEL))
    not_classes = [tf.equal(texts, value) for value in (feature_names.NO_LABEL, feature_names.BROKEN_LABEL)]
    return texts, tf.logical_not(tf.logical_or(*not_classes))


def _countable(texts: tf.Tensor) -> tf.Tensor:
    """Replace texts that a vocabulary file cannot contain, so that the Trainer sees their rows; shape [batch]."""
    # Both characters end a line of a vocabulary file; see VocabularyAccumulator.
    whole = tf.equal(tf.strings.regex_replace(texts, "[\r\n]", ""), texts)
    texts = tf.where(whole, texts, tf.fill(tf.shape(texts), feature_names.BROKEN_LABEL))
    return tf.where(tf.equal(texts, ""), tf.fill(tf.shape(texts), feature_names.NO_LABEL), texts)


def _binarize(value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the values of a binary label as strings, and the label as int64 0 or 1; both of shape [batch]."""
    if value.dtype == tf.string:
        return _countable(value), tf.cast(tf.equal(value, "1"), tf.int64)
    if value.dtype == tf.bool:
        classes = tf.cast(value, tf.int64)
        return tf.strings.as_string(classes), classes
    return tf.strings.as_string(value, shortest=True), tf.cast(tf.equal(value, tf.constant(1, value.dtype)), tf.int64)


def _count_items(column: Column, classes: tf.Tensor) -> list[Vocabulary]:
    """Return vocabularies that count the rows, and the rows with label 1, per item. Missing items are ignored."""
    texts = column.texts()
    return [
        Vocabulary(column.where_present(texts), feature_names.ITEM_ROWS, _COUNTED_ITEMS, counts=True),
        Vocabulary(
            tf.boolean_mask(texts, column.present & tf.equal(classes, 1)),
            feature_names.ITEM_INTERACTIONS,
            _COUNTED_ITEMS,
            counts=True,
        ),
    ]


def _count_texts(texts: tf.Tensor, name: str) -> Vocabulary:
    return Vocabulary(texts, name, _COUNTED, counts=True)


def _evaluate(declared: Label, columns: Mapping[str, Column]) -> tf.Tensor:
    parsed = declared.expression
    read = {name: columns[name] for name in parsed.columns}
    try:
        return parsed.evaluate({name: _operand(column) for name, column in read.items()}, TensorArithmetic())
    except (TypeError, ValueError) as error:
        dtypes = ", ".join(f"{column.name} holds {column.dtype}" for column in read.values())
        raise InputError(
            f"{declared}: {parsed.text!r} cannot be computed: {dtypes}",
            "compare text with text and numbers with numbers, as in income == '>50K'",
        ) from error


def _operand(column: Column) -> tf.Tensor:
    if column.dtype == "bytes":
        return tf.where(column.present, column.values, tf.fill(tf.shape(column.values), feature_names.NO_LABEL))
    numbers = column.decimal_numbers()
    return tf.where(column.present, numbers, tf.fill(tf.shape(numbers), tf.constant(float("nan"), tf.float64)))


_COUNTED = MOST_CLASSES + 3
"""Maximum number of values to count: one more than the maximum number of classes, plus NO_LABEL and BROKEN_LABEL."""
_COUNTED_ITEMS = 50_000_000
"""Maximum number of items to count, which is the largest size of a vocabulary."""


def _is_present(value: tf.Tensor) -> tf.Tensor:
    return (
        tf.not_equal(value, feature_names.NO_LABEL)
        if value.dtype == tf.string
        else tf.logical_not(tf.math.is_nan(tf.cast(value, tf.float64)))
    )
