"""The plan of the features. Transform and Trainer receive it as JSON, as a part of their parameters and cache keys."""

from __future__ import annotations

from typing import Literal

from components.base.class_set import ClassSetConfig
from components.base.config_section import Section, Task
from components.features.config import Feature, FeaturesConfig, Vocab
from components.features.expression import Label


class RowKey(Section):
    """The columns of `data.split` that keep rows together, if it assigns whole groups or times to splits."""

    by: Literal["group", "time", "origin"]
    """`origin`: The columns are the time of a forecast's origin and the time of its label."""
    columns: tuple[str, ...]


class FeaturePlan(Section):
    """The features, the labels and the task of a pipeline."""

    features: FeaturesConfig
    labels: tuple[Label, ...]
    task: Task
    classes: ClassSetConfig = ClassSetConfig()
    """How the classes of a row are read; multilabel only."""
    intervals: int | None = None
    """Maximum number of intervals of time; survival only."""
    row_key: RowKey | None = None
    weight: str | None = None
    """Column with the weights of the rows. If None, all rows have the same weight."""
    list_column: str | None = None
    """Column whose rows with equal values are a list, for the list-wise loss. If None, there are no lists."""
    item: str | None = None
    """Column with the ID of the item, which has a feature `vocab`; retrieval only."""

    @property
    def item_feature(self) -> Feature:
        """The feature with the ID of the item; retrieval only."""
        return self.vocab_feature(str(self.item))

    def vocab_feature(self, column: str) -> Feature:
        """Return the feature with the IDs of a column that has the operation `vocab`."""
        return next(
            feature
            for feature in self.features.declared
            if feature.columns == (column,) and isinstance(feature.op, Vocab)
        )

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The raw columns that the labels are computed from."""
        return tuple(dict.fromkeys(name for label in self.labels for name in label.columns))
