"""Near-duplicate images are found, and blocks bound the memory of the comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from components.data import image_facts
from components.data.examples import ParquetWriter
from components.data.near_duplicates import NearDuplicates
from components.ingest import image_check
from components.statistics import image_similarity
from tests.support.data.sample_images import encode, picture

Change = Callable[[Image.Image], bytes]


def store(folder: Path, split: str, files: dict[str, bytes]) -> None:
    """Write facts about images to two files, as ingest does."""
    facts = {name: image_check.examine(content, 50) for name, content in files.items()}
    assert not [fact for fact in facts.values() if isinstance(fact, str)]
    (folder / image_facts.FOLDER).mkdir(exist_ok=True)
    for number in range(2):
        names = list(files)[number::2]
        batch = image_facts.batch({"image": [facts[name] for name in names]}, {"image": names})  # type: ignore[misc]
        path = folder / image_facts.FOLDER / image_facts.file_name(split, number, 2)
        writer = ParquetWriter(str(path), batch.schema)
        writer.write(batch)
        writer.close()


def find(folder: Path, train: dict[str, bytes], evaluated: dict[str, bytes]) -> NearDuplicates:
    """Return the near duplicates of the split `eval` in the split `train`."""
    store(folder, "train", train)
    store(folder, "eval", evaluated)
    images = [image_similarity.read(image_facts.files(str(folder), split), "image") for split in ("train", "eval")]
    return image_similarity.find(images[0], images[1], "image", "eval")


def crops() -> list[Image.Image]:
    """Return non-overlapping parts of two real photos."""
    photos = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    return [photo.crop((x, y, x + 128, y + 128)) for photo in photos for y in (150, 290) for x in range(0, 500, 128)]


@pytest.mark.parametrize(
    "change",
    [
        lambda image: encode(image, "PNG"),
        lambda image: encode(image, quality=50),
        lambda image: encode(image.resize((64, 64), Image.Resampling.LANCZOS)),
        lambda image: encode(image.point(lambda level: int(level * 1.1) + 5)),
        lambda image: encode(image.convert("L")),
    ],
    ids=["png", "compressed", "resized", "brighter", "grey"],
)
def test_changed_copies_are_found_and_other_images_are_not(tmp_path: Path, change: Change) -> None:
    photos = crops()
    train = {f"{number}.jpg": encode(photo, quality=90) for number, photo in enumerate(photos)}
    copied = [3, 8, 12]
    evaluated = {f"copy {number}": change(photos[number]) for number in copied}
    evaluated |= {f"new {number}": encode(picture(number, (128, 128))) for number in range(20)}
    near_duplicates = find(tmp_path, train, evaluated)
    assert (near_duplicates.images, near_duplicates.found) == (len(evaluated), len(copied))
    assert {(pair.name, pair.train) for pair in near_duplicates.pairs} == {(f"copy {n}", f"{n}.jpg") for n in copied}
    assert all(image_similarity.SIMILAR <= pair.similarity <= 1 for pair in near_duplicates.pairs)
    # Parts of the same photo resemble each other, but they are not duplicates.
    half = len(photos) // 2
    names = list(train)
    parts = find(tmp_path, {name: train[name] for name in names[:half]}, {name: train[name] for name in names[half:]})
    assert parts.found == 0


def test_most_similar_pairs_are_reported(tmp_path: Path) -> None:
    train = {f"{number}": encode(picture(number), "PNG") for number in range(10)}
    copies = {f"re {number}": encode(picture(number), quality=30) for number in range(1, 8)}
    near_duplicates = find(tmp_path, train, {"same": train["0"], **copies})
    assert near_duplicates.found == 8
    assert len(near_duplicates.pairs) == image_similarity.REPORTED
    assert (near_duplicates.pairs[0].name, near_duplicates.pairs[0].train, near_duplicates.pairs[0].similarity) == (
        "same",
        "0",
        1.0,
    )
    assert [pair.similarity for pair in near_duplicates.pairs] == sorted(
        (pair.similarity for pair in near_duplicates.pairs), reverse=True
    )
    assert str(near_duplicates) == "eval: image: 8 of 8 images look like one of train; same and 0 of train"


def test_images_without_detail_are_not_compared(tmp_path: Path) -> None:
    files = {
        "grey": encode(Image.new("RGB", (64, 64), (90, 90, 90)), "PNG"),
        "white": encode(Image.new("L", (64, 64), 255), "PNG"),
        "small": encode(picture(1, (15, 64)), "PNG"),
    }
    near_duplicates = find(tmp_path, files, files)
    assert (near_duplicates.images, near_duplicates.found, near_duplicates.share, near_duplicates.pairs) == (
        0,
        0,
        0.0,
        (),
    )


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    train = random.integers(0, 256, (50, 9, 9)).astype(np.uint8)
    evaluated = np.concatenate([random.integers(0, 256, (13, 9, 9)).astype(np.uint8), train[[44, 2, 17]]])

    def images(thumbnails: np.ndarray, name: str) -> image_similarity.Images:
        return image_similarity.Images(pa.array([f"{name}{at}".encode() for at in range(len(thumbnails))]), thumbnails)

    whole = image_similarity.find(images(train, "t"), images(evaluated, "o"), "image", "eval")
    monkeypatch.setattr(image_similarity, "_ROWS", 7)
    assert image_similarity.find(images(train, "t"), images(evaluated, "o"), "image", "eval") == whole
    assert [(pair.name, pair.train) for pair in whole.pairs] == [("o13", "t44"), ("o14", "t2"), ("o15", "t17")]


def make_images(thumbnails: np.ndarray, name: str) -> image_similarity.Images:
    names = pa.array([f"{name}{at}".encode() for at in range(len(thumbnails))])
    return image_similarity.Images(names, thumbnails)


def test_hashes_find_nearly_all_pairs_of_a_complete_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    size = image_similarity.THUMBNAIL
    train = random.integers(40, 216, (6_000, size, size)).astype(np.uint8)
    # Copies with more and more noise, the last ones not similar enough, and copies of one image.
    noise = random.normal(size=(800, size, size)) * np.linspace(0, 14, 800)[:, np.newaxis, np.newaxis]
    copies = np.clip(train[:800] + noise, 0, 255).astype(np.uint8)
    train[5_000:5_200] = train[7]
    others = random.integers(40, 216, (2_000, size, size)).astype(np.uint8)
    evaluated = np.concatenate([copies, others, train[7:8]])
    similarity, _ = image_similarity._compare_all(train, evaluated)
    hashed, nearest, is_bounded = image_similarity._compare_hashed(train, evaluated)
    similar = similarity >= image_similarity.SIMILAR
    assert 300 < similar.sum() < 800, "the border is among the copies"
    found = hashed >= image_similarity.SIMILAR
    assert not (found & ~similar).any()
    assert found.sum() >= 0.98 * similar.sum()
    np.testing.assert_allclose(hashed[found], similarity[found], rtol=0, atol=1e-5)
    assert (nearest[:800][found[:800]] == np.flatnonzero(found[:800])).mean() > 0.99
    assert found[-1]
    assert np.flatnonzero(is_bounded).tolist() == [7, 2_800], "201 images are equal to these"
    monkeypatch.setattr(image_similarity, "_EXACT_PAIRS", 0)
    result = image_similarity.find(make_images(train, "t"), make_images(evaluated, "o"), "image", "eval")
    assert (result.images, result.found, result.bounded) == (len(evaluated), found.sum(), 2)
    assert str(result).endswith("; 2 were compared with some of many similar images")


def test_images_with_few_different_bits_share_a_band() -> None:
    """The pigeonhole principle: with fewer different bits than bands, a band is equal."""
    random = np.random.default_rng(5)
    bands, bits = image_similarity.BANDS, image_similarity.BITS
    train = random.integers(0, 2, (500, bands * bits))
    for different in (1, image_similarity.MOST_DIFFERENT_BITS, bands):
        # The worst case: the different bits are in different bands.
        flipped = random.permuted(np.tile(np.arange(bands), (500, 1)), axis=1)[:, :different] * bits
        other = train.copy()
        other[np.arange(500)[:, np.newaxis], flipped + random.integers(0, bits, flipped.shape)] ^= 1
        assert (np.abs(other - train).sum(axis=1) == different).all()
        found = np.zeros(500, bool)
        for band in range(bands):
            codes, hashes = (
                (matrix[:, band * bits : (band + 1) * bits] @ (1 << np.arange(bits))).astype(np.uint32)
                for matrix in (train, other)
            )
            order = np.argsort(codes)
            begin, counts, _ = image_similarity.find_buckets(codes[order], hashes)
            rows, places = image_similarity.list_candidates(np.arange(500), begin, counts)
            found[rows[order[places] == rows]] = True
        assert found.all() == (different <= image_similarity.MOST_DIFFERENT_BITS)
