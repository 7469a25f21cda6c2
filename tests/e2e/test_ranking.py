"""The list-wise loss end to end: three strategies train the order of a user's items, and the report's metrics are
those of scikit-learn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from pyarrow import parquet
from sklearn.metrics import ndcg_score

from tests.support.runs.command import Ended, command, make_data

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

STRATEGIES = {
    "none": "{kind: none}",
    "multi_worker": "{kind: multi_worker, workers: 2}",
    "parameter_server": "{kind: parameter_server, workers: 2, ps: 1, shard_over_mb: 1}",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the rows into a folder; runs in this folder share the nodes before the Trainer."""
    folder = tmp_path_factory.mktemp("ranking")
    make_data("sessions", "--rows", "51200", "--output", str(folder / "sessions.parquet"))
    return folder


def train(folder: Path, strategy: str, *fields: str) -> Ended:
    settings = (f"data.path={folder / 'sessions.parquet'}", f"training.strategy={STRATEGIES[strategy]}", *fields)
    sets = [word for field in settings for word in ("--set", field)]
    return command("--local", "--json", "--config", "configs/ranking.yaml", *sets, "--output", str(folder / "out"))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_order_of_lists_is_learned(folder: Path, tmp_path: Path, strategy: str) -> None:
    ended = train(folder, strategy)
    assert ended.exit_code == 0, ended.err
    result = ended.result
    options = ("--data", str(folder / "sessions.parquet"), "--into", str(tmp_path / "predicted"))
    assert command("predict", "--model", result["pushed"], *options).exit_code == 0
    rows = parquet.read_table(folder / "sessions.parquet", columns=["user", "clicked", "time"]).to_pandas()
    rows["score"] = parquet.read_table(tmp_path / "predicted")["probability"].to_numpy()
    rows = rows[rows["time"] >= rows["time"].nlargest(result["rows"]["eval"]).iloc[-1]]
    gains = compute_gains(rows)
    assert result["metrics"]["ndcg_at_10"] == pytest.approx(gains.mean(), abs=1e-4)
    by_chance = compute_gains(rows.assign(score=np.random.default_rng(0).random(len(rows))))
    error = (gains - by_chance).std() / len(gains) ** 0.5
    assert gains.mean() > by_chance.mean() + 3 * error


def compute_gains(rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return NDCG at 10 of every user with a click; 1 for a user with a single row."""
    lists = (list_ for _, list_ in rows.groupby("user") if list_["clicked"].any())
    return np.array(
        [ndcg_score([list_["clicked"]], [list_["score"]], k=10) if len(list_) > 1 else 1.0 for list_ in lists]
    )
