"""Tests of the benchmark of new IDs: the spans of its log, and comparing the AUCs of several logs."""

from __future__ import annotations

import numpy as np

from benchmarks import new_ids


def test_item_lives_for_three_spans_and_a_third_of_the_rows_have_new_items() -> None:
    log = new_ids.make_log(60_000, seed=1)
    assert len(log.table) == len(log.truth) == len(log.born) == len(log.span)
    assert set(log.span.tolist()) == {0, 1, 2, 3, 4}
    assert set((log.span - log.born).tolist()) == {0, 1, 2}
    born = dict(zip(log.table["item"].to_pylist(), log.born.tolist(), strict=True))
    assert [born[item] for item in log.table["item"].to_pylist()] == log.born.tolist()
    rows = np.bincount(log.span)
    assert rows.max() < 1.25 * rows.min()
    assert 0.25 < (log.born[log.span == 3] == 3).mean() < 0.42


def test_differences_are_computed_per_log() -> None:
    areas_by_log = [
        {"all rows": {"best": 0.8, "mean": 0.75, "random": 0.7}},
        {"all rows": {"best": 0.9, "mean": 0.79, "random": 0.7}},
    ]
    facts = new_ids.facts(areas_by_log, 1000)
    assert facts["all rows: mean above random"] == "0.0700 (standard error 0.0200)"
    assert "all rows: mean above best" not in facts
