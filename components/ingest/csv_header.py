"""Reads the header of a text file, and detects early that a file is not the expected text."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

from components.base.errors import InputError
from components.base.names import column_name
from components.data.compression import open_decompressed
from components.ingest.config import CsvConfig

_HEAD = 256 << 10
"""Bytes to read first; most headers fit into them."""
_MAX_HEADER = 64 << 20
"""Bytes; a longer first row has a quote that is never closed."""
_OTHER_FORMATS = (
    (b"PK\x03\x04", "a zip archive or a spreadsheet", "unpack it, or save the sheet as CSV"),
    (b"PAR1", "a Parquet file", "set data.format to parquet, or give paths of one format"),
    (b"\x89PNG", "a PNG image", "for images, set data.path to the folder that holds one folder for each class"),
    (b"\xff\xd8\xff", "a JPEG image", "for images, set data.path to the folder that holds one folder for each class"),
)


@dataclass(frozen=True)
class Header:
    """The first row of a text file.

    Attributes:
      names: The names of the columns, in the form of `components.base.names.column_name`.
      lines: How many lines of text the header takes up; 0 in a file without header.
    """

    names: list[str]
    lines: int


def read_header(path: str, config: CsvConfig) -> Header:
    """Read the first row of a text file, and check that another one follows.

    Raises:
      InputError: The file has no rows, is not text, or its header has an empty or duplicate name.
    """
    size = _HEAD
    while True:
        with open_decompressed(path) as file:
            head = file.read(size)
        if not head:
            raise _no_rows(path, "it is empty (0 bytes)")
        text = io.StringIO(_text(path, head, config.encoding, len(head) < size), newline="")
        first, lines = _first_row(path, text, config)
        rest = text.read()
        if rest or len(head) < size:
            break
        if size >= _MAX_HEADER:
            raise _unreadable(path, f"it is longer than {_MAX_HEADER >> 20} MiB")
        size *= 16
    if not config.header:
        if not first:
            raise _no_rows(path, "all its lines are empty")
        _check_delimiter(path, first, config)
        return Header([f"column_{number}" for number in range(1, len(first) + 1)], 0)
    if len(head) < size and not rest.strip("\r\n"):
        raise _no_rows(path, "there is nothing below its header")
    _check_delimiter(path, first, config)
    return Header(column_names(path, first), lines)


def column_names(path: str, headers: list[str]) -> list[str]:
    """Convert the headers of a file to the names of its columns, in the form of `components.base.names.column_name`.

    Raises:
      InputError: A name is empty, or two names are equal.
    """
    header_of: dict[str, str] = {}
    for number, header in enumerate(headers, start=1):
        name = column_name(header)
        if not name:
            raise InputError(
                f"{path}: column {number} has no name: expected letters or digits, received {header!r}", "name it"
            )
        if name in header_of:
            other = header_of[name]
            received = f"{header!r} twice" if other == header else f"{other!r} and {header!r}, which are both {name}"
            raise InputError(
                f"{path}: expected columns of different names, received {received}", "rename one of the two"
            )
        header_of[name] = header
    return list(header_of)


def check_format(path: str, head: bytes) -> None:
    """Check that a file is none of another format, by its first bytes.

    Raises:
      InputError: It is one.
    """
    for magic, kind, remedy in _OTHER_FORMATS:
        if head.startswith(magic):
            raise InputError(f"{path} is {kind}, expected CSV text", remedy)


def check_header(path: str, header: Header, first: str, names: list[str]) -> None:
    """Compare the columns of a file with the names of the first file's.

    Raises:
      InputError: They differ.
    """
    if header.names == names:
        return
    if sorted(header.names) == sorted(names):
        received = "the same columns in another order"
    else:
        missing, new = _quoted(set(names) - set(header.names)), _quoted(set(header.names) - set(names))
        received = "; ".join(part for part in (missing and f"without {missing}", new and f"with {new}") if part)
    raise InputError(
        f"{path}: expected the header of {first}, received {received}", "give all files of the input the same header"
    )


def _first_row(path: str, text: io.StringIO, config: CsvConfig) -> tuple[list[str], int]:
    """Return the first row that is not empty, or [], and how many lines there are up to its end."""
    # Python's limit for a field is 128 KiB.
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


def _text(path: str, head: bytes, encoding: str, is_complete: bool) -> str:
    """Decode the start of a file, without a byte-order mark.

    Raises:
      InputError: The file is not text, or in another encoding.
    """
    check_format(path, head)
    decoder = codecs.getincrementaldecoder(encoding)
    try:
        decoder("replace").decode(head[:4])
    except UnicodeError as error:
        raise InputError(
            f"{path} is not {encoding} text: {error}", f"set data.csv.encoding to {encoding}-le, or to the file's own"
        ) from error
    try:
        # Unless the file is complete, a character may be cut in two at the end of `head`.
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
    if len(names) == 1 and (other := next((sign for sign in ";\t|," if sign in names[0]), None)):
        raise InputError(
            f"{path}: expected columns between {config.delimiter!r}, received the one column {names[0]!r}",
            f"set data.csv.delimiter to {other!r}",
        )


def not_text(path: str, encoding: str, byte: int) -> InputError:
    """Return the error for a file in another encoding than the configured one; `byte` is the first invalid byte."""
    return InputError(
        f"{path} is not {encoding} text: it has the byte 0x{byte:02x}",
        "set data.csv.encoding to the file's own (cp1252 and latin-1 are common), or check that it is a text file",
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
