"""Tests of the ingest benchmark: its counts, the variants without TFX, and a complete run on a few rows."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from benchmarks import ingest, measure
from benchmarks.ingest import Bench, Examples
from benchmarks.measure import Measurement, Spread, Work

ROWS = 2_000
WORKERS = ("1 worker", "2 workers")
MEASURED = Measurement(wall=1.0, cpu=1.0, peak_mb=1.0, work=Work(rows=1, wall=1.0, cpu=1.0, peak_mb=1.0))


def tfrecords(*records: bytes) -> bytes:
    return b"".join(len(record).to_bytes(8, "little") + b"sum1" + record + b"sum2" for record in records)


def write(folder: Path, split: str, content: bytes) -> int:
    path = folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(content))
    return path.stat().st_size


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "scratch").mkdir()
    return Bench(data=tmp_path / "data", scratch=tmp_path / "scratch", rounds=1, warm_up=0)


def test_examples_of_all_splits_are_counted(tmp_path: Path) -> None:
    train, evaluation = tfrecords(b"", b"one", b"two" * 100), tfrecords(b"x" * (9 << 20), b"last")
    stored = write(tmp_path, "train", train) + write(tmp_path, "eval", evaluation)
    (tmp_path / "quarantine.gz").write_bytes(gzip.compress(tfrecords(b"bad")))
    assert Examples.at(tmp_path) == Examples(rows=5, bytes=len(train) + len(evaluation), stored=stored)


def test_rows_of_parquet_are_counted(tmp_path: Path) -> None:
    for split in ("train", "eval"):
        (tmp_path / f"Split-{split}").mkdir()
        path = tmp_path / f"Split-{split}/data_parquet-00000-of-00001.parquet"
        parquet.write_table(pa.table({"a": range(7)}), path)
    examples = Examples.at(tmp_path)
    assert (examples.rows, examples.stored) == (14, 2 * path.stat().st_size)


@pytest.mark.parametrize("cut", [1, 5, 18])
def test_truncated_record_is_an_error(cut: int, tmp_path: Path) -> None:
    write(tmp_path, "train", tfrecords(b"one", b"two")[:-cut])
    with pytest.raises(ValueError, match="cut off"):
        Examples.at(tmp_path)


def test_variant_that_loses_rows_is_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_rows(*_: object) -> Measurement:
        write(bench.output("ours"), "train", tfrecords(b"one"))
        return MEASURED

    monkeypatch.setattr(measure, "run", lose_rows)
    assert bench.side("ours", "ours", Path("trips.csv"), rows=1)(0) == MEASURED
    with pytest.raises(RuntimeError, match="ours: expected 2 examples, received 1"):
        bench.side("ours", "ours", Path("trips.csv"), rows=2)(0)
    monkeypatch.setattr(measure, "run", lambda *_: MEASURED)
    with pytest.raises(RuntimeError, match="stock: expected 1 examples, received 0"):
        bench.side("stock", "stock-csv", Path("trips.csv"), rows=1)(0)


def test_number_of_workers_is_passed_as_beam_options(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def record_command(command: list[str], *_: object) -> Measurement:
        commands.append(command)
        write(bench.output("ours"), "train", tfrecords(b"one"))
        return MEASURED

    monkeypatch.setattr(measure, "run", record_command)
    for workers in (1, 2):
        bench.side("ours", "ours", Path("trips.csv"), 1, workers)(0)
    options = [[part for part in command if part.startswith("--")] for command in commands]
    assert options == [
        ["--direct_num_workers=1"],
        ["--direct_num_workers=2", "--runner=pipeline.orchestration.engines.forked_runner.ForkedRunner"],
    ]


@pytest.mark.parametrize("suffix", [pytest.param("csv", marks=pytest.mark.extended), "parquet"])
def test_readers_read_the_whole_table(suffix: str, bench: Bench) -> None:
    table = bench.table(ROWS, suffix)
    measurement = bench.side("reader", f"read-{suffix}", table, ROWS)(0)
    assert measurement.work
    assert measurement.work.rows == ROWS
    assert measurement.cpu > measurement.work.cpu > 0
    # The types are inferred from the real trips, so a damaged row is a type error.
    table.write_bytes(table.read_bytes()[: table.stat().st_size // 2] + b",\n")
    with pytest.raises(RuntimeError, match="ended with"):
        bench.side("reader", f"read-{suffix}", table, ROWS)(0)


def test_gzip_writer_compresses_the_output_of_ours(bench: Bench) -> None:
    pytest.importorskip("isal")
    write(bench.output("ours"), "train", tfrecords(*(b"%d" % number * 50 for number in range(ROWS))))
    measurement = bench.side("gzip", "gzip", bench.output("ours"), ROWS)(0)
    assert measurement.work
    assert measurement.work.cpu > 0
    assert not bench.output("gzip").exists()


def fake_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the runs: CPU time depends on the variant, wall time and memory on rows and workers. No rows are lost."""
    cpu = {"ours": 2.0, "ours-columns": 1.0, "stock-parquet": 100.0, "read-csv": 0.5, "read-parquet": 0.1, "gzip": 0.25}

    def run(command: list[str], _log: Path, rows: int) -> Measurement:
        side, output = command[3], Path(command[5])
        if side.startswith(("ours", "stock-parquet")):
            write(output, "train", tfrecords(b"one") * rows)
        wall = rows / 1000 / (2 if "--direct_num_workers=2" in command else 1)
        few = 0.5 if rows == 1_000 else 1.0
        work = Work(rows=rows, wall=wall, cpu=cpu[side] * few, peak_mb=500 + rows / 1000)
        return Measurement(wall=wall + 1, cpu=cpu[side] + 10, peak_mb=900.0, work=work)

    monkeypatch.setattr(measure, "run", run)


def test_stock_tfx_is_compared_with_ours(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_variants(monkeypatch)
    measured, facts = ingest.parquet(bench, ROWS)
    assert list(measured) == ["stock TFX", "ours", "ours, Parquet"]
    assert str(facts["CPU-seconds, ours with Parquet as output / with TFRecords"]) == "0.500 (0.500 to 0.500)"
    assert str(facts["CPU-seconds per row, stock / ours (wanted: at least 40)"]) == "50.0 (50.0 to 50.0)"
    assert str(facts["CPU-seconds of the whole process, stock / ours"]) == "9.167 (9.167 to 9.167)"
    assert facts["examples on the disk, ours / stock"] == 1.0


@pytest.mark.slow
def test_scaling_compares_ten_times_the_rows_and_two_workers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_variants(monkeypatch)
    measured, facts = ingest.scaling(bench, ROWS)
    assert list(measured) == [f"{rows} rows, {workers}" for rows in ("2,000", "20,000") for workers in WORKERS]
    assert str(facts["time, ten times the rows (wanted: at most 11)"]) == "10.0 (10.0 to 10.0)"
    assert str(facts["peak memory, ten times the rows (wanted: at most 1.2)"]) == "1.036 (1.036 to 1.036)"
    assert facts["peak memory on the large table, MB (wanted: below 1,200)"] == round(520 * 2**20 / 1e6)
    assert facts["peak memory of the tree on the large table with two workers, MB"] == round(900 * 2**20 / 1e6)
    assert str(facts["time on the large table, one worker / two (wanted: at least 1.7)"]) == "2.000 (2.000 to 2.000)"


@pytest.mark.slow
def test_floor_is_a_share_of_ours(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_variants(monkeypatch)
    measured, facts = ingest.floor(bench, ROWS)
    assert len(measured) == 8
    medians = {name: fact.median for name, fact in facts.items() if isinstance(fact, Spread)}
    assert medians["CSV: CPU-seconds of the floor (reader + gzip writer) / ours"] == 0.375
    assert medians["CSV: of which the reader"] == 0.25
    assert medians["Parquet: of which the reader"] == 0.05
    assert medians["Parquet: of which the gzip writer"] == 0.125
    assert medians["Parquet: CPU-seconds for 1,000 rows / ours"] == 0.5
    size = bench.table(ROWS, "csv").stat().st_size / 1e6
    assert medians["CSV: the reader's rate, MB of the file per CPU-second"] == pytest.approx(size / 0.5, abs=1e-4)
    assert medians["CSV: our rate, MB of the file per CPU-second"] == pytest.approx(size / 2, abs=1e-4)


@pytest.mark.slow
def test_all_variants_ingest_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--data", str(tmp_path / "data"), "--results", str(tmp_path / "results")]
    ingest.main(["csv", "--rows", str(ROWS), "--rounds", "1", *folders])
    name = f"ingest_csv_py{sys.version_info.major}{sys.version_info.minor}"
    content = json.loads((tmp_path / "results" / f"{name}.json").read_text())
    assert content["command"].startswith("python -m benchmarks.ingest csv --rows 2000 ")
    assert {side: run["work"]["rows"] for side, (run,) in content["runs"].items()} == {
        "stock TFX": ROWS,
        "ours": ROWS,
        "ours, Parquet": ROWS,
    }
    assert (tmp_path / "results" / f"{name}.md").read_text() in capsys.readouterr().out
