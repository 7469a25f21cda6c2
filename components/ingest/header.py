"""The first row of a text file, and what can be told from it in a moment."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

from components.errors import InputError
from components.ingest.config import CsvConfig
from components.ingest.packed import open_unpacked
from components.names import column_name

_HEAD = 256 << 10
"""Bytes that most first rows fit into."""
_MOST = 64 << 20
"""Bytes; a first row longer than this is a quote that was never closed."""
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
      names: of the columns, as `components.names.column_name` spells them.
      lines: how many lines of text the row takes up; 0 in a file without header.
    """

    names: list[str]
    lines: int


def header(path: str, config: CsvConfig) -> Header:
    """Reads the first row of a text file, and looks whether another one follows.

    Raises:
      InputError: the file has no rows, is not text, or its header has a name that is empty or stands there twice.
    """
    size = _HEAD
    while True:
        with open_unpacked(path) as file:
            head = file.read(size)
        if not head:
            raise _no_rows(path, "it is empty (0 bytes)")
        text = io.StringIO(_text(path, head, config.encoding, len(head) < size), newline="")
        first, lines = _first_row(path, text, config)
        below = text.read()
        if below or len(head) < size:
            break
        if size >= _MOST:
            raise _unreadable(path, f"it is longer than {_MOST >> 20} MiB")
        size *= 16
    if not config.header:
        if not first:
            raise _no_rows(path, "all its lines are empty")
        _check_delimiter(path, first, config)
        return Header([f"column_{number}" for number in range(1, len(first) + 1)], 0)
    if len(head) < size and not below.strip("\r\n"):
        raise _no_rows(path, "there is nothing below its header")
    _check_delimiter(path, first, config)
    return Header(column_names(path, first), lines)


def column_names(path: str, headers: list[str]) -> list[str]:
    """The names of a file's columns, as `components.names.column_name` spells them.

    Raises:
      InputError: one is empty, or two are the same.
    """
    names: dict[str, str] = {}
    for number, given in enumerate(headers, start=1):
        name = column_name(given)
        if not name:
            raise InputError(
                f"{path}: column {number} has no name: expected letters or digits, received {given!r}", "name it"
            )
        if name in names:
            other = names[name]
            told = (
                f"the column {given!r} stands twice" if other == given else f"{other!r} and {given!r} are both {name}"
            )
            raise InputError(f"{path}: {told}", "rename one of the two")
        names[name] = given
    return list(names)


def expect_header(path: str, found: Header, first: str, names: list[str]) -> None:
    """Refuses a file whose columns are not those of the first one."""
    if found.names == names:
        return
    if sorted(found.names) == sorted(names):
        told = "the same columns in another order"
    else:
        missing, new = _quoted(set(names) - set(found.names)), _quoted(set(found.names) - set(names))
        told = "; ".join(part for part in (missing and f"without {missing}", new and f"with {new}") if part)
    raise InputError(
        f"{path}: expected the header of {first}, received {told}", "give all files of the input the same header"
    )


def _first_row(path: str, text: io.StringIO, config: CsvConfig) -> tuple[list[str], int]:
    """The first row that is not empty (or an empty one), and how many lines end with it."""
    # A field of the first row may be as long as any other.
    limit = csv.field_size_limit(_MOST)
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
    return InputError(f"{path}: the header cannot be read: {why}", "mend the quotes of the first row")


def _no_rows(path: str, why: str) -> InputError:
    return InputError(f"{path} has no rows: {why}", "give it at least one row below a header, or leave the file out")


def _text(path: str, head: bytes, encoding: str, whole: bool) -> str:
    """The first part of a file as text without byte-order mark, or a word on what the file is instead."""
    for magic, kind, remedy in _OTHER_FORMATS:
        if head.startswith(magic):
            raise InputError(f"{path} is {kind}, expected CSV text", remedy)
    decoder = codecs.getincrementaldecoder(encoding)
    try:
        decoder("replace").decode(head[:4])
    except UnicodeError as error:
        raise InputError(
            f"{path} is not {encoding} text: {error}", f"set data.csv.encoding to {encoding}-le, or to the file's own"
        ) from error
    try:
        # The end of `head` may cut a character in two, so the decoder is told whether more may follow.
        text = decoder().decode(head, whole)
    except UnicodeDecodeError as error:
        if "\n" not in decoder().decode(head[: error.start]):
            raise not_text(path, encoding, head[error.start]) from error
        # Only the header matters here; the reader of the rows will name the row.
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
    """The error for a file that is in another encoding than the config says; `byte` is the first that does not fit."""
    return InputError(
        f"{path} is not {encoding} text: it has the byte 0x{byte:02x}",
        "set data.csv.encoding to the file's own (cp1252 and latin-1 are common), or check that it is a text file",
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
