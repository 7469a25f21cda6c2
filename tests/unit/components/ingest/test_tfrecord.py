"""TFRecord files: TensorFlow's own are read to the last byte, and of damaged ones no byte goes without account."""

from __future__ import annotations

import gzip
import itertools
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Literal

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from components.ingest import tfrecord
from components.ingest.tfrecord import Damage

Records = dict[int, bytes]  # by offset
Edit = tuple[Literal["flip", "delete", "insert", "cut"], float, int]

# The file is written anew by every example.
fuzz = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
edits = st.lists(
    st.tuples(st.sampled_from(["flip", "delete", "insert", "cut"]), st.floats(0, 1), st.integers(1, 40)), max_size=4
)
payloads = st.lists(
    st.one_of(st.binary(max_size=60), st.builds(bytes, st.integers(0, 200)), st.just(b"tips" * 100)), max_size=30
)


def frame(data: bytes) -> bytes:
    return tfrecord.frame_head(len(data)) + data + struct.pack("<I", tfrecord.mask(google_crc32c.value(data)))


def stream_of(datas: list[bytes]) -> bytes:
    return b"".join(map(frame, datas))


def placed(datas: list[bytes]) -> Records:
    """The records by where they start in a sound stream."""
    starts = itertools.accumulate((16 + len(data) for data in datas), initial=0)
    return dict(zip(starts, datas, strict=False))


def write(folder: Path, content: bytes, name: str = "in.tfrecord") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def read(path: str, block: int = 1 << 20) -> tuple[Records, list[Damage]]:
    """Reads a file, and checks that records and damages cover it from its start, in order and without gaps."""
    records: Records = {}
    damages: list[Damage] = []
    end = 0
    for datas, offsets, found in tfrecord.records(path, block):
        assert datas or found
        spans = [(offset, 16 + len(data)) for offset, data in zip(offsets, datas, strict=True)]
        assert spans == sorted(spans)
        assert found == sorted(found, key=lambda damage: damage.offset)
        for offset, size in sorted([*spans, *((damage.offset, damage.size) for damage in found)]):
            assert offset == end
            end += size
        records.update(zip(offsets, datas, strict=True))
        damages.extend(found)
    return records, damages


def covered(records: Records, damages: list[Damage]) -> int:
    return sum(16 + len(data) for data in records.values()) + sum(damage.size for damage in damages)


def edit(content: bytes, changes: list[Edit]) -> tuple[bytes, int]:
    """Content with changes, and how many bytes at its start are as they were."""
    edited, sound = bytearray(content), len(content)
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
        sound = min(sound, at)
    return bytes(edited), sound


def unpack(content: bytes) -> tuple[bytes, bool]:
    """What zlib makes of a gzip file up to where it breaks, and whether it comes to the end."""
    unpacked = b""
    member = zlib.decompressobj(31)
    for byte in content:
        if member.eof and not byte:
            continue
        if member.eof:
            member = zlib.decompressobj(31)
        try:
            unpacked += member.decompress(bytes([byte]))
        except zlib.error:
            return unpacked, False
    return unpacked, member.eof


def written_by_tensorflow(path: Path, datas: list[bytes], compression: str) -> str:
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for data in datas:
            writer.write(data)
    return str(path)


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("block", [1 << 10, 1 << 16, 8 << 20])
def test_what_tensorflow_writes_is_read(tmp_path: Path, compression: str, block: int) -> None:
    random = np.random.default_rng(7)
    datas = [b"", b"\0", random.bytes(300_000), b"", random.bytes(70_000)]
    datas += [random.bytes(size) for size in random.integers(0, 500, 2000)] + [bytes(200_000), b"end"]
    path = written_by_tensorflow(tmp_path / "in", datas, compression)
    assert read(path, block) == (placed(datas), [])
    # And from a URL, which goes through TensorFlow's file systems.
    assert read(f"file://{path}", block) == (placed(datas), [])


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_tensorflow_reads_what_is_framed_here(tmp_path: Path, compression: str) -> None:
    datas = [b"", b"x", bytes(100_000), *(bytes([size]) * size for size in range(256))]
    path = write(tmp_path, gzip.compress(stream_of(datas)) if compression else stream_of(datas))
    assert list(tf.data.TFRecordDataset(path, compression).as_numpy_iterator()) == datas


def test_a_head_and_a_masked_checksum_stay_what_they_are() -> None:
    assert google_crc32c.value(b"123456789") == 0xE3069283
    assert tfrecord.mask(0xE3069283) == 0xC78AB0E5
    assert tfrecord.frame_head(0).hex() == "000000000000000029039807"
    np.testing.assert_array_equal(
        tfrecord.mask(np.array([0, 1, 2**32 - 1], np.uint32)), [tfrecord.mask(crc) for crc in (0, 1, 2**32 - 1)]
    )


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0), gzip.compress(b"", mtime=0) * 2])
def test_files_without_records_yield_nothing(tmp_path: Path, content: bytes) -> None:
    assert list(tfrecord.records(write(tmp_path, content))) == []


@pytest.mark.parametrize("length", [0x8B1F, 0x088B1F])
def test_a_record_whose_length_looks_like_gzip_is_a_record(tmp_path: Path, length: int) -> None:
    path = write(tmp_path, frame(bytes(length)))
    assert Path(path).read_bytes().startswith(b"\x1f\x8b")
    assert read(path) == ({0: bytes(length)}, [])


def test_a_damaged_length_that_looks_like_gzip_is_a_damage(tmp_path: Path) -> None:
    content = bytearray(frame(bytes(0x8B1F)) + frame(b"next"))
    content[8] ^= 1
    records, (damage,) = read(write(tmp_path, bytes(content)))
    assert (list(records.values()), damage.size) == ([b"next"], 16 + 0x8B1F)


DATAS = [b"one", b"second", b"", b"the fourth"]  # at 0, 19, 41 and 57; 83 bytes


@pytest.mark.parametrize("block", [1, 5, 8 << 20])
@pytest.mark.parametrize(
    ("changed", "lost", "damages"),
    [
        ({31: b"S"}, [19], [Damage(19, 22, "the data do not fit their checksum")]),
        ({40: b"\xff"}, [19], [Damage(19, 22, "the data do not fit their checksum")]),
        ({53: b"\xff"}, [41], [Damage(41, 16, "the data do not fit their checksum")]),
        ({19: b"\7"}, [19], [Damage(19, 22, "the length does not fit its checksum; 22 bytes are passed over")]),
        ({27: b"\0\0"}, [19], [Damage(19, 22, "the length does not fit its checksum; 22 bytes are passed over")]),
        (
            {19: b"\7", 41: b"\1"},
            [19, 41],
            [Damage(19, 38, "the length does not fit its checksum; 38 bytes are passed over")],
        ),
        (
            {3: b"\xff", 31: b"S", 60: b"\1"},
            [0, 19, 57],
            [
                Damage(0, 19, "the length does not fit its checksum; 19 bytes are passed over"),
                Damage(19, 22, "the data do not fit their checksum"),
                Damage(57, 26, "the length does not fit its checksum; 26 bytes are passed over"),
            ],
        ),
        # A sound length, but of more than there is.
        (
            {41: tfrecord.frame_head(1 << 62)},
            [41, 57],
            [Damage(41, 42, f"expected {1 << 62} bytes of data, received 30: the file is cut off")],
        ),
    ],
)
def test_each_damage_is_told_and_what_is_sound_is_read(
    tmp_path: Path, block: int, changed: dict[int, bytes], lost: list[int], damages: list[Damage]
) -> None:
    content = bytearray(stream_of(DATAS))
    for at, new in changed.items():
        content[at : at + len(new)] = new
    expected = {offset: data for offset, data in placed(DATAS).items() if offset not in lost}
    assert read(write(tmp_path, bytes(content)), block) == (expected, damages)
    assert read(write(tmp_path, gzip.compress(bytes(content))), block) == (expected, damages)


@pytest.mark.parametrize("block", [1, 5, 8 << 20])
@pytest.mark.parametrize(
    ("size", "damage"),
    [
        (58, Damage(57, 1, "expected 12 bytes of a length and its checksum, received 1: the file is cut off")),
        (68, Damage(57, 11, "expected 12 bytes of a length and its checksum, received 11: the file is cut off")),
        (69, Damage(57, 12, "expected 10 bytes of data, received 0: the file is cut off")),
        (78, Damage(57, 21, "expected 10 bytes of data, received 9: the file is cut off")),
        (79, Damage(57, 22, "expected 4 bytes of a checksum, received 0: the file is cut off")),
        (82, Damage(57, 25, "expected 4 bytes of a checksum, received 3: the file is cut off")),
    ],
)
def test_a_file_that_is_cut_off_is_read_up_to_there(tmp_path: Path, block: int, size: int, damage: Damage) -> None:
    content = stream_of(DATAS)[:size]
    assert read(write(tmp_path, content), block) == (placed(DATAS[:3]), [damage])
    assert read(write(tmp_path, gzip.compress(content)), block) == (placed(DATAS[:3]), [damage])


@pytest.mark.parametrize("block", [7, 50])
def test_a_record_that_is_too_long_to_be_held_is_passed_over(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tfrecord, "_MOST", 100)
    monkeypatch.setattr(tfrecord, "_INPUT", 20)
    datas = [b"a", bytes(101), b"b", bytes(5000), bytes(100), bytes(102)]
    expected = {offset: data for offset, data in placed(datas).items() if len(data) <= 100}
    content = stream_of(datas)
    damages = [
        Damage(17, 117, "expected 100 bytes of data at most, received 101"),
        Damage(151, 5016, "expected 100 bytes of data at most, received 5000"),
        Damage(5283, 118, "expected 100 bytes of data at most, received 102"),
    ]
    assert read(write(tmp_path, content), block) == (expected, damages)
    assert read(write(tmp_path, gzip.compress(content, 0)), block) == (expected, damages)
    damages[-1] = Damage(5283, 117, "expected 4 bytes of a checksum, received 3: the file is cut off")
    assert read(write(tmp_path, content[:-1]), block) == (expected, damages)
    assert read(write(tmp_path, gzip.compress(content[:-1], 0)), block) == (expected, damages)


@pytest.mark.parametrize(("length", "packed"), [(1 << 40, False), (1 << 30, False), (1 << 40, True)])
def test_a_length_that_lies_takes_no_memory(tmp_path: Path, length: int, packed: bool) -> None:
    content = frame(b"1") + tfrecord.frame_head(length) + bytes(100 << 20)
    path = write(tmp_path, gzip.compress(content, 1) if packed else content)
    reason = f"expected {length} bytes of data, received {100 << 20}: the file is cut off"
    tracemalloc.start()
    try:
        assert read(path) == ({0: b"1"}, [Damage(17, len(content) - 17, reason)])
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", range(1, 20))
def test_the_next_record_is_found_behind_a_few_bytes(tmp_path: Path, size: int) -> None:
    path = write(tmp_path, frame(b"first") + b"\xff" * size + stream_of([b"", b"last"]))
    records, damages = read(path)
    assert list(records.values()) == [b"first", b"", b"last"]
    assert damages == [Damage(21, size, f"the length does not fit its checksum; {size} bytes are passed over")]


@pytest.mark.parametrize(("length", "packed"), [(1 << 30, False), (3 << 30, False), (3 << 30, True)])
def test_a_search_is_not_taken_in_by_a_length_that_cannot_be(tmp_path: Path, length: int, packed: bool) -> None:
    content = b"\xff" * 20 + tfrecord.frame_head(length) + frame(b"last")
    path = write(tmp_path, gzip.compress(content) if packed else content)
    expected = Damage(0, 32, "the length does not fit its checksum; 32 bytes are passed over")
    assert read(path) == ({32: b"last"}, [expected])


def test_the_next_record_is_found_behind_megabytes_of_anything(tmp_path: Path) -> None:
    last = [b"", b"x" * 70_000, b"last"]
    for junk in (
        bytes(3 << 20),
        np.random.default_rng(7).bytes(3 << 20),
        struct.pack("<II", 7, 0) * 300_001,
        b"\xff" * 999_999,
    ):
        content = frame(b"first") + b"\xff" * 12 + junk + stream_of(last)
        for block in (1 << 16, 1 << 20, 8 << 20):
            records, damages = read(write(tmp_path, content), block)
            size = len(junk) + 12
            assert list(records.values()) == [b"first", *last]
            assert damages == [Damage(21, size, f"the length does not fit its checksum; {size} bytes are passed over")]


@fuzz
@given(content=st.binary(max_size=2000), block=st.integers(1, 300))
@example(content=b"\x1f\x8b\x08", block=1)
@example(content=b"\x1f\x8b\x08" + bytes(50), block=7)
@example(content=bytes(1000), block=100)
@example(content=tfrecord.frame_head(5) * 9, block=8)
def test_of_any_bytes_each_is_accounted_for(tmp_path: Path, content: bytes, block: int) -> None:
    path = write(tmp_path, content)
    records, damages = read(path, block)
    assert all(content[offset:].startswith(frame(data)) for offset, data in records.items())
    if not content.startswith(b"\x1f\x8b\x08"):
        assert covered(records, damages) == len(content)
    assert read(path) == (records, damages)
    # As gzip, and as what claims to be.
    assert covered(*read(write(tmp_path, gzip.compress(content)), block)) == len(content)
    read(write(tmp_path, b"\x1f\x8b\x08\0" + content), block)


@fuzz
@given(datas=payloads, changes=edits, block=st.integers(1, 500))
def test_damage_takes_no_record_before_it(tmp_path: Path, datas: list[bytes], changes: list[Edit], block: int) -> None:
    content, sound = edit(stream_of(datas), changes)
    path = write(tmp_path, content)
    records, damages = read(path, block)
    assert covered(records, damages) == len(content)
    assert {offset: data for offset, data in placed(datas).items() if offset + 16 + len(data) <= sound} == {
        offset: data for offset, data in records.items() if offset + 16 + len(data) <= sound
    }
    assert read(path) == (records, damages)
    if all(kind == "flip" for kind, _, _ in changes):
        # Nothing has moved, so what is behind the damages is read as well.
        whole = stream_of(datas)
        touched = {at for at, (one, other) in enumerate(zip(whole, content, strict=True)) if one != other}
        assert records == {
            offset: data
            for offset, data in placed(datas).items()
            if touched.isdisjoint(range(offset, offset + 16 + len(data)))
        }


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_a_gzip_file_that_breaks_is_told_once(tmp_path: Path, block: int) -> None:
    content = stream_of(DATAS)
    packed = gzip.compress(content)
    whole, first = placed(DATAS), placed(DATAS[:3])
    cut, damaged = "the gzip stream is cut off", "the gzip stream is damaged: "

    assert read(write(tmp_path, packed[:-1]), block) == (whole, [Damage(83, 0, cut)])
    assert read(write(tmp_path, packed + b"\x1f\x8b"), block) == (whole, [Damage(83, 0, cut)])
    # Stored bytes rather than codes: 60 of them are 60 of the stream.
    header = 10 + 5
    assert read(write(tmp_path, gzip.compress(content, 0)[: header + 60]), block) == (first, [Damage(57, 3, cut)])

    wrong_checksum = packed[:-5] + bytes([packed[-5] ^ 1]) + packed[-4:]
    no_code = packed[:10] + b"\7" + packed[11:]  # a block of the type that deflate does not have
    for changed, records, offset, size in (
        (wrong_checksum, whole, 83, 0),
        (packed + b"\0\0this is no gzip", whole, 83, 0),
        (gzip.compress(content[:60]) + no_code, first, 57, 3),
    ):
        found, (damage,) = read(write(tmp_path, changed), block)
        assert found == records
        assert (damage.offset, damage.size) == (offset, size)
        assert damage.reason.startswith(damaged)

    lost = Damage(83, 50, "the length does not fit its checksum; 50 bytes are passed over")
    unframed = gzip.compress(content + b"\xff" * 50)
    assert read(write(tmp_path, unframed[:-1]), block) == (whole, [lost, Damage(133, 0, cut)])


@fuzz
@given(datas=payloads, changes=edits, block=st.integers(1, 500), members=st.integers(1, 3), step=st.integers(1, 100))
def test_a_gzip_file_is_read_up_to_where_it_breaks(
    tmp_path: Path, datas: list[bytes], changes: list[Edit], block: int, members: int, step: int
) -> None:
    whole = stream_of(datas)
    bounds = [len(whole) * member // members for member in range(members + 1)]
    packed = b"".join(gzip.compress(whole[begin:end]) for begin, end in itertools.pairwise(bounds))
    content = packed[:3] + edit(packed[3:], changes)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord, "_INPUT", step)
        records, damages = read(write(tmp_path, content), block)
    unpacked, ended = unpack(content)
    expected = {at: data for at, data in placed(datas).items() if unpacked.startswith(whole[: at + 16 + len(data)])}
    assert expected.items() <= records.items()
    # A change to a header may leave the stream as it is.
    assert damages or records == placed(datas)
    assert not damages or not ended or unpacked != whole


@pytest.mark.parametrize("tail", [b"", bytes(100_000)])
def test_the_members_of_a_gzip_file_are_one_stream_and_padding_is_none(tmp_path: Path, tail: bytes) -> None:
    content = stream_of([b"abc" * 9000] * 50)
    members = [gzip.compress(content[begin : begin + 100_001]) for begin in range(0, len(content), 100_001)]
    path = write(tmp_path, b"".join(members) + tail)
    assert read(path, 4096) == (placed([b"abc" * 9000] * 50), [])
