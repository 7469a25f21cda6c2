"""One pass over the training split for all that the features need to know of it: moments, quantiles, vocabularies.

TFT's own analyzers each become a dozen Beam stages, and a pipeline of twenty features spends its time between stages.
Here everything that a config asks for is one TFT analyzer with one combiner, which sees a batch of columns at a time.
What comes out is what TFT's analyzers give: tensors and vocabulary files in the transform graph.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.beam.experimental import PTransformAnalyzer
from tfx.dsl.io import fileio
from tfx_bsl import sketches

_EPSILON = 0.001
"""A quantile's rank is off by at most this share of the rows."""
_LARGEST = 1 << 32
"""Rows up to which the sketch keeps that promise."""
_GRID = 1000
"""Quantiles among which edges are chosen."""


@dataclass(frozen=True)
class Moments:
    """Asks for mean, standard deviation, least and greatest of `values` (float32, shape [n]): float32, shape [4].

    Without values all are 0. A standard deviation of 0 is given as 1, so that dividing by it is always right.
    """

    values: Any


@dataclass(frozen=True)
class Quantiles:
    """Asks for the boundaries between `buckets` equally full buckets of `values` (float32, shape [n]).

    A float32 tensor of shape [buckets - 1], rising; equal neighbours where a value fills more than a bucket.
    """

    values: Any
    buckets: int


@dataclass(frozen=True)
class Edges:
    """Asks for the edges of `bins` bins of `values` (float32, shape [n]): a float32 tensor of shape [bins + 1], rising.

    The edges are quantiles of the distinct values that a fine grid of quantiles of all values meets. Plain quantiles of
    a column that is nearly always 0 would put nearly all edges there, and leave one bin to all other values. Where
    there are too few distinct values, the greatest is repeated.
    """

    values: Any
    bins: int


@dataclass(frozen=True)
class Vocabulary:
    """Asks for the distinct `texts` (string, shape [n]) in a file, the most frequent first: a string tensor, its path.

    Of equally frequent ones the smaller comes first. A text that is empty or holds a line break is left out, since
    the file has a line for each.

    Attributes:
      texts: the texts to count.
      name: the vocabulary's name for `TFTransformOutput`.
      size: how many are kept.
      min_frequency: how often a text has to occur to be kept.
      counts: whether a line is `count text` rather than `text`.
    """

    texts: Any
    name: str
    size: int
    min_frequency: int = 1
    counts: bool = False


@dataclass(frozen=True)
class Scale:
    """Asks for the scale of `values` (float, shape [n]) in a file: a string tensor, its path.

    Its lines are how many values there are, how many of them are not finite, and the mean and the standard deviation of
    the others, which is never 0.

    Attributes:
      values: numbers.
      name: the file's name for `TFTransformOutput`.
    """

    values: Any
    name: str


NO_WORD = b"\x00"
"""The only entry of a vocabulary that has none: TensorFlow makes no table of an empty file."""

Number = Moments | Quantiles | Edges
"""What is answered by numbers."""
Filed = Vocabulary | Scale
"""What is answered by a file."""
Need = Number | Filed


def analyze(needs: Sequence[Need]) -> list[Any]:
    """The answers to all needs, as tensors of the transform graph, in the same order."""
    numbers = iter(_numbers([need for need in needs if not isinstance(need, Filed)]))
    paths = iter(_files([need for need in needs if isinstance(need, Filed)]))
    return [next(paths) if isinstance(need, Filed) else next(numbers) for need in needs]


def _numbers(needs: Sequence[Number]) -> list[Any]:
    if not needs:
        return []
    kept = [_keep(need) for need in needs]
    (found,) = tft.experimental.ptransform_analyzer(
        inputs=[need.values for need in needs],
        ptransform=_NumberAnalysis(kept),
        output_dtypes=[tf.float32],
        output_shapes=[[sum(keep.width for keep in kept)]],
        name="numbers",
    )
    return list(tf.split(found, [keep.width for keep in kept]))


def _files(needs: Sequence[Filed]) -> list[Any]:
    if not needs:
        return []
    kept = [
        _Scale(need.name) if isinstance(need, Scale) else _Texts(need.name, need.size, need.min_frequency, need.counts)
        for need in needs
    ]
    for keep in kept:
        tft.annotate_asset(keep.name, keep.file)
    return list(
        tft.experimental.ptransform_analyzer(
            inputs=[need.values if isinstance(need, Scale) else need.texts for need in needs],
            ptransform=_FileAnalysis(kept),
            output_dtypes=[tf.string] * len(kept),
            output_shapes=[[]] * len(kept),
            output_asset_default_values=[NO_WORD] * len(kept),
            name="files",
        )
    )


def _keep(need: Number) -> _Numbers | _Boundaries | _Distinct:
    if isinstance(need, Moments):
        return _Numbers()
    return _Boundaries(need.buckets) if isinstance(need, Quantiles) else _Distinct(need.bins)


class _Numbers:
    """Counts, means and squared distances, merged as in Chan, Golub and LeVeque (1979), and the extremes."""

    width = 4

    def empty(self) -> Any:
        return (0, 0.0, 0.0, math.inf, -math.inf)

    def add(self, state: Any, values: Any) -> Any:
        wide = values.astype(np.float64)
        if not len(wide):
            return state
        mean = float(wide.mean())
        squares = float(((wide - mean) ** 2).sum())
        return self.merge(state, (len(wide), mean, squares, float(wide.min()), float(wide.max())))

    def merge(self, state: Any, other: Any) -> Any:
        (rows, mean, squares, least, greatest), (more, other_mean, other_squares, other_least, other_greatest) = (
            state,
            other,
        )
        total = rows + more
        if not total:
            return state
        apart = other_mean - mean
        return (
            total,
            mean + apart * more / total,
            squares + other_squares + apart * apart * rows * more / total,
            min(least, other_least),
            max(greatest, other_greatest),
        )

    def result(self, state: Any) -> list[float]:
        rows, mean, squares, least, greatest = state
        if not rows:
            return [0.0, 1.0, 0.0, 0.0]
        return [mean, float(np.sqrt(squares / rows)) or 1.0, least, greatest]


class _Sketch:
    """A sketch of the values' order, tfx_bsl's own (in C++)."""

    def empty(self) -> Any:
        return sketches.QuantilesSketch(_EPSILON, _LARGEST, 1)

    def add(self, state: Any, values: Any) -> Any:
        state.AddValues(pa.array(values.astype(np.float64)))
        return state

    def merge(self, state: Any, other: Any) -> Any:
        state.Merge(other)
        return state

    def quantiles(self, state: Any, count: int) -> list[float]:
        """The least value, those between so many equal shares, and the greatest; none without values."""
        (found,) = state.GetQuantiles(count).to_pylist() or [[]]
        quantiles: list[float] = found
        return quantiles


@dataclass
class _Boundaries(_Sketch):
    """Equally full buckets."""

    buckets: int

    @property
    def width(self) -> int:
        return self.buckets - 1

    def result(self, state: Any) -> list[float]:
        inner = self.quantiles(state, self.buckets)[1:-1]
        return inner if len(inner) == self.width else [0.0] * self.width


@dataclass
class _Distinct(_Sketch):
    """Bins between distinct values."""

    bins: int

    @property
    def width(self) -> int:
        return self.bins + 1

    def result(self, state: Any) -> list[float]:
        found = self.quantiles(state, max(_GRID, self.bins))
        # float32 is what the graph compares with.
        distinct = np.unique(np.asarray(found or [0.0], np.float32))
        ranks = np.arange(self.width)
        if len(distinct) > self.width:
            ranks = np.round(np.linspace(0, len(distinct) - 1, self.width)).astype(int)
        edges: list[float] = distinct[np.minimum(ranks, len(distinct) - 1)].tolist()
        return edges


@dataclass
class _File:
    """What is kept becomes a file."""

    name: str

    @property
    def file(self) -> str:
        """A file name that is safe whatever the column is called."""
        safe = "".join(
            sign if sign.isascii() and (sign.isalnum() or sign in "_-") else f"x{ord(sign):x}x" for sign in self.name
        )
        return f"vocabulary_{safe}"


class _Scale(_File):
    """The moments of what is finite, and how much is not."""

    _numbers = _Numbers()

    def empty(self) -> Any:
        return 0, self._numbers.empty()

    def add(self, state: Any, values: Any) -> Any:
        (rows, moments), finite = state, values[np.isfinite(values)]
        return rows + len(values), self._numbers.add(moments, finite)

    def merge(self, state: Any, other: Any) -> Any:
        return state[0] + other[0], self._numbers.merge(state[1], other[1])

    def result(self, state: Any) -> list[bytes]:
        rows, moments = state
        mean, deviation, *_ = self._numbers.result(moments)
        return [repr(value).encode() for value in (rows, rows - moments[0], float(mean), float(deviation))]


@dataclass
class _Texts(_File):
    """How often each text occurs."""

    size: int
    min_frequency: int
    counts: bool

    def empty(self) -> Any:
        return Counter()

    def add(self, state: Any, values: Any) -> Any:
        counted = pa.array(values, pa.binary()).value_counts()
        texts, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        for text, count in zip(texts, counts, strict=True):
            state[text] += count
        return state

    def merge(self, state: Any, other: Any) -> Any:
        state.update(other)
        return state

    def result(self, state: Any) -> list[bytes]:
        fit = [(text, count) for text, count in state.items() if count >= self.min_frequency and _is_line(text)]
        fit.sort(key=lambda each: (-each[1], each[0]))
        if self.counts:
            return [b"%d %s" % (count, text) for text, count in fit[: self.size]]
        return [text for text, _ in fit[: self.size]] or [NO_WORD]


_Keep = _Numbers | _Boundaries | _Distinct | _Scale | _Texts


def _is_line(text: bytes) -> bool:
    return bool(text) and b"\n" not in text and b"\r" not in text


class _Combine(beam.CombineFn):  # type: ignore[misc]
    """All that is kept of the rows, batch by batch."""

    def __init__(self, kept: Sequence[_Keep]) -> None:
        self._kept = kept

    def create_accumulator(self) -> list[Any]:
        return [keep.empty() for keep in self._kept]

    def add_input(self, states: list[Any], batch: Sequence[Any]) -> list[Any]:
        return [keep.add(state, values) for keep, state, values in zip(self._kept, states, batch, strict=True)]

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        merged = self.create_accumulator()
        for states in accumulators:
            merged = [keep.merge(one, other) for keep, one, other in zip(self._kept, merged, states, strict=True)]
        return merged

    def extract_output(self, states: list[Any]) -> list[Any]:
        return [keep.result(state) for keep, state in zip(self._kept, states, strict=True)]


class _NumberAnalysis(beam.PTransform):  # type: ignore[misc]
    """Moments and quantiles of all columns, one after the other in one array."""

    def __init__(self, kept: Sequence[_Keep]) -> None:
        super().__init__()
        self._kept = kept

    def expand(self, batches: Any) -> Any:
        """Gives one array of shape [the sum of all widths]."""
        combined = batches | "Combine" >> beam.CombineGlobally(_Combine(self._kept))
        return (combined | "Join" >> beam.Map(lambda results: np.concatenate(results).astype(np.float32)),)


class _FileAnalysis(PTransformAnalyzer):  # type: ignore[misc]
    """The vocabularies of all columns, and the label's scale, each in a file."""

    def __init__(self, kept: Sequence[_Texts | _Scale]) -> None:
        super().__init__()
        self._kept = kept

    def expand(self, batches: Any) -> Any:
        """Gives the path of each file."""
        combined = batches | "Combine" >> beam.CombineGlobally(_Combine(self._kept))
        return tuple(
            combined | f"Write{index}" >> beam.Map(_write, index=index, path=f"{self.base_temp_dir}/{keep.file}")
            for index, keep in enumerate(self._kept)
        )


def _write(results: list[Any], index: int, path: str) -> Any:
    fileio.makedirs(path.rpartition("/")[0])
    with fileio.open(path, "wb") as file:
        file.write(b"".join(line + b"\n" for line in results[index]))
    return np.array(path.encode())
