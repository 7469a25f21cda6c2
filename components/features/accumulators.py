"""Accumulators of the statistics of the training split. They add the values of batches, and their states can be merged.

The result does not depend on how the values were divided into batches, except that quantiles of more than 32,767 values
are estimates, see `QuantileSketch`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.features.quantile_sketch import QuantileSketch

_GRID = 1000
"""Number of quantiles from which edges are chosen."""
_PENDING = 1 << 16
"""Minimum number of pending entries of a vocabulary before the counts of equal texts are added up."""

Numbers: TypeAlias = npt.NDArray[np.float64]
Texts: TypeAlias = npt.NDArray[np.object_]
NO_WORD = b"\x00"
"""The only entry of an empty vocabulary, because TensorFlow cannot create a lookup table from an empty file."""
State = TypeVar("State")
Result = TypeVar("Result", covariant=True)


class Accumulator(Protocol[State, Result]):
    """Computes one statistic. States may be changed in place, and can be pickled."""

    def empty(self) -> State:
        """Return the state before any value is added."""

    def merge(self, state: State, other: State) -> State:
        """Return the state of the values of two states."""

    def prune(self, state: State) -> State:
        """Drop what the result does not need. Call it when all values of this part of the data are added."""

    def result(self, state: State) -> Result:
        """Return the statistic: float64 of shape [width] or [width, columns], or the content of a file."""


Moment: TypeAlias = "npt.NDArray[np.float64] | float"
MomentsState: TypeAlias = tuple[Moment, Moment, Moment, Moment, Moment]
"""Count or sum of weights, mean, sum of squared deviations, minimum, maximum; numbers, or arrays of shape [columns]."""
_NO_MOMENTS: MomentsState = (0.0, 0.0, 0.0, math.inf, -math.inf)


def _merge_moments(state: MomentsState, other: MomentsState) -> MomentsState:
    """Return the moments of the values of two states.

    Source: T. F. Chan, G. H. Golub and R. J. LeVeque, Updating formulae and a pairwise algorithm for computing sample
    variances, 1979.
    """
    (rows, mean, squares, least, greatest), (more, other_mean, other_squares, other_least, other_greatest) = (
        state,
        other,
    )
    total = rows + more
    divisor = np.where(total == 0, 1.0, total)
    difference = other_mean - mean
    return (
        total,
        mean + difference * more / divisor,
        squares + other_squares + difference * difference * rows * more / divisor,
        np.minimum(least, other_least),
        np.maximum(greatest, other_greatest),
    )


@dataclass(frozen=True)
class _MatrixStatistic:
    """A statistic that is computed for every column of a matrix.

    Attributes:
      columns: Number of columns.
    """

    columns: int


@dataclass(frozen=True)
class MomentsAccumulator(_MatrixStatistic):
    """Computes count, mean, sum of squared deviations, minimum and maximum per column."""

    @property
    def width(self) -> int:
        """Number of results per column."""
        return 4

    def empty(self) -> MomentsState:
        """See Accumulator."""
        return _NO_MOMENTS

    def add(self, state: MomentsState, values: Numbers) -> MomentsState:
        """Add the values of a batch; shape [n] or [n, columns]. NaN is ignored."""
        # NumPy adds contiguous numbers pairwise, which keeps the error of sums small.
        matrix = np.ascontiguousarray(values.reshape(len(values), self.columns).T, np.float64)
        missing = np.isnan(matrix)
        count = len(values) - missing.sum(axis=1).astype(np.float64)
        # Matrices may be large, so the steps below overwrite a single copy.
        terms = np.where(missing, 0.0, matrix)
        mean = terms.sum(axis=1) / np.maximum(count, 1)
        np.subtract(matrix, mean[:, np.newaxis], out=terms)
        terms[missing] = 0.0
        squares = np.square(terms, out=terms).sum(axis=1)
        least = np.fmin.reduce(matrix, axis=1, initial=math.inf)
        greatest = np.fmax.reduce(matrix, axis=1, initial=-math.inf)
        return _merge_moments(state, (count, mean, squares, least, greatest))

    def merge(self, state: MomentsState, other: MomentsState) -> MomentsState:
        """See Accumulator."""
        return _merge_moments(state, other)

    def prune(self, state: MomentsState) -> MomentsState:
        """See Accumulator."""
        return state

    def result(self, state: MomentsState) -> npt.NDArray[np.float64]:
        """Return mean, standard deviation, minimum and maximum per column; see `analysis.Moments`."""
        rows, mean, squares, least, greatest = (np.broadcast_to(moment, self.columns) for moment in state)
        deviation = np.sqrt(squares / np.maximum(rows, 1))
        deviation = np.where(deviation == 0, 1.0, deviation)
        return np.where(rows > 0, np.stack([mean, deviation, least, greatest]), [[0.0], [1.0], [0.0], [0.0]])


SketchState: TypeAlias = tuple[QuantileSketch, ...]
"""One sketch per column."""


class _Sketch(_MatrixStatistic):
    """Computes quantiles per column."""

    def empty(self) -> SketchState:
        """See Accumulator."""
        return tuple(QuantileSketch() for _ in range(self.columns))

    def add(self, state: SketchState, values: Numbers) -> SketchState:
        """Add the values of a batch; shape [n] or [n, columns]. NaN is ignored."""
        matrix = np.ascontiguousarray(values.reshape(len(values), self.columns).T, np.float64)
        for sketch, column in zip(state, matrix, strict=True):
            sketch.add(column)
        return state

    def merge(self, state: SketchState, other: SketchState) -> SketchState:
        """See Accumulator."""
        for sketch, other_sketch in zip(state, other, strict=True):
            sketch.merge(other_sketch)
        return state

    def prune(self, state: SketchState) -> SketchState:
        """See Accumulator."""
        return state

    def quantiles(self, state: SketchState, count: int) -> list[npt.NDArray[np.float64]]:
        """Return minimum, inner quantiles and maximum per column: count + 1 numbers, which are 0 without values."""
        return [sketch.quantiles(count) for sketch in state]


@dataclass(frozen=True)
class QuantilesAccumulator(_Sketch):
    """See `analysis.Quantiles`."""

    buckets: int

    @property
    def width(self) -> int:
        """Number of boundaries per column."""
        return self.buckets - 1

    def result(self, state: SketchState) -> npt.NDArray[np.float64]:
        """Return the boundaries; float64 of shape [buckets - 1, columns], 0 without values."""
        return np.stack([quantiles[1:-1] for quantiles in self.quantiles(state, self.buckets)], axis=1)


@dataclass(frozen=True)
class EdgesAccumulator(_Sketch):
    """See `analysis.Edges`."""

    bins: int

    @property
    def width(self) -> int:
        """Number of edges per column."""
        return self.bins + 1

    def result(self, state: SketchState) -> npt.NDArray[np.float64]:
        """Return the edges; float64 of shape [bins + 1, columns], 0 without values."""
        return np.stack([self._choose_edges(grid) for grid in self.quantiles(state, max(_GRID, self.bins))], axis=1)

    def _choose_edges(self, grid: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        distinct = np.unique(grid)
        ranks = np.arange(self.width)
        if len(distinct) > self.width:
            ranks = np.round(np.linspace(0, len(distinct) - 1, self.width)).astype(int)
        return np.asarray(distinct[np.minimum(ranks, len(distinct) - 1)], np.float64)


ScaleState: TypeAlias = tuple[int, int, int, MomentsState]
"""Number of values, number of finite values, number of negative values, and moments of the finite values."""


class ScaleAccumulator:
    """See `analysis.Scale`."""

    def empty(self) -> ScaleState:
        """See Accumulator."""
        return 0, 0, 0, _NO_MOMENTS

    def add(self, state: ScaleState, values: Numbers, weights: Numbers | None = None) -> ScaleState:
        """Add the values of a batch, and their weights, if any; both of shape [n]."""
        finite = np.isfinite(values)
        counts = (len(values), int(finite.sum()), int((values[finite] < 0).sum()))
        if weights is not None:
            finite = finite & np.isfinite(weights) & (weights > 0)
            weights = weights[finite]
        return self.merge(state, (*counts, _compute_moments(values[finite], weights)))

    def merge(self, state: ScaleState, other: ScaleState) -> ScaleState:
        """See Accumulator."""
        rows, finite, negative = (count + more for count, more in zip(state[:3], other[:3], strict=True))
        return rows, finite, negative, _merge_moments(state[3], other[3])

    def prune(self, state: ScaleState) -> ScaleState:
        """See Accumulator."""
        return state

    def result(self, state: ScaleState) -> bytes:
        """Return the content of the file."""
        rows, finite, negative, moments = state
        weight, mean, squares, _, _ = map(float, moments)
        deviation = (math.sqrt(squares / weight) if weight else 1.0) or 1.0
        return _format_lines(rows, rows - finite, mean, deviation, negative)


def _compute_moments(values: Numbers, weights: Numbers | None) -> MomentsState:
    """Return the moments of values of shape [n]. If there are weights, all of them must be positive."""
    if not len(values):
        return _NO_MOMENTS
    mean = float(np.average(values, weights=weights))
    squares = (values - mean) ** 2
    count = float(len(values) if weights is None else weights.sum())
    total = float((squares if weights is None else weights * squares).sum())
    return count, mean, total, float(values.min()), float(values.max())


VocabularyState: TypeAlias = list[pa.RecordBatch]
"""Batches of texts (large_binary) and their counts (int64). Several batches may contain the same text; only the first
batch is merged."""


@dataclass(frozen=True)
class VocabularyAccumulator:
    """Counts texts; see `analysis.Vocabulary`.

    The size of the state is proportional to the number of distinct texts. Therefore a large vocabulary is counted in
    parts, with all occurrences of a text in the same part. The states of the parts are pruned and then merged.
    """

    size: int
    min_frequency: int
    counts: bool

    def empty(self) -> VocabularyState:
        """See Accumulator."""
        return []

    def add(self, state: VocabularyState, texts: Texts, counts: npt.NDArray[np.int64]) -> VocabularyState:
        """Add the distinct texts of a batch and their counts; both of shape [n]."""
        columns = [pa.array(texts, pa.large_binary()), pa.array(counts, pa.int64())]
        return self.merge(state, [pa.RecordBatch.from_arrays(columns, _COLUMNS)] if len(texts) else [])

    def merge(self, state: VocabularyState, other: VocabularyState) -> VocabularyState:
        """See Accumulator."""
        batches = [*state, *other]
        # Merge once the pending entries outnumber the merged entries, so that the amortised cost is linear.
        if sum(batch.num_rows for batch in batches[1:]) > max(_PENDING, batches[0].num_rows if batches else 0):
            return [_sum_counts(batches)]
        return batches

    def entries(self, state: VocabularyState) -> pa.RecordBatch:
        """Return the distinct texts of a state and their counts. The state must contain at least one batch."""
        return _sum_counts(state)

    def prune(self, state: VocabularyState) -> VocabularyState:
        """Drop rare and invalid texts, sort the others by descending count, and keep the first `size`."""
        if not state:
            return state
        entries = _sum_counts(state)
        texts, counts = entries.columns
        mask = pc.greater_equal(counts, self.min_frequency)
        # An entry becomes a line of a file, so it must not be empty or contain a line break.
        mask = pc.and_(mask, pc.greater(pc.binary_length(texts), 0))
        for end in ("\n", "\r"):
            mask = pc.and_not(mask, pc.match_substring(texts, end))
        entries = entries.filter(mask)
        # Sort a table, because older versions of pyarrow cannot sort a batch.
        order = pc.sort_indices(pa.Table.from_batches([entries]), [("count", "descending"), ("text", "ascending")])
        return [pa.RecordBatch.from_arrays([column.take(order[: self.size]) for column in entries.columns], _COLUMNS)]

    def result(self, state: VocabularyState) -> bytes:
        """Return the content of the file. The state must be pruned."""
        if not state or not state[0].num_rows:
            return b"" if self.counts else NO_WORD + b"\n"
        lines, counts = state[0].columns
        if self.counts:
            lines = _join(counts.cast(pa.large_string()).cast(pa.large_binary()), lines, b" ")
        return _write_lines(lines)


@dataclass(frozen=True)
class InverseFrequenciesAccumulator(VocabularyAccumulator):
    """Counts the rows that contain a word, and all rows with words as the empty text; see `InverseFrequencies`."""

    def prune(self, state: VocabularyState) -> VocabularyState:
        """Keep the words of most rows, and in a second batch the number of rows."""
        if not state:
            return state
        entries = _sum_counts(state)
        return [*super().prune([entries]), entries.filter(pc.equal(pc.binary_length(entries.column(0)), 0))]

    def result(self, state: VocabularyState) -> bytes:
        """Return the content of the file. The state must be pruned."""
        if not state or not state[0].num_rows:
            return NO_WORD + b"\t0\n"
        words, counts = state[0].columns
        rows = pc.sum(state[1].column(1)).as_py()
        frequencies = pa.array(1 + np.log((1 + rows) / (1 + counts.to_numpy())))
        return _write_lines(_join(words, frequencies.cast(pa.large_string()).cast(pa.large_binary()), b"\t"))


CollisionsState: TypeAlias = tuple[int, list[pa.RecordBatch]]
"""Number of times that the sample of buckets was halved; and the distinct values of these buckets, with row counts."""


@dataclass(frozen=True)
class CollisionsAccumulator:
    """Counts the values that are hashed to the same bucket as another value; see `analysis.Collisions`.

    To bound its size, the state contains all values of a sample of the buckets: at first of all buckets, later of every
    second, fourth, … bucket in the order of a hash. This is adaptive sampling (P. Flajolet, On adaptive sampling, 1990)
    of whole buckets instead of values. The counts are exact for up to `_MOST_VALUES` values.

    Attributes:
      buckets: Number of buckets.
    """

    buckets: int

    def empty(self) -> CollisionsState:
        """See Accumulator."""
        return 0, []

    def add(
        self, state: CollisionsState, values: npt.NDArray[np.int64], buckets: npt.NDArray[np.int64]
    ) -> CollisionsState:
        """Add hashes of the values of a batch, and their buckets; both of shape [n]."""
        halvings, _ = state
        columns = [pa.array(column) for column in (values, buckets, np.ones(len(values), np.int64))]
        return self.merge(state, (halvings, [pa.RecordBatch.from_arrays(columns, _VALUES)] if len(values) else []))

    def merge(self, state: CollisionsState, other: CollisionsState) -> CollisionsState:
        """See Accumulator."""
        halvings, batches = max(state[0], other[0]), [*state[1], *other[1]]
        if sum(batch.num_rows for batch in batches) <= _MOST_VALUES:
            return halvings, batches
        entries = _count_values(batches)
        sample = _sample_buckets(entries, halvings)
        while sample.num_rows > _MOST_VALUES:
            halvings += 1
            sample = _sample_buckets(entries, halvings)
        return halvings, [sample]

    def prune(self, state: CollisionsState) -> CollisionsState:
        """See Accumulator."""
        return state

    def result(self, state: CollisionsState) -> bytes:
        """Return the content of the file."""
        halvings, batches = state
        if not batches:
            return _format_lines(self.buckets, 0, 0, 0.0, 0.0, 1.0)
        entries = _sample_buckets(_count_values(batches), halvings)
        counts = entries.column(2).to_numpy()
        _, of_value, values = np.unique(entries.column(1).to_numpy(), return_inverse=True, return_counts=True)
        shared = values[of_value] > 1
        share = 0.5**halvings
        return _format_lines(
            self.buckets,
            round(len(counts) / share),
            round(len(values) / share),
            float(shared.mean()) if len(counts) else 0.0,
            float(counts[shared].sum() / max(counts.sum(), 1)),
            share,
        )


_VALUES = ["value", "bucket", "count"]
_MOST_VALUES = 1 << 16
"""Maximum number of distinct values in the state of `CollisionsAccumulator`."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number near 2**64 divided by the golden ratio, whose multiples are spread evenly (Knuth, 6.4)."""


def _sample_buckets(entries: pa.RecordBatch, halvings: int) -> pa.RecordBatch:
    """Return the entries of the sampled buckets."""
    if not halvings:
        return entries
    order = entries.column(1).to_numpy().astype(np.uint64) * _SPREAD
    return entries.filter(pa.array(order >> np.uint64(64 - halvings) == 0))


def _count_values(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the distinct values with the sums of their counts."""
    table = pa.Table.from_batches(batches).group_by(["value", "bucket"]).aggregate([("count", "sum")]).combine_chunks()
    columns = [table.column(name).combine_chunks() for name in ("value", "bucket", "count_sum")]
    return pa.RecordBatch.from_arrays([_to_array(column) for column in columns], _VALUES)


def _format_lines(*values: float) -> bytes:
    return b"".join(b"%s\n" % repr(value).encode() for value in values)


UnparsedDatesState: TypeAlias = tuple[int, int, bytes]
"""Number of texts, number of texts that are not dates, and an example of the latter; b"" if all texts are dates."""


class UnparsedDatesAccumulator:
    """Counts the texts that are not dates; see `analysis.UnparsedDates`."""

    def empty(self) -> UnparsedDatesState:
        """See Accumulator."""
        return 0, 0, b""

    def add(
        self, state: UnparsedDatesState, texts: npt.NDArray[np.object_], valid: npt.NDArray[np.bool_]
    ) -> UnparsedDatesState:
        """Add the texts of a batch, and whether they are dates; both of shape [n]."""
        unparsed = texts[~valid]
        return self.merge(state, (len(texts), len(unparsed), min(unparsed, default=b"")))

    def merge(self, state: UnparsedDatesState, other: UnparsedDatesState) -> UnparsedDatesState:
        """See Accumulator."""
        # Choose the smallest text as the example, so that it does not depend on the order of the batches.
        return state[0] + other[0], state[1] + other[1], min(filter(None, (state[2], other[2])), default=b"")

    def prune(self, state: UnparsedDatesState) -> UnparsedDatesState:
        """See Accumulator."""
        return state

    def result(self, state: UnparsedDatesState) -> bytes:
        """Return the content of the file."""
        texts, unparsed, example = state
        return _format_lines(texts, unparsed) + example[:_MOST_EXAMPLE_BYTES].replace(b"\n", b" ") + b"\n"


_MOST_EXAMPLE_BYTES = 60


_COLUMNS = ["text", "count"]


def _join(first: pa.Array, second: pa.Array | pa.Scalar, separator: bytes) -> pa.Array:
    """Join two columns row by row."""
    return pc.binary_join_element_wise(first, second, pa.scalar(separator, pa.large_binary()))


def _write_lines(lines: pa.Array) -> bytes:
    """Return the content of a file with these lines, large_binary."""
    lines = _join(lines, pa.scalar(b"", pa.large_binary()), b"\n")
    _, offsets, content = lines.buffers()
    return bytes(content[: int(np.frombuffer(offsets, np.int64)[len(lines)])])


def _sum_counts(batches: VocabularyState) -> pa.RecordBatch:
    """Return the distinct texts with the sums of their counts."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).group_by("text").aggregate([("count", "sum")]).combine_chunks()
    columns = [table.column(name).combine_chunks() for name in ("text", "count_sum")]
    return pa.RecordBatch.from_arrays([_to_array(column) for column in columns], _COLUMNS)


def _to_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert a chunked array to an array; `combine_chunks` of older pyarrow returns a chunked array if it is empty."""
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
