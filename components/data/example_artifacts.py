"""Read Examples artifacts of TFX as record batches, regardless of the node that wrote them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.example_gen import write_split
from tfx.components.util import examples_utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts

from components.base.errors import InputError, MachineError
from components.data import file_io
from components.data.examples import Examples, Format
from components.data.tfrecord_writer import TfrecordWriter, frame_examples

SPANS = "spans"
"""Custom property of examples of several spans, with the numbers of the spans as JSON. Every file then contains rows of
a single span."""
_FORMATS: Mapping[int, Format] = {
    example_gen_pb2.FORMAT_TF_EXAMPLE: "tfrecord",
    example_gen_pb2.FORMAT_PARQUET: "parquet",
}


def format_of(artifact: standard_artifacts.Examples) -> Format | None:
    """Return the format of an artifact's rows; None if the rows are not tf.Examples, such as tf.SequenceExamples."""
    return _FORMATS.get(examples_utils.get_payload_format(artifact))


def splits_of(artifact: standard_artifacts.Examples) -> list[str]:
    """Return the names of an artifact's splits."""
    if artifact.has_custom_property(examples_utils.CUSTOM_SPLIT_PATTERN_PROPERTY_NAME):
        return list(json.loads(artifact.get_string_custom_property(examples_utils.CUSTOM_SPLIT_PATTERN_PROPERTY_NAME)))
    return list(artifact_utils.decode_split_names(artifact.split_names))


def examples_of(artifact: standard_artifacts.Examples, split: str, schema: schema_pb2.Schema | None = None) -> Examples:
    """Return the rows of one split of an artifact.

    Args:
      artifact: Raw or transformed examples.
      split: The name of the split.
      schema: Columns to read; see `Examples`.

    Raises:
      InputError: If the rows are not tf.Examples.
      MachineError: If the split does not have files.
      ValueError: If the artifact does not have the split.
    """
    stored = format_of(artifact)
    if stored is None:
        received = examples_utils.get_payload_format_string(artifact)
        raise InputError(
            f"{artifact.uri}: expected examples of FORMAT_TF_EXAMPLE or FORMAT_PARQUET, received {received}",
            "set data.tfrecord.payload to example",
        )
    (pattern,) = examples_utils.get_split_file_patterns([artifact], split)
    paths = tuple(sorted(file_io.file_system(pattern).glob(pattern)))
    if not paths:
        raise MachineError(f"{pattern}: expected files of examples, received none", "run again with --no-cache")
    return Examples(paths, stored, schema)


def write_tfrecords(
    artifact: standard_artifacts.Examples, folder: str, splits: Sequence[str], rows: int | None = None
) -> standard_artifacts.Examples:
    """Copy an artifact to TFX's default format: gzip-compressed TFRecords of tf.Examples.

    Args:
      artifact: Raw or transformed examples.
      folder: New folder, local or remote.
      splits: Splits to write.
      rows: Number of rows to write per split, from its start. If None, all rows.

    Returns:
      The new artifact. The names of its files are the names that TFX's components look for.

    Raises:
      InputError: If the rows are not tf.Examples.
      MachineError: If the examples cannot be read.
    """
    written = standard_artifacts.Examples()
    written.uri, written.split_names = folder, artifact_utils.encode_split_names(list(splits))
    examples_utils.set_payload_format(written, example_gen_pb2.FORMAT_TF_EXAMPLE)
    for split in splits:
        examples = examples_of(artifact, split)
        files = [(path,) for path in examples.paths] if rows is None else [examples.paths]
        uri = artifact_utils.get_split_uri([written], split)
        fileio.makedirs(uri)
        for number, paths in enumerate(files):
            name = f"{write_split.DEFAULT_TF_RECORD_FILE_NAME}-{number:05d}-of-{len(files):05d}.gz"
            writer = TfrecordWriter(file_io.join(uri, name))
            for batch in _first(dataclasses.replace(examples, paths=paths).batches(), rows):
                writer.write(frame_examples(batch))
            writer.close()
    return written


def _first(batches: Iterator[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches with the first `rows` rows, or all batches if `rows` is None."""
    if rows is None:
        yield from batches
        return
    while rows > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
