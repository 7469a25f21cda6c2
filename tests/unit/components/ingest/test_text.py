"""Text as rows: every field kept, every bad row named by its number, and a file in pieces read as if it were whole."""

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

from components.errors import InputError
from components.ingest import text
from components.ingest.config import CsvConfig
from components.ingest.header import header
from components.ingest.rows import Account, Ledger, Piece
from components.ingest.text import TextReader

pytestmark = pytest.mark.both_lines

Row = tuple["bytes | None", ...]

fuzz = settings(
    max_examples=150,
    deadline=None,
    # The file is written anew by every example, and the sizes are the same for all of them.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def write(folder: Path, content: str | bytes, name: str = "in.csv") -> str:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder / name)


def reader_of(path: str, wanted: Sequence[str] = (), **options: Any) -> TextReader:
    config = CsvConfig(**options)
    return TextReader(config, path, header(path, config).names, wanted)


def read_pieces(reader: TextReader, pieces: Sequence[Piece]) -> tuple[list[Row], list[int], Account]:
    """The rows of some pieces, the place of each in the file, and the account."""
    ledger = Ledger(None)
    rows: list[Row] = []
    origins: list[tuple[Piece, int]] = []
    for piece in pieces:
        for block in reader.read(piece, ledger):
            rows += zip(*(column.to_pylist() for column in block.columns.columns), strict=True)
            origins += [block.origin(row) for row in range(block.columns.num_rows)]
    account = ledger.close()
    assert account.rows == len(rows) + account.bad
    places = [place + account.before(piece.path, piece.number) for piece, place in origins]
    return rows, places, account


def read(path: str, wanted: Sequence[str] = (), **options: Any) -> list[Row]:
    reader = reader_of(path, wanted, **options)
    return read_pieces(reader, reader.cut(path, None))[0]


def bad(account: Account) -> list[tuple[int, str, Any]]:
    return [(account.place(one), one.reason, one.content) for one in account.first]


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
def test_text_as_it_comes(tmp_path: Path, content: str, options: dict[str, Any], rows: list[Row]) -> None:
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
def test_spaces_behind_delimiters_are_dropped_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, row: Row, block: int
) -> None:
    path = write(tmp_path, f"a, b,  c\n{line}\n\n{line}\r\n  7, 8, 9")
    monkeypatch.setattr(text, "_BLOCK", block)
    options: dict[str, Any] = {"skip_initial_space": True, "null_values": ("?",)}
    assert read(path, **options) == [row, row, (b"7", b"8", b"9")]


_spaced = st.text(st.sampled_from('x, "\n'), max_size=5)


@fuzz
@given(st.lists(st.tuples(_spaced, _spaced), min_size=1, max_size=6), st.integers(1, 9))
def test_spaces_are_dropped_as_python_drops_them(tmp_path: Path, rows: list[tuple[str, str]], block: int) -> None:
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\n").writerows([("a", "b"), *rows])
    content = written.getvalue()
    expected = list(csv.reader(io.StringIO(content, newline=""), skipinitialspace=True))[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK", block)
        found = read(write(tmp_path, content), skip_initial_space=True)
    assert found == [tuple(field.encode() or None for field in row) for row in expected]


def test_one_column_knows_empty_lines_from_missing_values(tmp_path: Path) -> None:
    assert read(write(tmp_path, 'a\n1\n\n""\n2\n')) == [(b"1",), (None,), (b"2",)]


def test_only_the_columns_that_are_wanted_are_taken(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c\n1,2,3\n4,5\n6,7,8\n")
    reader = reader_of(path, ["c", "a"])
    rows, places, account = read_pieces(reader, reader.cut(path, None))
    assert rows == [(b"1", b"3"), (b"6", b"8")]
    assert places == [2, 4]
    assert bad(account) == [(3, "expected 3 fields, received 2", "4,5")]


def test_a_row_longer_than_a_block_is_read_and_nothing_is_read_twice(tmp_path: Path) -> None:
    long = "x" * (3 << 20)
    path = write(tmp_path, "a,b\n1,x\n9\n" + f'1,"{long}"\n' + "2,y\n" * 10 + "9\n")
    reader = reader_of(path)
    rows, places, account = read_pieces(reader, reader.cut(path, None))
    assert rows == [(b"1", b"x"), (b"1", long.encode()), *[(b"2", b"y")] * 10]
    assert places == [2, *range(4, 15)]
    assert [place for place, _, _ in bad(account)] == [3, 15]


def test_a_row_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_BLOCK", 1 << 10)
    monkeypatch.setattr(text, "_MAX_ROW", 1 << 20)
    with pytest.raises(InputError) as raised:
        read(write(tmp_path, f"a,b\n1,{'x' * (3 << 20)}\n"))
    assert raised.value.headline == (
        f"{tmp_path}/in.csv: a row is longer than 1 MiB; a quote may be opened there and never closed"
    )


@pytest.mark.parametrize("block", [8, 1 << 20])
def test_rows_are_numbered_as_an_editor_numbers_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    # Ragged rows are passed over on the way, and must not shift the numbers of those below.
    path = write(tmp_path, "a,b\n1\n1\n5,x\n1,2,3\n6,y\n7,z\n1\n")
    reader = reader_of(path)
    monkeypatch.setattr(text, "_BLOCK", block)
    rows, places, account = read_pieces(reader, reader.cut(path, None))
    assert rows == [(b"5", b"x"), (b"6", b"y"), (b"7", b"z")]
    assert places == [4, 6, 7]
    assert bad(account) == [
        (2, "expected 2 fields, received 1", "1"),
        (3, "expected 2 fields, received 1", "1"),
        (5, "expected 2 fields, received 3", "1,2,3"),
        (8, "expected 2 fields, received 1", "1"),
    ]
    assert account.rows == 7


def test_a_header_of_several_lines_and_none_at_all_count_as_they_are(tmp_path: Path) -> None:
    for content, options, places in (
        ('a,"b\nc"\n1,2\n1\n', {}, [3, 4]),
        ("\n\na,b\n1,2\n1\n", {}, [4, 5]),
        ("1,2\n1\n", {"header": False}, [1, 2]),
    ):
        path = write(tmp_path, content)
        reader = reader_of(path, **options)
        _, found, account = read_pieces(reader, reader.cut(path, None))
        assert [*found, *(account.place(one) for one in account.first)] == places


# Arrow complains on the side when it cannot decode the text of a ragged row; the row is named all the same.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("block", [8, 1 << 20])
def test_ragged_rows_that_cannot_be_decoded_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    path = write(tmp_path, b"a,b\n1,2\n\xff\n\xff,\xc3\xa9\n1\n\xc3\xa9,3\n")
    reader = reader_of(path)
    monkeypatch.setattr(text, "_BLOCK", block)
    rows, places, account = read_pieces(reader, reader.cut(path, None))
    assert rows == [(b"1", b"2"), (b"\xff", "é".encode()), ("é".encode(), b"3")]
    assert places == [2, 4, 6]
    assert bad(account) == [
        (3, "expected 2 fields, received 1", "\\xff"),
        (5, "expected 2 fields, received 1", "1"),
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_byte_order_mark_is_dropped_however_often_the_file_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf1,2\n\xff\n3,4\n")
    assert read(path, header=False) == [(b"1", b"2"), (b"3", b"4")]


def test_what_an_encoding_cannot_read_does_not_pass_for_text(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b\n1,x\n3,\x81y\n")
    assert read(path, encoding="cp1252") == [(b"1", b"x"), (b"3", b"\xffy")]


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ('a,b\n1,x\n2,"y\n3,z\n4,w\n', 3),
        ('a,b\n1,x\n2,"y\n3,z\n4,w', 3),
        # In another column than the last one the rest of the file becomes a ragged row.
        ('a,b\n1,x\n"2,y\n3,z\n4,w\n', 3),
        ('a,b\n"2,y\n3,z\n4,w\n', 2),
        ('a,b\n1\n"2,y\n3,z\n', 3),
    ],
)
@pytest.mark.parametrize("wanted", [["a", "b"], ["a"]])
def test_a_quote_that_is_never_closed_is_refused(tmp_path: Path, content: str, row: int, wanted: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        read(write(tmp_path, content), wanted)
    assert raised.value.headline == f"{tmp_path}/in.csv, row {row}: a quote is opened and never closed"


def test_quotes_that_are_part_of_a_field_are_not_taken_for_open_ones(tmp_path: Path) -> None:
    assert read(write(tmp_path, 'a,b\n1,5"\n2,6"\n3,7"')) == [(b"1", b'5"'), (b"2", b'6"'), (b"3", b'7"')]
    path = write(tmp_path, 'a,b\n1,2\n5"\n')
    reader = reader_of(path)
    assert bad(read_pieces(reader, reader.cut(path, None))[2]) == [(3, "expected 2 fields, received 1", '5"')]


def test_a_file_with_another_header_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a,c\n1,2\n")
    with pytest.raises(InputError) as raised:
        TextReader(CsvConfig(), "first.csv", ["a", "b"]).cut(path, None)
    assert raised.value.headline == f"{path}: expected the header of first.csv, received without 'b'; with 'c'"


# csv.writer cannot write a lone surrogate; NUL is refused.
_texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)


@fuzz
@given(st.data())
def test_any_table_is_read_as_python_reads_it(tmp_path: Path, data: st.DataObject) -> None:
    width = data.draw(st.integers(2, 4))
    rows = data.draw(st.lists(st.tuples(*[_texts] * width), min_size=1, max_size=12))
    delimiter, line = data.draw(st.sampled_from(",;\t|")), data.draw(st.sampled_from(["\n", "\r\n"]))
    written = io.StringIO(newline="")
    # Where rows end with LF, the writer of older Pythons leaves a CR without quotes.
    quoted = (line == "\n" and any("\r" in field for row in rows for field in row)) or data.draw(st.booleans())
    quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    writer = csv.writer(written, delimiter=delimiter, lineterminator=line, quoting=quoting)
    writer.writerows([[f"c{at}" for at in range(width)], *rows])
    path = write(tmp_path, written.getvalue())
    assert read(path, delimiter=delimiter) == [tuple(field.encode() or None for field in row) for row in rows]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@fuzz
@given(st.lists(st.sampled_from([b",", b"\n", b'"', b"\r\n", b"1", b"x", b"\xff", b"\0", b"\xc3\xa9"]), max_size=40))
def test_any_bytes_are_read_or_refused(tmp_path: Path, pieces: list[bytes]) -> None:
    path = write(tmp_path, b"a,b\n1,2\n" + b"".join(pieces))
    try:
        reader = reader_of(path)
        rows, places, account = read_pieces(reader, reader.cut(path, None))
    except InputError:
        return
    assert places == sorted(set(places))
    assert rows[0] == (b"1", b"2")
    taken = {*places, *(one.place for one in account.first)}
    assert taken == set(range(2, 2 + account.rows)) or account.bad > len(account.first)


_quoted_fields = st.text(st.sampled_from('x,"\n\r'), max_size=6).map(lambda x: '"' + x.replace('"', '""') + '"')
_fields = st.one_of(
    st.text(st.sampled_from("xyz 1"), max_size=8),
    _quoted_fields,
    # Quotes that open nothing: behind the start of a field.
    st.sampled_from(['5"', 'x"y"', '6" by 4"', 'x""', 'x"']),
)
_tidy = st.one_of(st.text(st.sampled_from("xyz 1"), max_size=8), _quoted_fields)


def _lines(field: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    row = st.lists(field, min_size=2, max_size=2)
    ragged = st.lists(field, min_size=1, max_size=3)
    return st.lists(st.one_of(row, row, row, ragged).map(",".join), min_size=1, max_size=25)


def outcome(reader: TextReader, pieces: Sequence[Piece]) -> Any:
    """What comes of some pieces of a file: its rows with their places and the account, or the word of the refusal."""
    try:
        rows, places, account = read_pieces(reader, pieces)
    except InputError as error:
        return error.headline
    path = pieces[0].path
    return rows, places, account.rows, account.bad, bad(account), account.before(path, len(pieces))


def in_pieces_and_whole(path: str, size: int, block: int, **options: Any) -> int:
    """Reads a file in pieces of some size, compares that with the whole file, and tells how many pieces there were."""
    reader = reader_of(path, **options)
    whole = outcome(reader, [Piece(path)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_PIECE", size)
        patch.setattr(text, "_BLOCK", block)
        pieces = reader.cut(path, "train")
        assert [piece.number for piece in pieces] == list(range(len(pieces)))
        assert {piece.split for piece in pieces} == {"train"}
        assert outcome(reader, pieces) == whole
    return len(pieces)


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
def test_the_pieces_of_a_file_are_the_file(
    tmp_path: Path, lines: list[str], line: str, ends: bool, size: int, block: int
) -> None:
    content = line.join(["a,b", "0,0", *lines]) + (line if ends else "")
    in_pieces_and_whole(write(tmp_path, content), size, block)


@pytest.mark.parametrize("size", [7, 10, 33])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_a_file_is_cut_wherever_its_quotes_tell_where_rows_end(tmp_path: Path, size: int, line: str) -> None:
    rows = ["1,x", '2,"y, ""z"""', f'3,"{line}{line}x{line}1,2{line}"', "4", '"5",""', "6,7,8", '"",6'] * 9
    path = write(tmp_path, f"a,b{line}" + line.join(rows))
    assert in_pieces_and_whole(path, size, 50) > 5


def test_a_byte_order_mark_and_a_missing_header_leave_the_pieces_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff" + "1,2\n" * 50)
    assert in_pieces_and_whole(path, 16, 50, header=False) > 5


@pytest.mark.parametrize(
    ("name", "cut"), [("utf-8", True), ("UTF8", True), ("latin1", True), ("cp1252", True), ("utf-16", False)]
)
def test_only_encodings_whose_signs_are_single_bytes_are_cut(tmp_path: Path, name: str, cut: bool) -> None:
    path = write(tmp_path, ("a,b\n" + "1,é\n" * 100).encode(name))
    assert (in_pieces_and_whole(path, 64, 100, encoding=name) > 1) == cut


def test_small_files_packed_ones_and_those_with_spaces_to_skip_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"a,b\n" + b"1,2\n" * 100
    plain, packed = write(tmp_path, content), write(tmp_path, gzip.compress(content), "in.csv.gz")
    assert len(reader_of(plain).cut(plain, None)) == 1
    monkeypatch.setattr(text, "_PIECE", 10)
    assert len(reader_of(plain).cut(plain, None)) > 1
    assert len(reader_of(packed).cut(packed, None)) == 1
    assert len(reader_of(plain, skip_initial_space=True).cut(plain, None)) == 1
    assert read(packed) == read(plain) == [(b"1", b"2")] * 100
