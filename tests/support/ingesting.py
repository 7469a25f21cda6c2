"""Runs ExampleGen as the pipeline does: its node, its driver, then its executor on Beam's runner in memory."""

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
from bad_rows import read as read_bad_rows
from tfx.components.example_gen import driver as stock
from tfx.components.example_gen.driver import QueryBasedDriver
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples

from components.errors import InputError
from components.ingest import inputs, quarantine, source, work
from components.ingest.component import example_gen
from components.ingest.config import DataConfig
from components.ingest.driver import Driver
from components.ingest.executor import Executor
from components.ingest.rows import Piece, Reader
from components.ingest.share import Findings, Plan, Result, Share, guess

BEAM = (
    "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner",
    "--direct_running_mode=in_memory",
    "--sdk_container_image=none",
)
TWO_WORKERS = (BEAM[0], "--direct_running_mode=multi_threading", "--direct_num_workers=2", BEAM[2])

Value = int | float | str | bytes | list[Any] | None
Row = dict[str, Value]


def data(path: object, **more: Any) -> DataConfig:
    """A config for files, or for several paths; any bad row ends the run unless told otherwise."""
    paths = [str(one) for one in path] if isinstance(path, list | tuple) else str(path)
    return DataConfig(**{"path": paths, "label": "a", "bad_rows": {"max_fraction": 0}, **more})


def ingest(
    config: DataConfig, out: Path, executor: type[BaseBeamExecutor] = Executor, beam: tuple[str, ...] = BEAM
) -> Examples:
    """The artifact `examples` of a run, in the folder `out`, after our driver has settled the files and the span."""
    node = example_gen(config)
    driver = (QueryBasedDriver if config.bigquery else Driver)(None)
    properties = driver.resolve_exec_properties(dict(node.exec_properties), None, None)
    examples = Examples()
    examples.uri = str(out)
    stock.update_output_artifact(properties, examples.mlmd_artifact)
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(beam), tmp_dir=str(out / "tmp"), unique_id="1")
    executor(context).Do({}, {"examples": [examples]}, properties)
    return examples


def refused(config: DataConfig, out: Path) -> InputError:
    """The error of a run that is to end without examples."""
    with pytest.raises(InputError) as raised:
        ingest(config, out)
    assert not [path for path in out.rglob("*") if path.is_file()]
    return raised.value


def records(examples: Examples, split: str) -> list[bytes]:
    """The examples of a split as a stock reader finds them, serialized."""
    pattern = artifact_utils.get_split_uri([examples], split) + "/*"
    found = tf.data.TFRecordDataset(tf.data.Dataset.list_files(pattern, shuffle=False), compression_type="GZIP")
    return list(found.as_numpy_iterator())


def rows(examples: Examples, split: str) -> list[Row]:
    """The examples of a split as Python values: text where it is UTF-8, a list where there is not one value."""
    return [_row(record) for record in records(examples, split)]


def by_split(examples: Examples) -> dict[str, list[Row]]:
    """The rows of each split, in an order that does not depend on how they were shared out between workers."""
    return {split: sorted(rows(examples, split), key=repr) for split in splits(examples)}


def all_rows(examples: Examples) -> list[Row]:
    """The rows of all splits, in such an order."""
    return sorted((row for of_split in by_split(examples).values() for row in of_split), key=repr)


def splits(examples: Examples) -> list[str]:
    """The names of the splits."""
    return list(artifact_utils.decode_split_names(examples.split_names))


def counts(examples: Examples) -> dict[str, int]:
    """The rows of each split as the artifact tells them, and those read, quarantined and left out.

    Checks that what was read went somewhere, and that the splits hold what the artifact says.
    """
    names = ["read", "quarantined", "left_out", *splits(examples)]
    found = {name: examples.get_int_custom_property(f"rows_{name}") for name in names}
    assert found["read"] == sum(found.values()) - found["read"]
    for split in splits(examples):
        assert len(records(examples, split)) == found[split] > 0
    return found


def types(examples: Examples) -> dict[str, str]:
    """The types of the columns as the artifact tells them."""
    found: dict[str, str] = json.loads(examples.get_string_custom_property("column_types"))
    return found


def bad_rows(examples: Examples) -> list[dict[str, Any]]:
    """What is in quarantine, each file by its name alone; as many rows as the artifact says."""
    (path,) = Path(examples.uri, quarantine.FOLDER).iterdir()
    found = read_bad_rows(str(path))
    assert len(found) == examples.get_int_custom_property("rows_quarantined")
    return [{**bad, "file": os.path.basename(bad["file"])} for bad in found]  # noqa: PTH119 - it may be no path


@dataclass(frozen=True)
class Shared:
    """What `share_out` made: the rows of each split, those in quarantine, the types, and the counts."""

    rows: dict[str, list[Row]]
    bad: list[dict[str, Any]]
    manifest: work.Manifest
    passes: int


def share_out(config: DataConfig, folder: Path, workers: int = 1) -> Shared:
    """The whole ingest but for Beam, which takes a second: pieces are dealt out to so many workers in turn.

    Args:
      config: the files, and how they are read.
      folder: a new folder for what is written.
      workers: how many workers there are.

    Raises:
      InputError: as the executor.
    """
    folder.mkdir()
    found_in = source.find(config)
    section = config.ingest(found_in.format)
    files = [(path, source.split_of(name)) for name, paths in source.files(config).items() for path in paths]
    reader = inputs.reader(section, [path for path, _ in files])
    plan = Plan(section, reader.traits, str(folder))
    plan = dataclasses.replace(plan, guess=guess(plan, [reader.head(*files[0])], reader))
    pieces = [piece for path, split in files for piece in reader.cut(path, split)]
    first = list(_worked(plan, None, pieces, reader, workers))
    found = work._found(first, plan)
    second = [] if found.final else list(_worked(plan, found, pieces, reader, workers))
    work._write_manifest(str(folder / "manifest.json"), first, second, plan)
    manifest = work.Manifest.read(str(folder / "manifest.json"))
    of_split: dict[str, list[Row]] = {}
    for shard in manifest.shards:
        read = tf.data.TFRecordDataset(shard.path, compression_type="GZIP").as_numpy_iterator()
        of_shard = [_row(record) for record in read]
        assert len(of_shard) == shard.rows
        of_split.setdefault(shard.split, []).extend(of_shard)
    bad = read_bad_rows(quarantine.write(manifest.quarantined, reader.traits.place_is, str(folder)))
    assert len(bad) == manifest.bad
    assert sum(map(len, of_split.values())) + manifest.bad + manifest.left_out == manifest.rows
    return Shared(of_split, bad, manifest, 1 if found.final else 2)


def _worked(plan: Plan, found: Findings | None, pieces: list[Piece], reader: Reader, workers: int) -> Iterator[Result]:
    for worker in range(workers):
        share = Share(plan, found)
        share.read(pieces[worker::workers], reader)
        yield share.close()


def canonical(record: bytes) -> bytes:
    """An example with its features in one order, and a list without values as what it means: a value that is missing.

    (TFX's CsvExampleGen writes an empty list there, which TFDV counts as a row that has the feature.)
    """
    example = tf.train.Example.FromString(record)
    for feature in example.features.feature.values():
        kind = feature.WhichOneof("kind")
        if kind and not getattr(feature, kind).value:
            feature.ClearField(kind)
    return bytes(example.SerializeToString(deterministic=True))


def example(**values: Any) -> bytes:
    """A serialized tf.Example; an empty list is one of bytes."""
    features = {}
    for name, given in values.items():
        listed = given if isinstance(given, list) else [given]
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


def _value(value: Any) -> Value:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
