"""Input files are found, or the input is rejected with a message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError
from components.data import file_io
from components.ingest import input_files
from components.ingest.config import DataConfig


def data(path: Any, **more: Any) -> DataConfig:
    paths = [str(part) for part in path] if isinstance(path, list) else str(path)
    return DataConfig.model_validate({"path": paths, "label": "a", **more})


def write(path: Path, content: bytes | str = "a,b\n1,2\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def find_files(path: Any, **more: Any) -> list[str]:
    """Return the files of a config with a single path and without predefined splits."""
    (files,) = input_files.files(data(path, **more)).values()
    return files


def find_error(config: DataConfig) -> tuple[str, str]:
    with pytest.raises(InputError) as raised:
        input_files.files(config)
    return raised.value.headline, raised.value.remedy


def test_path_can_be_a_file_a_folder_or_a_pattern(tmp_path: Path) -> None:
    first, second = write(tmp_path / "in" / "one.csv"), write(tmp_path / "in" / "two.CSV")
    write(tmp_path / "in" / "notes.md", "no data")
    write(tmp_path / "in" / ".hidden.csv", "no data")
    expected = [str(first), str(second)]
    assert find_files(first) == [str(first)]
    assert find_files(tmp_path / "in") == expected
    assert find_files(f"{tmp_path}/in/") == expected
    assert find_files(tmp_path / "i?" / "*.[cC]*") == expected


def test_paths_are_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one.csv")
    monkeypatch.chdir(tmp_path)
    assert find_files("one.csv") == ["one.csv"]
    assert find_files(".") == ["./one.csv"]
    assert find_files("*.csv") == ["one.csv"]


def test_existing_names_that_look_like_patterns_are_read_literally(tmp_path: Path) -> None:
    odd = write(tmp_path / "run[1]" / "what?.csv")
    write(tmp_path / "run1" / "whats.csv")
    assert find_files(odd) == [str(odd)]
    assert find_files(odd.parent) == [str(odd)]


@pytest.mark.parametrize(
    ("names", "format_"),
    [
        (["1.csv", "2.CSV"], "csv"),
        (["1.tsv"], "csv"),
        (["1.txt"], "csv"),
        (["1.csv.gz", "2.csv.gz"], "csv"),
        (["1.csv.zst"], "csv"),
        (["1.parquet", "2.PARQUET"], "parquet"),
        (["1.pq"], "parquet"),
        (["1.tfrecord", "2.tfrecord.gz"], "tfrecord"),
        (["data_tfrecord-00000-of-00001.gz"], "tfrecord"),
        (["cat/1.png", "cat/2.JPG", "dog/1.jpeg"], "images"),
    ],
)
def test_format_is_detected_from_the_files_in_a_folder(tmp_path: Path, names: list[str], format_: str) -> None:
    paths = [str(write(tmp_path / name, b"")) for name in names]
    write(tmp_path / "_SUCCESS", b"")
    write(tmp_path / ".hidden", b"")
    assert input_files.find(data(tmp_path)).format == format_
    assert find_files(tmp_path) == paths
    assert input_files.find(data(paths[0])).format == format_


def test_format_of_a_file_with_another_suffix_is_detected_from_its_first_bytes(tmp_path: Path) -> None:
    assert input_files.find(data(write(tmp_path / "1.data", b"PAR1..."))).format == "parquet"
    assert input_files.find(data(write(tmp_path / "2.data", b"a,b"))).format == "csv"
    assert input_files.find(data(tmp_path / "1.data", format="tfrecord")).format == "tfrecord"


def test_folders_of_images_are_found(tmp_path: Path) -> None:
    images = [write(tmp_path / name, b"") for name in ("cat/1.png", "cat/2.JPG", "dog/1.jpeg")]
    write(tmp_path / "cat" / ".DS_Store", b"")
    assert find_files(tmp_path) == list(map(str, images))
    assert input_files.find(data(tmp_path / "*" / "1.*")).format == "images"
    assert find_files(tmp_path / "*" / "1.*") == [str(images[0]), str(images[2])]


def test_several_paths_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (write(tmp_path / name) for name in ("x/1.csv", "x/y/2.csv", "z[1]/3.csv"))
    config = data([first, second.parent, third])
    assert input_files.files(config) == {"all-0": [str(first)], "all-1": [str(second)], "all-2": [str(third)]}
    monkeypatch.chdir(tmp_path / "x")
    assert input_files.files(data(["1.csv", "../z[1]"])) == {"all-0": [str(first)], "all-1": [str(third)]}
    write(tmp_path / "4.parquet", b"PAR1")
    assert find_error(data([first, tmp_path / "4.parquet"]))[0] == (
        "data.path: expected files of one format, received csv and parquet"
    )


def test_files_can_be_assigned_to_splits(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / name)) for name in ("2019.csv", "2020.csv", "2021.csv", "2022.csv")]
    split = {"by": "files", "train": ["2019*", "2020.csv"], "eval": "2021*", "test": "2022*"}
    files = input_files.files(data(tmp_path, split=split))
    assert files == {"train-0": paths[:1], "train-1": paths[1:2], "eval-0": paths[2:3], "test-0": paths[3:]}
    assert [input_files.split_of(name) for name in files] == ["train", "train", "eval", "test"]
    assert input_files.split_of("all-0") is None
    split["test"] = "2023*"
    assert find_error(data(tmp_path, split=split))[0] == f"data.path: no file matches {tmp_path}/2023*"


def test_url_is_opened_by_tensorflows_file_systems(tmp_path: Path) -> None:
    # TFX does not register the scheme file://, so TensorFlow's file systems are used, as they are for gs://.
    write(tmp_path / "one.csv", "a,b\n1,2\n")
    write(tmp_path / ".hidden.csv", "")
    url = f"file://{tmp_path}"
    assert find_files(url) == [f"{url}/one.csv"]
    assert find_files(f"{url}/one.csv") == [f"{url}/one.csv"]
    assert find_error(data(f"{url}/two.csv"))[0] == f"data.path: {url}/two.csv does not exist"
    with file_io.open_binary(f"{url}/one.csv") as file:
        file.seek(-4, 2)
        assert file.read() == b"1,2\n"
    assert file_io.size(f"{url}/one.csv") == file_io.size(f"{tmp_path}/one.csv") == 8
    assert find_error(data([f"{url}/one.csv", f"{tmp_path}/one.csv"]))[0] == (
        f"data.path: expected files of one file system, received {url} and {tmp_path}"
    )
    write(tmp_path / "sub" / "two.csv")
    assert input_files.files(data([f"{url}/sub", f"{url}/one.csv"])) == {
        "all-0": [f"{url}/sub/two.csv"], "all-1": [f"{url}/one.csv"]
    }  # fmt: skip


@pytest.mark.parametrize("remote", [False, True])
def test_files_are_written_and_removed(tmp_path: Path, remote: bool) -> None:
    path = file_io.join(f"file://{tmp_path}" if remote else str(tmp_path), "out")
    assert file_io.is_remote(path) == remote
    with file_io.create(path) as file:
        file.write(b"x" * (3 << 20))
    assert file_io.size(path) == 3 << 20
    file_io.remove(path)
    assert list(tmp_path.iterdir()) == []


def test_missing_path_is_rejected_with_a_suggestion(tmp_path: Path) -> None:
    write(tmp_path / "trips.csv")
    headline, remedy = find_error(data(tmp_path / "trip.csv"))
    assert headline == f"data.path: {tmp_path}/trip.csv does not exist; did you mean '{tmp_path}/trips.csv'?"
    assert remedy.startswith("set data.path to a file, a folder or a pattern")
    assert find_error(data("/no/such/file.csv"))[0] == "data.path: /no/such/file.csv does not exist"


def test_folders_and_patterns_without_data_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "other" / "x.json", "{}")
    write(tmp_path / "spark" / "data.csv" / "part-0.csv")
    assert find_error(data(tmp_path / "empty"))[0] == (
        "data.path: expected *.csv, *.tsv or *.txt files, *.parquet files, *.tfrecord files, "
        "or a folder of PNG or JPEG files for each class "
        f"in the folder {tmp_path}/empty, received nothing (it is empty)"
    )
    for format_, expected in (
        ("csv", "*.csv, *.tsv or *.txt files"),
        ("parquet", "*.parquet files"),
        ("tfrecord", "*.tfrecord files"),
        ("images", "a folder of PNG or JPEG files for each class"),
    ):
        assert find_error(data(tmp_path / "other", format=format_))[0] == (
            f"data.path: expected {expected} in the folder {tmp_path}/other, received x.json"
        )
    assert find_error(data(tmp_path / "*.csv"))[0] == f"data.path: no file matches {tmp_path}/*.csv"
    assert find_error(data(tmp_path / "spark"))[0] == (
        f"data.path: {tmp_path}/spark/data.csv: expected a file, received a folder"
    )


def test_special_files_are_rejected_without_blocking(tmp_path: Path) -> None:
    write(tmp_path / "one.csv")
    special = tmp_path / "two.csv"
    os.mkfifo(special)
    received = f"data.path: {special}: expected a file, received a FIFO"
    assert [find_error(data(path))[0] for path in (special, tmp_path, tmp_path / "*.csv")] == [received] * 3
    special.unlink()
    special.symlink_to("two.csv")
    assert find_error(data(tmp_path))[0] == f"data.path: {special} cannot be read: Too many levels of symbolic links"


def test_names_that_are_not_utf_8_are_rejected(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xe9t\xe9.csv")
    write(Path(path))
    write(tmp_path / "été.csv")
    for configured in (path, tmp_path, tmp_path / "*.csv"):
        headline, remedy = find_error(data(configured))
        assert headline == (f"data.path: expected names of files in UTF-8, received {tmp_path}/\\udce9t\\udce9.csv")
        assert remedy.startswith("rename the file")
    assert find_files(tmp_path / "été.csv") == [f"{tmp_path}/été.csv"]
