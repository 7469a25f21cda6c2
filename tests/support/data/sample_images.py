"""Images for tests of ingest: distinct valid images, and an image for every reason to refuse it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

MEGAPIXELS = 0.01
"""The bound that the image `large` exceeds."""


def picture(seed: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """Return a colour image with few details, which differs between seeds."""
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


def encode(image: Image.Image, format_: str = "JPEG", **options: Any) -> bytes:
    """Encode an image as the content of a file."""
    file = io.BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()


def images_to_refuse() -> dict[str, tuple[bytes, str]]:
    """Return kind → (refused image, beginning of the reason)."""
    image, second_image = picture(1), picture(2)
    png = encode(image, "PNG")
    corrupt = png[:500] + bytes([png[500] ^ 0xFF]) + png[501:]
    return {
        "corrupt": (corrupt, "expected an image that can be decoded, received a corrupt one"),
        "truncated": (encode(image)[:-30], "expected a complete image, received one that is cut off after"),
        "cmyk": (encode(image.convert("CMYK")), "expected a grey or RGB image, received CMYK"),
        "deep": (
            encode(image.convert("L").convert("I;16"), "PNG"),
            "expected at most 8 bits per channel, received 16",
        ),
        "animated": (
            encode(image, "PNG", save_all=True, append_images=[second_image]),
            "expected one image, received an animated PNG",
        ),
        "large": (
            encode(picture(3, (200, 100))),
            f"expected at most {MEGAPIXELS} megapixels, received 200 by 100 pixels",
        ),
        "text": (b"no image", "expected a PNG or JPEG image, received another file"),
    }
