"""Tests of the labels benchmark: combining models with a single label, and comparing the AUCs of several logs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from sklearn.metrics import roc_auc_score

from benchmarks import labels
from tests.support.data.tolerances import float64_sum


def test_probability_of_a_purchase_is_the_product_of_two_separate_models() -> None:
    random = np.random.default_rng(0)
    click, after_click, random_scores = random.random((3, 500))
    clicked = (random.random(500) < click).astype(int)
    purchased = clicked * (random.random(500) < after_click)
    scores = {
        "best": {"click": click, "after_click": after_click},
        "click": {"click": click},
        "purchase": {"purchase": random_scores},
        "after_click": {"purchase": after_click},
        "esmm": {"click": random_scores, "purchase": click * random_scores, "after_click": random_scores},
    }
    near = float64_sum(500)
    areas = labels.areas_of(scores, pa.table({"clicked": clicked, "purchased": purchased}))
    assert areas["click"] == near.approx(
        {"best": roc_auc_score(clicked, click), "separate": roc_auc_score(clicked, click),
         "esmm": roc_auc_score(clicked, random_scores)}
    )  # fmt: skip
    product = roc_auc_score(purchased, click * after_click)
    assert areas["purchase"] == near.approx(
        {"best": product, "separate": product, "purchase": roc_auc_score(purchased, random_scores),
         "esmm": roc_auc_score(purchased, click * random_scores)}
    )  # fmt: skip
    rows = clicked == 1
    assert areas["purchase of the clicked"]["separate"] == near.approx(
        roc_auc_score(purchased[rows], after_click[rows])
    )


def test_differences_are_computed_per_log() -> None:
    areas_by_log = [
        {"click": {"best": 0.8, "separate": 0.7, "esmm": 0.75}},
        {"click": {"best": 0.9, "separate": 0.7, "esmm": 0.79}},
    ]
    facts = labels.facts(areas_by_log, 1000)
    assert facts["click: esmm above separate"] == "0.0700 (standard error 0.0200)"
    assert facts["click: esmm above best"] == "-0.0800 (standard error 0.0300)"
