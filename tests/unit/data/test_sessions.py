"""Tests that simulated sessions have the earlier clicks as past, and that the true probabilities fit the labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from data import sessions
from data.sessions import EVENTS, PAST, SCHEMA, Sessions

ROWS = 102_400


@pytest.fixture(scope="module")
def log() -> tuple[dict[str, Any], dict[str, Any]]:
    rows, truth = Sessions(ROWS, seed=0).make_rows_and_truth(0, ROWS)
    assert rows.schema == SCHEMA
    return rows.to_pydict(), {name: truth[name].to_numpy() for name in truth.column_names}


@pytest.mark.extended
def test_past_contains_the_latest_clicks_of_the_user(log: tuple[dict[str, Any], dict[str, Any]]) -> None:
    rows, _ = log
    longest = 0
    for first in range(0, 400 * EVENTS, EVENTS):
        clicked: list[tuple[int, int, int]] = []
        assert len(set(rows["user"][first : first + EVENTS])) == 1
        for row in range(first, first + EVENTS):
            past = list(
                zip(rows["past_items"][row], rows["past_categories"][row], rows["past_times"][row], strict=True)
            )
            assert past == clicked[-PAST:]
            assert not past or past[-1][2] <= rows["time"][row]
            longest = max(longest, len(past))
            if rows["clicked"][row]:
                clicked.append((rows["item"][row], rows["category"][row], rows["time"][row]))
    assert longest == PAST


def test_true_probabilities_are_calibrated(log: tuple[dict[str, Any], dict[str, Any]]) -> None:
    rows, truth = log
    clicked, purchased = np.array(rows["clicked"]), np.array(rows["purchased"])
    assert not purchased[clicked == 0].any()
    for probability, label in (
        (truth["click"], clicked),
        (truth["purchase_after_click"][clicked == 1], purchased[clicked == 1]),
        (truth["click"] * truth["purchase_after_click"], purchased),
    ):
        order = np.argsort(probability)
        for part in np.array_split(order, 10):
            error = np.sqrt(np.mean(probability[part] * (1 - probability[part])) / len(part))
            assert abs(label[part].mean() - probability[part].mean()) < 4 * error
    assert roc_auc_score(clicked, truth["click"]) > 0.79


def test_clicks_may_be_rare() -> None:
    rows = Sessions(12_800, seed=0, click=-3.0).make_rows(0, 12_800)
    clicked, purchased = (float(np.mean(rows[name])) for name in ("clicked", "purchased"))
    assert 0.04 < clicked < 0.09
    assert 0.1 < purchased / clicked < 0.35


def test_recent_click_predicts_more_than_an_old_click(log: tuple[dict[str, Any], dict[str, Any]]) -> None:
    rows, _ = log
    clicked, now = np.array(rows["clicked"]), np.array(rows["time"])
    last = np.array([past[-1] if past else 0 for past in rows["past_times"]])
    same = np.array(
        [
            bool(past) and past[-1] == category
            for past, category in zip(rows["past_categories"], rows["category"], strict=True)
        ]
    )
    recent, old = (now - last < 600) & (last > 0), (now - last > 6 * 3600) & (last > 0)
    assert clicked[same & recent].mean() > 1.5 * clicked[~same & recent].mean()
    assert clicked[same & recent].mean() > 1.2 * clicked[same & old].mean()


def test_purchases_after_the_end_of_the_log_are_missing(log: tuple[dict[str, Any], dict[str, Any]]) -> None:
    rows, truth = log
    remaining_seconds = sessions._END - np.array(rows["time"])
    late, early = (
        remaining_seconds < np.quantile(remaining_seconds, 0.05),
        remaining_seconds > np.quantile(remaining_seconds, 0.5),
    )
    assert truth["purchase_after_click"][late].mean() < truth["purchase_after_click"][early].mean()


def test_slice_of_users_can_be_created_separately() -> None:
    rows = Sessions(ROWS, seed=3)
    assert rows.make_rows(10 * EVENTS, 20 * EVENTS).equals(
        rows.make_rows(0, 30 * EVENTS).slice(10 * EVENTS, 10 * EVENTS)
    )
    assert not rows.make_rows(0, EVENTS).equals(Sessions(ROWS, seed=4).make_rows(0, EVENTS))


def test_command_writes_whole_users_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sessions.parquet"
    assert sessions.main(["--rows", "1000", "--output", str(path)]) == 0
    assert "1,024 rows" in capsys.readouterr().out
    content = path.read_bytes()
    assert sessions.main(["--rows", "1000", "--output", str(path)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert path.read_bytes() == content
    assert (tmp_path / "sessions.truth.parquet").exists()
