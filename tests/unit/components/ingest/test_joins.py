"""`data.join` adds the columns that pandas.merge and pandas.merge_asof add, except that missing keys do not match."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from components.base.errors import InputError
from components.ingest import input_files, readers
from components.ingest.blocks import Matches, RowLog
from components.ingest.config import DataConfig
from components.ingest.side_keys import find_times, hash_texts
from components.ingest.split_assignment import times_of

STATIONS = np.array(["EWR", "JFK", "LGA", "é" * 9, "x" * 300, None], object)


def config(path: object, *joins: dict[str, Any], **fields: Any) -> DataConfig:
    return DataConfig.model_validate({"path": str(path), "label": "a", "join": joins, **fields})


def read(data: DataConfig) -> tuple[pd.DataFrame, dict[int, Matches]]:
    """Return the joined rows in the order of the files, with text for bytes, and the counts."""
    located = input_files.find(data)
    paths = [path for paths in input_files.files(data).values() for path in paths]
    reader = readers.reader(data.ingest(located.format), paths)
    log = RowLog(None)
    ranges = [file_range for path in paths for file_range in reader.ranges(path, None)]
    batches = [block.columns for file_range in ranges for block in reader.read(file_range, log)]
    columns = {
        name: pd.Series([value for batch in batches for value in batch.column(at).to_pylist()], dtype=object)
        for at, name in enumerate(batches[0].schema.names)
    }
    rows = pd.DataFrame(columns).apply(lambda column: column.map(as_text))
    return rows, dict(log.close().matches)


def as_text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def error(data: DataConfig) -> InputError:
    with pytest.raises(InputError) as raised:
        read(data)
    return raised.value


def write(table: pd.DataFrame, folder: Path, format_: str, files: int = 1) -> Path:
    """Write a table as one or several files; return the path of the config."""
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(table)), files)):
        rows, path = table.iloc[part], folder / f"{number}.{format_}"
        rows.to_parquet(path) if format_ == "parquet" else rows.to_csv(path, index=False)
    return folder


def numbers(column: pd.Series) -> np.ndarray:
    return pd.to_numeric(column).to_numpy(float)


def merge(rows: pd.DataFrame, side: pd.DataFrame, on: list[str]) -> pd.DataFrame:
    """Return the left join of pandas, without matches of keys with a missing value."""
    merged = rows.merge(side.dropna(subset=on), on=on, how="left")
    assert len(merged) == len(rows)
    return merged


def merge_as_of(rows: pd.DataFrame, side: pd.DataFrame, by: list[str], within: str | None = None) -> pd.DataFrame:
    """Return the join of pandas.merge_asof in the order of the rows; both tables have datetimes in `time`."""
    known = rows.dropna(subset=[*by, "time"]).sort_values("time", kind="stable")
    past = side.dropna(subset=[*by, "time"]).sort_values("time", kind="stable")
    tolerance = None if within is None else pd.Timedelta(within)
    keys = {"by": by} if by else {}
    merged = pd.merge_asof(known.reset_index(), past, on="time", tolerance=tolerance, **keys)
    return merged.set_index("index").reindex(rows.index)


def make_times(random: np.random.Generator, count: int) -> pd.Series:
    """Return times of two days, in steps of 10 minutes, so that equal times are frequent."""
    minutes = pd.Series(random.integers(0, 288, count) * 10)
    return pd.Series(pd.to_datetime(minutes * 60 + 1_600_000_000, unit="s")).mask(random.random(count) < 0.05)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("data_format", "side_format"), [("csv", "parquet"), ("parquet", "csv.gz"), ("csv", "csv")])
def test_rows_equal_those_of_pandas(tmp_path: Path, data_format: str, side_format: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    count, most = int(random.integers(1, 700)), int(random.integers(3, 60))
    rows = pd.DataFrame(
        {
            "a": random.integers(0, 2, count),
            "station": random.choice(STATIONS, count),
            "zone": pd.Series(random.integers(0, most, count) * 2**55 + 1)
            .astype("Int64")
            .mask(random.random(count) < 0.1),
            "half": np.where(random.random(count) < 0.1, np.nan, random.integers(0, 9, count) / 2),
            "time": make_times(random, count),
        }
    )
    # Distinct pairs in random order; the rows have some of them.
    pairs = [(zone * 2**55 + 1, half / 2) for zone in range(most) for half in range(9)]
    chosen = random.permutation(len(pairs))[: int(random.integers(1, len(pairs)))]
    zones = pd.DataFrame([pairs[at] for at in chosen], columns=["zone", "half"])
    zones["size"] = random.normal(size=len(zones)).astype(np.float32).astype(float)
    zones["name"] = [f"n{number}" for number in range(len(zones))]
    past = int(random.integers(1, 300))
    weather = pd.DataFrame(
        {"station": random.choice(STATIONS, past), "time": make_times(random, past), "temp": np.arange(past) + 0.5}
    )
    data = config(
        write(rows, tmp_path / "rows", data_format, files=min(count, 3)),
        {"path": str(write(zones, tmp_path / "zones", side_format, min(len(zones), 2))), "on": ["zone", "half"]},
        {
            "path": str(write(weather, tmp_path / "weather", side_format, 1)),
            "on": "station",
            "as_of": "time",
            "prefix": "w_",
        },
        {"path": str(tmp_path / "weather"), "as_of": "time", "within": "2h", "prefix": "last_", "columns": "temp"},
    )
    joined, matches = read(data)
    assert readers.columns(data) == list(joined.columns)
    by_key = merge(rows, zones.astype({"zone": "Int64"}), ["zone", "half"])
    np.testing.assert_allclose(numbers(joined["size"]), by_key["size"], atol=1e-6)
    assert joined["name"].fillna("").tolist() == by_key["name"].fillna("").tolist()
    by_time = [merge_as_of(rows, weather, ["station"]), merge_as_of(rows, weather[["time", "temp"]], [], "2h")]
    for name, expected in zip(("w_temp", "last_temp"), by_time, strict=True):
        np.testing.assert_allclose(numbers(joined[name]), expected["temp"], atol=1e-6)
    counted = [by_key["name"], by_time[0]["temp"], by_time[1]["temp"]]
    assert [(match.rows, match.matched) for match in matches.values()] == [(count, part.count()) for part in counted]


def test_the_future_of_a_side_table_does_not_change_a_row(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"a": 1, "station": random.choice(STATIONS, 300), "time": random.integers(0, 500, 300)})
    side = pd.DataFrame(
        {
            "station": random.choice(STATIONS, 900),
            "time": random.integers(0, 1000, 900),
            "temp": random.normal(size=900),
        }
    )
    changed = side.copy()
    is_future = side["time"] > 250
    changed.loc[is_future, "temp"] = random.permutation(changed.loc[is_future, "temp"])
    changed.loc[is_future, "station"] = random.permutation(changed.loc[is_future, "station"])
    join = {"on": "station", "as_of": "time"}
    path = write(rows, tmp_path / "rows", "csv")
    before, _ = read(config(path, {"path": str(write(side, tmp_path / "before", "csv")), **join}))
    after, _ = read(config(path, {"path": str(write(changed, tmp_path / "after", "csv")), **join}))
    is_past = rows["time"] <= 250
    assert before["temp"][is_past].equals(after["temp"][is_past])
    assert not before["temp"][~is_past].equals(after["temp"][~is_past])


KEYS = {
    "text is a number": (["7", " 7", "7.0", "8"], pa.array([7, 8]), ["x", "x", "x", "y"]),
    "code is not a number": (["07", "7", "0x7"], pa.array([7, 8]), [None, "x", None]),
    "code equals code": (["07", "7"], pa.array(["07", "8"]), ["x", None]),
    "big integers are exact": ([str(2**53), str(2**53 + 1), "abc"], pa.array([2**53 + 1, 1]), [None, "x", None]),
    "float with gaps": (["7", "8", ""], pa.array([7.0, None, float("nan")]), ["x", None, None]),
    "fractions": (["0.1", "1e-1", "0.10"], pa.array([0.1, 0.2]), ["x", "x", "x"]),
    "texts are compared byte by byte": (["a", "A", "a "], pa.array(["a", "b"]), ["x", None, None]),
    "booleans": (["true", "0"], pa.array([True, False]), ["x", "y"]),
    "dates": (["2024-01-02", "2024-01-03"], pa.array([19724, 19725], pa.int32()).cast(pa.date32()), ["x", "y"]),
    "decimals": (["1.50", "2"], pa.array(["1.50", "2.00"]).cast(pa.float64()).cast(pa.decimal128(9, 2)), ["x", "y"]),
    "codes of a dictionary": (["u", "v"], pa.array(["v", "u"]).dictionary_encode(), ["y", "x"]),
}


@pytest.mark.parametrize("case", KEYS)
def test_types_of_keys(tmp_path: Path, case: str) -> None:
    texts, keys, expected = KEYS[case]
    (tmp_path / "rows.csv").write_text("a,k\n" + "".join(f'1,"{text}"\n' for text in texts))
    side = pa.table({"k": keys, "value": ["x", "y", "z"][: len(keys)]})
    pa.parquet.write_table(side, tmp_path / "side.parquet")
    joined, _ = read(config(tmp_path / "rows.csv", {"path": str(tmp_path / "side.parquet"), "on": "k"}))
    assert joined["value"].tolist() == expected


def test_code_is_a_number_if_its_type_is_set(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,k\n1,07\n0,8\n")
    (tmp_path / "side.csv").write_text("k,value\n7,x\n8,y\n")
    join = {"path": str(tmp_path / "side.csv"), "on": "k"}
    assert read(config(tmp_path / "rows.csv", join))[0]["value"].tolist() == [None, "y"]
    assert read(config(tmp_path / "rows.csv", join, types={"k": "int"}))[0]["value"].tolist() == ["x", "y"]


def test_integers_of_a_column_of_doubles_match_texts(tmp_path: Path) -> None:
    """Pandas writes a column of integers with gaps as floats."""
    pd.DataFrame({"a": [1, 1, 1], "k": [7.0, np.nan, 8.5]}).to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "side.csv").write_text("k,value\n7,x\nB,y\n8.5,z\n")
    joined, _ = read(config(tmp_path / "rows.parquet", {"path": str(tmp_path / "side.csv"), "on": "k"}))
    assert joined["value"].tolist() == ["x", None, "z"]


def test_times_have_several_forms(tmp_path: Path) -> None:
    """A time without a zone is in UTC, and a row at exactly the time of a row of the side table matches it."""
    times = ["2024-01-01 12:00", "2024-01-01T13:00:00+01:00", "2024-01-01", "2024-01-01T11:59:59.5Z", "oops", ""]
    (tmp_path / "rows.csv").write_text("a,at\n" + "".join(f"1,{time}\n" for time in times))
    moments = pd.to_datetime(["2024-01-01T12:00", "2024-01-01T00:00", "2024-01-01T00:00"])
    side = pd.DataFrame(
        {"moment": moments.tz_localize("UTC").tz_convert("Asia/Tokyo"), "value": ["noon", "first", "last"]}
    )
    side.to_parquet(tmp_path / "side.parquet")
    join = {"path": str(tmp_path / "side.parquet"), "as_of": {"at": "moment"}}
    joined, _ = read(config(tmp_path / "rows.csv", join))
    assert joined["value"].tolist() == ["noon", "noon", "last", "last", None, None]


@pytest.mark.parametrize("zone", ["", "Z", "+05:30", "mixed"])
def test_texts_are_parsed_at_once_as_one_by_one(zone: str) -> None:
    """Python's datetime is the reference; a form that is not one of ISO 8601 for the project stays invalid."""
    random = np.random.default_rng(0)
    moments = [datetime(1960, 1, 1) + timedelta(microseconds=int(at)) for at in random.integers(0, 4 * 10**15, 200)]
    suffixes = [("", "Z", "+05:30")[at % 3] if zone == "mixed" else zone for at in range(200)]
    texts = [moment.isoformat() + suffix for moment, suffix in zip(moments, suffixes, strict=True)]
    offsets = [timedelta(hours=5.5) if suffix == "+05:30" else timedelta() for suffix in suffixes]
    expected = [
        (moment - offset - datetime(1970, 1, 1)) // timedelta(microseconds=1)
        for moment, offset in zip(moments, offsets, strict=True)
    ]
    times, valid = find_times(pa.array([text.encode() for text in texts] + [None]), "seconds")
    assert times.tolist() == [*expected, 0]
    assert valid.tolist() == [True] * 200 + [False]
    for text in ("2024-01-01 05", "2024-01", "20240101T0500", "2024-01-01T05:00:00.1234567Z"):
        column = pa.array([text.encode()])
        assert [part.tolist() for part in find_times(column, "days")] == [
            part.tolist() for part in times_of(column, "days")
        ]


def test_columns_of_an_earlier_join_are_keys_of_a_later_one(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,plane,unused\n1,p1,0\n0,p2,0\n1,p3,0\n")
    (tmp_path / "planes.csv").write_text("plane,maker,seats\np1,m1,10\np2,m2,20\n")
    (tmp_path / "makers.csv").write_text("maker,country\nm1,FR\nm2,BR\n")
    joins = [{"path": str(tmp_path / f"{name}s.csv"), "on": name} for name in ("plane", "maker")]
    data = config(tmp_path / "rows.csv", *joins, columns=["a", "country"])
    joined, _ = read(data)
    assert readers.columns(data) == list(joined.columns) == ["a", "country"]
    assert joined["country"].tolist() == ["FR", "BR", None]


def test_a_side_table_has_its_own_format_of_text(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,k\n1,x\n0,y\n")
    (tmp_path / "side.csv").write_bytes("k;preis;anteil;ort\nx;1.200 €;3,5;Köln\ny;5 €;-;-\n".encode("cp1252"))
    csv = {
        "delimiter": ";",
        "decimal": ",",
        "encoding": "cp1252",
        "null_values": ["-"],
        "formats": {"preis": "currency"},
    }
    joined, _ = read(config(tmp_path / "rows.csv", {"path": str(tmp_path / "side.csv"), "on": "k", "csv": csv}))
    assert joined["ort"].tolist() == ["Köln", None]
    np.testing.assert_allclose(numbers(joined["preis"]), [1200, 5], atol=0)
    np.testing.assert_allclose(numbers(joined["anteil"]), [3.5, np.nan], atol=0)


CSV = {"rows": "a,k,t\n1,x,5\n0,y,6\n", "side": "k,t,value\nx,1,2\ny,2,3\n"}


@pytest.mark.parametrize(
    ("join", "tables", "expected"),
    [
        ({"on": "k"}, {"side": "k,value\nx,1\ny,2\nx,3\n"}, "received k = 'x' in SIDE, row 2 and in SIDE, row 4"),
        ({"on": "k"}, {"side": "k,value\n7,1\n8,2\n7.0,3\n"}, "received k = 7 in SIDE, row 2 and in SIDE, row 4"),
        ({"on": "k"}, {}, "expected columns that the data does not have, received 't'"),
        ({"on": "K"}, {}, "data.join[0].on: expected a column of SIDE, received 'K'; expected one of k, t, value"),
        ({"on": {"K": "k"}}, {}, "expected a column of the data, received 'K'; expected one of a, k, t"),
        ({"on": {"k": "key"}}, {}, "data.join[0].on: expected a column of SIDE, received 'key'"),
        ({"as_of": {"t": "when"}}, {}, "data.join[0].as_of: expected a column of SIDE, received 'when'"),
        ({"on": "k", "csv": {"formats": {"w": "percent"}}}, {}, "data.join[0].csv.formats: expected a column of SIDE"),
        ({"on": "k", "columns": "w"}, {}, "data.join[0].columns: expected a column of SIDE, received 'w'"),
        ({"on": ["k", "t", "value"]}, {"rows": "a,k,t,value\n1,x,5,1\n"}, "expected columns to add, received k, t"),
        ({"on": "k", "as_of": "t"}, {"side": "k,t,v\nx,1,2\ny,soon,3\n"}, "SIDE, row 3: column t: expected a time"),
        ({"on": "k", "prefix": "s_"}, {"side": "k,t,v\nx,1,2\ny,2\n"}, "SIDE, row 3: expected 3 fields, received 2"),
        ({"on": "k", "path": "{SPAN}.csv"}, {}, "data.join[0].path: expected a path without {SPAN} or a date"),
        ({"on": "k", "path": "none.csv"}, {}, "/none.csv does not exist"),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_is_refused(
    tmp_path: Path, join: dict[str, Any], tables: dict[str, str], expected: str
) -> None:
    for name, text in {**CSV, **tables}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    side = str(tmp_path / "side.csv")
    raised = error(config(tmp_path / "rows.csv", {"path": side, **join}))
    assert expected.replace("SIDE", side) in raised.headline
    assert raised.remedy


def test_a_label_of_a_side_table_is_refused(tmp_path: Path) -> None:
    for name, text in CSV.items():
        (tmp_path / f"{name}.csv").write_text(text)
    join = {"path": str(tmp_path / "side.csv"), "on": "k", "columns": "value"}
    with pytest.raises(InputError, match=r"data.label: expected a column of data.path, received 'value'"):
        readers.columns(config(tmp_path / "rows.csv", join, label="value > 2"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "expected on, the columns of the key, or as_of"),
        ({"on": "k", "within": "3h"}, "within needs as_of"),
        ({"on": "k", "unit": "days"}, "unit needs as_of"),
        ({"as_of": ["t", "u"]}, "as_of: expected one column, received t, u"),
        ({"on": ["k", {"k": "l"}]}, "expected different columns, received 'k' twice"),
        ({"on": "k", "columns": ["k"]}, "columns: expected columns other than on and as_of, received 'k'"),
        ({"on": "k", "prefix": "1_"}, "prefix"),
        ({"on": "k", "path": []}, "path"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        config("rows.csv", {"path": "side.csv", **fields})


@pytest.mark.parametrize("data", [{"format": "tfrecord"}, {"path": (), "bigquery": {"query": "SELECT 1"}}])
def test_other_formats_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="join: expected CSV or Parquet files"):
        DataConfig.model_validate({"path": "rows", "label": "a", "join": [{"path": "side.csv", "on": "k"}], **data})


def test_hashes_of_texts_differ() -> None:
    """Texts of up to 300 bytes that differ in one place, and slices of a column, have different and equal hashes."""
    texts = [bytes([97 + at % 7]) * length for length in range(300) for at in range(7 if length else 1)]
    column = pa.array(texts, pa.binary())
    hashes = hash_texts(column)
    assert len(set(hashes.tolist())) == len(texts)
    np.testing.assert_array_equal(hash_texts(column[100:200]), hashes[100:200])
