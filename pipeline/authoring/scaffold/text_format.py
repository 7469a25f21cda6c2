"""Format of text files. Properties that the user does not specify are derived from the first bytes and the values."""

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
from components.ingest.csv_header import check_format
from components.ingest.number_texts import NUMBER_WITH_COMMA
from components.ingest.text_config import CsvConfig

Sign = Literal[".", ","]

_HEAD = 1 << 20
"""Number of bytes from which the encoding is derived."""
_LINES = 64 << 10
"""Number of characters from which the delimiter is derived."""
_DELIMITERS = ",;\t|"
_UNUSUAL_DELIMITERS = "^~#:!&/ "
"""Characters that are delimiters only if the user says so; the error message suggests them."""
_LONG_RUN = 0.1
"""Maximum share of non-ASCII bytes in runs of three or more. With more, the text is not Western European."""
_OTHER_ENCODINGS = ("cp1251", "cp1253", "shift_jis", "euc_kr", "gb18030", "big5")
_DISTINCT = 10_000
"""Maximum number of distinct texts of a column from which the decimal sign is derived."""
_POINT = r"^\s*[-+]?[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?\s*$"
_THOUSANDS = r"^\s*[-+]?[1-9][0-9]{0,2}[.,][0-9]{3}\s*$"
"""Numbers whose only comma or point may separate thousands or begin a fraction, such as `1,234`."""


@dataclass(frozen=True)
class TextFormat:
    """Format of text files as the user specified it. Fields that are None are derived from the data."""

    encoding: str | None = None
    delimiter: str | None = None
    decimal: Sign | None = None


def detect(path: str, given: TextFormat) -> tuple[CsvConfig, list[str]]:
    """Derive the format of a text file, except for the decimal sign.

    Args:
      path: Path of the file, which may be compressed.
      given: Format as the user specified it.

    Returns:
      The options of the CSV format, and a note with the reason for every option that is not the default.

    Raises:
      InputError: If the file is not text, if its encoding cannot be derived, or if it has only one column.
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
    # The last line may be incomplete.
    lines = lines[:-1] or lines
    delimiter = given.delimiter or max(_DELIMITERS, key=lambda sign: _regularity(lines, sign))
    if delimiter != ",":
        notes.append(f"delimiter {delimiter!r}{'' if given.delimiter else ': all rows have as many fields'}")
    fields = [field for line in lines[1:] for field in line.split(delimiter)[1:]]
    spaced = sum(field.startswith(" ") for field in fields)
    # In `1, ?, a` the spaces separate the values and are not a part of them.
    skip = bool(fields) and spaced > len(fields) / 2
    if not _regularity(lines, delimiter)[1] and lines:
        possible_delimiters = [sign for sign in _DELIMITERS + _UNUSUAL_DELIMITERS if _regularity(lines, sign)[0] == 1]
        raise InputError(
            f"--data: {path}: expected two columns or more between {delimiter!r}, received the one column {lines[0]!r}",
            "give --delimiter with the character between two fields"
            + "".join(f", such as {sign!r}" for sign in possible_delimiters),
        )
    return CsvConfig(delimiter=delimiter, encoding=encoding, skip_initial_space=skip), notes


def _encoding(path: str, head: bytes) -> tuple[str, str]:
    """Derive the encoding of a text. Return it, and the evidence against UTF-8, or "" for UTF-8."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", "its byte-order mark"
    if b"\0" in head:
        halves = {"utf-16-be": head[::2].count(b"\0"), "utf-16-le": head[1::2].count(b"\0")}
        likely = max(halves, key=lambda name: halves[name])
        # Too few bytes are 0 for UTF-16, so the file is not text. The reader reports that.
        return (likely, "every other byte is 0") if halves[likely] > len(head) / 4 else ("utf-8", "")
    if _decodes(head, "utf-8"):
        return "utf-8", ""
    lines = head.splitlines()[:-1] or head.splitlines()
    beyond = [line for line in lines if not line.isascii()]
    if 2 * sum(_decodes(line + b"\n", "utf-8") for line in beyond) > len(beyond):
        # Most of the lines are UTF-8. The others are damaged; ExampleGen writes them to quarantine.
        return "utf-8", ""
    # In Western European languages, letters with accents stand alone or in pairs. Long runs of non-ASCII bytes are
    # words of another script, which cp1252 would decode to nonsense without an error.
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
    """Check whether a text is valid in an encoding. Its last character may be incomplete."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(text, False)
    except UnicodeError:
        return False
    return True


def _regularity(lines: Sequence[str], delimiter: str) -> tuple[float, int]:
    """Measure how regularly a delimiter divides lines.

    Returns:
      The share of lines with the same number of fields as the first line, and that number. Both are 0 if the first
      line has only one field.
    """
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
      sign: Decimal point or comma.
      why: Reason for a comma; "" for a point.
      hints: Column name → explanation that its numbers are read as text with this sign.
    """

    sign: Sign
    why: str
    hints: dict[str, str]


def decimal_sign(batch: pa.RecordBatch, given: Sign | None) -> DecimalSign:
    """Derive the decimal sign of a table: the sign that most columns of numbers use.

    A text such as `1,234` does not count as evidence for a decimal comma, because the comma may separate thousands.

    Args:
      batch: Columns of text, binary; missing values are null.
      given: Sign that the user specified. None to derive it.
    """
    examples = {
        name: example
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if (example := _example_of_sign(column.drop_null().unique().slice(0, _DISTINCT)))
    }
    commas = [name for name, example in examples.items() if example.is_clear and example.sign == ","]
    points = [name for name, example in examples.items() if example.is_clear and example.sign == "."]
    sign: Sign = given or ("," if len(commas) > len(points) else ".")
    if sign == ",":
        why = f"decimal comma{f': {commas[0]} has {examples[commas[0]].text!r}' if commas else ''}"
        # With a decimal comma, a point that separates thousands is read correctly and does not need a hint.
        hinted_columns = points
    else:
        why, hinted_columns = "", [name for name, example in examples.items() if example.sign == ","]
    other_sign = "." if sign == "," else ","
    hints = {
        name: f"numbers such as {examples[name].text!r} are text here, and numbers with --decimal {other_sign!r} or "
        "with data.csv.formats"
        for name in hinted_columns
    }
    return DecimalSign(sign, why, hints)


@dataclass(frozen=True)
class _Example:
    """A text with a decimal sign, and whether the sign cannot be a separator of thousands."""

    sign: Sign
    text: str
    is_clear: bool


def _example_of_sign(distinct: pa.Array) -> _Example | None:
    """Return a text with a decimal sign; None if a column's texts are not all numbers, or do not contain a sign."""
    forms: tuple[tuple[Sign, str], ...] = ((",", NUMBER_WITH_COMMA), (".", _POINT))
    for sign, form in forms:
        if pc.all(pc.match_substring_regex(distinct, form)).as_py():
            with_sign = distinct.filter(pc.match_substring(distinct, sign))
            clear = with_sign.filter(pc.invert(pc.match_substring_regex(with_sign, _THOUSANDS)))
            if len(with_sign):
                return _Example(sign, (clear if len(clear) else with_sign)[0].as_py().decode(), len(clear) > 0)
    return None
