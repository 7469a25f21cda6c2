"""ExampleGen writes a row per origin and step of every series, and no split is trained on the future of another."""

from __future__ import annotations

import csv
import datetime
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from components.base.errors import InputError
from components.ingest import bigquery_reader, readers, series_partitions
from components.ingest.bundle_writer import IngestSettings
from components.ingest.config import DataConfig
from components.ingest.time_steps import Step
from tests.support.runs.ingest_runs import TWO_WORKERS, Row, all_rows, bad_rows, by_split, data, ingest, types

WINDOWS = {"by": "store", "time": "date", "lags": [1, 7], "rolling": {"mean": [3]}, "horizon": 2, "known": "open"}
START = datetime.date(2024, 1, 1)
DAYS = {f"s{number:02d}": 20 + 3 * number for number in range(12)}


def make_rows() -> list[Row]:
    """Return shuffled rows: sales grow by one per day, and closed days are missing in one of the stores."""
    source = random.Random(0)  # noqa: S311
    rows: list[Row] = [
        {
            "store": store,
            "date": (START + datetime.timedelta(days=day)).isoformat(),
            "sales": 100 * number + day,
            "open": day % 2,
            "region": "north" if number % 2 else "south",
        }
        for number, (store, days) in enumerate(DAYS.items())
        for day in range(days)
        if store != "s03" or day % 7
    ]
    source.shuffle(rows)
    return rows


def write(folder: Path, rows: list[Row], format_: str = "csv", files: int = 3) -> Path:
    folder.mkdir()
    for number in range(files):
        part = rows[number::files]
        if format_ == "parquet":
            table = pa.Table.from_pylist(part)
            date = table.schema.get_field_index("date")
            table = table.set_column(date, "date", table["date"].cast(pa.timestamp("us")).cast(pa.date32()))
            parquet.write_table(table, folder / f"{number}.parquet")
            continue
        with (folder / f"{number}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(part[0]))
            writer.writeheader()
            writer.writerows(part)
    return folder


def config(path: Path, windows: dict[str, Any] | None = None, **more: Any) -> DataConfig:
    section = {"label": "sales", "task": "regression", "windows": {**WINDOWS, **(windows or {})}}
    return data(path, **{**section, **more})


def day_of(text: Any) -> int:
    return (datetime.date.fromisoformat(text) - START).days


def expect(rows: list[Row]) -> dict[tuple[str, int, int], dict[str, float | None]]:
    """Return (store, day of the origin, step) → label and features, from a dictionary of all rows."""
    sales = {(row["store"], day_of(row["date"])): row["sales"] for row in rows}
    opened = {(row["store"], day_of(row["date"])): row["open"] for row in rows}
    expected = {}
    for (store, day), last in sales.items():
        for step in (1, 2):
            if (store, day + step) in sales:
                recent = [sales[store, day - back] for back in range(3) if (store, day - back) in sales]
                expected[store, day, step] = {
                    "sales": sales[store, day + step],
                    "sales_lag_1": last,
                    "sales_lag_7": sales.get((store, day - 6)),
                    "sales_mean_3": sum(recent) / len(recent),
                    "open": opened[store, day + step],
                    "seasonal_naive": last,
                }
    return expected


@pytest.mark.parametrize("format_", ["csv", pytest.param("parquet", marks=pytest.mark.extended)])
def test_rows_of_several_files_and_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
    monkeypatch.setattr(series_partitions, "_PARTITION", 1_000)
    rows = make_rows()
    path = write(tmp_path / "data", rows, format_)
    examples = ingest(config(path), tmp_path / "out", beam=TWO_WORKERS, stored="parquet")
    expected = expect(rows)
    splits = by_split(examples)
    written: dict[tuple[str, int, int], Row] = {}
    for row in (row for split_rows in splits.values() for row in split_rows):
        key = str(row["store"]), day_of(row["origin"]), int(str(row["horizon"]))
        assert day_of(row["date"]) == key[1] + key[2]
        assert row["region"] == ("north" if int(key[0][1:]) % 2 else "south")
        assert {name: row[name] for name in expected[key]} == pytest.approx(expected[key], abs=1e-3), key
        written[key] = row
    # The split by time is the default. No label of the training split is later than an origin of the eval split.
    origins = {split: [day_of(row["origin"]) for row in split_rows] for split, split_rows in splits.items()}
    latest = max(day_of(row["date"]) for row in splits["train"])
    first = min(origins["eval"])
    assert latest == first > max(origins["train"])
    assert written.keys() == {key for key in expected if key[1] >= first or key[1] + key[2] <= first}
    share = sum(key[1] < first for key in expected) / len(expected)
    assert share == pytest.approx(2 / 3, abs=0.03)
    assert types(examples)["horizon"] == types(examples)["open"] == "int"
    assert types(examples)["sales"] == types(examples)["sales_lag_7"] == "float"
    assert examples.get_int_custom_property("rows_read") == len(rows)
    assert examples.get_int_custom_property("rows_made") == len(expected)
    assert examples.get_int_custom_property("rows_left_out") == len(expected) - len(written) > 0


def test_bad_rows_and_rows_that_where_leaves_out_are_missing_steps(tmp_path: Path) -> None:
    rows = make_rows()
    changed = [dict(row) for row in rows]
    changed[0]["sales"], changed[1]["date"], changed[2]["store"] = "many", "yesterday", ""
    left_out = [row for row in rows[3:] if row["region"] == "south" and row["open"]]
    path = write(tmp_path / "data", changed, files=1)
    where = "not (region == 'south' and open == 1)"
    section = config(path, where=where, bad_rows={"max_fraction": 0.1})
    examples = ingest(section, tmp_path / "out", stored="parquet")
    assert [(bad["row"], bad["column"], bad["reason"]) for bad in bad_rows(examples)] == [
        (2, "sales", "expected a number, which data.windows needs, received 'many'"),
        (3, "date", "expected a time (seconds since 1970, as data.split.unit says, or ISO 8601), received 'yesterday'"),
        (4, "store", "expected the series of the row, received nothing"),
    ]
    assert examples.get_int_custom_property("rows_unselected") == len(left_out)
    kept = [row for row in rows[3:] if row not in left_out]
    expected = expect(kept)
    assert examples.get_int_custom_property("rows_made") == len(expected)
    for row in all_rows(examples):
        key = str(row["store"]), day_of(row["origin"]), int(str(row["horizon"]))
        assert {name: row[name] for name in expected[key]} == pytest.approx(expected[key], abs=1e-3), key


def test_one_series_with_weights_and_a_decimal_comma(tmp_path: Path) -> None:
    lines = [f"{day};{day},5;{day % 3 + 1}" for day in range(30)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["t;y;w", *reversed(lines)]))
    windows = {"time": "t", "lags": [2], "horizon": [3], "every": 1}
    section = data(
        path, label="y", task="regression", weight="w", windows=windows, csv={"delimiter": ";", "decimal": ","}
    )
    examples = ingest(section, tmp_path / "out", stored="tfrecord")
    rows = sorted(all_rows(examples), key=lambda row: int(str(row["t"])))
    assert [(row["t"], row["y"], row["y_lag_2"], row["w"], row["origin"]) for row in rows] == [
        (day, day + 0.5, None if day == 3 else day - 3.5, day % 3 + 1, day - 3)
        for day in range(3, 30)
        if day in {row["t"] for row in rows}
    ]
    assert {row["t"] for row in by_split(examples)["train"]} == set(range(3, min(day for day in range(30) if day in {
        row["origin"] for row in by_split(examples)["eval"]}) + 1))  # fmt: skip


def test_rows_of_a_query_are_partitioned_by_series(tmp_path: Path) -> None:
    query = {"query": "select 1"}
    section = DataConfig(bigquery=query, label="sales", task="regression", windows=WINDOWS).ingest("bigquery")
    rows = make_rows()
    rows[0]["sales"] = None
    block = bigquery_reader.to_block(rows, section)
    settings = IngestSettings(section, bigquery_reader.PROPERTIES, str(tmp_path), "parquet")
    *parts, tagged = series_partitions._ReadSeries(settings, None, 4).process(block)
    assert tagged.value.rows == len(rows)
    stores = [{row["store"] for row in batch.to_pylist()} for _, batch in parts]
    assert 1 < len({number for number, _ in parts}) <= 4
    assert sum(map(len, stores)) == len(set().union(*stores)) == len(DAYS)
    assert sum(batch.num_rows for _, batch in parts) == len(rows)
    reader = series_partitions.SeriesReader.create(section, bigquery_reader.PROPERTIES)
    blocks = [made for part in _group(parts) for made in reader.read(part, Step.parse("1d", "seconds"))]
    assert sum(made.columns.num_rows for made in blocks) == len(expect(rows[1:]))


def _group(parts: list[Any]) -> list[tuple[int, list[pa.RecordBatch]]]:
    numbers = sorted({number for number, _ in parts})
    return [(number, [batch for part, batch in parts if part == number]) for number in numbers]


def test_a_repeated_row_is_an_error(tmp_path: Path) -> None:
    rows = make_rows()
    path = write(tmp_path / "data", [*rows, rows[0]])
    with pytest.raises(InputError, match=f"one row per series and time, received store = {rows[0]['store']}, date"):
        ingest(config(path), tmp_path / "out")


def test_columns_are_checked_before_the_run(tmp_path: Path) -> None:
    path = write(tmp_path / "data", make_rows())
    assert readers.columns(config(path)) == [
        *("store", "date", "sales", "open", "region"),
        *("horizon", "origin", "seasonal_naive", "seasonal_scale"),
        *("sales_lag_1", "sales_lag_7", "sales_mean_3"),
    ]
    with pytest.raises(InputError, match=r"data.windows.of: there is no column 'sale'; did you mean 'sales'\?"):
        readers.columns(config(path, {"of": ["sale"]}))
    named = write(tmp_path / "named", [{**row, "horizon": 1} for row in make_rows()])
    with pytest.raises(InputError, match="adds the column 'horizon', and the data has it already"):
        readers.columns(config(named))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"label": "sales > 3"}, "expected a column of numbers as label, with task regression"),
        ({"task": "binary"}, "expected a column of numbers as label, with task regression"),
        ({"label": None, "labels": {"a": "x", "b": "y"}}, "with task regression, received several labels"),
        ({"split": {"by": "hash", "train": 1, "eval": 1}}, "expected by: time with the column 'date' of windows"),
        (
            {"split": {"by": "time", "columns": "day", "train": 1, "eval": 1}},
            "expected by: time with the column 'date'",
        ),
        ({"where": "sales > 0"}, "where: expected columns other than the label 'sales'"),
        ({"windows": {**WINDOWS, "horizon": 0}}, "expected at least 1 step, received 0"),
        ({"windows": {**WINDOWS, "horizon": [0, 1]}}, "greater than 0"),
        ({"windows": {**WINDOWS, "horizon": []}}, "at least 1 item"),
        ({"windows": {**WINDOWS, "lags": [1, 1]}}, "expected every number once, received 1 several times"),
        ({"windows": {**WINDOWS, "every": "daily"}}, "expected a step such as 15m"),
        ({"windows": {**WINDOWS, "known": ["sales"]}}, "expected a column other than the label, received 'sales'"),
        ({"windows": {**WINDOWS, "of": ["date"]}}, "expected columns other than by and time, received 'date'"),
        ({"windows": {**WINDOWS, "by": ["date"]}}, "expected different columns in by and time, received 'date' twice"),
        ({"windows": {"lags": [1], "horizon": 1}}, "Field required"),
        ({"windows": {**WINDOWS, "rolling": {"std": [1]}}}, "greater than or equal to 2"),
    ],
)
def test_settings_that_cannot_work_are_refused(section: dict[str, Any], message: str) -> None:
    fields = {"path": "a.csv", "label": "sales", "task": "regression", "windows": WINDOWS, **section}
    with pytest.raises(ValidationError, match=message):
        DataConfig(**fields)


def test_split_is_by_time_unless_it_is_named() -> None:
    def split(**section: Any) -> Any:
        return DataConfig(path="a.csv", label="sales", task="regression", windows=WINDOWS, **section).split

    assert (split().by, split().columns, split().train, split().eval) == ("time", ("date",), 2, 1)
    chosen = split(split={"train": 8, "eval": 1, "test": 1, "unit": "days"})
    assert (chosen.by, chosen.columns, chosen.unit, chosen.test) == ("time", ("date",), "days", 1)
    restored = DataConfig.model_validate_json(
        DataConfig(path="a.csv", label="sales", task="regression", windows=WINDOWS).model_dump_json()
    )
    assert restored.windows is not None
    assert restored.windows.horizon == (1, 2)
