"""Every kind of network trains in 16 bits on several workers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from components.models.config import ITEM_TO_ITEM_KINDS
from components.models.registry import MODELS
from tests.support.programs import mixed_steps
from tests.support.servers.in_fork_server import in_child

KINDS = [kind for kind in MODELS if kind not in ("ensemble", "two_tower", "autoencoder", *ITEM_TO_ITEM_KINDS)]
MODELS_OF_KINDS: list[dict[str, Any]] = [
    {"kind": kind, **({"application": "EfficientNetB0"} if kind == "application" else {})} for kind in KINDS
]


@pytest.mark.slow
@pytest.mark.both_lines
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_every_kind_trains_in_16_bits_on_two_workers(policy: str, tmp_path: Path) -> None:
    results = in_child(tmp_path / "node.log", mixed_steps.main, tmp_path, policy, MODELS_OF_KINDS)
    assert len(results) == len(KINDS)
    for model, result in results.items():
        assert result["variables"] == ["float32"], model
        assert result["logits"] == "float32", model
        assert all(math.isfinite(loss) for loss in result["losses"]), model
        assert len(set(result["losses"])) > 1, f"{model} does not change"
        if "linear" not in model:
            assert policy.removeprefix("mixed_") in result["layers"], model
