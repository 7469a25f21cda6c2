"""Find images of other splits that look like an image of the training split, which makes metrics too optimistic.

Images are compared by the differences between neighbouring pixels of their thumbnails. The differences stay nearly the
same if an image is compressed again, resized, or made brighter. The similarity of two images is the cosine of these
differences.

Source: dHash (N. Krawetz, Kind of Like That, hackerfactor.com, 2013) uses the same differences, horizontal and
vertical. dHash only keeps their signs. Here they remain numbers, because the sign of a small difference is random.

A few billion pairs are compared one by one. Beyond that, an image is compared only with images that share a hash of
random hyperplanes with it (M. Charikar, Similarity Estimation Techniques from Rounding Algorithms, STOC 2002). Two
images with a similarity of 0.98 are on the same side of a hyperplane with the probability 1 - acos(0.98) / pi = 0.936,
so they share one of 20 hashes of 24 bits with the probability 0.99, and more similar images with a higher one.
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
_EXACT_PAIRS = 2_000_000_000
"""Maximum number of pairs that are compared one by one, in about ten seconds on one core."""
_TABLES, _BITS = 20, 24
_SAMPLE = 10_000
"""Number of images whose median projection is the position of a hyperplane, so that it divides the images in halves."""
_MOST_IN_BUCKET = 32
"""Maximum number of images of the training split that an image is compared with per hash. More images that share a hash
are mostly copies of each other."""
_PAIRS = 65_536
"""Number of pairs that are compared at once."""
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
    """Find the images of a split that look like an image of the training split.

    Args:
      train: Images of the training split.
      other: Images of the split.
      column: Name of the column of images.
      split: Name of the split.
    """
    is_small = len(train.names) * len(other.names) <= _EXACT_PAIRS
    best, at = (_compare_all if is_small else _compare_hashed)(train.thumbnails, other.thumbnails)
    duplicates = np.flatnonzero(best >= SIMILAR)
    worst = heapq.nsmallest(REPORTED, duplicates.tolist(), key=lambda row: (-round(float(best[row]), 4), row))
    pairs = [
        Pair(min(round(float(best[row]), 4), 1.0), _text(other.names[row]), _text(train.names[int(at[row])]))
        for row in worst
    ]
    return NearDuplicates(column, split, len(best), len(duplicates), tuple(pairs))


def _compare_all(train: _Ints, other: _Ints) -> tuple[_Floats, npt.NDArray[np.int64]]:
    """Compare all images with all images of the training split, some thousand at a time.

    Returns:
      The similarity of the most similar image of the training split, and its number; shape [images of `other`] each.
    """
    best, at = np.full(len(other), -1, np.float32), np.zeros(len(other), np.int64)
    for begin, train_block in _blocks(train):
        for start, other_block in _blocks(other):
            similarity = other_block @ train_block.T
            nearest = similarity.argmax(axis=1)
            rows = np.arange(len(nearest))
            better = similarity[rows, nearest] > best[start : start + len(nearest)]
            best[start + rows[better]] = similarity[rows, nearest][better]
            at[start + rows[better]] = begin + nearest[better]
    return best, at


def _compare_hashed(train: _Ints, other: _Ints) -> tuple[_Floats, npt.NDArray[np.int64]]:
    """Compare images with images of the training split that share a hash; see `_compare_all`."""
    best, at = np.full(len(other), -1, np.float32), np.zeros(len(other), np.int64)
    random = np.random.default_rng(0)
    sample = train[np.sort(random.choice(len(train), min(len(train), _SAMPLE), replace=False))]
    [(_, sampled)] = _blocks(sample, len(sample))
    for _ in range(_TABLES):
        planes = random.normal(size=(sampled.shape[1], _BITS)).astype(np.float32)
        positions = np.median(sampled @ planes, axis=0)
        codes = _hash(train, planes, positions)
        order = np.argsort(codes, kind="stable")
        hashes = _hash(other, planes, positions)
        begin = np.asarray(np.searchsorted(codes[order], hashes, "left"))
        end = np.asarray(np.searchsorted(codes[order], hashes, "right"))
        counts = np.minimum(end - begin, _MOST_IN_BUCKET)
        for rows in _divide(counts):
            repeated = np.repeat(rows, counts[rows])
            starts = np.cumsum(counts[rows]) - counts[rows]
            number = np.arange(len(repeated)) - np.repeat(starts, counts[rows])
            candidates = order[begin[repeated] + number]
            similarity = np.einsum("ij,ij->i", _normalize(other[repeated]), _normalize(train[candidates]))
            # The last assignment to a row remains, so the most similar candidate comes last.
            ascending = np.argsort(similarity, kind="stable")
            better = ascending[similarity[ascending] > best[repeated[ascending]]]
            best[repeated[better]] = similarity[better]
            at[repeated[better]] = candidates[better]
    return best, at


def _divide(counts: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the numbers of rows with candidates, in parts of about `_PAIRS` candidates."""
    rows = np.flatnonzero(counts)
    if len(rows):
        parts = np.cumsum(counts[rows]) // _PAIRS
        yield from np.split(rows, np.flatnonzero(np.diff(parts)) + 1)


def _hash(thumbnails: _Ints, planes: _Floats, positions: _Floats) -> npt.NDArray[np.uint32]:
    """Return a bit per hyperplane: on which side of it an image is; uint32, shape [images]."""
    powers = np.left_shift(np.uint32(1), np.arange(planes.shape[1], dtype=np.uint32))
    parts = [(block @ planes > positions) @ powers for _, block in _blocks(thumbnails)]
    return np.concatenate([np.empty(0, np.uint32), *parts]).astype(np.uint32)


def _blocks(thumbnails: _Ints, rows: int = _ROWS) -> Iterator[tuple[int, _Floats]]:
    """Yield the starts of blocks, and their normalized differences."""
    for start in range(0, len(thumbnails), rows):
        yield start, _normalize(thumbnails[start : start + rows])


def _normalize(thumbnails: _Ints) -> _Floats:
    """Compute the differences of pixels, scaled to norm 1; float32, shape [images, 2 * 8 * 8]."""
    differences = _differences(thumbnails)
    scaled: _Floats = differences / np.linalg.norm(differences, axis=1, keepdims=True)
    return scaled


def _differences(thumbnails: _Ints) -> _Floats:
    """Compute the horizontal, then the vertical differences of pixels; float32, shape [images, 2 * 8 * 8]."""
    pixels = thumbnails.astype(np.float32)
    across = pixels[:, :-1, 1:] - pixels[:, :-1, :-1]
    down = pixels[:, 1:, :-1] - pixels[:, :-1, :-1]
    return np.concatenate([across.reshape(len(pixels), -1), down.reshape(len(pixels), -1)], axis=1)


def _text(name: pa.Scalar) -> str:
    return str(name.as_py().decode(errors="replace"))
