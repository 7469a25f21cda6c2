"""Tests for the directions of columns that trees keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring.config import Config, load


def load_config(folder: Path, model: dict[str, Any], size: Any = "z_score", task: str = "regression") -> Config:
    sections = {
        "data": {"path": "homes.csv", "label": "price", "task": task},
        "features": {"columns": {"size": size, "street": "vocab"}},
        "model": {"kind": "gbt", **model},
        "evaluation": {"thresholds": {"crossentropy" if task == "multiclass" else "mean_squared_error": {"max": 9}}},
    }
    path = folder / "homes.yaml"
    path.write_text(yaml.safe_dump(sections))
    return load(str(path)).config


def test_direction_of_a_column_of_numbers(tmp_path: Path) -> None:
    config = load_config(
        tmp_path, {"monotone": {"size": "increasing"}}, ["z_score", {"piecewise_linear": {}}, "missing"]
    )
    assert config.model.monotone == {"size": "increasing"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": {"monotone": {"size": "up"}}}, "expected one of increasing, decreasing, received 'up'"),
        ({"model": {"monotone": {"sice": "increasing"}}}, "received 'sice'; did you mean 'size'?"),
        ({"model": {"monotone": {"street": "increasing"}}}, "keep the order of its numbers, received vocab"),
        ({"model": {"monotone": {"size": "increasing"}}, "size": ["z_score", "vocab"]}, "received vocab"),
        ({"model": {"monotone": {"size": "increasing"}}, "size": "missing"}, "received missing"),
        ({"model": {"monotone": {"size": "increasing"}}, "task": "multiclass"}, "a binary label or a regression"),
        (
            {"model": {"kind": "tabm", "monotone": {"size": "increasing"}}},
            "monotone: expected kind gbt, received tabm; remove monotone",
        ),
    ],
)
def test_direction_that_cannot_be_kept_is_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        load_config(tmp_path, **fields)
    assert message in " | ".join((refusal.value.headline, *(refusal.value.details or ())))
