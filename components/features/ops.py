"""Compute the features of the declared operations, and collect the statistics that they require."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import tensorflow as tf

from components.base.errors import InputError
from components.features import feature_names
from components.features.analysis import Collisions, Requirement, UnparsedDates, Vocabulary
from components.features.base_op import Dtype, Embedded, Op
from components.features.column import Column, join
from components.features.column_group import ColumnGroup, Columns
from components.features.config import Feature, Hashed
from components.features.date_ops import DatePart
from components.features.dates import find_dates
from components.features.encoding_ops import TargetMean
from components.features.feature_spec import Dense, Ids, VocabularySize
from components.features.geo_ops import GeoDistance
from components.features.operation import find_operation
from components.features.sequence_ops import EventSequence, OfHistory, TimeGaps
from components.features.target import Target
from components.features.text_ops import Text
from components.features.value_table import ValueTable


@dataclass(frozen=True)
class FeatureGroup:
    """Features that the same ops compute: all features with the same elementwise operation, or a single feature.

    Attributes:
      features: Features in the order of the config.
      source: Input of the operation. A ColumnGroup contains one column per feature, all of the same dtype.
    """

    features: tuple[Feature, ...]
    source: Column | ColumnGroup

    @property
    def op(self) -> Op:
        """The operation's settings."""
        return self.features[0].op

    @property
    def name(self) -> str:
        """Name of the group's requirement, which is the name of the first feature's vocabulary."""
        return self.features[0].vocabulary

    @property
    def requirement(self) -> Requirement | None:
        """The statistics of the training split that the features use."""
        return find_operation(self.op).requirement(self.op, self.source, self.name)


def group(features: Sequence[Feature], columns: Columns, target: Target | None = None) -> tuple[FeatureGroup, ...]:
    """Divide features into groups, in the order of their first features.

    Args:
      features: Features in the order of the config.
      columns: Columns of a batch.
      target: Labels and folds of the rows. None if no operation uses them.

    Raises:
      InputError: If an operation does not accept a column's dtype.
    """
    members: dict[Hashable, list[Feature]] = {}
    for feature in features:
        _check_dtypes(feature, {name: columns.dtype(name) for name in feature.columns})
        key: Hashable = feature.name
        if _is_elementwise(feature):
            (name,) = feature.columns
            key = feature.op.model_dump_json(), columns.dtype(name), columns.is_sparse(name)
        members.setdefault(key, []).append(feature)
    return tuple(
        FeatureGroup(tuple(features), _read_source(features, columns, target)) for features in members.values()
    )


def _is_elementwise(feature: Feature) -> bool:
    return find_operation(feature.op).is_elementwise(feature.op) and len(feature.columns) == 1


def _read_source(features: Sequence[Feature], columns: Columns, target: Target | None) -> Column | ColumnGroup:
    if _is_elementwise(features[0]):
        return columns.group([feature.columns[0] for feature in features])
    source = read(features[0], columns)
    return replace(source, target=target) if isinstance(features[0].op, TargetMean) else source


def read(feature: Feature, columns: Mapping[str, Column]) -> Column:
    """Return the column that a feature is computed from. The columns of a cross are joined to one column.

    Raises:
      InputError: If the operation does not accept a column's dtype.
    """
    sources = [columns[name] for name in feature.columns]
    _check_dtypes(feature, {column.name: column.dtype for column in sources})
    if isinstance(feature.op, TimeGaps):
        return replace(sources[0], reference=sources[1]) if feature.op.until else sources[0]
    if isinstance(feature.op, GeoDistance):
        return replace(sources[0], others=tuple(sources[1:]))
    return sources[0] if len(sources) == 1 else join(sources)


def _check_dtypes(feature: Feature, dtypes: Mapping[str, Dtype]) -> None:
    for name, dtype in dtypes.items():
        if dtype not in feature.op.takes:
            where = ".".join(("features", *map(str, feature.key[:2])))
            takes = " or ".join(sorted(feature.op.takes))
            raise InputError(
                f"{where}: {feature.op.op} takes {takes}, and the column {name} holds {dtype}",
                "choose another operation; docs/reference/config.md lists the types that operations take",
            )


def requirements(groups: Sequence[FeatureGroup]) -> dict[str, Requirement]:
    """Return name of a group → statistics of the training split that its features require.

    A feature that shares the vocabulary of another feature adds its texts to that vocabulary.
    """
    requirements: dict[str, Requirement] = {}
    for group in groups:
        requirement = group.requirement
        if requirement is not None and group.features[0].shares is None:
            requirements[group.name] = requirement
    for group in groups:
        owner = requirements.get(group.features[0].shares or "")
        if isinstance(group.op, OfHistory) and isinstance(owner, Vocabulary):
            shared = group.requirement
            if isinstance(shared, Vocabulary):
                texts = tf.concat([owner.texts, shared.texts], axis=0)
                requirements[group.name] = replace(owner, texts=texts, column=None)
    return requirements


def collisions(features: Sequence[Feature], columns: Columns) -> list[Collisions]:
    """Return the statistics from which the collisions of hashed features are reported. The graph does not use them."""
    texts: dict[str, list[tf.Tensor]] = {}
    buckets: dict[str, int] = {}
    for feature in features:
        if isinstance(feature.op, (Hashed, Text, EventSequence)):
            hashed_texts = find_operation(feature.op).hashed(feature.op, read(feature, columns))
            if hashed_texts is not None:
                texts.setdefault(feature.vocabulary, []).append(hashed_texts)
                buckets[feature.vocabulary] = feature.op.buckets or 0
    return [
        Collisions(tf.concat(tensors, axis=0), f"{feature_names.COLLISIONS}{name}", buckets[name])
        for name, tensors in texts.items()
    ]


def require_unparsed_dates(features: Sequence[Feature], columns: Columns) -> list[UnparsedDates]:
    """Return the statistics from which texts that are not dates are reported. The graph does not use them."""
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


def apply(group: FeatureGroup, analyzed: tf.Tensor | ValueTable | None) -> dict[str, tf.Tensor]:
    """Compute the features of a group.

    Args:
      group: Group of features.
      analyzed: Result of the group's requirement; None if the group does not require statistics.

    Returns:
      Name of the feature → feature; see `output_spec`.
    """
    names = [feature.name for feature in group.features]
    output = find_operation(group.op).transform(group.op, group.source, analyzed)
    return dict(zip(names, tf.unstack(output, len(names), axis=1) if _is_group(group) else [output], strict=True))


def _is_group(group: FeatureGroup) -> bool:
    return isinstance(group.source, ColumnGroup)


def output_spec(feature: Feature, size: VocabularySize, classes: int = 1) -> Dense | Ids:
    """Return dtype, shape and cardinality of a feature.

    Args:
      feature: The feature.
      size: Function from the name of a vocabulary to its number of entries.
      classes: Number of classes of a multiclass label; 1 for other labels.
    """
    spec = find_operation(feature.op).output_spec(feature.op, feature.vocabulary, size)
    if isinstance(spec, Dense) and isinstance(feature.op, TargetMean):
        return replace(spec, width=classes)
    if isinstance(spec, Ids) and isinstance(feature.op, Embedded):
        composition = feature.op.composition or "product"
        spec = replace(spec, quotients=feature.op.quotient_remainder, composition=composition)
    if isinstance(spec, Ids) and isinstance(feature.op, OfHistory):
        return replace(spec, is_history=True, shares=feature.shares, along=feature.along)
    return spec
