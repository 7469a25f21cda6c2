"""Batch prediction as a Beam pipeline: files are read, predicted and written in ranges, in one pass.

A range is read as ExampleGen reads it, converted to the types that the model takes, and written to a file of its own
under a temporary name. So the predictions have the order of the rows, memory is bounded by a block of rows, and a range
that an engine repeats leaves at most a file that nobody reads.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import tensorflow as tf
from tfx.dsl.io import fileio

from components.data import file_io
from components.data.examples import to_lists
from components.errors import InputError, MachineError, errors_of_beam
from components.ingest import beam_pipeline, quarantine, readers
from components.ingest.beam_pipeline import FileRanges
from components.ingest.blocks import Block, Reader, RowCounts, RowLog, merge_small, without_bad_rows
from components.ingest.bundle_writer import IngestSettings, guess_kinds
from components.ingest.column_types import KINDS, Kind, as_kinds
from components.ingest.config import IngestConfig, SplitConfig
from components.names import did_you_mean
from components.predictor import output
from components.predictor.model_interface import ModelInterface
from components.predictor.plan import PredictionPlan

MANIFEST, _QUARANTINE = "_manifest.json", "_quarantine"
"""Readers of a folder of Parquet files leave out names that begin so."""
_PARTS = ".parts"
_NAME = "predictions"


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What was predicted; _manifest.json has these fields, and those of the model.

    Attributes:
      rows: rows read.
      predicted: rows with a prediction.
      quarantined: rows that could not be read or that the model does not take; they are in _quarantine/.
      columns: name → type of each column of the predictions.
      files: name → rows, bytes and SHA-256 of each file with predictions, in the order of the rows.
    """

    rows: int
    predicted: int
    quarantined: int
    columns: Mapping[str, str]
    files: Mapping[str, Mapping[str, int | str]]


def predict(
    files: Sequence[str],
    plan: PredictionPlan,
    model: ModelInterface,
    provenance: Mapping[str, Any],
    folder: str,
    make_pipeline: Callable[[], AbstractContextManager[beam.Pipeline]],
) -> Predictions:
    """Writes the predictions for the rows of files, and at last `_manifest.json`.

    Args:
      files: the files, of one format.
      plan: how they are read, and what is written.
      model: the model.
      provenance: further fields of the manifest, as JSON: which model it is.
      folder: an empty folder that exists, local or remote.
      make_pipeline: makes the Beam pipeline, which runs when its block ends.

    Raises:
      InputError: the files cannot be read, lack a column, or have too many bad rows.
      MachineError: Beam's workers write to another disk.
    """
    parts = file_io.join(folder, _PARTS)
    fileio.makedirs(parts)
    task = _task(files, plan, model, parts)
    result = file_io.join(parts, MANIFEST)
    with errors_of_beam(), make_pipeline() as pipeline:
        ranges = beam_pipeline.file_ranges(pipeline, [[(path, None) for path in files]], task.reader)
        predicted = ranges | "Predict" >> beam.Map(task.predict)
        _ = (
            pipeline
            | "Once" >> beam.Create([result])
            | "WriteResult" >> beam.Map(_write_result, beam.pvalue.AsList(predicted), task)
        )
    if not fileio.exists(result):
        raise MachineError(
            f"expected Beam's workers to write to {parts}, received nothing: they use another disk",
            "mount the folder in the workers under this path, or choose an output that both reach",
        )
    predictions = _commit(result, folder, task)
    fileio.rmtree(parts)
    manifest = {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "model": {**provenance, "signature": model.signature},
        "data": list(files),
        **dataclasses.asdict(predictions),
        "tensorflow": tf.__version__,
    }
    with file_io.create(file_io.join(folder, MANIFEST)) as file:
        file.write(json.dumps(manifest, indent=2).encode() + b"\n")
    return predictions


def _task(files: Sequence[str], plan: PredictionPlan, model: ModelInterface, parts: str) -> _Task:
    """Chooses the columns to read, and their types: those that the model takes, else those that the values have."""
    everything = plan.ingest.model_copy(update={"columns": (), "types": {}, "split": SplitConfig(train=1, eval=1)})
    reader = readers.reader(everything, files)
    block = next(iter(reader.read(reader.first_range(files[0], None), RowLog(None))), None)
    if block is None:
        raise InputError(f"{files[0]}: expected rows, received none", "name files with rows")
    first = block.columns.schema
    read = tuple(model.columns if model.columns is not None else first.names)
    for name in (*read, *plan.columns):
        if name not in first.names:
            raise InputError(
                f"{files[0]}: expected the column {name!r}, received none{did_you_mean(name, first.names)}",
                f"the model reads {', '.join(read)}; `columns` names columns of the data",
            )
    if model.columns is None:
        kinds = _kinds_of_values(files, reader, everything)
    else:
        kinds = {name: KINDS[type_] for name, type_ in model.columns.items()}
    kinds |= {name: KINDS[type_] for name, type_ in plan.ingest.types.items() if model.columns is None}
    if everything.format not in ("tfrecord", "images"):
        # Records are decoded as a whole, and images have the same columns always.
        wanted = tuple(dict.fromkeys((*read, *plan.columns)))
        reader = readers.reader(everything.model_copy(update={"columns": wanted}), files)
    passed = {name: _text_type(first.field(name).type) for name in plan.columns}
    return _Task(reader, model, read, kinds, passed, plan, parts)


def _kinds_of_values(files: Sequence[str], reader: Reader, config: IngestConfig) -> dict[str, Kind]:
    """The kinds of the columns in the first rows of three files."""
    some = dict.fromkeys([files[0], files[len(files) // 2], files[-1]])
    settings = IngestSettings(config, reader.properties, "", "parquet")
    return guess_kinds(settings, [reader.first_range(path, None) for path in some], reader)


class _Written(NamedTuple):
    """A file of predictions under its temporary name.

    Attributes:
      file: the file of its first row, by which it is sorted.
      number: the range of its first row.
      path: its own path.
      rows: number of rows.
      columns: name → type.
    """

    file: str
    number: int
    path: str
    rows: int
    columns: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class _Task:
    """What each worker does.

    Attributes:
      reader: reads the files.
      model: the model.
      read: the columns that the model reads.
      kinds: column that it reads → kind that its values are converted to.
      passed: column to pass through → its type.
      plan: what is written.
      parts: the folder for temporary files.
    """

    reader: Reader
    model: ModelInterface
    read: tuple[str, ...]
    kinds: Mapping[str, Kind]
    passed: Mapping[str, pa.DataType]
    plan: PredictionPlan
    parts: str

    def predict(self, ranges: FileRanges) -> tuple[RowCounts, _Written | None]:
        """Reads ranges of files and writes the predictions; None if no row has one."""
        log = RowLog(self.parts)
        path = file_io.join(self.parts, uuid.uuid4().hex)
        writer: output.Writer | None = None
        rows, types = 0, {}
        for block in merge_small(itertools.chain.from_iterable(self.reader.read(each, log) for each in ranges)):
            predicted = self._predicted(block, log)
            if predicted is not None:
                if writer is None:
                    writer = output.create(path, self.plan.format, predicted.schema)
                    types = {field.name: str(field.type) for field in predicted.schema}
                writer.write(predicted)
                rows += predicted.num_rows
        if writer is None:
            return log.close(), None
        writer.close()
        return log.close(), _Written(ranges[0].path, ranges[0].number, path, rows, types)

    def _predicted(self, block: Block, log: RowLog) -> pa.RecordBatch | None:
        """The rows of a block with their predictions; None if all are bad."""
        names = [name for name in self.read if name in block.columns.schema.names]
        selected = pa.RecordBatch.from_arrays([block.columns.column(name) for name in names], names)
        converted, bad = as_kinds(selected, self.kinds, self.reader.properties)
        if converted is not None:
            converted = to_lists(converted)
            bad = self.model.invalid(converted)
        if bad:
            rest = without_bad_rows(block, bad, log)
            return self._predicted(rest, log) if rest.columns.num_rows else None
        arrays = {name: self._passed(block.columns, name, type_) for name, type_ in self.passed.items()}
        predictions = output.columns(self.model.predict(converted))
        if both := arrays.keys() & predictions.keys():
            raise InputError(
                f"predict: the column {min(both)!r} has the name of a prediction", "do not name it in `columns`"
            )
        arrays |= predictions
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def _passed(self, columns: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array:
        at = columns.schema.get_field_index(name)
        column = pa.nulls(columns.num_rows) if at < 0 else columns.column(at)
        try:
            return column.cast(type_)
        except pa.ArrowException as error:
            raise InputError(
                f"column {name}: expected {type_} as in the first file, received {column.type}: {error}",
                "write it in the same way in all files",
            ) from error


def _text_type(type_: pa.DataType) -> pa.DataType:
    """The type of a column that is passed through: text is read as bytes."""
    return pa.string() if pa.types.is_binary(type_) else type_


def _write_result(path: str, results: list[tuple[RowCounts, _Written | None]], task: _Task) -> None:
    counts = functools.reduce(RowCounts.merge, (each for each, _ in results), RowCounts())
    unit = task.reader.properties.position_unit
    beam_pipeline.check_bad_rows(counts, task.plan.ingest.bad_rows, unit)
    result = {
        "rows": counts.rows,
        "quarantined": counts.bad,
        "bad_rows": [
            (*key, counts.positions_before(*key), path) for key, paths in counts.quarantined.items() for path in paths
        ],
        "written": sorted((each for _, each in results if each), key=lambda each: each[:2]),
    }
    with file_io.create(path) as file:
        file.write(json.dumps(result).encode())


def _commit(result: str, folder: str, task: _Task) -> Predictions:
    """Gives the files their names, and writes the bad rows."""
    with file_io.open_binary(result) as file:
        content = json.loads(file.read())
    rows, written = content["rows"], [_Written(*each) for each in content["written"]]
    if not written:
        raise InputError(f"expected rows to predict, received none of {rows} rows", "name files with rows")
    suffix = output.SUFFIXES[task.plan.format]
    files = {}
    for number, each in enumerate(written):
        name = f"{_NAME}-{number:05d}-of-{len(written):05d}{suffix}"
        fileio.rename(each.path, file_io.join(folder, name))
        files[name] = {"rows": each.rows, **_digest(file_io.join(folder, name))}
    if content["bad_rows"]:
        bad = file_io.join(folder, _QUARANTINE)
        fileio.makedirs(bad)
        quarantine.write(map(tuple, content["bad_rows"]), task.reader.properties.position_unit, bad)
    predicted = sum(each.rows for each in written)
    return Predictions(rows, predicted, content["quarantined"], written[0].columns, files)


def _digest(path: str) -> dict[str, int | str]:
    digest, size = hashlib.sha256(), 0
    with file_io.open_binary(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return {"bytes": size, "sha256": digest.hexdigest()}
