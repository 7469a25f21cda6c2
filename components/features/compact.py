"""Expand transformed features that are stored in a compact form to the numbers that a network reads.

The transform graph writes an encoded image instead of pixels. For a value of `piecewise_linear`, it writes two numbers
instead of one number per bin: the index of the bin that contains the value, and the position in that bin, from 0 to 1.
This is sufficient, because lower bins are 1 and higher bins are 0:

- A missing value, or a value up to the first edge, is stored as (0, 0).
- A value from the last edge on is stored as (index of the last bin, 1).
- A bin of width 0 is 0 for every value. The analysis puts these bins last (`analysis.Edges`), and they do not contain
  values.
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
"""Number of stored numbers per value of `piecewise_linear`."""
_PART_BYTES = 32 << 20
"""Maximum bytes of expanded features that `in_parts` computes at a time, unless a single row is larger. The activations
of a network need several times as much."""
_CALL_ROWS = 1 << 13
"""Maximum number of rows in a call of a model; see `components.data.saved_model`."""


@dataclass(frozen=True)
class CompactFeatures:
    """The features of a config that are stored in a compact form.

    Example:
      compact = CompactFeatures.find(plan.features)
      inputs = compact.expand(stored)

    Attributes:
      images: Feature name → operation `image`.
      bins: Feature name → number of bins of the operation `piecewise_linear`.
    """

    images: dict[str, Image]
    bins: dict[str, int]

    @classmethod
    def find(cls, features: FeaturesConfig) -> CompactFeatures:
        """Return the compact features of a config."""
        bins = {
            feature.name: feature.op.bins for feature in features.declared if isinstance(feature.op, PiecewiseLinear)
        }
        return cls(images.images(features), bins)

    def __bool__(self) -> bool:
        return bool(self.images or self.bins)

    @property
    def row_bytes(self) -> int:
        """Bytes of the expanded numbers of a row."""
        return int((images.row_bytes(self.images) + sum(self.bins.values())) * tf.float32.size)

    def only(self, names: Collection[str]) -> CompactFeatures:
        """Return the compact features with these names."""
        return CompactFeatures(
            {name: op for name, op in self.images.items() if name in names},
            {name: count for name, count in self.bins.items() if name in names},
        )

    def expand(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Replace compact features by the numbers that a network reads.

        Args:
          features: Transformed features as they are stored. Encoded images are strings of shape [batch];
            `piecewise_linear` is float32 of shape [batch, 2]. Some of the features may be absent.

        Returns:
          The expanded features. Images are float32 of shape [batch, height * width * channels]; `piecewise_linear` is
          float32 of shape [batch, bins].
        """
        return self._expand_bins(images.decode(self.images, features))

    def in_parts(self, predict: Callable[[dict[str, Any]], dict[str, Any]], rows: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a function to a batch, in parts of a few rows if the expanded features need much memory.

        Args:
          predict: Function from the compact features of a part, shape [rows of the part, …], to outputs by name, shape
            [rows of the part, …].
          rows: Compact features of all rows; shape [rows, …].

        Returns:
          The outputs of all rows.
        """
        size = max(1, _PART_BYTES // max(1, self.row_bytes))
        if not self.images and size >= _CALL_ROWS:
            return predict(dict(rows))
        return row_parts.in_parts(size, predict, rows)

    def pack(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Replace encoded images by their pixels; see `images.pack`. Other features stay compact."""
        return images.pack(self.images, features)

    def unpack(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Convert features that `pack` returned to the form that `expand` returns."""
        return self._expand_bins(images.unpack(self.images, features))

    def _expand_bins(self, features: dict[str, Any]) -> dict[str, Any]:
        """Expand all features with the same number of bins by one set of operations."""
        by_count: dict[int, list[str]] = {}
        for name, count in self.bins.items():
            if name in features:
                by_count.setdefault(count, []).append(name)
        expanded = dict(features)
        for count, names in by_count.items():
            pairs = tf.stack([tf.ensure_shape(features[name], [None, PAIR]) for name in names], axis=1)
            index, position, bins = pairs[:, :, :1], pairs[:, :, 1:], tf.range(count, dtype=pairs.dtype)
            # Select instead of adding position and index, because a sum would round the position.
            numbers = tf.where(bins < index, 1.0, tf.where(tf.equal(bins, index), position, 0.0))
            expanded.update(zip(names, tf.unstack(numbers, len(names), axis=1), strict=True))
        return expanded
