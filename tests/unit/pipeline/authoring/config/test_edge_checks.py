"""Tests for variants for small devices that are incompatible with other sections of the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError
from pipeline.authoring.config import load
from tests.support.data import people


def write_config(folder: Path, variant: dict[str, Any], **sections: Any) -> Path:
    return people.project(folder, edge=[variant], **sections)


@pytest.mark.parametrize(
    ("variant", "sections", "message"),
    [
        ({"kind": "qat"}, {"training": {"folds": 3, "steps": 10}}, "training.folds makes several; remove one of both"),
        ({"kind": "distilled", "student": {"kind": "cnn"}}, {}, "cnn reads images; give a column the operation image"),
        (
            {"kind": "distilled", "student": {"kind": "mlp", "loss": "huber"}},
            {},
            "a binary has focal, listwise, received huber",
        ),
        (
            {"kind": "distilled", "student": {"kind": "two_tower", "item": ["age"]}},
            {},
            "expected a kind of a classification or a regression, received two_tower",
        ),
        (
            {"kind": "distilled", "student": {"kind": "autoencoder"}},
            {},
            "expected a kind of a classification or a regression, received autoencoder",
        ),
        (
            {"kind": "pruned", "channels": 0.5},
            {"model": {"kind": "linear"}},
            "linear has no units that can be removed; remove channels, or change the model",
        ),
        (
            {"kind": "distilled", "student": {"kind": "mlp", "normalisation": "layer"}, "channels": 0.5},
            {},
            "mlp with normalisation: layer has no units that can be removed",
        ),
        ({}, {"model": {"kind": "gbt"}}, "expected a network of model.kind or model.build, received gbt"),
    ],
)
def test_incompatible_variants_are_rejected(
    tmp_path: Path, variant: dict[str, Any], sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as raised:
        load(str(write_config(tmp_path, variant, **sections)))
    assert message in str(raised.value)


def test_variants_can_be_combined(tmp_path: Path) -> None:
    variant = {"kind": "distilled", "student": {"kind": "mlp"}, "sparsity": "2:4", "clusters": 16, "qat": True}
    (loaded,) = load(str(write_config(tmp_path, variant))).config.edge
    assert loaded.name == "distilled_mlp_pruned_2of4_clustered_16_qat"
