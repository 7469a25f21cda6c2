"""Statistics of the training split that features use, from one pass over it: moments, quantiles, vocabularies.

Each of TFT's own analyzers becomes a dozen Beam stages, and with twenty features a pipeline spends its time between
stages. Here all requirements of a config are one TFT analyzer with one combiner, which receives a batch of columns at a
time. The results are those of TFT's analyzers: tensors, and vocabulary files, in the transform graph.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.beam.experimental import PTransformAnalyzer
from tfx.dsl.io import fileio
from tfx_bsl import sketches

_EPSILON = 0.001
"""Greatest error of a quantile's rank, as a share of the rows."""
_LARGEST = 1 << 32
"""Greatest number of rows for which the sketch guarantees that error."""
_GRID = 1000
"""Number of quantiles that edges are chosen from."""


@dataclass(frozen=True)
class Moments:
    """Requires mean, standard deviation, minimum and maximum of `values` (float32, shape [n]): float32, shape [4].

    Without values they are 0, 1, 0 and 0. A standard deviation of 0 becomes 1, so that it can be a divisor.
    """

    values: tf.Tensor


@dataclass(frozen=True)
class Quantiles:
    """Requires the boundaries between `buckets` equally full buckets of `values` (float32, shape [n]).

    The result is float32, shape [buckets - 1], ascending; neighbours are equal if a value fills more than one bucket.
    """

    values: tf.Tensor
    buckets: int


@dataclass(frozen=True)
class Edges:
    """Requires the edges of `bins` bins of `values` (float32, shape [n]): float32, shape [bins + 1], ascending.

    The edges are quantiles of the distinct values among a fine grid of quantiles of all values. For a column that is
    nearly always 0, plain quantiles would put nearly all edges at 0, with one bin for all other values. With too few
    distinct values, the maximum is repeated.
    """

    values: tf.Tensor
    bins: int


@dataclass(frozen=True)
class Vocabulary:
    """Requires a file of the distinct `texts`, the most frequent first: a string scalar, its path.

    Equally frequent texts are in ascending order. A text that is empty or has a line break is left out, since the file
    has one text per line.

    Attributes:
      texts: the texts to count; string, shape [n].
      name: the vocabulary's name for `TFTransformOutput`.
      size: greatest number of entries.
      min_frequency: smallest count of an entry.
      counts: whether a line is `count text` rather than `text`.
    """

    texts: tf.Tensor
    name: str
    size: int
    min_frequency: int = 1
    counts: bool = False


@dataclass(frozen=True)
class Scale:
    """Requires a file with the scale of `values`: a string scalar, its path.

    Its lines are the number of values, the number of values that are not finite, and mean and standard deviation of the
    others; a standard deviation of 0 becomes 1.

    Attributes:
      values: float, shape [n].
      name: the file's name for `TFTransformOutput`.
    """

    values: tf.Tensor
    name: str


NO_WORD = b"\x00"
"""The only entry of an empty vocabulary: TensorFlow cannot make a lookup table of an empty file."""

NumberRequirement = Moments | Quantiles | Edges
"""Its result is numbers."""
FileRequirement = Vocabulary | Scale
"""Its result is a file."""
Requirement = NumberRequirement | FileRequirement


def analyze(requirements: Sequence[Requirement]) -> list[tf.Tensor]:
    """Analyzes the training split.

    Args:
      requirements: the statistics to compute.

    Returns:
      Their results in the same order, as tensors of the transform graph; see the requirements' classes.
    """
    numbers = iter(_numbers([each for each in requirements if not isinstance(each, FileRequirement)]))
    paths = iter(_files([each for each in requirements if isinstance(each, FileRequirement)]))
    return [next(paths) if isinstance(each, FileRequirement) else next(numbers) for each in requirements]


def _numbers(requirements: Sequence[NumberRequirement]) -> list[tf.Tensor]:
    if not requirements:
        return []
    accumulators = [_number_accumulator(each) for each in requirements]
    (results,) = tft.experimental.ptransform_analyzer(
        inputs=[each.values for each in requirements],
        ptransform=_NumberAnalysis(accumulators),
        output_dtypes=[tf.float32],
        output_shapes=[[sum(each.width for each in accumulators)]],
        name="numbers",
    )
    return list(tf.split(results, [each.width for each in accumulators]))


def _files(requirements: Sequence[FileRequirement]) -> list[tf.Tensor]:
    if not requirements:
        return []
    accumulators = [
        _ScaleAccumulator(each.name)
        if isinstance(each, Scale)
        else _VocabularyAccumulator(each.name, each.size, each.min_frequency, each.counts)
        for each in requirements
    ]
    for accumulator in accumulators:
        tft.annotate_asset(accumulator.name, accumulator.file)
    return list(
        tft.experimental.ptransform_analyzer(
            inputs=[each.values if isinstance(each, Scale) else each.texts for each in requirements],
            ptransform=_FileAnalysis(accumulators),
            output_dtypes=[tf.string] * len(accumulators),
            output_shapes=[[]] * len(accumulators),
            output_asset_default_values=[NO_WORD] * len(accumulators),
            name="files",
        )
    )


def _number_accumulator(
    requirement: NumberRequirement,
) -> _MomentsAccumulator | _QuantilesAccumulator | _EdgesAccumulator:
    if isinstance(requirement, Moments):
        return _MomentsAccumulator()
    if isinstance(requirement, Quantiles):
        return _QuantilesAccumulator(requirement.buckets)
    return _EdgesAccumulator(requirement.bins)


_MomentsState = tuple[int, float, float, float, float]
"""Count, mean, sum of squared deviations, minimum, maximum."""


class _MomentsAccumulator:
    """Count, mean, sum of squared deviations, minimum and maximum.

    Source of the merge: T. F. Chan, G. H. Golub and R. J. LeVeque, Updating formulae and a pairwise algorithm for
    computing sample variances, 1979.
    """

    width = 4

    def empty(self) -> _MomentsState:
        return (0, 0.0, 0.0, math.inf, -math.inf)

    def add(self, state: _MomentsState, values: npt.NDArray[np.float32]) -> _MomentsState:
        doubles = values.astype(np.float64)
        if not len(doubles):
            return state
        mean = float(doubles.mean())
        squares = float(((doubles - mean) ** 2).sum())
        return self.merge(state, (len(doubles), mean, squares, float(doubles.min()), float(doubles.max())))

    def merge(self, state: _MomentsState, other: _MomentsState) -> _MomentsState:
        (rows, mean, squares, least, greatest), (more, other_mean, other_squares, other_least, other_greatest) = (
            state,
            other,
        )
        total = rows + more
        if not total:
            return state
        difference = other_mean - mean
        return (
            total,
            mean + difference * more / total,
            squares + other_squares + difference * difference * rows * more / total,
            min(least, other_least),
            max(greatest, other_greatest),
        )

    def result(self, state: _MomentsState) -> list[float]:
        rows, mean, squares, least, greatest = state
        if not rows:
            return [0.0, 1.0, 0.0, 0.0]
        return [mean, float(np.sqrt(squares / rows)) or 1.0, least, greatest]


class _Sketch:
    """tfx_bsl's quantile sketch, which is implemented in C++."""

    def empty(self) -> sketches.QuantilesSketch:
        return sketches.QuantilesSketch(_EPSILON, _LARGEST, 1)

    def add(self, state: sketches.QuantilesSketch, values: npt.NDArray[np.float32]) -> sketches.QuantilesSketch:
        state.AddValues(pa.array(values.astype(np.float64)))
        return state

    def merge(self, state: sketches.QuantilesSketch, other: sketches.QuantilesSketch) -> sketches.QuantilesSketch:
        state.Merge(other)
        return state

    def quantiles(self, state: sketches.QuantilesSketch, count: int) -> list[float]:
        """Returns minimum, inner quantiles and maximum, count + 1 in all; an empty list without values."""
        (quantiles,) = state.GetQuantiles(count).to_pylist() or [[]]
        return list(quantiles)


@dataclass
class _QuantilesAccumulator(_Sketch):
    """See Quantiles."""

    buckets: int

    @property
    def width(self) -> int:
        return self.buckets - 1

    def result(self, state: sketches.QuantilesSketch) -> list[float]:
        inner = self.quantiles(state, self.buckets)[1:-1]
        return inner if len(inner) == self.width else [0.0] * self.width


@dataclass
class _EdgesAccumulator(_Sketch):
    """See Edges."""

    bins: int

    @property
    def width(self) -> int:
        return self.bins + 1

    def result(self, state: sketches.QuantilesSketch) -> list[float]:
        grid = self.quantiles(state, max(_GRID, self.bins))
        # float32, since the graph compares float32 values.
        distinct = np.unique(np.asarray(grid or [0.0], np.float32))
        ranks = np.arange(self.width)
        if len(distinct) > self.width:
            ranks = np.round(np.linspace(0, len(distinct) - 1, self.width)).astype(int)
        edges: list[float] = distinct[np.minimum(ranks, len(distinct) - 1)].tolist()
        return edges


@dataclass
class _File:
    """An accumulator whose result is a file."""

    name: str

    @property
    def file(self) -> str:
        """The file's name, in which special characters of the column's name are escaped."""
        safe = "".join(
            sign if sign.isascii() and (sign.isalnum() or sign in "_-") else f"x{ord(sign):x}x" for sign in self.name
        )
        return f"vocabulary_{safe}"


class _ScaleAccumulator(_File):
    """See Scale: the number of values, and the moments of the finite ones."""

    _moments = _MomentsAccumulator()

    def empty(self) -> tuple[int, _MomentsState]:
        return 0, self._moments.empty()

    def add(self, state: tuple[int, _MomentsState], values: npt.NDArray[np.floating]) -> tuple[int, _MomentsState]:
        (rows, moments), finite = state, values[np.isfinite(values)]
        return rows + len(values), self._moments.add(moments, finite)

    def merge(self, state: tuple[int, _MomentsState], other: tuple[int, _MomentsState]) -> tuple[int, _MomentsState]:
        return state[0] + other[0], self._moments.merge(state[1], other[1])

    def result(self, state: tuple[int, _MomentsState]) -> list[bytes]:
        rows, moments = state
        mean, deviation, *_ = self._moments.result(moments)
        return [repr(value).encode() for value in (rows, rows - moments[0], float(mean), float(deviation))]


@dataclass
class _VocabularyAccumulator(_File):
    """See Vocabulary: text → count."""

    size: int
    min_frequency: int
    counts: bool

    def empty(self) -> Counter[bytes]:
        return Counter()

    def add(self, state: Counter[bytes], values: npt.NDArray[np.object_]) -> Counter[bytes]:
        counted = pa.array(values, pa.binary()).value_counts()
        texts, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        for text, count in zip(texts, counts, strict=True):
            state[text] += count
        return state

    def merge(self, state: Counter[bytes], other: Counter[bytes]) -> Counter[bytes]:
        state.update(other)
        return state

    def result(self, state: Counter[bytes]) -> list[bytes]:
        entries = [(text, count) for text, count in state.items() if count >= self.min_frequency and _is_line(text)]
        entries.sort(key=lambda each: (-each[1], each[0]))
        if self.counts:
            return [b"%d %s" % (count, text) for text, count in entries[: self.size]]
        return [text for text, _ in entries[: self.size]] or [NO_WORD]


_Accumulator = (
    _MomentsAccumulator | _QuantilesAccumulator | _EdgesAccumulator | _ScaleAccumulator | _VocabularyAccumulator
)


def _is_line(text: bytes) -> bool:
    return bool(text) and b"\n" not in text and b"\r" not in text


class _Combine(beam.CombineFn):  # type: ignore[misc]
    """Applies each accumulator to its column."""

    def __init__(self, accumulators: Sequence[_Accumulator]) -> None:
        self._accumulators = accumulators

    def create_accumulator(self) -> list[Any]:
        return [accumulator.empty() for accumulator in self._accumulators]

    def add_input(self, states: list[Any], batch: Sequence[npt.NDArray[Any]]) -> list[Any]:
        return [
            accumulator.add(state, values)
            for accumulator, state, values in zip(self._accumulators, states, batch, strict=True)
        ]

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        merged = self.create_accumulator()
        for states in accumulators:
            merged = [
                accumulator.merge(one, other)
                for accumulator, one, other in zip(self._accumulators, merged, states, strict=True)
            ]
        return merged

    def extract_output(self, states: list[Any]) -> list[Any]:
        return [accumulator.result(state) for accumulator, state in zip(self._accumulators, states, strict=True)]


class _NumberAnalysis(beam.PTransform):  # type: ignore[misc]
    """Computes the numbers of all columns, concatenated in one array."""

    def __init__(self, accumulators: Sequence[_Accumulator]) -> None:
        super().__init__()
        self._accumulators = accumulators

    def expand(self, batches: Any) -> Any:
        """Returns a PCollection of one array: float32, shape [sum of the widths]."""
        combined = batches | "Combine" >> beam.CombineGlobally(_Combine(self._accumulators))
        return (combined | "Join" >> beam.Map(lambda results: np.concatenate(results).astype(np.float32)),)


class _FileAnalysis(PTransformAnalyzer):  # type: ignore[misc]
    """Writes the vocabularies of all columns, and the label's scale, each to a file."""

    def __init__(self, accumulators: Sequence[_VocabularyAccumulator | _ScaleAccumulator]) -> None:
        super().__init__()
        self._accumulators = accumulators

    def expand(self, batches: Any) -> Any:
        """Returns a PCollection with the path of each file."""
        combined = batches | "Combine" >> beam.CombineGlobally(_Combine(self._accumulators))
        return tuple(
            combined | f"Write{index}" >> beam.Map(_write, index=index, path=f"{self.base_temp_dir}/{accumulator.file}")
            for index, accumulator in enumerate(self._accumulators)
        )


def _write(results: list[Any], index: int, path: str) -> Any:
    fileio.makedirs(path.rpartition("/")[0])
    with fileio.open(path, "wb") as file:
        file.write(b"".join(line + b"\n" for line in results[index]))
    return np.array(path.encode())
