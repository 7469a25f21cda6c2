"""Tests of the retrieval benchmark: its baselines rank items as expected."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks import retrieval
from data import sessions


@pytest.mark.extended
def test_matrix_factorization_finds_items_of_similar_users() -> None:
    random = np.random.default_rng(0)
    # There are two groups of users, and each clicks on its group of items.
    clicks = pd.DataFrame({"user": np.repeat(np.arange(40), 6)})
    clicks["item"] = random.integers(0, 20, len(clicks)) + 20 * (clicks["user"] % 2) + 100
    numbers = pd.Series(np.arange(40), index=np.arange(100, 140))
    rows = pd.DataFrame({"past_items": [np.array([103, 104, 105]), np.array([123, 124]), np.array([], int)]})
    scores = retrieval.factorize(clicks, numbers)(rows)
    assert scores[0, :20].mean() > 2 * abs(scores[0, 20:].mean())
    assert scores[1, 20:].mean() > 2 * abs(scores[1, :20].mean())
    assert not scores[2].any()


@pytest.mark.slow
def test_best_possible_ranking_beats_the_baselines() -> None:
    rows = 200 * sessions.EVENTS
    simulator = sessions.Sessions(rows, 0)
    log = simulator.make_rows(0, rows).to_pandas()
    held_out = (log["time"] >= log["time"].quantile(0.8)).to_numpy()
    recalls = retrieval.compare_baselines(log, held_out, simulator)
    train, clicked = log[~held_out & (log["clicked"] == 1)], log[held_out & (log["clicked"] == 1)]
    popular_items = train["item"].value_counts().index[:10]
    # The benchmark ranks an item after all items of equal popularity, so its recall may be slightly lower.
    assert (
        np.isin(clicked["item"], popular_items).mean() - 0.05
        < recalls["popularity"]
        <= np.isin(clicked["item"], popular_items).mean() + 0.01
    )
    assert recalls["best"] > max(recalls["popularity"], recalls["matrix factorization"])


def test_facts_have_differences_per_log() -> None:
    facts = retrieval.facts([{"two_tower": 0.4, "best": 0.5}, {"two_tower": 0.3, "best": 0.5}], 1000)
    assert facts["two_tower: recall at 10"] == "0.3500 (standard error 0.0500)"
    assert facts["two_tower above best"] == "-0.1500 (standard error 0.0500)"
    assert "two_tower above two_tower" not in facts


@pytest.mark.extended
def test_expected_rate_of_clicks_equals_the_log() -> None:
    rows = 200 * sessions.EVENTS
    simulator = sessions.Sessions(rows, 1)
    log = simulator.make_rows(0, rows).to_pandas()
    numbers = pd.Series(np.arange(simulator.items), index=sessions.make_item_ids(simulator.items))
    expected = []
    for block in retrieval._blocks(log.iloc[:6400]):
        expected.append(retrieval._score_best(block, numbers, simulator).sum(axis=1))
    rate, observed = np.concatenate(expected), log["clicked"].to_numpy()[:6400]
    error = np.sqrt(np.mean(rate * (1 - rate)) / len(rate))
    assert observed.mean() == pytest.approx(rate.mean(), abs=4 * error)
