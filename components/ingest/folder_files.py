"""Find the data files of a folder: either all of them are read, or an error lists the files of the folder.

The functions need only the standard library for local folders.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from components.base.errors import InputError
from components.data import file_io
from components.ingest.config import Format

_Matches: TypeAlias = "dict[Format, dict[str, list[str]]]"
"""Format → pattern → files."""

_SUFFIXES = ("[cC][sS][vV]", "[tT][sS][vV]", "[tT][xX][tT]")
PATTERNS: Mapping[Format, tuple[str, ...]] = {
    "csv": tuple(f"[!.]*.{suffix}{packed}" for packed in ("", ".gz", ".zst") for suffix in _SUFFIXES),
    "parquet": ("[!.]*.[pP][aA][rR][qQ][uU][eE][tT]", "[!.]*.[pP][qQ]"),
    "tfrecord": ("[!.]*[tT][fF][rR][eE][cC][oO][rR][dD]*",),
    "images": ("[!.]*/[!.]*",),
}
"""Format → patterns of its files in a folder; a file has the first format with a pattern that matches."""
EXPECTED: Mapping[Format, str] = {
    "csv": "*.csv, *.tsv or *.txt files",
    "parquet": "*.parquet files",
    "tfrecord": "*.tfrecord files",
    "images": "a folder of PNG or JPEG files for each class",
}
_NAMES: Mapping[Format, re.Pattern[str]] = {
    "csv": re.compile(r"\.(csv|tsv|txt)(\.gz|\.zst)?$", re.IGNORECASE),
    "parquet": re.compile(r"\.(parquet|pq)$", re.IGNORECASE),
    "tfrecord": re.compile(r"tfrecord", re.IGNORECASE),
    "images": re.compile(r"\.(png|jpe?g)$", re.IGNORECASE),
}
_DOCUMENT = re.compile(
    r"(read[-_ ]?me|licen[sc]e|copying|notice|notes|changelog|citation|about|description|terms)[^/]*\.txt$",
    re.IGNORECASE,
)
"""Names of texts about the data, which do not contain rows."""
_UNREADABLE = re.compile(
    r"\.(jsonl|ndjson|avro|orc|feather|arrow|xlsx?|ods|((csv|tsv|txt|parquet)\.(bz2|xz|zip|lz4|z|br|7z)))$",
    re.IGNORECASE,
)
"""Names of files that certainly contain rows, but in unsupported formats."""
_LISTED = 3


def format_by_name(path: str) -> Format | None:
    """Infer the format of a file from its name; return None if the name does not show it."""
    name = posixpath.basename(path)
    return next((format_ for format_, names in _NAMES.items() if names.search(name)), None)


def suffix(path: str) -> str:
    """Return the suffix of a file's name in lower case, including the suffix of a compression, such as `.csv.gz`."""
    match = re.search(r"(\.[A-Za-z]\w*)?(\.gz|\.zst)?$", posixpath.basename(path))
    return match[0].lower() if match and match[0] else "without suffix"


def check_one_format(paths: Iterable[str], where: str) -> None:
    """Check that the names of files do not show several formats.

    Raises:
      InputError: If they show several formats. The message lists the number of files and the first names per format.
    """
    by_format: dict[str, list[str]] = {}
    for path in paths:
        if format_ := format_by_name(path):
            by_format.setdefault(format_, []).append(posixpath.basename(path))
    if len(by_format) > 1:
        raise InputError(
            f"data.path: expected files of one format in {where}, received {_list_files(by_format)}",
            "set data.format to the format to read, or data.path to a pattern that matches only its files",
        )


def patterns(folder: str, configured: Format | None, has_path_column: bool = False) -> tuple[tuple[str, ...], Format]:
    """Find the patterns that match the data files of a folder, and their format.

    Args:
      folder: Pattern that matches one or several folders.
      configured: Format in the config, if any. Files of other formats are then ignored.
      has_path_column: Whether a table names image files, so that folders of images are not data by themselves.

    Returns:
      The patterns that match files, relative to the folder; and the format.

    Raises:
      InputError: If the folder does not contain data, or contains data of several formats or of unsupported formats.
    """
    matches = _match_files(folder, configured, has_path_column)
    shown = re.sub(r"\[([*?[])\]", r"\1", folder)
    if len(matches) > 1:
        by_format = {format_: list(itertools.chain.from_iterable(files.values())) for format_, files in matches.items()}
        raise InputError(
            f"data.path: expected files of one format in the folder {shown}, received {_list_files(by_format)}",
            "set data.format to the format to read, or data.path to a pattern that matches only its files",
        )
    names = sorted(file_io.file_system(folder).glob(file_io.join(folder, "[!.]*")))
    unreadable = [name for name in names if _UNREADABLE.search(name)]
    if unreadable and configured is None and matches:
        raise InputError(
            f"data.path: expected files that can be read in the folder {shown}, "
            f"received {_list_files({'other files': unreadable})}",
            "convert or move them, or set data.path to a pattern that matches only the files to read",
        )
    for format_, files in matches.items():
        return tuple(files), format_
    expected = list(EXPECTED.values())
    listed = EXPECTED[configured] if configured else f"{', '.join(expected[:-1])}, or {expected[-1]}"
    received = ", ".join(map(posixpath.basename, names[:5])) + (" ..." if len(names) > 5 else "")
    raise InputError(
        f"data.path: expected {listed} in the folder {shown}, received {received or 'nothing (it is empty)'}",
        "set data.path to the folder that holds the data, or to a pattern such as folder/*.data",
    )


def unread(folder: str, read: Iterable[str]) -> list[str]:
    """List the entries of a folder that are not read and do not contain files that are read.

    Args:
      folder: Path of the folder.
      read: Paths of all files that are read.
    """
    start = folder.rstrip("/") + "/"
    used = {path.removeprefix(start).partition("/")[0] for path in read if path.startswith(start)}
    return [name for name in sorted(_listdir(folder)) if name not in used and not name.startswith((".", "_"))]


def _listdir(folder: str) -> list[str]:
    names: list[Any] = file_io.file_system(folder).listdir(folder)
    return [str(name).rstrip("/") for name in names]


def _match_files(folder: str, configured: Format | None, has_path_column: bool) -> _Matches:
    io_, matched = file_io.file_system(folder), set[str]()
    matches: _Matches = {}
    for format_ in [configured] if configured else PATTERNS:
        for pattern in PATTERNS[format_]:
            files = [path for path in sorted(io_.glob(file_io.join(folder, pattern))) if path not in matched]
            if format_ == "images" and configured is None:
                files = [] if has_path_column else list(filter(_NAMES["images"].search, files))
            if files and (configured or not all(map(_DOCUMENT.search, files))):
                matches.setdefault(format_, {})[pattern] = files
                matched.update(files)
    return matches


def _list_files(by_format: Mapping[Any, list[str]]) -> str:
    return " and ".join(
        f"{len(paths):,} {format_} ({', '.join(map(posixpath.basename, paths[:_LISTED]))}"
        f"{', ...' if len(paths) > _LISTED else ''})"
        for format_, paths in by_format.items()
    )
