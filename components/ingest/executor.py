"""The executor of ExampleGen: a Beam pipeline over ranges of files that processes columns instead of rows.

The files are divided into ranges. A worker reads ranges, and checks, converts, splits and encodes their rows into
shards under temporary names. `bundle_writer` explains why a second pass may be necessary. At the end, this module
checks the counts, renames the shards to the names that readers look for, and writes the file of bad rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

from absl import logging
from tfx import types
from tfx.components.example_gen import utils, write_split
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from components.base.errors import InputError, MachineError, errors_of_beam
from components.base.files import is_remote
from components.base.limits import MOST_COLUMNS
from components.data import example_artifacts, examples, file_io, image_facts
from components.ingest import beam_pipeline, bigquery_reader, driver, input_files, quarantine, readers, side_files
from components.ingest.beam_pipeline import Manifest
from components.ingest.blocks import Reader, describe_matches
from components.ingest.bundle_writer import IngestSettings, guess_kinds
from components.ingest.column_types import Kind
from components.ingest.config import IngestConfig, SplitConfig
from components.ingest.shard_writer import Shard
from components.ingest.spilled_join import SideTables


class Executor(base_beam_executor.BaseBeamExecutor):  # type: ignore[misc]
    """Writes the Examples artifact from the user's files or query, in the form of TFX's ExampleGens.

    In addition to TFX's properties, the artifact records the number of rows that were read (`rows_read`), written to
    the splits (`rows_train`, `rows_eval`, ...), put in quarantine (`rows_quarantined`, in the file `quarantine`), left
    out in a gap between splits (`rows_left_out`), not selected by `data.where` (`rows_unselected`) and not kept by
    `data.sample` (`rows_sampled_out`), made by `data.windows` (`rows_made`), matched by every join as JSON (`joins`),
    and the types of the columns as JSON (`column_types`).
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Ingest the files that the driver resolved, or the rows of the query.

        Args:
          input_dict: Empty.
          output_dict: One artifact, `examples`.
          exec_properties: Properties of TFX's ExampleGens, with the IngestConfig as JSON in `custom_config`.

        Raises:
          InputError: If files cannot be read, too many rows are bad, or a split is empty.
          MachineError: If the files changed while they were read, or Beam's workers write to another disk.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        input_config, config = _read_input(exec_properties), driver.ingest_config(exec_properties)
        if config is None:
            raise ValueError("expected the section of the config in custom_config, received none")
        base = exec_properties.get(standard_component_specs.INPUT_BASE_KEY)
        artifact = artifact_utils.get_single_instance(output_dict[standard_component_specs.EXAMPLES_KEY])
        payload = exec_properties[standard_component_specs.OUTPUT_DATA_FORMAT_KEY]
        stored: examples.Format = "parquet" if payload == example_gen_pb2.FORMAT_PARQUET else "tfrecord"
        parts = file_io.join(artifact.uri, ".parts")
        fileio.makedirs(parts)
        try:
            position_unit, manifest = self._run(input_config, base, config, parts, stored)
            _check_images(input_config, base, config, exec_properties.get(utils.FINGERPRINT_PROPERTY_NAME))
            _check_columns(manifest.kinds)
            _check_counts(manifest, config)
            _commit(manifest.shards, artifact.uri, stored)
            if manifest.bad:
                folder = file_io.join(artifact.uri, quarantine.FOLDER)
                fileio.makedirs(folder)
                written = quarantine.write(manifest.quarantined, position_unit, folder)
                artifact.set_string_custom_property("quarantine", written)
                logging.warning("%d bad rows are in quarantine: %s", manifest.bad, written)
        finally:
            fileio.rmtree(parts)
        _describe(artifact, manifest, config, exec_properties)

    def _run(
        self,
        input_config: example_gen_pb2.Input,
        base: str | None,
        config: IngestConfig,
        parts: str,
        stored: examples.Format,
    ) -> tuple[str, Manifest]:
        """Run the Beam pipeline, which writes to the folder `parts`; return the position unit and the manifest."""
        path = file_io.join(parts, "manifest.json")
        reader: Reader | None = None
        before: dict[str, tuple[int, int]] = {}
        size: int | None = None
        with errors_of_beam(), self._make_beam_pipeline() as pipeline:
            if config.bigquery:
                query = input_config.splits[0].pattern
                elements = bigquery_reader.blocks(pipeline, query, config, config.bigquery)
                settings = IngestSettings(config, bigquery_reader.PROPERTIES, parts, stored)
            else:
                files_by_span = list(_list_files(input_config, base or "").values())
                files = list(itertools.chain.from_iterable(files_by_span))
                side_paths = [(path, None) for side in side_files.find(config) for path in side.paths]
                before = {path: file_io.stat(path) for path, _ in (*files, *side_paths) if not is_remote(path)}
                paths = [path for path, _ in files]
                tables = SideTables(config, parts)
                reader = readers.reader(config, paths, tables.previews)
                settings = IngestSettings(config, reader.properties, parts, stored, by_span=len(files_by_span) > 1)
                if config.windows:
                    # A series may have rows in several spans.
                    settings = dataclasses.replace(settings, by_span=False)
                    size = sum(file_io.size(path) for path, _ in files)
                settings = _add_guess(settings, files, reader)
                elements = tables.spill(beam_pipeline.file_ranges(pipeline, files_by_span, reader), paths)
                reader = readers.reader(config, paths, tables.joins)
            beam_pipeline.ingest(elements, settings, reader, path, size)
        _check_unchanged(before)
        if not fileio.exists(path):
            raise MachineError(
                f"expected Beam's workers to write to {parts}, received nothing: they use another disk",
                "mount the folder in the workers under this path, or store data and artifacts where both reach them",
            )
        return settings.properties.position_unit, Manifest.read(path)


def _list_files(input_config: example_gen_pb2.Input, base: str) -> dict[str, list[beam_pipeline.File]]:
    """Return span → files with their predefined splits; see `Driver` for the names of the splits.

    Raises:
      InputError: If two patterns match the same file.
    """
    spans: dict[str, list[beam_pipeline.File]] = {}
    matched: set[str] = set()
    for split in input_config.splits:
        for path in input_files.listing(base, split.pattern):
            if path in matched:
                raise InputError(
                    f"data.path: {path} is matched twice",
                    "give paths, or file patterns of data.split, that do not match the same file",
                )
            matched.add(path)
            spans.setdefault(_parse_span(split), []).append((path, input_files.split_of(split.name)))
    return spans


def _parse_span(split: example_gen_pb2.Input.Split) -> str:
    """Return the span in the name of an input split; "" if the run reads a single span."""
    return str(split.name.partition("/")[2])


def _add_guess(settings: IngestSettings, files: Sequence[beam_pipeline.File], reader: Reader) -> IngestSettings:
    """Return the settings with kinds that are guessed from up to three files."""
    sample = dict.fromkeys([files[0], files[len(files) // 2], files[-1]])
    first_ranges = [reader.first_range(path, split) for path, split in sample]
    return dataclasses.replace(settings, guess=guess_kinds(settings, first_ranges, reader))


def _read_input(exec_properties: dict[str, Any]) -> example_gen_pb2.Input:
    """Return the input that the driver resolved."""
    message = example_gen_pb2.Input()
    proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], message)
    return message


def _check_unchanged(before: Mapping[str, tuple[int, int]]) -> None:
    """Check that local files have the same size and modification time as before they were read.

    New files are ignored, because they were not read. Deleted files are ignored, because they were read completely.

    Raises:
      MachineError: If the size or modification time of a file changed.
    """
    for path, expected in before.items():
        with contextlib.suppress(FileNotFoundError):
            received = file_io.stat(path)
            if received != expected:
                raise MachineError(
                    f"data.path: {path} changed while it was read: expected {expected[0]:,} bytes, received "
                    f"{received[0]:,}",
                    _NOT_WRITTEN,
                )


def _check_images(
    input_config: example_gen_pb2.Input, base: str | None, config: IngestConfig, fingerprint: str | None
) -> None:
    """Check that the images that tables name did not change since the driver computed the fingerprint.

    Raises:
      MachineError: If they changed.
    """
    if base and fingerprint and config.images.path_column is not None:
        images = driver.fingerprint_of_images(base, input_config, config)
        if images not in fingerprint.splitlines():
            raise MachineError(
                f"data.images: the files changed while they were read: expected {fingerprint.splitlines()[-1]}, "
                f"received {images}",
                _NOT_WRITTEN,
            )


def _check_columns(columns: Sized) -> None:
    """Check the number of columns of a query's result. For files, it was checked before the run."""
    if len(columns) > MOST_COLUMNS:
        raise InputError(
            f"data: expected at most {MOST_COLUMNS:,} columns, received {len(columns):,}",
            "name the columns to read in data.columns, or select fewer columns in the query",
        )


def _check_counts(manifest: Manifest, config: IngestConfig) -> None:
    written = sum(shard.rows for shard in manifest.shards)
    excluded = manifest.left_out + manifest.unselected + manifest.sampled_out
    expected = manifest.rows if manifest.made is None else manifest.made + manifest.bad + manifest.unselected
    if written + manifest.bad + excluded != expected:
        raise MachineError(
            f"expected {expected} rows, as many as were read, received {written} written, {manifest.bad} in "
            f"quarantine and {excluded} left out: a file changed during the run",
            "run again when no file is being written",
        )
    for number, (join, matches) in enumerate(zip(config.join, manifest.matches, strict=True)):
        if matches.rows and not matches.matched:
            raise InputError(
                f"data.join[{number}]: expected rows that match {', '.join(join.path)}, received none of "
                f"{matches.rows:,} rows: {matches.example or 'the data has only missing keys'}",
                "write the keys in the same way in both tables (letters, spaces, zeros in front, time zone), or remove "
                "the join",
            )
    if manifest.rows and manifest.rows == manifest.unselected:
        raise InputError(
            f"data.where: expected rows that fulfil {config.where!r}, received none of {manifest.rows} rows",
            "change the condition; a comparison with a missing value is not fulfilled",
        )
    parts = config.sample.parts if config.sample else ()
    for part, rows in zip(parts, manifest.rows_by_part, strict=False):
        if not rows:
            condition = f"{'not ' if part.is_negated else ''}{part.condition}"
            raise InputError(
                f"data.sample.label: expected rows with {condition!r}, received none of {manifest.rows} rows",
                "name values of the label",
            )
    for split in config.split.names():
        if not any(shard.split == split for shard in manifest.shards):
            raise InputError(
                f"the split {split} got none of the {manifest.rows} rows",
                "add rows, or set data.split to other shares or columns; "
                "rows that differ only in the label are in one split",
            )


def _commit(written: Iterable[Shard], uri: str, stored: examples.Format) -> None:
    """Rename the complete shards to the names of TFX's ExampleGens."""
    prefix, suffix = _NAMES[stored]
    for split, shards in itertools.groupby(sorted(written), key=lambda shard: shard.split):
        folder = file_io.join(uri, f"Split-{split}")
        fileio.makedirs(folder)
        split_shards = list(shards)
        for number, shard in enumerate(split_shards):
            name = f"{prefix}-{number:05d}-of-{len(split_shards):05d}{suffix}"
            fileio.rename(shard.path, file_io.join(folder, name), overwrite=True)
            if shard.images:
                images = file_io.join(uri, image_facts.FOLDER)
                fileio.makedirs(images)
                name = image_facts.file_name(split, number, len(split_shards))
                fileio.rename(shard.images, file_io.join(images, name), overwrite=True)


def _describe(
    artifact: types.Artifact, manifest: Manifest, config: IngestConfig, exec_properties: dict[str, Any]
) -> None:
    split = config.split
    artifact.split_names = artifact_utils.encode_split_names(split.names())
    examples_utils.set_payload_format(artifact, exec_properties[standard_component_specs.OUTPUT_DATA_FORMAT_KEY])
    examples_utils.set_file_format(
        artifact, write_split.to_file_format_str(exec_properties[standard_component_specs.OUTPUT_FILE_FORMAT_KEY])
    )
    spans = {int(_parse_span(part)) for part in _read_input(exec_properties).splits if _parse_span(part)}
    if spans:
        artifact.set_string_custom_property(example_artifacts.SPANS, json.dumps(sorted(spans)))
    counts = {"read": manifest.rows, "quarantined": manifest.bad, "left_out": manifest.left_out}
    counts |= {"unselected": manifest.unselected, "sampled_out": manifest.sampled_out}
    counts |= {} if manifest.made is None else {"made": manifest.made}
    counts |= {name: sum(shard.rows for shard in manifest.shards if shard.split == name) for name in split.names()}
    for name, count in counts.items():
        artifact.set_int_custom_property(f"rows_{name}", count)
    warn_of_shares({name: counts[name] for name in split.names()}, split)
    column_types = {name: _TYPES[Kind(kind)] for name, kind in sorted(manifest.kinds.items())}
    artifact.set_string_custom_property("column_types", json.dumps(column_types))
    artifact.set_string_custom_property("files_read", json.dumps(manifest.files))
    if joins := describe_matches(config.join, manifest.matches):
        artifact.set_string_custom_property("joins", json.dumps(joins))
        logging.info("data.join: %s", joins)
    for name, read in sorted(manifest.files.items()):
        logging.info("read %s: %d files, %d rows", name, read["files"], read["rows"])
    logging.info("rows: %s; types of the columns: %s", counts, column_types)


def warn_of_shares(rows: Mapping[str, int], split: SplitConfig) -> None:
    """Warn about splits whose share of the rows is far from the configured share.

    Equal rows are always in the same split, so a table with few distinct rows cannot be divided evenly.

    Args:
      rows: Split name → number of rows.
      split: Section `data.split` of the config. Only shares by a hash are compared.
    """
    parts = {name: part for name, part in split.parts().items() if isinstance(part, int)}
    total = sum(rows.values())
    if split.by not in ("hash", "group") or total < _FEWEST_ROWS_OF_SHARES:
        return
    for name, part in parts.items():
        expected, received = part / sum(parts.values()), rows[name] / total
        if abs(received - expected) > _MOST_DIFFERENCE_OF_SHARES:
            logging.warning(
                "data.split: expected %.0f %% of the rows in the split %s, received %.0f %%, because few rows are "
                "distinct and equal rows are in the same split; set data.split.columns to an ID",
                100 * expected,
                name,
                100 * received,
            )


_FEWEST_ROWS_OF_SHARES = 1_000
"""Minimum number of rows for a warning. With fewer rows, shares differ by chance."""
_MOST_DIFFERENCE_OF_SHARES = 0.1


_NAMES: Mapping[examples.Format, tuple[str, str]] = {
    "parquet": (write_split.DEFAULT_PARQUET_FILE_NAME, ".parquet"),
    "tfrecord": (write_split.DEFAULT_TF_RECORD_FILE_NAME, ".gz"),
}
"""Format → prefix and suffix of the names of files."""
_NOT_WRITTEN = (
    "run again when the files are complete; a writer should write a temporary file and rename it when complete"
)
_TYPES = {Kind.MISSING: "missing", Kind.INT: "int", Kind.FLOAT: "float", Kind.BYTES: "bytes"}
