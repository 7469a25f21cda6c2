"""Tests that `init` finds the pairs of columns whose combination predicts the label, and only these."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.authoring.config import load
from pipeline.authoring.scaffold import Draft, draft
from pipeline.authoring.scaffold.crosses import find_crosses

ROWS = 3000
GAIN = re.compile(r"predicts ([\d.]+) ± ([\d.]+) %")


def make_columns(random: np.random.Generator, rows: int = ROWS) -> pd.DataFrame:
    """Return two columns of texts, one of whole numbers, and one of numbers, all independent."""
    return pd.DataFrame(
        {
            "plan": random.choice(["basic", "plus", "pro", "team"], rows),
            "place": random.choice(["city", "coast", "land"], rows),
            "rooms": random.integers(1, 7, rows),
            "area": random.normal(size=rows),
        }
    )


def interact(columns: pd.DataFrame) -> pd.Series:
    """Return 1 or -1 for each combination of plan and place, with a mean of about 0 for each plan and place."""
    return columns["plan"].map({"basic": 1, "plus": -1, "pro": 1, "team": -1}) * np.where(
        columns["place"] == "city", 1, -0.5
    )


def make_draft(table: pd.DataFrame, folder: Path, **options: str) -> Draft:
    table.to_csv(folder / "table.csv", index=False)
    return draft([str(folder / "table.csv")], "y", **options)  # type: ignore[arg-type]


def test_gain_is_the_share_of_the_variance_that_the_combination_explains(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = make_columns(random)
    probability = 0.5 + 0.3 * interact(table)
    drafted = make_draft(table.assign(y=(random.random(ROWS) < probability).astype(int)), tmp_path)
    (cross,) = drafted.crosses
    assert (cross.columns, cross.buckets) == (("plan", "place"), 4 * 12)
    gain, error = map(float, GAIN.search(cross.why).groups())  # type: ignore[union-attr]
    # Variance of the mean of y by combination, and of y.
    explained = 100 * np.var(probability) / 0.25
    assert gain == pytest.approx(explained, abs=3 * error)


def test_config_with_crosses_can_be_loaded_and_says_why(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = make_columns(random)
    drafted = make_draft(table.assign(y=interact(table) + random.normal(size=ROWS)), tmp_path, task="regression")
    (tmp_path / "schema.pbtxt").touch()
    text = drafted.config(str(tmp_path / "schema.pbtxt"))
    (tmp_path / "config.yaml").write_text(text)
    (cross,) = drafted.crosses
    assert load(str(tmp_path / "config.yaml")).config.features.crosses["plan_and_place"].columns == ("plan", "place")
    assert f"# {cross.why}" in text


def test_combinations_of_classes_are_found(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = make_columns(random)
    # Neither column alone says anything about the class.
    numbers = table["plan"].map({"basic": 0, "plus": 1, "pro": 2, "team": 3}) + table["rooms"] % 4
    labels = np.where(random.random(ROWS) < 0.3, random.integers(0, 4, ROWS), numbers % 4)
    table["rooms"] = table["rooms"] % 4
    assert [cross.columns for cross in make_draft(table.assign(y=labels), tmp_path).crosses] == [("plan", "rooms")]


def test_columns_that_show_the_same_combination_are_crossed_once(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = make_columns(random)
    table["region"] = np.where(random.random(ROWS) < 0.8, table["place"], "city")
    table["y"] = (random.random(ROWS) < 0.5 + 0.3 * interact(table)).astype(int)
    assert [cross.columns for cross in make_draft(table, tmp_path).crosses] == [("plan", "place")]


@pytest.mark.parametrize("effect", [0.0, 2.0], ids=["noise", "separate_effects"])
def test_tables_without_combinations_get_no_crosses(tmp_path: Path, effect: float) -> None:
    drafted = [make_draft(make_additive(seed, effect), tmp_path) for seed in range(5)]
    assert [draft_.crosses for draft_ in drafted] == [()] * 5


def make_additive(seed: int, effect: float) -> pd.DataFrame:
    """Return twelve columns whose effects on the log-odds are added."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 8, (ROWS, 12))
    log_odds = effect * random.normal(size=(12, 8))[np.arange(12), codes].sum(axis=1) / 12**0.5
    table = pd.DataFrame({f"c{number}": [f"v{code}" for code in codes[:, number]] for number in range(12)})
    return table.assign(y=(random.random(ROWS) < 1 / (1 + np.exp(-log_odds))).astype(int))


def test_combinations_of_few_rows_or_excluded_columns_are_not_searched(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = make_columns(random).assign(part=random.integers(0, 2, ROWS))
    table["y"] = (random.random(ROWS) < 0.5 + 0.4 * interact(table)).astype(int)
    assert make_draft(table.head(400), tmp_path).crosses == ()
    drafted = make_draft(table, tmp_path)
    without = {name: column for name, column in drafted.columns.items() if name != "place"}
    assert find_crosses(drafted.table, drafted.task, without) == ()


def test_missing_values_take_part_in_a_combination(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = make_columns(random)
    table["y"] = (random.random(ROWS) < 0.5 + 0.3 * interact(table)).astype(int)
    table["place"] = table["place"].where(table["place"] != "city")
    (cross,) = make_draft(table, tmp_path).crosses
    assert (cross.columns, cross.buckets) == (("plan", "place"), 4 * 12)
