"""Settings of the operations that replace a value by a statistic of its training rows: `target_mean` and `count`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.features.base_op import Dtype, Op


class ValueStatistic(Op):
    """An operation that looks up a statistic of the value, in a table that the training split gives."""

    takes = frozenset[Dtype]({"int", "float", "bytes"})
    size: int = Field(default=100_000, ge=1, le=1_000_000)
    """Maximum number of values in the table, which contains the most frequent values. Other values are unknown. The
    table is a part of the model."""

    @property
    def is_columnar(self) -> bool:
        """See Op."""
        return True


class TargetMean(ValueStatistic):
    """The mean of the label over the training rows with the value (Micci-Barreca 2001, A Preprocessing Scheme for
    High-Cardinality Categorical Attributes), minus the mean of all rows, divided by the label's standard deviation.

    A mean is pulled towards the mean of all rows, more strongly for values of few rows. A training row gets the mean
    over the rows of the other folds, so its own label is not part of its feature; all other rows get the mean over all
    training rows. An unknown value becomes 0, the mean of all rows. A missing value is a value like others. With the
    task multiclass there is a number per class, for at most 16 classes. Rows count by `data.weight`.
    """

    op: Literal["target_mean"] = "target_mean"
    smoothing: float = Field(default=10, ge=0, allow_inf_nan=False)
    """Number of rows with the mean of all rows that are added to the rows of each value."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum number of training rows with a value. Rarer values are treated as unknown."""
    folds: int = Field(default=5, ge=2, le=20)
    """Number of folds of the training rows. Rows that `data.split` keeps together are in the same fold."""


class Count(ValueStatistic):
    """The number of training rows with the value; for values whose frequency matters. An unknown or missing value
    becomes 0.
    """

    op: Literal["count"] = "count"
    scale: Literal["log", "share"] = "log"
    """log: log(1 + rows). share: the share of all training rows."""
