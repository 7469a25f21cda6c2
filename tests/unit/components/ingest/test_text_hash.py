"""CRC-32 of many texts equals zlib's."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest

from components.ingest.text_hash import crc32

SHORT = [b"", b"a", b"\x00", b"\xff" * 8, b"company", b"00000000", "é".encode(), b"x" * 63, b"x" * 64, b"y" * 200]


@pytest.mark.both_lines
@pytest.mark.parametrize(
    "texts",
    [SHORT, [b"ab"] * 50 + SHORT, [b"z" * 40, b"", b"z" * 17], [b"0a1b", b"2c3d"], [b""], []],
    ids=["mostly long", "mostly short", "long", "one length", "empty", "none"],
)
def test_hashes_equal_zlibs(texts: list[bytes]) -> None:
    # A slice tests that offsets of the array are respected.
    for type_ in (pa.binary(), pa.large_binary()):
        column = pa.array([b"first", *texts, b"last"], type_).slice(1, len(texts))
        assert crc32(column).tolist() == [zlib.crc32(text) for text in texts]


@pytest.mark.both_lines
def test_hashes_of_random_texts_equal_zlibs() -> None:
    random = np.random.default_rng(3)
    texts = [random.bytes(int(length)) for length in random.integers(0, 24, 2_000)]
    assert crc32(pa.array(texts, pa.binary())).tolist() == [zlib.crc32(text) for text in texts]


@pytest.mark.both_lines
def test_missing_texts_do_not_affect_other_hashes() -> None:
    received = crc32(pa.array([None, b"a", None, b"bc"], pa.binary()))
    assert received.tolist()[1::2] == [zlib.crc32(b"a"), zlib.crc32(b"bc")]
    assert len(crc32(pa.array([None, None], pa.binary()))) == 2
