"""Vocabularies that remember values over several runs: admitted by their number of rows, evicted by their age.

Every run adds the rows of its training split to the counts of the model that it starts from. A value gets an ID once
its count reaches `min_frequency`, and is forgotten, with its count, if it had no row in the last `keep_runs` runs. The
counts are a file of the transform graph, which the Trainer copies into the model.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from components.base.errors import MachineError
from components.data import file_io
from components.features.accumulators import VocabularyAccumulator, VocabularyState

FOLDER = "id_ages"
"""Folder of the files in a transform graph and, inside of `assets.extra`, in a model."""
_SCHEMA = pa.schema({"text": pa.large_binary(), "count": pa.int64(), "last": pa.int64()})
_COUNTS = _SCHEMA.remove(2)
_MOST = 1 << 62


class IdAges(NamedTuple):
    """The values of a vocabulary and of candidates for it.

    Attributes:
      values: Values with the number of their rows, and the last run that had one; columns as in _SCHEMA.
      run: Number of the last run, from 1.
      source: What identifies the data of the last run.
    """

    values: pa.Table
    run: int
    source: str


class Change(NamedTuple):
    """What a run has changed in a vocabulary.

    Attributes:
      feature: Name of the vocabulary.
      run: Number of the run.
      entries: Number of values with an ID.
      candidates: Number of values that are counted, but do not have an ID.
      forgotten: Number of values that were forgotten.
    """

    feature: str
    run: int
    entries: int
    candidates: int
    forgotten: int

    def __str__(self) -> str:
        """Describe the change for the log."""
        return (
            f"{self.feature}: run {self.run}: {self.entries:,} values have an ID, {self.candidates:,} are counted "
            f"until they get one, {self.forgotten:,} were forgotten"
        )


@dataclass(frozen=True)
class AgedVocabularyAccumulator(VocabularyAccumulator):
    """Counts texts, and adds them to the counts of an earlier model.

    All distinct texts are in memory at the end, because rare texts may be frequent together with earlier runs.

    Attributes:
      name: Name of the vocabulary.
      keep_runs: Number of runs without a row after which a value is forgotten.
      earlier: Path of the earlier model's file; it need not exist. If None, there is no earlier model.
      source: What identifies the data. Data that the last run has counted are not counted again.
    """

    name: str
    keep_runs: int
    earlier: str | None = None
    source: str = ""

    def prune(self, state: VocabularyState) -> VocabularyState:
        """Drop texts that cannot be entries, and sort the others."""
        return VocabularyAccumulator(_MOST, 1, counts=False).prune(state)

    def result(self, state: VocabularyState) -> bytes:
        """Return the content of the vocabulary file. The state must be pruned."""
        return self._write_entries(self.count(state)[0].values)

    def count(self, state: VocabularyState) -> tuple[IdAges, Change]:
        """Add the counts of a pruned state to the earlier counts, and forget old values.

        Raises:
          MachineError: If the earlier file is damaged.
        """
        before = IdAges(_SCHEMA.empty_table(), 0, "") if self.earlier is None else read(self.earlier)
        is_new = before.source != self.source or not before.run
        run = before.run + is_new
        counted = pa.Table.from_batches(state, _COUNTS)
        counted = counted.append_column("last", pa.array([run] * counted.num_rows, pa.int64()))
        # The counts of the same data are a part of the earlier counts.
        rule = "sum" if is_new else "max"
        merged = pa.concat_tables([before.values, counted.cast(_SCHEMA)]).group_by("text")
        columns = merged.aggregate([("count", rule), ("last", "max")])
        merged = pa.table([columns[name] for name in ("text", f"count_{rule}", "last_max")], schema=_SCHEMA)
        values = merged.filter(pc.greater(merged["last"], run - self.keep_runs))
        entries = sum(batch.num_rows for batch in self._select(values))
        forgotten = merged.num_rows - values.num_rows
        change = Change(self.name, run, entries, values.num_rows - entries, forgotten)
        return IdAges(values, run, self.source), change

    def _select(self, values: pa.Table) -> VocabularyState:
        """Return the entries of the vocabulary and their counts, as a pruned state."""
        counts = values.select(_COUNTS.names).combine_chunks().to_batches()
        return VocabularyAccumulator(self.size, self.min_frequency, counts=False).prune(counts)

    def _write_entries(self, values: pa.Table) -> bytes:
        return VocabularyAccumulator(self.size, self.min_frequency, counts=False).result(self._select(values))

    def write(self, state: VocabularyState, graph: str, file: str) -> bytes:
        """Write the counts into the folder of a transform graph; return the content of the vocabulary file."""
        ages, change = self.count(state)
        metadata = {"run": str(ages.run), "source": ages.source, "change": "\t".join(map(str, change))}
        with file_io.create(_path(file_io.join(graph, FOLDER), file)) as stream:
            parquet.write_table(ages.values.replace_schema_metadata(metadata), stream)
        return self._write_entries(ages.values)

    def begin_with(self, model: str | None, file: str, source: str) -> AgedVocabularyAccumulator:
        """Return the same accumulator with an earlier model and the source of the data.

        Args:
          model: Folder of the SavedModel; None if there is no earlier model.
          file: Name of the vocabulary's file.
          source: What identifies the data.
        """
        path = None if model is None else _path(file_io.join(model, f"assets.extra/{FOLDER}"), file)
        return dataclasses.replace(self, earlier=path, source=source)


def read(path: str) -> IdAges:
    """Read the counts of a vocabulary; a vocabulary without a file was not remembered, so that nothing is counted yet.

    Raises:
      MachineError: If the file is damaged.
    """
    if not file_io.file_system(path).exists(path):
        return IdAges(_SCHEMA.empty_table(), 0, "")
    try:
        with file_io.open_binary(path) as stream:
            values = parquet.read_table(stream)
        metadata = values.schema.metadata
        return IdAges(values.cast(_SCHEMA), int(metadata[b"run"]), metadata[b"source"].decode())
    except (pa.ArrowInvalid, KeyError, TypeError) as error:
        raise MachineError(
            f"{path}: expected the counts of a vocabulary, received {error}",
            "train without warm_start, or bless another model",
        ) from error


def list_files(folder: str) -> list[str]:
    """Return the paths of the files in FOLDER of a transform graph; empty if no vocabulary is remembered."""
    path = file_io.join(folder, FOLDER)
    system = file_io.file_system(path)
    return [file_io.join(path, name) for name in sorted(system.listdir(path))] if system.exists(path) else []


def read_changes(folder: str) -> list[Change]:
    """Return what the run of a transform graph has changed."""
    changes = []
    for path in list_files(folder):
        with file_io.open_binary(path) as stream:
            name, *numbers = parquet.read_schema(stream).metadata[b"change"].decode().split("\t")
        changes.append(Change(name, *map(int, numbers)))
    return changes


def _path(folder: str, file: str) -> str:
    return file_io.join(folder, f"{file}.parquet")
