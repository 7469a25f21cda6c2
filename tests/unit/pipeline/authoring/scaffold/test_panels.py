"""Tests of tables that are ordered by time, whose newest rows become the eval split."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipeline.authoring.config import load
from pipeline.authoring.scaffold import Draft, draft

DAYS, SHOPS = 60, 8
RANDOM = np.random.default_rng(3)


def make_days(count: int = DAYS, form: str = "%Y-%m-%d") -> list[str]:
    return [(datetime(2024, 1, 1) + timedelta(days=day)).strftime(form) for day in range(count)]


def make_panel(**columns: Any) -> pd.DataFrame:
    """Return a row per shop and day, in random order, with a number and a label."""
    rows = pd.DataFrame([{"shop": f"s{shop}", "day": day} for day in make_days() for shop in range(SHOPS)])
    rows = rows.assign(size=RANDOM.normal(size=len(rows)), y=RANDOM.integers(0, 2, len(rows)), **columns)
    return rows.sample(frac=1, random_state=1)


def make_draft(table: pd.DataFrame, folder: Path) -> Draft:
    table.to_csv(folder / "table.csv", index=False)
    return draft([str(folder / "table.csv")], "y")


def test_newest_days_of_a_panel_judge_the_model(tmp_path: Path) -> None:
    drafted = make_draft(make_panel(), tmp_path)
    (tmp_path / "config.yaml").write_text(drafted.config(str(tmp_path / "schema.pbtxt")))
    (tmp_path / "schema.pbtxt").touch()
    split = load(str(tmp_path / "config.yaml")).config.data.split
    assert (split.by, split.columns, split.train, split.eval) == ("time", ("day",), 4, 1)
    assert drafted.defaults.why_split == (
        "each shop has a row per day: the newest rows judge the model, because it predicts later ones; "
        "data.windows adds their past"
    )
    assert f"# {drafted.defaults.why_split}" in (tmp_path / "config.yaml").read_text()
    assert "shop" in drafted.features


def test_times_in_milliseconds_keep_their_unit(tmp_path: Path) -> None:
    milliseconds = pd.to_datetime(make_panel()["day"]).astype("int64") // 10**6
    drafted = make_draft(make_panel().drop(columns="day").assign(event_time=milliseconds), tmp_path)
    assert drafted.defaults.split["columns"] == ["event_time"]
    assert drafted.defaults.split["unit"] == "milliseconds"


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-01"], ids=["days", "months"])
def test_newest_rows_of_a_series_judge_the_model(form: str, tmp_path: Path) -> None:
    days = sorted(set(make_days(40 if form == "%Y-%m-%d" else 1500, form)))
    rows = {"when": days, "size": RANDOM.normal(size=len(days)), "y": RANDOM.integers(0, 2, len(days))}
    drafted = make_draft(pd.DataFrame(rows), tmp_path)
    assert drafted.defaults.split["by"] == "time"
    assert drafted.defaults.why_split.startswith("each when has one row: ")


def change_time(table: pd.DataFrame, change: str) -> pd.DataFrame:
    if change == "events":
        table["day"] = RANDOM.choice(make_days(), len(table))
    elif change == "irregular":
        table = table.drop(columns="shop")
        seconds = 1_700_000_000 + np.cumsum(RANDOM.exponential(9_000, len(table)).astype(int) + 1)
        table["day"] = [datetime.fromtimestamp(second, timezone.utc).isoformat() for second in seconds]
    elif change == "missing":
        table.loc[table.index[:9], "day"] = None
    elif change == "day first":
        table["day"] = pd.to_datetime(table["day"]).dt.strftime("%d.%m.%Y")
    elif change == "few days":
        table = table[table["day"] < "2024-01-20"]
    return table


@pytest.mark.parametrize("change", ["events", "irregular", "missing", "day first", "few days"])
def test_other_tables_with_dates_are_split_at_random(change: str, tmp_path: Path) -> None:
    drafted = make_draft(change_time(make_panel(), change), tmp_path)
    assert "by" not in drafted.defaults.split
    assert drafted.defaults.why_split == ""
