"""Decide whether an encoded image can be trained on, first by its header, then by decoding it; and describe it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from PIL import ExifTags, Image

from components.data import file_io
from components.data.image_facts import THUMBNAIL, ImageFacts

# `examine` checks its own limit before it decodes an image. Pillow only warns up to twice its limit.
Image.MAX_IMAGE_PIXELS = None

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
"""The first bytes of files."""
_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")
"""Matches a marker of a JPEG. In pixel data, 0x00 or the number of a restart follows 0xFF."""
_END_OF_IMAGE = b"\xd9"
_NAMED = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")
"""Formats that Pillow should recognise, so that a reason can name them."""
_PNG_BIT_DEPTH = 24
"""Offset of the bit depth in a PNG file."""
_BYTES_PER_PIXEL = 4
"""Bytes that Pillow needs per pixel."""
_SMALLEST = 4 * THUMBNAIL
"""Height and width in pixels to which a larger JPEG is reduced at most when it is decoded."""


_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Orientation in EXIF data → operation that turns the image upright."""
_ON_ITS_SIDE = (5, 6, 7, 8)


def max_bytes(max_megapixels: float) -> int:
    """Return the maximum bytes of an image file, which is also the memory of the largest decoded image."""
    return int(max_megapixels * 1e6) * _BYTES_PER_PIXEL


def read(path: str, max_megapixels: float) -> tuple[bytes, ImageFacts] | str:
    """Read and examine an image file.

    Args:
      path: Local or remote path.
      max_megapixels: Maximum number of pixels, in millions.

    Returns:
      The bytes of the file and its facts, or the reason why it cannot be trained on.

    Raises:
      OSError: If the file cannot be opened or read.
    """
    most = max_bytes(max_megapixels)
    with file_io.open_binary(path) as file:
        data = file.read(most + 1)
    facts = examine(data, max_megapixels)
    return facts if isinstance(facts, str) else (data, facts)


def examine(data: bytes, max_megapixels: float) -> ImageFacts | str:
    """Return the facts of an image, or the reason why it cannot be trained on.

    An image is only decoded if its header is valid. Decoding needs at most `max_bytes` of memory, or a quarter more
    with an alpha channel. A large JPEG is decoded to an eighth of its size.

    Args:
      data: Bytes of the file.
      max_megapixels: Maximum number of pixels, in millions.
    """
    if len(data) > (most := max_bytes(max_megapixels)):
        return f"expected a file of at most {most:,} bytes, received a larger one"
    is_supported = data.startswith((_PNG, _JPEG))
    if is_supported and not (_has_png_end(data) if data.startswith(_PNG) else _has_jpeg_end(data)):
        return f"expected a complete image, received one that is cut off after {len(data)} bytes"
    try:
        return next(_find_reasons(data, is_supported, max_megapixels), None) or _compute_facts(data)
    except Image.UnidentifiedImageError:
        return _corrupt("its header") if is_supported else "expected a PNG or JPEG image, received another file"
    except MemoryError:
        raise
    # Pillow's decoders raise errors of many types about damaged files.
    except Exception as error:
        return _corrupt(str(error))


def _has_jpeg_end(data: bytes) -> bool:
    """Return whether a JPEG is complete. More bytes may follow: phones append the video of a motion photo."""
    at = 2
    while marker := _MARKER.search(data, at):
        if marker[1] == _END_OF_IMAGE:
            return True
        at = marker.end() + max(2, int.from_bytes(data[marker.end() : marker.end() + 2], "big"))
    return False


def _has_png_end(data: bytes) -> bool:
    """Return whether a PNG is complete. More bytes may follow."""
    at = len(_PNG)
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"IEND":
            return end <= len(data)
        at = end
    return False


def _find_reasons(data: bytes, is_supported: bool, max_megapixels: float) -> Iterator[str]:
    """Yield the reasons in the header why an image cannot be trained on."""
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


def _compute_facts(data: bytes) -> ImageFacts | str:
    """Decode an image and return its facts, or a reason why it cannot be trained on that the header does not show."""
    with Image.open(io.BytesIO(data), formats=_NAMED) as image:
        mode, (width, height) = image.mode, image.size
        image.draft(mode, (max(width // 8, _SMALLEST), max(height // 8, _SMALLEST)))
        image.load()
        # Resize before converting to grayscale, to avoid a second image of full size. Only L and RGB can be resized
        # directly.
        reducible = image if mode in ("L", "RGB") else image.convert("L")
        reduced = reducible.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX).convert("L")
        if (orientation := _orientation(image)) in _TURNS:
            if image.format == "PNG":
                return "expected an upright PNG, received one whose EXIF data turns it; save it without EXIF data"
            reduced = reduced.transpose(_TURNS[orientation])
            width, height = (height, width) if orientation in _ON_ITS_SIDE else (width, height)
        thumbnail = reduced.tobytes()
    # All pixels of a thumbnail are means of equally many pixels.
    brightness = sum(thumbnail) / (255 * len(thumbnail))
    format_ = "PNG" if data.startswith(b"\x89PNG") else "JPEG"
    return ImageFacts(width, height, mode, format_, len(data), brightness, thumbnail)


def _orientation(image: Image.Image) -> int:
    """Return the orientation in the EXIF data of an image; 1 (upright) if it is missing or cannot be read."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    # Pillow raises errors of many types about damaged metadata, which the decoders ignore.
    except Exception:
        return 1


def _corrupt(why: str) -> str:
    return f"expected an image that can be decoded, received a corrupt one ({why})"
