"""ExampleGen joins side tables before all other steps, counts matches, and reads again when a side table changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from components.ingest import csv_reader, input_files, parquet_reader, spilled_join
from components.ingest.component import example_gen
from components.ingest.config import DataConfig
from components.ingest.driver import Driver
from tests.support.runs.ingest_runs import TWO_WORKERS, by_split, counts, data, ingest, ingest_error, types


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Any]:
    """Write trips, zones and rates; return the fields of the config."""
    random = np.random.default_rng(0)
    count = 400
    zone = random.integers(0, 30, count)
    trips = pd.DataFrame({"a": random.integers(0, 2, count), "zone": zone, "time": np.arange(count), "fare": zone / 7})
    trips.to_csv(tmp_path / "trips.csv", index=False)
    zones = pd.DataFrame({"zone": np.arange(25), "size": np.arange(25) / 3, "name": [f"{at:02}" for at in range(25)]})
    zones.to_parquet(tmp_path / "zones.parquet")
    (tmp_path / "rates.csv").write_text("time,rate\n100,1.5\n200,2.5\n300,3\n")
    joins = [
        {"path": str(tmp_path / "zones.parquet"), "on": "zone", "prefix": "zone_"},
        {"path": str(tmp_path / "rates.csv"), "as_of": "time"},
    ]
    return {"path": tmp_path / "trips.csv", "join": joins, "trips": trips}


def make_config(tables: dict[str, Any], **fields: Any) -> DataConfig:
    return data(tables["path"], join=tables["join"], **fields)


def resolve_fingerprint(config: DataConfig) -> str:
    node = example_gen(config, input_files.find(config), "parquet")
    return str(Driver(None).resolve_exec_properties(dict(node.exec_properties), None, None)["input_fingerprint"])


def test_joined_columns_are_like_columns_of_the_files(tmp_path: Path, tables: dict[str, Any]) -> None:
    """A condition, a type and a split use joined columns; the counts cover all rows that were read."""
    split = {"by": "column", "columns": "rate", "train": ["1.5", "2.5"], "eval": ["3"]}
    fields = {"where": "zone_size > 2 and rate > 0", "types": {"zone_name": "int"}, "split": split}
    examples = ingest(make_config(tables, **fields), tmp_path / "out", beam=TWO_WORKERS, stored="parquet")
    trips = tables["trips"]
    expected = trips[(trips["zone"] > 6) & (trips["zone"] < 25) & (trips["time"] >= 100)]
    assert types(examples)["zone_name"] == "int"
    for name, rows in by_split(examples).items():
        part = expected[(expected["time"] >= 300) == (name == "eval")]
        assert sorted(row["time"] for row in rows) == part["time"].tolist()
        assert all(row["zone_name"] == row["zone"] for row in rows)
        sizes = [(row["zone_size"], row["rate"]) for row in rows]
        rates = [(row["zone"] / 3, (1.5, 2.5, 3.0)[row["time"] // 100 - 1]) for row in rows]
        np.testing.assert_allclose(sizes, rates, atol=1e-6)
    assert counts(examples)["unselected"] == len(trips) - len(expected)
    assert json.loads(examples.get_string_custom_property("joins")) == [
        {"path": [tables["join"][0]["path"]], "rows": len(trips), "matched": int((trips["zone"] < 25).sum())},
        {"path": [tables["join"][1]["path"]], "rows": len(trips), "matched": 300},
    ]


def test_a_row_stays_in_its_split_and_sample_if_a_table_is_joined(tmp_path: Path, tables: dict[str, Any]) -> None:
    alone = ingest(data(tables["path"], sample=0.5), tmp_path / "alone", stored="parquet")
    joined = ingest(make_config(tables, sample=0.5), tmp_path / "joined", stored="parquet")
    before, after = (
        {name: sorted(row["time"] for row in rows) for name, rows in by_split(examples).items()}
        for examples in (alone, joined)
    )
    assert before == after
    assert sum(map(len, after.values())) < 300


def test_windows_have_the_past_of_a_joined_column(tmp_path: Path, tables: dict[str, Any]) -> None:
    windows = {"time": "time", "every": 1, "lags": [1, 2], "horizon": 1, "of": ["rate"]}
    config = make_config(tables, label="fare", task="regression", windows=windows)
    examples = ingest(config, tmp_path / "out", stored="parquet")
    rows = [row for part in by_split(examples).values() for row in part if 100 < row["origin"] < 110]
    assert rows
    assert all(row["rate_lag_1"] == row["rate_lag_2"] == 1.5 for row in rows)


def test_a_changed_side_table_changes_the_fingerprint(tmp_path: Path, tables: dict[str, Any]) -> None:
    config = make_config(tables)
    before = resolve_fingerprint(config)
    assert before == resolve_fingerprint(config)
    assert resolve_fingerprint(data(tables["path"])) == before.splitlines()[0]
    path = tmp_path / "rates.csv"
    path.write_text(path.read_text().replace("2.5", "2.6"))
    after = resolve_fingerprint(config)
    assert [old == new for old, new in zip(before.splitlines(), after.splitlines(), strict=True)] == [True, True, False]


def test_a_join_without_any_match_is_refused(tmp_path: Path, tables: dict[str, Any]) -> None:
    (tmp_path / "zones.csv").write_text("zone,size\nzone 1,2\nzone 2,3\n")
    config = data(tables["path"], join=[{"path": str(tmp_path / "zones.csv"), "on": "zone"}])
    raised = ingest_error(config, tmp_path / "out")
    expected = rf"data\.join\[0\]: expected rows that match {tmp_path}/zones.csv, received none of 400 rows: "
    example = r"the data has zone = '\d+'; the side table has zone = 'zone \d'"
    assert re.fullmatch(expected + example, raised.headline)
    assert "zeros in front" in raised.remedy


@pytest.mark.extended
@pytest.mark.parametrize("data_format", ["csv", "parquet"])
def test_a_table_on_disk_gives_the_same_rows_as_a_table_in_memory(
    tmp_path: Path, tables: dict[str, Any], data_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data has several files and runs. A second table on disk is joined by a column of the first."""
    random = np.random.default_rng(1)
    trips = pd.concat([tables["trips"]] * 3).assign(key=random.choice(["x", "é" * 20, None], 1200))
    (tmp_path / "trips").mkdir()
    for number in range(3):
        part, path = trips.iloc[number * 400 : (number + 1) * 400], tmp_path / "trips" / f"{number}.{data_format}"
        part.to_parquet(path) if data_format == "parquet" else part.to_csv(path, index=False)
    names = pd.DataFrame({"zone_name": [f"{at:02}" for at in range(24)], "list": [[at, 2 * at] for at in range(24)]})
    names.to_parquet(tmp_path / "names.parquet")
    past = pd.DataFrame({"key": random.choice(["x", "é" * 20], 90), "at": random.integers(0, 400, 90)})
    past["order"] = np.arange(90)
    past.to_csv(tmp_path / "past.csv.gz", index=False)
    joins = [
        *tables["join"],
        {"path": str(tmp_path / "names.parquet"), "on": "zone_name"},
        {"path": str(tmp_path / "past.csv.gz"), "on": "key", "as_of": {"time": "at"}, "within": 50},
    ]
    config = data(tmp_path / "trips", join=joins, where="zone_size > 1", bad_rows={"max_fraction": 0.1})
    in_memory = ingest(config, tmp_path / "memory", stored="parquet")
    monkeypatch.setattr(spilled_join, "find_limit", lambda: 0)
    monkeypatch.setattr(spilled_join, "_PARTITION", 5_000)
    # The blocks of keys and of rows differ, and end within runs.
    monkeypatch.setattr(spilled_join, "_RUN_ROWS", 150)
    monkeypatch.setattr(csv_reader, "_BLOCK", 2_500)
    monkeypatch.setattr(parquet_reader, "_BLOCK_BYTES", 2_500)
    on_disk = ingest(config, tmp_path / "disk", stored="parquet")
    assert by_split(on_disk) == by_split(in_memory)
    assert types(on_disk) == types(in_memory)
    assert counts(on_disk) == counts(in_memory)
    matches = [json.loads(examples.get_string_custom_property("joins")) for examples in (in_memory, on_disk)]
    assert matches[0] == matches[1]
    assert all(0 < join["matched"] < join["rows"] for join in matches[0])


def test_a_key_of_a_table_on_disk_that_occurs_twice_is_refused(
    tmp_path: Path, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zones.csv").write_text("zone,size\n1,2\n2,3\n1,4\n")
    monkeypatch.setattr(spilled_join, "find_limit", lambda: 0)
    config = data(tables["path"], join=[{"path": str(tmp_path / "zones.csv"), "on": "zone"}])
    raised = ingest_error(config, tmp_path / "out")
    assert f"expected one row per key, received zone = 1 in {tmp_path}/zones.csv and in" in raised.headline
