"""What ExampleGen runs: a Beam pipeline over pieces of files that works on columns, not on rows.

The files are cut into pieces. A worker reads its pieces, checks, converts, splits and encodes them into shards under
temporary names, and tells what it found; see `share` for why there may be a second pass. Last, here: the counts are
compared, the shards get the names that readers look for, and the bad rows are put beside them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging
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
from components.ingest import bigquery, inputs, quarantine, source, work
from components.ingest.columns import Kind
from components.ingest.config import IngestConfig
from components.ingest.rows import Reader
from components.ingest.shards import Shard
from components.ingest.share import Plan, guess
from components.ingest.work import Manifest


class Executor(base_beam_executor.BaseBeamExecutor):  # type: ignore[misc]
    """Turns the user's files or query into the Examples artifact that TFX's own ExampleGens write.

    Beyond their properties the artifact carries how many rows were read (`rows_read`), how many went into each split
    (`rows_train`, `rows_eval`, ...), how many are in quarantine (`rows_quarantined`, in the file `quarantine`) and how
    many lie in a gap between splits (`rows_left_out`), and the type of each column as JSON (`column_types`).
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Ingests the files that the driver resolved, or the rows of the query.

        Args:
          input_dict: empty.
          output_dict: `examples`, the one artifact to fill.
          exec_properties: TFX's for ExampleGens; `custom_config` holds the IngestConfig as JSON.

        Raises:
          InputError: rows or files that cannot be taken, or a split without rows.
          MachineError: the files changed while they were read, or Beam's workers write to another disk.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        input_config, config = _configs(exec_properties)
        base = exec_properties.get(standard_component_specs.INPUT_BASE_KEY)
        artifact = artifact_utils.get_single_instance(output_dict[standard_component_specs.EXAMPLES_KEY])
        parts = source.join(artifact.uri, ".parts")
        fileio.makedirs(parts)
        try:
            place_is, manifest = self._run(input_config, base, config, parts)
            _check_counts(manifest, config.split.names())
            _commit(manifest.shards, artifact.uri)
            if manifest.bad:
                folder = source.join(artifact.uri, quarantine.FOLDER)
                fileio.makedirs(folder)
                written = quarantine.write(manifest.quarantined, place_is, folder)
                artifact.set_string_custom_property("quarantine", written)
                logging.warning("%d bad rows are in quarantine: %s", manifest.bad, written)
        finally:
            fileio.rmtree(parts)
        _describe(artifact, manifest, config.split.names(), exec_properties)

    def _run(
        self, input_config: example_gen_pb2.Input, base: str | None, config: IngestConfig, parts: str
    ) -> tuple[str, Manifest]:
        """Runs the Beam pipeline, which works in the folder `parts`; returns also what the place of a row is."""
        path = source.join(parts, "manifest.json")
        reader: Reader | None = None
        try:
            with self._make_beam_pipeline() as pipeline:
                if config.bigquery:
                    query = input_config.splits[0].pattern
                    elements = bigquery.blocks(pipeline, query, config, config.bigquery)
                    plan = Plan(config, bigquery.TRAITS, parts)
                else:
                    files = _files(input_config, base or "")
                    reader = inputs.reader(config, [file for file, _ in files])
                    plan = _plan(config, files, reader, parts)
                    elements = work.pieces(pipeline, files, reader)
                work.ingest(elements, plan, reader, path)
        except Exception as error:
            # Beam raises the text of what was raised in a worker.
            told = errors.find(error)
            raise told or error from error
        if not fileio.exists(path):
            raise MachineError(
                f"Beam's engine says that it is done, and has left nothing in {parts}",
                "let its workers see the folder under this very name, or put data and artifacts where both reach them",
            )
        return plan.traits.place_is, Manifest.read(path)


def _files(input_config: example_gen_pb2.Input, base: str) -> list[work.File]:
    """Every file, with the predefined split that it stands for; one file must not stand for two."""
    files: dict[str, str | None] = {}
    for split in input_config.splits:
        for path in source.listing(base, split.pattern):
            if path in files:
                raise InputError(
                    f"data.path: {path} is matched twice",
                    "give paths, or file patterns of data.split, that have no file in common",
                )
            files[path] = source.split_of(split.name)
    return list(files.items())


def _plan(config: IngestConfig, files: Sequence[work.File], reader: Reader, parts: str) -> Plan:
    """What the workers are told, with the types that a look into a few files makes one expect."""
    plan = Plan(config, reader.traits, parts)
    some = dict.fromkeys([files[0], files[len(files) // 2], files[-1]])
    heads = [reader.head(path, split) for path, split in some]
    return dataclasses.replace(plan, guess=guess(plan, heads, reader))


def _configs(exec_properties: dict[str, Any]) -> tuple[example_gen_pb2.Input, IngestConfig]:
    """Where the rows are, as the driver resolved it, and our section of the config."""
    input_config, custom = example_gen_pb2.Input(), example_gen_pb2.CustomConfig()
    proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], input_config)
    proto_utils.json_to_proto(exec_properties[standard_component_specs.CUSTOM_CONFIG_KEY], custom)
    section = wrappers_pb2.StringValue()
    custom.custom_config.Unpack(section)
    return input_config, IngestConfig.model_validate_json(section.value)


def _check_counts(manifest: Manifest, splits: Sequence[str]) -> None:
    written = sum(shard.rows for shard in manifest.shards)
    if written + manifest.bad + manifest.left_out != manifest.rows:
        raise MachineError(
            f"{manifest.rows} rows were read, but {written} written, {manifest.bad} set aside and {manifest.left_out} "
            "left out: a file changed in between",
            "run again while the files rest",
        )
    for split in splits:
        if not any(shard.split == split for shard in manifest.shards):
            raise InputError(
                f"the split {split} got none of the {manifest.rows} rows",
                "give more rows, or set data.split to other shares",
            )


def _commit(written: Iterable[Shard], uri: str) -> None:
    """Gives the complete shards the names that TFX's readers look for."""
    for split, shards in itertools.groupby(sorted(written), key=lambda shard: shard.split):
        folder = source.join(uri, f"Split-{split}")
        fileio.makedirs(folder)
        of_split = list(shards)
        for number, shard in enumerate(of_split):
            name = f"{write_split.DEFAULT_TF_RECORD_FILE_NAME}-{number:05d}-of-{len(of_split):05d}.gz"
            fileio.rename(shard.path, source.join(folder, name), overwrite=True)


def _describe(
    artifact: types.Artifact, manifest: Manifest, splits: Sequence[str], exec_properties: dict[str, Any]
) -> None:
    artifact.split_names = artifact_utils.encode_split_names(list(splits))
    examples_utils.set_payload_format(artifact, exec_properties[standard_component_specs.OUTPUT_DATA_FORMAT_KEY])
    examples_utils.set_file_format(
        artifact, write_split.to_file_format_str(exec_properties[standard_component_specs.OUTPUT_FILE_FORMAT_KEY])
    )
    counts = {"read": manifest.rows, "quarantined": manifest.bad, "left_out": manifest.left_out}
    counts |= {split: sum(shard.rows for shard in manifest.shards if shard.split == split) for split in splits}
    for name, count in counts.items():
        artifact.set_int_custom_property(f"rows_{name}", count)
    found = {name: _TYPES[Kind(kind)] for name, kind in sorted(manifest.kinds.items())}
    artifact.set_string_custom_property("column_types", json.dumps(found))
    logging.info("rows: %s; types of the columns: %s", counts, found)


_TYPES = {Kind.MISSING: "missing", Kind.INT: "int", Kind.FLOAT: "float", Kind.BYTES: "bytes"}
