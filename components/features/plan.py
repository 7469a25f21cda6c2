"""The features' part of the cache keys of Transform and Trainer: settings passed as JSON in their parameters."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from components.base.config_section import Section, Task
from components.features import expression
from components.features.config import Feature, FeaturesConfig, Vocab
from components.features.expression import Expression


class RowKey(Section):
    """What keeps rows together: the columns of `data.split`, if it assigns whole groups or a time to a split."""

    by: Literal["group", "time"]
    columns: tuple[str, ...]


class DeclaredLabel(NamedTuple):
    """A label of the config.

    Attributes:
      name: That under `data.labels`; empty for `data.label`, the only one.
      text: A column or an expression.
    """

    name: str
    text: str

    @property
    def key(self) -> str:
        """Where the config declares it."""
        return f"data.labels.{self.name}" if self.name else "data.label"

    @property
    def expression(self) -> Expression:
        """What it is computed from.

        Raises:
          ValueError: The text is no expression.
        """
        return expression.parse(self.text)

    def named(self, base: str) -> str:
        """Return the name of one of this label's files, columns or outputs: the only label has no name of its own."""
        return f"{base}_{self.name}" if self.name else base


class FeaturePlan(Section):
    """The features, the labels and the task of a pipeline."""

    features: FeaturesConfig
    label: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    """Name → label, if there are several; `label` is empty then."""
    task: Task
    row_key: RowKey | None = None
    weight: str | None = None
    """The column with the weight of each row; None: all count the same."""
    item: str | None = None
    """Of a retrieval: the column with the item's id, which has a feature `vocab`."""

    @property
    def item_feature(self) -> Feature:
        """The feature of the item's id, of a retrieval."""
        return self.vocab_feature(str(self.item))

    def vocab_feature(self, column: str) -> Feature:
        """Return the feature with the IDs of a column that has the operation `vocab`."""
        return next(each for each in self.features.declared if each.columns == (column,) and isinstance(each.op, Vocab))

    @property
    def declared_labels(self) -> tuple[DeclaredLabel, ...]:
        """The labels, in the order of the config."""
        return tuple(DeclaredLabel(*each) for each in (self.labels or {"": self.label}).items())

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The raw columns that the labels are made of."""
        columns = (name for each in self.declared_labels for name in each.expression.columns)
        return tuple(dict.fromkeys(columns))
