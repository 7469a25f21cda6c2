"""The label inside the transform graph: a column or an expression becomes what the loss and the metrics read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from components.errors import InputError
from components.features import names
from components.features.analysis import Need, Scale, Vocabulary
from components.features.column import Column
from components.features.expression import Expression
from components.features.plan import FeaturePlan


class TensorArithmetic:
    """The operations of a label expression on columns; a comparison with a missing value is false.

    Numbers are float64 while the label is computed, so that whole numbers up to 2**53 compare exactly. A missing
    number is NaN, and a missing text matches no text.
    """

    def constant(self, value: float | str) -> Any:
        """A number or a text of the expression."""
        return tf.constant(value) if isinstance(value, str) else tf.constant(value, tf.float64)

    def not_equal(self, left: Any, right: Any) -> Any:
        """Different, and neither is missing."""
        return tf.logical_and(tf.not_equal(left, right), tf.logical_and(_known(left), _known(right)))

    def __getattr__(self, name: str) -> Any:
        """The operation of TensorFlow with that name."""
        return getattr(tf.math, name)


@dataclass(frozen=True)
class Label:
    """The label of a plan, and what has to be known of the training split to make it.

    Its values and their counts become the vocabulary `names.LABEL_COUNTS`, so that the Trainer knows the classes, and
    sees a label that is constant, before it trains.

    Attributes:
      needs: what to ask the analysis.
      finish: the answers → the label, shape [batch]. binary: int64, 0 or 1. multiclass: int64 index into the
        vocabulary `names.LABEL_CLASSES`. regression: float32.
    """

    needs: tuple[Need, ...]
    finish: Callable[[Sequence[Any]], Any]


def label(plan: FeaturePlan, columns: Mapping[str, Column]) -> Label:
    """The label of a plan over the raw columns.

    Raises:
      InputError: the label's expression does not fit what its columns hold.
    """
    parsed = plan.label_expression()
    if plan.task == "multiclass":
        column = columns[parsed.columns[0]]
        classes = Vocabulary(column.known(column.texts()), names.LABEL_CLASSES, _COUNTED)
        return Label(
            (_counts(column.texts()), classes),
            lambda answers: tft.apply_vocabulary(column.texts(), answers[1]),
        )
    value = _value(parsed, {name: columns[name] for name in parsed.columns})
    if plan.task == "regression":
        scale = Scale(tf.cast(value, tf.float64), names.LABEL_SCALE)
        return Label((scale,), lambda _: tf.cast(value, tf.float32))
    if value.dtype == tf.string:
        return Label((_counts(value),), lambda _: tf.zeros_like(value, tf.int64))
    if value.dtype == tf.bool:
        return Label((_counts(tf.strings.as_string(tf.cast(value, tf.int64))),), lambda _: tf.cast(value, tf.int64))
    told = tf.strings.as_string(value, shortest=True)
    return Label((_counts(told),), lambda _: tf.cast(tf.equal(value, tf.constant(1, value.dtype)), tf.int64))


def _counts(texts: Any) -> Vocabulary:
    return Vocabulary(texts, names.LABEL_COUNTS, _COUNTED, counts=True)


def _value(parsed: Expression, columns: Mapping[str, Column]) -> Any:
    try:
        return parsed.evaluate({name: _operand(column) for name, column in columns.items()}, TensorArithmetic())
    except (TypeError, ValueError) as error:
        held = ", ".join(f"{column.name} holds {column.dtype}" for column in columns.values())
        raise InputError(
            f"data.label: {parsed.text!r} cannot be computed: {held}",
            "compare text with text and numbers with numbers, as in income == '>50K'",
        ) from error


def _operand(column: Column) -> Any:
    if column.dtype == "bytes":
        return tf.where(column.present, column.values, tf.fill(tf.shape(column.values), _NO_TEXT))
    numbers = tf.cast(column.values, tf.float64)
    return tf.where(column.present, numbers, tf.fill(tf.shape(numbers), tf.constant(float("nan"), tf.float64)))


_NO_TEXT = "\x00missing"
_COUNTED = 10_000
"""Values that are counted, at most: a label with more has no classes, and the Trainer says so."""


def _known(value: Any) -> Any:
    return (
        tf.not_equal(value, _NO_TEXT)
        if value.dtype == tf.string
        else tf.logical_not(tf.math.is_nan(tf.cast(value, tf.float64)))
    )
