"""The features' part of the cache keys of Transform and Trainer: settings passed as JSON in their parameters."""

from __future__ import annotations

from typing import Literal

from components.config_section import Section, Task
from components.features import expression
from components.features.config import Feature, FeaturesConfig, Vocab
from components.features.expression import Expression


class RowKey(Section):
    """What keeps rows together: the columns of `data.split`, if it assigns whole groups or a time to a split."""

    by: Literal["group", "time"]
    columns: tuple[str, ...]


class FeaturePlan(Section):
    """The features, the label and the task of a pipeline."""

    features: FeaturesConfig
    label: str
    task: Task
    row_key: RowKey | None = None
    weight: str | None = None
    """The column with the weight of each row; None: all count the same."""
    item: str | None = None
    """Of a retrieval: the column with the item's id, which has a feature `vocab`."""

    @property
    def item_feature(self) -> Feature:
        """The feature of the item's id, of a retrieval."""
        return next(
            each for each in self.features.declared if each.columns == (self.item,) and isinstance(each.op, Vocab)
        )

    def label_expression(self) -> Expression:
        """Parses the label."""
        return expression.parse(self.label)
