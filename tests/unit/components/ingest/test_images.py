"""Folders of images as columns, and files that are set aside."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

from components.errors import InputError
from components.ingest import images
from components.ingest.rows import Ledger


def write(path: Path, format_: str = "PNG", size: tuple[int, int] = (8, 8)) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    Image.new("L", size, 128).save(file, format_)
    path.write_bytes(file.getvalue())
    return str(path)


def read(paths: list[str], given: Any = None) -> dict[str, list[Any]]:
    reader = images.ImageReader(images.label_type(paths, given))
    ledger = Ledger(None)
    pieces = [piece for path in paths for piece in reader.cut(path, None)]
    blocks = [block for piece in pieces for block in reader.read(piece, ledger)]
    assert ledger.close().bad == 0
    assert [block.origin(0) for block in blocks] == [(piece, 1) for piece in pieces]
    return pa.Table.from_batches([block.columns for block in blocks]).to_pydict()


def test_images_keep_their_bytes_class_and_path(tmp_path: Path) -> None:
    paths = [write(tmp_path / "cat" / "1.png"), write(tmp_path / "dög" / "2.jpg", "JPEG")]
    assert read(paths) == {
        "image": [Path(path).read_bytes() for path in paths],
        "label": [b"cat", "dög".encode()],
        "path": [b"cat/1.png", "dög/2.jpg".encode()],
    }


def test_classes_that_are_all_integers_are_int64_unless_bytes_are_asked_for(tmp_path: Path) -> None:
    paths = [write(tmp_path / "0" / "1.png"), write(tmp_path / "12" / "1.png")]
    assert read(paths)["label"] == read(paths, "int")["label"] == [0, 12]
    assert read(paths, "bytes")["label"] == [b"0", b"12"]
    assert read([*paths, write(tmp_path / "x" / "1.png")])["label"] == [b"0", b"12", b"x"]


def test_classes_of_another_type_are_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / "0" / "1.png"), write(tmp_path / "cat" / "1.png")]
    with pytest.raises(InputError, match=r"data\.types: the classes cannot be int: cat"):
        images.label_type(paths, "int")
    with pytest.raises(InputError, match=r"data\.types: the classes cannot be float"):
        images.label_type(paths[:1], "float")


def test_the_image_decides_about_the_split_and_not_its_name() -> None:
    assert images.ImageReader.traits.decisive == ("image",)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: b"no image", "expected a PNG or JPEG image, received another file"),
        (lambda data: b"", "expected a PNG or JPEG image, received another file"),
        (lambda data: data[:-20], "expected a whole image, received one that is cut off after"),
    ],
)
@pytest.mark.parametrize("format_", ["PNG", "JPEG"])
def test_broken_files_are_bad_rows(tmp_path: Path, change: Callable[[bytes], bytes], told: str, format_: str) -> None:
    good, bad = write(tmp_path / "0" / "1.png"), write(tmp_path / "0" / "2.png", format_, (64, 64))
    Path(bad).write_bytes(change(Path(bad).read_bytes()))
    reader, ledger = images.ImageReader(pa.int64()), Ledger(None)
    blocks = [block for path in (good, bad) for block in reader.read(reader.head(path, None), ledger)]
    account = ledger.close()
    assert len(blocks) == 1
    assert (account.rows, account.bad) == (2, 1)
    (one,) = account.first
    assert (one.path, account.place(one), one.column) == (bad, 1, None)
    assert one.reason.startswith(told)


def test_notes_after_the_end_of_an_image_are_no_fault(tmp_path: Path) -> None:
    path = write(tmp_path / "0" / "1.jpg", "JPEG")
    with Path(path).open("ab") as file:
        file.write(b"a camera's own notes")
    assert len(read([path])["image"]) == 1
