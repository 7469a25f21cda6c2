"""Runs ExampleGen as the pipeline does: its node, its driver, then its executor on Beam's in-memory runner."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx.components.example_gen import driver as stock
from tfx.components.example_gen.driver import QueryBasedDriver
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples

from components.base.errors import InputError
from components.data import example_artifacts
from components.data.examples import Examples as BatchFiles
from components.data.examples import Format
from components.ingest import beam_pipeline, input_files, quarantine, readers
from components.ingest.blocks import FileRange, Reader
from components.ingest.bundle_writer import BundleResult, BundleWriter, FirstPassSummary, IngestSettings, guess_kinds
from components.ingest.component import example_gen
from components.ingest.config import DataConfig
from components.ingest.driver import Driver
from components.ingest.executor import Executor
from tests.support.data.bad_rows import read as read_bad_rows

BEAM = (
    "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner",
    "--direct_running_mode=in_memory",
    "--sdk_container_image=none",
)
TWO_WORKERS = (BEAM[0], "--direct_running_mode=multi_threading", "--direct_num_workers=2", BEAM[2])

FORMATS: tuple[Format, ...] = ("tfrecord", "parquet")
Value = int | float | str | bytes | list[Any] | None
Row = dict[str, Value]


def data(path: object, **more: Any) -> DataConfig:
    """Return a config for one or several paths; a bad row fails the run unless `more` allows it."""
    paths = [str(pattern) for pattern in path] if isinstance(path, list | tuple) else str(path)
    return DataConfig(**{"path": paths, "label": "a", "bad_rows": {"max_fraction": 0}, **more})


def ingest(
    config: DataConfig,
    out: Path,
    executor: type[BaseBeamExecutor] = Executor,
    beam: tuple[str, ...] = BEAM,
    stored: Format = "tfrecord",
) -> Examples:
    """Run driver and executor; return the artifact `examples`, in the folder `out`."""
    node = example_gen(config, None if config.bigquery else input_files.find(config), stored)
    driver = (QueryBasedDriver if config.bigquery else Driver)(None)
    properties = driver.resolve_exec_properties(dict(node.exec_properties), None, None)
    examples = Examples()
    examples.uri = str(out)
    stock.update_output_artifact(properties, examples.mlmd_artifact)
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(beam), tmp_dir=str(out / "tmp"), unique_id="1")
    executor(context).Do({}, {"examples": [examples]}, properties)
    return examples


def ingest_error(config: DataConfig, out: Path) -> InputError:
    """Return the error of a run that writes no examples."""
    with pytest.raises(InputError) as raised:
        ingest(config, out)
    assert not [path for path in out.rglob("*") if path.is_file()]
    return raised.value


def records(examples: Examples, split: str) -> list[bytes]:
    """Return the serialized examples of a split, read as a stock component reads them."""
    files = sorted(Path(artifact_utils.get_split_uri([examples], split)).iterdir())
    return [record for file in files for record in _read_records(file)]


def _read_records(file: str | Path) -> list[bytes]:
    # A tf.data.Dataset would trace a function for each file.
    return list(tf.compat.v1.io.tf_record_iterator(str(file), tf.io.TFRecordOptions("GZIP")))


def rows(examples: Examples, split: str) -> list[Row]:
    """Return the examples of a split as Python values: UTF-8 as text, and a list unless there is exactly one value."""
    if example_artifacts.format_of(examples) == "parquet":
        return _rows(example_artifacts.examples_of(examples, split))
    return [_row(record) for record in records(examples, split)]


def by_split(examples: Examples) -> dict[str, list[Row]]:
    """Return the rows of each split, in an order that does not depend on the workers."""
    return {split: sorted(rows(examples, split), key=repr) for split in splits(examples)}


def all_rows(examples: Examples) -> list[Row]:
    """Return the rows of all splits, in an order that does not depend on the workers."""
    return sorted((row for rows_by_split in by_split(examples).values() for row in rows_by_split), key=repr)


def splits(examples: Examples) -> list[str]:
    """Return the names of the splits."""
    return list(artifact_utils.decode_split_names(examples.split_names))


def counts(examples: Examples) -> dict[str, int]:
    """Return the row counts in the artifact's properties: per split, read, quarantined, left out and excluded.

    Check that the counts add up, and that they equal the numbers of rows in the splits.
    """
    names = ["read", "quarantined", "left_out", *splits(examples)]
    names += [name for name in ("unselected", "sampled_out") if examples.get_int_custom_property(f"rows_{name}")]
    result = {name: examples.get_int_custom_property(f"rows_{name}") for name in names}
    assert result["read"] == sum(result.values()) - result["read"]
    for split in splits(examples):
        assert len(rows(examples, split)) == result[split] > 0
    return result


def types(examples: Examples) -> dict[str, str]:
    """Return the types of the columns in the artifact's properties."""
    result: dict[str, str] = json.loads(examples.get_string_custom_property("column_types"))
    return result


def bad_rows(examples: Examples) -> list[dict[str, Any]]:
    """Return the rows in quarantine with the names of their files; check their number with the artifact's property."""
    (path,) = Path(examples.uri, quarantine.FOLDER).iterdir()
    result = read_bad_rows(str(path))
    assert len(result) == examples.get_int_custom_property("rows_quarantined")
    return [{**bad, "file": os.path.basename(bad["file"])} for bad in result]  # noqa: PTH119 - it may be no path


@dataclass(frozen=True)
class Shared:
    """The result of `run_without_beam`: rows by split, rows in quarantine, manifest, and number of passes."""

    rows: dict[str, list[Row]]
    bad: list[dict[str, Any]]
    manifest: beam_pipeline.Manifest
    passes: int


def run_without_beam(config: DataConfig, folder: Path, workers: int = 1) -> Shared:
    """Run the ingest without Beam, whose start takes a second: ranges go to the workers in turn.

    Checks that both formats get the same rows.

    Args:
      config: the files, and how they are read.
      folder: a new folder for what is written.
      workers: Number of workers.

    Raises:
      InputError: as the executor.
    """
    folder.mkdir()
    result, columns = (_run_once(config, folder / file_format, workers, file_format) for file_format in FORMATS)
    assert {split: list(map(_present, row)) for split, row in columns.rows.items()} == {
        split: list(map(_present, row)) for split, row in result.rows.items()
    }
    return result


def _present(row: Row) -> str:
    """Return the non-missing values of a row; a tf.Example may lack a feature, and other formats hold None instead."""
    return repr({name: value for name, value in row.items() if value is not None})


def _run_once(config: DataConfig, folder: Path, workers: int, stored: Format) -> Shared:
    folder.mkdir()
    found_in = input_files.find(config)
    section = config.ingest(found_in.format)
    files = [(path, input_files.split_of(name)) for name, paths in input_files.files(config).items() for path in paths]
    reader = readers.reader(section, [path for path, _ in files])
    settings = IngestSettings(section, reader.properties, str(folder), stored)
    settings = dataclasses.replace(settings, guess=guess_kinds(settings, [reader.first_range(*files[0])], reader))
    file_ranges = [file_range for path, split in files for file_range in reader.ranges(path, split)]
    first = list(_run_workers(settings, None, file_ranges, reader, workers))
    result = beam_pipeline._summarize(first, settings)
    second = [] if result.is_final else list(_run_workers(settings, result, file_ranges, reader, workers))
    beam_pipeline._write_manifest(str(folder / "manifest.json"), first, second, settings)
    manifest = beam_pipeline.Manifest.read(str(folder / "manifest.json"))
    rows_by_split: dict[str, list[Row]] = {}
    for shard in manifest.shards:
        if stored == "parquet":
            shard_rows = _rows(BatchFiles((shard.path,), stored))
        else:
            shard_rows = [_row(record) for record in _read_records(shard.path)]
        assert len(shard_rows) == shard.rows
        rows_by_split.setdefault(shard.split, []).extend(shard_rows)
    bad = read_bad_rows(quarantine.write(manifest.quarantined, reader.properties.position_unit, str(folder)))
    assert len(bad) == manifest.bad
    excluded = manifest.left_out + manifest.unselected + manifest.sampled_out
    assert sum(map(len, rows_by_split.values())) + manifest.bad + excluded == manifest.rows
    return Shared(rows_by_split, bad, manifest, 1 if result.is_final else 2)


def _run_workers(
    settings: IngestSettings,
    first_pass: FirstPassSummary | None,
    file_ranges: list[FileRange],
    reader: Reader,
    workers: int,
) -> Iterator[BundleResult]:
    for worker in range(workers):
        writer = BundleWriter(settings, first_pass)
        writer.read(file_ranges[worker::workers], reader)
        yield writer.close()


def canonical(record: bytes) -> bytes:
    """Return an example with sorted features, and with a missing value instead of a list without values.

    TFX's CsvExampleGen writes an empty list for a missing value, which TFDV counts as a row with the feature.
    """
    example = tf.train.Example.FromString(record)
    for feature in example.features.feature.values():
        kind = feature.WhichOneof("kind")
        if kind and not getattr(feature, kind).value:
            feature.ClearField(kind)
    return bytes(example.SerializeToString(deterministic=True))


def example(**values: Any) -> bytes:
    """Return a serialized tf.Example; an empty list becomes an empty bytes list."""
    features = {}
    for name, value in values.items():
        listed = value if isinstance(value, list) else [value]
        if listed and isinstance(listed[0], int):
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=listed))
        elif listed and isinstance(listed[0], float):
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=listed))
        else:
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=listed))
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _row(record: bytes) -> Row:
    row: Row = {}
    for name, feature in tf.train.Example.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        values = [_value(value) for value in getattr(feature, kind).value] if kind else []
        row[name] = None if kind is None else values[0] if len(values) == 1 else values
    return {name: row[name] for name in sorted(row)}


def _rows(files: BatchFiles) -> list[Row]:
    lists = [row for batch in files.batches() for row in batch.to_pylist()]
    return [{name: _first_or_all(row[name]) for name in sorted(row)} for row in lists]


def _first_or_all(values: list[Any] | None) -> Value:
    if values is None:
        return None
    converted = list(map(_value, values))
    return converted[0] if len(converted) == 1 else converted


def _value(value: Any) -> Value:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
