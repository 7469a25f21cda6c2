"""The analysis of the declared operations as a Beam transform, from ranges of the training split to the graph.

The operations are traced once to compute what their accumulators take, and once for the graph. The texts of a
vocabulary that are values of a raw column are counted without the graph, see `text_counts`. Vocabularies are counted in
parts by a hash of the text, so that no worker holds all texts of a column. With a cache, a file is analyzed by itself,
and only if no earlier execution has done so.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
import tfx_bsl
from tensorflow_metadata.proto.v0 import schema_pb2

from components.data import file_io
from components.data.examples import Examples, FileRange, Format
from components.data.saved_model import column_of
from components.features.accumulators import VocabularyAccumulator
from components.features.analysis import FileRequirement, Requirement, Result, Vocabulary, constant, file_name
from components.features.column import Parsed
from components.features.plan import FeaturePlan
from components.features.preprocessing import DeclaredOperations, columns_read
from components.transform import text_counts, transform_graph
from components.transform.analysis_cache import AnalysisCache
from components.transform.ranges import BundleFn, SplitRange
from components.transform.raw_batches import RawBatches
from components.transform.transform_graph import WrittenGraph

_PARTS = 16
"""Parts that the texts of a vocabulary are divided into."""
_WHOLE = -1
"""In place of the number of a part, while a worker counts all parts of a vocabulary together."""
_STATES = 3
"""Version of the states' layout: a cache with another one is not read."""
_CALL_VALUES = 1 << 20
"""Raw values that one call of the graph may read; it needs about 100 bytes for each of them."""
_MOST_ENTRIES = 1 << 20
"""Entries of vocabularies that a worker keeps before it passes them on."""

Arrays: TypeAlias = "list[list[npt.NDArray[Any]]]"
Key: TypeAlias = "tuple[int, int]"
"""The number of a requirement, and the part of its vocabulary."""
Partial: TypeAlias = "tuple[Statistic, Any]"
"""A requirement, and the state of its accumulator."""


@dataclasses.dataclass(frozen=True)
class Statistic:
    """A requirement, as far as Beam's workers pass it on.

    Attributes:
      accumulator: Computes it.
      file: The name of the result's file; None if it is numbers.
      column: The raw column whose first values are counted without the graph; None if the graph computes the values.
    """

    accumulator: Any
    file: str | None
    column: str | None


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What the operations and the raw features are; small, since it is pickled with Beam's transforms.

    Attributes:
      plan: A FeaturePlan as JSON.
      schema: The schema of the raw features, serialized.
      stored: How the examples are stored.
    """

    plan: str
    schema: bytes
    stored: Format

    def feature_plan(self) -> FeaturePlan:
        """Parse the plan."""
        return FeaturePlan.model_validate_json(self.plan)

    def raw_batches(self) -> RawBatches:
        """Return the raw features, with the columns that the operations read."""
        return RawBatches(schema_pb2.Schema.FromString(self.schema), columns_read(self.feature_plan()))

    def dependency(self) -> str:
        """Describe what the states of accumulators depend on, beside the plan and the rows.

        That is not all of the schema: an inferred one may describe new values with each span.
        """
        raw = self.raw_batches()
        types = {feature.name: (feature.type, str(raw.specs[feature.name])) for feature in raw.schema.feature}
        return f"{_STATES} {types} {self.stored} {tfx_bsl.__version__} {pa.__version__}"


class AnalyzeDeclared(beam.PTransform):  # type: ignore[misc]
    """Converts a PCollection of SplitRanges to one of one WrittenGraph.

    Args:
      declaration: The operations and the raw features.
      folder: The folder of the graph.
      temporary: A folder for vocabulary files, which the graph's writer copies.
      cache: The states of files that were analyzed earlier; None for no cache.
    """

    def __init__(self, declaration: Declaration, folder: str, temporary: str, cache: AnalysisCache | None) -> None:
        super().__init__()
        self._declaration, self._folder, self._temporary, self._cache = declaration, folder, temporary, cache

    def expand(self, ranges: beam.PCollection) -> beam.PCollection:
        """Apply the transform."""
        if self._cache is None:
            partials = ranges | "Accumulate" >> beam.ParDo(_AccumulateFn(self._declaration))
        else:
            files = ranges | "ByFile" >> beam.GroupBy("path")
            partials = files | "AccumulateFile" >> beam.ParDo(_AccumulateFileFn(self._declaration, self._cache))
        results = (
            partials
            | "Merge" >> beam.CombinePerKey(_MergeFn(prune=False))
            | "WithoutPart" >> beam.MapTuple(lambda key, partial: (key[0], partial))
            | "MergeParts" >> beam.CombinePerKey(_MergeFn(prune=True))
            | "Result" >> beam.Map(_result, self._temporary)
        )
        return (
            ranges.pipeline
            | "Once" >> beam.Create([self._folder])
            | "WriteGraph"
            >> beam.Map(_write_graph, beam.pvalue.AsDict(results), self._declaration, temporary=self._temporary)
        )


class _Requirements:
    """The requirements of the declared operations, and the graph that computes what their accumulators take."""

    def __init__(self, declaration: Declaration) -> None:
        plan, self.batches = declaration.feature_plan(), declaration.raw_batches()
        self.examples = Examples((), declaration.stored, self.batches.schema)
        self.names: list[str] = []
        self.statistics: list[Statistic] = []
        self.assets: dict[str, str] = {}

        def arrays(inputs: Mapping[str, Parsed]) -> list[list[tf.Tensor]]:
            named = DeclaredOperations(plan, inputs).requirements
            self.names, requirements = list(named), list(named.values())
            self.statistics = [_statistic(each) for each in requirements]
            files = [each for each in requirements if isinstance(each, FileRequirement)]
            self.assets = {each.name: file_name(each) for each in files}
            return [
                [] if statistic.column else _tensors(each)
                for each, statistic in zip(requirements, self.statistics, strict=True)
            ]

        signature = [dict(self.batches.specs)]
        self._arrays = tf.function(arrays, signature, autograph=False).get_concrete_function()
        self._read = _inputs_read(self._arrays, self.batches.specs)

    def arrays(self, batch: pa.RecordBatch) -> Arrays:
        """Return what each accumulator takes of a batch; texts also with their part of the vocabulary.

        The graph is called with a few rows of a wide table at a time; texts are then distinct within each call only.
        Statistics that are counted without the graph have no arrays.
        """
        names = [name for name in batch.schema.names if name in self._read]
        if not names:
            return [[] for _ in self.statistics]
        columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
        read, rows = pa.RecordBatch.from_arrays(columns, names), max(1, _CALL_VALUES // len(names))
        calls = [
            [[tensor.numpy() for tensor in each] for each in self._arrays(self.batches.tensors(part))]
            for part in (read.slice(start, rows) for start in range(0, max(1, batch.num_rows), rows))
        ]
        if len(calls) == 1:
            return calls[0]
        return [
            [np.concatenate(parts) for parts in zip(*of_calls, strict=True)] for of_calls in zip(*calls, strict=True)
        ]

    def states(self, file_ranges: Iterable[FileRange]) -> Iterator[tuple[Key, Any]]:
        """Yield the states of the accumulators for all rows of some ranges; of a large vocabulary several."""
        states: dict[Key, Any] = {}
        for file_range in file_ranges:
            for batch in self.examples.read(file_range):
                arrays = self.arrays(batch)
                for index, (statistic, of_batch) in enumerate(zip(self.statistics, arrays, strict=True)):
                    accumulator = statistic.accumulator
                    if statistic.column:
                        counts = text_counts.count_texts(column_of(batch, statistic.column))
                        state = states.get((index, _WHOLE), accumulator.empty())
                        states[index, _WHOLE] = accumulator.merge(state, [counts])
                        continue
                    for part, values in _parts(accumulator, of_batch):
                        state = states.get((index, part))
                        state = accumulator.empty() if state is None else state
                        states[index, part] = accumulator.add(state, *values)
                if sum(_entries(state) for state in states.values()) > _MOST_ENTRIES:
                    yield from self._divided(states)
                    states = {}
        yield from self._divided(states)

    def _divided(self, states: Mapping[Key, Any]) -> Iterator[tuple[Key, Any]]:
        """Yield states; those of whole vocabularies in parts."""
        for (index, part), state in states.items():
            if part != _WHOLE:
                yield (index, part), state
                continue
            entries = self.statistics[index].accumulator.entries(state)
            yield from (((index, number), [counts]) for number, counts in text_counts.divide(entries, _PARTS))


@functools.lru_cache(maxsize=1)
def _requirements(declaration: Declaration) -> _Requirements:
    """Traces once for each process."""
    return _Requirements(declaration)


def _statistic(requirement: Requirement) -> Statistic:
    file = file_name(requirement) if isinstance(requirement, FileRequirement) else None
    column = requirement.column if isinstance(requirement, Vocabulary) else None
    return Statistic(requirement.accumulator(), file, column)


def _inputs_read(function: Any, specs: Mapping[str, tf.TypeSpec]) -> set[str]:
    """Return the features that a traced function of all features needs to compute its outputs."""
    found: set[tf.Operation] = set()
    waiting = [tensor.op for tensor in function.outputs]
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    # The inputs are a flat list, sorted by name as tf.nest does. A feature of a fixed shape has no missing values.
    names = [name for name in sorted(specs) for _ in tf.nest.flatten(specs[name], expand_composites=True)]
    read = {name for name, tensor in zip(names, function.inputs, strict=False) if tensor.op in found}
    return read | {name for name, spec in specs.items() if isinstance(spec, tf.TensorSpec)}


def _tensors(requirement: Requirement) -> list[tf.Tensor]:
    tensors = list(requirement.tensors)
    if isinstance(requirement, Vocabulary):
        tensors.append(tf.strings.to_hash_bucket_fast(tensors[0], _PARTS))
    return tensors


class _AccumulateFn(BundleFn):
    """Yields (Key, Partial) for a bundle of SplitRanges."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration

    def outputs(self, elements: list[SplitRange], side_input: Any) -> Iterator[tuple[Key, Partial]]:
        requirements = _requirements(self._declaration)
        for key, state in requirements.states(_file_ranges(elements)):
            yield key, (requirements.statistics[key[0]], state)


class _AccumulateFileFn(beam.DoFn):  # type: ignore[misc]
    """Yields (Key, Partial) for a file and its SplitRanges, from the cache if it was analyzed earlier."""

    def __init__(self, declaration: Declaration, cache: AnalysisCache) -> None:
        self._declaration, self._cache = declaration, cache

    def process(self, element: tuple[str, Iterable[SplitRange]]) -> Iterator[tuple[Key, Partial]]:
        path, ranges = element
        requirements, name = _requirements(self._declaration), self._cache.name(path)
        states = self._cache.load(name)
        if states is None:
            # As large as a file: the writer of the files bounds that.
            states = list(requirements.states(_file_ranges(sorted(ranges))))
            self._cache.store(name, states)
        for key, state in states:
            yield key, (requirements.statistics[key[0]], state)


class _MergeFn(beam.CombineFn):  # type: ignore[misc]
    """Merges Partials, and prunes them at the end, or each time so that memory is bounded by the size of the result."""

    def __init__(self, *, prune: bool) -> None:
        self._prune = prune

    def create_accumulator(self) -> Partial | None:
        return None

    def add_input(self, merged: Partial | None, partial: Partial) -> Partial:
        if merged is None:
            return partial
        statistic, state = partial
        both = statistic.accumulator.merge(merged[1], state)
        return statistic, statistic.accumulator.prune(both) if self._prune else both

    def merge_accumulators(self, partials: Iterable[Partial | None]) -> Partial | None:
        merged = None
        for partial in partials:
            merged = merged if partial is None else self.add_input(merged, partial)
        return merged

    def extract_output(self, merged: Partial) -> Partial:
        statistic, state = merged
        return statistic, statistic.accumulator.prune(state)


def _file_ranges(elements: Iterable[SplitRange]) -> Iterator[FileRange]:
    return (element.range for element in elements if element.range)


def _parts(accumulator: Any, arrays: list[npt.NDArray[Any]]) -> Iterator[tuple[int, list[npt.NDArray[Any]]]]:
    """Divides the arrays of a vocabulary into its parts; the last array is the part of each text."""
    if not isinstance(accumulator, VocabularyAccumulator):
        yield 0, arrays
        return
    *columns, parts = arrays
    order = np.argsort(parts, kind="stable")
    ends = np.append(0, np.cumsum(np.bincount(parts, minlength=_PARTS)))
    for part, (start, end) in enumerate(itertools.pairwise(ends.tolist())):
        if start < end:
            yield part, [column[order[start:end]] for column in columns]


def _entries(state: Any) -> int:
    return sum(batch.num_rows for batch in state) if isinstance(state, list) else 0


def _result(element: tuple[int, Partial], temporary: str) -> tuple[int, Result]:
    index, (statistic, state) = element
    return index, _finished(statistic, state, temporary)


def _finished(statistic: Statistic, state: Any, temporary: str) -> Result:
    """Return the numbers, or the path of the file."""
    result: npt.NDArray[np.float64] | bytes = statistic.accumulator.result(state)
    if not isinstance(result, bytes):
        return result
    path = file_io.join(temporary, str(statistic.file))
    with file_io.create(path) as file:
        file.write(result)
    return path


def _write_graph(folder: str, results: Mapping[int, Result], declaration: Declaration, temporary: str) -> WrittenGraph:
    """Write the graph."""
    requirements, plan = _requirements(declaration), declaration.feature_plan()
    # There are no states without rows.
    named = {
        name: results[index] if index in results else _finished(statistic, statistic.accumulator.empty(), temporary)
        for index, (name, statistic) in enumerate(zip(requirements.names, requirements.statistics, strict=True))
    }

    def function(inputs: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        return DeclaredOperations(plan, inputs).outputs({name: constant(result) for name, result in named.items()})

    return transform_graph.write(function, requirements.batches.specs, requirements.assets, folder)
