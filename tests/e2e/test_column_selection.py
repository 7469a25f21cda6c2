"""Columns that could be dropped from trained models: planted noise is found, signals stay, and the loss without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.support.runs.command import command

pytestmark = pytest.mark.e2e
ROWS = 9000
NOISE = ["noise1", "noise2", "noise3", "noise_text"]
TRAININGS: dict[str, dict[str, Any]] = {
    "gbt": {"model": {"kind": "gbt", "trees": 60, "depth": 4}, "training": {"steps": 60}},
    "linear": {"model": {"kind": "linear"}, "training": {"steps": 600, "learning_rate": 0.01, "batch_size": 256}},
}


def draw_table() -> pd.DataFrame:
    """Return a binary label, signals, a signal twice, a protected attribute and a slice without effect, and noise."""
    random = np.random.default_rng(7)
    table = pd.DataFrame({name: random.normal(size=ROWS) for name in ("dose", "weeks", *NOISE[:3])})
    table["noise_text"] = random.choice(list("abcdef"), ROWS)
    table["copy"] = table["dose"]
    table["plan"] = random.choice(["basic", "flat", "gold"], ROWS)
    table["gender"] = random.choice(["f", "m"], ROWS)
    table["region"] = random.choice(["north", "south"], ROWS)
    logit = 2 * table["dose"] - 1.2 * table["weeks"] + 1.5 * (table["plan"] == "gold")
    table["label"] = (random.random(ROWS) < 1 / (1 + np.exp(-logit))).astype(int)
    return table


def write_config(folder: Path, kind: str) -> Path:
    table = draw_table()
    table.to_csv(folder / "rows.csv", index=False)
    texts = dict.fromkeys(("noise_text", "plan", "gender", "region"), "vocab")
    numbers = dict.fromkeys(("dose", "copy", "weeks", *NOISE[:3]), "z_score")
    config = {
        "data": {"path": str(folder / "rows.csv"), "split": {"train": 2, "eval": 1}, "label": "label"},
        "features": {"columns": {**numbers, **texts}},
        **TRAININGS[kind],
        "evaluation": {"slices": ["region"], "thresholds": {"auc": {"min": 0.6}}},
    }
    path = folder / f"{kind}.yaml"
    path.write_text("# Planted.\n" + yaml.safe_dump(config, sort_keys=False))
    return path


@pytest.mark.parametrize("kind", TRAININGS)
def test_planted_noise_is_dropped_and_signals_stay(tmp_path: Path, kind: str) -> None:
    config = write_config(tmp_path, kind)
    arguments = ("--config", str(config), "--output", str(tmp_path / "out"))
    before = command("--local", *arguments, "--to", "Evaluator", "--json")
    assert before.exit_code == 0, before.err
    ended = command("explain", *arguments, "--unneeded", "--apply", "--json")
    assert ended.exit_code == 0, ended.err
    record = json.loads(ended.out)
    unneeded = set(record["unneeded"])
    # The importance of any column of noise is above 0 by chance in 5 % of the tables.
    assert len(unneeded.intersection(NOISE)) >= len(NOISE) - 1
    assert not unneeded & {"weeks", "plan", "gender", "region"}
    assert not unneeded >= {"dose", "copy"}
    assert record["kept"]["gender"] == "it is a protected attribute of persons"
    assert record["kept"]["region"] == "evaluation.slices names it"
    assert config.read_text().startswith("# Planted.\n")
    columns = yaml.safe_load(config.read_text())["features"]["columns"]
    assert columns.keys() == {*draw_table().columns} - {"label"} - unneeded
    after = command("--local", *arguments, "--to", "Evaluator", "--json")
    assert after.exit_code == 0, after.err
    losses = [ended.result["metrics"]["binary_crossentropy"] for ended in (before, after)]
    # Without noise, the loss decreases or stays within the noise of 3,000 rows.
    assert losses[1] < losses[0] + 0.01
    dependence = json.loads(command("explain", *arguments, "--dependence", "--json").out)
    [weeks] = [column for column in dependence["columns"] if column["column"] == "weeks"]
    means = weeks["curves"][0]["means"]
    # The probability of the label falls with the weeks.
    assert means[0] - means[-1] > 0.4
