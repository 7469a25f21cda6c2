"""Expands transformed features that are stored in a compact form to the numbers that a network reads.

The transform graph writes an encoded image instead of its pixels. Of a value of `piecewise_linear` it writes two
numbers instead of one for each bin: the number of the bin that the value is in, and its position inside that bin, from
0 to 1. The bins below are 1 and the bins above are 0, so nothing else is needed:

- A missing value and a value up to the first edge are (0, 0).
- A value from the last edge on is (number of the last bin, 1).
- A bin of width 0 is 0 for every value. The analysis puts such bins after all others (`analysis.Edges`), and no value
  is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from components.features import images, row_parts
from components.features.config import FeaturesConfig, PiecewiseLinear
from components.features.image_ops import Image

PAIR = 2
"""Numbers that are stored of a value of `piecewise_linear`."""
_PART_BYTES = 32 << 20
"""The greatest size of the expanded features that `in_parts` computes at a time, apart from a single row. What a
network computes from them is several times larger."""
_CALL_ROWS = 1 << 13
"""Rows of a call of a model; see `components.data.saved_model`."""


@dataclass(frozen=True)
class CompactFeatures:
    """The features of a config whose stored form is smaller than what a network reads.

    Example:
      compact = CompactFeatures.find(plan.features)
      inputs = compact.expand(stored)

    Attributes:
      images: Feature → its operation.
      bins: Feature → number of bins of its operation `piecewise_linear`.
    """

    images: dict[str, Image]
    bins: dict[str, int]

    @classmethod
    def find(cls, features: FeaturesConfig) -> CompactFeatures:
        """Return the compact features of a config."""
        bins = {each.name: each.op.bins for each in features.declared if isinstance(each.op, PiecewiseLinear)}
        return cls(images.images(features), bins)

    def __bool__(self) -> bool:
        return bool(self.images or self.bins)

    @property
    def row_bytes(self) -> int:
        """The size of the expanded numbers of a row, in bytes."""
        return int((images.row_bytes(self.images) + sum(self.bins.values())) * tf.float32.size)

    def only(self, names: Collection[str]) -> CompactFeatures:
        """Return those of these names."""
        return CompactFeatures(
            {name: op for name, op in self.images.items() if name in names},
            {name: count for name, count in self.bins.items() if name in names},
        )

    def expand(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Replace compact features by the numbers that a network reads.

        Args:
          features: Transformed features, as they are stored: encoded images string [batch], `piecewise_linear` float32
            [batch, 2]. Some of the features may be absent.

        Returns:
          The features; images float32 [batch, height * width * channels], `piecewise_linear` float32 [batch, bins].
        """
        return self._with_bins(images.decoded(self.images, features))

    def in_parts(self, predict: Callable[[dict[str, Any]], dict[str, Any]], rows: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a function, to a few rows at a time if the expanded features of a large batch need much memory.

        Args:
          predict: Compact features, [rows of a part, …] → outputs by name, [rows of a part, …].
          rows: Compact features, [rows, …].

        Returns:
          The outputs of all rows.
        """
        size = max(1, _PART_BYTES // max(1, self.row_bytes))
        if not self.images and size >= _CALL_ROWS:
            return predict(dict(rows))
        return row_parts.in_parts(size, predict, rows)

    def pack(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Replace encoded images by their pixels; see `images.packed`. Other features stay compact."""
        return images.packed(self.images, features)

    def unpack(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Convert features, as `pack` returns them, to those of `expand`."""
        return self._with_bins(images.unpacked(self.images, features))

    def _with_bins(self, features: dict[str, Any]) -> dict[str, Any]:
        """Expand all features with the same number of bins by one set of operations."""
        by_count: dict[int, list[str]] = {}
        for name, count in self.bins.items():
            if name in features:
                by_count.setdefault(count, []).append(name)
        expanded = dict(features)
        for count, names in by_count.items():
            pairs = tf.stack([tf.ensure_shape(features[name], [None, PAIR]) for name in names], axis=1)
            index, position, bins = pairs[:, :, :1], pairs[:, :, 1:], tf.range(count, dtype=pairs.dtype)
            # No arithmetic on the position, which a sum with the number of the bin would round.
            numbers = tf.where(bins < index, 1.0, tf.where(tf.equal(bins, index), position, 0.0))
            expanded.update(zip(names, tf.unstack(numbers, len(names), axis=1), strict=True))
        return expanded
