"""Batch prediction as a Beam pipeline that reads, predicts and writes ranges of files in one pass.

Every range is read as ExampleGen reads it, converted to the types that the model accepts, and written to a separate
file with a temporary name. The predictions therefore keep the order of the rows, and memory is bounded by a block of
rows. If a Beam runner repeats a range, the file of the first attempt is ignored.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import tensorflow as tf
from tfx.dsl.io import fileio

from components.base.errors import InputError, MachineError, errors_of_beam
from components.base.names import did_you_mean
from components.data import file_io, object_files, saved_model
from components.data.examples import to_lists
from components.features.expression import parse_condition
from components.ingest import beam_pipeline, quarantine, readers
from components.ingest.beam_pipeline import FileRanges
from components.ingest.blocks import (
    Block,
    FileRange,
    Reader,
    RowCounts,
    RowLog,
    describe_matches,
    merge_small,
    without_bad_rows,
)
from components.ingest.bundle_writer import IngestSettings, guess_kinds
from components.ingest.column_types import KINDS, Kind, as_kinds
from components.ingest.config import IngestConfig, SplitConfig
from components.ingest.series_partitions import Partition, SeriesReader, count_partitions, partition
from components.ingest.spilled_join import SideTables
from components.ingest.time_steps import Step
from components.ingest.window_config import HORIZON, ORIGIN
from components.predictor import output
from components.predictor.model_interface import ModelInterface
from components.predictor.plan import PredictionPlan

MANIFEST, _QUARANTINE = "_manifest.json", "_quarantine"
"""The names begin with an underscore because readers of a folder of Parquet files skip such names."""
_PARTS = ".parts"
_NAME = "predictions"

object_files.register()


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A summary of the predictions, which is part of `_manifest.json`.

    Attributes:
      rows: Number of rows read.
      predicted: Number of rows with a prediction.
      quarantined: Number of rows that could not be read, or that the model does not accept. They are in `_quarantine/`.
      columns: Name of a column of the predictions → its type.
      files: Name of a file of predictions → its rows, bytes and SHA-256, in the order of the rows.
      joins: Counts of the joins of `data.join`; see `describe_matches`.
    """

    rows: int
    predicted: int
    quarantined: int
    columns: Mapping[str, str]
    files: Mapping[str, Mapping[str, int | str]]
    joins: Sequence[Mapping[str, Any]] = ()


def predict(
    files: Sequence[str],
    plan: PredictionPlan,
    model: ModelInterface,
    provenance: Mapping[str, Any],
    folder: str,
    make_pipeline: Callable[[], AbstractContextManager[beam.Pipeline]],
) -> Predictions:
    """Predict the rows of files, and write the predictions to a folder.

    `_manifest.json` is written last, so a folder with a manifest is complete.

    Args:
      files: Files with the rows, all of the same format.
      plan: How the files are read, and what is written.
      model: How the model is called.
      provenance: Fields that identify the model in the manifest, as JSON values.
      folder: Existing empty folder, local or remote.
      make_pipeline: Creates the Beam pipeline, which runs when its `with` block ends.

    Raises:
      InputError: If the files cannot be read, lack a column, or contain too many bad rows.
      MachineError: If Beam's workers write to another disk.
    """
    parts = file_io.join(folder, _PARTS)
    fileio.makedirs(parts)
    tables = SideTables(plan.ingest, parts)
    task = _create_task(files, plan, model, parts, tables)
    result = file_io.join(parts, MANIFEST)
    with errors_of_beam(), make_pipeline() as pipeline:
        ranges = beam_pipeline.file_ranges(pipeline, [[(path, None) for path in files]], task.reader)
        elements = tables.spill(ranges, files)
        step, read_counts = None, []
        if task.series:
            settings = IngestSettings(task.series.config, task.reader.properties, parts, "parquet")
            size = sum(map(file_io.size, files))
            partitions = partition(elements, settings, task.reader, count_partitions(size))
            elements, read_counts = partitions.rows, beam.pvalue.AsList(partitions.counts)
            step = partitions.step if isinstance(partitions.step, Step) else beam.pvalue.AsSingleton(partitions.step)
        predicted = elements | "Predict" >> beam.Map(task.predict, step)
        _ = (
            pipeline
            | "Once" >> beam.Create([result])
            | "WriteResult" >> beam.Map(_write_result, beam.pvalue.AsList(predicted), task, read_counts)
        )
    if not fileio.exists(result):
        raise MachineError(
            f"expected Beam's workers to write to {parts}, received nothing: they use another disk",
            "mount the folder in the workers under this path, or choose an output that they can reach",
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


def _create_task(
    files: Sequence[str], plan: PredictionPlan, model: ModelInterface, parts: str, tables: SideTables
) -> _Task:
    """Choose the columns to read and their types.

    A model that takes serialized tf.Examples does not list its columns. All columns are then read, with the types that
    `data.types` names or that the first rows suggest.
    """
    windows = plan.ingest.windows
    split = plan.ingest.split if windows else SplitConfig(train=1, eval=1)
    all_columns = plan.ingest.model_copy(update={"columns": (), "types": {}, "split": split})
    reader = readers.reader(all_columns, files, tables.previews)
    block = next(iter(reader.read(reader.first_range(files[0], None), RowLog(None))), None)
    if block is None:
        raise InputError(f"{files[0]}: expected rows, received none", "name files with rows")
    schema = block.columns.schema
    names = list(schema.names)
    copied = plan.columns
    if windows:
        windows.check_columns(names)
        names += windows.added
        copied = tuple(dict.fromkeys((*windows.by, windows.time, HORIZON, *copied)))
    model_columns = tuple(model.columns if model.columns is not None else names)
    for name in (*model_columns, *plan.columns):
        if name not in names:
            raise InputError(
                f"{files[0]}: expected the column {name!r}, received none{did_you_mean(name, names)}",
                "add it to the data, remove it from `columns`, or give the config whose data.windows computes it; the "
                f"model reads {', '.join(model_columns)}",
            )
    if model.columns is None:
        kinds = _guess_kinds(files, reader, all_columns)
        kinds |= {name: KINDS[type_] for name, type_ in plan.ingest.types.items()}
        if windows:
            added = {**dict.fromkeys(windows.added, Kind.FLOAT), HORIZON: Kind.INT, ORIGIN: kinds[windows.time]}
            kinds |= {**added, windows.label: Kind.FLOAT}
    else:
        kinds = {name: KINDS[type_] for name, type_ in model.columns.items()}
    # A tf.Example is always decoded as a whole, and images always have the same columns: these formats do not support
    # the selection of columns.
    if all_columns.format not in ("tfrecord", "images"):
        columns = tuple(dict.fromkeys((*model_columns, *plan.columns)))
        if windows:
            columns = tuple(name for name in schema.names if name in (*columns, *windows.read) or name in _where(plan))
        all_columns = all_columns.model_copy(update={"columns": columns})
        reader = readers.reader(all_columns, files, tables.joins)
    copied_types = {name: _type_of_copy(schema.field(name).type) for name in copied if name in schema.names}
    if windows is None:
        return _Task(reader, model, model_columns, kinds, copied_types, plan, parts)
    copied_types = {name: _type_of_series(copied_types[name]) for name in copied_types}
    copied_types |= {name: pa.int64() if name == HORIZON else pa.float64() for name in copied if name in windows.added}
    if ORIGIN in copied:
        copied_types[ORIGIN] = copied_types[windows.time]
    # Rows with values that the model does not accept are bad before they are part of a series.
    unchecked = (windows.time, windows.label, *windows.past)
    checked = [name for name in model_columns if name in schema.names and name not in unchecked]
    types = {name: type_ for name, type_ in (model.columns or {}).items() if name in checked}
    config = all_columns.model_copy(update={"types": types})
    series = SeriesReader.create(config, reader.properties)
    return _Task(reader, model, model_columns, kinds, copied_types, plan, parts, series)


def _where(plan: PredictionPlan) -> tuple[str, ...]:
    """Return the columns of the condition that selects rows of series."""
    return () if plan.ingest.where is None else parse_condition(plan.ingest.where)[0].columns


def _guess_kinds(files: Sequence[str], reader: Reader, config: IngestConfig) -> dict[str, Kind]:
    """Guess the kinds of all columns from the first rows of the first file, the middle one and the last."""
    sampled_files = dict.fromkeys([files[0], files[len(files) // 2], files[-1]])
    settings = IngestSettings(config, reader.properties, "", "parquet")
    return guess_kinds(settings, [reader.first_range(path, None) for path in sampled_files], reader)


class _Part(NamedTuple):
    """A file of predictions with its temporary name.

    Attributes:
      source: Path of the input file that contains the first row. Parts are sorted by `source` and `number`.
      number: Number of the range in `source` that contains the first row.
      path: Path of the file of predictions.
      rows: Number of rows.
      columns: Name of a column → its type.
    """

    source: str
    number: int
    path: str
    rows: int
    columns: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class _Task:
    """The work of a Beam worker.

    Attributes:
      reader: Reader of the input files.
      model: How the model is called.
      model_columns: Columns that the model reads.
      kinds: Column that the model reads → kind that its values are converted to.
      copied_types: Column that is copied to the predictions → its type there.
      plan: How rows are read, and what is written.
      parts: Folder for temporary files.
      series: Makes the rows to predict from partitions of series. If None, the rows of the files are predicted.
    """

    reader: Reader
    model: ModelInterface
    model_columns: tuple[str, ...]
    kinds: Mapping[str, Kind]
    copied_types: Mapping[str, pa.DataType]
    plan: PredictionPlan
    parts: str
    series: SeriesReader | None = None

    def predict(self, element: FileRanges | Partition, step: Step | None = None) -> tuple[RowCounts, _Part | None]:
        """Read ranges of files or a partition of series, and write the predictions to a file.

        Args:
          element: The ranges, or the partition.
          step: The distance of two steps of series.

        Returns:
          Counts of the rows, and the file; None if all rows are bad. The rows of series are counted when they are read.
        """
        log = RowLog(self.parts)
        path = file_io.join(self.parts, uuid.uuid4().hex)
        writer: output.Writer | None = None
        rows, types = 0, {}
        for block in self._read(element, step, log):
            predictions = self._predict_block(block, log)
            if predictions is not None:
                if writer is None:
                    writer = output.create(path, self.plan.format, predictions.schema)
                    types = {field.name: str(field.type) for field in predictions.schema}
                writer.write(predictions)
                rows += predictions.num_rows
        if writer is None:
            return log.close(), None
        writer.close()
        first = element[0]
        source = (first.path, first.number) if isinstance(first, FileRange) else ("", first)
        return log.close(), _Part(*source, path, rows, types)

    def _read(self, element: Any, step: Step | None, log: RowLog) -> Iterator[Block]:
        if self.series is None:
            return merge_small(itertools.chain.from_iterable(self.reader.read(range_, log) for range_ in element))
        if step is None:
            raise ValueError("expected the distance of two steps of series, received none")
        return self.series.read(element, step, only_last=True)

    def _predict_block(self, block: Block, log: RowLog) -> pa.RecordBatch | None:
        """Return the copied columns of a block with its predictions; None if all rows are bad."""
        names = [name for name in self.model_columns if name in block.columns.schema.names]
        selected = pa.RecordBatch.from_arrays([block.columns.column(name) for name in names], names)
        converted, bad = as_kinds(selected, self.kinds, self.reader.properties)
        if converted is not None:
            converted = to_lists(converted)
            bad = self.model.invalid(converted)
        if bad:
            good_rows = without_bad_rows(block, bad, log)
            return self._predict_block(good_rows, log) if good_rows.columns.num_rows else None
        arrays = {name: self._copy_column(block.columns, name, type_) for name, type_ in self.copied_types.items()}
        predictions = saved_model.convert_outputs(self.model.predict(converted))
        if duplicates := arrays.keys() & predictions.keys():
            raise InputError(
                f"predict: the column {min(duplicates)!r} has the name of a prediction", "remove it from `columns`"
            )
        arrays |= predictions
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def _copy_column(self, columns: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array:
        # A block may lack a column, such as tf.Examples without any value for it.
        index = columns.schema.get_field_index(name)
        column = pa.nulls(columns.num_rows) if index < 0 else columns.column(index)
        try:
            return column.cast(type_)
        except pa.ArrowException as error:
            raise InputError(
                f"column {name}: expected {type_} as in the first file, received {column.type}: {error}",
                "use the same type in all files",
            ) from error


def _type_of_series(type_: pa.DataType) -> pa.DataType:
    """Return the type of a copied column of series, which are numbers of 64 bits or text."""
    if pa.types.is_integer(type_):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(type_) else pa.string()


def _type_of_copy(type_: pa.DataType) -> pa.DataType:
    """Return the type of a copied column. Readers return text as bytes, which becomes text again."""
    return pa.string() if pa.types.is_binary(type_) else type_


def _write_result(
    path: str, results: list[tuple[RowCounts, _Part | None]], task: _Task, read_counts: list[RowCounts]
) -> None:
    """Check the number of bad rows, and write the counts and the sorted parts as JSON, for `_commit`."""
    row_counts = (*read_counts, *(counts for counts, _ in results))
    counts = functools.reduce(RowCounts.merge, row_counts, RowCounts())
    unit = task.reader.properties.position_unit
    beam_pipeline.check_bad_rows(counts, task.plan.ingest.bad_rows, unit)
    result = {
        "rows": counts.rows,
        "quarantined": counts.bad,
        "joins": describe_matches(task.plan.ingest.join, counts.matches_of(task.plan.ingest.join)),
        "bad_rows": [
            (*key, counts.positions_before(*key), path) for key, paths in counts.quarantined.items() for path in paths
        ],
        "parts": sorted((part for _, part in results if part), key=lambda part: part[:2]),
    }
    with file_io.create(path) as file:
        file.write(json.dumps(result).encode())


def _commit(result: str, folder: str, task: _Task) -> Predictions:
    """Rename the parts to their final names, and write the bad rows to the quarantine."""
    with file_io.open_binary(result) as file:
        content = json.loads(file.read())
    rows, parts = content["rows"], [_Part(*fields) for fields in content["parts"]]
    if not parts:
        raise InputError(f"expected rows to predict, received none of {rows} rows", "name files with rows")
    suffix = output.SUFFIXES[task.plan.format]
    files = {}
    for number, part in enumerate(parts):
        name = f"{_NAME}-{number:05d}-of-{len(parts):05d}{suffix}"
        fileio.rename(part.path, file_io.join(folder, name))
        files[name] = {"rows": part.rows, **_compute_digest(file_io.join(folder, name))}
    if content["bad_rows"]:
        quarantine_folder = file_io.join(folder, _QUARANTINE)
        fileio.makedirs(quarantine_folder)
        quarantine.write(map(tuple, content["bad_rows"]), task.reader.properties.position_unit, quarantine_folder)
    predicted = sum(part.rows for part in parts)
    return Predictions(rows, predicted, content["quarantined"], parts[0].columns, files, content["joins"])


def _compute_digest(path: str) -> dict[str, int | str]:
    """Return the size and the SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with file_io.open_binary(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return {"bytes": size, "sha256": digest.hexdigest()}
