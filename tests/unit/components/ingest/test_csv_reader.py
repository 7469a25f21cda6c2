"""Every field of a CSV file is read, bad rows are reported by number, and ranges together equal the file."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from components.base.errors import InputError
from components.ingest import csv_reader
from components.ingest.blocks import FileRange, RowCounts, RowLog
from components.ingest.csv_header import read_header
from components.ingest.csv_reader import CsvReader
from components.ingest.text_config import CsvConfig

pytestmark = pytest.mark.both_lines

Row = tuple["bytes | None", ...]

fuzz = settings(
    max_examples=150,
    deadline=None,
    # Sharing tmp_path is safe, because every example overwrites the file.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def write(folder: Path, content: str | bytes, name: str = "in.csv") -> str:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder / name)


def make_reader(path: str, requested: Sequence[str] = (), **options: Any) -> CsvReader:
    config = CsvConfig(**options)
    return CsvReader(config, path, read_header(path, config).names, requested)


def read_ranges(reader: CsvReader, file_ranges: Sequence[FileRange]) -> tuple[list[Row], list[int], RowCounts]:
    """Return the rows of some ranges, their positions in the file, and the counts."""
    row_log = RowLog(None)
    rows: list[Row] = []
    origins: list[tuple[FileRange, int]] = []
    for file_range in file_ranges:
        for block in reader.read(file_range, row_log):
            rows += zip(*(column.to_pylist() for column in block.columns.columns), strict=True)
            origins += [block.origin(row) for row in range(block.columns.num_rows)]
    counts = row_log.close()
    assert counts.rows == len(rows) + counts.bad
    positions = [at + counts.positions_before(origin.path, origin.number) for origin, at in origins]
    return rows, positions, counts


def read(path: str, requested: Sequence[str] = (), **options: Any) -> list[Row]:
    reader = make_reader(path, requested, **options)
    return read_ranges(reader, reader.ranges(path, None))[0]


def list_bad_rows(counts: RowCounts) -> list[tuple[int, str, Any]]:
    return [(counts.position_in_file(bad_row), bad_row.reason, bad_row.content) for bad_row in counts.first_bad]


@pytest.mark.parametrize(
    ("content", "options", "rows"),
    [
        ('a,b\r\n1,"x\r\ny"\r\n2,"say ""hi"""', {}, [(b"1", b"x\r\ny"), (b"2", b'say "hi"')]),
        ("\ufeffa,b\n1,x\n\n\n2,y", {}, [(b"1", b"x"), (b"2", b"y")]),
        ("a;b\n1;'x;y'\n", {"delimiter": ";", "quote": "'"}, [(b"1", b"x;y")]),
        ("a\tb\n1\tx,y\n", {"delimiter": "\t"}, [(b"1", b"x,y")]),
        (
            'a,b\nNA,x\n3,?\n"NA",""\n',
            {"null_values": ("NA", "?")},
            [(None, b"x"), (b"3", None), (None, None)],
        ),
        ('a,b\nx"y,5"\n', {}, [(b'x"y', b'5"')]),
        ("\na,b\r1,x\r2,y\r", {}, [(b"1", b"x"), (b"2", b"y")]),
        ('a,"b\nc"\n1,2\n', {}, [(b"1", b"2")]),
        ("ä ö,日本\n1,é\n", {}, [(b"1", "é".encode())]),
        ("a,b\n1,é\n", {"encoding": "cp1252"}, [(b"1", "é".encode())]),
        ("a,b\n1,é\n", {"encoding": "utf-16"}, [(b"1", "é".encode())]),
        ("a, b\n1,  é\n", {"encoding": "utf-16-le", "skip_initial_space": True}, [(b"1", "é".encode())]),
        ('a,b\n1,"x\n"\n', {}, [(b"1", b"x\n")]),
        ("1,x\n2,y\n", {"header": False}, [(b"1", b"x"), (b"2", b"y")]),
        ("\ufeff1,x\n2,y\n", {"header": False}, [(b"1", b"x"), (b"2", b"y")]),
        ("a,b\n 1, x\n", {}, [(b" 1", b" x")]),
    ],
)
def test_various_texts_are_read(tmp_path: Path, content: str, options: dict[str, Any], rows: list[Row]) -> None:
    assert read(write(tmp_path, content.encode(options.get("encoding", "utf-8"))), **options) == rows


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (" 1, x y ,  z", (b"1", b"x y ", b"z")),
        ('1, "b, c", d', (b"1", b"b, c", b"d")),
        ('1,"  kept",  "  kept, too"', (b"1", b"  kept", b"  kept, too")),
        ('1, "say ""a, b""",  z', (b"1", b'say "a, b"', b"z")),
        ('1, "x,\n  y",  z', (b"1", b"x,\n  y", b"z")),
        ('5", 6",  z', (b'5"', b'6"', b"z")),
        ('1, "",   ', (b"1", None, None)),
        ("1, ?, ? ", (b"1", None, b"? ")),
        ("1,\tx, y", (b"1", b"\tx", b"y")),
    ],
)
@pytest.mark.parametrize("block", [1, 5, 1 << 20])
def test_spaces_after_delimiters_are_dropped_if_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, row: Row, block: int
) -> None:
    path = write(tmp_path, f"a, b,  c\n{line}\n\n{line}\r\n  7, 8, 9")
    monkeypatch.setattr(csv_reader, "_BLOCK", block)
    options: dict[str, Any] = {"skip_initial_space": True, "null_values": ("?",)}
    assert read(path, **options) == [row, row, (b"7", b"8", b"9")]


_spaced = st.text(st.sampled_from('x, "\n'), max_size=5)


@fuzz
@given(st.lists(st.tuples(_spaced, _spaced), min_size=1, max_size=6), st.integers(1, 9))
def test_spaces_are_dropped_as_by_python(tmp_path: Path, rows: list[tuple[str, str]], block: int) -> None:
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\n").writerows([("a", "b"), *rows])
    content = written.getvalue()
    expected = list(csv.reader(io.StringIO(content, newline=""), skipinitialspace=True))[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "_BLOCK", block)
        result = read(write(tmp_path, content), skip_initial_space=True)
    assert result == [tuple(field.encode() or None for field in row) for row in expected]


def test_empty_lines_of_a_single_column_are_not_missing_values(tmp_path: Path) -> None:
    assert read(write(tmp_path, 'a\n1\n\n""\n2\n')) == [(b"1",), (None,), (b"2",)]


def test_only_selected_columns_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c\n1,2,3\n4,5\n6,7,8\n")
    reader = make_reader(path, ["c", "a"])
    rows, positions, counts = read_ranges(reader, reader.ranges(path, None))
    assert rows == [(b"1", b"3"), (b"6", b"8")]
    assert positions == [2, 4]
    assert list_bad_rows(counts) == [(3, "expected 3 fields, received 2", "4,5")]


def test_row_longer_than_a_block_is_read_once(tmp_path: Path) -> None:
    long = "x" * (3 << 20)
    path = write(tmp_path, "a,b\n1,x\n9\n" + f'1,"{long}"\n' + "2,y\n" * 10 + "9\n")
    reader = make_reader(path)
    rows, positions, counts = read_ranges(reader, reader.ranges(path, None))
    assert rows == [(b"1", b"x"), (b"1", long.encode()), *[(b"2", b"y")] * 10]
    assert positions == [2, *range(4, 15)]
    assert [position for position, _, _ in list_bad_rows(counts)] == [3, 15]


@pytest.mark.parametrize(("columns", "size"), [(2, 4000), (31, 4000), (32, 8000), (256, 64_000), (400, 64_000)])
def test_blocks_of_a_wide_table_are_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, size: int
) -> None:
    monkeypatch.setattr(csv_reader, "_BLOCK", 4000)
    line = ",".join(["12345"] * columns) + "\n"
    header = ",".join(f"x{number}" for number in range(columns)) + "\n"
    path = write(tmp_path, header + line * (400_000 // len(line)))
    reader = make_reader(path)
    parsed: list[int] = []
    parse = csv_reader._RangeReader._parse_columns

    def record(self: Any, text: bytes, ragged: list[Any]) -> Any:
        parsed.append(len(text))
        return parse(self, text, ragged)

    monkeypatch.setattr(csv_reader._RangeReader, "_parse_columns", record)
    list(reader.read(reader.first_range(path, None), RowLog(None)))
    # The first block also contains the text that was read together with the header, so it is skipped.
    assert len(parsed) > 3
    assert all(abs(length - size) <= len(line) for length in parsed[1:-1])


def test_too_long_row_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "_BLOCK", 1 << 10)
    monkeypatch.setattr(csv_reader, "_MAX_ROW", 1 << 20)
    with pytest.raises(InputError) as raised:
        read(write(tmp_path, f"a,b\n1,{'x' * (3 << 20)}\n"))
    assert raised.value.headline == (
        f"{tmp_path}/in.csv: a row is longer than 1 MiB; a quote may be opened there and never closed"
    )


@pytest.mark.parametrize("block", [8, 1 << 20])
def test_rows_are_numbered_as_by_an_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    # Ragged rows are skipped, but they must not shift the numbers of the rows below them.
    path = write(tmp_path, "a,b\n1\n1\n5,x\n1,2,3\n6,y\n7,z\n1\n")
    reader = make_reader(path)
    monkeypatch.setattr(csv_reader, "_BLOCK", block)
    rows, positions, counts = read_ranges(reader, reader.ranges(path, None))
    assert rows == [(b"5", b"x"), (b"6", b"y"), (b"7", b"z")]
    assert positions == [4, 6, 7]
    assert list_bad_rows(counts) == [
        (2, "expected 2 fields, received 1", "1"),
        (3, "expected 2 fields, received 1", "1"),
        (5, "expected 2 fields, received 3", "1,2,3"),
        (8, "expected 2 fields, received 1", "1"),
    ]
    assert counts.rows == 7


def test_row_numbers_include_the_lines_of_the_header(tmp_path: Path) -> None:
    for content, options, positions in (
        ('a,"b\nc"\n1,2\n1\n', {}, [3, 4]),
        ("\n\na,b\n1,2\n1\n", {}, [4, 5]),
        ("1,2\n1\n", {"header": False}, [1, 2]),
    ):
        path = write(tmp_path, content)
        reader = make_reader(path, **options)
        _, result, counts = read_ranges(reader, reader.ranges(path, None))
        assert [*result, *(counts.position_in_file(bad_row) for bad_row in counts.first_bad)] == positions


# Arrow emits an unraisable exception if it cannot decode a ragged row, but the row is still reported.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("block", [8, 1 << 20])
def test_ragged_rows_that_cannot_be_decoded_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    path = write(tmp_path, b"a,b\n1,2\n\xff\n\xff,\xc3\xa9\n1\n\xc3\xa9,3\n")
    reader = make_reader(path)
    monkeypatch.setattr(csv_reader, "_BLOCK", block)
    rows, positions, counts = read_ranges(reader, reader.ranges(path, None))
    assert rows == [(b"1", b"2"), (b"\xff", "é".encode()), ("é".encode(), b"3")]
    assert positions == [2, 4, 6]
    assert list_bad_rows(counts) == [
        (3, "expected 2 fields, received 1", "\\xff"),
        (5, "expected 2 fields, received 1", "1"),
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_byte_order_mark_is_dropped_on_every_pass(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf1,2\n\xff\n3,4\n")
    assert read(path, header=False) == [(b"1", b"2"), (b"3", b"4")]


def test_undecodable_bytes_become_invalid_utf8(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b\n1,x\n3,\x81y\n")
    assert read(path, encoding="cp1252") == [(b"1", b"x"), (b"3", b"\xffy")]


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ('a,b\n1,x\n2,"y\n3,z\n4,w\n', 3),
        ('a,b\n1,x\n2,"y\n3,z\n4,w', 3),
        # In a column before the last column, the rest of the file becomes a ragged row.
        ('a,b\n1,x\n"2,y\n3,z\n4,w\n', 3),
        ('a,b\n"2,y\n3,z\n4,w\n', 2),
        ('a,b\n1\n"2,y\n3,z\n', 3),
    ],
)
@pytest.mark.parametrize("requested", [["a", "b"], ["a"]])
def test_unclosed_quote_is_rejected(tmp_path: Path, content: str, row: int, requested: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        read(write(tmp_path, content), requested)
    assert raised.value.headline == f"{tmp_path}/in.csv, row {row}: a quote is opened and never closed"


def test_quotes_inside_a_field_do_not_open_it(tmp_path: Path) -> None:
    assert read(write(tmp_path, 'a,b\n1,5"\n2,6"\n3,7"')) == [(b"1", b'5"'), (b"2", b'6"'), (b"3", b'7"')]
    path = write(tmp_path, 'a,b\n1,2\n5"\n')
    reader = make_reader(path)
    assert list_bad_rows(read_ranges(reader, reader.ranges(path, None))[2]) == [
        (3, "expected 2 fields, received 1", '5"')
    ]


def test_file_with_another_header_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path, "a,c\n1,2\n")
    with pytest.raises(InputError) as raised:
        CsvReader(CsvConfig(), "first.csv", ["a", "b"]).ranges(path, None)
    assert raised.value.headline == f"{path}: expected the header of first.csv, received without 'b'; with 'c'"


# csv.writer cannot write lone surrogates, and the reader rejects NUL.
_texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)


@fuzz
@given(st.data())
def test_any_table_is_read_as_by_python(tmp_path: Path, data: st.DataObject) -> None:
    width = data.draw(st.integers(2, 4))
    rows = data.draw(st.lists(st.tuples(*[_texts] * width), min_size=1, max_size=12))
    delimiter, line = data.draw(st.sampled_from(",;\t|")), data.draw(st.sampled_from(["\n", "\r\n"]))
    written = io.StringIO(newline="")
    # If lines end with LF, csv.writer of older Python versions does not quote fields that contain CR.
    quoted = (line == "\n" and any("\r" in field for row in rows for field in row)) or data.draw(st.booleans())
    quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    writer = csv.writer(written, delimiter=delimiter, lineterminator=line, quoting=quoting)
    writer.writerows([[f"c{at}" for at in range(width)], *rows])
    path = write(tmp_path, written.getvalue())
    assert read(path, delimiter=delimiter) == [tuple(field.encode() or None for field in row) for row in rows]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@fuzz
@given(st.lists(st.sampled_from([b",", b"\n", b'"', b"\r\n", b"1", b"x", b"\xff", b"\0", b"\xc3\xa9"]), max_size=40))
def test_any_bytes_are_read_or_rejected(tmp_path: Path, file_ranges: list[bytes]) -> None:
    path = write(tmp_path, b"a,b\n1,2\n" + b"".join(file_ranges))
    try:
        reader = make_reader(path)
        rows, positions, counts = read_ranges(reader, reader.ranges(path, None))
    except InputError:
        return
    assert positions == sorted(set(positions))
    assert rows[0] == (b"1", b"2")
    known_positions = {*positions, *(bad_row.position for bad_row in counts.first_bad)}
    assert known_positions == set(range(2, 2 + counts.rows)) or counts.bad > len(counts.first_bad)


_quoted_fields = st.text(st.sampled_from('x,"\n\r'), max_size=6).map(lambda x: '"' + x.replace('"', '""') + '"')
_fields = st.one_of(
    st.text(st.sampled_from("xyz 1"), max_size=8),
    _quoted_fields,
    # Quotes open a field only at its start.
    st.sampled_from(['5"', 'x"y"', '6" by 4"', 'x""', 'x"']),
)
_tidy = st.one_of(st.text(st.sampled_from("xyz 1"), max_size=8), _quoted_fields)


def _lines(field: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    row = st.lists(field, min_size=2, max_size=2)
    ragged = st.lists(field, min_size=1, max_size=3)
    return st.lists(st.one_of(row, row, row, ragged).map(",".join), min_size=1, max_size=25)


def outcome(reader: CsvReader, file_ranges: Sequence[FileRange]) -> Any:
    """Return the rows, positions and counts of ranges of a file, or the message of the error."""
    try:
        rows, positions, counts = read_ranges(reader, file_ranges)
    except InputError as error:
        return error.headline
    path = file_ranges[0].path
    return (
        rows,
        positions,
        counts.rows,
        counts.bad,
        list_bad_rows(counts),
        counts.positions_before(path, len(file_ranges)),
    )


def compare_ranges_with_whole(path: str, size: int, block: int, **options: Any) -> int:
    """Read a file in ranges of some size, compare them with the whole file, and return the number of ranges."""
    reader = make_reader(path, **options)
    full = outcome(reader, [FileRange(path)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "_RANGE_BYTES", size)
        patch.setattr(csv_reader, "_BLOCK", block)
        file_ranges = reader.ranges(path, "train")
        assert [file_range.number for file_range in file_ranges] == list(range(len(file_ranges)))
        assert {file_range.split for file_range in file_ranges} == {"train"}
        assert outcome(reader, file_ranges) == full
    return len(file_ranges)


@fuzz
@given(
    st.one_of(_lines(_tidy), _lines(_fields)),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.integers(2, 40),
    st.integers(4, 64),
)
@example(['1,5"', '2,"a', 'b"', "3,4"], "\n", True, 8, 64)
@example(["1,2", '3,"x', "4,5", "6,7", "8,9", "1,2"], "\n", True, 4, 64)
def test_ranges_of_a_file_equal_the_file(
    tmp_path: Path, lines: list[str], line: str, ends: bool, size: int, block: int
) -> None:
    content = line.join(["a,b", "0,0", *lines]) + (line if ends else "")
    compare_ranges_with_whole(write(tmp_path, content), size, block)


@pytest.mark.parametrize("size", [7, 10, 33])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_file_is_divided_at_ends_of_rows_outside_quotes(tmp_path: Path, size: int, line: str) -> None:
    rows = ["1,x", '2,"y, ""z"""', f'3,"{line}{line}x{line}1,2{line}"', "4", '"5",""', "6,7,8", '"",6'] * 9
    path = write(tmp_path, f"a,b{line}" + line.join(rows))
    assert compare_ranges_with_whole(path, size, 50) > 5


def test_file_with_byte_order_mark_and_without_header_is_divided(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff" + "1,2\n" * 50)
    assert compare_ranges_with_whole(path, 16, 50, header=False) > 5


@pytest.mark.parametrize(
    ("name", "cut"), [("utf-8", True), ("UTF8", True), ("latin1", True), ("cp1252", True), ("utf-16", False)]
)
def test_only_files_in_encodings_with_single_byte_delimiters_are_divided(tmp_path: Path, name: str, cut: bool) -> None:
    path = write(tmp_path, ("a,b\n" + "1,é\n" * 100).encode(name))
    assert (compare_ranges_with_whole(path, 64, 100, encoding=name) > 1) == cut


def test_small_and_compressed_files_and_files_with_skipped_spaces_are_not_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"a,b\n" + b"1,2\n" * 100
    plain, packed = write(tmp_path, content), write(tmp_path, gzip.compress(content), "in.csv.gz")
    assert len(make_reader(plain).ranges(plain, None)) == 1
    monkeypatch.setattr(csv_reader, "_RANGE_BYTES", 10)
    assert len(make_reader(plain).ranges(plain, None)) > 1
    assert len(make_reader(packed).ranges(packed, None)) == 1
    assert len(make_reader(plain, skip_initial_space=True).ranges(plain, None)) == 1
    assert read(packed) == read(plain) == [(b"1", b"2")] * 100
