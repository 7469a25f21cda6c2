"""Check the encoded images that rows already contain, such as the rows of TFRecord files."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator, Sequence

import pyarrow as pa

from components.base.errors import InputError
from components.data import image_facts
from components.data.arrow_columns import is_list
from components.data.image_facts import ImageFacts
from components.ingest import image_check
from components.ingest.blocks import Block, FileRange, Reader, RowLog, drop_rows, report_bad_rows


class EncodedImages:
    """Reads rows, and reports rows with an image that cannot be trained on.

    Args:
      rows: Reader of the rows.
      columns: Columns of encoded images. A row may lack an image. If a row has several images in a column, only the
        first image is used, as in the operation `image`.
      max_megapixels: Maximum number of pixels of an image, in millions.
    """

    def __init__(self, rows: Reader, columns: Sequence[str], max_megapixels: float) -> None:
        self._rows, self._columns, self._max_megapixels = rows, tuple(columns), max_megapixels
        self.properties = dataclasses.replace(rows.properties, files=(*rows.properties.files, *columns))

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Return the first range of the wrapped reader."""
        return self._rows.first_range(path, split)

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Return the ranges of the wrapped reader."""
        return self._rows.ranges(path, split)

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yield the rows of a range whose images can be trained on.

        Raises:
          InputError: If a column does not contain bytes, or the wrapped reader raises it.
        """
        for block in self._rows.read(file_range, row_log):
            good_rows = self._drop_bad_rows(block, row_log)
            if good_rows.columns.num_rows:
                yield good_rows

    def _drop_bad_rows(self, block: Block, row_log: RowLog) -> Block:
        bad: dict[int, tuple[str, str]] = {}
        facts: dict[str, list[ImageFacts | None]] = {}
        for column in self._columns:
            facts[column] = []
            for row, data in enumerate(_take_first_values(block, column)):
                facts_or_reason = image_check.examine(data, self._max_megapixels) if data else None
                if isinstance(facts_or_reason, str):
                    bad.setdefault(row, (column, facts_or_reason))
                facts[column].append(None if isinstance(facts_or_reason, str) else facts_or_reason)
        report_bad_rows(block, bad, row_log)
        names = [self._describe_origin(block, row) for row in range(block.columns.num_rows)]
        images = image_facts.batch(facts, dict.fromkeys(facts, names))
        with_facts = dataclasses.replace(block, images=images)
        return drop_rows(with_facts, bad) if bad else with_facts

    def _describe_origin(self, block: Block, row: int) -> str:
        origin, position = block.origin(row)
        part = f" part {origin.number + 1}," if origin.number else ""
        return f"{posixpath.basename(origin.path)},{part} {self.properties.position_unit} {position}"


def _take_first_values(block: Block, column: str) -> list[bytes | None]:
    """Return the first value of a column in every row; None in a row without values.

    Raises:
      InputError: If the column does not contain bytes.
    """
    at = block.columns.schema.get_field_index(column)
    if at < 0:
        return [None] * block.columns.num_rows
    array = block.columns.column(at)
    type_ = array.type.value_type if is_list(array.type) else array.type
    if not (pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_null(type_)):
        path = block.sources[0].file_range.path
        raise InputError(
            f"{path}: expected encoded images in the column {column}, received {type_}",
            "remove the column from data.images.encoded_columns, or from the columns with the operation image",
        )
    values = array.to_pylist()
    return [next(iter(value), None) if isinstance(value, list) else value for value in values]
