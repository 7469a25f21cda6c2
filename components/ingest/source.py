"""Finds the input files and reads their headers, quickly enough to do it before anything heavy is imported.

Local paths need the standard library alone. Remote ones (gs://...) go through TFX's file systems, which import
TensorFlow when the first remote path is touched.
"""

from __future__ import annotations

import codecs
import csv
import glob
import io
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from components.errors import InputError
from components.ingest.config import CsvConfig, DataConfig, Format
from components.names import did_you_mean

IMAGE_COLUMNS = ("image", "label", "path")
"""The columns of a folder of images: the encoded file, the folder's name, and folder/file."""

_TEXT_PATTERNS = ("[!.]*.[cC][sS][vV]", "[!.]*.[tT][sS][vV]", "[!.]*.[tT][xX][tT]")
_IMAGE_PATTERN = "[!.]*/[!.]*"
_IMAGE_NAME = re.compile(r"\.(png|jpe?g)$", re.IGNORECASE)
_WILDCARD = re.compile(r"[*?\[]")
_MAX_HEADER = 256 * 1024  # bytes
_OTHER_FORMATS = (
    (b"\x1f\x8b", "gzip-compressed", "unpack it first (gunzip)"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it first (unzstd)"),
    (b"PK\x03\x04", "a zip archive or a spreadsheet", "unpack it, or save the sheet as CSV"),
    (b"PAR1", "a Parquet file", "export it as CSV"),
    (b"\x89PNG", "a PNG image", "for images, set data.path to the folder that holds one folder for each class"),
    (b"\xff\xd8\xff", "a JPEG image", "for images, set data.path to the folder that holds one folder for each class"),
)


@dataclass(frozen=True)
class Source:
    """Where the files are, as TFX wants it: a folder, and a pattern below it that matches the files and no others."""

    base: str
    pattern: str
    format: Format


@dataclass(frozen=True)
class Header:
    """The first row of a text file: the names of the columns, and how many lines of text it takes up."""

    names: list[str]
    lines: int


def find(config: DataConfig) -> Source:
    """Where the data lies and in which format, from the path in the config.

    Raises:
      InputError: nothing is there, or nothing that can be read.
    """
    path, io_ = config.path, _file_system(config.path)
    if io_.isdir(path):
        pattern, found = _in_folder(path, config.format)
        return Source(glob.escape(path.rstrip("/") or "/"), pattern, found)
    if io_.exists(path):
        folder, name = os.path.split(glob.escape(path))
        return Source(folder, name, config.format or "csv")
    if not _WILDCARD.search(path):
        raise _missing(path)
    base, pattern = _at_first_wildcard(path)
    matched = io_.glob(path)
    images = bool(matched) and all(_IMAGE_NAME.search(name) for name in matched)
    return Source(base, pattern, config.format or ("images" if images else "csv"))


def files(config: DataConfig) -> list[str]:
    """The input files, sorted; text files are opened to see that each has a header and a row.

    Raises:
      InputError: the path is not there, holds no data, or a file is empty or not text.
    """
    source = find(config)
    paths = listing(source.base, source.pattern)
    if source.format == "csv":
        for path in paths:
            header(path, config.csv)
    return paths


def columns(config: DataConfig) -> list[str]:
    """The names of the columns, as all files of the input agree on them.

    Raises:
      InputError: as `files`; or a header is not fit for use, two of them differ, or `types` names an unknown column.
    """
    source = find(config)
    paths = listing(source.base, source.pattern)
    if source.format == "csv":
        names = header(paths[0], config.csv).names
        for path in paths[1:]:
            expect_header(path, header(path, config.csv), paths[0], names)
    else:
        names = list(IMAGE_COLUMNS)
    check_types(config.types, names, source.format)
    return names


def listing(base: str, pattern: str) -> list[str]:
    """The files that a folder and a pattern below it stand for, sorted: the very list that TFX's fingerprint covers.

    Raises:
      InputError: there is none, or one of them is a folder.
    """
    whole = join(base, pattern)
    io_ = _file_system(base)
    paths = sorted(io_.glob(whole))
    if not paths:
        raise InputError(
            f"data.path: no file matches {whole}", "set data.path to a file, a folder or a pattern that matches files"
        )
    if folder := next((path for path in paths if io_.isdir(path)), None):
        raise InputError(
            f"data.path: expected files, but {folder} is a folder", "set data.path to a pattern that matches files only"
        )
    return paths


def header(path: str, config: CsvConfig) -> Header:
    """Reads the first row of a text file, and looks whether another one follows.

    Raises:
      InputError: the file has no rows, is not text, or its header has a name that is empty or stands there twice.
    """
    with open_binary(path) as file:
        head = file.read(_MAX_HEADER)
    if not head:
        raise _no_rows(path, "it is empty (0 bytes)")
    text = io.StringIO(_text(path, head, config.encoding), newline="")
    rows = csv.reader(text, delimiter=config.delimiter, quotechar=config.quote)
    try:
        names = next((row for row in rows if row), [])
    except csv.Error as error:
        raise InputError(f"{path}: the header cannot be read: {error}", "mend the quotes of the first row") from error
    if len(head) < _MAX_HEADER and not text.read().strip("\r\n"):
        raise _no_rows(path, "there is nothing below its header")
    _check_names(path, names, config)
    return Header(names, rows.line_num)


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


def check_types(types: Iterable[str], names: list[str], format_: Format) -> None:
    """Refuses types for columns that are not there, or whose type is fixed."""
    for column in types:
        if column not in names:
            hint = did_you_mean(column, names)
            raise InputError(f"data.types: there is no column {column!r}{hint}", "name columns of the header")
        if format_ == "images" and column != "label":
            raise InputError(f"data.types: the column {column!r} of images is always bytes", "leave it out")


def open_binary(path: str) -> IO[bytes]:
    """Opens a local or remote file to read its bytes."""
    if not is_remote(path):
        return open(path, "rb")  # noqa: PTH123 - the remote branch takes a URL, so does this one
    return io.BufferedReader(_Remote(_file_system(path).open(path, "rb")), 1 << 20)


def join(folder: str, name: str) -> str:
    """A path or URL below another."""
    return os.path.join(folder, name)  # noqa: PTH118 - pathlib would take a URL apart


def is_remote(path: str) -> bool:
    """Whether the path is a URL, such as gs://bucket/file."""
    return "://" in path


class _Remote(io.RawIOBase):
    """TensorFlow's GFile as a file that the standard library and pyarrow can work with."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _Local:
    """The few calls that are needed of TFX's `fileio`, without TFX."""

    exists = staticmethod(os.path.exists)
    isdir = staticmethod(os.path.isdir)
    listdir = staticmethod(os.listdir)
    glob = staticmethod(glob.glob)


def _file_system(path: str) -> Any:
    if not is_remote(path):
        return _Local
    from tfx.dsl.io import fileio

    return fileio


def _in_folder(path: str, format_: Format | None) -> tuple[str, Format]:
    """The pattern of the data files in a folder, and their format."""
    io_ = _file_system(path)
    escaped = glob.escape(path)
    if format_ != "images":
        for pattern in _TEXT_PATTERNS:
            if io_.glob(join(escaped, pattern)):
                return pattern, "csv"
    if format_ != "csv":
        below = io_.glob(join(escaped, _IMAGE_PATTERN))
        if (format_ == "images" and below) or any(_IMAGE_NAME.search(name) for name in below):
            return _IMAGE_PATTERN, "images"
    expected = {"csv": "*.csv, *.tsv or *.txt files", "images": "a folder of PNG or JPEG files for each class"}
    wanted = expected[format_] if format_ else f"{expected['csv']}, or {expected['images']}"
    there = sorted(io_.listdir(path))
    received = f"{', '.join(there[:5])}{' ...' if len(there) > 5 else ''}" if there else "nothing (it is empty)"
    raise InputError(
        f"data.path: expected {wanted} in the folder {path}, received {received}",
        "set data.path to the folder that holds the data, or to a pattern such as folder/*.data",
    )


def _at_first_wildcard(path: str) -> tuple[str, str]:
    """Cuts a pattern into the folder above its first wildcard, and the rest."""
    parts = path.split("/")
    at = next(place for place, part in enumerate(parts) if _WILDCARD.search(part))
    return "/".join(parts[:at]) or ("/" if path.startswith("/") else ""), "/".join(parts[at:])


def _missing(path: str) -> InputError:
    hint = "" if is_remote(path) else did_you_mean(path, map(str, Path(path).parent.glob("*")))
    return InputError(
        f"data.path: {path} does not exist{hint}",
        "set data.path to a file, a folder or a pattern; paths start at the folder that the command is run in",
    )


def _no_rows(path: str, why: str) -> InputError:
    return InputError(f"{path} has no rows: {why}", "give it at least one row below a header, or leave the file out")


def _text(path: str, head: bytes, encoding: str) -> str:
    """The first part of a file as text without byte-order mark, or a word on what the file is instead."""
    for magic, kind, remedy in _OTHER_FORMATS:
        if head.startswith(magic):
            raise InputError(f"{path} is {kind}, expected CSV text", remedy)
    decoder = codecs.getincrementaldecoder(encoding)
    try:
        # The end of `head` may cut a character in two, so the decoder is told that more may follow.
        text = decoder().decode(head, len(head) < _MAX_HEADER)
    except UnicodeDecodeError as error:
        text = decoder().decode(head[: error.start])
        if "\n" not in text:
            raise not_text(path, encoding, head[error.start]) from error
        # Only the header matters here; the reader of the rows will name the row.
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        raise InputError(
            f"{path} is a binary file, expected CSV text: it has a NUL byte at offset {head.index(0)}",
            "set data.path to text files (or data.csv.encoding to utf-16, if they are that)",
        )
    return text


def _check_names(path: str, names: list[str], config: CsvConfig) -> None:
    if len(names) == 1 and (other := next((sign for sign in ";\t|," if sign in names[0]), None)):
        raise InputError(
            f"{path}: expected columns between {config.delimiter!r}, received the one column {names[0]!r}",
            f"set data.csv.delimiter to {other!r}",
        )
    for number, name in enumerate(names, start=1):
        if not name.strip():
            raise InputError(f"{path}: column {number} of the header has no name", "name it in the first row")
        if name in names[: number - 1]:
            raise InputError(f"{path}: the column {name!r} stands twice in the header", "rename one of the two")


def not_text(path: str, encoding: str, byte: int) -> InputError:
    """The error for a file that is in another encoding than the config says; `byte` is the first that does not fit."""
    return InputError(
        f"{path} is not {encoding} text: it has the byte 0x{byte:02x}",
        "set data.csv.encoding to the file's own (cp1252 and latin-1 are common), or check that it is a text file",
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
