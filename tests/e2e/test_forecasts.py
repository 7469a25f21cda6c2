"""The sales example: forecasts are blessed, and `predict` continues the series better than the last week does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from tests.support.runs.command import command, make_data

pytestmark = pytest.mark.e2e

SHOPS, HORIZON = 4, 7


def test_predict_continues_the_series_of_a_blessed_model(tmp_path: Path) -> None:
    history, output = tmp_path / "sales.csv", tmp_path / "out"
    make_data("sales", "--shops", str(SHOPS), "--output", str(history))
    rows = pd.read_csv(history)
    # The last week is unknown to the model: its rows only say which promotions are planned.
    dates = pd.to_datetime(rows["date"])
    is_future = dates > dates.max() - pd.Timedelta(days=HORIZON)
    rows.assign(sales=rows["sales"].mask(is_future)).to_csv(history, index=False)
    training = tmp_path / "training"
    training.mkdir()
    rows[~is_future].to_csv(training / "sales.csv", index=False)

    sets = ("--set", f"data.path={training}")
    ended = command("--local", "--json", "--config", "configs/sales.yaml", *sets, "--output", str(output))
    assert (ended.exit_code, ended.result["verdict"]) == (0, "blessed"), ended.err
    into = tmp_path / "forecasts"
    trained = ("--config", "configs/sales.yaml", "--output", str(output))
    ended = command("predict", *trained, "--data", str(history), "--into", str(into))
    assert ended.exit_code == 0, ended.err

    forecasts = parquet.read_table(into).to_pandas()
    # A step that was not in the history because the shop was closed is forecast, too.
    assert forecasts.groupby("shop")["horizon"].apply(sorted).tolist() == [list(range(1, HORIZON + 1))] * SHOPS
    last = rows[~is_future].assign(date=(dates + pd.Timedelta(days=HORIZON)).dt.strftime("%Y-%m-%d"))
    compared = rows[is_future].merge(forecasts, on=["shop", "date"], suffixes=("", "_known"))
    compared = compared.merge(last[["shop", "date", "sales"]], on=["shop", "date"], suffixes=("", "_last_week"))
    assert len(compared) > 0.8 * SHOPS * HORIZON
    errors = np.abs(compared["sales"] - compared["prediction"]).mean()
    assert errors < np.abs(compared["sales"] - compared["sales_last_week"]).mean()
