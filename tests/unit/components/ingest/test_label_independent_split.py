"""A split by hash does not depend on the label. The tables have few distinct rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from components.ingest import executor
from components.ingest.config import SplitConfig
from tests.support.runs.ingest_runs import data, run_without_beam

CATEGORIES = ["class", "sex", "age"]


def table(rows: int = 600) -> pd.DataFrame:
    """Return rows with 24 distinct combinations of categories, whose label and weight partly depend on them."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame({name: random.integers(0, 3 if name == "age" else 2, rows) for name in CATEGORIES})
    frame["class"] += 2 * random.integers(0, 2, rows)
    frame["survived"] = (random.random(rows) < 0.2 + 0.5 * frame["sex"]).astype(int)
    frame["weight"] = frame["survived"] + 1
    return frame


def splits(frame: pd.DataFrame, folder: Path, **section: Any) -> pd.DataFrame:
    """Return the rows with their split, in arbitrary order."""
    folder.mkdir()
    frame.to_csv(folder / "table.csv", index=False)
    config = data(folder / "table.csv", **{"split": {"train": 2, "eval": 1}, **section})
    rows = run_without_beam(config, folder / "out").rows
    return pd.concat([pd.DataFrame(part).assign(split=name) for name, part in rows.items()])


@pytest.mark.parametrize(
    "section",
    [
        {"label": "survived", "weight": "weight"},
        {"label": "survived > 0.5", "weight": "weight"},
        {"label": None, "labels": {"a": "survived", "b": "weight == 2"}},
        {"label": "`survived`", "weight": "weight", "split": {"columns": "id", "train": 2, "eval": 1, "by": "group"}},
    ],
)
def test_rows_with_equal_features_are_in_one_split(tmp_path: Path, section: dict[str, Any]) -> None:
    frame = table()
    if "split" in section:
        frame["id"] = np.nan  # A row without a group is split by its other columns.
    split = splits(frame, tmp_path / "a", **section)
    assert len(split) == len(frame)
    assert set(split.groupby(CATEGORIES)["split"].nunique()) == {1}
    # Changing all labels must not change the split of any combination of features.
    changed = frame.assign(survived=1 - frame["survived"], weight=frame["weight"] * 3)
    again = splits(changed, tmp_path / "b", **section)
    pd.testing.assert_series_equal(*(part.groupby(CATEGORIES)["split"].first() for part in (split, again)))


def test_rows_are_divided_even_if_the_label_uses_all_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(300) / 7})
    split = splits(frame, tmp_path / "a", label="x > 20")
    assert split["split"].value_counts()["train"] == pytest.approx(200, abs=40)


def test_splits_far_from_their_shares_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    split = SplitConfig(train=8, eval=2)
    executor.warn_of_shares({"train": 780, "eval": 220}, split)
    executor.warn_of_shares({"train": 1, "eval": 99}, split)
    assert not caplog.records
    executor.warn_of_shares({"train": 515, "eval": 1686}, split)
    assert "expected 80 % of the rows in the split train, received 23 %" in caplog.text
    assert "expected 20 % of the rows in the split eval, received 77 %" in caplog.text
