"""The plan of the features. Transform and Trainer receive it as JSON, as a part of their parameters and cache keys."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from components.base.config_section import Section, Task
from components.features import expression
from components.features.config import Feature, FeaturesConfig, Vocab
from components.features.expression import Expression


class RowKey(Section):
    """The columns of `data.split` that keep rows together, if it assigns whole groups or times to splits."""

    by: Literal["group", "time"]
    columns: tuple[str, ...]


class DeclaredLabel(NamedTuple):
    """A label of the config.

    Attributes:
      name: Name of the label in `data.labels`; empty for `data.label`.
      text: Name of a column, or an expression.
    """

    name: str
    text: str

    @property
    def key(self) -> str:
        """The key of the config that declares the label."""
        return f"data.labels.{self.name}" if self.name else "data.label"

    @property
    def expression(self) -> Expression:
        """The parsed column or expression.

        Raises:
          ValueError: If the text is not an expression.
        """
        return expression.parse(self.text)

    def named(self, base: str) -> str:
        """Return the name of a file, column or output of this label: `base` and the name of the label, if any."""
        return f"{base}_{self.name}" if self.name else base


class FeaturePlan(Section):
    """The features, the labels and the task of a pipeline."""

    features: FeaturesConfig
    label: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    """Label name → column or expression, if there are several labels. `label` is then empty."""
    task: Task
    row_key: RowKey | None = None
    weight: str | None = None
    """Column with the weights of the rows. If None, all rows have the same weight."""
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
    def declared_labels(self) -> tuple[DeclaredLabel, ...]:
        """The labels, in the order of the config."""
        return tuple(DeclaredLabel(name, text) for name, text in (self.labels or {"": self.label}).items())

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The raw columns that the labels are computed from."""
        columns = (name for label in self.declared_labels for name in label.expression.columns)
        return tuple(dict.fromkeys(columns))
