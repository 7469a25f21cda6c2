"""Tests of validating the `training` section."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from components.trainer.config import TrainingConfig


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"batch_size": 255, "strategy": {"kind": "multi_worker"}}, "expected a multiple of 2, received 255"),
        ({"batch_size": 255, "strategy": {"kind": "mesh", "data": 2}}, "expected a multiple of 2, received 255"),
        ({"batch_size": 2**31}, "less than or equal to 2147483647"),
        ({"strategy": {"place": {"a*": 1}}}, "place: expected kind mesh or multi_worker, received none"),
        (
            {"strategy": {"kind": "mesh", "place": {"a": 0, "b": 2}}},
            "place: expected all numbers from 0 to 2, received [0, 2]",
        ),
        ({"strategy": {"kind": "mesh", "micro_batches": 2}}, "micro_batches: expected place with micro_batches 2"),
        (
            {"batch_size": 12, "strategy": {"kind": "mesh", "data": 2, "place": {"a": 1}, "micro_batches": 4}},
            "strategy.data times strategy.micro_batches parts; expected a multiple of 8, received 12",
        ),
        (
            {"optimizer": {"accumulate": 2}, "strategy": {"kind": "mesh", "place": {"a": 1}, "micro_batches": 2}},
            "strategy.micro_batches: expected optimizer.accumulate 1, received 2",
        ),
        (
            {"batch_size": 15, "strategy": {"kind": "multi_worker", "workers": 3, "data": 2}},
            "strategy.data times strategy.workers parts; expected a multiple of 6, received 15",
        ),
        (
            {"precision": "mixed_bfloat16", "strategy": {"kind": "multi_worker", "model": 2}},
            "expected float32, which a mesh computes in",
        ),
        ({"folds": 3, "strategy": {"kind": "mesh", "place": {"a": 1}}}, "expected a single network, received folds 3"),
        ({"precision": "mixed_bfloat16", "strategy": {"kind": "mesh"}}, "expected float32, which a mesh computes in"),
        ({"precision": "mixed_float16", "strategy": {"kind": "parameter_server"}}, "choose mixed_bfloat16"),
        ({"tensorboard": {"profile": [20, 10]}}, "expected [first step, last step], received [20, 10]"),
        ({"tensorboard": {"profile": [20]}}, "expected [first step, last step], received [20]"),
        ({"strategy": {"kind": "horovod"}}, "'none', 'mirrored', 'multi_worker', 'parameter_server', 'mesh' or 'tpu'"),
        ({"strategy": {"workers": 0}}, "greater than 0"),
        ({"strategy": {"kind": "multi_worker", "max_workers": 4}}, "expected kind parameter_server, received multi"),
        (
            {"strategy": {"kind": "parameter_server", "workers": 2, "max_workers": 4, "min_workers": 3}},
            "expected min_workers <= workers <= max_workers, received 3, 2, 4",
        ),
        ({"checkpoint": {"keep": 0}}, "greater than 0"),
        (
            {"table_learning_rate": 0.05, "optimizer": {"kind": "sgd"}},
            "table_learning_rate: expected optimizer adam or adamw, received sgd; remove it",
        ),
        ({"optimizer": {"kind": "adamw"}}, "optimizer adamw: expected a weight_decay above 0, as 0.01; received 0"),
        (
            {"optimizer": {"kind": "ftrl"}, "warm_start": True},
            "optimizer ftrl: expected warm_start false, because it forgets initial weights",
        ),
    ],
)
def test_conflicting_fields_are_rejected(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TrainingConfig.model_validate(section)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "is_cluster"),
    [
        ("none", False),
        ("mirrored", False),
        ("mesh", False),
        ("tpu", False),
        ("multi_worker", True),
        ("parameter_server", True),
    ],
)
def test_strategies_with_several_processes_are_clusters(kind: str, is_cluster: bool) -> None:
    config = TrainingConfig.model_validate({"strategy": {"kind": kind}})
    assert config.strategy.is_cluster is is_cluster
