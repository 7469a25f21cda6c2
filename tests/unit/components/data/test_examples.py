"""Examples are read as record batches, which are equal for both formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tensorflow_metadata.proto.v0 import schema_pb2

from components.base.errors import InputError, MachineError
from components.data import example_encoder, examples
from components.data.examples import Examples, Format, ParquetWriter, to_lists

pytestmark = pytest.mark.both_lines

FORMATS: list[Format] = ["parquet", "tfrecord"]
BATCH = pa.RecordBatch.from_pydict(
    {
        "count": pa.array([1, None, -3], pa.int64()),
        "score": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "tags": pa.array([[b"a", b"b"], [], None], pa.list_(pa.binary())),
        "text": pa.array([b"x", None, b""], pa.binary()),
        "unused": pa.nulls(3),
    }
)
SCHEMA = text_format.Parse(
    'feature { name: "text" type: BYTES } feature { name: "count" type: INT } feature { name: "unused" type: FLOAT }'
    'feature { name: "absent" type: INT }',
    schema_pb2.Schema(),
)


def write(path: Path, format_: Format, *batches: pa.RecordBatch) -> Examples:
    """Write batches to one file."""
    if format_ == "parquet":
        writer = ParquetWriter(str(path), to_lists(batches[0]).schema)
        for batch in batches:
            writer.write(to_lists(batch))
        writer.close()
    else:
        with tf.io.TFRecordWriter(str(path), "GZIP") as file:
            for batch in batches:
                for record in example_encoder.encode(batch).to_pylist():
                    file.write(record)
    return Examples((str(path),), format_)


def table(batches: object) -> pa.Table:
    return pa.Table.from_batches(batches)


def test_both_formats_give_equal_batches(tmp_path: Path) -> None:
    columns, tfrecord = (table(write(tmp_path / form, form, BATCH).batches()) for form in FORMATS)
    assert columns.equals(tfrecord.select(columns.schema.names))
    assert columns.to_pydict() == {
        "count": [[1], None, [-3]],
        "score": [[0.5], [1.5], [2.5]],
        "tags": [[b"a", b"b"], [], None],
        "text": [[b"x"], None, [b""]],
        "unused": [None, None, None],
    }


def test_floats_that_rarely_repeat_are_not_dictionary_encoded(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = 3000
    pairs = np.stack([random.integers(0, 9, rows), random.random(rows)], axis=1).astype(np.float32)
    batch = pa.RecordBatch.from_pydict(
        {
            "distinct": pa.array(random.normal(size=rows).astype(np.float32)),
            "ids": pa.array(np.arange(rows)),
            "missing": pa.nulls(rows),
            "no.floats": pa.array([b"%d" % row for row in range(rows)]),
            "pairs": pa.array(list(pairs), pa.list_(pa.float32())),
            "rounded": pa.array(random.integers(0, 30, rows).astype(np.float32)),
        }
    )
    written = write(tmp_path / "file", "parquet", batch)
    group = parquet.ParquetFile(tmp_path / "file").metadata.row_group(0)
    encodings = {group.column(at).path_in_schema: group.column(at).encodings for at in range(group.num_columns)}
    plain = {path for path, names in encodings.items() if not any("DICTIONARY" in name for name in names)}
    assert {path.removesuffix(".list.item") for path in plain} == {"distinct", "pairs"}
    assert table(written.batches()).equals(pa.Table.from_batches([to_lists(batch)]))


def test_schema_of_the_footer_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [f"x{number}" for number in range(30)]
    batch = pa.RecordBatch.from_pydict({name: pa.array([1, 2], pa.int64()) for name in columns})
    written = write(tmp_path / "file", "parquet", batch)
    converted = []
    original = parquet.ParquetFile.schema_arrow
    monkeypatch.setattr(
        parquet.ParquetFile, "schema_arrow", property(lambda file: converted.append(1) or original.__get__(file))
    )
    schema = schema_pb2.Schema(feature=[{"name": name, "type": schema_pb2.INT} for name in columns])
    assert table(Examples(written.paths, "parquet", schema).batches()).num_columns == 30
    assert len(converted) == 1


@pytest.mark.parametrize("format_", FORMATS)
def test_schema_determines_columns_order_and_types(tmp_path: Path, format_: Format) -> None:
    written = write(tmp_path / "file", format_, BATCH)
    read = table(Examples(written.paths, format_, SCHEMA).batches())
    assert read.schema == examples.arrow_schema(SCHEMA)
    assert read.to_pydict() == {
        "text": [[b"x"], None, [b""]],
        "count": [[1], None, [-3]],
        "unused": [None, None, None],
        "absent": [None, None, None],
    }


@pytest.mark.parametrize("format_", FORMATS)
def test_type_that_differs_from_the_schema_is_an_input_error(tmp_path: Path, format_: Format) -> None:
    written = write(tmp_path / "file", format_, BATCH)
    schema = text_format.Parse('feature { name: "score" type: INT }', schema_pb2.Schema())
    with pytest.raises(InputError, match="do not fit the schema"):
        list(Examples(written.paths, format_, schema).batches())


def test_schema_of_structured_data_is_an_input_error() -> None:
    schema = text_format.Parse('feature { name: "a" type: STRUCT }', schema_pb2.Schema())
    with pytest.raises(InputError, match="expected the types INT, FLOAT and BYTES, received other types for a"):
        examples.arrow_schema(schema)


@pytest.mark.parametrize("format_", FORMATS)
def test_damaged_file_is_named(tmp_path: Path, format_: Format) -> None:
    written = write(tmp_path / "file", format_, BATCH)
    content = bytearray((tmp_path / "file").read_bytes())
    content[len(content) // 3 : len(content) // 3 + 8] = bytes(8)
    (tmp_path / "file").write_bytes(content[:-4])
    with pytest.raises((InputError, MachineError), match=str(tmp_path / "file")):
        list(written.batches())


@pytest.mark.parametrize("format_", FORMATS)
def test_size_of_batches_is_bounded(tmp_path: Path, format_: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "BATCH_ROWS", 4)
    monkeypatch.setattr(examples, "BATCH_BYTES", 100)
    rows = pa.RecordBatch.from_pydict({"number": pa.array(range(10), pa.int64())})
    large = pa.RecordBatch.from_pydict({"number": pa.array([10, 11], pa.int64())})
    batches = list(write(tmp_path / "file", format_, rows, large).batches())
    assert all(batch.num_rows <= 4 for batch in batches)
    assert table(batches).to_pydict() == {"number": [[number] for number in range(12)]}


def test_size_of_row_groups_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "BATCH_BYTES", 1000)
    image = pa.RecordBatch.from_pydict({"image": pa.array([bytes(2000)], pa.binary())})
    written = write(tmp_path / "file", "parquet", image, image, image)
    assert [batch.num_rows for batch in written.batches()] == [1, 1, 1]
    assert len(written.ranges(written.paths[0])) == 3


VALUES = {
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.binary(): st.binary(max_size=5),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 6))
    columns = {}
    for name in draw(st.lists(st.sampled_from("abcde"), min_size=1, unique=True)):
        dtype = draw(st.sampled_from(sorted(VALUES, key=str)))
        values = VALUES[dtype]
        if draw(st.booleans()):
            dtype, values = pa.list_(dtype), st.lists(values, max_size=3)
        columns[name] = pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), dtype)
    return pa.RecordBatch.from_pydict(columns)


@settings(max_examples=60, deadline=None)
@given(batches())
def test_any_table_is_equal_in_both_formats(tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch) -> None:
    folder = tmp_path_factory.mktemp("examples")
    parquet, tfrecord = (table(write(folder / form, form, batch).batches()) for form in FORMATS)
    assert parquet.equals(tfrecord.select(parquet.schema.names))
