"""A Beam transform that computes the statistics of all splits in one pass over their files."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.compat import tfdv as compat
from components.data.examples import Examples, FileRange, Format
from components.data.weights import weights_of

Accumulators = list[Any]
"""The accumulators of TFDV's generators, each an object or, between workers, a `_Packed` one."""


class ComputeStatistics(beam.PTransform):  # type: ignore[misc]
    """Converts a PCollection of (split, file) to a PCollection of (split, DatasetFeatureStatisticsList).

    Args:
      stored: File format of the examples.
      options: Options of TFDV as JSON; see `compat.tfdv.combiners`. `sample_rate` is ignored.
      rates: Split → share of the rows to sample, from 0 to 1. All rows of other splits are used.
    """

    def __init__(self, stored: Format, options: str, rates: Mapping[str, float]) -> None:
        super().__init__()
        self._examples, self._options, self._rates = Examples((), stored), options, dict(rates)

    def expand(self, files: beam.PCollection) -> beam.PCollection:
        """Apply the transform."""
        return (
            files
            | "Divide" >> beam.FlatMap(_divide, self._examples)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(_read, self._examples, self._rates)
            | "Combine" >> beam.CombinePerKey(StatisticsFn(self._options))
        )


class StatisticsFn(beam.CombineFn):  # type: ignore[misc]
    """Combines record batches to statistics. Inputs that are None are ignored.

    Args:
      options: Options of TFDV as JSON.
    """

    def __init__(self, options: str) -> None:
        self._options = options

    def setup(self) -> None:
        """Create the generators here, so that they need not be pickled."""
        options = tfdv.StatsOptions.from_json(self._options)
        self._weight = options.weight_feature
        self._generators = compat.combiners(options)
        for generator in self._generators:
            generator.setup()

    def create_accumulator(self) -> Accumulators:
        """Return empty accumulators."""
        return [generator.create_accumulator() for generator in self._generators]

    def add_input(self, accumulators: Accumulators, batch: pa.RecordBatch | None) -> Accumulators:
        """Add the rows of a batch.

        Raises:
          InputError: If the options name a column of weights, and a row lacks a valid weight.
        """
        if batch is None:
            return accumulators
        if self._weight is not None and batch.num_rows:
            weights_of(batch, self._weight)
        return [
            generator.add_input(_unpack(state), batch)
            for generator, state in zip(self._generators, accumulators, strict=True)
        ]

    def merge_accumulators(self, accumulators: Iterable[Accumulators]) -> Accumulators:
        """Merge the accumulators of several workers."""
        states = zip(*accumulators, strict=True)
        return [
            generator.merge_accumulators(map(_unpack, worker_states))
            for generator, worker_states in zip(self._generators, states, strict=True)
        ]

    def compact(self, accumulators: Accumulators) -> Accumulators:
        """Shrink and pack the accumulators before they are sent to another worker.

        Beam's runner decodes, copies and encodes what workers exchange. For objects, it would build all sketches of all
        workers at once, which take many times as much memory as their compressed pickles.
        """
        states = zip(self._generators, accumulators, strict=True)
        return [_pack(generator.compact(_unpack(state))) for generator, state in states]

    def extract_output(self, accumulators: Accumulators) -> statistics_pb2.DatasetFeatureStatisticsList:
        """Return the statistics of all rows."""
        return compat.merge_output(self._generators, [_unpack(state) for state in accumulators])


class _Packed(NamedTuple):
    """A pickled and compressed accumulator.

    Attributes:
      content: The pickle, compressed with zstd.
      size: Bytes of the pickle.
    """

    content: bytes
    size: int


def _pack(state: Any) -> _Packed:
    content = pickle.dumps(state)
    return _Packed(pa.compress(content, codec="zstd", asbytes=True), len(content))


def _unpack(state: Any) -> Any:
    if not isinstance(state, _Packed):
        return state
    return pickle.loads(pa.decompress(state.content, state.size, "zstd"))  # noqa: S301 - written by `_pack`


def _divide(file: tuple[str, str], examples: Examples) -> Iterator[tuple[str, FileRange | None]]:
    """Yield the ranges of a file, or None without ranges, so that an empty split also gets statistics."""
    split, path = file
    ranges = examples.ranges(path)
    yield from ((split, file_range) for file_range in ranges)
    if not ranges:
        yield split, None


def _read(
    element: tuple[str, FileRange | None], examples: Examples, rates: Mapping[str, float]
) -> Iterator[tuple[str, pa.RecordBatch | None]]:
    split, file_range = element
    yield split, None
    for batch in examples.read(file_range) if file_range else ():
        yield split, _sample(batch, rates[split]) if split in rates else batch


def _sample(batch: pa.RecordBatch, rate: float) -> pa.RecordBatch:
    """Keep every row with a probability of `rate`."""
    chosen = pa.array(np.flatnonzero(np.random.default_rng().random(batch.num_rows) < rate))
    return pa.RecordBatch.from_arrays([column.take(chosen) for column in batch.columns], batch.schema.names)
