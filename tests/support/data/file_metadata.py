"""Read the metadata of a TensorFlow Lite file by the field numbers of the public schema `metadata_schema.fbs`."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import encode, number_types, packer, table


class Fields:
    """A table of a FlatBuffer, whose fields are read by number."""

    def __init__(self, content: bytes, position: int | None = None) -> None:
        root = encode.Get(packer.uoffset, content, 0) if position is None else position
        self._table = table.Table(content, root)

    def _offset(self, number: int) -> int:
        offset = self._table.Offset(4 + 2 * number)
        assert offset, f"field {number} is missing"
        return int(offset)

    def text(self, number: int) -> str:
        return self._table.String(self._offset(number) + self._table.Pos).decode()

    def byte(self, number: int) -> int:
        return int(self._table.Get(number_types.Uint8Flags, self._offset(number) + self._table.Pos))

    def uint32(self, number: int) -> int:
        return int(self._table.Get(number_types.Uint32Flags, self._offset(number) + self._table.Pos))

    def float32(self, number: int) -> float:
        return float(self._table.Get(number_types.Float32Flags, self._offset(number) + self._table.Pos))

    def fields(self, number: int) -> Fields:
        return Fields(self._table.Bytes, self._table.Indirect(self._offset(number) + self._table.Pos))

    def list_fields(self, number: int) -> list[Fields]:
        offset = self._offset(number)
        start, count = self._table.Vector(offset), self._table.VectorLen(offset)
        return [Fields(self._table.Bytes, self._table.Indirect(start + 4 * at)) for at in range(count)]

    def floats(self, number: int) -> list[float]:
        values: npt.NDArray[Any] = self._table.GetVectorAsNumpy(number_types.Float32Flags, self._offset(number))
        return values.tolist()  # type: ignore[no-any-return]

    def has(self, number: int) -> bool:
        return bool(self._table.Offset(4 + 2 * number))


def read_metadata(content: bytes) -> Fields:
    """Return the table ModelMetadata of a file."""
    model = schema.ModelT.InitFromPackedBuf(content)
    [index] = [entry.buffer for entry in model.metadata if entry.name == b"TFLITE_METADATA"]
    metadata = model.buffers[index].data.tobytes()
    assert metadata[4:8] == b"M001"
    return Fields(metadata)
