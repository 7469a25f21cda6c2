"""Tests of the simulated images: their format, and that an image depends only on the seed and its number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data import shapes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("shapes") / "shapes"
    assert shapes.main(["--output", str(output), "--images", "41"]) == 0
    return output


def test_classes_have_equal_numbers_of_jpegs_of_one_size(folder: Path) -> None:
    paths = sorted(folder.glob("*/*"), key=lambda path: path.stem)
    assert [path.name for path in paths] == [f"{index:05}.jpg" for index in range(41)]
    assert [path.parent.name for path in paths] == [*shapes.CLASSES, *shapes.CLASSES, shapes.CLASSES[0]]
    assert {path.name for path in folder.iterdir()} == set(shapes.CLASSES)
    for path in paths:
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (224, 224))


def test_image_depends_only_on_the_seed_and_its_number() -> None:
    first = shapes.draw("star", "dotted", np.random.default_rng([0, 19]))
    assert (first == shapes.draw("star", "dotted", np.random.default_rng([0, 19]))).all()
    assert (first != shapes.draw("star", "dotted", np.random.default_rng([1, 19]))).any()
    assert first.shape == (224, 224, 3)


def test_shape_is_brighter_than_its_background_and_marks() -> None:
    """With the same seed, images only differ by their pattern."""
    images = {pattern: shapes.draw("square", pattern, np.random.default_rng(3)) for pattern in shapes.PATTERNS}
    bright = {pattern: float((image.mean(axis=2) > 150).mean()) for pattern, image in images.items()}
    assert bright["plain"] > 0.1
    for pattern in ("striped", "checked", "dotted"):
        assert 0.2 * bright["plain"] < bright[pattern] < 0.9 * bright["plain"], pattern


def test_second_call_does_not_write_anything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inode = folder.stat().st_ino
    assert shapes.main(["--output", str(folder), "--images", "41"]) == 0
    assert folder.stat().st_ino == inode
    assert "nothing to do" in capsys.readouterr().out


def test_folder_with_other_images_is_not_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shapes.main(["--output", str(folder), "--images", "7"]) == 2
    assert "expected 7 images, or an empty folder, received 41 images" in (output := capsys.readouterr().err)
    assert "remedy: delete it, or choose another folder" in output
