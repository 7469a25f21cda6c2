"""Made trips have the columns, types, missing values and label of the real ones, and are others."""

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
def made():
    return Trips(taxi.find_real_trips(), seed=0).make_block(0, ROWS)


def generous(trips):
    """Return the label, computed in exact cents."""
    fare, tips = (np.rint(trips[name].to_numpy() * 100).astype(np.int64) for name in ("fare", "tips"))
    return tips * 5 > fare


def share(trips, name, value):
    return np.mean(trips[name].to_numpy() == value)


def test_written_and_read_again_every_column_has_the_real_one_s_type(tmp_path, real):
    output = tmp_path / "trips.csv"
    assert taxi.main(["--rows", "20_000", "--output", str(output)]) == 0
    trips = csv.read_csv(output, convert_options=MISSING_IS_MISSING)
    # The one census tract that any real pickup has may not be among the drawn trips; then the column is all missing.
    assert trips.schema.remove(11).equals(real.schema.remove(11))
    assert trips.schema.names == real.schema.names
    assert trips.num_rows == 20_000


def test_label_keeps_its_rate(real, made):
    assert generous(made).mean() == pytest.approx(generous(real).mean(), rel=0.01, abs=1e-4)


def test_label_does_not_depend_on_the_precision_it_is_computed_in(made):
    fare, tips = made["fare"].to_numpy(), made["tips"].to_numpy()
    np.testing.assert_array_equal(tips > 0.2 * fare, generous(made))
    np.testing.assert_array_equal(tips.astype("f4") > np.float32(0.2) * fare.astype("f4"), generous(made))


def test_tips_go_with_the_way_of_payment(real, made):
    for payment in ("Cash", "Credit Card"):
        of_real, of_made = (generous(trips)[trips["payment_type"].to_numpy() == payment] for trips in (real, made))
        assert of_made.mean() == pytest.approx(of_real.mean(), abs=0.01)


@pytest.mark.parametrize("name", ["fare", "tips", "trip_miles"])
def test_amounts_keep_their_zeros_and_their_middle(real, made, name):
    assert made[name].to_numpy().min() >= 0
    assert share(made, name, 0) == pytest.approx(share(real, name, 0), abs=0.005)
    middle, expected = (np.quantile(trips[name].to_numpy(), [0.75, 0.9]) for trips in (made, real))
    np.testing.assert_allclose(middle, expected, rtol=0.06, atol=1e-3)


def test_amounts_are_others_than_the_real_ones(real, made):
    for name in ("fare", "trip_miles", "trip_seconds"):
        assert len(made[name].unique()) > 3 * len(real[name].unique())


def test_missing_values_stay_missing(real, made):
    for name in real.schema.names:
        assert made[name].null_count / ROWS == pytest.approx(real[name].null_count / real.num_rows, abs=0.005), name


def test_places_and_names_stay_among_the_real_ones(real, made):
    for name in ("pickup_latitude", "dropoff_longitude", "dropoff_census_tract", "payment_type", "company"):
        assert set(made[name].unique().to_pylist()) <= set(real[name].unique().to_pylist())


def test_calendar_columns_follow_from_a_fresh_start(real, made):
    start = made["trip_start_timestamp"].to_numpy()
    moments = start.astype("datetime64[s]")
    np.testing.assert_array_equal(made["trip_start_hour"].to_numpy(), start // 3600 % 24)
    np.testing.assert_array_equal(
        made["trip_start_month"].to_numpy(), moments.astype("datetime64[M]").astype(int) % 12 + 1
    )
    np.testing.assert_array_equal(made["trip_start_day"].to_numpy(), (start // 86400 + 4) % 7 + 1)  # 1 is Sunday
    assert moments.min() >= np.datetime64("2013-01-01")
    assert moments.max() < np.datetime64("2017-01-01")
    assert not np.any(start % 900)
    assert len(np.unique(start)) > 4 * real["trip_start_timestamp"].to_numpy().size


def test_any_slice_is_the_same_on_its_own(made):
    trips = Trips(taxi.find_real_trips(), seed=0)
    for start, stop in ((0, 1), (17, 4_000), (BLOCK - 1, BLOCK + 2)):
        assert trips.make_block(start, stop).equals(made.slice(start, stop - start).combine_chunks())


def test_another_seed_makes_other_trips(made):
    assert not Trips(taxi.find_real_trips(), seed=1).make_block(0, 100).equals(made.slice(0, 100).combine_chunks())


def test_parquet_holds_the_same_rows(tmp_path):
    output = tmp_path / "trips.parquet"
    assert taxi.main(["--rows", "5000", "--output", str(output)]) == 0
    with pa.parquet.ParquetFile(output) as file:
        assert file.read(use_threads=False).equals(Trips(taxi.find_real_trips(), seed=0).make_block(0, 5_000))


def test_second_call_writes_only_with_other_arguments(tmp_path, capsys):
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


def test_made_trips_have_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert taxi.main(["--rows", "10"]) == 0
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.csv")] == [
        "data/taxi/rows-10-seed-0/trips.csv"
    ]
