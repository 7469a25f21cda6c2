"""Statistics of the training split that features require, such as moments, quantiles and vocabularies.

One pass over the training split computes all of them. A requirement names its accumulator. Transform's executor runs
the accumulators on large batches and puts the results into the graph (`constant`). For TFX's executor, the
requirements become analyzers of TFT (`analyze`). TFT creates a dozen Beam stages per analyzer, so all requirements of
a config share two analyzers with one combiner each.

In both cases the graph contains tensors and vocabulary files, as with TFT's analyzers.
"""

from __future__ import annotations

import itertools
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
    InverseFrequenciesAccumulator,
    MomentsAccumulator,
    QuantilesAccumulator,
    ScaleAccumulator,
    UnparsedDatesAccumulator,
    VocabularyAccumulator,
)
from components.features.aged_vocabulary import AgedVocabularyAccumulator
from components.features.column import graph_function
from components.features.survival_times import SurvivalTimesAccumulator
from components.features.value_table import CountAccumulator, TargetMeanAccumulator, ValueTable


@dataclass(frozen=True)
class _NumberStatistic:
    """Requires a statistic of numbers, float64 of shape [n], or of the columns of a matrix, [n, columns].

    NaN is ignored; see `FirstValues.mark_missing`.
    """

    values: tf.Tensor

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`."""
        return (self.values,)

    @property
    def columns(self) -> int:
        """Number of columns; 1 for numbers of shape [n]."""
        return int(self.values.shape[1]) if self.values.shape.rank == 2 else 1

    def shape(self, width: int) -> list[int]:
        """Return the shape of the result, [width] or [width, columns]."""
        return [width, self.columns] if self.values.shape.rank == 2 else [width]


@dataclass(frozen=True)
class Moments(_NumberStatistic):
    """Requires mean, standard deviation, minimum and maximum: float64 of shape [4] or [4, columns].

    Without values, they are 0, 1, 0 and 0. A standard deviation of 0 becomes 1, so that it can be a divisor.
    """

    def accumulator(self) -> MomentsAccumulator:
        """Create the accumulator of this statistic."""
        return MomentsAccumulator(self.columns)


@dataclass(frozen=True)
class Quantiles(_NumberStatistic):
    """Requires the boundaries between `buckets` buckets with the same number of values.

    The result is float64 of shape [buckets - 1] or [buckets - 1, columns], ascending. Adjacent boundaries are equal if
    a value fills more than one bucket.
    """

    buckets: int

    def accumulator(self) -> QuantilesAccumulator:
        """Create the accumulator of this statistic."""
        return QuantilesAccumulator(self.columns, self.buckets)


@dataclass(frozen=True)
class Edges(_NumberStatistic):
    """Requires the edges of `bins` bins: float64 of shape [bins + 1] or [bins + 1, columns], ascending.

    The edges are quantiles of the distinct values in a fine grid of quantiles of all values. For a column that is
    nearly always 0, plain quantiles would put nearly all edges at 0 and all other values into one bin. With too few
    distinct values, the maximum is repeated. Therefore the edges ascend strictly up to the maximum, and bins of width 0
    come last.
    """

    bins: int

    def accumulator(self) -> EdgesAccumulator:
        """Create the accumulator of this statistic."""
        return EdgesAccumulator(self.columns, self.bins)


@dataclass(frozen=True)
class Vocabulary:
    """Requires a file of the distinct `texts`, the most frequent first. In the graph it is a string scalar, the path.

    Texts with the same count are in ascending order. An empty text, or a text with a line break, is left out, because
    the file contains one text per line.

    Attributes:
      texts: Texts to count; string, shape [n].
      name: Name of the vocabulary in `TFTransformOutput`.
      size: Maximum number of entries.
      min_frequency: Minimum count of an entry.
      counts: Whether lines are `count text` instead of `text`.
      column: Name of the raw column of integers or strings whose first values are `texts`, so that they can be counted
        without the graph. None if the texts are computed in another way.
    """

    texts: tf.Tensor
    name: str
    size: int
    min_frequency: int = 1
    counts: bool = False
    column: str | None = None

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`: the distinct texts of the batch and their counts."""
        texts, counts = _count_texts(self.texts)
        return texts, counts

    def accumulator(self) -> VocabularyAccumulator:
        """Create the accumulator of this statistic."""
        return VocabularyAccumulator(self.size, self.min_frequency, self.counts)


@dataclass(frozen=True)
class AgedVocabulary(Vocabulary):
    """Requires a vocabulary that remembers values over several runs; see `aged_vocabulary`.

    Attributes:
      keep_runs: Number of runs without a row after which a value is forgotten.
    """

    keep_runs: int = 1

    def accumulator(self) -> VocabularyAccumulator:
        """Create the accumulator of this statistic."""
        return AgedVocabularyAccumulator(self.size, self.min_frequency, self.counts, self.name, self.keep_runs)


@dataclass(frozen=True)
class InverseFrequencies(Vocabulary):
    """Requires a file of words with their inverse document frequencies. In the graph it is a string scalar, the path.

    A line is `word<tab>1 + ln((1 + n) / (1 + m))`, where n is the number of rows with words, and m the number of rows
    that contain the word. The words of most rows come first, and the vocabulary contains at most `size` of them. See
    `text_values.distinct_words` for `texts`.
    """

    def accumulator(self) -> InverseFrequenciesAccumulator:
        """Create the accumulator of this statistic."""
        return InverseFrequenciesAccumulator(self.size, self.min_frequency, self.counts)


@dataclass(frozen=True)
class Scale:
    """Requires a file with the scale of `values`. In the graph it is a string scalar, the path.

    The lines of the file are the number of values, the number of values that are not finite, the mean and the standard
    deviation of the finite values, and the number of negative values. A standard deviation of 0 becomes 1.

    Attributes:
      values: Numbers; float, shape [n].
      name: Name of the file in `TFTransformOutput`.
      weights: Weights of the values in mean and standard deviation; float, shape [n]. Values whose weight is not a
        positive finite number are ignored there. If None, all values have the same weight.
    """

    values: tf.Tensor
    name: str
    weights: tf.Tensor | None = None

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`."""
        return (self.values,) if self.weights is None else (self.values, self.weights)

    def accumulator(self) -> ScaleAccumulator:
        """Create the accumulator of this statistic."""
        return ScaleAccumulator()


@dataclass(frozen=True)
class SurvivalTimes:
    """Requires a file with the intervals of time of a survival task. In the graph it is a string scalar, the path.

    The first lines are the number of rows, the number of rows without a finite time, and the number of rows with a
    negative time. Each further line is `end hazard` of an interval: the intervals contain about the same number of
    events, the first begins at 0, the last ends at the last event, and the hazard is the number of events divided by
    the time that all rows were observed in the interval. What is observed after the last end counts in the last
    interval.

    Source: M. Friedman, Piecewise exponential models for survival data with covariates, Annals of Statistics 10, 1982.

    Attributes:
      times: Times; float64, shape [n].
      events: 1 if the event happened at the time, otherwise 0; float64, shape [n].
      name: Name of the file in `TFTransformOutput`.
      intervals: Maximum number of intervals. There are fewer if there are fewer distinct times of events.
      weights: Weights of the rows; float, shape [n]. If None, all rows have the same weight.
    """

    times: tf.Tensor
    events: tf.Tensor
    name: str
    intervals: int
    weights: tf.Tensor | None = None

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`."""
        return (self.times, self.events, *(() if self.weights is None else (self.weights,)))

    def accumulator(self) -> SurvivalTimesAccumulator:
        """Create the accumulator of this statistic."""
        return SurvivalTimesAccumulator(self.intervals)


@dataclass(frozen=True)
class Collisions:
    """Requires a file with the hash collisions of `texts`. In the graph it is a string scalar, the path.

    The lines of the file are `buckets`; the number of distinct texts; the number of buckets with a text; the share of
    the distinct texts, and the share of all texts, that share their bucket with another distinct text; and the share of
    the buckets that these figures were computed from, which is 1 unless there are very many distinct texts.

    Attributes:
      texts: Texts that are hashed; string, shape [n].
      name: Name of the file in `TFTransformOutput`.
      buckets: Number of buckets.
    """

    texts: tf.Tensor
    name: str
    buckets: int

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`: hashes of the texts, and their buckets."""
        values, buckets = _hash_texts(self.texts, self.buckets)
        return values, buckets

    def accumulator(self) -> CollisionsAccumulator:
        """Create the accumulator of this statistic."""
        return CollisionsAccumulator(self.buckets)


@dataclass(frozen=True)
class UnparsedDates:
    """Requires a file with the number of `texts` that are not dates. In the graph it is a string scalar, the path.

    The lines of the file are the number of texts, the number of texts that are not dates, and an example of the latter,
    truncated to 60 bytes.

    Attributes:
      texts: Texts of a column, without missing texts; string, shape [n].
      valid: Whether the texts are dates; bool, shape [n].
      name: Name of the file in `TFTransformOutput`.
    """

    texts: tf.Tensor
    valid: tf.Tensor
    name: str

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`."""
        return self.texts, self.valid

    def accumulator(self) -> UnparsedDatesAccumulator:
        """Create the accumulator of this statistic."""
        return UnparsedDatesAccumulator()


@dataclass(frozen=True)
class ValueStatistics:
    """Requires a ValueTable. All tensors have the shape [n].

    Attributes:
      keys: Keys of the values, int64; see ValueTable.
      folds: Folds of the rows, int64.
      classes: Hashes of the classes of the rows, int64; all the same if the label is a number.
      labels: Labels of the rows, float64; NaN if a row has none.
      weights: Weights of the rows, float64.
      table: Accumulator that computes the table.
    """

    keys: tf.Tensor
    folds: tf.Tensor
    classes: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor
    table: CountAccumulator | TargetMeanAccumulator

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the accumulator's `add`."""
        return self.keys, self.folds, self.classes, self.labels, self.weights

    def accumulator(self) -> CountAccumulator | TargetMeanAccumulator:
        """Return the accumulator of this statistic."""
        return self.table


NumberRequirement = Moments | Quantiles | Edges
"""A requirement whose result is numbers: float64 of shape [width] or [width, columns]."""
FileRequirement = Vocabulary | Scale | SurvivalTimes | Collisions | UnparsedDates
"""A requirement whose result is a file, which the graph refers to by its path."""
Requirement = NumberRequirement | FileRequirement | ValueStatistics
Result: TypeAlias = "npt.NDArray[np.float64] | str | ValueTable"
"""The result of a requirement: numbers, the path of a file, or a table of values."""


def file_name(requirement: FileRequirement) -> str:
    """Return the name of a requirement's file. Special characters of a column's name are escaped."""
    safe = "".join(
        sign if sign.isascii() and (sign.isalnum() or sign in "_-") else f"x{ord(sign):x}x" for sign in requirement.name
    )
    return f"vocabulary_{safe}"


def constant(result: Result) -> tf.Tensor | ValueTable:
    """Put the result of a requirement into the graph that is being traced.

    Returns:
      The result as a tensor, in the form of `analyze`. A table remains a table: the operation decides which of its
      parts the graph needs.
    """
    if isinstance(result, ValueTable):
        return result
    if not isinstance(result, str):
        return tf.constant(result, tf.float64)
    # Use an eager tensor, so that TFT creates a lookup table once instead of in every call of the graph.
    with tf.init_scope():
        path = tf.constant(result)
    # TFT copies the files in this collection to the graph's folder.
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS, path)
    return path


def analyze(requirements: Sequence[Requirement]) -> list[tf.Tensor]:
    """Analyze the training split with analyzers of TFT.

    Args:
      requirements: Statistics to compute, except ValueStatistics: TFT would have to know the size of their tables.

    Returns:
      The results in the same order, as tensors of the transform graph; see the classes of the requirements.
    """
    numbers = iter(_analyze_numbers([item for item in requirements if isinstance(item, NumberRequirement)]))
    paths = iter(_analyze_files([item for item in requirements if isinstance(item, FileRequirement)]))
    return [next(paths) if isinstance(item, FileRequirement) else next(numbers) for item in requirements]


def _analyze_numbers(requirements: Sequence[NumberRequirement]) -> list[tf.Tensor]:
    if not requirements:
        return []
    accumulators = [requirement.accumulator() for requirement in requirements]
    arguments = [requirement.tensors for requirement in requirements]
    sizes = [accumulator.width * accumulator.columns for accumulator in accumulators]
    (results,) = tft.experimental.ptransform_analyzer(
        inputs=list(itertools.chain.from_iterable(arguments)),
        ptransform=_NumberAnalysis(_Combine(accumulators, list(map(len, arguments)))),
        output_dtypes=[tf.float64],
        output_shapes=[[sum(sizes)]],
        name="numbers",
    )
    return [
        tf.reshape(result, requirement.shape(accumulator.width))
        for result, requirement, accumulator in zip(tf.split(results, sizes), requirements, accumulators, strict=True)
    ]


def _analyze_files(requirements: Sequence[FileRequirement]) -> list[tf.Tensor]:
    if not requirements:
        return []
    accumulators = [requirement.accumulator() for requirement in requirements]
    arguments = [requirement.tensors for requirement in requirements]
    files = [file_name(requirement) for requirement in requirements]
    for requirement, file in zip(requirements, files, strict=True):
        tft.annotate_asset(requirement.name, file)
    return list(
        tft.experimental.ptransform_analyzer(
            inputs=list(itertools.chain.from_iterable(arguments)),
            ptransform=_FileAnalysis(_Combine(accumulators, list(map(len, arguments))), files),
            output_dtypes=[tf.string] * len(requirements),
            output_shapes=[[]] * len(requirements),
            # TFT's placeholder for a file that is not written yet must have two columns for InverseFrequencies.
            output_asset_default_values=[NO_WORD + b"\t0"] * len(requirements),
            name="files",
        )
    )


@graph_function
def _count_texts(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the distinct texts and their counts, int64; both of shape [n]."""
    distinct = tf.unique_with_counts(texts, tf.int64)
    return distinct.y, distinct.count


@graph_function
def _hash_texts(texts: tf.Tensor, buckets: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return 63-bit hashes of the texts, and their buckets; both int64 of shape [n]."""
    return tf.strings.to_hash_bucket_fast(texts, (1 << 63) - 1), tf.strings.to_hash_bucket_fast(texts, buckets)


class _Combine(beam.CombineFn):  # type: ignore[misc]
    """Applies accumulators to the arrays of a batch. The accumulator at index i takes the next `counts[i]` arrays."""

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
                accumulator.merge(merged_state, state)
                for accumulator, merged_state, state in zip(self._accumulators, merged, states, strict=True)
            ]
        return merged

    def extract_output(self, states: list[Any]) -> list[Any]:
        return [
            accumulator.result(accumulator.prune(state))
            for accumulator, state in zip(self._accumulators, states, strict=True)
        ]


class _NumberAnalysis(beam.PTransform):  # type: ignore[misc]
    """Computes the numbers of all requirements, concatenated to one array."""

    def __init__(self, combine: _Combine) -> None:
        super().__init__()
        self._combine = combine

    def expand(self, batches: Any) -> Any:
        """Return a PCollection with one array, float64 of shape [sum of the sizes]."""
        return (batches | "Combine" >> beam.CombineGlobally(self._combine) | "Join" >> beam.Map(_join),)


def _join(results: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    return np.concatenate([result.ravel() for result in results])


class _FileAnalysis(PTransformAnalyzer):  # type: ignore[misc]
    """Writes the results of all requirements to one file per requirement."""

    def __init__(self, combine: _Combine, files: Sequence[str]) -> None:
        super().__init__()
        self._combine, self._files = combine, files

    def expand(self, batches: Any) -> Any:
        """Return one PCollection per file, with its path."""
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
