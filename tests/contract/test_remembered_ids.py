"""Three runs on three days: which users have rows, and where these rows come from, computed from the tables alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import tensorflow as tf
import yaml

from tests.support.data.tolerances import Tolerance
from tests.support.runs.command import command

pytestmark = pytest.mark.extended

LEAST, KEEP = 3, 2
NEAR = Tolerance(1e-6, 1e-6)


def make_day(number: int) -> pd.DataFrame:
    """Return the rows of a day: users from a window that moves, frequent and rare."""
    random = np.random.default_rng(number)
    users = 10 * number + random.zipf(1.5, 400)
    part = np.where(np.arange(400) % 4 == 3, "later", "now")
    rows = pd.DataFrame(
        {"user": users, "price": random.random(400), "clicked": random.integers(0, 2, 400), "part": part}
    )
    return rows[rows["user"] < 10 * number + 60]


def read_rows(model: Path) -> dict[str, npt.NDArray[Any]]:
    """Return user → embedding of an exported model, by the vocabulary and the checkpoint in its folder."""
    names = (model / "assets" / "vocabulary_user_vocab").read_text().splitlines()
    description = json.loads((model / "assets.extra" / "warm_start.json").read_text())
    [table] = [name for name in description["variables"] if name.startswith("embedding_")]
    position = description["variables"].index(table)
    reader = tf.train.load_checkpoint(str(model / "variables" / "variables"))
    rows = reader.get_tensor(f"weights/{position}/.ATTRIBUTES/VARIABLE_VALUE")
    # Row 0 is a missing value; the last rows are unknown values.
    assert len(rows) == len(names) + 1 + 4
    return {**dict(zip(names, rows[1:], strict=False)), **{f"unknown {at}": rows[at - 4] for at in range(4)}}


def write_config(folder: Path, new_ids: str) -> Path:
    vocabulary = {"min_frequency": LEAST, "keep_runs": KEEP, "oov_buckets": 4, "embedding": 4}
    config = {
        "data": {
            "path": "set below",
            "label": "clicked",
            "split": {"by": "column", "columns": "part", "train": "now", "eval": "later"},
        },
        "features": {"columns": {"user": {"vocab": vocabulary}, "price": "z_score"}},
        "model": {"kind": "mlp", "hidden": [4]},
        # So small a rate that the rows stay the initial rows.
        "training": {"steps": 1, "learning_rate": 1e-30, "warm_start": True, "new_ids": new_ids},
        "evaluation": {"thresholds": {"binary_accuracy": {"min": 0}}, "constant": "warn"},
        "serving": {"check": "none"},
    }
    path = folder / "days.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("new_ids", ["mean", pytest.param("unknown", marks=pytest.mark.slow)])
def test_rows_of_users_over_three_days(tmp_path: Path, new_ids: str) -> None:
    config = write_config(tmp_path, new_ids)
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}
    earlier: dict[str, npt.NDArray[Any]] = {}
    evicted = kept_without_rows = admitted_by_sum = 0
    for day in (1, 2, 3):
        rows = make_day(day)
        rows.to_csv(tmp_path / f"day_{day}.csv", index=False)
        sets = ("--set", f"data.path={tmp_path / f'day_{day}.csv'}")
        ended = command("--local", "--json", "--config", str(config), *sets, "--output", str(tmp_path / "out"))
        assert ended.exit_code == 0, ended.out + ended.err
        model = Path(ended.result["pushed"])
        today = Counter(map(str, rows.loc[rows["part"] == "now", "user"]))
        counts.update(today)
        last |= dict.fromkeys(today, day)
        old = [user for user, seen in last.items() if seen <= day - KEEP]
        evicted += len(set(old) & set(earlier))
        for user in old:
            del counts[user], last[user]
        entries = {user for user in counts if counts[user] >= LEAST}
        current = read_rows(model)
        assert {name for name in current if not name.startswith("unknown")} == entries
        if earlier:
            known = sorted(entries & set(earlier))
            NEAR.assert_close(np.array([current[user] for user in known]), np.array([earlier[user] for user in known]))
            kept_without_rows += len(set(known) - set(today))
            new = sorted(entries - set(earlier))
            admitted_by_sum += sum(today[user] < LEAST for user in new)
            buckets = tf.strings.to_hash_bucket_fast(new, 4).numpy()
            mean = np.mean([earlier[user] for user in known], axis=0)
            initial = [mean if new_ids == "mean" else earlier[f"unknown {bucket}"] for bucket in buckets]
            NEAR.assert_close(np.array([current[user] for user in new]), np.array(initial))
        earlier = current
    assert min(evicted, kept_without_rows, admitted_by_sum) > 0
