"""The lists of a list-wise loss as blocks of equal size, such as the items that a query has shown.

A list is divided into blocks of nearly equal numbers of rows, at most `size` of them; places that remain are padding.
So every batch consists of whole blocks, and its shape does not depend on the lists.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from components.features import feature_names
from components.trainer.input_columns import Columns

PADDING = -1
"""Label of a padding row, whose weight is 0."""


class ListBlocks(NamedTuple):
    """The blocks of some rows. All tensors are int64.

    Attributes:
      size: Number of rows in a block, with padding.
      order: Numbers of the rows, ordered by list; [rows].
      starts: Position of a list's first row in `order`; [lists].
      sizes: Number of rows of a list; [lists].
      parts: Number of blocks of a list; [lists].
      lists: List of a block; [blocks].
      numbers: Number of a block among the blocks of its list; [blocks].
    """

    size: int
    order: tf.Tensor
    starts: tf.Tensor
    sizes: tf.Tensor
    parts: tf.Tensor
    lists: tf.Tensor
    numbers: tf.Tensor

    def select(self, blocks: tf.Tensor, seeds: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the rows of some blocks.

        Args:
          blocks: Numbers of the blocks; int64 [n].
          seeds: Seeds that decide how the rows of the lists are divided into blocks, int64 [n, 2]; blocks of a list
            with different seeds may have rows in common. If None, rows keep their order.

        Returns:
          Numbers of the rows, int64 [n * size], and whether a row is not padding, bool [n * size].
        """
        lists = tf.gather(self.lists, blocks)
        number, parts, rows = (
            tf.gather(self.numbers, blocks),
            tf.gather(self.parts, lists),
            tf.gather(self.sizes, lists),
        )
        begin, end = number * rows // parts, (number + 1) * rows // parts
        places = begin[:, tf.newaxis] + tf.range(self.size, dtype=tf.int64)
        is_present = tf.reshape(places < end[:, tf.newaxis], [-1])
        places = tf.reshape(tf.minimum(places, end[:, tf.newaxis] - 1), [-1])
        if seeds is not None:
            # See `InputPipeline._gather`: every place is computed by itself.
            seed = tf.repeat(tf.concat([seeds, lists[:, tf.newaxis]], axis=1), self.size, axis=0)
            last = tf.repeat(rows - 1, self.size)
            places = tf.raw_ops.RandomIndexShuffle(
                index=places, seed=tf.cast(seed, tf.uint32), max_index=last, rounds=4
            )
        return tf.gather(self.order, tf.repeat(tf.gather(self.starts, lists), self.size) + places), is_present


def divide(keys: tf.Tensor, size: int) -> ListBlocks:
    """Divide rows into blocks. Rows without a list are in none.

    Args:
      keys: Keys of the lists, NO_ROW_KEY for a row without a list; int64 [rows].
      size: Number of rows in a block.
    """
    order = tf.cast(tf.argsort(keys, stable=True), tf.int64)
    names, _, sizes = tf.unique_with_counts(tf.gather(keys, order), tf.int64)
    is_list = tf.not_equal(names, feature_names.NO_ROW_KEY)
    starts = tf.boolean_mask(tf.cumsum(sizes, exclusive=True), is_list)
    sizes = tf.boolean_mask(sizes, is_list)
    parts = -(-sizes // size)
    lists = tf.repeat(tf.range(tf.size(sizes, tf.int64)), parts)
    numbers = tf.range(tf.size(lists, tf.int64)) - tf.gather(tf.cumsum(parts, exclusive=True), lists)
    return ListBlocks(size, order, starts, sizes, parts, lists, numbers)


def mark_padding(columns: Columns, is_present: tf.Tensor) -> Columns:
    """Replace the key of the list by the label and the weight of padding rows.

    Args:
      columns: Transformed columns of some blocks, with LABEL, LIST_KEY, and possibly WEIGHT.
      is_present: Whether a row is not padding; bool [rows].
    """
    marked = {name: values for name, values in columns.items() if name != feature_names.LIST_KEY}
    label = tf.reshape(marked[feature_names.LABEL], [-1])
    marked[feature_names.LABEL] = tf.where(is_present, label, tf.constant(PADDING, label.dtype))
    weight = marked.get(feature_names.WEIGHT)
    weight = tf.ones_like(label, tf.float32) if weight is None else tf.reshape(weight, [-1])
    marked[feature_names.WEIGHT] = tf.where(is_present, weight, 0.0)
    return marked
