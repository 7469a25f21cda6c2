"""The Beam pipeline of the ingest. This module imports little, so that a worker process starts quickly."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from components.base.errors import InputError
from components.data import file_io
from components.ingest.blocks import BadRow, Block, FileRange, Matches, Reader, RowCounts
from components.ingest.bundle_writer import BundleResult, BundleWriter, FirstPassSummary, IngestSettings
from components.ingest.config import BadRowsConfig
from components.ingest.series_partitions import Partition, SeriesReader, count_partitions, partition
from components.ingest.shard_writer import Shard
from components.ingest.time_steps import Step

_FILES = 64
"""Number of files that one worker divides into ranges at once."""
_SMALL = 4 << 20
"""Bytes of small files that one worker reads together."""
File = tuple[str, "str | None"]
"""The path of a file, and the predefined split that it belongs to, or None."""
FileRanges = tuple[FileRange, ...]
Element = FileRanges | Block | Partition
Source = Reader | SeriesReader | None
"""What makes rows from elements: nothing for blocks, a SeriesReader for partitions."""


def file_ranges(pipeline: beam.Pipeline, spans: Iterable[Sequence[File]], reader: Reader) -> beam.PCollection:
    """Divide files into ranges.

    Args:
      pipeline: The Beam pipeline.
      spans: The files of every span.
      reader: Reader that divides the files.

    Returns:
      A collection of tuples of ranges. The ranges of a tuple belong to one span and are read by one worker.
    """
    chunks = [tuple(files[at : at + _FILES]) for files in spans for at in range(0, len(files), _FILES)]
    return (
        pipeline
        | "Files" >> beam.Create(chunks)
        | "SpreadFiles" >> beam.Reshuffle()
        | "DivideFiles" >> beam.FlatMap(_divide, reader)
        | "SpreadRanges" >> beam.Reshuffle()
    )


def ingest(
    elements: beam.PCollection,
    settings: IngestSettings,
    reader: Reader | None,
    manifest: str,
    size: int | None = None,
) -> None:
    """Check, split and write all rows, then write the manifest.

    Args:
      elements: Collection of tuples of file ranges, or of blocks of rows.
      settings: Settings that all workers share.
      reader: Reader of the file ranges. None if the elements are blocks.
      manifest: Path of the manifest, a JSON file; see `Manifest`.
      size: Bytes of all files, which determine the number of partitions of series. If None, it is unknown.
    """
    source: Source = reader
    step, read_counts = None, None
    if settings.config.windows:
        partitions = partition(elements, settings, reader, count_partitions(size))
        elements, read_counts = partitions.rows, beam.pvalue.AsList(partitions.counts)
        step = partitions.step if isinstance(partitions.step, Step) else beam.pvalue.AsSingleton(partitions.step)
        # The rows are selected before they are partitioned.
        settings = dataclasses.replace(settings, config=settings.config.model_copy(update={"where": None}))
        source = SeriesReader.create(settings.config, settings.properties)
    first = elements | "FirstPass" >> beam.ParDo(_FirstPass(settings, source), step)
    results = beam.pvalue.AsList(first)
    second = elements | "SecondPass" >> beam.ParDo(_SecondPass(settings, source), results, step)
    _ = (
        elements.pipeline
        | "Once" >> beam.Create([manifest])
        | "WriteManifest" >> beam.Map(_write_manifest, results, beam.pvalue.AsList(second), settings, read_counts)
    )


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The result of the pipeline.

    Attributes:
      rows: Number of rows that were read.
      bad: Number of bad rows.
      left_out: Number of rows in a gap between splits.
      unselected: Number of rows that `data.where` does not select.
      sampled_out: Number of rows that `data.sample` does not keep.
      rows_by_part: Number of rows in each part of the sample, before a share of them is kept.
      kinds: Column name → number of its `Kind`.
      shards: Files of rows that were written.
      quarantined: Files with bad rows, as (input file, number of the range, positions before that range, file).
      files: Suffix of the input files' names → number of `files` and of `rows` that were read.
      made: Number of rows that `data.windows` made from the rows that were read. None without windows.
      matches: Counts of the rows of every join, in the order of `data.join`.
    """

    rows: int
    bad: int
    left_out: int
    unselected: int
    sampled_out: int
    rows_by_part: tuple[int, ...]
    kinds: dict[str, int]
    shards: tuple[Shard, ...]
    quarantined: tuple[tuple[str, int, int, str], ...]
    files: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    made: int | None = None
    matches: tuple[Matches, ...] = ()

    @classmethod
    def read(cls, path: str) -> Manifest:
        """Read the file that `ingest` wrote."""
        with file_io.open_binary(path) as file:
            content = json.loads(file.read())
        written = sorted(Shard(**{**shard, "order": tuple(shard["order"])}) for shard in content["shards"])
        quarantined = sorted(tuple(entry) for entry in content["quarantined"])
        lists = {"shards": tuple(written), "quarantined": tuple(quarantined)}
        return cls(**{**content, **lists, "matches": tuple(Matches(**matches) for matches in content["matches"])})


def check_bad_rows(counts: RowCounts, config: BadRowsConfig, position_unit: str) -> None:
    """Compare the number of bad rows with the limit.

    Args:
      counts: Counts of all rows.
      config: Section `data.bad_rows` of the config.
      position_unit: Unit of positions in the message, `row` or `offset`.

    Raises:
      InputError: If more rows are bad than the config allows. The message names the first few.
    """
    allowed = 0.0 if config.action == "fail" else config.max_fraction * counts.rows
    if counts.bad <= allowed:
        return
    first, *details = (_describe(counts, bad, position_unit) for bad in counts.first_bad)
    if more := counts.bad - len(counts.first_bad):
        details.append(f"and {more:,} more of {counts.rows:,} rows")
    remedy = "fix or remove these rows, or set data.csv and data.types to fit"
    if config.action == "quarantine":
        # Round up, so that the suggested limit is high enough.
        enough = math.ceil(counts.bad / counts.rows * 10_000) / 10_000
        remedy += f"; or set data.bad_rows.max_fraction to {enough:g} or more"
    raise InputError(first, remedy, details)


def _describe(counts: RowCounts, bad: BadRow, position_unit: str) -> str:
    column = f"column {bad.column}: " if bad.column else ""
    return f"{bad.path}, {position_unit} {counts.position_in_file(bad)}: {column}{bad.reason}"


def _divide(files: Iterable[File], reader: Reader) -> Iterator[FileRanges]:
    """Yield every range of a large file alone, and the ranges of several small files together."""
    pending: list[FileRange] = []
    size = 0
    for path, split in files:
        ranges = reader.ranges(path, split)
        if len(ranges) > 1:
            yield from ((file_range,) for file_range in ranges)
            continue
        pending += ranges
        size += file_io.size(path)
        if size >= _SMALL:
            yield tuple(pending)
            pending, size = [], 0
    if pending:
        yield tuple(pending)


class _FirstPass(beam.DoFn):  # type: ignore[misc]
    """Runs the first pass; yields one result per bundle."""

    def __init__(self, settings: IngestSettings, source: Source) -> None:
        self._settings, self._source = settings, source
        self._writer: BundleWriter | None = None

    def start_bundle(self) -> None:
        self._writer = None

    def process(self, element: Element, step: Step | None) -> None:
        self._writer = self._writer or BundleWriter(self._settings)
        _write(self._writer, element, self._source, step)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._writer:
            yield _in_global_window(self._writer.close())


class _SecondPass(beam.DoFn):  # type: ignore[misc]
    """Runs the second pass; does nothing if the first pass wrote the final examples."""

    def __init__(self, settings: IngestSettings, source: Source) -> None:
        self._settings, self._source = settings, source
        self._writer: BundleWriter | None = None
        self._summary: FirstPassSummary | None = None

    def start_bundle(self) -> None:
        self._writer = self._summary = None

    def process(self, element: Element, first: list[BundleResult], step: Step | None) -> None:
        if self._summary is None:
            self._summary = _summarize(first, self._settings)
        if self._summary.is_final:
            return
        self._writer = self._writer or BundleWriter(self._settings, self._summary)
        _write(self._writer, element, self._source, step)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._writer:
            yield _in_global_window(self._writer.close())


def _write(writer: BundleWriter, element: Any, source: Source, step: Step | None) -> None:
    if isinstance(element, Block):
        writer.write(element)
    elif isinstance(source, SeriesReader):
        for block in source.read(element, step) if step else ():
            writer.write(block)
    elif source:
        writer.read(element, source)


def _in_global_window(result: BundleResult) -> WindowedValue:
    return WindowedValue(result, GlobalWindow().max_timestamp(), [GlobalWindow()])


def _summarize(first: Iterable[BundleResult], settings: IngestSettings) -> FirstPassSummary:
    """Merge the summaries of all bundles of the first pass.

    Raises:
      InputError: If too many rows are bad.
    """
    summary = functools.reduce(FirstPassSummary.merge, (result.summary for result in first), FirstPassSummary())
    check_bad_rows(summary.counts, settings.config.bad_rows, settings.properties.position_unit)
    return summary


def _write_manifest(
    path: str,
    first: list[BundleResult],
    second: list[BundleResult],
    settings: IngestSettings,
    read_counts: list[RowCounts] | None = None,
) -> None:
    summary = _summarize(first, settings)
    results = first if summary.is_final else second
    counts = summary.counts
    if read_counts is not None:
        counts = functools.reduce(RowCounts.merge, read_counts, RowCounts())
        check_bad_rows(counts, settings.config.bad_rows, settings.properties.position_unit)
    manifest = Manifest(
        rows=counts.rows,
        bad=counts.bad,
        left_out=sum(result.left_out for result in results),
        unselected=counts.unselected,
        sampled_out=sum(result.sampled_out for result in results),
        rows_by_part=tuple(map(sum, zip(*(result.rows_by_part for result in results), strict=True))),
        made=None if read_counts is None else summary.counts.rows,
        kinds={name: int(kind) for name, kind in summary.kinds.items()},
        shards=tuple(shard for result in results for shard in result.shards),
        quarantined=tuple(
            (*key, counts.positions_before(*key), file) for key, files in counts.quarantined.items() for file in files
        ),
        files=counts.files_by_suffix(),
        matches=counts.matches_of(settings.config.join),
    )
    with file_io.create(path) as file:
        file.write(json.dumps(dataclasses.asdict(manifest)).encode())
