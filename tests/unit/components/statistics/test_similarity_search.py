"""The search for near duplicates on a Beam engine finds what a complete comparison finds."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from components.data import image_facts, image_statistics
from components.data.examples import ParquetWriter
from components.data.near_duplicates import NearDuplicates
from components.statistics import image_similarity, images, similarity_search
from tests.support.data.tolerances import float32_sum
from tests.support.runs.ingest_runs import BEAM

SIZE = image_facts.THUMBNAIL
FORKED = ("--runner=DirectRunner", "--direct_running_mode=multi_processing", "--direct_num_workers=2")


def store(folder: Path, split: str, thumbnails: np.ndarray, files: int) -> None:
    """Write facts about images with these thumbnails; every tenth row is an image that cannot be compared."""
    (folder / image_facts.FOLDER).mkdir(exist_ok=True)
    for number in range(files):
        rows = range(number, len(thumbnails), files)
        facts = [
            image_facts.ImageFacts(8 if row % 10 == 9 else 64, 64, "L", "PNG", 1, 0.5, thumbnails[row].tobytes())
            for row in rows
        ]
        batch = image_facts.batch({"image": facts}, {"image": [f"{split}{row}" for row in rows]})
        path = folder / image_facts.FOLDER / image_facts.file_name(split, number, files)
        writer = ParquetWriter(str(path), batch.schema)
        writer.write(batch)
        writer.close()


def make_splits(folder: Path, rows: int) -> None:
    """Write a training split, and two splits with copies that have more and more noise.

    The border of similar copies is at a noise of about 10, so all copies in `test` are similar.
    """
    random = np.random.default_rng(7)
    train = random.integers(40, 216, (rows, SIZE, SIZE)).astype(np.uint8)
    train[rows // 2 : rows // 2 + 80] = train[5]
    store(folder, "train", train, 7)
    for split, files, most in (("eval", 3, 14), ("test", 2, 5)):
        copied = train[random.permutation(rows)[: rows // 4]]
        noise = random.normal(size=copied.shape) * np.linspace(0, most, len(copied))[:, np.newaxis, np.newaxis]
        others = random.integers(40, 216, (rows // 4, SIZE, SIZE))
        near = np.clip(copied + noise, 0, 255)
        store(folder, split, np.concatenate([near, others, train[5:6]]).astype(np.uint8), files)


def search(folder: Path, options: tuple[str, ...]) -> list[NearDuplicates]:
    images.write(
        *(str(folder), {split: str(folder / split) for split in ("train", "eval", "test")}, str(folder)),
        lambda: beam.Pipeline(options=PipelineOptions(list(options))),
    )
    return image_statistics.near_duplicates(str(folder))


def compare_all(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Compare all pairs of images: the cosine similarity by scikit-learn, and the number of different bits."""
    from sklearn.metrics.pairwise import cosine_similarity

    train = image_similarity.read(image_facts.files(str(folder), "train"), "image").thumbnails
    positions = image_similarity.fit_positions(train)
    sides, bits = [], []
    for name in (split, "train"):
        thumbnails = image_similarity.read(image_facts.files(str(folder), name), "image").thumbnails
        pixels = thumbnails.astype(np.float64)
        across, down = np.diff(pixels, axis=2)[:, :-1], np.diff(pixels, axis=1)[:, :, :-1]
        sides.append(np.concatenate([across.reshape(len(pixels), -1), down.reshape(len(pixels), -1)], axis=1))
        codes = [image_similarity.hash_band(thumbnails, band, positions) for band in range(image_similarity.BANDS)]
        rows = np.stack(codes, axis=1).astype("<u4").view(np.uint8)
        bits.append(np.unpackbits(rows, axis=1).astype(np.int64))
    different = (bits[0][:, np.newaxis] != bits[1][np.newaxis]).sum(axis=2)
    return cosine_similarity(*sides), different


@pytest.mark.parametrize("options", [BEAM, pytest.param(FORKED, marks=pytest.mark.extended)])
def test_search_finds_what_a_complete_comparison_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    make_splits(tmp_path, 600)
    for split in ("train", "eval", "test"):
        (tmp_path / split).mkdir()
    complete = search(tmp_path, options)
    monkeypatch.setattr(images, "_MOST_IN_PROCESS", 0)
    monkeypatch.setattr(similarity_search, "_RANGE_ROWS", 300)
    found = search(tmp_path, options)
    assert [(result.column, result.split) for result in found] == [("image", "eval"), ("image", "test")]
    for result, expected in zip(found, complete, strict=True):
        similarity, different = compare_all(tmp_path, result.split)
        similar = similarity >= image_similarity.SIMILAR
        certain = (similar & (different <= image_similarity.MOST_DIFFERENT_BITS)).any(axis=1).sum()
        assert 20 < certain <= result.found <= similar.any(axis=1).sum() < result.images
        assert result.found >= 0.97 * similar.any(axis=1).sum()
        assert result.pairs == expected.pairs
        best = np.sort(similarity.max(axis=1))[::-1][: len(result.pairs)]
        given = [pair.similarity for pair in result.pairs]
        float32_sum(128).assert_close(np.asarray(given), np.round(best, 4))
    assert found[1].found == complete[1].found
    assert all(result.bounded >= 1 for result in found), "81 equal images are more than a bucket"


@pytest.mark.extended
def test_search_equals_the_comparison_by_hashes_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_splits(tmp_path, 4_000)
    for split in ("train", "eval", "test"):
        (tmp_path / split).mkdir()
    monkeypatch.setattr(image_similarity, "_EXACT_PAIRS", 0)
    # The same sample, so that the hyperplanes are the same.
    sample = image_similarity.read(image_facts.files(str(tmp_path), "train"), "image").thumbnails
    positions = image_similarity.fit_positions(sample)
    monkeypatch.setattr(image_similarity, "fit_positions", lambda _: positions)
    in_process = search(tmp_path, BEAM)
    monkeypatch.setattr(images, "_MOST_IN_PROCESS", 0)
    for ranges, chunks in ((1 << 20, 256), (500, 2)):
        monkeypatch.setattr(similarity_search, "_RANGE_ROWS", ranges)
        monkeypatch.setattr(similarity_search, "_CHUNKS", chunks)
        assert search(tmp_path, BEAM) == in_process


def test_splits_without_images_to_compare_have_no_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_MOST_IN_PROCESS", 0)
    grey = np.full((4, SIZE, SIZE), 90, np.uint8)
    for split in ("train", "eval", "test"):
        store(tmp_path, split, grey, 1)
        (tmp_path / split).mkdir()
    assert search(tmp_path, BEAM) == [NearDuplicates("image", "eval", 0, 0), NearDuplicates("image", "test", 0, 0)]


def test_names_of_many_equal_pairs_are_the_first_ones() -> None:
    similarity, at = np.full(2, -1, np.float32), np.zeros(2, np.int64)
    thumbnails = np.random.default_rng(0).integers(0, 256, (1, SIZE, SIZE)).astype(np.uint8)
    for candidates in ([8, 3], [5, 9]):
        rows = np.array([0, 0])
        pairs = np.repeat(thumbnails, 2, axis=0)
        image_similarity.keep_best(similarity, at, rows, np.array(candidates), pairs, pairs)
    assert at.tolist() == [3, 0]
    assert similarity[1] == -1
