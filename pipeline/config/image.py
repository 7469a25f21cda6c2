"""How a config names a container image."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StringConstraints


def _pinned(image: str) -> str:
    name = image.rpartition("/")[2]
    if "@sha256:" not in name and name.rpartition(":")[2] in ("", name, "latest"):
        raise ValueError(
            f"expected an image with a tag or a digest, since a run must be the same tomorrow; received {image!r}"
        )
    return image


Image = Annotated[str, StringConstraints(min_length=1), AfterValidator(_pinned)]
"""An image, named so that it stays the same."""
