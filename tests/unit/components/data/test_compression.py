"""Compressed files are recognized by their first bytes, decompressed, and rejected if they are damaged."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from components.base.errors import InputError
from components.data.compression import is_compressed, open_decompressed

pytestmark = pytest.mark.both_lines

CONTENT = b"".join(hashlib.sha256(b"%d" % number).hexdigest().encode() + b",1\n" for number in range(20_000))
assert len(CONTENT) > 1 << 20


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


Pack = Callable[[bytes], bytes]
PACKERS = pytest.mark.parametrize("pack", [gzip.compress, zstd])


def write(folder: Path, content: bytes) -> str:
    # The file name does not reveal the compression.
    (folder / "in.csv").write_bytes(content)
    return str(folder / "in.csv")


def read(path: str) -> bytes:
    with open_decompressed(path) as file:
        return file.read()


@PACKERS
def test_compressed_file_is_read_as_its_content(tmp_path: Path, pack: Pack) -> None:
    path = write(tmp_path, pack(CONTENT))
    assert is_compressed(path)
    assert read(path) == CONTENT
    with open_decompressed(path) as file:
        assert file.read(10) == CONTENT[:10]
        assert file.readline() == CONTENT[10:].splitlines(keepends=True)[0]


@PACKERS
def test_several_members_are_one_file(tmp_path: Path, pack: Pack) -> None:
    parts = [CONTENT[:7], CONTENT[7:1000], b"", CONTENT[1000:]]
    assert read(write(tmp_path, b"".join(map(pack, parts)))) == CONTENT


@PACKERS
def test_compressed_empty_file_is_empty(tmp_path: Path, pack: Pack) -> None:
    assert read(write(tmp_path, pack(b""))) == b""


@pytest.mark.parametrize("content", [b"", b"a", b"a,b\n1,2\n", CONTENT])
def test_file_without_compression_is_read_unchanged(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    assert not is_compressed(path)
    assert read(path) == content


@PACKERS
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.999])
def test_truncated_file_is_rejected(tmp_path: Path, pack: Pack, fraction: float) -> None:
    full = pack(CONTENT)
    path = write(tmp_path, full[: int(fraction * len(full))])
    with pytest.raises(InputError) as raised:
        read(path)
    message = re.fullmatch(
        rf"{re.escape(path)}: the compressed data is damaged or cut off after byte (\d+) of its content: .+",
        raised.value.headline,
    )
    assert message
    assert int(message[1]) <= len(CONTENT)
    assert raised.value.remedy == "fetch or write the file again"


@pytest.mark.parametrize(("pack", "share"), [(gzip.compress, 0.5), (zstd, 0.0)])
def test_damaged_file_is_rejected(tmp_path: Path, pack: Pack, share: float) -> None:
    full = bytearray(pack(CONTENT))
    # Damage the header of a zstd frame, because zstd data have a checksum only if the writer enabled it.
    start = 8 + int(share * len(full))
    full[start : start + 64] = b"\xff" * 64
    with pytest.raises(InputError, match="damaged or cut off"):
        read(write(tmp_path, bytes(full)))
