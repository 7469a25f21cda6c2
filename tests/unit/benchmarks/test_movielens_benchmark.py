"""Tests of the MovieLens benchmark: its reference metrics, computed by hand, and its configs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import movielens
from pipeline.authoring.config import Config


def test_metrics_are_means_over_users() -> None:
    train = pd.DataFrame({"user": [1, 1, 2, 2, 3], "item": [10, 11, 10, 12, 10]})
    held_out = pd.DataFrame({"user": [1, 2, 2], "item": [12, 11, 99]})
    recall, gain = movielens.evaluate(train, held_out)["popularity"]
    # Each user has one unseen item, which ranks first. User 2 also has an item that is not in the training split.
    assert recall == pytest.approx((1 + 1 / 2) / 2, abs=1e-12)
    assert gain == pytest.approx((1 + 1 / (1 + 1 / np.log2(3))) / 2, abs=1e-12)


@pytest.mark.parametrize("name", movielens.MODELS)
def test_configs_are_valid(name: str, tmp_path: Path) -> None:
    sections = movielens.config(tmp_path, movielens.MODELS[name])
    config = Config.model_validate({"pipeline": {"name": "movielens"}, **sections})
    assert config.model.kind == name
