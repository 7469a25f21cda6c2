"""Folders of images as columns, and files that are refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

from components.errors import InputError
from components.ingest import images


def write(path: Path, format_: str = "PNG", size: tuple[int, int] = (8, 8)) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    Image.new("L", size, 128).save(file, format_)
    path.write_bytes(file.getvalue())
    return str(path)


def read(paths: list[str], given: Any = None) -> dict[str, list[Any]]:
    return pa.Table.from_batches(images.read(paths, images.label_type(paths, given))).to_pydict()


def test_images_keep_their_bytes_class_and_path(tmp_path: Path) -> None:
    paths = [write(tmp_path / "cat" / "1.png"), write(tmp_path / "dög" / "2.jpg", "JPEG")]
    assert read(paths) == {
        "image": [Path(path).read_bytes() for path in paths],
        "label": [b"cat", "dög".encode()],
        "path": [b"cat/1.png", "dög/2.jpg".encode()],
    }


def test_classes_that_are_all_integers_are_int64_unless_bytes_are_asked_for(tmp_path: Path) -> None:
    paths = [write(tmp_path / "0" / "1.png"), write(tmp_path / "12" / "1.png")]
    assert read(paths)["label"] == [0, 12]
    assert read(paths, "bytes")["label"] == [b"0", b"12"]
    assert read([*paths, write(tmp_path / "x" / "1.png")])["label"] == [b"0", b"12", b"x"]


def test_classes_of_another_type_are_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / "0" / "1.png"), write(tmp_path / "cat" / "1.png")]
    with pytest.raises(InputError, match=r"data\.types: the classes cannot be int: cat"):
        images.label_type(paths, "int")
    with pytest.raises(InputError, match=r"data\.types: the classes cannot be float"):
        images.label_type(paths[:1], "float")


def test_batches_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_BATCH", 200)
    paths = [write(tmp_path / "0" / f"{number}.png") for number in range(7)]
    batches = list(images.read(paths, pa.int64()))
    assert len(batches) > 1
    assert sum(batch.num_rows for batch in batches) == 7


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: b"no image", "is no PNG or JPEG image"),
        (lambda data: b"", "is no PNG or JPEG image"),
        (lambda data: data[:-20], "is a broken image: it is cut off after"),
    ],
)
@pytest.mark.parametrize("format_", ["PNG", "JPEG"])
def test_broken_files_are_refused_by_name(tmp_path: Path, change: Any, told: str, format_: str) -> None:
    good, bad = write(tmp_path / "0" / "1.png"), write(tmp_path / "0" / "2.png", format_, (64, 64))
    Path(bad).write_bytes(change(Path(bad).read_bytes()))
    with pytest.raises(InputError) as raised:
        read([good, bad])
    assert raised.value.headline.startswith(f"{bad} {told}")


def test_notes_after_the_end_of_an_image_are_no_fault(tmp_path: Path) -> None:
    path = write(tmp_path / "0" / "1.jpg", "JPEG")
    with Path(path).open("ab") as file:
        file.write(b"a camera's own notes")
    assert len(read([path])["image"]) == 1
