"""Arbitrary bytes as a CSV file: every row is written or quarantined, or the run ends with an InputError."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from components.base.errors import InputError
from components.ingest import csv_reader
from tests.support.runs.ingest_runs import data, run_without_beam

_pieces = [b",", b"\n", b'"', b'""', b"\r\n", b"\r", b" ", b"1", b"-2.5", b"x", b"nan", b"9" * 19, b"0x1F", b"1_0"]
_bytes = [b"\xff", b"\0", b"\xc3\xa9", b"\xef\xbb\xbf", b"\x1f\x8b", b"PAR1", b"'", b";", b"1,2\n" * 30, b"a" * 300]
_contents = st.one_of(
    st.lists(st.sampled_from(_pieces + _bytes), max_size=40).map(b"".join),
    st.binary(max_size=200),
    st.lists(st.tuples(st.sampled_from([b"1", b"", b'"x\ny"', b"2.5", b"\xe9"]), st.sampled_from(_pieces))).map(
        lambda rows: b"".join(b",".join(row) + b"\n" for row in rows)
    ),
)
_options = st.fixed_dictionaries(
    {
        "encoding": st.sampled_from(["utf-8", "cp1252", "utf-16", "latin-1"]),
        "delimiter": st.sampled_from(",;"),
        "header": st.booleans(),
        "skip_initial_space": st.booleans(),
    }
)


# Arrow emits an unraisable exception if it cannot decode a ragged row, but the row is still reported.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(
    st.lists(_contents, min_size=1, max_size=3),
    st.sampled_from([b"a,b\n1,2\n", b"a,b\n", b"\xef\xbb\xbfa,b\r\n", b""]),
    st.one_of(st.just({}), _options),
    st.sampled_from([{}, {"a": "int"}, {"a": "float", "b": "bytes"}]),
    st.integers(1, 3),
)
@example([b'1,"x\n2,y\n'], b"a,b\n", {}, {}, 1)
def test_any_bytes_are_read_or_rejected(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[bytes],
    head: bytes,
    options: dict[str, Any],
    types: dict[str, Any],
    workers: int,
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "in").mkdir()
    for number, content in enumerate(contents):
        (folder / "in" / f"{number}.csv").write_bytes(head + content)
    config = data(folder / "in", csv=options, types=types, bad_rows={"max_fraction": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "_RANGE_BYTES", 40)
        patch.setattr(csv_reader, "_BLOCK", 50)
        try:
            # This function checks that every row that was read is either written or quarantined.
            result = run_without_beam(config, folder / "out", workers)
        except InputError:
            return
    assert {bad["file"] for bad in result.bad} <= {str(path) for path in (folder / "in").iterdir()}
    assert all(bad["row"] > 0 and bad["reason"] for bad in result.bad)
