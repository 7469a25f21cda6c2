"""A Beam transform that analyzes the declared operations, from ranges of the training split to the graph.

The operations are traced once to compute the inputs of their accumulators, and once for the graph. If the texts of a
vocabulary are the values of a raw column, they are counted without the graph, see `text_counts`. Vocabularies are
counted in parts by a hash of the text, so that a worker does not have to hold all texts of a column. With a cache,
every file is analyzed separately, and only if earlier executions did not analyze it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from components.features.aged_vocabulary import AgedVocabularyAccumulator
from components.features.analysis import (
    FileRequirement,
    Requirement,
    Result,
    ValueStatistics,
    Vocabulary,
    file_name,
)
from components.features.column_group import Columns
from components.features.plan import FeaturePlan
from components.features.preprocessing import DeclaredOperations, columns_read, uses_target
from components.features.value_table import ValueAccumulator
from components.transform import drawn_rows, text_counts, transform_graph
from components.transform.analysis_cache import AnalysisCache
from components.transform.ranges import BundleFn, SplitRange
from components.transform.raw_batches import RawBatches
from components.transform.raw_matrices import RawMatrices
from components.transform.transform_graph import DeclaredGraph, WrittenGraph

_PARTS = 16
"""Number of parts into which the texts of a vocabulary are divided."""
_WHOLE = -1
"""Number of the part while a worker counts all parts of a vocabulary together."""
_STATES = 3
"""Version of the states' layout. A cache with another version is ignored."""
_CALL_VALUES = 1 << 20
"""Maximum number of raw values that a call of the graph reads. The call needs about 100 bytes per value."""
_MOST_ENTRIES = 1 << 20
"""Maximum number of entries of vocabularies that a worker holds before it yields them."""

Arrays: TypeAlias = "list[list[npt.NDArray[Any]]]"
Key: TypeAlias = "tuple[int, int]"
"""Number of a requirement, and part of its vocabulary."""
Partial: TypeAlias = "tuple[Statistic, Any]"
"""A requirement and the state of its accumulator."""


@dataclasses.dataclass(frozen=True)
class Statistic:
    """The parts of a requirement that Beam's workers pass on.

    Attributes:
      accumulator: Accumulator that computes the statistic.
      file: Name of the file of the result. None if the result is numbers.
      column: Raw column whose first values are counted without the graph. None if the graph computes the values.
    """

    accumulator: Any
    file: str | None
    column: str | None


@dataclasses.dataclass(frozen=True)
class Declaration:
    """The operations and the raw features, in a small form, because it is pickled with Beam's transforms.

    Attributes:
      plan: FeaturePlan as JSON.
      schema: Serialized schema of the raw features.
      stored: File format of the examples.
      earlier_model: SavedModel of the warm start, which contains the counts of vocabularies that are remembered. None
        if there is no such model.
      source: What identifies the data, for these vocabularies.
    """

    plan: str
    schema: bytes
    stored: Format
    earlier_model: str | None = None
    source: str = ""

    def feature_plan(self) -> FeaturePlan:
        """Parse the plan."""
        return FeaturePlan.model_validate_json(self.plan)

    def raw_batches(self) -> RawBatches:
        """Return the RawBatches with the columns that the operations read."""
        return RawBatches(schema_pb2.Schema.FromString(self.schema), columns_read(self.feature_plan()))

    def dependency(self) -> str:
        """Describe what the states of accumulators depend on, apart from the plan and the rows.

        This does not include the whole schema, because an inferred schema may describe new values with every span.
        """
        raw = self.raw_batches()
        types = {feature.name: (feature.type, str(raw.specs[feature.name])) for feature in raw.schema.feature}
        return f"{_STATES} {types} {self.stored} {tfx_bsl.__version__} {pa.__version__}"


class AnalyzeDeclared(beam.PTransform):  # type: ignore[misc]
    """Converts a PCollection of SplitRanges to a PCollection with one WrittenGraph.

    Args:
      declaration: The operations and the raw features.
      folder: Folder of the graph.
      temporary: Folder for vocabulary files, which the graph's writer copies.
      cache: Cache of the states of files. If None, all files are analyzed.
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
            | "Result" >> beam.Map(_compute_result, self._temporary)
        )
        return (
            ranges.pipeline
            | "Once" >> beam.Create([self._folder])
            | "WriteGraph"
            >> beam.Map(_write_graph, beam.pvalue.AsDict(results), self._declaration, temporary=self._temporary)
        )


class _Requirements:
    """The requirements of the declared operations, and the graph that computes the inputs of their accumulators."""

    def __init__(self, declaration: Declaration) -> None:
        plan, stored = declaration.feature_plan(), declaration.raw_batches()
        self.examples = Examples((), declaration.stored, stored.schema)
        self.stored_specs = stored.specs
        self.draws = uses_target(plan)
        schema = schema_pb2.Schema.FromString(declaration.schema)
        self.batches = drawn_rows.extend(schema, columns_read(plan)) if self.draws else stored
        self.names: list[str] = []
        self.statistics: list[Statistic] = []
        self.assets: dict[str, str] = {}

        def arrays(columns: Columns) -> list[list[tf.Tensor]]:
            requirements_by_name = DeclaredOperations(plan, columns).requirements
            self.names, requirements = list(requirements_by_name), list(requirements_by_name.values())
            self.statistics = [_to_statistic(requirement, declaration) for requirement in requirements]
            files = [requirement for requirement in requirements if isinstance(requirement, FileRequirement)]
            self.assets = {requirement.name: file_name(requirement) for requirement in files}
            return [
                [] if statistic.column else _tensors(requirement)
                for requirement, statistic in zip(requirements, self.statistics, strict=True)
            ]

        self._arrays = _trace(lambda inputs: arrays(Columns(inputs)), [dict(self.batches.specs)])
        self._read = _find_inputs_read(self._arrays, self.batches.specs)
        self._matrices = RawMatrices(self.batches, self._read, plan.features.histories)
        self._arrays_of_matrices = self._matrices.trace(arrays, _trace)

    def arrays(self, batch: pa.RecordBatch) -> Arrays:
        """Compute the inputs of the accumulators from a batch, for texts including the parts of the vocabulary.

        With a wide table, the graph is called with a few rows at a time, so texts are only distinct within a call. The
        list is empty for a statistic that is counted without the graph.
        """
        names = [name for name in batch.schema.names if name in self._read]
        if not names:
            return [[] for _ in self.statistics]
        columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
        read, rows = pa.RecordBatch.from_arrays(columns, names), max(1, _CALL_VALUES // len(names))
        calls = [
            [[tensor.numpy() for tensor in tensors] for tensors in self._call(read.slice(start, rows))]
            for start in range(0, max(1, batch.num_rows), rows)
        ]
        if len(calls) == 1:
            return calls[0]
        return [
            [np.concatenate(parts) for parts in zip(*call_arrays, strict=True)]
            for call_arrays in zip(*calls, strict=True)
        ]

    def _call(self, batch: pa.RecordBatch) -> list[list[tf.Tensor]]:
        inputs = self._matrices.pack(batch)
        arrays: list[list[tf.Tensor]] = (
            self._arrays(self.batches.tensors(batch)) if inputs is None else self._arrays_of_matrices(*inputs)
        )
        return arrays

    def states(self, file_ranges: Iterable[FileRange]) -> Iterator[tuple[Key, Any]]:
        """Yield the states of the accumulators for all rows of some ranges; several states for a large vocabulary."""
        states: dict[Key, Any] = {}
        for file_range in file_ranges:
            for number, batch in enumerate(self.examples.read(file_range)):
                if self.draws:
                    batch = drawn_rows.draw(batch, file_range.first, number)
                arrays = self.arrays(batch)
                for index, (statistic, batch_arrays) in enumerate(zip(self.statistics, arrays, strict=True)):
                    accumulator = statistic.accumulator
                    if statistic.column:
                        counts = text_counts.count_texts(column_of(batch, statistic.column))
                        state = states.get((index, _WHOLE), accumulator.empty())
                        states[index, _WHOLE] = accumulator.merge(state, [counts])
                        continue
                    for part, values in _divide_parts(accumulator, batch_arrays):
                        state = states.get((index, part))
                        state = accumulator.empty() if state is None else state
                        states[index, part] = accumulator.add(state, *values)
                if sum(_count_entries(state) for state in states.values()) > _MOST_ENTRIES:
                    yield from self._divide(states)
                    states = {}
        yield from self._divide(states)

    def _divide(self, states: Mapping[Key, Any]) -> Iterator[tuple[Key, Any]]:
        """Yield states; divide the states of whole vocabularies into parts."""
        for (index, part), state in states.items():
            if part != _WHOLE:
                yield (index, part), state
                continue
            entries = self.statistics[index].accumulator.entries(state)
            yield from (((index, number), [counts]) for number, counts in text_counts.divide(entries, _PARTS))


@functools.lru_cache(maxsize=1)
def _requirements(declaration: Declaration) -> _Requirements:
    """Trace the operations once per process."""
    return _Requirements(declaration)


def _to_statistic(requirement: Requirement, declaration: Declaration) -> Statistic:
    file = file_name(requirement) if isinstance(requirement, FileRequirement) else None
    column = requirement.column if isinstance(requirement, Vocabulary) else None
    accumulator = requirement.accumulator()
    if isinstance(accumulator, AgedVocabularyAccumulator):
        accumulator = accumulator.begin_with(declaration.earlier_model, str(file), declaration.source)
    return Statistic(accumulator, file, column)


def _trace(function: Callable[..., Any], signature: Any) -> Any:
    return tf.function(function, signature, autograph=False).get_concrete_function()


def _find_inputs_read(function: Any, specs: Mapping[str, tf.TypeSpec]) -> set[str]:
    """Return the names of the features from which a traced function computes its outputs."""
    visited: set[tf.Operation] = set()
    waiting = [tensor.op for tensor in function.outputs]
    while waiting:
        operation = waiting.pop()
        if operation not in visited:
            visited.add(operation)
            waiting += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    # The inputs are a flat list, sorted by name as in tf.nest. A feature of a fixed shape is always read, because it
    # cannot be replaced by missing values.
    names = [name for name in sorted(specs) for _ in tf.nest.flatten(specs[name], expand_composites=True)]
    read = {name for name, tensor in zip(names, function.inputs, strict=False) if tensor.op in visited}
    return read | {name for name, spec in specs.items() if isinstance(spec, tf.TensorSpec)}


def _tensors(requirement: Requirement) -> list[tf.Tensor]:
    tensors = list(requirement.tensors)
    if isinstance(requirement, Vocabulary):
        tensors.append(tf.strings.to_hash_bucket_fast(tensors[0], _PARTS))
    elif isinstance(requirement, ValueStatistics):
        tensors.append(requirement.keys % _PARTS)
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
    """Yields (Key, Partial) for a file and its SplitRanges, from the cache if the file was analyzed earlier."""

    def __init__(self, declaration: Declaration, cache: AnalysisCache) -> None:
        self._declaration, self._cache = declaration, cache

    def process(self, element: tuple[str, Iterable[SplitRange]]) -> Iterator[tuple[Key, Partial]]:
        path, ranges = element
        requirements, name = _requirements(self._declaration), self._cache.name(path)
        states = self._cache.load(name)
        if states is None:
            # The states are held in memory at once. The maximum size of a file bounds them.
            states = list(requirements.states(_file_ranges(sorted(ranges))))
            self._cache.store(name, states)
        for key, state in states:
            yield key, (requirements.statistics[key[0]], state)


class _MergeFn(beam.CombineFn):  # type: ignore[misc]
    """Merges Partials. Prunes at the end, or after every merge to bound memory by the size of the result."""

    def __init__(self, *, prune: bool) -> None:
        self._prune = prune

    def create_accumulator(self) -> Partial | None:
        return None

    def add_input(self, merged: Partial | None, partial: Partial) -> Partial:
        if merged is None:
            return partial
        statistic, state = partial
        merged_state = statistic.accumulator.merge(merged[1], state)
        return statistic, statistic.accumulator.prune(merged_state) if self._prune else merged_state

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


def _divide_parts(accumulator: Any, arrays: list[npt.NDArray[Any]]) -> Iterator[tuple[int, list[npt.NDArray[Any]]]]:
    """Divide the arrays of a vocabulary or a table into parts. The last array contains the parts of the values."""
    if not isinstance(accumulator, (VocabularyAccumulator, ValueAccumulator)):
        yield 0, arrays
        return
    *columns, parts = arrays
    order = np.argsort(parts, kind="stable")
    ends = np.append(0, np.cumsum(np.bincount(parts, minlength=_PARTS)))
    for part, (start, end) in enumerate(itertools.pairwise(ends.tolist())):
        if start < end:
            yield part, [column[order[start:end]] for column in columns]


def _count_entries(state: Any) -> int:
    return sum(batch.num_rows for batch in state) if isinstance(state, list) else 0


def _compute_result(element: tuple[int, Partial], temporary: str) -> tuple[int, Result]:
    index, (statistic, state) = element
    return index, _finish(statistic, state, temporary)


def _finish(statistic: Statistic, state: Any, temporary: str) -> Result:
    """Return the numbers of a statistic, or write its file and return the path."""
    accumulator = statistic.accumulator
    result: npt.NDArray[np.float64] | bytes
    if isinstance(accumulator, AgedVocabularyAccumulator):
        result = accumulator.write(accumulator.prune(state), temporary.rpartition("/")[0], str(statistic.file))
    else:
        result = accumulator.result(state)
    if not isinstance(result, bytes):
        return result
    path = file_io.join(temporary, str(statistic.file))
    with file_io.create(path) as file:
        file.write(result)
    return path


def _write_graph(folder: str, results: Mapping[int, Result], declaration: Declaration, temporary: str) -> WrittenGraph:
    """Write the graph with the results of the requirements."""
    requirements = _requirements(declaration)
    # Without rows there are no states, so use the results of empty accumulators.
    results_by_name = {
        name: results[index] if index in results else _finish(statistic, statistic.accumulator.empty(), temporary)
        for index, (name, statistic) in enumerate(zip(requirements.names, requirements.statistics, strict=True))
    }

    operations = DeclaredGraph(declaration.plan, results_by_name)
    return transform_graph.write(
        lambda inputs: operations.outputs(Columns(inputs)),
        requirements.stored_specs,
        requirements.assets,
        folder,
        operations,
    )
