"""Finds the input files, quickly enough to do it before anything heavy is imported.

Local paths need the standard library alone. Remote ones (gs://...) go through TFX's file systems, which import
TensorFlow when the first remote path is touched.
"""

from __future__ import annotations

import glob
import io
import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from components.errors import InputError
from components.ingest import spans
from components.ingest.config import DataConfig, Format, SpansConfig
from components.names import did_you_mean

IMAGE_COLUMNS = ("image", "label", "path")
"""The columns of a folder of images: the encoded file, the folder's name, and folder/file."""

_SUFFIXES = ("[cC][sS][vV]", "[tT][sS][vV]", "[tT][xX][tT]")
_FOLDER_PATTERNS: dict[Format, tuple[str, ...]] = {
    "csv": tuple(f"[!.]*.{suffix}{packed}" for packed in ("", ".gz", ".zst") for suffix in _SUFFIXES),
    "parquet": ("[!.]*.[pP][aA][rR][qQ][uU][eE][tT]", "[!.]*.[pP][qQ]"),
    "tfrecord": ("[!.]*[tT][fF][rR][eE][cC][oO][rR][dD]*",),
    "images": ("[!.]*/[!.]*",),
}
_EXPECTED: dict[Format, str] = {
    "csv": "*.csv, *.tsv or *.txt files",
    "parquet": "*.parquet files",
    "tfrecord": "*.tfrecord files",
    "images": "a folder of PNG or JPEG files for each class",
}
_IMAGE_NAME = re.compile(r"\.(png|jpe?g)$", re.IGNORECASE)
_PARQUET_NAME = re.compile(r"\.(parquet|pq)$", re.IGNORECASE)
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Source:
    """Where the files are, as TFX wants it: a folder, and patterns below it that match the files and no others.

    Attributes:
      base: the folder or URL.
      patterns: name → pattern. A name is that of a predefined split, or `all`, then `-` and a number.
      format: how the files are written.
    """

    base: str
    patterns: Mapping[str, str]
    format: Format


def find(config: DataConfig) -> Source:
    """Where the data lies and in which format, from the paths in the config.

    Raises:
      InputError: nothing is there, or nothing that can be read.
    """
    parts: list[tuple[str, str, str, Format]] = []
    for split, paths in _paths(config).items():
        for number, path in enumerate(paths):
            parts.append((f"{split}-{number}", *_one(path, config)))
    formats = {format_: path for _, path, _, format_ in parts}
    if len(formats) > 1:
        found = " and ".join(sorted(formats))
        raise InputError(
            f"data.path: expected files of one format, received {found}", "set data.format, or give paths of one format"
        )
    base = _common([folder for _, folder, _, _ in parts])
    patterns = {name: _below(base, folder, pattern) for name, folder, pattern, _ in parts}
    return Source(base, patterns, parts[0][3])


def split_of(name: str) -> str | None:
    """The predefined split that a pattern's name stands for, if it does; see `Source.patterns`."""
    split = name.partition("-")[0]
    return None if split == "all" else split


def files(config: DataConfig) -> dict[str, list[str]]:
    """The input files, sorted, by the name of their pattern; of the spans that are to be taken.

    Raises:
      InputError: as `find`; or there is no file, or one of them is a folder.
    """
    source = find(config)
    resolved = spans.resolve(source.base, source.patterns, config.spans, _file_system(source.base).glob)
    found: dict[str, list[str]] = {}
    for patterns in resolved.patterns:
        for name, pattern in patterns.items():
            found.setdefault(name, []).extend(listing(source.base, pattern))
    return found


def newest_span(config: DataConfig) -> int:
    """The newest span that is there, whichever the config takes.

    Raises:
      InputError: as `find`; or no file is there.
    """
    source = find(config)
    return spans.resolve(source.base, source.patterns, SpansConfig(), _file_system(source.base).glob).span


def local_size(config: DataConfig) -> int:
    """How many bytes of input lie on this machine; 0 where they lie elsewhere."""
    if config.bigquery or any(is_remote(path) for path in config.path):
        return 0
    return sum(size(path) for paths in files(config).values() for path in paths)


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


def size(path: str) -> int:
    """The size of a file in bytes."""
    if not is_remote(path):
        return os.stat(path).st_size  # noqa: PTH116 - as in open_binary
    with open_binary(path) as file:
        return file.seek(0, io.SEEK_END)


def open_binary(path: str) -> IO[bytes]:
    """Opens a local or remote file to read its bytes."""
    if not is_remote(path):
        return open(path, "rb")  # noqa: PTH123 - the remote branch takes a URL, so does this one
    return io.BufferedReader(_Remote(_file_system(path).open(path, "rb")), 1 << 20)


def create(path: str) -> IO[bytes]:
    """Creates a local or remote file to write bytes."""
    if not is_remote(path):
        return open(path, "wb")  # noqa: PTH123 - as in open_binary
    return io.BufferedWriter(_RemoteSink(_file_system(path).open(path, "wb")), 1 << 20)


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


class _RemoteSink(io.RawIOBase):
    """TensorFlow's GFile as a file that bytes are written to."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(bytes(data))
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


def remove(path: str) -> None:
    """Deletes a local or remote file."""
    if is_remote(path):
        _file_system(path).remove(path)
    else:
        os.remove(path)  # noqa: PTH107 - as in open_binary


def _paths(config: DataConfig) -> dict[str, tuple[str, ...]]:
    """The paths of each predefined split, or of all rows."""
    if config.split.by != "files":
        return {"all": config.path}
    return {
        split: tuple(join(path, pattern) for path in config.path for pattern in part)
        for split, part in config.split.parts().items()
        if not isinstance(part, int)
    }


def _one(path: str, config: DataConfig) -> tuple[str, str, Format]:
    """A folder, a pattern below it, and the format of the files, for one path of the config."""
    io_ = _file_system(path)
    if spans.has_specs(path):
        return _in_spans(path, config)
    if io_.isdir(path):
        pattern, found = _in_folder(path, config.format)
        return glob.escape(path.rstrip("/") or "/"), pattern, found
    if io_.exists(path):
        folder, name = os.path.split(glob.escape(path))
        return folder, name, config.format or _format_of(path)
    if not _WILDCARD.search(path):
        raise _missing(path)
    matched = io_.glob(path)
    return *_at_first_wildcard(path), config.format or _format_of(*matched)


def _in_spans(path: str, config: DataConfig) -> tuple[str, str, Format]:
    spans.check(path)
    base, pattern = _at_first_wildcard(path)
    io_ = _file_system(path)
    matched = sorted(io_.glob(spans.wildcards(path)))
    if not matched:
        raise InputError(
            f"data.path: nothing matches {path}", "set data.path to where the spans lie, such as data/{SPAN}/*.csv"
        )
    if not io_.isdir(matched[-1]):
        return base, pattern, config.format or _format_of(matched[-1])
    below, found = _in_folder(matched[-1], config.format)
    return base, join(pattern.rstrip("/"), below), found


def _format_of(*paths: str) -> Format:
    """The format that names tell, or else the first bytes of a file."""
    if paths and all(_IMAGE_NAME.search(path) for path in paths):
        return "images"
    first = next(iter(paths), "")
    if _PARQUET_NAME.search(first):
        return "parquet"
    if "tfrecord" in posixpath.basename(first).lower():
        return "tfrecord"
    if first and not _file_system(first).isdir(first):
        with open_binary(first) as file:
            return "parquet" if file.read(4) == b"PAR1" else "csv"
    return "csv"


def _in_folder(path: str, format_: Format | None) -> tuple[str, Format]:
    """The pattern of the data files in a folder, and their format."""
    io_ = _file_system(path)
    escaped = glob.escape(path)
    wanted = {format_: _FOLDER_PATTERNS[format_]} if format_ else _FOLDER_PATTERNS
    for found, patterns in wanted.items():
        for pattern in patterns:
            below = io_.glob(join(escaped, pattern))
            if below and (found != "images" or format_ or any(_IMAGE_NAME.search(name) for name in below)):
                return pattern, found
    expected = (
        _EXPECTED[format_] if format_ else f"{', '.join(list(_EXPECTED.values())[:-1])}, or {_EXPECTED['images']}"
    )
    there = sorted(io_.listdir(path))
    received = f"{', '.join(there[:5])}{' ...' if len(there) > 5 else ''}" if there else "nothing (it is empty)"
    raise InputError(
        f"data.path: expected {expected} in the folder {path}, received {received}",
        "set data.path to the folder that holds the data, or to a pattern such as folder/*.data",
    )


def _at_first_wildcard(path: str) -> tuple[str, str]:
    """Cuts a pattern into the folder above its first wildcard, and the rest."""
    parts = path.split("/")
    at = next(place for place, part in enumerate(parts) if _WILDCARD.search(part) or spans.has_specs(part))
    return "/".join(parts[:at]) or ("/" if path.startswith("/") else ""), "/".join(parts[at:])


def _common(folders: list[str]) -> str:
    """The folder or URL that all folders lie in."""
    if len(set(folders)) == 1:
        return folders[0]
    remote = [folder for folder in folders if is_remote(folder)]
    schemes = {folder.partition("://")[0] if is_remote(folder) else "" for folder in folders}
    if len(schemes) > 1:
        raise InputError(
            f"data.path: expected files of one file system, received {folders[0]} and {folders[1]}", "copy them to one"
        )
    if remote:
        rests = [folder.partition("://")[2] for folder in folders]
        return f"{schemes.pop()}://{posixpath.commonpath(rests)}"
    return os.path.commonpath([os.path.abspath(folder) for folder in folders])  # noqa: PTH100 - resolves no links


def _below(base: str, folder: str, pattern: str) -> str:
    """A pattern in a folder, seen from a folder above."""
    if folder == base:
        return pattern
    above = folder if is_remote(folder) else os.path.abspath(folder)  # noqa: PTH100
    return join(above.removeprefix(base).lstrip("/"), pattern)


def _missing(path: str) -> InputError:
    hint = "" if is_remote(path) else did_you_mean(path, map(str, Path(path).parent.glob("*")))
    return InputError(
        f"data.path: {path} does not exist{hint}",
        "set data.path to a file, a folder or a pattern; paths start at the folder that the command is run in",
    )
