"""Find images of other splits that look like an image of the training split, which makes metrics too optimistic.

Images are compared by the differences between neighbouring pixels of their thumbnails. The differences stay nearly the
same if an image is compressed again, resized, or made brighter. The similarity of two images is the cosine of these
differences.

Source: dHash (N. Krawetz, Kind of Like That, hackerfactor.com, 2013) uses the same differences, horizontal and
vertical. dHash only keeps their signs. Here they remain numbers, because the sign of a small difference is random.

A few billion pairs are compared one by one. Beyond that, an image is compared only with images that share a hash of
random hyperplanes with it (M. Charikar, Similarity Estimation Techniques from Rounding Algorithms, STOC 2002). The
bits of an image, one per hyperplane, are divided into bands, and a band is a hash. By the pigeonhole principle, two
images share a band if they differ in fewer bits than there are bands, so all near duplicates with at most
`MOST_DIFFERENT_BITS` different bits are found. Two images with a similarity of 0.98 are on the same side of a
hyperplane with the probability 1 - acos(0.98) / pi = 0.936, so they share one of 20 bands of 24 bits with the
probability 0.99, and more similar images with a higher one.

`similarity_search` does the same on a Beam engine, for more images than one process should hold.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterator, Sequence
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
BANDS, BITS = 20, 24
"""Number of bands, and number of bits in a band."""
MOST_DIFFERENT_BITS = BANDS - 1
"""Number of the BANDS * BITS bits in which two near duplicates may differ and are certainly compared."""
SAMPLE = 10_000
"""Number of images whose median projection is the position of a hyperplane, so that it divides the images in halves."""
_MOST_IN_BUCKET = 32
"""Maximum number of images of the training split that an image is compared with per band: the first ones. More images
that share a band are mostly copies of each other."""
_PAIRS = 65_536
"""Number of pairs that are compared at once."""
Thumbnails: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.uint32]
Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Images:
    """Images that can be compared.

    Attributes:
      names: Names of the images; binary, shape [images].
      thumbnails: Thumbnails of the images; uint8, shape [images, THUMBNAIL, THUMBNAIL].
    """

    names: pa.Array
    thumbnails: Thumbnails


def read(paths: Sequence[str], column: str) -> Images:
    """Read the images that can be compared, which needs about a hundred bytes per image.

    Args:
      paths: Files of facts about images, see `image_facts.files`.
      column: Name of the column of images.
    """
    fields = [f"{column}.{field}" for field in ("name", "thumbnail", "width", "height")]
    names: list[pa.Array] = []
    thumbnails = [np.empty((0, THUMBNAIL, THUMBNAIL), np.uint8)]
    for batch in image_facts.read(paths, fields):
        batch = batch.filter(batch.column(1).is_valid())
        name, thumbnail, width, height = batch.columns
        # A filtered array has its own buffers, which begin with the first value.
        pixels = np.frombuffer(thumbnail.buffers()[2] or b"", np.uint8, len(thumbnail) * THUMBNAIL**2)
        data = pixels.reshape(-1, THUMBNAIL, THUMBNAIL)
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
    is_bounded = np.zeros(len(other.names), bool)
    if len(train.names) * len(other.names) <= _EXACT_PAIRS:
        best, at = _compare_all(train.thumbnails, other.thumbnails)
    else:
        best, at, is_bounded = _compare_hashed(train.thumbnails, other.thumbnails)
    duplicates = np.flatnonzero(best >= SIMILAR)
    worst = heapq.nsmallest(REPORTED, duplicates.tolist(), key=lambda row: (-round(float(best[row]), 4), row))
    pairs = [make_pair(best[row], other.names[row], train.names[int(at[row])]) for row in worst]
    return NearDuplicates(column, split, len(best), len(duplicates), tuple(pairs), int(is_bounded.sum()))


def make_pair(similarity: np.float32, name: pa.Scalar, train: pa.Scalar) -> Pair:
    """Return a pair for the report."""
    return Pair(min(round(float(similarity), 4), 1.0), _text(name), _text(train))


def _compare_all(train: Thumbnails, other: Thumbnails) -> tuple[Floats, Numbers]:
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


def _compare_hashed(train: Thumbnails, other: Thumbnails) -> tuple[Floats, Numbers, npt.NDArray[np.bool_]]:
    """Compare images with images of the training split that share a band.

    Returns:
      See `_compare_all`, and whether a band of the image was shared by more than `_MOST_IN_BUCKET` images.
    """
    best, at = np.full(len(other), -1, np.float32), np.zeros(len(other), np.int64)
    is_bounded = np.zeros(len(other), bool)
    chosen = np.random.default_rng(0).choice(len(train), min(len(train), SAMPLE), replace=False)
    positions = fit_positions(train[np.sort(chosen)])
    for band in range(BANDS):
        codes, hashes = (hash_band(thumbnails, band, positions) for thumbnails in (train, other))
        order = np.argsort(codes, kind="stable")
        begin, counts, bounded = find_buckets(codes[order], hashes)
        is_bounded |= bounded
        for rows in _divide(counts):
            repeated, places = list_candidates(rows, begin, counts)
            keep_best(best, at, repeated, order[places], train[order[places]], other[repeated])
    return best, at, is_bounded


def find_buckets(codes: Codes, hashes: Codes) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Find the images of the training split that share a band with each image.

    Args:
      codes: The band of the images of the training split, in ascending order; shape [images of the training split].
      hashes: The band of the other images; shape [images].

    Returns:
      The position in `codes` at which the images to compare begin, their number, at most `_MOST_IN_BUCKET`, and whether
      more images share the band; shape [images] each.
    """
    begin = np.asarray(np.searchsorted(codes, hashes, "left"))
    counts = np.asarray(np.searchsorted(codes, hashes, "right")) - begin
    return begin, np.minimum(counts, _MOST_IN_BUCKET), counts > _MOST_IN_BUCKET


def list_candidates(rows: Numbers, begin: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """List the pairs to compare.

    Args:
      rows: Numbers of the images.
      begin: See `find_buckets`.
      counts: See `find_buckets`.

    Returns:
      The numbers of the images, each repeated for all its candidates, and the positions of the candidates.
    """
    repeated = np.repeat(rows, counts[rows])
    starts = np.cumsum(counts[rows]) - counts[rows]
    return repeated, begin[repeated] + np.arange(len(repeated)) - np.repeat(starts, counts[rows])


def keep_best(
    best: Floats, at: Numbers, rows: Numbers, candidates: Numbers, train: Thumbnails, other: Thumbnails
) -> None:
    """Compare pairs, and keep the most similar candidate of every image; of equal ones, the first.

    Args:
      best: Similarity of the most similar candidate of every image so far, which is updated.
      at: Number of this candidate, which is updated.
      rows: Number of the image of every pair.
      candidates: Number of the candidate of every pair.
      train: Thumbnail of the candidate of every pair.
      other: Thumbnail of the image of every pair.
    """
    similarity = np.einsum("ij,ij->i", _normalize(train), _normalize(other))
    better = (similarity > best[rows]) | ((similarity == best[rows]) & (candidates < at[rows]))
    # The last assignment to a row remains, so the best candidate comes last.
    ascending = np.flatnonzero(better)[np.lexsort((-candidates[better], similarity[better]))]
    best[rows[ascending]] = similarity[ascending]
    at[rows[ascending]] = candidates[ascending]


def _divide(counts: Numbers) -> Iterator[Numbers]:
    """Yield the numbers of rows with candidates, in parts of about `_PAIRS` candidates."""
    rows = np.flatnonzero(counts)
    if len(rows):
        parts = np.cumsum(counts[rows]) // _PAIRS
        yield from np.split(rows, np.flatnonzero(np.diff(parts)) + 1)


@functools.cache
def _draw_planes() -> Floats:
    """Draw the hyperplanes; shape [BANDS, 2 * 8 * 8, BITS]."""
    planes = np.random.default_rng(0).normal(size=(BANDS, 2 * (THUMBNAIL - 1) ** 2, BITS))
    return planes.astype(np.float32)


def fit_positions(sample: Thumbnails) -> Floats:
    """Return the positions of the hyperplanes, so that each divides the images of a sample in halves; [BANDS, BITS]."""
    if not len(sample):
        return np.zeros((BANDS, BITS), np.float32)
    medians: Floats = np.median(np.matmul(_normalize(sample), _draw_planes()), axis=1).astype(np.float32)
    return medians


def hash_band(thumbnails: Thumbnails, band: int, positions: Floats) -> Codes:
    """Return the bits of a band: on which side of its hyperplanes an image is; uint32, shape [images].

    Args:
      thumbnails: Thumbnails of the images.
      band: Number of the band.
      positions: See `fit_positions`.
    """
    planes, powers = _draw_planes()[band], np.left_shift(np.uint32(1), np.arange(BITS, dtype=np.uint32))
    parts = [(block @ planes > positions[band]) @ powers for _, block in _blocks(thumbnails)]
    return np.concatenate([np.empty(0, np.uint32), *parts]).astype(np.uint32)


def _blocks(thumbnails: Thumbnails, rows: int = _ROWS) -> Iterator[tuple[int, Floats]]:
    """Yield the starts of blocks, and their normalized differences."""
    for start in range(0, len(thumbnails), rows):
        yield start, _normalize(thumbnails[start : start + rows])


def _normalize(thumbnails: Thumbnails) -> Floats:
    """Compute the differences of pixels, scaled to norm 1; float32, shape [images, 2 * 8 * 8]."""
    differences = _differences(thumbnails)
    scaled: Floats = differences / np.linalg.norm(differences, axis=1, keepdims=True)
    return scaled


def _differences(thumbnails: Thumbnails) -> Floats:
    """Compute the horizontal, then the vertical differences of pixels; float32, shape [images, 2 * 8 * 8]."""
    pixels = thumbnails.astype(np.float32)
    across = pixels[:, :-1, 1:] - pixels[:, :-1, :-1]
    down = pixels[:, 1:, :-1] - pixels[:, :-1, :-1]
    return np.concatenate([across.reshape(len(pixels), -1), down.reshape(len(pixels), -1)], axis=1)


def _text(name: pa.Scalar) -> str:
    return str(name.as_py().decode(errors="replace"))
