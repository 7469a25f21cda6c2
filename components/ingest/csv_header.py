"""Read the header of a text file, and detect early if a file is not the expected text."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from components.base.errors import InputError
from components.base.names import column_name
from components.data.compression import open_decompressed
from components.ingest.text_config import CsvConfig

_HEAD = 256 << 10
"""Bytes to read first, which contain most headers."""
_MAX_HEADER = 64 << 20
"""Maximum bytes of a header. A longer first row contains a quote that is never closed."""
_OTHER_FORMATS = (
    (rb"PK\x03\x04", "a zip archive or a spreadsheet", "unpack it, or save the sheet as CSV"),
    (rb"\xd0\xcf\x11\xe0", "a spreadsheet of Excel 97", "save the sheet as CSV"),
    (rb"PAR1", "a Parquet file", "set data.format to parquet, or give paths of one format"),
    (rb"\x89PNG", "a PNG image", "for images, set data.path to the folder with one folder per class"),
    (rb"\xff\xd8\xff", "a JPEG image", "for images, set data.path to the folder with one folder per class"),
    (rb"ARROW1", "an Arrow or Feather file", "save it as Parquet or CSV"),
    (rb"\x89HDF", "an HDF5 file", "save it as Parquet or CSV"),
    (rb"SQLite format 3", "a SQLite database", "export the table as CSV"),
    (rb"\x80[\x02-\x05]", "a Python pickle", "save it as Parquet or CSV"),
    (rb"\s*(\[\s*)?\{\s*\"", "JSON", "convert it to Parquet or CSV"),
    (rb"\s*<(!doctype|html)", "a web page", "download the data itself, not the page that links to it"),
)
"""Pattern of the first bytes of a file, what it is, and the remedy."""


@dataclass(frozen=True)
class Header:
    """The first row of a text file.

    Attributes:
      names: Names of the columns, in the form of `components.base.names.column_name`.
      lines: Number of lines of text in the header; 0 in a file without header.
      texts: The names as the file has them; empty in a file without header.
    """

    names: list[str]
    lines: int
    texts: tuple[str, ...] = field(default=(), compare=False)


def read_header(path: str, config: CsvConfig) -> Header:
    """Read the first row of a text file, and check that another row follows.

    Raises:
      InputError: If the file is not text or lacks rows, or its header contains an empty or duplicate name.
    """
    size = _HEAD
    while True:
        with open_decompressed(path) as file:
            head = file.read(size)
        if not head:
            raise _no_rows(path, "it is empty (0 bytes)")
        text = io.StringIO(_decode(path, head, config.encoding, len(head) < size), newline="")
        first, lines = _read_first_row(path, text, config)
        below = text.read()
        if below or len(head) < size:
            break
        if size >= _MAX_HEADER:
            raise _unreadable(path, f"it is longer than {_MAX_HEADER >> 20} MiB")
        size *= 16
    if not config.header:
        if not first:
            raise _no_rows(path, "all its lines are empty")
        _check_delimiter(path, first, config)
        return Header([f"column_{number}" for number in range(1, len(first) + 1)], 0)
    if len(head) < size and not below.strip("\r\n"):
        raise _no_rows(path, "there is nothing below its header")
    _check_delimiter(path, first, config)
    return Header(column_names(path, first), lines, tuple(first))


def column_names(path: str, headers: list[str]) -> list[str]:
    """Convert the headers of a file to the names of its columns, in the form of `components.base.names.column_name`.

    Raises:
      InputError: If a name is empty, or two names are equal.
    """
    headers_by_name: dict[str, str] = {}
    for number, header in enumerate(headers, start=1):
        name = column_name(header)
        if not name:
            raise InputError(
                f"{path}: column {number} has no name: expected letters or digits, received {header!r}", "name it"
            )
        if name in headers_by_name:
            first = headers_by_name[name]
            received = f"{header!r} twice" if first == header else f"{first!r} and {header!r}, which are both {name}"
            raise InputError(
                f"{path}: expected columns of different names, received {received}", "rename one of the two"
            )
        headers_by_name[name] = header
    return list(headers_by_name)


def check_format(path: str, head: bytes) -> None:
    """Check by its first bytes that a file does not have another format than text.

    Raises:
      InputError: If the file has a known format other than text.
    """
    for pattern, kind, remedy in _OTHER_FORMATS:
        if re.match(pattern, head, re.IGNORECASE):
            raise InputError(f"{path} is {kind}, expected CSV text", remedy)


def check_header(path: str, header: Header, first: str, names: list[str]) -> None:
    """Compare the columns of a file with the columns of the first file.

    Args:
      path: Path of the file.
      header: Header of the file.
      first: Path of the first file.
      names: Names of the columns of the first file.

    Raises:
      InputError: If the columns differ.
    """
    if header.names == names:
        return
    if sorted(header.names) == sorted(names):
        received = "the same columns in another order"
    else:
        missing, new = _quote(set(names) - set(header.names)), _quote(set(header.names) - set(names))
        received = "; ".join(part for part in (missing and f"without {missing}", new and f"with {new}") if part)
    raise InputError(
        f"{path}: expected the header of {first}, received {received}", "give all files of the input the same header"
    )


def _read_first_row(path: str, text: io.StringIO, config: CsvConfig) -> tuple[list[str], int]:
    """Return the first row that is not empty, or [], and the number of lines up to its end."""
    # Raise Python's limit for a field, which is 128 KiB.
    limit = csv.field_size_limit(_MAX_HEADER)
    try:
        rows = csv.reader(
            text, delimiter=config.delimiter, quotechar=config.quote, skipinitialspace=config.skip_initial_space
        )
        return next((row for row in rows if row), []), rows.line_num
    except csv.Error as error:
        raise _unreadable(path, str(error)) from error
    finally:
        csv.field_size_limit(limit)


def _unreadable(path: str, why: str) -> InputError:
    return InputError(f"{path}: the header cannot be read: {why}", "fix the quotes of the first row")


def _no_rows(path: str, why: str) -> InputError:
    return InputError(f"{path} has no rows: {why}", "add a row below the header, or remove the file")


def _decode(path: str, head: bytes, encoding: str, is_complete: bool) -> str:
    """Decode the start of a file, and remove a byte-order mark.

    Raises:
      InputError: If the file is not text, or has another encoding.
    """
    check_format(path, head)
    decoder = codecs.getincrementaldecoder(encoding)
    try:
        decoder("replace").decode(head[:4])
    except UnicodeError as error:
        raise InputError(
            f"{path} is not {encoding} text: {error}",
            f"set data.csv.encoding to {encoding}-le, or to the encoding of the file",
        ) from error
    try:
        # If more of the file follows, `head` may end inside a character.
        text = decoder().decode(head, is_complete)
    except UnicodeDecodeError as error:
        if "\n" not in decoder().decode(head[: error.start]):
            raise not_text(path, encoding, head[error.start]) from error
        # Only the header matters here; the reader reports the row.
        text = decoder("replace").decode(head)
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        raise InputError(
            f"{path} is a binary file, expected CSV text: it has a NUL byte at offset {head.index(0)}",
            "set data.path to text files (or data.csv.encoding to utf-16, if they are that)",
        )
    return text


def _check_delimiter(path: str, names: list[str], config: CsvConfig) -> None:
    if len(names) == 1 and (delimiter := next((sign for sign in ";\t|," if sign in names[0]), None)):
        raise InputError(
            f"{path}: expected columns separated by {config.delimiter!r}, received a single column {names[0]!r}",
            f"set data.csv.delimiter to {delimiter!r}",
        )


def not_text(path: str, encoding: str, byte: int) -> InputError:
    """Return the error for a file that does not have the configured encoding; `byte` is the first invalid byte."""
    return InputError(
        f"{path} is not {encoding} text: it has the byte 0x{byte:02x}",
        "set data.csv.encoding to the encoding of the file (cp1252 and latin-1 are common), or check that it is a text "
        "file",
    )


def _quote(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
