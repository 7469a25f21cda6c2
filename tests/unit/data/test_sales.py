"""Tests that simulated sales have the effects that data/README.md states, and are written once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from data import sales


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return sales.make_rows(40, seed=1).to_pandas()


def test_shops_do_not_depend_on_their_number(rows: pd.DataFrame) -> None:
    few = sales.make_rows(3, seed=1).to_pandas()
    pd.testing.assert_frame_equal(few, rows.head(len(few)))
    assert not few.equals(sales.make_rows(3, seed=2).to_pandas())


def test_a_shop_has_at_most_one_row_per_day_and_is_closed_on_some(rows: pd.DataFrame) -> None:
    assert not rows.duplicated(["shop", "date"]).any()
    share = len(rows) / (40 * sales.DAYS)
    # Four standard errors of the share of open days.
    assert abs(share - 0.98) < 4 * (0.98 * 0.02 / (40 * sales.DAYS)) ** 0.5
    assert (rows["visitors"] >= rows["sales"]).all()


def test_sales_have_the_effects_of_promotion_and_trend(rows: pd.DataFrame) -> None:
    days = (pd.to_datetime(rows["date"]) - pd.Timestamp(sales.START)).dt.days
    values = pd.DataFrame(
        {
            "sales": np.log(rows["sales"] + 0.5),
            "promotion": rows["promotion"],
            "trend": days / sales.DAYS,
            "season": np.sin(2 * np.pi * days / 365.25),
        }
    )
    # Without the mean of each shop's weekday, only the effects of the columns and noise remain.
    values -= values.groupby([rows["shop"], days % 7]).transform("mean")
    coefficients = np.linalg.lstsq(values.iloc[:, 1:].to_numpy(), values["sales"].to_numpy(), rcond=None)[0]
    estimated = dict(zip(values.columns[1:], coefficients, strict=True))
    assert estimated["promotion"] == pytest.approx(0.4, abs=0.02)
    # The slow level of a shop changes over weeks, so the trend and the season are known less exactly.
    assert estimated["trend"] == pytest.approx(0.3, abs=0.1)
    assert estimated["season"] == pytest.approx(0.2, abs=0.05)


def test_command_writes_the_table_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sales.csv"
    for line in ("rows", "nothing to do"):
        assert sales.main(["--shops", "2", "--output", str(path)]) == 0
        assert line in capsys.readouterr().out
    pd.testing.assert_frame_equal(pd.read_csv(path), sales.make_rows(2, seed=0).to_pandas())
