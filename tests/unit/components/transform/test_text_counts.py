"""Texts are counted without the graph, with the same result as Python's Counter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from components.features.accumulators import VocabularyAccumulator
from components.features.base_op import Dtype
from components.transform import text_counts

TYPES: dict[Dtype, pa.DataType] = {"bytes": pa.large_binary(), "int": pa.int64()}


def as_counter(counts: pa.RecordBatch) -> Counter[bytes]:
    texts, rows = (column.to_pylist() for column in counts.columns)
    assert len(set(texts)) == len(texts)
    return Counter(dict(zip(texts, rows, strict=True)))


@pytest.mark.both_lines
@pytest.mark.parametrize(
    ("dtype", "rows"),
    [
        ("bytes", [[b"a"], [b"b"], None, [b"a"], [b""], [b"\xff"], [b"a"]]),
        ("bytes", [[b"a", b"b"], [], None, [b"b"], [b"b", b"a"]]),
        ("int", [[7], [-7], None, [7], [2**62], [-(2**63)]]),
        ("int", [[7, 8], [], [8, 7], None, [7]]),
        ("bytes", [None, None]),
        ("int", []),
    ],
)
def test_first_values_are_counted_as_texts(dtype: Dtype, rows: list[list[bytes | int] | None]) -> None:
    column = pa.array([[b"other"], *rows] if dtype == "bytes" else [[1], *rows], pa.large_list(TYPES[dtype]))
    expected = Counter(str(row[0]).encode() if isinstance(row[0], int) else row[0] for row in rows if row)
    # A slice tests that offsets of the array are respected.
    assert as_counter(text_counts.count_texts(column.slice(1))) == expected


@pytest.mark.both_lines
def test_parts_of_two_workers_merge_to_the_whole_vocabulary() -> None:
    random, accumulator = np.random.default_rng(0), VocabularyAccumulator(1_000, 1, counts=False)
    batches = [[b"%d" % number for number in random.zipf(1.5, 2_000)] for _ in range(2)]
    parts: dict[int, list[pa.RecordBatch]] = {}
    for texts in batches:
        counts = text_counts.count_texts(pa.array([[text] for text in texts], pa.large_list(pa.large_binary())))
        divided = list(text_counts.divide(counts, 16))
        assert len(divided) > 8
        for number, entries in divided:
            parts.setdefault(number, []).append(entries)
    merged = [accumulator.prune(accumulator.merge(accumulator.empty(), state)) for state in parts.values()]
    state = accumulator.prune([batch for part in merged for batch in part])
    expected = sorted(Counter(batches[0] + batches[1]).items(), key=lambda entry: (-entry[1], entry[0]))[:1_000]
    assert accumulator.result(state) == b"".join(text + b"\n" for text, _ in expected)
