"""Find images of other splits that look like an image of the training split, which makes metrics too optimistic.

Images are compared by the differences between neighbouring pixels of their thumbnails. The differences stay nearly the
same if an image is compressed again, resized, or made brighter. The similarity of two images is the cosine of these
differences.

Source: dHash (N. Krawetz, Kind of Like That, hackerfactor.com, 2013) uses the same differences, horizontal and
vertical. dHash only keeps their signs. Here they remain numbers, because the sign of a small difference is random.
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
"""Minimum similarity of near duplicates."""
REPORTED = 5
"""Maximum number of pairs that are reported per column and split."""
_SMALLEST = 16
"""Minimum height and width in pixels. Smaller images show too little to be compared."""
_FAINTEST = 2.0
"""Minimum root mean square of the differences, on a scale of 255. Smaller differences are noise in an image of a single
colour."""
_ROWS = 4_096
"""Number of images of both splits that are compared at once, which needs 64 MiB for the similarities."""
_Ints: TypeAlias = npt.NDArray[np.uint8]
_Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Images:
    """Images that can be compared.

    Attributes:
      names: Names of the images; binary, shape [images].
      thumbnails: Thumbnails of the images; uint8, shape [images, THUMBNAIL, THUMBNAIL].
    """

    names: pa.Array
    thumbnails: _Ints


def read(uri: str, split: str, column: str) -> Images:
    """Read the images of a split that can be compared, which needs about a hundred bytes per image.

    Args:
      uri: Folder of the examples.
      split: Name of the split.
      column: Name of the column of images.
    """
    fields = [f"{column}.{field}" for field in ("name", "thumbnail", "width", "height")]
    names: list[pa.Array] = []
    thumbnails = [np.empty((0, THUMBNAIL, THUMBNAIL), np.uint8)]
    for batch in image_facts.read(uri, split, fields):
        batch = batch.filter(batch.column(1).is_valid())
        name, thumbnail, width, height = batch.columns
        data = np.frombuffer(b"".join(thumbnail.to_pylist()), np.uint8).reshape(-1, THUMBNAIL, THUMBNAIL)
        large = np.minimum(np.asarray(width), np.asarray(height)) >= _SMALLEST
        comparable = large & (np.square(_differences(data)).mean(axis=1) >= _FAINTEST**2)
        names.append(name.filter(pa.array(comparable)))
        thumbnails.append(data[comparable])
    return Images(pa.concat_arrays(names) if names else pa.array([], pa.binary()), np.concatenate(thumbnails))


def find(train: Images, other: Images, column: str, split: str) -> NearDuplicates:
    """Compare all images of a split with all images of the training split, some thousand at a time.

    Args:
      train: Images of the training split.
      other: Images of the split.
      column: Name of the column of images.
      split: Name of the split.
    """
    best, at = np.full(len(other.names), -1, np.float32), np.zeros(len(other.names), np.int64)
    for begin, train_block in _blocks(train.thumbnails):
        for start, other_block in _blocks(other.thumbnails):
            similarity = other_block @ train_block.T
            nearest = similarity.argmax(axis=1)
            rows = np.arange(len(nearest))
            better = similarity[rows, nearest] > best[start : start + len(nearest)]
            best[start + rows[better]] = similarity[rows, nearest][better]
            at[start + rows[better]] = begin + nearest[better]
    duplicates = np.flatnonzero(best >= SIMILAR)
    worst = heapq.nsmallest(REPORTED, duplicates.tolist(), key=lambda row: (-round(float(best[row]), 4), row))
    pairs = [
        Pair(min(round(float(best[row]), 4), 1.0), _text(other.names[row]), _text(train.names[int(at[row])]))
        for row in worst
    ]
    return NearDuplicates(column, split, len(best), len(duplicates), tuple(pairs))


def _blocks(thumbnails: _Ints) -> Iterator[tuple[int, _Floats]]:
    """Yield the starts of blocks, and their differences scaled to norm 1; float32, shape [rows, 2 * 8 * 8]."""
    for start in range(0, len(thumbnails), _ROWS):
        differences = _differences(thumbnails[start : start + _ROWS])
        yield start, differences / np.linalg.norm(differences, axis=1, keepdims=True)


def _differences(thumbnails: _Ints) -> _Floats:
    """Compute the horizontal, then the vertical differences of pixels; float32, shape [images, 2 * 8 * 8]."""
    pixels = thumbnails.astype(np.float32)
    across = pixels[:, :-1, 1:] - pixels[:, :-1, :-1]
    down = pixels[:, 1:, :-1] - pixels[:, :-1, :-1]
    return np.concatenate([across.reshape(len(pixels), -1), down.reshape(len(pixels), -1)], axis=1)


def _text(name: pa.Scalar) -> str:
    return str(name.as_py().decode(errors="replace"))
