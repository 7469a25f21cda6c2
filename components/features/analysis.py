"""Statistics of the training split that features use, from one pass over it: moments, quantiles, vocabularies.

A feature states its requirements, each with an accumulator. Transform's executor computes them on large batches and
puts the results into the graph (`constant`). For TFX's own executor they are analyzers of TFT (`analyze`). TFT makes a
dozen Beam stages of each of its analyzers, so all requirements of a config are two analyzers with one combiner each.

Either way the graph has what TFT's analyzers leave: tensors, and vocabulary files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.beam.experimental import PTransformAnalyzer
from tfx.dsl.io import fileio

from components.features.accumulators import (
    NO_WORD,
    CollisionsAccumulator,
    EdgesAccumulator,
    MomentsAccumulator,
    QuantilesAccumulator,
    ScaleAccumulator,
    UnparsedDatesAccumulator,
    VocabularyAccumulator,
)
from components.features.column import graph_function


@dataclass(frozen=True)
class _OfNumbers:
    """Requires a statistic of numbers: float64, shape [n], or of each column of a matrix [n, columns].

    NaN does not count; see `FirstValues.mark_missing`.
    """

    values: tf.Tensor

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`."""
        return (self.values,)

    @property
    def columns(self) -> int:
        """Number of columns; 1 of numbers [n]."""
        return int(self.values.shape[1]) if self.values.shape.rank == 2 else 1

    def shape(self, width: int) -> list[int]:
        """Return the shape of the result: [width], or [width, columns]."""
        return [width, self.columns] if self.values.shape.rank == 2 else [width]


@dataclass(frozen=True)
class Moments(_OfNumbers):
    """Requires mean, standard deviation, minimum and maximum: float64, shape [4], or [4, columns].

    Without values they are 0, 1, 0 and 0. A standard deviation of 0 becomes 1, so that it can be a divisor.
    """

    def accumulator(self) -> MomentsAccumulator:
        """Return what computes it."""
        return MomentsAccumulator(self.columns)


@dataclass(frozen=True)
class Quantiles(_OfNumbers):
    """Requires the boundaries between `buckets` equally full buckets.

    The result is float64, shape [buckets - 1], or [buckets - 1, columns], ascending; neighbours are equal if a value
    fills more than one bucket.
    """

    buckets: int

    def accumulator(self) -> QuantilesAccumulator:
        """Return what computes it."""
        return QuantilesAccumulator(self.columns, self.buckets)


@dataclass(frozen=True)
class Edges(_OfNumbers):
    """Requires the edges of `bins` bins: float64, shape [bins + 1], or [bins + 1, columns], ascending.

    The edges are quantiles of the distinct values among a fine grid of quantiles of all values. For a column that is
    nearly always 0, plain quantiles would put nearly all edges at 0, with one bin for all other values. With too few
    distinct values, the maximum is repeated. So the edges ascend strictly up to the maximum, and bins of width 0 follow
    all others.
    """

    bins: int

    def accumulator(self) -> EdgesAccumulator:
        """Return what computes it."""
        return EdgesAccumulator(self.columns, self.bins)


@dataclass(frozen=True)
class Vocabulary:
    """Requires a file of the distinct `texts`, the most frequent first: a string scalar, its path.

    Equally frequent texts are in ascending order. A text that is empty or has a line break is left out, since the file
    has one text per line.

    Attributes:
      texts: The texts to count; string, shape [n].
      name: The vocabulary's name for `TFTransformOutput`.
      size: Greatest number of entries.
      min_frequency: Smallest count of an entry.
      counts: Whether a line is `count text` rather than `text`.
      column: The raw column of integers or texts whose first values `texts` are, so that they can be counted without
        the graph. None if they are computed otherwise.
    """

    texts: tf.Tensor
    name: str
    size: int
    min_frequency: int = 1
    counts: bool = False
    column: str | None = None

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`: the distinct texts of the batch, and the count of each."""
        texts, counts = _counted(self.texts)
        return texts, counts

    def accumulator(self) -> VocabularyAccumulator:
        """Return what computes it."""
        return VocabularyAccumulator(self.size, self.min_frequency, self.counts)


@dataclass(frozen=True)
class Scale:
    """Requires a file with the scale of `values`: a string scalar, its path.

    Its lines are the number of values, the number of values that are not finite, mean and standard deviation of the
    others, and the number of negative ones; a standard deviation of 0 becomes 1.

    Attributes:
      values: Float, shape [n].
      name: The file's name for `TFTransformOutput`.
      weights: Of the values, in mean and standard deviation: float, shape [n]. None: all count the same; those that are
        no weights, which are counted elsewhere, do not count.
    """

    values: tf.Tensor
    name: str
    weights: tf.Tensor | None = None

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`."""
        return (self.values,) if self.weights is None else (self.values, self.weights)

    def accumulator(self) -> ScaleAccumulator:
        """Return what computes it."""
        return ScaleAccumulator()


@dataclass(frozen=True)
class Collisions:
    """Requires a file with how many `texts` are hashed to the same bucket as another one: a string scalar, its path.

    Its lines are `buckets`, the number of distinct values, that of buckets with a value, the share of the distinct
    values and the share of all values that share their bucket with another distinct value, and the share of the buckets
    that these figures were computed from: all, if there are not many distinct values.

    Attributes:
      texts: The texts; string, shape [n].
      name: The file's name for `TFTransformOutput`.
      buckets: Number of buckets.
    """

    texts: tf.Tensor
    name: str
    buckets: int

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`: numbers that differ if the texts do, and the buckets."""
        values, buckets = _hashed(self.texts, self.buckets)
        return values, buckets

    def accumulator(self) -> CollisionsAccumulator:
        """Return what computes it."""
        return CollisionsAccumulator(self.buckets)


@dataclass(frozen=True)
class UnparsedDates:
    """Requires a file with how many `texts` are not dates: a string scalar, its path.

    Its lines are the number of texts, the number of texts that are not dates, and one of these, cut after 60 bytes.

    Attributes:
      texts: The texts of a column that are present; string, shape [n].
      valid: Whether each is a date; bool, shape [n].
      name: The file's name for `TFTransformOutput`.
    """

    texts: tf.Tensor
    valid: tf.Tensor
    name: str

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`."""
        return self.texts, self.valid

    def accumulator(self) -> UnparsedDatesAccumulator:
        """Return what computes it."""
        return UnparsedDatesAccumulator()


NumberRequirement = Moments | Quantiles | Edges
"""Its result is numbers: float64, shape [width], or [width, columns]."""
FileRequirement = Vocabulary | Scale | Collisions | UnparsedDates
"""Its result is a file; in the graph, its path."""
Requirement = NumberRequirement | FileRequirement
Result: TypeAlias = "npt.NDArray[np.float64] | str"
"""The numbers, or the path of the file."""


def file_name(requirement: FileRequirement) -> str:
    """Return the name of the result's file, in which special characters of the column's name are escaped."""
    safe = "".join(
        sign if sign.isascii() and (sign.isalnum() or sign in "_-") else f"x{ord(sign):x}x" for sign in requirement.name
    )
    return f"vocabulary_{safe}"


def constant(result: Result) -> tf.Tensor:
    """Put the result of a requirement into the graph that is being traced.

    Returns:
      The result as a tensor, as `analyze` returns it. TFT copies files that are in this collection with the graph.
    """
    if not isinstance(result, str):
        return tf.constant(result, tf.float64)
    # An eager tensor, so that TFT creates a lookup table once and not in every call of the graph.
    with tf.init_scope():
        path = tf.constant(result)
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS, path)
    return path


def analyze(requirements: Sequence[Requirement]) -> list[tf.Tensor]:
    """Analyzes the training split with analyzers of TFT.

    Args:
      requirements: The statistics to compute.

    Returns:
      Their results in the same order, as tensors of the transform graph; see the requirements' classes.
    """
    numbers = iter(_numbers([each for each in requirements if not isinstance(each, FileRequirement)]))
    paths = iter(_files([each for each in requirements if isinstance(each, FileRequirement)]))
    return [next(paths) if isinstance(each, FileRequirement) else next(numbers) for each in requirements]


def _numbers(requirements: Sequence[NumberRequirement]) -> list[tf.Tensor]:
    if not requirements:
        return []
    accumulators, tensors = [each.accumulator() for each in requirements], [each.tensors for each in requirements]
    sizes = [each.width * each.columns for each in accumulators]
    (results,) = tft.experimental.ptransform_analyzer(
        inputs=[tensor for each in tensors for tensor in each],
        ptransform=_NumberAnalysis(_Combine(accumulators, [len(each) for each in tensors])),
        output_dtypes=[tf.float64],
        output_shapes=[[sum(sizes)]],
        name="numbers",
    )
    shapes = [each.shape(accumulator.width) for each, accumulator in zip(requirements, accumulators, strict=True)]
    return [tf.reshape(*each) for each in zip(tf.split(results, sizes), shapes, strict=True)]


def _files(requirements: Sequence[FileRequirement]) -> list[tf.Tensor]:
    if not requirements:
        return []
    accumulators, tensors = [each.accumulator() for each in requirements], [each.tensors for each in requirements]
    files = [file_name(each) for each in requirements]
    for requirement, file in zip(requirements, files, strict=True):
        tft.annotate_asset(requirement.name, file)
    return list(
        tft.experimental.ptransform_analyzer(
            inputs=[tensor for each in tensors for tensor in each],
            ptransform=_FileAnalysis(_Combine(accumulators, [len(each) for each in tensors]), files),
            output_dtypes=[tf.string] * len(requirements),
            output_shapes=[[]] * len(requirements),
            output_asset_default_values=[NO_WORD] * len(requirements),
            name="files",
        )
    )


@graph_function
def _counted(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the distinct texts and the count of each, int64; both of shape [n]."""
    distinct = tf.unique_with_counts(texts, tf.int64)
    return distinct.y, distinct.count


@graph_function
def _hashed(texts: tf.Tensor, buckets: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a hash of 63 bits of each text, and its bucket, int64; both of shape [n]."""
    return tf.strings.to_hash_bucket_fast(texts, (1 << 63) - 1), tf.strings.to_hash_bucket_fast(texts, buckets)


class _Combine(beam.CombineFn):  # type: ignore[misc]
    """Applies each accumulator to as many of the batch's arrays as it takes, in order."""

    def __init__(self, accumulators: Sequence[Any], counts: Sequence[int]) -> None:
        self._accumulators, self._counts = accumulators, counts

    def create_accumulator(self) -> list[Any]:
        return [accumulator.empty() for accumulator in self._accumulators]

    def add_input(self, states: list[Any], batch: Sequence[npt.NDArray[Any]]) -> list[Any]:
        arrays = iter(batch)
        return [
            accumulator.add(state, *(next(arrays) for _ in range(count)))
            for accumulator, state, count in zip(self._accumulators, states, self._counts, strict=True)
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
        return [
            accumulator.result(accumulator.prune(state))
            for accumulator, state in zip(self._accumulators, states, strict=True)
        ]


class _NumberAnalysis(beam.PTransform):  # type: ignore[misc]
    """Computes the numbers of all columns, concatenated in one array."""

    def __init__(self, combine: _Combine) -> None:
        super().__init__()
        self._combine = combine

    def expand(self, batches: Any) -> Any:
        """Return a PCollection of one array: float64, shape [sum of the sizes]."""
        return (batches | "Combine" >> beam.CombineGlobally(self._combine) | "Join" >> beam.Map(_join),)


def _join(results: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    return np.concatenate([result.ravel() for result in results])


class _FileAnalysis(PTransformAnalyzer):  # type: ignore[misc]
    """Writes the vocabularies of all columns, and the label's scale, each to a file."""

    def __init__(self, combine: _Combine, files: Sequence[str]) -> None:
        super().__init__()
        self._combine, self._files = combine, files

    def expand(self, batches: Any) -> Any:
        """Return a PCollection with the path of each file."""
        combined = batches | "Combine" >> beam.CombineGlobally(self._combine)
        return tuple(
            combined | f"Write{index}" >> beam.Map(_write, index=index, path=f"{self.base_temp_dir}/{file}")
            for index, file in enumerate(self._files)
        )


def _write(results: list[bytes], index: int, path: str) -> Any:
    fileio.makedirs(path.rpartition("/")[0])
    with fileio.open(path, "wb") as file:
        file.write(results[index])
    return np.array(path.encode())
