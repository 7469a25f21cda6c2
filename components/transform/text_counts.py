"""The distinct values of a raw column with their counts, without the graph, which needs ten times as long for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from components.data.split_sample import first_values

NAMES = ("text", "count")
"""Names of the columns of counts, as in `accumulators.VocabularyState`."""


def count_texts(column: pa.Array) -> pa.RecordBatch:
    """Count the distinct first values of the rows.

    Args:
      column: Lists of int64 or large_binary; a row without a value does not count.

    Returns:
      Each distinct value as text (large_binary), integers in decimal form, and its count (int64).
    """
    sizes = np.diff(np.asarray(column.offsets))
    values = first_values(column).drop_null() if sizes.max(initial=0) > 1 else column.flatten()
    counted = values.value_counts()
    texts, counts = counted.field("values"), counted.field("counts")
    if pa.types.is_integer(texts.type):
        texts = texts.cast(pa.string()).cast(pa.binary()).cast(pa.large_binary())
    return pa.RecordBatch.from_arrays([texts, counts], list(NAMES))


def divide(entries: pa.RecordBatch, parts: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Divide counts by a hash of the text; yield the parts that have texts, with their numbers below `parts`."""
    numbers = tf.strings.to_hash_bucket_fast(entries.column(0).to_numpy(zero_copy_only=False), parts).numpy()
    for part in np.unique(numbers).tolist():
        # Copies: a slice would be pickled with all of the entries.
        yield part, pc.take(entries, pa.array(np.flatnonzero(numbers == part)))
