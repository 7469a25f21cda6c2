"""ExampleGen on Beam writes the same examples as TFX's, and its counts, files and errors are correct."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tfx.components.example_gen.csv_example_gen.executor import Executor as StockExecutor
from tfx.components.example_gen.input_processor import FileBasedInputProcessor
from tfx.proto import example_gen_pb2
from tfx.types.standard_artifacts import Examples
from tfx.utils import proto_utils

from components.base.errors import InputError, MachineError
from components.base.limits import MOST_COLUMNS
from components.data import file_io
from components.data.example_artifacts import SPANS
from components.data.examples import Format
from components.ingest import executor, input_files
from components.ingest.beam_pipeline import Manifest
from components.ingest.component import example_gen
from components.ingest.config import DataConfig, IngestConfig, SplitConfig
from components.ingest.shard_writer import Shard
from tests.support.runs import ingest_runs
from tests.support.runs.ingest_runs import (
    BEAM,
    TWO_WORKERS,
    all_rows,
    by_split,
    counts,
    data,
    ingest,
    ingest_error,
    records,
)

TFX = importlib.util.find_spec("tfx")
assert TFX
assert TFX.origin
TRIPS = Path(TFX.origin).parent / "examples/chicago_taxi_pipeline/data/simple/data.csv"


def read_pattern(node: Any) -> Any:
    return proto_utils.json_to_proto(node.exec_properties["input_config"], example_gen_pb2.Input()).splits[0]


def count_records(examples: Examples) -> Counter[bytes]:
    return Counter(ingest_runs.canonical(record) for split in ("train", "eval") for record in records(examples, split))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        rows = "".join(f"{number * 100 + row},{row / 4},n{row % 7}\n" for row in range(100))
        (folder / f"{number}.csv").write_text("a,b,c\n" + rows)
    return folder


@pytest.mark.parametrize("rows", [2_000, pytest.param(15_002, marks=pytest.mark.slow)])
@pytest.mark.extended
def test_examples_equal_tfxs_on_real_trips(tmp_path: Path, rows: int) -> None:
    with TRIPS.open("rb") as file:
        head = [next(file) for _ in range(rows + 1)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "trips.csv").write_bytes(b"".join(head))
    ours = ingest(data(tmp_path / "in"), tmp_path / "ours")
    stock = ingest(data(tmp_path / "in"), tmp_path / "stock", StockExecutor)
    our_records = count_records(ours)
    assert our_records.total() == counts(ours)["read"] == rows
    assert our_records == count_records(stock)
    assert ours.split_names == stock.split_names
    for key in ("payload_format", "file_format", "input_fingerprint"):
        assert ours.get_string_custom_property(key) == stock.get_string_custom_property(key) != ""
    assert {path.name for path in (tmp_path / "ours").rglob("*.gz")} == {"data_tfrecord-00000-of-00001.gz"}


def test_parquet_contains_the_rows_of_the_tf_examples(table: Path, tmp_path: Path) -> None:
    with (table / "1.csv").open("a") as file:
        file.write(",,\n1\n")
    tfrecords, columns = (
        ingest(data(table, bad_rows={"max_fraction": 1}), tmp_path / form, stored=form) for form in ingest_runs.FORMATS
    )
    assert by_split(tfrecords) == by_split(columns)
    assert counts(tfrecords) == counts(columns)
    assert ingest_runs.bad_rows(tfrecords) == ingest_runs.bad_rows(columns)
    assert ingest_runs.types(tfrecords) == ingest_runs.types(columns)
    for key in ("file_format", "input_fingerprint"):
        assert tfrecords.get_string_custom_property(key) == columns.get_string_custom_property(key) != ""
    assert columns.get_string_custom_property("payload_format") == "FORMAT_PARQUET"
    assert {path.name for path in (tmp_path / "parquet").glob("Split-*/*")} == {"data_parquet-00000-of-00001.parquet"}


def test_rows_are_counted_and_temporary_files_are_removed(table: Path, tmp_path: Path) -> None:
    examples = ingest(data(table, split={"train": 3, "eval": 1, "test": 1}), tmp_path / "out")
    result = counts(examples)
    assert (result["read"], result["quarantined"], result["left_out"]) == (300, 0, 0)
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == ["Split-eval", "Split-test", "Split-train"]
    assert ingest_runs.types(examples) == {"a": "int", "b": "float", "c": "bytes"}


def test_split_of_a_row_does_not_depend_on_its_file(table: Path, tmp_path: Path) -> None:
    lines = [line for path in sorted(table.iterdir()) for line in path.read_text().splitlines()[1:]]
    one_file = tmp_path / "whole.csv"
    one_file.write_text("a,b,c\n" + "\n".join(reversed(lines)))
    assert by_split(ingest(data(table), tmp_path / "1")) == by_split(ingest(data(one_file), tmp_path / "2"))


def test_several_paths_are_read_like_a_single_path(table: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (table / "2.csv").rename(tmp_path / "other" / "2.csv")
    several = ingest(data([table, tmp_path / "other" / "*.csv"]), tmp_path / "1")
    (tmp_path / "other" / "2.csv").rename(table / "2.csv")
    assert counts(several)["read"] == 300
    assert by_split(several) == by_split(ingest(data(table), tmp_path / "2"))


def test_url_is_read_like_a_path(table: Path, tmp_path: Path) -> None:
    by_path, by_url = ingest(data(table), tmp_path / "1"), ingest(data(f"file://{table}"), tmp_path / "2")
    assert by_split(by_path) == by_split(by_url)


def test_file_that_is_matched_twice_is_rejected(table: Path, tmp_path: Path) -> None:
    split = {"by": "files", "train": "*.csv", "eval": "2.csv"}
    for config in (data([table, table / "1.csv"]), data(table, split=split)):
        file = "1.csv" if config.split.by == "hash" else "2.csv"
        error = ingest_error(config, tmp_path / file)
        assert error.headline == f"data.path: {table}/{file} is matched twice"


def test_bad_rows_of_all_files_are_reported(table: Path, tmp_path: Path) -> None:
    with (table / "1.csv").open("a") as file:
        file.write("1,2\n" * 4)
    with (table / "2.csv").open("a") as file:
        file.write("x,2,3\n" * 4)
    error = ingest_error(data(table, types={"a": "int"}), tmp_path / "out")
    assert error.headline == f"{table}/1.csv, row 102: expected 3 fields, received 2"
    assert error.details == (
        *(f"{table}/1.csv, row {row}: expected 3 fields, received 2" for row in (103, 104, 105)),
        f"{table}/2.csv, row 102: column a: expected an int64, received 'x'",
        "and 3 more of 308 rows",
    )
    assert error.remedy == (
        "fix or remove these rows, or set data.csv and data.types to fit; "
        "or set data.bad_rows.max_fraction to 0.026 or more"
    )


def test_split_without_rows_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b\n1,2\n1,2\n")
    error = ingest_error(data(tmp_path / "in.csv"), tmp_path / "out")
    assert error.headline in [f"the split {split} got none of the 2 rows" for split in ("train", "eval")]


def test_lost_rows_are_an_error() -> None:
    shards = (Shard("train", ("f", 0, 0), "p", 5), Shard("eval", ("f", 0, 0), "p", 2))
    config = IngestConfig(format="csv")
    executor._check_counts(Manifest(11, 1, 1, 1, 1, (), {}, shards, ()), config)
    with pytest.raises(
        MachineError, match="expected 8 rows, as many as were read, received 7 written, 1 in quarantine and 3 left out"
    ):
        executor._check_counts(Manifest(8, 1, 1, 1, 1, (), {}, shards, ()), config)


class Disturbed(executor.Executor):  # type: ignore[misc]
    """An executor that is disturbed after it has listed the files and before it reads them."""

    def happen(self) -> None:
        """Change files as another process would."""

    def _make_beam_pipeline(self) -> Any:
        pipeline = super()._make_beam_pipeline()
        run = pipeline.run

        def run_disturbed(*arguments: Any, **options: Any) -> Any:
            self.happen()
            return run(*arguments, **options)

        pipeline.run = run_disturbed
        return pipeline


class Growing(Disturbed):
    def happen(self) -> None:
        with Path("in/1.csv").open("a") as file:
            file.write("9,9,9\n")


class Arriving(Disturbed):
    def happen(self) -> None:
        Path("in/3.csv").write_text("a,b,c\n9,9,9\n")


@pytest.mark.parametrize("beam", [BEAM, TWO_WORKERS])
def test_file_that_grows_while_it_is_read_is_an_error(
    table: Path, tmp_path: Path, beam: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MachineError, match=r"in/1\.csv changed while it was read: expected "):
        ingest(data(table), tmp_path / "out", Growing, beam)
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_file_that_arrives_after_the_listing_is_not_read(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert counts(ingest(data(table), tmp_path / "out", Arriving))["read"] == 300


def test_interrupted_run_does_not_affect_the_next_run(table: Path, tmp_path: Path) -> None:
    parts = tmp_path / "out" / ".parts"
    parts.mkdir(parents=True)
    (parts / "train-0-0.gz").write_text("half a shard")
    (parts / "manifest.json").write_text("{")
    assert counts(ingest(data(table), tmp_path / "out"))["read"] == 300
    assert not parts.exists()


def test_removed_file_is_rejected(table: Path, tmp_path: Path) -> None:
    node = example_gen(data(table), input_files.find(data(table)), "tfrecord")
    pattern = read_pattern(node).pattern
    shutil.rmtree(table)
    with pytest.raises(InputError, match="no file matches"):
        input_files.listing(node.exec_properties["input_base"], pattern)


def test_fingerprint_covers_exactly_the_files_that_are_read(table: Path, tmp_path: Path) -> None:
    (table / ".hidden.csv").write_text("")
    (table / "notes.md").write_text("")
    odd = tmp_path / "run[1]"
    shutil.copytree(table, odd)
    for path in (table, odd, table / "1.csv", odd / "1.csv", table / "[01].csv", tmp_path / "*" / "0.csv"):
        config = data(path)
        node = example_gen(config, input_files.find(config), "tfrecord")
        processor = FileBasedInputProcessor(node.exec_properties["input_base"], [read_pattern(node)])
        assert processor.resolve_span_and_version() == (0, None)
        fingerprint = processor.get_input_fingerprint(0, None)
        (files,) = input_files.files(config).values()
        assert f"num_files:{len(files)},total_bytes:{sum(map(file_io.size, files))}," in fingerprint


def test_new_label_does_not_change_the_cache_key(table: Path) -> None:
    # Split by time, because the plan of a split by hash depends on the label.
    split = SplitConfig(by="time", columns=("a",), train=1, eval=1)
    with_first_label, with_second_label = (
        example_gen(
            DataConfig(path=str(table), label=label, task=task, split=split), input_files.find(data(table)), "tfrecord"
        )
        for label, task in (("a", "binary"), ("b", "regression"))
    )
    assert with_first_label.id == "ExampleGen"
    assert with_first_label.exec_properties == with_second_label.exec_properties
    output = proto_utils.json_to_proto(with_first_label.exec_properties["output_config"], example_gen_pb2.Output())
    assert [(split.name, split.hash_buckets) for split in output.split_config.splits] == [("train", 1), ("eval", 1)]


def test_headers_are_converted_to_column_names(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("Fare ($),Größe,2nd,価格\n" + "".join(f"{row},2,3,4\n" for row in range(20)))
    config = data(tmp_path / "in.csv", columns=["Fare", "x2nd", "u4fa1u683c"])
    examples = ingest(config, tmp_path / "out")
    assert ingest_runs.types(examples) == {"Fare": "int", "x2nd": "int", "u4fa1u683c": "int"}
    assert {tuple(row) for row in all_rows(examples)} == {("Fare", "u4fa1u683c", "x2nd")}


@pytest.mark.parametrize("form", [pytest.param("tfrecord", marks=pytest.mark.extended), "parquet"])
def test_files_of_a_span_do_not_depend_on_other_spans_of_the_run(form: Format, tmp_path: Path) -> None:
    for span in (1, 2, 3):
        for part in ("a", "b"):
            # Column c has values only in span 2, so types inferred per run would differ.
            lines = [f"{span * 1000 + row},{row / 7},{row if span == 2 else ''}" for row in range(200)]
            path = tmp_path / f"in/{span}/{part}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(["a,b,c", *lines]))

    def run(start: int) -> tuple[Examples, Counter[bytes]]:
        config = data(tmp_path / "in/{SPAN}/*.csv", spans={"start": start, "end": start + 1}, types={"c": "int"})
        artifact = ingest(config, tmp_path / f"out-{start}", stored=form)
        contents = [path.read_bytes() for path in Path(artifact.uri).glob("Split-*/*")]
        return artifact, Counter(contents)

    (first, first_files), (second, second_files) = run(1), run(2)
    assert [
        json.loads(examples_artifact.get_string_custom_property(SPANS)) for examples_artifact in (first, second)
    ] == [[1, 2], [2, 3]]
    shared = first_files & second_files
    assert sum(shared.values()) * 2 == sum(first_files.values()) == sum(second_files.values())
    assert all(counts(examples_artifact)["read"] == 800 for examples_artifact in (first, second))


def test_number_of_columns_of_a_query_is_limited() -> None:
    executor._check_columns(range(MOST_COLUMNS))
    with pytest.raises(InputError, match="expected at most 10,000 columns, received 10,001"):
        executor._check_columns(range(MOST_COLUMNS + 1))
