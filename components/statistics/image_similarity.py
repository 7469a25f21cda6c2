"""Finds images of other splits that look like one of the training split: their metrics say less about new images.

An image is compared by the differences between neighbouring pixels of its thumbnail, which stay nearly the same if the
image is compressed again, resized, or made brighter. The similarity of two images is the cosine of these differences.

Source: the differences are those of dHash (N. Krawetz, Kind of Like That, hackerfactor.com, 2013), horizontal and
vertical. dHash keeps their signs; here they stay numbers, because the sign of a small difference is chance.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.data import image_facts
from components.data.image_facts import THUMBNAIL
from components.data.near_duplicates import NearDuplicates, Pair

SIMILAR = 0.98
"""Smallest similarity of near duplicates."""
REPORTED = 5
"""Pairs that are named, of each column and split."""
_SMALLEST = 16
"""Pixels of height and width below which an image shows too little to be compared."""
_FAINTEST = 2.0
"""Root mean square of the differences, of 255 levels, below which they are noise: an image of one colour."""
_ROWS = 4_096
"""Images of each side that are compared at once: 64 MiB of similarities."""
_Ints: TypeAlias = npt.NDArray[np.uint8]
_Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Images:
    """Images that can be compared.

    Attributes:
      names: Of the images, binary [images].
      thumbnails: uint8 [images, THUMBNAIL, THUMBNAIL].
    """

    names: pa.Array
    thumbnails: _Ints


def read(uri: str, split: str, column: str) -> Images:
    """Read the images of a split that can be compared: a hundred bytes each.

    Args:
      uri: The folder of the examples.
      split: The split.
      column: Of the images.
    """
    fields = [f"{column}.{field}" for field in ("name", "thumbnail", "width", "height")]
    names: list[pa.Array] = []
    thumbnails = [np.empty((0, THUMBNAIL, THUMBNAIL), np.uint8)]
    for batch in image_facts.read(uri, split, fields):
        batch = batch.filter(batch.column(1).is_valid())
        name, thumbnail, width, height = batch.columns
        data = np.frombuffer(b"".join(thumbnail.to_pylist()), np.uint8).reshape(-1, THUMBNAIL, THUMBNAIL)
        large = np.minimum(np.asarray(width), np.asarray(height)) >= _SMALLEST
        kept = large & (np.square(_differences(data)).mean(axis=1) >= _FAINTEST**2)
        names.append(name.filter(pa.array(kept)))
        thumbnails.append(data[kept])
    return Images(pa.concat_arrays(names) if names else pa.array([], pa.binary()), np.concatenate(thumbnails))


def find(train: Images, other: Images, column: str, split: str) -> NearDuplicates:
    """Compare each image of a split with each one of the training split, some thousand at a time.

    Args:
      train: The images of the training split.
      other: Those of the split.
      column: Of the images.
      split: The split.
    """
    best, at = np.full(len(other.names), -1, np.float32), np.zeros(len(other.names), np.int64)
    for begin, of_train in _blocks(train.thumbnails):
        for start, of_other in _blocks(other.thumbnails):
            similarity = of_other @ of_train.T
            nearest = similarity.argmax(axis=1)
            rows = np.arange(len(nearest))
            better = similarity[rows, nearest] > best[start : start + len(nearest)]
            best[start + rows[better]] = similarity[rows, nearest][better]
            at[start + rows[better]] = begin + nearest[better]
    found = np.flatnonzero(best >= SIMILAR)
    worst = heapq.nsmallest(REPORTED, found.tolist(), key=lambda row: (-round(float(best[row]), 4), row))
    pairs = [
        Pair(min(round(float(best[row]), 4), 1.0), _text(other.names[row]), _text(train.names[int(at[row])]))
        for row in worst
    ]
    return NearDuplicates(column, split, len(best), len(found), tuple(pairs))


def _blocks(thumbnails: _Ints) -> Iterator[tuple[int, _Floats]]:
    """Yield where each block begins, and its differences with norm 1; float32 [rows, 2 * 8 * 8]."""
    for start in range(0, len(thumbnails), _ROWS):
        differences = _differences(thumbnails[start : start + _ROWS])
        yield start, differences / np.linalg.norm(differences, axis=1, keepdims=True)


def _differences(thumbnails: _Ints) -> _Floats:
    """Return the differences of neighbouring pixels, horizontal, then vertical; float32 [images, 2 * 8 * 8]."""
    pixels = thumbnails.astype(np.float32)
    across = pixels[:, :-1, 1:] - pixels[:, :-1, :-1]
    down = pixels[:, 1:, :-1] - pixels[:, :-1, :-1]
    return np.concatenate([across.reshape(len(pixels), -1), down.reshape(len(pixels), -1)], axis=1)


def _text(name: pa.Scalar) -> str:
    return str(name.as_py().decode(errors="replace"))
