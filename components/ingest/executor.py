"""What ExampleGen runs: a Beam pipeline over the input files that works on record batches, not on rows.

First pass: every file is profiled, and the types, counts and bad rows of all are merged. Second pass: every bundle of
files is encoded into one shard for each split, under a temporary name. Last, here: the counts of both passes are
compared, and the shards get the names that readers look for.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue
from google.protobuf import wrappers_pb2
from tfx import types
from tfx.components.example_gen import write_split
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from components import errors
from components.errors import InputError, MachineError
from components.ingest import images, shards, source, table
from components.ingest.config import CsvConfig, IngestConfig
from components.ingest.shards import Shard
from components.ingest.table import Profile

_IMAGES_PER_ELEMENT = 256

Paths = tuple[str, ...]
Reader = Callable[[Paths, Profile], Iterator[pa.RecordBatch]]


class Executor(base_beam_executor.BaseBeamExecutor):  # type: ignore[misc]
    """Turns the user's files into the Examples artifact that TFX's own ExampleGens write.

    Beyond their properties the artifact carries how many rows were read (`rows_read`) and how many went into each
    split (`rows_train`, `rows_eval`, ...).
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Ingests the files that the driver resolved.

        Args:
          input_dict: empty.
          output_dict: `examples`, the one artifact to fill.
          exec_properties: TFX's for file-based ExampleGens; `custom_config` holds the IngestConfig as JSON.

        Raises:
          InputError: rows or files that cannot be taken, or a split without rows.
          MachineError: the files changed while they were read.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        input_config, config = _configs(exec_properties)
        paths = source.listing(exec_properties[standard_component_specs.INPUT_BASE_KEY], input_config.splits[0].pattern)
        artifact = artifact_utils.get_single_instance(output_dict[standard_component_specs.EXAMPLES_KEY])
        parts = source.join(artifact.uri, ".parts")
        fileio.makedirs(parts)
        try:
            rows, written = self._write(paths, config, parts)
            _check_counts(rows, written, config.split.buckets())
            _commit(written, artifact.uri)
        finally:
            fileio.rmtree(parts)
        _describe(artifact, rows, written, config.split.buckets(), exec_properties)

    def _write(self, paths: list[str], config: IngestConfig, parts: str) -> tuple[int, list[Shard]]:
        """Runs the Beam pipeline; returns how many rows it read, and the shards it wrote into the folder `parts`."""
        manifest = source.join(parts, "manifest.json")
        try:
            with self._make_beam_pipeline() as pipeline:
                elements, profile, reader = _source(pipeline, paths, config)
                written = elements | "WriteShards" >> beam.ParDo(
                    _WriteShards(reader, parts, config), beam.pvalue.AsSingleton(profile)
                )
                _ = (
                    pipeline
                    | "Once" >> beam.Create([manifest])
                    | "WriteManifest"
                    >> beam.Map(_write_manifest, beam.pvalue.AsSingleton(profile), beam.pvalue.AsIter(written))
                )
        except Exception as error:
            # Beam raises the text of what was raised in a worker.
            told = errors.find(error)
            raise told or error from error
        return _read_manifest(manifest)


def _source(
    pipeline: beam.Pipeline, paths: list[str], config: IngestConfig
) -> tuple[beam.PCollection, beam.PCollection, Reader]:
    """The files as elements, their merged profile as a collection of one, and what turns an element into batches."""
    if config.format == "images":
        # The names of the folders say all there is to know, so no pass over the files is needed.
        chunks = [tuple(paths[at : at + _IMAGES_PER_ELEMENT]) for at in range(0, len(paths), _IMAGES_PER_ELEMENT)]
        profile = pipeline | "Profile" >> beam.Create([Profile(rows=len(paths))])
        label = images.label_type(paths, config.types.get("label"))
        return _spread(pipeline, chunks), profile, functools.partial(_read_images, label=label)
    names = source.header(paths[0], config.csv).names
    source.check_types(config.types, names, "csv")
    elements = _spread(pipeline, [(path,) for path in paths])
    profile = (
        elements
        | "Profile" >> beam.Map(lambda one: table.profile(one[0], paths[0], names, config.csv, config.types))
        | "Merge" >> beam.CombineGlobally(table.merge)
        | "RefuseBadRows" >> beam.Map(_refuse_bad_rows)
    )
    return elements, profile, functools.partial(_read_csv, config=config.csv)


def _spread(pipeline: beam.Pipeline, elements: list[Paths]) -> beam.PCollection:
    return pipeline | "Files" >> beam.Create(elements) | "Spread" >> beam.Reshuffle()


def _refuse_bad_rows(profile: Profile) -> Profile:
    if error := profile.error():
        raise error
    return profile


def _read_csv(paths: Paths, profile: Profile, config: CsvConfig) -> Iterator[pa.RecordBatch]:
    for path in paths:
        yield from table.read(path, profile.kinds, config, profile.block)


def _read_images(paths: Paths, _: Profile, label: pa.DataType) -> Iterator[pa.RecordBatch]:
    return images.read(paths, label)


class _WriteShards(beam.DoFn):  # type: ignore[misc]
    """Encodes files; the files of one bundle share a shard for each split."""

    def __init__(self, reader: Reader, folder: str, config: IngestConfig) -> None:
        self._reader, self._folder = reader, folder
        self._buckets = config.split.buckets()
        # The same image twice, under two names, must not be trained on and evaluated with.
        self._by = ("image",) if config.format == "images" else None
        self._writer: shards.Writer | None = None

    def start_bundle(self) -> None:
        self._writer = None

    def process(self, paths: Paths, profile: Profile) -> None:
        if self._writer is None:
            self._writer = shards.Writer(self._folder, self._buckets, order=paths[0])
        for batch in self._reader(paths, profile):
            self._writer.write(batch, self._by)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for shard in self._writer.close() if self._writer else []:
            yield WindowedValue(shard, GlobalWindow().max_timestamp(), [GlobalWindow()])


def _write_manifest(path: str, profile: Profile, written: Iterable[Shard]) -> None:
    content = {"rows": profile.rows, "shards": [dataclasses.asdict(shard) for shard in written]}
    with fileio.open(path, "w") as file:
        file.write(json.dumps(content))


def _read_manifest(path: str) -> tuple[int, list[Shard]]:
    with fileio.open(path) as file:
        content = json.loads(file.read())
    return content["rows"], sorted(Shard(**shard) for shard in content["shards"])


def _configs(exec_properties: dict[str, Any]) -> tuple[example_gen_pb2.Input, IngestConfig]:
    """Where the files are, as the driver resolved it, and our section of the config."""
    input_config, custom = example_gen_pb2.Input(), example_gen_pb2.CustomConfig()
    proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], input_config)
    proto_utils.json_to_proto(exec_properties[standard_component_specs.CUSTOM_CONFIG_KEY], custom)
    section = wrappers_pb2.StringValue()
    custom.custom_config.Unpack(section)
    return input_config, IngestConfig.model_validate_json(section.value)


def _check_counts(rows: int, written: list[Shard], splits: Iterable[str]) -> None:
    total = sum(shard.rows for shard in written)
    if total != rows:
        raise MachineError(
            f"{rows} rows were read, but {total} written: a file changed in between", "run again while the files rest"
        )
    for split in splits:
        if not any(shard.split == split for shard in written):
            raise InputError(
                f"the split {split} got none of the {rows} rows", "give more rows, or set data.split to other shares"
            )


def _commit(written: list[Shard], uri: str) -> None:
    """Gives the complete shards the names that TFX's readers look for."""
    for split in sorted({shard.split for shard in written}):
        of_split = [shard for shard in written if shard.split == split]
        folder = source.join(uri, f"Split-{split}")
        fileio.makedirs(folder)
        for number, shard in enumerate(of_split):
            name = f"{write_split.DEFAULT_TF_RECORD_FILE_NAME}-{number:05d}-of-{len(of_split):05d}.gz"
            fileio.rename(shard.path, source.join(folder, name), overwrite=True)


def _describe(
    artifact: types.Artifact,
    rows: int,
    written: list[Shard],
    splits: Iterable[str],
    exec_properties: dict[str, Any],
) -> None:
    artifact.split_names = artifact_utils.encode_split_names(list(splits))
    examples_utils.set_payload_format(artifact, exec_properties[standard_component_specs.OUTPUT_DATA_FORMAT_KEY])
    examples_utils.set_file_format(
        artifact, write_split.to_file_format_str(exec_properties[standard_component_specs.OUTPUT_FILE_FORMAT_KEY])
    )
    artifact.set_int_custom_property("rows_read", rows)
    for split in splits:
        count = sum(shard.rows for shard in written if shard.split == split)
        artifact.set_int_custom_property(f"rows_{split}", count)
