"""Every data file of a folder is read, or the folder is rejected. The rows are compared with pandas."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from components.base.errors import InputError
from components.ingest import folder_files, input_files
from components.ingest.config import DataConfig
from pipeline.cli import options
from tests.support.runs.ingest_runs import data, run_without_beam


def fill(folder: Path, *names: str) -> pd.DataFrame:
    """Write ten rows to every file; return the rows of all files."""
    parts = []
    for number, name in enumerate(names):
        part = pd.DataFrame({"a": range(10 * number, 10 * number + 10), "b": number / 4 + 0.25})
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith((".parquet", ".pq")):
            part.to_parquet(path, index=False)
        else:
            content = part.to_csv(index=False).encode()
            path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def read_rows(folder: Path, **section: Any) -> tuple[pd.DataFrame, dict[str, dict[str, int]]]:
    result = run_without_beam(data(section.pop("path", folder), **section), folder.parent / "out")
    rows = pd.concat(list(map(pd.DataFrame, result.rows.values())))
    return rows.sort_values("a", ignore_index=True), result.manifest.files


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (["1.csv", "2.csv.gz", "3.tsv", "4.txt", "5.CSV"], {".csv": 2, ".csv.gz": 1, ".tsv": 1, ".txt": 1}),
        (["1.parquet", "2.pq", "3.parquet"], {".parquet": 2, ".pq": 1}),
    ],
)
def test_all_suffixes_of_a_format_are_read(tmp_path: Path, names: list[str], files: dict[str, int]) -> None:
    (tmp_path / "in" / "old").mkdir(parents=True)
    expected = fill(tmp_path / "in", *names)
    (tmp_path / "in" / "_SUCCESS").touch()
    received, counts = read_rows(tmp_path / "in")
    pd.testing.assert_frame_equal(received, expected, check_dtype=False)
    assert counts == {suffix: {"files": count, "rows": 10 * count} for suffix, count in files.items()}
    assert input_files.unread(data(tmp_path / "in")) == [f"{tmp_path}/in/old"]


def test_readme_file_is_not_read_as_data(tmp_path: Path) -> None:
    expected = fill(tmp_path / "in", "1.parquet", "2.parquet")
    (tmp_path / "in" / "README.txt").write_text("a,b\n1,2\n")
    pd.testing.assert_frame_equal(read_rows(tmp_path / "in")[0], expected, check_dtype=False)
    assert input_files.unread(data(tmp_path / "in")) == [f"{tmp_path}/in/README.txt"]


@pytest.mark.parametrize("path", ["", "*"])
def test_several_formats_are_rejected_unless_a_format_is_configured(tmp_path: Path, path: str) -> None:
    fill(tmp_path / "in", "1.csv", "2.csv.gz", "3.parquet")
    config = data(tmp_path / "in" / path)
    with pytest.raises(InputError) as refusal:
        input_files.files(config)
    assert "received 2 csv (1.csv, 2.csv.gz) and 1 parquet (3.parquet)" in refusal.value.headline
    assert "set data.format" in refusal.value.remedy
    if not path:
        configured = config.model_copy(update={"format": "csv"})
        assert input_files.files(configured) == {
            "all-0": [f"{tmp_path}/in/1.csv"],
            "all-1": [f"{tmp_path}/in/2.csv.gz"],
        }
        assert input_files.unread(configured) == [f"{tmp_path}/in/3.parquet"]


@pytest.mark.parametrize("name", ["more.jsonl", "more.csv.bz2", "more.xlsx", "more.avro"])
def test_files_that_cannot_be_read_are_rejected(tmp_path: Path, name: str) -> None:
    fill(tmp_path / "in", "1.csv")
    (tmp_path / "in" / name).touch()
    with pytest.raises(InputError, match=rf"expected files that can be read .*1 other files \({name}\)"):
        input_files.files(data(tmp_path / "in"))
    assert input_files.files(data(tmp_path / "in", format="csv")) == {"all-0": [f"{tmp_path}/in/1.csv"]}


def test_tables_next_to_images_are_rejected_unless_they_name_the_images(tmp_path: Path) -> None:
    fill(tmp_path / "in", "labels.csv", "cat/1.png")
    with pytest.raises(InputError, match=r"1 csv \(labels.csv\) and 1 images \(1.png\)"):
        input_files.files(data(tmp_path / "in"))
    config = data(tmp_path / "in", images={"path_column": "a"})
    assert input_files.files(config) == {"all-0": [f"{tmp_path}/in/labels.csv"]}


def test_spans_with_different_suffixes_are_read_or_rejected(tmp_path: Path) -> None:
    fill(tmp_path, "1/1.csv", "1/1.csv.gz", "2/2.csv", "2/2.csv.gz")
    config = DataConfig(path=(f"{tmp_path}/{{SPAN}}",), label="a", spans={"latest": 2})
    files = {"all-0": [f"{tmp_path}/{span}/{span}.csv" for span in "12"]}
    assert input_files.files(config) == {**files, "all-1": [f"{path}.gz" for path in files["all-0"]]}
    (tmp_path / "2" / "2.csv.gz").unlink()
    with pytest.raises(InputError, match=r"expected span 2, which other patterns have, in .*\.gz as well"):
        input_files.files(config)


def test_commands_warn_of_files_that_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "in", "1.csv", "2.csv")
    loaded = SimpleNamespace(config=SimpleNamespace(data=data(tmp_path / "in")))
    options.warn_of_unread_files(cast("Any", loaded))
    assert capsys.readouterr().err == ""
    (tmp_path / "in" / "notes.md").touch()
    options.warn_of_unread_files(cast("Any", loaded))
    assert capsys.readouterr().err == f"warning: data.path: not read: {tmp_path}/in/notes.md\n"


def test_suffixes_are_counted_with_their_compression() -> None:
    names = ["gs://b/x.CSV.gz", "a.b/1.parquet", "x-00000-of-00001.gz", "part-0", ""]
    assert [folder_files.suffix(name) for name in names] == [".csv.gz", ".parquet", ".gz"] + ["without suffix"] * 2
