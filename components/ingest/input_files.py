"""Find the input files, before a heavy library is imported.

Local paths need only the standard library. Remote paths (gs://...) go through TFX's file systems, which import
TensorFlow when the first remote path is touched.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.base.errors import InputError
from components.base.files import check_regular, is_remote
from components.base.names import did_you_mean
from components.data import file_io
from components.ingest import folder_files, spans
from components.ingest.config import DataConfig, Format, SpansConfig

IMAGE_COLUMNS = ("image", "label", "path")
"""Columns of a folder of images: the encoded file, the name of the folder, and folder/file."""

_FILES_ONLY = "set data.path to a pattern that matches files only"
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class FilePatterns:
    """The input files in TFX's form: a folder, and patterns relative to it that match exactly the input files.

    Attributes:
      base: Path or URL of the folder.
      patterns: Name → pattern. A name is a predefined split or `all`, followed by `-` and a number.
      format: Format of the files.
    """

    base: str
    patterns: Mapping[str, str]
    format: Format


@contextlib.contextmanager
def errors_about(field: str) -> Iterator[None]:
    """Replace `data.path` by another field in errors of the block, because its paths come from that field."""
    try:
        yield
    except InputError as error:
        headline, remedy = (text.replace("data.path", field) for text in (error.headline, error.remedy))
        raise InputError(headline, remedy, error.details) from error


def find(config: DataConfig) -> FilePatterns:
    """Find the files of the configured paths, and their format.

    Raises:
      InputError: If there are no files of a supported format.
    """
    parts: list[tuple[str, str, str, Format]] = []
    for split, paths in _paths(config).items():
        resolved = itertools.chain.from_iterable(_resolve(path, config) for path in paths)
        parts += [(f"{split}-{number}", *part) for number, part in enumerate(resolved)]
    formats = {format_: path for _, path, _, format_ in parts}
    if len(formats) > 1:
        received = " and ".join(sorted(formats))
        raise InputError(
            f"data.path: expected files of one format, received {received}",
            "set data.format, or give paths of one format",
        )
    base = _find_common_folder([folder for _, folder, _, _ in parts])
    patterns = {name: _make_relative(base, folder, pattern) for name, folder, pattern, _ in parts}
    return FilePatterns(base, patterns, parts[0][3])


def split_of(name: str) -> str | None:
    """Return the predefined split in the name of a pattern, or None; see `FilePatterns.patterns`."""
    split = name.partition("-")[0]
    return None if split == "all" else split


def files(config: DataConfig) -> dict[str, list[str]]:
    """List the input files of the configured spans, sorted, by the name of their pattern.

    Raises:
      InputError: If `find` raises it, there are no files, or a pattern matches a folder.
    """
    location = find(config)
    resolved = spans.resolve(location.base, location.patterns, config.spans, file_io.file_system(location.base).glob)
    paths: dict[str, list[str]] = {}
    for patterns in resolved.patterns:
        for name, pattern in patterns.items():
            paths.setdefault(name, []).extend(listing(location.base, pattern))
    return paths


def unread(config: DataConfig) -> list[str]:
    """List the files and folders in the configured folders that are not read."""
    if config.bigquery or config.split.by == "files":
        return []
    read = [path for paths in files(config).values() for path in paths]
    folders = [path for path in config.path if not spans.has_specs(path) and file_io.file_system(path).isdir(path)]
    return [file_io.join(folder, name) for folder in folders for name in folder_files.unread(folder, read)]


def newest_span(config: DataConfig) -> int:
    """Return the newest existing span, even if the config selects other spans.

    Raises:
      InputError: If `find` raises it, or there are no files.
    """
    location = find(config)
    return spans.resolve(location.base, location.patterns, SpansConfig(), file_io.file_system(location.base).glob).span


def listing(base: str, pattern: str) -> list[str]:
    """List the files that match a pattern in a folder, sorted. TFX's fingerprint covers the same files.

    Raises:
      InputError: If no file matches, or a folder matches.
    """
    full = file_io.join(base, pattern)
    io_ = file_io.file_system(base)
    paths = sorted(io_.glob(full))
    if not paths:
        raise InputError(
            f"data.path: no file matches {full}", "set data.path to a file, a folder or a pattern that matches files"
        )
    if not is_remote(base):
        _check_local(paths)
    elif folder := next((path for path in paths if io_.isdir(path)), None):
        raise InputError(
            f"data.path: {folder}: expected a file, received a folder",
            _FILES_ONLY,
        )
    return paths


def _check_local(paths: Sequence[str]) -> None:
    for path in paths:
        if not _is_utf8(path):
            shown = path.encode("utf-8", "backslashreplace").decode()
            raise InputError(
                f"data.path: expected names of files in UTF-8, received {shown}", "rename the file, or name other files"
            )
        try:
            check_regular(path, os.stat(path))  # noqa: PTH116 - as many as there are images
        except InputError as error:
            raise InputError(f"data.path: {error.headline}", _FILES_ONLY) from error
        except OSError as error:
            raise InputError(
                f"data.path: {path} cannot be read: {error.strerror}", "remove it, or name other files"
            ) from error


def _is_utf8(path: str) -> bool:
    """Return whether a name is valid UTF-8, which ML Metadata and the nodes' parameters require."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _paths(config: DataConfig) -> dict[str, tuple[str, ...]]:
    """Return predefined split → configured paths; all paths under `all` without predefined splits."""
    if config.split.by != "files":
        return {"all": config.path}
    return {
        split: tuple(file_io.join(path, pattern) for path in config.path for pattern in part)
        for split, part in config.split.parts().items()
        if not isinstance(part, int)
    }


def _resolve(path: str, config: DataConfig) -> list[tuple[str, str, Format]]:
    """Convert a configured path to entries (folder, pattern relative to the folder, format of the files)."""
    io_ = file_io.file_system(path)
    if spans.has_specs(path):
        return _resolve_spans(path, config)
    if io_.isdir(path):
        folder = glob.escape(path.rstrip("/") or "/")
        patterns, format_ = folder_files.patterns(folder, config.format, config.images.path_column is not None)
        return [(folder, pattern, format_) for pattern in patterns]
    if io_.exists(path):
        if not is_remote(path):
            _check_local([path])
        folder, name = os.path.split(glob.escape(path))
        return [(folder, name, config.format or _infer_format(path))]
    if not _WILDCARD.search(path):
        raise _missing(path)
    matched = io_.glob(path)
    return [(*_split_at_wildcard(path), config.format or _infer_format(*sorted(matched)))]


def _resolve_spans(path: str, config: DataConfig) -> list[tuple[str, str, Format]]:
    spans.check(path)
    base, pattern = _split_at_wildcard(path)
    io_ = file_io.file_system(path)
    matched = sorted(io_.glob(spans.wildcards(path)))
    if not matched:
        raise InputError(
            f"data.path: nothing matches {path}", "set data.path to the files of the spans, such as data/{SPAN}/*.csv"
        )
    if not io_.isdir(matched[-1]):
        return [(base, pattern, config.format or _infer_format(*matched))]
    # Look at the folders of all spans, because the files of some spans may have other suffixes.
    folders = spans.wildcards(path).rstrip("/")
    patterns, format_ = folder_files.patterns(folders, config.format, config.images.path_column is not None)
    return [(base, file_io.join(pattern.rstrip("/"), below), format_) for below in patterns]


def _infer_format(*paths: str) -> Format:
    """Infer the format from the names of files, or otherwise from the first bytes of the first file."""
    folder_files.check_one_format(paths, "the files that data.path matches")
    first = next(iter(paths), "")
    by_name = [format_ for path in paths if (format_ := folder_files.format_by_name(path))]
    if by_name:
        return by_name[0]
    if first and not file_io.file_system(first).isdir(first):
        with file_io.open_binary(first) as file:
            return "parquet" if file.read(4) == b"PAR1" else "csv"
    return "csv"


def _split_at_wildcard(path: str) -> tuple[str, str]:
    """Divide a pattern into the folder above its first wildcard, and the pattern below that folder."""
    parts = path.split("/")
    at = next(index for index, part in enumerate(parts) if _WILDCARD.search(part) or spans.has_specs(part))
    return "/".join(parts[:at]) or ("/" if path.startswith("/") else ""), "/".join(parts[at:])


def _find_common_folder(folders: list[str]) -> str:
    """Return the innermost folder or URL that contains all folders."""
    if len(set(folders)) == 1:
        return folders[0]
    remote = [folder for folder in folders if is_remote(folder)]
    schemes = {folder.partition("://")[0] if is_remote(folder) else "" for folder in folders}
    if len(schemes) > 1:
        raise InputError(
            f"data.path: expected files of one file system, received {folders[0]} and {folders[1]}",
            "copy them to one file system",
        )
    if remote:
        locations = [folder.partition("://")[2] for folder in folders]
        return f"{schemes.pop()}://{posixpath.commonpath(locations)}"
    return os.path.commonpath([os.path.abspath(folder) for folder in folders])  # noqa: PTH100 - resolves no links


def _make_relative(base: str, folder: str, pattern: str) -> str:
    """Convert a pattern in a folder to a pattern relative to `base`, which contains the folder."""
    if folder == base:
        return pattern
    above = folder if is_remote(folder) else os.path.abspath(folder)  # noqa: PTH100
    return file_io.join(above.removeprefix(base).lstrip("/"), pattern)


def _missing(path: str) -> InputError:
    hint = "" if is_remote(path) else did_you_mean(path, map(str, Path(path).parent.glob("*")))
    return InputError(
        f"data.path: {path} does not exist{hint}",
        "set data.path to a file, a folder or a pattern; relative paths start at the folder where the command runs",
    )
