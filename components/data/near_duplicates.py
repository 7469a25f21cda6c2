"""Finds images of other splits that look like one of the training split: their metrics say less about new images.

An image is compared by the differences between neighbouring pixels of its thumbnail, which stay nearly the same if the
image is compressed again, resized, or made brighter. The similarity of two images is the cosine of these differences.

Source: the differences are those of dHash (N. Krawetz, Kind of Like That, hackerfactor.com, 2013), horizontal and
vertical. dHash keeps their signs; here they stay numbers, because the sign of a small difference is chance.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.data import file_io, image_facts
from components.data.image_facts import THUMBNAIL

FILE = "near_duplicates.json"
"""In the folder of the statistics."""
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
class Pair:
    """Two images that look alike.

    Attributes:
      similarity: from SIMILAR to 1.
      name: of the image.
      train: name of the image of the training split.
    """

    similarity: float
    name: str
    train: str


@dataclass(frozen=True)
class NearDuplicates:
    """What was found in a split.

    Attributes:
      column: of the images.
      split: with the images.
      images: number of the split's images that were compared; smaller ones and those of one colour were not.
      found: how many of these have a near duplicate in the training split.
      pairs: the most similar ones.
    """

    column: str
    split: str
    images: int
    found: int
    pairs: tuple[Pair, ...] = ()

    @property
    def share(self) -> float:
        """The share of the images that have a near duplicate."""
        return self.found / self.images if self.images else 0.0

    def __str__(self) -> str:
        worst = "".join(f"; {pair.name} and {pair.train} of train" for pair in self.pairs[:1])
        return f"{self.split}: {self.column}: {self.found:,} of {self.images:,} images look like one of train{worst}"


@dataclass(frozen=True)
class Images:
    """Images that can be compared.

    Attributes:
      names: of the images, binary [images].
      thumbnails: uint8 [images, THUMBNAIL, THUMBNAIL].
    """

    names: pa.Array
    thumbnails: _Ints


def read(uri: str, split: str, column: str) -> Images:
    """Reads the images of a split that can be compared: a hundred bytes each.

    Args:
      uri: the folder of the examples.
      split: the split.
      column: of the images.
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
    """Compares each image of a split with each one of the training split, some thousand at a time.

    Args:
      train: the images of the training split.
      other: those of the split.
      column: of the images.
      split: the split.
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


def write(found: Sequence[NearDuplicates], folder: str) -> None:
    """Writes what was found into the folder of the statistics."""
    with file_io.create(file_io.join(folder, FILE)) as file:
        file.write(json.dumps([asdict(each) for each in found], indent=1).encode())


def load(folder: str) -> list[NearDuplicates]:
    """Returns what was found, from the folder of the statistics; nothing if no images were compared."""
    path = file_io.join(folder, FILE)
    if not file_io.file_system(path).exists(path):
        return []
    with file_io.open_binary(path) as file:
        entries = json.loads(file.read())
    return [NearDuplicates(**{**entry, "pairs": tuple(Pair(**pair) for pair in entry["pairs"])}) for entry in entries]


def _blocks(thumbnails: _Ints) -> Iterator[tuple[int, _Floats]]:
    """Yields where each block begins, and its differences with norm 1; float32 [rows, 2 * 8 * 8]."""
    for start in range(0, len(thumbnails), _ROWS):
        differences = _differences(thumbnails[start : start + _ROWS])
        yield start, differences / np.linalg.norm(differences, axis=1, keepdims=True)


def _differences(thumbnails: _Ints) -> _Floats:
    """Returns the differences of neighbouring pixels, horizontal, then vertical; float32 [images, 2 * 8 * 8]."""
    pixels = thumbnails.astype(np.float32)
    across = pixels[:, :-1, 1:] - pixels[:, :-1, :-1]
    down = pixels[:, 1:, :-1] - pixels[:, :-1, :-1]
    return np.concatenate([across.reshape(len(pixels), -1), down.reshape(len(pixels), -1)], axis=1)


def _text(name: pa.Scalar) -> str:
    return str(name.as_py().decode(errors="replace"))
