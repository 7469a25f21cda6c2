"""Tests that simulated trips have the columns, types, missing values and labels of real trips, and differ from them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from data import taxi
from data.bootstrap import Trips
from data.tables import BLOCK

ROWS = 200_000
MISSING_IS_MISSING = csv.ConvertOptions(strings_can_be_null=True)


@pytest.fixture(scope="module")
def real():
    return csv.read_csv(taxi.find_real_trips(), convert_options=MISSING_IS_MISSING)


@pytest.fixture(scope="module")
def simulated():
    return Trips(taxi.find_real_trips(), seed=0).make_block(0, ROWS)


def is_generous(trips):
    """Return the label of every trip, computed in exact cents: the tip is more than a fifth of the fare."""
    fare, tips = (np.rint(trips[name].to_numpy() * 100).astype(np.int64) for name in ("fare", "tips"))
    return tips * 5 > fare


def share(trips, name, value):
    return np.mean(trips[name].to_numpy() == value)


def test_written_trips_have_the_column_types_of_real_trips(tmp_path, real):
    output = tmp_path / "trips.csv"
    assert taxi.main(["--rows", "20_000", "--output", str(output)]) == 0
    trips = csv.read_csv(output, convert_options=MISSING_IS_MISSING)
    # Only one census tract occurs among real pickups. If it is not drawn, the whole column is missing.
    assert trips.schema.remove(11).equals(real.schema.remove(11))
    assert trips.schema.names == real.schema.names
    assert trips.num_rows == 20_000


def test_label_has_the_same_rate_as_in_real_trips(real, simulated):
    assert is_generous(simulated).mean() == pytest.approx(is_generous(real).mean(), rel=0.01, abs=1e-4)


def test_label_does_not_depend_on_the_precision_of_its_computation(simulated):
    fare, tips = simulated["fare"].to_numpy(), simulated["tips"].to_numpy()
    np.testing.assert_array_equal(tips > 0.2 * fare, is_generous(simulated))
    np.testing.assert_array_equal(tips.astype("f4") > np.float32(0.2) * fare.astype("f4"), is_generous(simulated))


def test_tips_depend_on_the_payment_type_as_in_real_trips(real, simulated):
    for payment in ("Cash", "Credit Card"):
        real_tips, simulated_tips = (
            is_generous(trips)[trips["payment_type"].to_numpy() == payment] for trips in (real, simulated)
        )
        assert simulated_tips.mean() == pytest.approx(real_tips.mean(), abs=0.01)


@pytest.mark.parametrize("name", ["fare", "tips", "trip_miles"])
def test_amounts_have_the_zeros_and_quantiles_of_real_trips(real, simulated, name):
    assert simulated[name].to_numpy().min() >= 0
    assert share(simulated, name, 0) == pytest.approx(share(real, name, 0), abs=0.005)
    middle, expected = (np.quantile(trips[name].to_numpy(), [0.75, 0.9]) for trips in (simulated, real))
    np.testing.assert_allclose(middle, expected, rtol=0.06, atol=1e-3)


def test_amounts_differ_from_real_amounts(real, simulated):
    for name in ("fare", "trip_miles", "trip_seconds"):
        assert len(simulated[name].unique()) > 3 * len(real[name].unique())


def test_columns_have_the_missing_rates_of_real_trips(real, simulated):
    for name in real.schema.names:
        assert simulated[name].null_count / ROWS == pytest.approx(real[name].null_count / real.num_rows, abs=0.005), (
            name
        )


def test_places_and_names_occur_in_real_trips(real, simulated):
    for name in ("pickup_latitude", "dropoff_longitude", "dropoff_census_tract", "payment_type", "company"):
        assert set(simulated[name].unique().to_pylist()) <= set(real[name].unique().to_pylist())


def test_calendar_columns_follow_from_a_new_start_time(real, simulated):
    start = simulated["trip_start_timestamp"].to_numpy()
    moments = start.astype("datetime64[s]")
    np.testing.assert_array_equal(simulated["trip_start_hour"].to_numpy(), start // 3600 % 24)
    np.testing.assert_array_equal(
        simulated["trip_start_month"].to_numpy(), moments.astype("datetime64[M]").astype(int) % 12 + 1
    )
    np.testing.assert_array_equal(simulated["trip_start_day"].to_numpy(), (start // 86400 + 4) % 7 + 1)  # 1 is Sunday
    assert moments.min() >= np.datetime64("2013-01-01")
    assert moments.max() < np.datetime64("2017-01-01")
    assert not np.any(start % 900)
    assert len(np.unique(start)) > 4 * real["trip_start_timestamp"].to_numpy().size


def test_slice_can_be_created_separately(simulated):
    trips = Trips(taxi.find_real_trips(), seed=0)
    for start, stop in ((0, 1), (17, 4_000), (BLOCK - 1, BLOCK + 2)):
        assert trips.make_block(start, stop).equals(simulated.slice(start, stop - start).combine_chunks())


def test_another_seed_gives_other_trips(simulated):
    assert not Trips(taxi.find_real_trips(), seed=1).make_block(0, 100).equals(simulated.slice(0, 100).combine_chunks())


def test_parquet_holds_the_same_rows(tmp_path):
    output = tmp_path / "trips.parquet"
    assert taxi.main(["--rows", "5000", "--output", str(output)]) == 0
    with pa.parquet.ParquetFile(output) as file:
        assert file.read(use_threads=False).equals(Trips(taxi.find_real_trips(), seed=0).make_block(0, 5_000))


def test_second_call_only_writes_with_other_arguments(tmp_path, capsys):
    output = tmp_path / "trips.csv"
    arguments = ["--rows", "1000", "--output", str(output)]
    taxi.main(arguments)
    first = output.read_bytes()
    inode = output.stat().st_ino
    assert taxi.main(arguments) == 0
    assert output.stat().st_ino == inode
    assert "nothing to do" in capsys.readouterr().out
    assert taxi.main([*arguments, "--seed", "1"]) == 0
    assert output.read_bytes() != first
    assert taxi.main(arguments) == 0
    assert output.read_bytes() == first


def test_simulated_trips_are_written_to_a_separate_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert taxi.main(["--rows", "10"]) == 0
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.csv")] == [
        "data/taxi/rows-10-seed-0/trips.csv"
    ]
