"""Lags, statistics and targets of time series are those that pandas computes on a grid with all steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from components.base.errors import InputError
from components.ingest.series_windows import Series
from components.ingest.time_steps import Step
from components.ingest.window_config import IngestedWindows
from tests.support.data.tolerances import float64_sum

pytestmark = pytest.mark.filterwarnings("ignore:np.find_common_type is deprecated:DeprecationWarning")
"""This version of pandas calls it."""
LAGS, HORIZON, SEASON = (1, 2, 7, 40), (1, 3, 8), 3
ROLLING = {"mean": (1, 4, 28), "std": (2, 7), "min": (3, 9), "max": (1, 5)}
STATISTICS: dict[str, Callable[..., Any]] = {
    "mean": np.nanmean,
    "std": lambda values: np.nanstd(values, ddof=1),
    "min": np.nanmin,
    "max": np.nanmax,
}
GRIDS: dict[str, tuple[str, Step]] = {
    "days": ("D", Step(86_400_000_000)),
    "hours": ("H", Step(3_600_000_000)),
    "weeks": ("W-SUN", Step(7 * 86_400_000_000)),
    "quarter hours": ("15min", Step(900_000_000)),
    "months": ("MS", Step(1, in_months=True)),
    "ends of months": ("M", Step(1, in_months=True)),
    "quarters": ("QS", Step(3, in_months=True)),
    "years": ("AS", Step(12, in_months=True)),
}


def make_table(freq: str, seed: int = 0) -> pd.DataFrame:
    """Return shuffled rows of series of very different lengths and sizes, without a fifth of the steps."""
    source = np.random.default_rng(seed)
    frames = []
    for number, (shop, item, steps) in enumerate(
        [("b", 1, 60), ("a", 10, 1), ("a", 2, 2), ("10", 2, 9), ("b", 3, 150)]
    ):
        frame = pd.DataFrame(
            {
                "shop": shop,
                "item": item,
                "date": pd.date_range("2019-12-29", periods=steps + number, freq=freq)[number:],
                "y": source.normal(0, 10.0 ** (8 * (number % 2) - 4), steps),
                "price": source.normal(5, 1, steps),
                "promotion": source.choice(["no", "yes"], steps),
                "region": source.choice(["north", "south"], steps),
            }
        )
        kept = (source.random(steps) > 0.2) | (np.arange(steps) < 2)
        frame.loc[source.random(steps) < 0.1, "y"] = np.nan
        frames.append(frame[kept])
    return pd.concat(frames).sample(frac=1, random_state=seed)


def to_batches(table: pd.DataFrame, size: int = 50) -> list[pa.RecordBatch]:
    texts = {
        "date": table["date"].dt.strftime("%Y-%m-%dT%H:%M:%S"),
        **{name: table[name] for name in ("shop", "promotion", "region")},
    }
    arrays = {name: pa.array(column.tolist()).cast(pa.binary()) for name, column in texts.items()}
    arrays |= {name: pa.array(table[name].tolist(), from_pandas=True) for name in ("item", "y", "price")}
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
    return [batch.slice(at, size) for at in range(0, len(table), size)]


def config(**more: Any) -> IngestedWindows:
    fields = {
        "by": ("shop", "item"),
        "time": "date",
        "lags": LAGS,
        "rolling": ROLLING,
        "horizon": HORIZON,
        "of": ("y", "price"),
        "known": ("promotion",),
        "season": SEASON,
        "label": "y",
    }
    return IngestedWindows(**{**fields, **more})


def read(series: Series, step: Step, **more: Any) -> pd.DataFrame:
    table = pa.Table.from_batches(list(series.rows(step, **more))).to_pandas()
    for name in ("date", "origin"):
        table[name] = pd.to_datetime(table[name].str.decode("utf-8"))
    for name in ("shop", "promotion", "region"):
        table[name] = table[name].str.decode("utf-8")
    return table


def expect(table: pd.DataFrame, freq: str) -> pd.DataFrame:
    """Compute the rows with pandas: a row per step of every series, then `shift` and `rolling`."""
    parts = []
    for (shop, item), rows in table.groupby(["shop", "item"]):
        grid = rows.set_index("date").sort_index().asfreq(freq)
        features = pd.DataFrame(index=grid.index)
        for name in ("y", "price"):
            for lag in LAGS:
                features[f"{name}_lag_{lag}"] = grid[name].shift(lag - 1)
            for statistic, windows in ROLLING.items():
                for window in windows:
                    rolling = grid[name].rolling(window, min_periods=2 if statistic == "std" else 1)
                    # `apply` computes every window from its values. The running sums of pandas lose digits.
                    features[f"{name}_{statistic}_{window}"] = rolling.apply(STATISTICS[statistic], raw=True)
        features["seasonal_scale"] = (grid["y"] - grid["y"].shift(SEASON)).abs().expanding().mean()
        for step in HORIZON:
            ahead = features.assign(
                shop=shop,
                item=item,
                horizon=step,
                origin=grid.index,
                date=grid.index.to_series().shift(-step).to_numpy(),
                region=grid["region"],
                last=grid["y"],
                y=grid["y"].shift(-step),
                promotion=grid["promotion"].shift(-step),
            )
            repeated = grid["y"].shift(SEASON * -(-step // SEASON) - step)
            ahead["seasonal_naive"] = repeated.fillna(grid["y"])
            parts.append(ahead[grid["y"].notna()])
    return pd.concat(parts).dropna(subset=["y"]).drop(columns="last")


def assert_equal(received: pd.DataFrame, expected: pd.DataFrame) -> None:
    keys = ["shop", "item", "origin", "horizon"]
    received, expected = (frame.sort_values(keys).reset_index(drop=True) for frame in (received, expected))
    assert received[[*keys, "date", "region", "promotion"]].to_dict("list") == (
        expected[[*keys, "date", "region", "promotion"]].to_dict("list")
    )
    for name in expected.columns.difference([*keys, "date", "region", "promotion"]):
        values, wanted = received[name].to_numpy(float), expected[name].to_numpy(float)
        assert np.isnan(values).tolist() == np.isnan(wanted).tolist(), name
        known = ~np.isnan(wanted)
        # A sum of up to 40 squares of the size of the values.
        tolerance = float64_sum(200, largest=1.0)
        scale = np.maximum(np.abs(wanted[known]), 1e-9)
        tolerance.assert_close(values[known] / scale, wanted[known] / scale)


_QUICK = ("days", "ends of months")


@pytest.mark.parametrize(
    "grid", [grid if grid in _QUICK else pytest.param(grid, marks=pytest.mark.extended) for grid in GRIDS]
)
def test_rows_are_those_of_pandas(grid: str) -> None:
    freq, step = GRIDS[grid]
    table = make_table(freq)
    series = Series(to_batches(table), config(), "seconds")
    assert series.differences().infer() == step
    received = read(series, step)
    expected = expect(table, freq)
    assert len(received) == len(expected) > 200
    assert_equal(received, expected)


def test_the_future_of_an_origin_does_not_change_its_features() -> None:
    table = make_table("D")
    step = GRIDS["days"][1]
    before = read(Series(to_batches(table), config(), "seconds"), step)
    border = pd.Timestamp("2020-02-10")
    changed = table.copy()
    later = changed["date"] > border
    source = np.random.default_rng(1)
    changed.loc[later, ["y", "price"]] = source.normal(1e6, 1e6, (int(later.sum()), 2))
    changed = changed.drop(changed.index[later & (source.random(len(changed)) < 0.3)])
    after = read(Series(to_batches(changed), config(), "seconds"), step)
    names = [name for name in before.columns if name not in ("y", "promotion", "date")]
    keys = ["shop", "item", "origin", "horizon"]
    before, after = (
        frame[frame["origin"] <= border].set_index(keys)[[name for name in names if name not in keys]].sort_index()
        for frame in (before, after)
    )
    shared = before.index.intersection(after.index)
    assert len(shared) > 50
    assert before.loc[shared].astype(str).to_dict("list") == after.loc[shared].astype(str).to_dict("list")


def test_forecasts_start_at_the_last_known_label_of_every_series() -> None:
    table = make_table("M")
    step = GRIDS["ends of months"][1]
    known = table.dropna(subset=["y"])
    last = known.groupby(["shop", "item"])["date"].max()
    received = read(Series(to_batches(table), config(), "seconds"), step, only_last=True)
    origins = {(row["shop"], row["item"], row["origin"]) for _, row in received.iterrows()}
    assert origins == {(shop, item, date) for (shop, item), date in last.items()}
    assert received["horizon"].tolist() == list(HORIZON) * len(last)
    for _, row in received.iterrows():
        assert row["date"] == row["origin"] + pd.offsets.MonthEnd(row["horizon"])
    # A row of the future does not have a label, and gives the promotion.
    future = table[(table["shop"] == "b") & (table["item"] == 3)].sort_values("date").tail(1)
    date = future["date"].iloc[0] + pd.offsets.MonthEnd(1)
    added = future.assign(date=date, y=np.nan, promotion="planned", price=-1.0)
    with_future = read(Series(to_batches(pd.concat([table, added])), config(), "seconds"), step, only_last=True)
    is_added = (with_future["date"] == date) & (with_future["shop"] == "b") & (with_future["item"] == 3)
    assert with_future.loc[is_added, "promotion"].tolist() == ["planned"]
    names = [name for name in received.columns if name != "promotion"]
    assert with_future[names].astype(str).to_dict("list") == received[names].astype(str).to_dict("list")


def test_numbers_are_times_in_the_unit_of_the_column() -> None:
    columns = {"t": pa.array([4, 1, 2, 7]), "y": pa.array([b"40", b"10", b"20", b"nan"])}
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    windows = IngestedWindows(time="t", every=1, lags=(1, 3), horizon=2, label="y")
    series = Series([batch], windows, "days")
    rows = [row for part in series.rows(Step.parse("1", "days")) for row in part.to_pylist()]
    assert [(row["origin"], row["horizon"], row["t"], row["y"], row["y_lag_1"], row["y_lag_3"]) for row in rows] == [
        (1, 1, 2, 20.0, 10.0, None),
        (2, 2, 4, 40.0, 20.0, None),
    ]
    forecasts = [row for part in series.rows(Step.parse("1", "days"), only_last=True) for row in part.to_pylist()]
    assert [(row["origin"], row["t"], row["y_lag_1"], row["y_lag_3"]) for row in forecasts] == [
        (4, 5, 40.0, 20.0),
        (4, 6, 40.0, 20.0),
    ]


def test_rows_that_do_not_fit_the_steps_are_errors() -> None:
    dates, y = [b"2020-01-01", b"2020-01-03", b"2020-01-02"], pa.array([1.0, 2.0, 3.0])

    def series(dates: list[bytes]) -> Series:
        shops = pa.array([b"x"] * 3)
        batch = pa.RecordBatch.from_arrays([shops, pa.array(dates), y], ["shop", "date", "y"])
        return Series([batch], IngestedWindows(by="shop", time="date", horizon=1, label="y"), "seconds")

    assert len(list(series(dates).rows(Step.parse("1d", "seconds")))) == 1
    with pytest.raises(InputError, match="received shop = x, date = 2020-01-02 after shop = x, date = 2020-01-01"):
        list(series(dates).rows(Step.parse("2d", "seconds")))
    with pytest.raises(InputError, match="one row per series and time, received shop = x, date = 2020-01-03 and"):
        list(series([dates[0], dates[1], dates[1]]).rows(Step.parse("1d", "seconds")))
    with pytest.raises(InputError, match=r"received none.*; set data\.windows\.every|set data.windows.every"):
        series([dates[0]] * 3).differences().infer()


def test_columns_of_different_types_are_joined() -> None:
    first = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([1, 2]), pa.nulls(2)], ["t", "y", "k"])
    second = pa.RecordBatch.from_arrays(
        [pa.array([3.0, 4.0]), pa.array([b"3", b"4.5"]), pa.array([7, 8])], ["t", "y", "k"]
    )
    windows = IngestedWindows(time="t", lags=(2,), horizon=1, known="k", label="y")
    rows = [
        row for part in Series([second, first], windows, "seconds").rows(Step(1_000_000)) for row in part.to_pylist()
    ]
    assert [(row["t"], row["y"], row["y_lag_2"], row["k"]) for row in rows] == [
        (2.0, 2.0, None, None),
        (3.0, 3.0, 1.0, 7),
        (4.0, 4.5, 2.0, 8),
    ]
