"""The table and the metrics of the benchmark of recommendation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import recommendation, recommendation_lightgbm
from components.evaluator.binned_sums import Slices
from components.evaluator.grouped_rows import GroupedRows
from components.evaluator.ranking import Ranking
from tests.support.data.tolerances import Tolerance


def test_ratings_are_joined_with_users_and_items(tmp_path: Path) -> None:
    (tmp_path / "ml-100k.inter").write_text(
        "u:token\ti:token\tr:float\tt:float\n7\t2\t4\t100\n8\t1\t5\t90\n7\t1\t3\t80\n"
    )
    (tmp_path / "ml-100k.user").write_text("u\ta\tg\to\tz\n7\t30\tF\twriter\t1234\n8\t40\tM\tother\tV3N4P\n")
    (tmp_path / "ml-100k.item").write_text("i\tt\ty\tc\n1\tToy Story\t1995\tAnimation Comedy\n2\tunknown\tV\tunknown\n")
    rows = recommendation.read_ratings(tmp_path).sort_values("time")
    assert rows["user"].tolist() == [7, 8, 7]
    assert rows["rating"].tolist() == [3, 5, 4]
    assert rows["genres"].tolist() == ["Animation Comedy", "Animation Comedy", "unknown"]
    assert rows["year"].isna().tolist() == [False, False, True]
    assert set(rows) == {"user", "item", "rating", "time", "age", "gender", "occupation", "year", "genres"}


def test_metrics_of_the_other_program_are_those_of_the_evaluator() -> None:
    random = np.random.default_rng(3)
    rows = pd.DataFrame({"user": random.integers(0, 30, 400), "rating": random.integers(1, 6, 400)})
    scores = random.normal(size=400).round(1) + rows["rating"].to_numpy() / 5
    measured = recommendation_lightgbm.measure(rows, scores)
    labels = (rows["rating"] >= 4).to_numpy()
    slices = Slices([()], np.arange(400), np.zeros(400, np.int64))
    grouped = GroupedRows(rows["user"].to_numpy(np.uint64), labels.astype(np.float32), None, {"": scores}, slices)
    ranking = Ranking(grouped, "")
    for name, (values, weights) in {"gauc": ranking.measure_auc(), "ndcg_at_10": ranking.measure_gain(10)}.items():
        known = ~np.isnan(values)
        Tolerance(1e-9, 1e-9).assert_close(measured[name], np.average(values[known], weights=weights[known]))


def test_summary_is_the_mean_and_its_standard_error() -> None:
    assert recommendation.summarize([0.5]) == "0.5000"
    assert recommendation.summarize([0.4, 0.5, 0.6]) == "0.5000 (standard error 0.0577)"
