"""The ingest as a Beam pipeline; what its workers import is light, so that a worker process starts quickly."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from components.errors import InputError
from components.ingest import source
from components.ingest.config import BadRowsConfig
from components.ingest.rows import Account, BadRow, Block, Piece, Reader
from components.ingest.shards import Shard
from components.ingest.share import Findings, Plan, Result, Share

_FILES = 64
"""Files that one worker cuts into pieces at once."""
_SMALL = 4 << 20
"""Bytes of small files that one worker takes at once."""
File = tuple[str, "str | None"]
"""A file, and the predefined split that it stands for."""
Pieces = tuple[Piece, ...]


def pieces(pipeline: beam.Pipeline, files: Sequence[File], reader: Reader) -> beam.PCollection:
    """The pieces of files as a collection of tuples, each for one worker to take."""
    chunks = [tuple(files[at : at + _FILES]) for at in range(0, len(files), _FILES)]
    return (
        pipeline
        | "Files" >> beam.Create(chunks)
        | "SpreadFiles" >> beam.Reshuffle()
        | "Cut" >> beam.FlatMap(_cut, reader)
        | "SpreadPieces" >> beam.Reshuffle()
    )


def ingest(elements: beam.PCollection, plan: Plan, reader: Reader | None, manifest: str) -> None:
    """Checks, splits and writes all rows, and then a manifest: a JSON file with what came of them.

    Args:
      elements: tuples of pieces for the reader, or blocks of rows.
      plan: what every worker is told.
      reader: reads the pieces.
      manifest: where the manifest goes; see `Manifest`.
    """
    first = elements | "Ingest" >> beam.ParDo(_Ingest(plan, reader))
    results = beam.pvalue.AsList(first)
    second = elements | "IngestAgain" >> beam.ParDo(_IngestAgain(plan, reader), results)
    _ = (
        elements.pipeline
        | "Once" >> beam.Create([manifest])
        | "WriteManifest" >> beam.Map(_write_manifest, results, beam.pvalue.AsList(second), plan)
    )


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What came of the rows.

    Attributes:
      rows: how many were read.
      bad: how many of these are in quarantine.
      left_out: how many lie in a gap between splits.
      kinds: of the columns.
      shards: what was written.
      quarantined: files with bad rows, as (input file, number of the piece, places before that piece, file).
    """

    rows: int
    bad: int
    left_out: int
    kinds: dict[str, int]
    shards: tuple[Shard, ...]
    quarantined: tuple[tuple[str, int, int, str], ...]

    @classmethod
    def read(cls, path: str) -> Manifest:
        """Reads what `ingest` wrote."""
        with source.open_binary(path) as file:
            content = json.loads(file.read())
        written = sorted(
            Shard(shard["split"], tuple(shard["order"]), shard["path"], shard["rows"]) for shard in content["shards"]
        )
        quarantined = sorted(tuple(entry) for entry in content["quarantined"])
        return cls(**{**content, "shards": tuple(written), "quarantined": tuple(quarantined)})


def judged(findings: Findings, config: BadRowsConfig, place_is: str) -> Findings:
    """The findings, unless too many rows are bad.

    Raises:
      InputError: more than the config allows; it names the first few.
    """
    account = findings.account
    allowed = 0.0 if config.action == "fail" else config.max_fraction * account.rows
    if account.bad <= allowed:
        return findings
    first, *others = (_told(account, bad, place_is) for bad in account.first)
    more = account.bad - len(account.first)
    details = [*others, f"and {more:,} more of {account.rows:,} rows"] if more else others
    remedy = "mend these rows or leave them out, or set data.csv and data.types to fit"
    if config.action == "quarantine":
        # Rounded up, so that it will do.
        enough = math.ceil(account.bad / account.rows * 10_000) / 10_000
        remedy += f"; or set data.bad_rows.max_fraction to {enough:g} or more"
    raise InputError(first, remedy, details)


def _told(account: Account, bad: BadRow, place_is: str) -> str:
    column = f"column {bad.column}: " if bad.column else ""
    return f"{bad.path}, {place_is} {account.place(bad)}: {column}{bad.reason}"


def _cut(files: Iterable[File], reader: Reader) -> Iterator[Pieces]:
    """The pieces of some files; those of small files together."""
    held: list[Piece] = []
    size = 0
    for path, split in files:
        cut = reader.cut(path, split)
        if len(cut) > 1:
            yield from ((piece,) for piece in cut)
            continue
        held += cut
        size += source.size(path)
        if size >= _SMALL:
            yield tuple(held)
            held, size = [], 0
    if held:
        yield tuple(held)


class _Ingest(beam.DoFn):  # type: ignore[misc]
    """The first pass; yields one result for each bundle."""

    def __init__(self, plan: Plan, reader: Reader | None) -> None:
        self._plan, self._reader = plan, reader
        self._share: Share | None = None

    def start_bundle(self) -> None:
        self._share = None

    def process(self, element: Pieces | Block) -> None:
        self._share = self._share or Share(self._plan)
        _take(self._share, element, self._reader)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._share:
            yield _globally(self._share.close())


class _IngestAgain(beam.DoFn):  # type: ignore[misc]
    """The second pass, which does nothing if what the first one wrote can stay."""

    def __init__(self, plan: Plan, reader: Reader | None) -> None:
        self._plan, self._reader = plan, reader
        self._share: Share | None = None
        self._found: Findings | None = None

    def start_bundle(self) -> None:
        self._share = self._found = None

    def process(self, element: Pieces | Block, first: list[Result]) -> None:
        if self._found is None:
            self._found = _found(first, self._plan)
        if self._found.final:
            return
        self._share = self._share or Share(self._plan, self._found)
        _take(self._share, element, self._reader)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._share:
            yield _globally(self._share.close())


def _take(share: Share, element: Pieces | Block, reader: Reader | None) -> None:
    if isinstance(element, Block):
        share.take(element)
    elif reader:
        share.read(element, reader)


def _globally(result: Result) -> WindowedValue:
    return WindowedValue(result, GlobalWindow().max_timestamp(), [GlobalWindow()])


def _found(first: Iterable[Result], plan: Plan) -> Findings:
    """What all workers found in the first pass.

    Raises:
      InputError: too many rows are bad.
    """
    findings = functools.reduce(Findings.merge, (result.findings for result in first), Findings())
    return judged(findings, plan.config.bad_rows, plan.traits.place_is)


def _write_manifest(path: str, first: list[Result], second: list[Result], plan: Plan) -> None:
    found = _found(first, plan)
    results = first if found.final else second
    account = found.account
    manifest = Manifest(
        rows=account.rows,
        bad=account.bad,
        left_out=sum(result.left_out for result in results),
        kinds={name: int(kind) for name, kind in found.kinds.items()},
        shards=tuple(shard for result in results for shard in result.shards),
        quarantined=tuple(
            (*key, account.before(*key), file) for key, files in account.quarantined.items() for file in files
        ),
    )
    with source.create(path) as file:
        file.write(json.dumps(dataclasses.asdict(manifest)).encode())
