"""Tests that the best model of the clicks benchmark learns the effects of IDs, as far as its rows allow."""

from __future__ import annotations

import pytest
from sklearn.metrics import roc_auc_score

from benchmarks.clicks_best import predict
from data.clicks import Impressions


@pytest.mark.extended
def test_best_model_lies_between_the_open_columns_and_the_truth() -> None:
    rows, held_out = 60_000, 20_000
    log = Impressions(rows + held_out, seed=0)
    best = predict(log, rows, held_out, epochs=6)
    open_columns = log.draw(rows, rows + held_out).open_log_odds
    clicked = log.make_rows(rows, rows + held_out)["clicked"].to_numpy()
    truth = log.make_truth(rows, rows + held_out)["probability"].to_numpy()
    scores = [roc_auc_score(clicked, prediction) for prediction in (open_columns, best, truth)]
    assert scores[0] + 0.03 < scores[1] < scores[2] - 0.02, scores
