"""TFRecord files of TensorFlow are read, damage is reported, and damaged records are never returned."""

from __future__ import annotations

import gzip
import itertools
import struct
import tracemalloc
from pathlib import Path
from typing import Literal

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from components.base.errors import InputError
from components.data import tfrecord

Edit = tuple[Literal["flip", "delete", "insert", "cut"], float, int]

# The fixture tmp_path is shared by all examples, which is safe because every example overwrites the file.
fuzz = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
edits = st.lists(
    st.tuples(st.sampled_from(["flip", "delete", "insert", "cut"]), st.floats(0, 1), st.integers(1, 40)), max_size=4
)
payloads = st.lists(
    st.one_of(st.binary(max_size=60), st.builds(bytes, st.integers(0, 200)), st.just(b"tips" * 100)), max_size=30
)


def frame(data: bytes) -> bytes:
    return tfrecord.frame_head(len(data)) + data + struct.pack("<I", tfrecord.mask(google_crc32c.value(data)))


def frame_all(datas: list[bytes]) -> bytes:
    return b"".join(map(frame, datas))


def records_by_offset(datas: list[bytes]) -> dict[int, bytes]:
    """Return the records by their offset in an undamaged stream."""
    starts = itertools.accumulate((16 + len(data) for data in datas), initial=0)
    return dict(zip(starts, datas, strict=False))


def write(folder: Path, content: bytes, name: str = "in.tfrecord") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def read(path: str, block: int = 1 << 20) -> tuple[dict[int, bytes], list[int]]:
    """Read a file; return the intact records by offset, and the offsets of damaged records."""
    records: dict[int, bytes] = {}
    damaged: list[int] = []
    for chunk in tfrecord.records(path, block):
        assert chunk.records or chunk.damaged
        records.update(zip(chunk.offsets, chunk.records, strict=True))
        damaged.extend(chunk.damaged)
    assert list(records) == sorted(records)
    assert damaged == sorted(damaged)
    return records, damaged


def read_error(path: str, block: int = 1 << 20) -> InputError:
    with pytest.raises(InputError) as raised:
        read(path, block)
    return raised.value


def edit(content: bytes, changes: list[Edit]) -> bytes:
    edited = bytearray(content)
    for kind, where, amount in changes:
        at = int(where * len(edited))
        if kind == "flip" and at < len(edited):
            edited[at] ^= amount
        elif kind == "delete":
            del edited[at : at + amount]
        elif kind == "insert":
            edited[at:at] = bytes(amount)
        elif kind == "cut":
            del edited[at:]
    return bytes(edited)


def write_by_tensorflow(path: Path, datas: list[bytes], compression: str) -> str:
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for data in datas:
            writer.write(data)
    return str(path)


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("block", [1 << 10, 1 << 16, 8 << 20])
def test_records_written_by_tensorflow_are_read(tmp_path: Path, compression: str, block: int) -> None:
    random = np.random.default_rng(7)
    datas = [b"", b"\0", random.bytes(300_000), b"", random.bytes(70_000)]
    datas += [random.bytes(size) for size in random.integers(0, 500, 2000)] + [bytes(200_000), b"end"]
    path = write_by_tensorflow(tmp_path / "in", datas, compression)
    assert read(path, block) == (records_by_offset(datas), [])
    # A URL is opened by TensorFlow's file systems instead of Python.
    assert read(f"file://{path}", block) == (records_by_offset(datas), [])


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_tensorflow_reads_framed_records(tmp_path: Path, compression: str) -> None:
    datas = [b"", b"x", bytes(100_000), *(bytes([size]) * size for size in range(256))]
    path = write(tmp_path, gzip.compress(frame_all(datas)) if compression else frame_all(datas))
    assert list(tf.data.TFRecordDataset(path, compression).as_numpy_iterator()) == datas


def test_heads_and_masked_checksums_have_known_values() -> None:
    assert google_crc32c.value(b"123456789") == 0xE3069283
    assert tfrecord.mask(0xE3069283) == 0xC78AB0E5
    assert tfrecord.frame_head(0).hex() == "000000000000000029039807"
    np.testing.assert_array_equal(
        tfrecord.mask(np.array([0, 1, 2**32 - 1], np.uint32)), [tfrecord.mask(crc) for crc in (0, 1, 2**32 - 1)]
    )


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0), gzip.compress(b"", mtime=0) * 2])
def test_files_without_records_are_empty(tmp_path: Path, content: bytes) -> None:
    assert list(tfrecord.records(write(tmp_path, content))) == []


@pytest.mark.parametrize("length", [0x8B1F, 0x088B1F])
def test_record_whose_length_looks_like_gzip_is_read(tmp_path: Path, length: int) -> None:
    path = write(tmp_path, frame(bytes(length)))
    assert Path(path).read_bytes().startswith(b"\x1f\x8b")
    assert read(path) == ({0: bytes(length)}, [])


DATAS = [b"one", b"second", b"", b"the fourth"]  # The offsets are 0, 19, 41 and 57; the size is 83 bytes.


@pytest.mark.parametrize("block", [1, 5, 8 << 20])
@pytest.mark.parametrize(
    ("replaced_bytes", "damaged"),
    [
        ({31: b"S"}, [19]),
        ({40: b"\xff"}, [19]),
        ({53: b"\xff"}, [41]),
        ({12: b"O", 31: b"S", 82: b"\1"}, [0, 19, 57]),
    ],
)
def test_record_with_a_wrong_checksum_is_reported_and_other_records_are_read(
    tmp_path: Path, block: int, replaced_bytes: dict[int, bytes], damaged: list[int]
) -> None:
    content = bytearray(frame_all(DATAS))
    for at, new in replaced_bytes.items():
        content[at : at + len(new)] = new
    expected = {offset: data for offset, data in records_by_offset(DATAS).items() if offset not in damaged}
    assert read(write(tmp_path, bytes(content)), block) == (expected, damaged)
    assert read(write(tmp_path, gzip.compress(bytes(content))), block) == (expected, damaged)


@pytest.mark.parametrize("block", [1, 5, 8 << 20])
@pytest.mark.parametrize(
    ("at", "new", "expected"),
    [
        (19, b"\7", "a length that matches its checksum, received the bytes 0700000000000000"),
        (27, b"\0\0", "a length that matches its checksum, received the bytes 06000000000000000000"),
        (19, tfrecord.frame_head(1 << 62), f"at most {1 << 31} bytes of data, received a length of {1 << 62}"),
    ],
)
def test_damaged_length_is_reported_with_file_and_offset(
    tmp_path: Path, block: int, at: int, new: bytes, expected: str
) -> None:
    content = bytearray(frame_all(DATAS))
    content[at : at + len(new)] = new
    for data in (bytes(content), gzip.compress(bytes(content))):
        path = write(tmp_path, data)
        error = read_error(path, block)
        assert error.headline.startswith(f"{path}, offset 19: expected {expected}")
        assert error.remedy == "fetch or write the file again, or remove it from data.path"


def test_damaged_length_that_looks_like_gzip_is_reported(tmp_path: Path) -> None:
    content = bytearray(frame(bytes(0x88B1F)) + frame(b"next"))
    content[8] ^= 1
    assert "the compressed data is damaged" in read_error(write(tmp_path, bytes(content))).headline


@pytest.mark.parametrize("block", [1, 5, 8 << 20])
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (58, "a record of 16 bytes or more, received 1"),
        (68, "a record of 16 bytes or more, received 11"),
        (69, "a record of 26 bytes or more, received 12"),
        (78, "a record of 26 bytes or more, received 21"),
        (82, "a record of 26 bytes or more, received 25"),
    ],
)
def test_truncated_file_is_reported_with_file_and_offset(tmp_path: Path, block: int, size: int, expected: str) -> None:
    content = frame_all(DATAS)[:size]
    for data in (content, gzip.compress(content)):
        path = write(tmp_path, data)
        assert read_error(path, block).headline == f"{path}, offset 57: expected {expected}: the file is cut off"


@pytest.mark.parametrize("packed", [False, True])
def test_wrong_length_does_not_allocate_more_than_the_file_size(tmp_path: Path, packed: bool) -> None:
    content = frame(b"1") + tfrecord.frame_head(1 << 30) + bytes(10 << 20)
    path = write(tmp_path, gzip.compress(content, 1) if packed else content)
    tracemalloc.start()
    try:
        error = read_error(path)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert error.headline == (
        f"{path}, offset 17: expected a record of {(1 << 30) + 16} bytes or more, received {len(content) - 17}: "
        "the file is cut off"
    )


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_damaged_gzip_file_is_reported_with_file_and_offset(tmp_path: Path, block: int) -> None:
    content = frame_all(DATAS)
    packed = gzip.compress(content)
    for changed in (
        packed[:-1],
        packed[: len(packed) // 2],
        packed + b"\x1f\x8b",
        packed[:-5] + bytes([packed[-5] ^ 1]) + packed[-4:],  # The checksum is wrong.
        packed[:10] + b"\7" + packed[11:],  # The type of the first deflate block is invalid.
        packed + b"\0\0this is no gzip",
        gzip.compress(content[:60]) + packed[:10] + b"\7" + packed[11:],
    ):
        path = write(tmp_path, changed)
        error = read_error(path, block)
        assert error.headline.startswith(f"{path}: the compressed data is damaged or cut off after byte ")
        assert error.remedy == "fetch or write the file again"


@pytest.mark.parametrize("tail", [b"", bytes(100_000)])
def test_members_of_a_gzip_file_are_one_stream_and_padding_is_ignored(tmp_path: Path, tail: bytes) -> None:
    content = frame_all([b"abc" * 9000] * 50)
    members = [gzip.compress(content[begin : begin + 100_001]) for begin in range(0, len(content), 100_001)]
    path = write(tmp_path, b"".join(members) + tail)
    assert read(path, 4096) == (records_by_offset([b"abc" * 9000] * 50), [])


@fuzz
@given(datas=payloads, changes=edits, block=st.integers(1, 500), packed=st.booleans())
@example(datas=[b"a"], changes=[("cut", 0.9, 1)], block=1, packed=True)
def test_damage_never_goes_unreported(
    tmp_path: Path, datas: list[bytes], changes: list[Edit], block: int, packed: bool
) -> None:
    sound = frame_all(datas)
    content = edit(sound, changes)
    path = write(tmp_path, gzip.compress(content) if packed else content)
    try:
        records, damaged = read(path, block)
    except InputError:
        assert content != sound
        return
    # Intact and damaged records together begin at the start of the file.
    assert all(content[offset:].startswith(frame(data)) for offset, data in records.items())
    starts = sorted([*records, *damaged])
    assert starts[:1] in ([0], [])
    assert bool(damaged) <= (content != sound)
    if len(content) == len(sound) and all(kind == "flip" for kind, _, _ in changes):
        untouched = {at: data for at, data in records_by_offset(datas).items() if content[at:].startswith(frame(data))}
        assert records == untouched
        assert starts == list(records_by_offset(datas))


@fuzz
@given(datas=payloads, changes=edits, block=st.integers(1, 500), members=st.integers(1, 3))
def test_damaged_gzip_file_never_returns_a_wrong_record(
    tmp_path: Path, datas: list[bytes], changes: list[Edit], block: int, members: int
) -> None:
    full = frame_all(datas)
    bounds = [len(full) * member // members for member in range(members + 1)]
    packed = b"".join(gzip.compress(full[begin:end]) for begin, end in itertools.pairwise(bounds))
    content = packed[:3] + edit(packed[3:], changes)
    path = write(tmp_path, content)
    try:
        records, damaged = read(path, block)
    except InputError:
        assert content != packed
        return
    assert set(records.values()) <= set(datas)
    # The edited file may still be valid: an edit may change only a member's header, or remove an entire member.
    assert content != packed or (records, damaged) == (records_by_offset(datas), [])
