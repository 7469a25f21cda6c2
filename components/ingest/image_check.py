"""Decides whether an encoded image can be trained on: from its header first, then by decoding it."""

from __future__ import annotations

import io
from collections.abc import Iterator

from PIL import Image

# `reject_reason` has a bound of its own, which it checks before it decodes; Pillow would only warn up to twice its one.
Image.MAX_IMAGE_PIXELS = None

_ENDS = {b"\x89PNG\r\n\x1a\n": b"IEND", b"\xff\xd8\xff": b"\xff\xd9"}
"""The first bytes of PNG and JPEG files, and the end marker that is missing if a file is cut off."""
_NAMED = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")
"""The formats that a reason names."""
_PNG_BIT_DEPTH = 24
"""The offset of the byte in a PNG file."""
_BYTES_PER_PIXEL = 4
"""Of an image in Pillow's memory."""


def max_bytes(max_megapixels: float) -> int:
    """Returns the size of the largest accepted file, and of the memory of a decoded image: that of its pixels."""
    return int(max_megapixels * 1e6) * _BYTES_PER_PIXEL


def reject_reason(data: bytes, max_megapixels: float) -> str | None:
    """Returns why an image cannot be trained on; None if it can.

    Only an image whose header has passed is decoded, so it takes at most `max_bytes` of memory; a JPEG is decoded to an
    eighth of its size.

    Args:
      data: the file.
      max_megapixels: the greatest number of pixels, in millions.
    """
    end = next((end for start, end in _ENDS.items() if data.startswith(start)), None)
    # Cameras and editors append metadata, so the end marker need not be the last bytes.
    if end is not None and end not in data[-4096:]:
        return f"expected a complete image, received one that is cut off after {len(data)} bytes"
    try:
        return next(_reasons(data, end is not None, max_megapixels), None)
    except Image.UnidentifiedImageError:
        return "expected a PNG or JPEG image, received another file" if end is None else _corrupt("its header")
    except MemoryError:
        raise
    # Pillow's decoders raise errors of many types about damaged files.
    except Exception as error:
        return _corrupt(str(error))


def _reasons(data: bytes, is_supported: bool, max_megapixels: float) -> Iterator[str]:
    with Image.open(io.BytesIO(data), formats=_NAMED) as image:
        # A camera's JPEG may contain a preview as a second image, which every decoder ignores.
        animated = image.format != "MPO" and getattr(image, "is_animated", False)
        if not is_supported:
            yield f"expected a PNG or JPEG image, received {'animated ' if animated else ''}{image.format}"
        if image.width * image.height > max_megapixels * 1e6:
            yield f"expected at most {max_megapixels:g} megapixels, received {image.width} by {image.height} pixels"
        if animated:
            yield f"expected one image, received an animated {image.format}"
        if image.mode == "CMYK":
            yield "expected a grey or RGB image, received CMYK"
        if image.format == "PNG" and data[_PNG_BIT_DEPTH] > 8:
            yield f"expected at most 8 bits per channel, received {data[_PNG_BIT_DEPTH]}"
        if image.format == "PNG":
            # Pillow decodes pixels whose checksum is wrong, and TensorFlow does not.
            image.verify()
    with Image.open(io.BytesIO(data), formats=_NAMED) as image:
        image.draft(image.mode, (max(image.width // 8, 1), max(image.height // 8, 1)))
        image.load()


def _corrupt(why: str) -> str:
    return f"expected an image that can be decoded, received a corrupt one ({why})"
