"""Write the tables of TensorFlow Lite Support's schema of metadata, `metadata_schema.fbs`, as a FlatBuffer.

Its Python package has generated code for this, but no wheel for Python 3.12.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import flatbuffers

Table: TypeAlias = "dict[int, Any]"
"""Number of a field → its value: a text, a Byte, an int (uint32), a float, a table, or a list of texts, floats or
tables."""

IDENTIFIER = b"M001"
IMAGE, FEATURE = 2, 1
"""Types of Content.content_properties."""
NORMALIZATION, SCORE_THRESHOLDING = 1, 3
"""Types of ProcessUnit.options."""
AXIS_LABELS = 2
"""AssociatedFile.type: a line of the file names a value of the tensor's last axis."""
RGB, GRAYSCALE = 1, 2
"""ImageProperties.color_space."""
PARSER_VERSION = "1.0.0"
"""Version of the oldest parser that reads all fields below."""

_FIELDS: dict[str, tuple[str, ...]] = {
    "ModelMetadata": (
        *("name", "description", "version", "subgraphs", "author", "license", "associated_files"),
        "min_parser_version",
    ),
    "SubGraphMetadata": ("name", "description", "inputs", "outputs"),
    "TensorMetadata": ("name", "description", "dimension_names", "content", "process_units", "stats", "files"),
    "Content": ("properties_type", "properties"),
    "FeatureProperties": (),
    "ImageProperties": ("color_space", "default_size"),
    "ImageSize": ("width", "height"),
    "ProcessUnit": ("options_type", "options"),
    "NormalizationOptions": ("mean", "std"),
    "ScoreThresholdingOptions": ("global_score_threshold",),
    "Stats": ("max", "min"),
    "AssociatedFile": ("name", "description", "type"),
}
"""Table → its fields in the order of their numbers; later fields are left out."""


class Byte(NamedTuple):
    """A number of an enumeration, or the type of a union."""

    value: int


def table(kind: str, **fields: Any) -> Table:
    """Return a table of the schema; fields that are None or empty are left out.

    Args:
      kind: Name of the table.
      fields: Values by name of the field.
    """
    return {_FIELDS[kind].index(name): value for name, value in fields.items() if value not in (None, "", [])}


def serialize(root: Table) -> bytes:
    """Return the content of a FlatBuffer with this table as its root."""
    builder = flatbuffers.Builder(0)
    builder.Finish(_write(builder, root), IDENTIFIER)
    return bytes(builder.Output())


def _write(builder: flatbuffers.Builder, value: Any) -> int:
    """Write a text, a list or a table, and return its offset."""
    if isinstance(value, str):
        return int(builder.CreateString(value))
    if isinstance(value, list):
        return _write_list(builder, value)
    # A table cannot be begun while another one is written, so write what it refers to first.
    offsets = {
        number: _write(builder, part) for number, part in value.items() if not isinstance(part, (Byte, int, float))
    }
    builder.StartObject(max(value, default=-1) + 1)
    for number, part in value.items():
        if isinstance(part, Byte):
            builder.PrependUint8Slot(number, part.value, 0)
        elif isinstance(part, int):
            builder.PrependUint32Slot(number, part, 0)
        elif isinstance(part, float):
            builder.PrependFloat32Slot(number, part, 0.0)
        else:
            builder.PrependUOffsetTRelativeSlot(number, offsets[number], 0)
    return int(builder.EndObject())


def _write_list(builder: flatbuffers.Builder, values: list[Any]) -> int:
    are_floats = isinstance(values[0], float)
    parts = values if are_floats else [_write(builder, value) for value in values]
    builder.StartVector(4, len(parts), 4)
    for part in reversed(parts):
        (builder.PrependFloat32 if are_floats else builder.PrependUOffsetTRelative)(part)
    return int(builder.EndVector())
