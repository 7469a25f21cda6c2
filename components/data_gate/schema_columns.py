"""Reads the columns of a curated schema without importing TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

from components.base.errors import InputError
from components.base.files import read_text
from components.features.base_op import Dtype

_MAX_BYTES = 100_000_000


@dataclass(frozen=True)
class SchemaColumn:
    """A column of a schema.

    Attributes:
      dtype: Type of the column. None if the schema does not set it.
      required: Whether the schema requires the column to be present.
      texts: Number of strings in the domain of the column. None if it does not have a domain.
    """

    dtype: Dtype | None
    required: bool
    texts: int | None = None


def read(path: str) -> dict[str, SchemaColumn]:
    """Read the columns of a schema file.

    Args:
      path: Path of the file, which contains a text proto of tensorflow.metadata.v0.Schema.

    Returns:
      The columns by name. Columns that the schema marks as deprecated or not yet in use are left out.

    Raises:
      InputError: The file does not exist, or does not contain a schema.
    """
    # Imported late because importing protobuf takes time, and most commands do not read the schema.
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        text = read_text(path, _MAX_BYTES)
    except FileNotFoundError:
        raise InputError(
            f"schema.path: there is no {path}", "name an existing schema, or remove schema.path to infer one"
        ) from None
    except OSError as error:
        raise InputError(
            f"schema.path: {path} cannot be read: {error.strerror}", "name a text proto of a TFX Schema"
        ) from error
    try:
        schema = text_format.Parse(text, schema_pb2.Schema())
    except text_format.ParseError as error:
        raise InputError(
            f"{path} is not a schema: {error}", "fix the line; a text proto of a TFX Schema is expected"
        ) from error
    dtypes: dict[int, Dtype] = {schema_pb2.INT: "int", schema_pb2.FLOAT: "float", schema_pb2.BYTES: "bytes"}
    domains = {domain.name: len(domain.value) for domain in schema.string_domain}
    return {
        feature.name: SchemaColumn(
            dtypes.get(feature.type),
            required=feature.presence.min_fraction > 0 or feature.presence.min_count > 0,
            texts=len(feature.string_domain.value)
            if feature.HasField("string_domain")
            else domains.get(feature.domain),
        )
        for feature in schema.feature
        if feature.lifecycle_stage in (schema_pb2.UNKNOWN_STAGE, schema_pb2.PRODUCTION)
    }
