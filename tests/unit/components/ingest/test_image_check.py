"""Images are checked before they are accepted, and decompression bombs are not decoded."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from components.data.image_facts import ImageFacts
from components.ingest.image_check import examine
from tests.support.data.tolerances import rounding
from tests.support.runs.peak_memory import measure_growth

_NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)


def reject_reason(data: bytes, max_megapixels: float) -> str | None:
    """Return the reason why an image is rejected, or None if it is accepted."""
    result = examine(data, max_megapixels)
    return result if isinstance(result, str) else None


def encode(image: Image.Image, format_: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()


def noise(mode: str = "RGB") -> Image.Image:
    return Image.fromarray(_NOISE).convert(mode)


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, bits: int, colour: int, pixels: bytes) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", pixels) + png_chunk(b"IEND", b"")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_png_of_every_mode_is_accepted(mode: str) -> None:
    assert reject_reason(encode(noise(mode)), 50) is None


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_facts_of_png_are_measured_in_every_mode(mode: str) -> None:
    # Use black and white, which every mode can represent.
    image = Image.new("RGB", (90, 60), (255, 255, 255))
    image.paste((0, 0, 0), (0, 0, 30, 60))
    data = encode(image.convert(mode), **({"transparency": bytes([0, 255])} if mode == "P" else {}))
    facts = examine(data, 50)
    assert isinstance(facts, ImageFacts)
    assert facts[:5] == (90, 60, mode, "PNG", len(data))
    np.testing.assert_array_equal(np.frombuffer(facts.thumbnail, np.uint8), [*[0] * 3, *[255] * 6] * 9)
    assert facts.brightness == rounding(8).approx(2 / 3)


@pytest.mark.parametrize("size", [(20, 10), (300, 200), (2000, 1500)])
def test_facts_of_jpeg_equal_those_of_the_full_size_image(size: tuple[int, int]) -> None:
    image = noise("L").resize(size, Image.Resampling.BICUBIC)
    facts = examine(encode(image, "JPEG", quality=95), 50)
    assert isinstance(facts, ImageFacts)
    assert (*facts[:2], facts.mode, facts.format) == (*size, "L", "JPEG")
    exact = np.asarray(image.resize((9, 9), Image.Resampling.BOX), np.float64)
    np.testing.assert_allclose(np.frombuffer(facts.thumbnail, np.uint8).reshape(9, 9), exact, atol=6)
    assert facts.brightness == pytest.approx(np.asarray(image).mean() / 255, abs=0.01)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"quality": 5}, {"subsampling": 0}])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_jpeg_is_accepted(mode: str, options: dict[str, Any]) -> None:
    assert reject_reason(encode(noise(mode), "JPEG", **options), 50) is None


def test_jpeg_with_a_preview_is_accepted() -> None:
    assert reject_reason(encode(noise(), "MPO", save_all=True, append_images=[noise()]), 50) is None


def test_number_of_pixels_is_bounded() -> None:
    image = encode(Image.new("L", (100, 50)))
    assert reject_reason(image, 0.005) is None
    assert reject_reason(image, 0.0049) == "expected at most 0.0049 megapixels, received 100 by 50 pixels"


def test_decompression_bomb_is_not_decoded() -> None:
    # The header claims 10 gigapixels.
    bomb = png(100_000, 100_000, 8, 0, zlib.compress(bytes(64 << 20)))
    with measure_growth() as growth:
        reason = reject_reason(bomb, 50)
    assert reason == "expected at most 50 megapixels, received 100000 by 100000 pixels"
    assert growth.peak_bytes < 16 << 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: encode(noise("CMYK"), "JPEG"), "expected a grey or RGB image, received CMYK"),
        (lambda: encode(noise("L").convert("I;16")), "expected at most 8 bits per channel, received 16"),
        (
            lambda: png(1, 1, 16, 2, zlib.compress(bytes(7))),
            "expected at most 8 bits per channel, received 16",
        ),
        (
            lambda: encode(noise(), save_all=True, append_images=[noise("L").convert("RGB")]),
            "expected one image, received an animated PNG",
        ),
        (
            lambda: encode(noise("L"), "GIF", save_all=True, append_images=[Image.new("L", (64, 64))]),
            "expected a PNG or JPEG image, received animated GIF",
        ),
        (lambda: encode(noise("P"), "GIF"), "expected a PNG or JPEG image, received GIF"),
        (lambda: encode(noise(), "WEBP"), "expected a PNG or JPEG image, received WEBP"),
        (lambda: encode(noise(), "TIFF"), "expected a PNG or JPEG image, received TIFF"),
        (lambda: b"no image", "expected a PNG or JPEG image, received another file"),
        (lambda: b"", "expected a PNG or JPEG image, received another file"),
        (lambda: encode(noise())[:-20], "expected a complete image, received one that is cut off after"),
        (lambda: encode(noise(), "JPEG")[:-20], "expected a complete image, received one that is cut off after"),
        (lambda: encode(noise())[:3000] + b"IEND\xaeB`\x82", "expected a complete image, received one that is cut"),
        (lambda: flip(encode(noise()), 500), "expected an image that can be decoded, received a corrupt one"),
        (lambda: b"\x89PNG\r\n\x1a\nIEND", "expected a complete image, received one that is cut"),
        (
            lambda: b"\x89PNG\r\n\x1a\n" + png_chunk(b"IEND", b""),
            "expected an image that can be decoded, received a corrupt one",
        ),
        (lambda: b"\xff\xd8\xff\xd9", "expected an image that can be decoded, received a corrupt one"),
    ],
)  # fmt: skip
def test_other_images_are_rejected_with_a_reason(make: Callable[[], bytes], message: str) -> None:
    reason = reject_reason(make(), 50)
    assert reason is not None
    assert reason.startswith(message)


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}])
def test_data_after_the_end_is_ignored_but_truncation_is_rejected(options: dict[str, Any]) -> None:
    for data in (encode(noise(), "JPEG", quality=95, **options), encode(noise())):
        video = b"\0\0\0\x18ftypmp42" + bytes(range(256)) * 40
        assert reject_reason(data + video, 50) is None
        # The end marker of a preview in the metadata must not count as the end of the image.
        for size in (len(data) - 1, len(data) - 2, len(data) // 2):
            assert "cut off" in str(reject_reason(data[:size], 50))
    preview = encode(noise().resize((16, 16)), "JPEG")
    data = encode(noise(), "JPEG", exif=b"Exif\0\0" + preview, **options)
    assert reject_reason(data + video, 50) is None
    assert "cut off" in str(reject_reason(data[:-2], 50))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_facts_equal_those_of_the_upright_image(orientation: int) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    data = encode(Image.fromarray(np.tile(np.arange(60, dtype=np.uint8) * 4, (40, 1))), "JPEG", exif=exif, quality=95)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    facts, expected = examine(data, 50), examine(encode(upright, "JPEG", quality=95), 50)
    assert isinstance(facts, ImageFacts)
    assert isinstance(expected, ImageFacts)
    assert (facts.width, facts.height) == upright.size
    thumbnails = (np.frombuffer(image_facts.thumbnail, np.uint8).astype(int) for image_facts in (facts, expected))
    np.testing.assert_allclose(*thumbnails, atol=4)


def test_rotated_png_is_rejected() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    assert "expected an upright PNG" in str(reject_reason(encode(noise(), exif=exif), 50))
    exif[ExifTags.Base.Orientation] = 1
    assert reject_reason(encode(noise(), exif=exif), 50) is None
