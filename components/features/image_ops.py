"""Settings of the operation on images: `image`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.features.base_op import Dtype, Op


class Image(Op):
    """An encoded image (PNG or JPEG), decoded to grey or colour, turned upright according to the EXIF data of a JPEG,
    and resized; floats in [0, 1].

    Transformed examples contain the encoded image. Training and the exported model decode it. A missing image is black,
    that is, 0.
    """

    takes = frozenset[Dtype]({"bytes"})
    op: Literal["image"] = "image"
    height: int = Field(ge=1, le=4096)
    """Height after resizing, in pixels."""
    width: int = Field(ge=1, le=4096)
    """Width after resizing, in pixels."""
    channels: Literal[1, 3] = 1
    """Number of channels: 1 for grey, 3 for colour."""
