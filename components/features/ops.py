"""What the declared operations require of the analysis, and the features that they make of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import tensorflow as tf

from components.errors import InputError
from components.features import feature_names
from components.features.analysis import Collisions, Requirement, UnparsedDates, Vocabulary
from components.features.base_op import Embedded, Op
from components.features.column import Column, joined
from components.features.config import Feature, Hashed
from components.features.date_ops import DatePart
from components.features.dates import find_dates
from components.features.feature_spec import Dense, Ids, VocabularySize
from components.features.operation import OPERATIONS
from components.features.sequence_ops import EventSequence, OfHistory, TimeGaps
from components.features.text_ops import Text
from components.features.transforms import histories, ids, lists, numbers  # noqa: F401 - they register their operations


def read(feature: Feature, columns: Mapping[str, Column]) -> Column:
    """Returns the column that a feature is computed from; those of a cross are joined, and one may be the reference.

    Raises:
      InputError: the operation does not take a column's dtype.
    """
    sources = [columns[name] for name in feature.columns]
    for column in sources:
        if column.dtype not in feature.op.takes:
            where = ".".join(("features", *map(str, feature.key[:2])))
            takes = " or ".join(sorted(feature.op.takes))
            raise InputError(
                f"{where}: {feature.op.op} takes {takes}, and the column {column.name} holds {column.dtype}",
                "choose another operation; docs/config.md lists what each takes",
            )
    if isinstance(feature.op, TimeGaps):
        return replace(sources[0], reference=sources[1]) if feature.op.until else sources[0]
    return sources[0] if len(sources) == 1 else joined(sources)


def requirements(features: Sequence[Feature], sources: Mapping[str, Column]) -> dict[str, Requirement]:
    """Returns the statistics of the training split that features use, by the name of the feature.

    The vocabulary of several features is that of the one which the others share it with.

    Args:
      features: in the order of the config.
      sources: feature → the column that it is computed from.
    """
    found: dict[str, Requirement] = {}
    for feature in features:
        each = OPERATIONS[type(feature.op)].requirement(feature.op, sources[feature.name], feature.vocabulary)
        if each is not None and feature.shares is None:
            found[feature.name] = each
    for feature in features:
        owner = found.get(feature.shares or "")
        if isinstance(feature.op, OfHistory) and isinstance(owner, Vocabulary):
            shared = OPERATIONS[type(feature.op)].requirement(feature.op, sources[feature.name], feature.vocabulary)
            if isinstance(shared, Vocabulary):
                found[feature.vocabulary] = replace(owner, texts=tf.concat([owner.texts, shared.texts], axis=0))
    return found


def collisions(features: Sequence[Feature], sources: Mapping[str, Column]) -> list[Collisions]:
    """Returns what is required to report how many values of hashed features share a bucket; see `requirements`.

    The graph does not read the results.
    """
    texts: dict[str, list[tf.Tensor]] = {}
    buckets: dict[str, int] = {}
    for feature in features:
        of_feature = OPERATIONS[type(feature.op)].hashed(feature.op, sources[feature.name])
        if of_feature is not None and isinstance(feature.op, (Hashed, Text, EventSequence)):
            texts.setdefault(feature.vocabulary, []).append(of_feature)
            buckets[feature.vocabulary] = feature.op.buckets or 0
    return [
        Collisions(tf.concat(each, axis=0), f"{feature_names.COLLISIONS}{name}", buckets[name])
        for name, each in texts.items()
    ]


def unparsed_dates(features: Sequence[Feature], sources: Mapping[str, Column]) -> list[UnparsedDates]:
    """Return what is required to report how many texts of each column of dates are not dates.

    The graph does not read the results.
    """
    columns = {
        (sources[feature.name].name, feature.op.order): sources[feature.name]
        for feature in features
        if isinstance(feature.op, DatePart) and sources[feature.name].dtype == "bytes"
    }
    return [
        UnparsedDates(*find_dates(column, order), f"{feature_names.UNPARSED_DATES}{order}_{name}")
        for (name, order), column in columns.items()
    ]


def apply(op: Op, column: Column, analyzed: tf.Tensor | None) -> tf.Tensor:
    """Computes a feature.

    Args:
      op: the operation's settings.
      column: the raw column.
      analyzed: the result of its requirement; None without one.

    Returns:
      The feature, see `output_spec`.
    """
    return OPERATIONS[type(op)].transform(op, column, analyzed)


def output_spec(feature: Feature, size: VocabularySize) -> Dense | Ids:
    """Returns dtype, shape and cardinality of a feature."""
    spec = OPERATIONS[type(feature.op)].output_spec(feature.op, feature.vocabulary, size)
    if isinstance(spec, Ids) and isinstance(feature.op, Embedded):
        composition = feature.op.composition or "product"
        spec = replace(spec, quotients=feature.op.quotient_remainder, composition=composition)
    if isinstance(spec, Ids) and isinstance(feature.op, OfHistory):
        return replace(spec, is_history=True, shares=feature.shares, along=feature.along)
    return spec
