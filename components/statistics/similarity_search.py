"""Find near duplicates among many images on a Beam engine, in bounded memory; see `image_similarity` for the method.

Images are read in chunks of files. Every band of an image becomes a number of 4 bytes with the image's ID, and the
bands are grouped in ranges of hashes, so that a worker holds one range of one band. Only pairs that share a band are
compared, and only their thumbnails travel between workers.

The result equals the result of `image_similarity._compare_hashed` with the same positions of the hyperplanes: of a
bucket that is too large, the first images in the order of the files are compared.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np
import pyarrow as pa

from components.data import image_statistics
from components.data.near_duplicates import NearDuplicates, Pair
from components.statistics import image_similarity
from components.statistics.image_similarity import BANDS, BITS, REPORTED, SAMPLE, SIMILAR, Codes, Floats, Numbers

_CHUNKS = 256
"""Maximum number of chunks of a split. Few chunks make large messages between workers."""
_RANGE_ROWS = 1 << 20
"""Mean number of images in a range of hashes, with 12 bytes each."""
_SAMPLED_CHUNKS = 16
"""Number of chunks of the training split from which the positions of the hyperplanes are derived."""
_ROW_BITS = 32
"""An image's ID is the number of its chunk, and in the lowest bits its position in the chunk."""


class Chunk(NamedTuple):
    """Some images of a column and split.

    Attributes:
      column: Name of the column.
      split: Name of the split.
      number: Number of the chunk in the split.
      paths: Files of facts about the images.
    """

    column: str
    split: str
    number: int
    paths: tuple[str, ...]


Files = Mapping[tuple[str, str], Sequence[str]]
"""Column and split → files of facts about images."""
Bands: TypeAlias = tuple[str, Codes, Numbers]
"""Split, bands of some images, and their IDs."""
Candidates: TypeAlias = tuple[str, Numbers, Numbers]
"""Split, IDs of images, and the IDs of the images of the training split to compare them with."""


class Compared(NamedTuple):
    """Images that were compared.

    Attributes:
      images: Number of images.
      found: Number of near duplicates.
      bounded: See `NearDuplicates.bounded`.
      pairs: The most similar pairs: (-similarity, ID of the image, pair), in ascending order.
    """

    images: int
    found: int = 0
    bounded: int = 0
    pairs: tuple[tuple[float, int, Pair], ...] = ()


class WriteNearDuplicates(beam.PTransform):  # type: ignore[misc]
    """Finds the images that look like one of the training split, and writes them into the folder of the statistics.

    Args:
      files: The files of all columns of the training split, and of other splits.
      train: Name of the training split.
      rows: Number of all images.
      folder: Folder of the statistics.
    """

    def __init__(self, files: Files, train: str, rows: int, folder: str) -> None:
        super().__init__()
        self._train, self._folder, self._ranges = train, folder, -(-rows // _RANGE_ROWS)
        self._chunks = [chunk for (column, split), paths in files.items() for chunk in _divide(column, split, paths)]

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Apply the transform."""
        positions = {
            column: _fit_positions([chunk for chunk in self._chunks if chunk[:2] == (column, self._train)])
            for column in dict.fromkeys(chunk.column for chunk in self._chunks)
        }
        chunks = {chunk[:3]: chunk for chunk in self._chunks}
        hashed = (
            pipeline
            | "Chunks" >> beam.Create(self._chunks)
            | "Spread" >> beam.Reshuffle()
            | "Hash" >> beam.FlatMap(_hash, positions, self._ranges, self._train).with_outputs("images", main="bands")
        )
        matched = (
            hashed.bands
            | "Group bands" >> beam.GroupByKey()
            | "Match" >> beam.FlatMap(_match, self._train).with_outputs("bounded", main="candidates")
        )
        attached = (
            matched.candidates
            | "Group candidates" >> beam.GroupByKey()
            | "Attach thumbnails" >> beam.FlatMap(_attach, chunks, self._train)
        )
        compared = (
            (attached, matched.bounded)
            | beam.Flatten()
            | "Group pairs" >> beam.GroupByKey()
            | "Compare" >> beam.Map(_compare, chunks)
        )
        order = [chunk[:2] for chunk in self._chunks]
        return (
            (hashed.images, compared)
            | "Join" >> beam.Flatten()
            | "Merge" >> beam.CombinePerKey(_merge)
            | "List" >> beam.combiners.ToList()
            | "Write" >> beam.Map(_write, order, self._folder)
        )


def _divide(column: str, split: str, paths: Sequence[str]) -> Iterator[Chunk]:
    size = max(1, -(-len(paths) // _CHUNKS))
    for number, start in enumerate(range(0, len(paths), size)):
        yield Chunk(column, split, number, tuple(paths[start : start + size]))


def _fit_positions(chunks: Sequence[Chunk]) -> Floats:
    """Return the positions of the hyperplanes, from a sample of several chunks."""
    sampled = chunks[:: max(1, -(-len(chunks) // _SAMPLED_CHUNKS))]
    images = [image_similarity.read(chunk.paths, chunk.column).thumbnails for chunk in sampled]
    sample = np.concatenate(images)
    return image_similarity.fit_positions(sample[:: max(1, -(-len(sample) // SAMPLE))])


def _hash(
    chunk: Chunk, positions: Mapping[str, Floats], ranges: int, train: str
) -> Iterator[tuple[tuple[str, int, int], Bands] | beam.pvalue.TaggedOutput]:
    """Yield (column, band, range of hashes) → the images of a chunk, and the number of images to compare."""
    thumbnails = image_similarity.read(chunk.paths, chunk.column).thumbnails
    if chunk.split != train:
        yield beam.pvalue.TaggedOutput("images", (chunk[:2], Compared(len(thumbnails))))
    ids = (chunk.number << _ROW_BITS) + np.arange(len(thumbnails))
    for band in range(BANDS):
        codes = image_similarity.hash_band(thumbnails, band, positions[chunk.column])
        numbers = codes.astype(np.int64) * ranges >> BITS
        for number in np.unique(numbers).tolist():
            rows = numbers == number
            yield (chunk.column, band, number), (chunk.split, codes[rows], ids[rows])


def _match(
    element: tuple[tuple[str, int, int], Iterable[Bands]], train: str
) -> Iterator[tuple[tuple[str, int], Candidates] | beam.pvalue.TaggedOutput]:
    """Yield (column, chunk of the training split) → the pairs that share a band, and the images of large buckets."""
    (column, _, _), blocks = element
    bands: dict[str, list[tuple[Codes, Numbers]]] = {}
    for split, codes, ids in blocks:
        bands.setdefault(split, []).append((codes, ids))
    if train not in bands:
        return
    codes, ids = _join(bands.pop(train))
    for split, others in bands.items():
        hashes, other_ids = _join(others)
        begin, counts, is_bounded = image_similarity.find_buckets(codes, hashes)
        for number, bounded in _group_by_chunk(other_ids[is_bounded]):
            large = other_ids[is_bounded][bounded]
            yield beam.pvalue.TaggedOutput("bounded", ((column, split, number), (large, None, None, None)))
        repeated, places = image_similarity.list_candidates(np.flatnonzero(counts), begin, counts)
        candidates = ids[places]
        for number, rows in _group_by_chunk(candidates):
            yield (column, number), (split, other_ids[repeated[rows]], candidates[rows])


def _join(blocks: Sequence[tuple[Codes, Numbers]]) -> tuple[Codes, Numbers]:
    """Return bands and IDs, in ascending order, which does not depend on the order of the blocks."""
    codes, ids = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    order = np.lexsort((ids, codes))
    return codes[order], ids[order]


def _group_by_chunk(ids: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield the numbers of chunks, and the positions of their images in `ids`."""
    numbers = ids >> _ROW_BITS
    order = np.argsort(numbers, kind="stable")
    chunks, starts = np.unique(numbers[order], return_index=True)
    yield from zip(chunks.tolist(), np.split(order, starts[1:]), strict=False)


_Pairs: TypeAlias = "tuple[Numbers, Numbers | None, image_similarity.Thumbnails | None, pa.Array | None]"
"""IDs of images, and the IDs, thumbnails and names of the images of the training split to compare them with. None: the
images share a band with too many images."""


def _attach(
    element: tuple[tuple[str, int], Iterable[Candidates]], chunks: Mapping[tuple[str, str, int], Chunk], train: str
) -> Iterator[tuple[tuple[str, str, int], _Pairs]]:
    """Yield (column, split, chunk) → the pairs, with the thumbnails of a chunk of the training split."""
    (column, number), groups = element
    images = image_similarity.read(chunks[column, train, number].paths, column)
    pairs: dict[str, list[tuple[Numbers, Numbers]]] = {}
    for split, ids, candidates in groups:
        pairs.setdefault(split, []).append((ids, candidates))
    for split, arrays in pairs.items():
        # Several bands may have found a pair.
        joined = np.unique(np.concatenate([np.stack(pair) for pair in arrays], axis=1), axis=1)
        for other, rows in _group_by_chunk(joined[0]):
            ids, candidates = joined[:, rows]
            places = candidates & ((1 << _ROW_BITS) - 1)
            names = images.names.take(pa.array(places))
            yield (column, split, other), (ids, candidates, images.thumbnails[places], names)


def _compare(
    element: tuple[tuple[str, str, int], Iterable[_Pairs]], chunks: Mapping[tuple[str, str, int], Chunk]
) -> tuple[tuple[str, str], Compared]:
    """Compare the pairs of a chunk; return (column, split) → its near duplicates."""
    (column, split, number), groups = element
    images = image_similarity.read(chunks[column, split, number].paths, column)
    size = len(images.names)
    best, at = np.full(size, -1, np.float32), np.zeros(size, np.int64)
    is_bounded = np.zeros(size, bool)
    names: dict[int, pa.Scalar] = {}
    for ids, candidates, thumbnails, train_names in groups:
        rows = ids - (number << _ROW_BITS)
        if candidates is None or train_names is None:
            is_bounded[rows] = True
            continue
        image_similarity.keep_best(best, at, rows, candidates, thumbnails, images.thumbnails[rows])
        kept = np.flatnonzero((at[rows] == candidates) & (best[rows] >= SIMILAR))
        names.update(zip(candidates[kept].tolist(), train_names.take(pa.array(kept)), strict=True))
    duplicates = np.flatnonzero(best >= SIMILAR)
    worst = heapq.nsmallest(REPORTED, duplicates.tolist(), key=lambda row: (-round(float(best[row]), 4), row))
    pairs = (image_similarity.make_pair(best[row], images.names[row], names[int(at[row])]) for row in worst)
    ordered = ((-pair.similarity, (number << _ROW_BITS) + row, pair) for row, pair in zip(worst, pairs, strict=True))
    return (column, split), Compared(0, len(duplicates), int(is_bounded.sum()), tuple(ordered))


def _merge(parts: Iterable[Compared]) -> Compared:
    images, found, bounded, pairs = zip(*[Compared(0), *parts], strict=True)
    worst = heapq.nsmallest(REPORTED, (pair for part in pairs for pair in part), key=lambda pair: pair[:2])
    return Compared(sum(images), sum(found), sum(bounded), tuple(worst))


def _write(results: Sequence[tuple[tuple[str, str], Compared]], order: Sequence[tuple[str, str]], folder: str) -> None:
    near_duplicates = [
        NearDuplicates(*key, result.images, result.found, tuple(pair for *_, pair in result.pairs), result.bounded)
        for key, result in sorted(results, key=lambda item: order.index(item[0]))
    ]
    image_statistics.write_near_duplicates(near_duplicates, folder)
