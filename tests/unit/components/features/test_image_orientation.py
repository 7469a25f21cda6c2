"""Images are turned upright as Pillow does it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import ExifTags, ImageOps
from PIL import Image as Pillow

from components.features import images
from components.features.image_ops import Image
from components.features.image_orientation import orientations

pytestmark = pytest.mark.both_lines

BLOCKS = np.kron(np.arange(6).reshape(2, 3) * 40, np.ones((8, 8))).astype(np.uint8)
"""Grey values that survive compression. The eight orientations result in eight different pictures."""


def photo(number: int, endian: str = "<", **options: Any) -> bytes:
    exif = Pillow.Exif()
    exif.endian = endian
    exif[ExifTags.Base.Make] = "a camera with a long name"
    exif[ExifTags.Base.Orientation] = number
    file = io.BytesIO()
    Pillow.fromarray(BLOCKS).save(file, "JPEG", quality=95, exif=exif, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def read() -> Any:
    many = tf.function(orientations, input_signature=[tf.TensorSpec([None], tf.string)])

    def read_one(data: bytes) -> int:
        """Read the orientation of a file next to other files."""
        return int(many([photo(3), data, b""])[1])

    return read_one


@pytest.mark.parametrize("number", range(1, 9))
def test_pixels_equal_the_upright_image(number: int, read: Any) -> None:
    for endian in "<>":
        data = photo(number, endian)
        assert read(data) == number
        upright = np.asarray(ImageOps.exif_transpose(Pillow.open(io.BytesIO(data))))
        op = Image(height=upright.shape[0], width=upright.shape[1])
        pixels = images.decode({"photo": op}, {"photo": tf.constant([data + b"video"])})["photo"]
        np.testing.assert_allclose(pixels[0], upright.reshape(-1) / 255, atol=0.02)


def test_files_of_a_batch_do_not_influence_each_other() -> None:
    png = io.BytesIO()
    Pillow.fromarray(BLOCKS).save(png, "PNG")
    files = [*(photo(number, endian) for number in range(1, 9) for endian in "<>"), png.getvalue(), b"", photo(6)[:30]]
    assert orientations(tf.constant(files)).numpy().tolist() == [*(number // 2 for number in range(2, 18)), 1, 1, 1]
    assert orientations(tf.constant([], tf.string)).numpy().tolist() == []


def test_exif_data_is_found_only_in_its_segment(read: Any) -> None:
    data = photo(6)
    segment = b"\xff\xe1" + (40_002).to_bytes(2, "big") + b"http://ns.adobe.com/xap/1.0/\0".ljust(40_000, b"x")
    assert read(data[:2] + segment + data[2:]) == 6
    assert read(data[:2] + b"\xff\xe2" + segment[2:] + data[2:]) == 6
    without = io.BytesIO()
    Pillow.fromarray(BLOCKS).save(
        without, "JPEG", comment=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"
    )
    assert read(without.getvalue()) == 1
    png = io.BytesIO()
    Pillow.fromarray(BLOCKS).save(png, "PNG")
    assert read(png.getvalue()) == 1


def test_damaged_exif_data_is_ignored(read: Any) -> None:
    data = photo(8)
    start = data.index(b"Exif")
    for size in range(1, start + 60, 3):
        assert read(data[:size]) in (1, 8)
    random = np.random.default_rng(4)
    for _ in range(200):
        damaged = bytearray(data)
        for at in random.integers(2, start + 80, 4):
            damaged[at] = random.integers(0, 256)
        assert 1 <= read(bytes(damaged)) <= 8
