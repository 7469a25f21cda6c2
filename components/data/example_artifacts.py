"""Examples artifacts of TFX as record batches, whichever node wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts

from components.data import file_io
from components.data.examples import Examples, Format
from components.errors import InputError, MachineError

_FORMATS: Mapping[int, Format] = {
    example_gen_pb2.FORMAT_TF_EXAMPLE: "tfrecord",
    example_gen_pb2.FORMAT_PARQUET: "parquet",
}


def format_of(artifact: standard_artifacts.Examples) -> Format | None:
    """Returns how the rows of an artifact are stored; None: as SequenceExamples or other messages."""
    return _FORMATS.get(examples_utils.get_payload_format(artifact))


def splits_of(artifact: standard_artifacts.Examples) -> list[str]:
    """Returns the names of an artifact's splits."""
    if artifact.has_custom_property(examples_utils.CUSTOM_SPLIT_PATTERN_PROPERTY_NAME):
        return list(json.loads(artifact.get_string_custom_property(examples_utils.CUSTOM_SPLIT_PATTERN_PROPERTY_NAME)))
    return list(artifact_utils.decode_split_names(artifact.split_names))


def examples_of(artifact: standard_artifacts.Examples, split: str, schema: schema_pb2.Schema | None = None) -> Examples:
    """Returns the rows of one split of an artifact.

    Args:
      artifact: raw or transformed examples.
      split: the name of the split.
      schema: the columns to read; see `Examples`.

    Raises:
      InputError: the rows are no tf.Examples.
      MachineError: the split has no files.
      ValueError: the artifact has no such split.
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
