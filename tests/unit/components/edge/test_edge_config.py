"""Tests of the section `edge`: kinds of variants, combinations of options, names and defaults."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from components.edge.config import EdgeConfig, VariantConfig

STUDENT = {"kind": "mlp"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "tflite_none"),
        ({"quantize": "int16x8"}, "tflite_int16x8"),
        ({"kind": "qat", "max_difference": 0.1}, "qat"),
        ({"kind": "pruned", "sparsity": 0.8}, "pruned_0.8"),
        ({"kind": "pruned", "sparsity": "2:4", "quantize": "int8"}, "pruned_2of4_int8"),
        ({"kind": "pruned", "channels": 0.5, "quantize": "int8"}, "pruned_channels_0.5_int8"),
        (
            {"kind": "distilled", "student": STUDENT, "channels": 0.25, "sparsity": 0.8, "qat": True},
            "distilled_mlp_pruned_channels_0.25_pruned_0.8_qat",
        ),
        ({"kind": "pruned", "sparsity": 0.5, "clusters": 16, "qat": True}, "pruned_0.5_clustered_16_qat"),
        ({"kind": "clustered", "clusters": 16, "quantize": "dynamic"}, "clustered_16_dynamic"),
        ({"kind": "distilled", "student": STUDENT}, "distilled_mlp"),
        (
            {"kind": "distilled", "student": {"build": "a.b"}, "sparsity": 0.8, "qat": True},
            "distilled_own_pruned_0.8_qat",
        ),
        ({"kind": "distilled", "student": STUDENT, "file": "small"}, "small"),
    ],
)
def test_name_of_a_variant_contains_its_options(options: dict[str, Any], name: str) -> None:
    variant = VariantConfig(**options)
    assert variant.name == name
    # Plans are recorded without defaults, and sent to processes with all fields. Both must be readable.
    for recorded in (variant.model_dump_json(exclude_unset=True), variant.model_dump_json()):
        assert VariantConfig.model_validate_json(recorded) == variant


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "pruned"}, "kind: pruned needs sparsity or channels"),
        ({"kind": "pruned", "channels": 1.0}, "Input should be less than 1"),
        ({"kind": "qat", "channels": 0.5}, "channels: expected kind pruned or distilled, received qat"),
        ({"kind": "pruned", "channels": 0.5, "pruning": {"end": 0.5}}, "pruning: expected a sparsity, received none"),
        ({"kind": "pruned", "sparsity": 1.5}, "expected a number between 0 and 1"),
        (
            {"kind": "clustered", "clusters": 16, "sparsity": 0.5},
            "sparsity: expected kind pruned or distilled, received clustered; remove sparsity",
        ),
        ({"steps": 10}, "steps: expected kind pruned, clustered, qat or distilled, received tflite; remove steps"),
        ({"kind": "qat", "quantize": "float16"}, "expected int8 with qat"),
        (
            {"kind": "distilled", "student": {"kind": "gbt"}},
            "student: expected a network, received trees, a run_fn or train",
        ),
    ],
)
def test_options_without_effect_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        VariantConfig(**options)


def test_trained_variants_have_wider_bounds() -> None:
    assert (VariantConfig().max_mean_difference, VariantConfig().max_difference) == (0.01, 0.1)
    assert (VariantConfig(kind="qat").max_mean_difference, VariantConfig(kind="qat").max_difference) == (0.05, None)
    assert VariantConfig(kind="qat", max_difference=0.2).max_difference == 0.2


def test_variants_with_the_same_name_require_a_file() -> None:
    section = TypeAdapter(EdgeConfig)
    twice: list[dict[str, Any]] = [{"kind": "qat", "steps": 10}, {"kind": "qat", "steps": 20}]
    with pytest.raises(ValidationError, match="received qat more than once"):
        section.validate_python(twice)
    assert [variant.name for variant in section.validate_python([twice[0], {**twice[1], "file": "qat_long"}])] == [
        "qat",
        "qat_long",
    ]
