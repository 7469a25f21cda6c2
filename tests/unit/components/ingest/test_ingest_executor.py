"""ExampleGen as a whole, through Beam: its examples against TFX's own, its counts, its files, its errors."""

from __future__ import annotations

import importlib.util
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx.components.example_gen.csv_example_gen.executor import Executor as StockExecutor
from tfx.components.example_gen.input_processor import FileBasedInputProcessor
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples
from tfx.utils import proto_utils

from components.errors import InputError
from components.ingest import source
from components.ingest.component import example_gen
from components.ingest.config import DataConfig
from components.ingest.executor import Executor

BEAM = [
    "--runner=apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner",
    "--direct_running_mode=in_memory",
    "--sdk_container_image=none",
]
TFX = importlib.util.find_spec("tfx")
assert TFX
assert TFX.origin
TRIPS = Path(TFX.origin).parent / "examples/chicago_taxi_pipeline/data/simple/data.csv"


def data(path: object, **more: Any) -> DataConfig:
    return DataConfig(path=str(path), label="a", **more)


def ingest(config: DataConfig, out: Path, executor: type[BaseBeamExecutor] = Executor) -> Examples:
    examples = Examples()
    examples.uri = str(out)
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM), tmp_dir=str(out / "tmp"), unique_id="1")
    executor(context).Do({}, {"examples": [examples]}, example_gen(config).exec_properties)
    return examples


def records(examples: Examples, split: str) -> list[bytes]:
    """The examples of a split as a stock reader finds them, each in its canonical form."""
    pattern = artifact_utils.get_split_uri([examples], split) + "/*"
    found = tf.data.TFRecordDataset(tf.data.Dataset.list_files(pattern), compression_type="GZIP")
    return [canonical(record) for record in found.as_numpy_iterator()]


def canonical(record: bytes) -> bytes:
    """An example with its features in one order, and a list without values as what it means: a value that is missing.

    (TFX's CsvExampleGen writes an empty list there, which TFDV counts as a row that has the feature.)
    """
    example = tf.train.Example.FromString(record)
    for feature in example.features.feature.values():
        kind = feature.WhichOneof("kind")
        if kind and not getattr(feature, kind).value:
            feature.ClearField(kind)
    return bytes(example.SerializeToString(deterministic=True))


def counts(examples: Examples) -> dict[str, int]:
    splits = artifact_utils.decode_split_names(examples.split_names)
    return {name: examples.get_int_custom_property(f"rows_{name}") for name in splits}


def refused(config: DataConfig, out: Path) -> InputError:
    with pytest.raises(InputError) as raised:
        ingest(config, out)
    assert not list(out.rglob("*.gz"))
    return raised.value


def pattern_of(node: Any) -> Any:
    return proto_utils.json_to_proto(node.exec_properties["input_config"], example_gen_pb2.Input()).splits[0]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        rows = "".join(f"{number * 100 + row},{row / 4},n{row % 7}\n" for row in range(100))
        (folder / f"{number}.csv").write_text("a,b,c\n" + rows)
    return folder


def test_the_examples_are_those_of_tfx_on_real_trips(tmp_path: Path) -> None:
    with TRIPS.open("rb") as file:
        head = [next(file) for _ in range(2001)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "trips.csv").write_bytes(b"".join(head))
    ours = ingest(data(tmp_path / "in"), tmp_path / "ours")
    stock = ingest(data(tmp_path / "in"), tmp_path / "stock", StockExecutor)
    whole = [Counter(records(examples, "train") + records(examples, "eval")) for examples in (ours, stock)]
    assert whole[0].total() == 2000
    assert whole[0] == whole[1]
    assert ours.split_names == stock.split_names
    for key in ("payload_format", "file_format"):
        assert ours.get_string_custom_property(key) == stock.get_string_custom_property(key) != ""
    assert {path.name for path in (tmp_path / "ours").rglob("*.gz")} == {"data_tfrecord-00000-of-00001.gz"}


def test_rows_are_counted_and_nothing_else_is_left(table: Path, tmp_path: Path) -> None:
    examples = ingest(data(table, split={"train": 3, "eval": 1, "test": 1}), tmp_path / "out")
    assert examples.get_int_custom_property("rows_read") == 300
    assert counts(examples) == {split: len(records(examples, split)) for split in ("train", "eval", "test")}
    assert sum(counts(examples).values()) == 300
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == ["Split-eval", "Split-test", "Split-train"]


def test_a_row_keeps_its_split_whatever_file_it_is_in(table: Path, tmp_path: Path) -> None:
    lines = [line for path in sorted(table.iterdir()) for line in path.read_text().splitlines()[1:]]
    whole = tmp_path / "whole.csv"
    whole.write_text("a,b,c\n" + "\n".join(reversed(lines)))
    one, other = ingest(data(table), tmp_path / "1"), ingest(data(whole), tmp_path / "2")
    for split in ("train", "eval"):
        assert sorted(records(one, split)) == sorted(records(other, split))


def test_one_url_is_read_like_the_path(table: Path, tmp_path: Path) -> None:
    one, other = ingest(data(table), tmp_path / "1"), ingest(data(f"file://{table}"), tmp_path / "2")
    assert sorted(records(one, "train")) == sorted(records(other, "train"))


def test_images_are_ingested_and_duplicates_stay_together(tmp_path: Path) -> None:
    from PIL import Image

    for number in range(40):
        for label in ("0", "1"):
            path = tmp_path / "in" / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 4), number).save(path)
    examples = ingest(data(tmp_path / "in"), tmp_path / "out")
    assert examples.get_int_custom_property("rows_read") == sum(counts(examples).values()) == 80
    seen = {}
    for split in ("train", "eval"):
        for record in records(examples, split):
            feature = tf.train.Example.FromString(record).features.feature
            image = feature["image"].bytes_list.value[0]
            assert image.startswith(b"\x89PNG")
            assert feature["path"].bytes_list.value[0].startswith(b"%d/" % feature["label"].int64_list.value[0])
            assert seen.setdefault(image, split) == split
    assert len(seen) == 40
    (tmp_path / "in" / "0" / "notes.txt").write_text("no image")
    error = refused(data(tmp_path / "in", format="images"), tmp_path / "out2")
    assert error.headline == f"{tmp_path}/in/0/notes.txt is no PNG or JPEG image"


def test_bad_rows_of_all_files_are_named_and_nothing_is_written(table: Path, tmp_path: Path) -> None:
    with (table / "1.csv").open("a") as file:
        file.write("1,2\n" * 4)
    with (table / "2.csv").open("a") as file:
        file.write("x,2,3\n" * 4)
    error = refused(data(table, types={"a": "int"}), tmp_path / "out")
    assert error.headline == f"{table}/1.csv, row 102: expected 3 fields, received 2"
    assert error.details == (
        *(f"{table}/1.csv, row {row}: expected 3 fields, received 2" for row in (103, 104, 105)),
        f"{table}/2.csv, row 102: column a: expected an int64, received 'x'",
        "and 3 more",
    )
    assert error.remedy.startswith("mend these rows or leave them out, or set data.csv and data.types to fit")


def test_a_split_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b\n1,2\n1,2\n")
    error = refused(data(tmp_path / "in.csv"), tmp_path / "out")
    assert error.headline in [f"the split {split} got none of the 2 rows" for split in ("train", "eval")]


def test_a_file_that_has_gone_since_is_refused(table: Path, tmp_path: Path) -> None:
    node = example_gen(data(table))
    pattern = pattern_of(node).pattern
    shutil.rmtree(table)
    with pytest.raises(InputError, match="no file matches"):
        source.listing(node.exec_properties["input_base"], pattern)


def test_the_fingerprint_covers_the_very_files_that_are_read(table: Path, tmp_path: Path) -> None:
    (table / ".hidden.csv").write_text("")
    (table / "notes.md").write_text("")
    odd = tmp_path / "run[1]"
    shutil.copytree(table, odd)
    for path in (table, odd, table / "1.csv", odd / "1.csv", table / "[01].csv", tmp_path / "*" / "0.csv"):
        config = data(path)
        node = example_gen(config)
        processor = FileBasedInputProcessor(node.exec_properties["input_base"], [pattern_of(node)])
        assert processor.resolve_span_and_version() == (0, None)
        fingerprint = processor.get_input_fingerprint(0, None)
        size = sum(Path(name).stat().st_size for name in source.files(config))
        assert f"num_files:{len(source.files(config))},total_bytes:{size}," in fingerprint


def test_a_new_label_ingests_nothing_anew(table: Path) -> None:
    one, other = (
        example_gen(DataConfig(path=str(table), label=label, task=task))
        for label, task in (("a", "binary"), ("b", "regression"))
    )
    assert one.id == "ExampleGen"
    assert one.exec_properties == other.exec_properties
    output = proto_utils.json_to_proto(one.exec_properties["output_config"], example_gen_pb2.Output())
    assert [(split.name, split.hash_buckets) for split in output.split_config.splits] == [("train", 2), ("eval", 1)]
