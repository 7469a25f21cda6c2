"""The benchmark of several labels: what it makes of the predictions of models of one label, and of the AUCs of logs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from sklearn.metrics import roc_auc_score
from tolerances import float64_sum

from benchmarks import labels


def test_two_separate_models_say_their_product_about_a_purchase() -> None:
    random = np.random.default_rng(0)
    click, after_click, other = random.random((3, 500))
    clicked = (random.random(500) < click).astype(int)
    purchased = clicked * (random.random(500) < after_click)
    scores = {
        "best": {"click": click, "after_click": after_click},
        "click": {"click": click},
        "purchase": {"purchase": other},
        "after_click": {"purchase": after_click},
        "esmm": {"click": other, "purchase": click * other, "after_click": other},
    }
    near = float64_sum(500)
    found = labels.areas_of(scores, pa.table({"clicked": clicked, "purchased": purchased}))
    assert found["click"] == near.approx(
        {"best": roc_auc_score(clicked, click), "separate": roc_auc_score(clicked, click),
         "esmm": roc_auc_score(clicked, other)}
    )  # fmt: skip
    product = roc_auc_score(purchased, click * after_click)
    assert found["purchase"] == near.approx(
        {"best": product, "separate": product, "purchase": roc_auc_score(purchased, other),
         "esmm": roc_auc_score(purchased, click * other)}
    )  # fmt: skip
    rows = clicked == 1
    assert found["purchase of the clicked"]["separate"] == near.approx(
        roc_auc_score(purchased[rows], after_click[rows])
    )


def test_differences_are_those_of_one_log() -> None:
    found = [
        {"click": {"best": 0.8, "separate": 0.7, "esmm": 0.75}},
        {"click": {"best": 0.9, "separate": 0.7, "esmm": 0.79}},
    ]
    facts = labels.facts(found, 1000)
    assert facts["click: esmm above separate"] == "0.0700 (standard error 0.0200)"
    assert facts["click: esmm above best"] == "-0.0800 (standard error 0.0300)"
