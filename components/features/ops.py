"""What the declared operations require of the analysis, and the features that they make of columns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import tensorflow as tf

from components.base.errors import InputError
from components.features import feature_names
from components.features.analysis import Collisions, Requirement, UnparsedDates, Vocabulary
from components.features.base_op import Dtype, Embedded, Op
from components.features.column import Column, joined
from components.features.column_group import ColumnGroup, Columns
from components.features.config import Feature, Hashed
from components.features.date_ops import DatePart
from components.features.dates import find_dates
from components.features.feature_spec import Dense, Ids, VocabularySize
from components.features.operation import find_operation
from components.features.sequence_ops import EventSequence, OfHistory, TimeGaps
from components.features.text_ops import Text


@dataclass(frozen=True)
class FeatureGroup:
    """Features that one set of ops computes: all with the same elementwise operation and settings, or one feature.

    Attributes:
      features: in the order of the config.
      source: what they are computed from; a ColumnGroup has the column of each feature, all of one dtype.
    """

    features: tuple[Feature, ...]
    source: Column | ColumnGroup

    @property
    def op(self) -> Op:
        """The operation's settings."""
        return self.features[0].op

    @property
    def name(self) -> str:
        """The name of the group's requirement: that of the first feature's vocabulary."""
        return self.features[0].vocabulary

    @property
    def requirement(self) -> Requirement | None:
        """The statistics of the training split that the features use."""
        return find_operation(self.op).requirement(self.op, self.source, self.name)


def group(features: Sequence[Feature], columns: Columns) -> tuple[FeatureGroup, ...]:
    """Divides features into groups, in the order of their first features.

    Args:
      features: in the order of the config.
      columns: the columns of a batch.

    Raises:
      InputError: an operation does not take a column's dtype.
    """
    members: dict[Hashable, list[Feature]] = {}
    for feature in features:
        _check_dtypes(feature, {name: columns.dtype(name) for name in feature.columns})
        key: Hashable = feature.name
        if _is_elementwise(feature):
            (name,) = feature.columns
            key = feature.op.model_dump_json(), columns.dtype(name), columns.is_sparse(name)
        members.setdefault(key, []).append(feature)
    return tuple(FeatureGroup(tuple(each), _source(each, columns)) for each in members.values())


def _is_elementwise(feature: Feature) -> bool:
    return find_operation(feature.op).is_elementwise(feature.op) and len(feature.columns) == 1


def _source(features: Sequence[Feature], columns: Columns) -> Column | ColumnGroup:
    if _is_elementwise(features[0]):
        return columns.group([feature.columns[0] for feature in features])
    return read(features[0], columns)


def read(feature: Feature, columns: Mapping[str, Column]) -> Column:
    """Return the column that a feature is computed from; those of a cross are joined, and one may be the reference.

    Raises:
      InputError: the operation does not take a column's dtype.
    """
    sources = [columns[name] for name in feature.columns]
    _check_dtypes(feature, {column.name: column.dtype for column in sources})
    if isinstance(feature.op, TimeGaps):
        return replace(sources[0], reference=sources[1]) if feature.op.until else sources[0]
    return sources[0] if len(sources) == 1 else joined(sources)


def _check_dtypes(feature: Feature, dtypes: Mapping[str, Dtype]) -> None:
    for name, dtype in dtypes.items():
        if dtype not in feature.op.takes:
            where = ".".join(("features", *map(str, feature.key[:2])))
            takes = " or ".join(sorted(feature.op.takes))
            raise InputError(
                f"{where}: {feature.op.op} takes {takes}, and the column {name} holds {dtype}",
                "choose another operation; docs/reference/config.md lists what each takes",
            )


def requirements(groups: Sequence[FeatureGroup]) -> dict[str, Requirement]:
    """Return the statistics of the training split that features use, by the name of the group.

    The vocabulary of several features is that of the one which the others share it with.
    """
    found: dict[str, Requirement] = {}
    for each in groups:
        requirement = each.requirement
        if requirement is not None and each.features[0].shares is None:
            found[each.name] = requirement
    for each in groups:
        owner = found.get(each.features[0].shares or "")
        if isinstance(each.op, OfHistory) and isinstance(owner, Vocabulary):
            shared = each.requirement
            if isinstance(shared, Vocabulary):
                found[each.name] = replace(owner, texts=tf.concat([owner.texts, shared.texts], axis=0), column=None)
    return found


def collisions(features: Sequence[Feature], columns: Columns) -> list[Collisions]:
    """Return what is required to report how many values of hashed features share a bucket; see `requirements`.

    The graph does not read the results.
    """
    texts: dict[str, list[tf.Tensor]] = {}
    buckets: dict[str, int] = {}
    for feature in features:
        if isinstance(feature.op, (Hashed, Text, EventSequence)):
            of_feature = find_operation(feature.op).hashed(feature.op, read(feature, columns))
            if of_feature is not None:
                texts.setdefault(feature.vocabulary, []).append(of_feature)
                buckets[feature.vocabulary] = feature.op.buckets or 0
    return [
        Collisions(tf.concat(each, axis=0), f"{feature_names.COLLISIONS}{name}", buckets[name])
        for name, each in texts.items()
    ]


def unparsed_dates(features: Sequence[Feature], columns: Columns) -> list[UnparsedDates]:
    """Return what is required to report how many texts of each column of dates are not dates.

    The graph does not read the results.
    """
    read_as = dict.fromkeys(
        (name, feature.op.order)
        for feature in features
        if isinstance(feature.op, DatePart)
        for name in feature.columns
        if columns.dtype(name) == "bytes"
    )
    return [
        UnparsedDates(*find_dates(columns[name], order), f"{feature_names.UNPARSED_DATES}{order}_{name}")
        for name, order in read_as
    ]


def apply(group: FeatureGroup, analyzed: tf.Tensor | None) -> dict[str, tf.Tensor]:
    """Compute the features of a group.

    Args:
      group: the features.
      analyzed: the result of their requirement; None without one.

    Returns:
      Feature's name → the feature, see `output_spec`.
    """
    names = [feature.name for feature in group.features]
    output = find_operation(group.op).transform(group.op, group.source, analyzed)
    return dict(zip(names, tf.unstack(output, len(names), axis=1) if _is_group(group) else [output], strict=True))


def _is_group(group: FeatureGroup) -> bool:
    return isinstance(group.source, ColumnGroup)


def output_spec(feature: Feature, size: VocabularySize) -> Dense | Ids:
    """Return dtype, shape and cardinality of a feature."""
    spec = find_operation(feature.op).output_spec(feature.op, feature.vocabulary, size)
    if isinstance(spec, Ids) and isinstance(feature.op, Embedded):
        composition = feature.op.composition or "product"
        spec = replace(spec, quotients=feature.op.quotient_remainder, composition=composition)
    if isinstance(spec, Ids) and isinstance(feature.op, OfHistory):
        return replace(spec, is_history=True, shares=feature.shares, along=feature.along)
    return spec
