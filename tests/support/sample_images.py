"""Images for tests of ingest: sound ones that all differ, and one of each kind that is refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

MEGAPIXELS = 0.01
"""The bound that the image `large` exceeds."""


def picture(seed: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """Return a colour image with few details, unlike that of any other seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


def encoded(image: Image.Image, format_: str = "JPEG", **options: Any) -> bytes:
    """Return the image as a file."""
    file = io.BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()


def refused() -> dict[str, tuple[bytes, str]]:
    """Kind → an image that is refused, and how the reason begins."""
    image, second_image = picture(1), picture(2)
    png = encoded(image, "PNG")
    corrupt = png[:500] + bytes([png[500] ^ 0xFF]) + png[501:]
    return {
        "corrupt": (corrupt, "expected an image that can be decoded, received a corrupt one"),
        "truncated": (encoded(image)[:-30], "expected a complete image, received one that is cut off after"),
        "cmyk": (encoded(image.convert("CMYK")), "expected a grey or RGB image, received CMYK"),
        "deep": (
            encoded(image.convert("L").convert("I;16"), "PNG"),
            "expected at most 8 bits per channel, received 16",
        ),
        "animated": (
            encoded(image, "PNG", save_all=True, append_images=[second_image]),
            "expected one image, received an animated PNG",
        ),
        "large": (
            encoded(picture(3, (200, 100))),
            f"expected at most {MEGAPIXELS} megapixels, received 200 by 100 pixels",
        ),
        "text": (b"no image", "expected a PNG or JPEG image, received another file"),
    }
