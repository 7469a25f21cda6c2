"""Statistics of a column do not depend on its batches, nor on the number of parts of a vocabulary."""

from __future__ import annotations

import pickle
import tracemalloc
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.feature_extraction.text import TfidfVectorizer

from components.features import accumulators
from components.features.accumulators import (
    CollisionsAccumulator,
    EdgesAccumulator,
    InverseFrequenciesAccumulator,
    MomentsAccumulator,
    QuantilesAccumulator,
    ScaleAccumulator,
    UnparsedDatesAccumulator,
    VocabularyAccumulator,
)
from tests.support.data.tolerances import float64_sum, rounding


def accumulate_batches(accumulator: Any, *batches: Any) -> list[float]:
    """Return the result of a single column: the batches are added alternately to two states, which are then merged."""
    states = [accumulator.empty(), accumulator.empty()]
    for number, batch in enumerate(batches):
        states[number % 2] = accumulator.add(states[number % 2], np.asarray(batch, np.float64))
    result = accumulator.result(accumulator.prune(accumulator.merge(*states)))
    assert result.dtype == np.float64
    assert result.shape == (accumulator.width, 1)
    return list(result[:, 0].tolist())


@settings(max_examples=50, deadline=None)
@given(st.lists(arrays.arrays(np.float32, st.integers(0, 20), elements=st.floats(-1e6, 1e6, width=32)), max_size=5))
def test_moments_and_extremes(batches: list[Any]) -> None:
    all_rows = np.concatenate([[], *batches])
    expected = (
        [all_rows.mean(), all_rows.std() or 1.0, all_rows.min(), all_rows.max()] if len(all_rows) else [0, 1, 0, 0]
    )
    assert accumulate_batches(MomentsAccumulator(1), *batches) == pytest.approx(expected, rel=1e-6, abs=1e-3)


def test_edges_of_a_uniform_column_are_its_quantiles() -> None:
    assert accumulate_batches(EdgesAccumulator(1, 4), range(1000), range(1000, 2001)) == pytest.approx(
        [0, 500, 1000, 1500, 2000], abs=5
    )


def test_frequent_value_does_not_use_up_the_bucket_boundaries() -> None:
    tail = np.random.default_rng(0).lognormal(3, 2, 1000)
    edges = accumulate_batches(EdgesAccumulator(1, 16), np.zeros(9000), tail)
    assert edges[0] == 0
    assert edges[-1] == rounding(1).approx(tail.max())
    # With plain quantiles, 15 of the 17 edges would be 0.
    assert np.diff(edges).min() > 0
    in_bins, _ = np.histogram(tail, edges)
    assert in_bins.min() >= 40


def test_every_distinct_value_is_an_edge_and_the_last_bins_are_empty() -> None:
    assert accumulate_batches(EdgesAccumulator(1, 4), [3, 1, 1], [1, 2]) == [1, 2, 3, 3, 3]
    assert accumulate_batches(EdgesAccumulator(1, 2), [7] * 10) == [7, 7, 7]
    assert accumulate_batches(EdgesAccumulator(1, 2)) == [0, 0, 0]


COLUMNS = np.random.default_rng(0).lognormal(3, 2, (5000, 4))
COLUMNS[np.random.default_rng(1).random(COLUMNS.shape) < 0.1] = np.nan
COLUMNS[:, 2] = np.nan


def accumulate_columns(accumulator: Any) -> Any:
    """Return the result of COLUMNS from pickled states, one of which is empty."""
    merged = accumulator.empty()
    for part in (COLUMNS[:1000], COLUMNS[1000:1000], COLUMNS[1000:]):
        state = pickle.loads(pickle.dumps(accumulator.add(accumulator.empty(), part)))  # noqa: S301
        merged = accumulator.merge(merged, state)
    return accumulator.result(accumulator.prune(merged))


def test_moments_of_every_column_ignore_missing_values() -> None:
    result = accumulate_columns(MomentsAccumulator(4))
    for number in (0, 1, 3):
        values = COLUMNS[~np.isnan(COLUMNS[:, number]), number]
        expected = [values.mean(), values.std(), values.min(), values.max()]
        float64_sum(len(values), largest=values.max()).assert_close(result[:, number], expected)
    assert result[:, 2].tolist() == [0, 1, 0, 0]


def test_moments_of_a_batch_need_memory_for_two_copies() -> None:
    values = np.random.default_rng(0).normal(size=(10_000, 50))
    values[::9] = np.nan
    accumulator = MomentsAccumulator(50)
    tracemalloc.start()
    try:
        accumulator.add(accumulator.empty(), values)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * values.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "make", [lambda count: QuantilesAccumulator(count, 7), lambda count: EdgesAccumulator(count, 5)]
)
def test_quantiles_of_every_column_equal_those_of_the_column_alone(make: Any) -> None:
    result = accumulate_columns(make(4))
    for number in (0, 1, 3):
        values = COLUMNS[:, number]
        assert result[:, number].tolist() == accumulate_batches(make(1), values[:1000], values[1000:])
    assert result[:, 2].tolist() == [0] * len(result)


WORDS = st.lists(st.sampled_from([b"a", b"b", b"ab", b"\xff", b"", b"x\ny", b"\r", b"z z"]), max_size=30)


@settings(max_examples=50, deadline=None)
@given(
    batches=st.lists(WORDS, max_size=5),
    parts=st.integers(1, 3),
    size=st.integers(1, 6),
    min_frequency=st.integers(1, 3),
    pending=st.integers(0, 9),
)
def test_vocabulary_is_counted_in_parts(
    batches: list[list[bytes]], parts: int, size: int, min_frequency: int, pending: int
) -> None:
    accumulator = VocabularyAccumulator(size, min_frequency, counts=True)
    states = [accumulator.empty() for _ in range(parts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accumulators, "_PENDING", pending)
        for batch in batches:
            for part in range(parts):
                counted = Counter(word for word in batch if zlib.crc32(word) % parts == part)
                texts = np.array([*counted, None], object)[:-1]
                states[part] = accumulator.add(states[part], texts, np.array([*counted.values()], np.int64))
        merged = accumulator.empty()
        for state in states:
            merged = accumulator.prune(accumulator.merge(merged, accumulator.prune(state)))
    counts = Counter(word for batch in batches for word in batch)
    entries = sorted(
        (-count, word) for word, count in counts.items() if count >= min_frequency and word.strip(b"\r") == word != b""
    )
    expected = [b"%d %s" % (-count, word) for count, word in entries if b"\n" not in word][:size]
    assert accumulator.result(merged) == b"".join(line + b"\n" for line in expected)


def test_an_empty_vocabulary_has_one_entry() -> None:
    accumulator = VocabularyAccumulator(3, 1, counts=False)
    assert accumulator.result(accumulator.prune(accumulator.empty())) == b"\x00\n"


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.lists(st.sampled_from("abcd"), max_size=4), max_size=9), size=st.integers(1, 5))
def test_inverse_frequencies_are_those_of_scikit_learn(rows: list[list[str]], size: int) -> None:
    accumulator = InverseFrequenciesAccumulator(size, 1, counts=False)
    states = [accumulator.empty() for _ in range(3)]
    known = [row for row in rows if row]
    for row in known:
        for part in range(3):
            texts = [word.encode() for word in {*row, ""} if ord(word or "z") % 3 == part]
            states[part] = accumulator.add(
                states[part], np.array([*texts, None], object)[:-1], np.ones(len(texts), int)
            )
    merged = accumulator.empty()
    for state in states:
        merged = accumulator.prune(accumulator.merge(merged, accumulator.prune(state)))
    lines = [line.split("\t") for line in accumulator.result(merged).decode().splitlines()]
    counts = Counter(word for row in known for word in set(row))
    names = sorted(counts, key=lambda word: (-counts[word], word))[:size]
    if not names:
        assert lines == [["\0", "0"]]
        return
    vectorizer = TfidfVectorizer(analyzer=lambda row: row, vocabulary=names).fit(known)
    assert [word for word, _ in lines] == names
    rounding(4).assert_close([float(frequency) for _, frequency in lines], vectorizer.idf_)


def collisions(values: Any, buckets: int, batch: int = 1000) -> list[float]:
    accumulator = CollisionsAccumulator(buckets)
    states = [accumulator.empty() for _ in range(3)]
    for number, start in enumerate(range(0, len(values), batch)):
        values_of_batch = np.asarray(values[start : start + batch], np.int64)
        states[number % 3] = accumulator.add(states[number % 3], values_of_batch, values_of_batch % buckets)
    merged = accumulator.empty()
    for state in states:
        merged = accumulator.merge(merged, state)
    return [float(line) for line in accumulator.result(merged).splitlines()]


def test_collisions_are_values_that_share_a_bucket() -> None:
    # 3 and 13 share a bucket. They are two of the three values and fill five of the six rows.
    assert collisions([3, 3, 3, 3, 13, 5], 10, batch=2) == float64_sum(1).approx([10, 3, 2, 2 / 3, 5 / 6, 1])
    assert collisions([], 10) == [10, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(("distinct", "buckets"), [(20_000, 10_000), (20_000, 400_000)])
def test_collisions_of_many_values_are_estimated_from_some_buckets(
    distinct: int, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    rows = random.integers(0, 2**40, distinct)[random.integers(0, distinct, 100_000)]
    exact = collisions(rows, buckets)
    monkeypatch.setattr(accumulators, "_MOST_VALUES", 4000)
    estimated = collisions(rows, buckets)
    assert estimated == collisions(rows, buckets, batch=777), "it does not depend on the batches"
    assert (exact[-1], estimated[-1]) == (1, 1 / 8)
    # The estimates have relative standard errors of about 1 / sqrt(2500).
    assert estimated[1:3] == pytest.approx(exact[1:3], rel=0.08, abs=10)
    assert estimated[3:5] == pytest.approx(exact[3:5], abs=0.03)


def scale(*batches: tuple[Any, ...]) -> list[float]:
    accumulator = ScaleAccumulator()
    states = [accumulator.add(accumulator.empty(), *map(np.asarray, batch)) for batch in batches]
    merged = accumulator.empty()
    for state in states:
        merged = accumulator.merge(merged, state)
    return [float(line) for line in accumulator.result(merged).splitlines()]


def test_scale_counts_missing_and_negative_values() -> None:
    values = [1.0, -2.0, np.nan, 4.0]
    known = np.array([1.0, -2.0, 4.0])
    expected = [4, 1, known.mean(), known.std(), 1]
    assert scale((values,)) == scale((values[:1],), (values[1:],)) == float64_sum(6, largest=4.0).approx(expected)


def test_weight_counts_a_value_several_times() -> None:
    values, weights = [1.0, -2.0, np.nan, 4.0, 9.0, 9.0, 9.0], [1.0, 2.0, 1.0, 3.0, 0.0, np.nan, -1.0]
    repeated = np.repeat([1.0, -2.0, 4.0], [1, 2, 3])
    expected = [7, 1, repeated.mean(), repeated.std(), 1]
    parts = [(values[start : start + 2], weights[start : start + 2]) for start in (0, 2, 4, 6)]
    assert scale((values, weights)) == float64_sum(6, largest=4.0).approx(expected)
    assert scale(*parts) == float64_sum(6, largest=4.0).approx(expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from([b"soon", b"a\nb", b"c" * 99]), st.booleans()), max_size=5)))
def test_unparsed_dates_are_counted_in_any_order(batches: list[list[tuple[bytes, bool]]]) -> None:
    accumulator, results = UnparsedDatesAccumulator(), []
    for order in (batches, batches[::-1]):
        state = accumulator.empty()
        for rows in order:
            texts, valid = np.array([text for text, _ in rows], object), np.array([date for _, date in rows], bool)
            state = accumulator.merge(state, accumulator.add(accumulator.empty(), texts, valid))
        results.append(accumulator.result(state))
    rows = [row for batch in batches for row in batch]
    unparsed = [text for text, valid in rows if not valid]
    example = min(unparsed, default=b"")[:60].replace(b"\n", b" ")
    assert results == [b"%d\n%d\n%s\n" % (len(rows), len(unparsed), example)] * 2
