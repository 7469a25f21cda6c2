"""The format of text files: what the user gives, and otherwise what is evident from their first bytes and values."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from components.base.errors import InputError
from components.data.compression import open_decompressed
from components.ingest.config import CsvConfig
from components.ingest.csv_header import check_format
from components.ingest.number_texts import NUMBER_WITH_COMMA

Sign = Literal[".", ","]

_HEAD = 1 << 20
"""Bytes of text from which the encoding is derived."""
_LINES = 64 << 10
"""Characters of text from which the delimiter is derived."""
_DELIMITERS = ",;\t|"
_UNUSUAL_DELIMITERS = "^~#:!&/ "
"""Characters that are no delimiters unless the user says so."""
_LONG_RUN = 0.1
"""Share of the bytes beyond ASCII, in runs of three or more, from which a text is not Western European."""
_OTHER_ENCODINGS = ("cp1251", "cp1253", "shift_jis", "euc_kr", "gb18030", "big5")
_DISTINCT = 10_000
"""Number of different texts of a column from which the decimal sign is derived."""
_POINT = r"^\s*[-+]?[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?\s*$"
_THOUSANDS = r"^\s*[-+]?[1-9][0-9]{0,2}[.,][0-9]{3}\s*$"
"""A comma or a point that may as well separate thousands as a fraction."""


@dataclass(frozen=True)
class TextFormat:
    """What the user gives of the format of text files; None: derived from the data."""

    encoding: str | None = None
    delimiter: str | None = None
    decimal: Sign | None = None


def detect(path: str, given: TextFormat) -> tuple[CsvConfig, list[str]]:
    """Return the format of a text file, except for the decimal sign, and the reasons for what is not the default.

    Raises:
      InputError: the file is no text, its encoding is not evident, or it has one column.
    """
    with open_decompressed(path) as file:
        head = file.read(_HEAD)
    check_format(path, head)
    notes = []
    encoding = given.encoding
    if encoding is None:
        encoding, note = _encoding(path, head)
        notes += [f"encoding {encoding}: {note}"] if note else []
    lines = head.decode(encoding, errors="replace").removeprefix("\ufeff")[:_LINES].splitlines()
    lines = lines[:-1] or lines
    delimiter = given.delimiter or max(_DELIMITERS, key=lambda sign: _regularity(lines, sign))
    if delimiter != ",":
        notes.append(f"delimiter {delimiter!r}{'' if given.delimiter else ': all rows have as many fields'}")
    fields = [field for line in lines[1:] for field in line.split(delimiter)[1:]]
    spaced = sum(field.startswith(" ") for field in fields)
    # In `1, ?, a` the spaces belong to no value.
    skip = bool(fields) and spaced > len(fields) / 2
    if not _regularity(lines, delimiter)[1] and lines:
        others = [sign for sign in _DELIMITERS + _UNUSUAL_DELIMITERS if _regularity(lines, sign)[0] == 1]
        raise InputError(
            f"--data: {path}: expected two columns or more between {delimiter!r}, received the one column {lines[0]!r}",
            "give --delimiter with the character between two fields"
            + "".join(f", such as {each!r}" for each in others),
        )
    return CsvConfig(delimiter=delimiter, encoding=encoding, skip_initial_space=skip), notes


def _encoding(path: str, head: bytes) -> tuple[str, str]:
    """Return the encoding of a text, and why it is not UTF-8."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", "its byte-order mark"
    if b"\0" in head:
        halves = {"utf-16-be": head[::2].count(b"\0"), "utf-16-le": head[1::2].count(b"\0")}
        likely = max(halves, key=lambda name: halves[name])
        # A file of another kind; the reader reports it.
        return (likely, "every other byte is 0") if halves[likely] > len(head) / 4 else ("utf-8", "")
    if _decodes(head, "utf-8"):
        return "utf-8", ""
    lines = head.splitlines()[:-1] or head.splitlines()
    beyond = [line for line in lines if not line.isascii()]
    if 2 * sum(_decodes(line + b"\n", "utf-8") for line in beyond) > len(beyond):
        # A few damaged rows; they go to quarantine.
        return "utf-8", ""
    runs = re.findall(rb"[\x80-\xff]+", head)
    long = sum(len(run) for run in runs if len(run) > 2)
    word = max(re.findall(rb"[A-Za-z\x80-\xff]*[\x80-\xff][A-Za-z\x80-\xff]*", b"\n".join(lines)), key=len)[:60]
    if long <= _LONG_RUN * sum(map(len, runs)) and _decodes(head, "cp1252"):
        return "cp1252", f"it is not UTF-8, and {word.decode('cp1252')!r} is one of its words; else give --encoding"
    readings = [f"--encoding {name}: {word.decode(name)!r}" for name in _OTHER_ENCODINGS if _decodes(word, name)]
    raise InputError(
        f"--data: {path} is not utf-8 text: it has the byte 0x{runs[0][0]:02x}",
        "give the file's own with --encoding; the lines above show one of its words in some of them",
        readings,
    )


def _decodes(text: bytes, encoding: str) -> bool:
    """Whether a text, whose last character may be cut, is valid in an encoding."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(text, False)
    except UnicodeError:
        return False
    return True


def _regularity(lines: Sequence[str], delimiter: str) -> tuple[float, int]:
    """Return the share of lines with as many fields as the first line, and this number of fields; 0 for one field."""
    try:
        widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return 0.0, 0
    if not widths or widths[0] == 1:
        return 0.0, 0
    return sum(width == widths[0] for width in widths) / len(widths), widths[0]


@dataclass(frozen=True)
class DecimalSign:
    """The decimal sign of a table.

    Attributes:
      sign: the sign.
      why: the reason for a comma; "" for a point.
      hints: column → why its numbers are text with this sign.
    """

    sign: Sign
    why: str
    hints: dict[str, str]


def decimal_sign(batch: pa.RecordBatch, given: Sign | None) -> DecimalSign:
    """Derive the decimal sign of the numbers of a table: that of most columns.

    A comma before three digits alone, as in `1,234`, is no evidence: it may separate thousands.

    Args:
      batch: columns of text (binary, null where missing).
      given: the sign that the user gives.
    """
    found = {
        name: example
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if (example := _example_of_sign(column.drop_null().unique().slice(0, _DISTINCT)))
    }
    commas = [name for name, example in found.items() if example.is_clear and example.sign == ","]
    points = [name for name, example in found.items() if example.is_clear and example.sign == "."]
    sign: Sign = given or ("," if len(commas) > len(points) else ".")
    if sign == ",":
        why = f"decimal comma{f': {commas[0]} has {found[commas[0]].text!r}' if commas else ''}"
        # Points that separate thousands are read as such.
        others = points
    else:
        why, others = "", [name for name, example in found.items() if example.sign == ","]
    other = "." if sign == "," else ","
    hints = {
        name: f"numbers such as {found[name].text!r} are text here, and numbers with --decimal {other!r} or with "
        "data.csv.formats"
        for name in others
    }
    return DecimalSign(sign, why, hints)


@dataclass(frozen=True)
class _Example:
    """A number with a decimal sign, and whether the sign can only be that."""

    sign: Sign
    text: str
    is_clear: bool


def _example_of_sign(distinct: pa.Array) -> _Example | None:
    """Return an example of the decimal sign of a column's texts; None if they are no numbers, or have no such sign."""
    forms: tuple[tuple[Sign, str], ...] = ((",", NUMBER_WITH_COMMA), (".", _POINT))
    for sign, form in forms:
        if pc.all(pc.match_substring_regex(distinct, form)).as_py():
            with_sign = distinct.filter(pc.match_substring(distinct, sign))
            clear = with_sign.filter(pc.invert(pc.match_substring_regex(with_sign, _THOUSANDS)))
            if len(with_sign):
                return _Example(sign, (clear if len(clear) else with_sign)[0].as_py().decode(), len(clear) > 0)
    return None
