"""Tests of the settings that vocabularies with keep_runs need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring.config import load


def load_config(folder: Path, **sections: Any) -> Any:
    config = {
        "data": {"path": "shown.csv", "label": "clicked"},
        "features": {"columns": {"user": {"vocab": {"keep_runs": 3}}}},
        "training": {"warm_start": True},
        "evaluation": {"thresholds": {"auc": {"min": 0.5}}},
        **sections,
    }
    (folder / "shop.yaml").write_text(yaml.safe_dump(config))
    return load(str(folder / "shop.yaml")).config


def test_vocabulary_remembers_with_a_warm_start(tmp_path: Path) -> None:
    assert load_config(tmp_path).features.remembers
    assert not load_config(tmp_path, features={"columns": {"user": "vocab"}}).features.remembers


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"training": {}}, "keep_runs: expected training.warm_start, which starts from the earlier model; add it"),
        (
            {"data": {"path": "day-{SPAN}.csv", "label": "clicked", "spans": {"latest": 7}}},
            "keep_runs: expected runs that read different rows, as with data.spans {latest: 1}, received several spans",
        ),
        (
            {"runtime": {"vectorised": ["Evaluator"]}},
            "TFX's executor of Transform does not compute vocab with keep_runs",
        ),
    ],
)
def test_incompatible_sections_are_rejected(tmp_path: Path, sections: Any, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        load_config(tmp_path, **sections)
    assert message in " | ".join(refusal.value.details or (refusal.value.headline,))
