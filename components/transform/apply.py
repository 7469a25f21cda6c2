"""A Beam transform that applies the transform graph to the rows of all splits, and writes them and a sample of them."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio

from components.data import file_io, skew_sample
from components.data.examples import Examples, Format, ParquetWriter
from components.data.skew_sample import Sample, Sampler
from components.data.tfrecord_writer import TfrecordWriter, frame_examples
from components.features.plan import FeaturePlan
from components.transform import drawn_rows, transform_graph
from components.transform.ranges import BundleFn, SplitKey, SplitRange
from components.transform.raw_batches import RawBatches
from components.transform.transform_graph import TransformGraph

_SHARD = 64 << 20
"""Bytes of rows, before compression, after which the next file begins: enough to read at full speed, and few enough
that several workers can read in parallel."""
_SUFFIX: Mapping[Format, str] = {"parquet": ".parquet", "tfrecord": ".gz"}
PREFIX = "transformed_examples"
"""Prefix of the names of the files, as in TFX's executor."""
_SAMPLES = "samples"
"""Tag of the PCollection of samples."""
_PENDING_SAMPLES, _PENDING_BYTES = 16, 32 << 20
"""Maximum number of samples in memory before they are merged, and maximum bytes of their transformed rows. Every column
adds rows with extreme values, so the sample of a batch with hundreds of columns has thousands of rows."""


class Shard(NamedTuple):
    """A complete file of transformed rows under a temporary name. Sorted shards are in the order of their rows.

    Attributes:
      key: Split of the rows.
      order: Position of the first row: file, first row group of the range, and number of the batch in the range.
      temporary: Temporary path of the file.
    """

    key: SplitKey
    order: tuple[str, int, int]
    temporary: str


@dataclass(frozen=True)
class Rows:
    """Settings for reading and writing rows.

    Attributes:
      schema: Serialized schema of the raw features.
      columns: Names of the columns that the graph reads. If None, all columns.
      stored: File format of raw and transformed examples.
      temporary: Folder for files that are being written.
      folders: Split → folder of its files.
      graph: Folder of the transform graph, which receives the sample.
      plan: Plan as JSON, if operations use the label of the rows from which the graph was computed; otherwise None.
      analyzed: Splits with these rows.
    """

    schema: bytes
    columns: tuple[str, ...] | None
    stored: Format
    temporary: str
    folders: Mapping[SplitKey, str]
    graph: str
    plan: str | None = None
    analyzed: frozenset[str] = frozenset()


class ApplyGraph(beam.PTransform):  # type: ignore[misc]
    """Transforms a PCollection of SplitRanges and writes the rows.

    Args:
      rows: Settings for reading and writing rows.
      graph: PCollection with one WrittenGraph.
    """

    def __init__(self, rows: Rows, graph: beam.PCollection) -> None:
        super().__init__()
        self._rows, self._graph = rows, graph

    def expand(self, ranges: beam.PCollection) -> beam.PCollection:
        """Apply the transform; return a PCollection of the names of the files."""
        transform = beam.ParDo(_TransformFn(self._rows), beam.pvalue.AsSingleton(self._graph))
        shards, samples = ranges | "Transform" >> transform.with_outputs(_SAMPLES, main="shards")
        _ = (
            samples
            | "MergeSamples" >> beam.CombineGlobally(_MergeSamplesFn()).without_defaults()
            | "WriteSample" >> beam.Map(skew_sample.write, self._rows.graph)
        )
        return (
            ranges.pipeline
            | "Once" >> beam.Create([self._rows])
            | "Commit" >> beam.FlatMap(_commit, beam.pvalue.AsList(shards))
        )


class _TransformFn(BundleFn):
    """Yields Shards, and a tagged Sample of the rows of the bundle."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def setup(self) -> None:
        """Create the objects that are not pickled."""
        schema = schema_pb2.Schema.FromString(self._rows.schema)
        self._raw = RawBatches(schema, self._rows.columns)
        self._plan = None if self._rows.plan is None else FeaturePlan.model_validate_json(self._rows.plan)
        if self._plan is not None:
            self._drawn = drawn_rows.extend(schema, list(self._rows.columns or ()))
        self._examples = Examples((), self._rows.stored, self._raw.schema)

    def outputs(self, elements: list[SplitRange], side_input: Any) -> Iterator[Shard | beam.pvalue.TaggedOutput]:
        graph = transform_graph.open_graph(side_input)
        samples: list[Sample] = []
        for key, split_elements in itertools.groupby(elements, key=lambda element: element.key):
            # Also write a file if a split is empty.
            writer: _Writer | None = None
            for element in split_elements:
                first = element.range.first if element.range else 0
                for number, batch in enumerate(self._batches(element)):
                    writer = writer or _Writer(Shard(key, (element.path, first, number), ""), self._rows, graph)
                    if batch:
                        keys = skew_sample.draw_keys(element.path, first, number, batch.num_rows)
                        sampler = Sampler(keys, batch)
                        for transformed in self._transform(graph, key, batch, first, number):
                            writer.write(transformed)
                            sampler.add(transformed)
                        samples.append(self._serve(graph, key, sampler.sample()))
                        if _is_large(samples):
                            samples = [skew_sample.merge(samples)]
                    if writer.is_full:
                        yield writer.close()
                        writer = None
            if writer:
                yield writer.close()
        if samples:
            yield beam.pvalue.TaggedOutput(_SAMPLES, skew_sample.merge(samples))

    def _transform(
        self, graph: TransformGraph, key: SplitKey, batch: pa.RecordBatch, first: int, number: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the transformed rows of a batch."""
        if self._plan is None or key.split not in self._rows.analyzed:
            return graph.transform(self._raw, batch)
        return graph.transform(self._drawn, drawn_rows.draw(batch, first, number))

    def _serve(self, graph: TransformGraph, key: SplitKey, sample: Sample) -> Sample:
        """Return a sample with the features that a model serves, with which later nodes compare the model."""
        if self._plan is None or key.split not in self._rows.analyzed:
            return sample
        served = skew_sample.concatenate(list(graph.transform(self._raw, sample.raw)))
        drawn_rows.check_served(self._plan, sample.transformed, served)
        return sample._replace(transformed=served)

    def _batches(self, element: SplitRange) -> Iterator[pa.RecordBatch | None]:
        """Yield the batches of a range, or None if the range is empty."""
        batches = self._examples.read(element.range) if element.range else iter(())
        first = next(batches, None)
        yield first
        yield from batches


def _is_large(samples: Sequence[Sample]) -> bool:
    size = sum(sample.transformed.nbytes for sample in samples)
    return len(samples) >= _PENDING_SAMPLES or (len(samples) > 1 and size >= _PENDING_BYTES)


class _MergeSamplesFn(beam.CombineFn):  # type: ignore[misc]
    """Merges Samples."""

    def create_accumulator(self) -> Sample | None:
        return None

    def add_input(self, merged: Sample | None, sample: Sample) -> Sample:
        return sample if merged is None else skew_sample.merge([merged, sample])

    def merge_accumulators(self, samples: Iterable[Sample | None]) -> Sample | None:
        present = [sample for sample in samples if sample is not None]
        return skew_sample.merge(present) if present else None

    def extract_output(self, merged: Sample) -> Sample:
        return merged


class _Writer:
    """Writes a shard."""

    def __init__(self, shard: Shard, rows: Rows, graph: transform_graph.TransformGraph) -> None:
        path = file_io.join(rows.temporary, uuid.uuid4().hex)
        self._shard = shard._replace(temporary=path)
        self._file = ParquetWriter(path, graph.schema) if rows.stored == "parquet" else TfrecordWriter(path)

    @property
    def is_full(self) -> bool:
        """Whether the next rows should go to another file."""
        return self._file.bytes >= _SHARD

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._file.write(frame_examples(batch) if isinstance(self._file, TfrecordWriter) else batch)

    def close(self) -> Shard:
        """Complete the file and return its shard."""
        self._file.close()
        return self._shard


def _commit(rows: Rows, shards: Sequence[Shard]) -> Iterator[str]:
    """Give the files the names that readers look for."""
    for key, grouped in itertools.groupby(sorted(shards), key=lambda shard: shard.key):
        split_shards = list(grouped)
        for number, shard in enumerate(split_shards):
            name = f"{PREFIX}-{number:05d}-of-{len(split_shards):05d}{_SUFFIX[rows.stored]}"
            path = file_io.join(rows.folders[key], name)
            fileio.rename(shard.temporary, path, overwrite=True)
            yield path
