"""Parquet, TFRecord and image files are ingested, and damaged values are quarantined."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image
from pyarrow import parquet as arrow_parquet

from components.ingest import parquet_reader
from tests.support.runs import ingest_runs
from tests.support.runs.ingest_runs import (
    all_rows,
    bad_rows,
    by_split,
    counts,
    data,
    ingest,
    ingest_error,
    records,
    run_without_beam,
)

ANY: dict[str, Any] = {"bad_rows": {"max_fraction": 1}}


def test_types_of_parquet_columns_are_converted(tmp_path: Path) -> None:
    count = 40
    day = datetime.date(2024, 2, 29)
    table = pa.table(
        {
            "a": pa.array(range(count), pa.int32()),
            "flag": pa.array([row % 2 == 0 for row in range(count)]),
            "price": pa.array([decimal.Decimal("1.25")] * count),
            "day": pa.array([day] * count),
            "at": pa.array([datetime.datetime(2024, 2, 29, 12, 30)] * count, pa.timestamp("ms")),
            "word": pa.array(["é", None] * (count // 2)).dictionary_encode(),
            "raw": pa.array([b"\xff\x00"] * count),
            "ids": pa.array([[1, 2], [3], [], None] * (count // 4)),
            "tags": pa.array([["x", "y"]] * count),
            "nothing": pa.nulls(count),
            "Odd Name": pa.array([0.1] * count),
        }
    )
    (tmp_path / "in").mkdir()
    arrow_parquet.write_table(table.slice(0, 17), tmp_path / "in" / "1.parquet", row_group_size=4)
    arrow_parquet.write_table(table.slice(17), tmp_path / "in" / "2.parquet")
    examples = ingest(data(tmp_path / "in"), tmp_path / "out")
    tenth = tf.constant(0.1).numpy()
    for row in all_rows(examples):
        number = row.pop("a")
        assert row == {
            "Odd_Name": float(tenth),
            "at": "2024-02-29 12:30:00.000",
            "day": "2024-02-29",
            "flag": int(number % 2 == 0),
            "ids": [[1, 2], 3, [], None][number % 4],
            "nothing": None,
            "price": 1.25,
            "raw": b"\xff\x00",
            "tags": ["x", "y"],
            "word": ["é", None][number % 2],
        }
    assert counts(examples)["read"] == count
    assert ingest_runs.types(examples) == {
        **dict.fromkeys(["a", "flag", "ids"], "int"),
        **dict.fromkeys(["price", "Odd_Name"], "float"),
        **dict.fromkeys(["at", "day", "raw", "tags", "word"], "bytes"),
        "nothing": "missing",
    }


def test_only_selected_parquet_columns_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table(
        {
            "a": list(range(30)),
            "b c": [row / 4 for row in range(30)],
            "secret": ["x"] * 30,
            "nested": [{"x": 1}] * 30,
        }
    )
    arrow_parquet.write_table(table, tmp_path / "in.parquet")
    selected = []
    read = arrow_parquet.ParquetFile.iter_batches

    def iter_batches(*args: Any, **options: Any) -> Any:
        selected.append(options["columns"])
        return read(*args, **options)

    monkeypatch.setattr(parquet_reader.parquet.ParquetFile, "iter_batches", iter_batches)
    result = run_without_beam(data(tmp_path / "in.parquet", columns=["b_c", "a"]), tmp_path / "out")
    assert {tuple(row) for rows in result.rows.values() for row in rows} == {("a", "b_c")}
    assert {tuple(sorted(columns)) for columns in selected} == {("a", "b c")}


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([{"x": 1}], "struct<x: int64>"),
        ([[[1], [2]]], "list<item: list<item: int64>>"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "map<string, int64>"),
    ],
)
def test_nested_parquet_column_is_rejected(tmp_path: Path, values: Any, type_: str) -> None:
    path = tmp_path / "in.parquet"
    arrow_parquet.write_table(pa.table({"a": [1], "deep": values}), path)
    error = ingest_error(data(path), tmp_path / "out")
    assert error.headline.startswith(f"{path}: the column deep is nested ({type_.partition('<')[0]}<")
    assert error.remedy.startswith("flatten it, or name the other columns")


def test_parquet_values_that_examples_cannot_hold_are_quarantined(tmp_path: Path) -> None:
    count = 20
    table = pa.table(
        {
            "a": pa.array([2**63 if row == 7 else row for row in range(count)], pa.uint64()),
            "ids": pa.array([[1, None] if row == 9 else [row] for row in range(count)]),
        }
    )
    arrow_parquet.write_table(table, tmp_path / "in.parquet", row_group_size=6)
    examples = ingest(data(tmp_path / "in.parquet", **ANY), tmp_path / "out")
    assert bad_rows(examples) == [
        {"file": "in.parquet", "row": 8, "column": "a", "reason": f"expected an int64, received {2**63}",
         "content": {"a": str(2**63), "ids": "[7]"}},
        {"file": "in.parquet", "row": 10, "column": "ids",
         "reason": "expected a list of values, received a missing value, NaN or infinity inside",
         "content": {"a": "9", "ids": "[1, None]"}},
    ]  # fmt: skip
    assert sorted(row["a"] for row in all_rows(examples)) == [row for row in range(count) if row not in (7, 9)]


def test_types_of_parquet_files_may_differ_in_width(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, type_ in enumerate([pa.int32(), pa.float64(), pa.int8()]):
        table = pa.table({"a": pa.array([number] * 10, type_), "b": list(range(10))})
        arrow_parquet.write_table(table, tmp_path / "in" / f"{number}.parquet")
    examples = ingest(data(tmp_path / "in"), tmp_path / "out")
    assert ingest_runs.types(examples) == {"a": "float", "b": "int"}
    assert {repr(row["a"]) for row in all_rows(examples)} == {"0.0", "1.0", "2.0"}


def test_empty_or_damaged_parquet_file_is_rejected_by_name(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    arrow_parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "in" / "1.parquet")
    path = tmp_path / "in" / "2.parquet"
    arrow_parquet.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
    assert ingest_error(data(tmp_path / "in"), tmp_path / "0").headline.startswith(f"{path} has no rows")
    path.write_bytes((tmp_path / "in" / "1.parquet").read_bytes()[:-30])
    assert ingest_error(data(tmp_path / "in"), tmp_path / "1").headline.startswith(f"{path} is not a Parquet file")


SERIALIZED = [ingest_runs.example(a=row, b=[b"x"] * (row % 3), c=[row / 2, 0.5]) for row in range(60)]


def write_records(path: Path, result: list[bytes], packed: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), "GZIP" if packed else None) as writer:
        for record in result:
            writer.write(record)
    return path


def test_examples_in_tfrecord_files_are_copied_byte_for_byte(tmp_path: Path) -> None:
    write_records(tmp_path / "in" / "1.tfrecord", SERIALIZED[:20])
    write_records(tmp_path / "in" / "2.tfrecord.gz", SERIALIZED[20:], packed=True)
    examples = ingest(data(tmp_path / "in"), tmp_path / "out")
    result = records(examples, "train") + records(examples, "eval")
    assert sorted(result) == sorted(SERIALIZED)
    assert counts(examples)["read"] == 60
    assert ingest_runs.types(examples) == {"a": "int", "b": "bytes", "c": "float"}
    assert examples.get_string_custom_property("payload_format") == "FORMAT_TF_EXAMPLE"
    columns = ingest(data(tmp_path / "in"), tmp_path / "columns", stored="parquet")
    assert by_split(columns) == by_split(examples)
    # Rows from CSV with equal values of `a` are assigned to the same splits.
    lines = "".join(f"{row},{'x' if row % 3 == 1 else ''}\n" for row in range(60))
    (tmp_path / "in.csv").write_text("a,b\n" + lines)
    split = {"columns": "a", "train": 2, "eval": 1}
    from_records = ingest(data(tmp_path / "in", split=split), tmp_path / "1")
    from_text = ingest(data(tmp_path / "in.csv", split=split), tmp_path / "2")
    for name in ("train", "eval"):
        assert {row["a"] for row in by_split(from_records)[name]} == {row["a"] for row in by_split(from_text)[name]}


@pytest.mark.parametrize("by", ["time", "column"])
def test_feature_of_examples_determines_the_split(tmp_path: Path, by: str) -> None:
    path = write_records(tmp_path / "in.tfrecord", [ingest_runs.example(a=row, b=[1, 2]) for row in range(4)] * 5)
    shares: dict[str, Any] = {"train": 1, "eval": 1} if by == "time" else {"train": ["0", "1"], "eval": ["2", "3"]}
    result = run_without_beam(data(path, split={"by": by, "columns": "a", **shares}), tmp_path / "out")
    assert {name: {row["a"] for row in rows} for name, rows in result.rows.items()} == {"train": {0, 1}, "eval": {2, 3}}
    with pytest.raises(ingest_runs.InputError, match=r"offset 0: column b: expected a .*, received \[1, 2\]"):
        run_without_beam(data(path, split={"by": by, "columns": "b", **shares}), tmp_path / "no")


def test_damaged_records_are_quarantined_with_their_offset(tmp_path: Path) -> None:
    starts = [0]
    for record in SERIALIZED:
        starts.append(starts[-1] + len(record) + 16)
    path = write_records(tmp_path / "in" / "1.tfrecord", SERIALIZED)
    content = bytearray(path.read_bytes())
    content[starts[5] + 14] ^= 0xFF
    path.write_bytes(content)
    write_records(tmp_path / "in" / "2.tfrecord", [SERIALIZED[0], b"\xff\xff\xff", SERIALIZED[1]])
    examples = ingest(data(tmp_path / "in", **ANY), tmp_path / "out")
    bad = bad_rows(examples)
    assert [(bad_row["file"], bad_row["offset"]) for bad_row in bad] == [
        ("1.tfrecord", starts[5]),
        ("2.tfrecord", starts[1]),
    ]
    assert bad[0]["reason"] == "the data do not match their checksum"
    assert bad[1]["reason"] == "expected a serialized tf.Example, received 3 other bytes"
    result = counts(examples)
    assert (result["read"], result["quarantined"]) == (63, 2)
    expected = [*SERIALIZED[:5], *SERIALIZED[6:], SERIALIZED[0], SERIALIZED[1]]
    assert sorted(records(examples, "train") + records(examples, "eval")) == sorted(expected)
    error = ingest_error(data(tmp_path / "in"), tmp_path / "no")
    assert error.headline.startswith(f"{path}, offset {starts[5]}: ")


def test_truncated_tfrecord_file_is_reported_with_the_offset(tmp_path: Path) -> None:
    path = write_records(tmp_path / "in.tfrecord", SERIALIZED)
    start = sum(len(record) + 16 for record in SERIALIZED[:59])
    path.write_bytes(path.read_bytes()[: start + 20])
    error = ingest_error(data(path, **ANY), tmp_path / "out")
    assert error.headline == (
        f"{path}, offset {start}: expected a record of {len(SERIALIZED[59]) + 16} bytes or more, received 20: "
        "the file is cut off"
    )
    assert error.remedy == "fetch or write the file again, or remove it from data.path"


def test_truncated_gzip_tfrecord_file_is_reported(tmp_path: Path) -> None:
    path = write_records(tmp_path / "in.tfrecord.gz", SERIALIZED * 50, packed=True)
    path.write_bytes(path.read_bytes()[:-200])
    error = ingest_error(data(path, **ANY), tmp_path / "out")
    assert error.headline.startswith(f"{path}: the compressed data is damaged or cut off after byte ")
    assert error.remedy == "fetch or write the file again"


@pytest.mark.parametrize("stored", ["parquet", "tfrecord"])
def test_sequence_examples_are_stored_as_rows_with_lists(tmp_path: Path, stored: Any) -> None:
    def sequence(row: int) -> bytes:
        steps = [tf.train.Feature(float_list=tf.train.FloatList(value=[row + step])) for step in range(row % 3)]
        return bytes(
            tf.train.SequenceExample(
                context=tf.train.Example.FromString(ingest_runs.example(a=row % 4)).features,
                feature_lists=tf.train.FeatureLists(feature_list={"steps": tf.train.FeatureList(feature=steps)}),
            ).SerializeToString()
        )

    path = write_records(tmp_path / "in.tfrecord", [*map(sequence, range(40)), b"\xff"])
    examples = ingest(data(path, tfrecord={"payload": "sequence_example"}, **ANY), tmp_path / "out", stored=stored)
    assert bad_rows(examples)[0]["reason"] == "expected a serialized tf.SequenceExample, received 1 other bytes"
    assert ingest_runs.types(examples) == {"a": "int", "steps": "float"}
    steps = [[float(row + step) for step in range(row % 3)] for row in range(40)]
    # `all_rows` returns a list of one value as the value.
    expected = [
        {"a": row % 4, "steps": row_steps[0] if len(row_steps) == 1 else row_steps}
        for row, row_steps in enumerate(steps)
    ]
    assert sorted(map(str, all_rows(examples))) == sorted(map(str, expected))


def draw_images(folder: Path, count: int = 40) -> Path:
    for number in range(count):
        for label in ("0", "1"):
            path = folder / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 4), number).save(path)
    return folder


def test_images_are_ingested_and_duplicates_are_in_one_split(tmp_path: Path) -> None:
    examples = ingest(data(draw_images(tmp_path / "in")), tmp_path / "out")
    assert counts(examples)["read"] == 80
    seen: dict[bytes, str] = {}
    for split in ("train", "eval"):
        for record in records(examples, split):
            feature = tf.train.Example.FromString(record).features.feature
            image = feature["image"].bytes_list.value[0]
            assert image.startswith(b"\x89PNG")
            assert feature["path"].bytes_list.value[0].startswith(b"%d/" % feature["label"].int64_list.value[0])
            assert seen.setdefault(image, split) == split
    assert len(seen) == 40


def test_broken_images_are_quarantined(tmp_path: Path) -> None:
    folder = draw_images(tmp_path / "in", 10)
    (folder / "0" / "notes.txt").write_text("no image")
    cut = folder / "1" / "3.png"
    cut.write_bytes(cut.read_bytes()[:-20])
    examples = ingest(data(folder, format="images", bad_rows={"max_fraction": 0.1}), tmp_path / "out")
    assert bad_rows(examples) == [
        {"file": "notes.txt", "row": 1, "reason": "expected a PNG or JPEG image, received another file"},
        {"file": "3.png", "row": 1,
         "reason": f"expected a complete image, received one that is cut off after {cut.stat().st_size} bytes"},
    ]  # fmt: skip
    assert counts(examples)["read"] == 21
    error = ingest_error(data(folder, format="images", bad_rows={"max_fraction": 0.09}), tmp_path / "no")
    assert error.headline.startswith(f"{folder}/0/notes.txt, row 1: expected a PNG or JPEG image")
