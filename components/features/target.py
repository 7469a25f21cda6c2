"""The label and the fold of the rows, for operations that use the label of the training rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from components.features import feature_names, row_key
from components.features.column import Column
from components.features.label import label_values
from components.features.plan import FeaturePlan


@dataclass(frozen=True)
class Target:
    """The label, the weights and the folds of a batch; they are computed when they are read.

    Attributes:
      plan: Plan with the label.
      columns: Name → raw column, with all columns of the label if `labels` is read.
      row_weights: Weights of the rows, float64 of shape [batch]. If None, all rows have the same weight.
    """

    plan: FeaturePlan
    columns: Mapping[str, Column]
    row_weights: tf.Tensor | None

    @functools.cached_property
    def labels(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The classes, string, and the labels, float64; see `analysis.ValueStatistics`. Both have the shape [batch]."""
        (declared,) = self.plan.labels
        return label_values(declared, self.plan, self.columns)

    @property
    def weights(self) -> tf.Tensor:
        """The weights of the rows, float64 of shape [batch]."""
        return tf.ones_like(self.labels[1]) if self.row_weights is None else self.row_weights

    @property
    def is_training(self) -> bool:
        """Whether the rows are the rows from which the training split's statistics are computed."""
        return feature_names.DRAWN in self.columns

    def folds(self, count: int) -> tf.Tensor:
        """Return the folds of training rows, from 0; int64, shape [batch].

        Rows with the same group have the same fold, because `data.split` also keeps them together. Rows of a split by
        time, and rows without a group, are drawn.
        """
        drawn = self.columns[feature_names.DRAWN].values
        group = self.plan.row_key
        if group is not None and group.by == "group":
            keys = row_key.compute(group, self.columns)[feature_names.ROW_KEY]
            drawn = tf.where(tf.equal(keys, feature_names.NO_ROW_KEY), drawn, keys)
        return drawn % count
