"""Tests of the memory that embedding tables need in every task, and of rejecting tables that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.models.table_sizes import TableSize
from components.trainer import table_memory
from components.trainer.config import StrategyConfig, TrainingConfig
from components.trainer.plan import TrainingPlan
from components.trainer.strategy import _create_partitioner
from components.trainer.table_memory import compute_task_memory, count_shards, find_misfit, parse_quantity

MIB = 1 << 20
TABLES = [TableSize("user", "embedding", MIB, 8, False, 3), TableSize("item", "embedding", MIB, 8, False, 3)]
"""The tables have 64 MiB of weights, and 192 MiB with the moments of Adam."""


def training(**fields: Any) -> TrainingConfig:
    return TrainingConfig.model_validate(fields)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({"kind": "none"}, {"process": (1, 192)}),
        ({"kind": "multi_worker", "workers": 3}, {"worker": (3, 192)}),
        ({"kind": "parameter_server", "ps": 4}, {"ps": (4, 48), "chief": (1, 64)}),
        # The tables are smaller than shard_over_mb, so they are not divided.
        ({"kind": "parameter_server", "ps": 4, "shard_over_mb": 100}, {"ps": (4, 192), "chief": (1, 64)}),
        # Every table has seven shards, so that the fullest of six ps holds two shards per table.
        (
            {"kind": "parameter_server", "ps": 6, "shard_over_mb": 10, "partitioner": "max_size"},
            {"ps": (6, 2 * 192 / 7), "chief": (1, 64)},
        ),
        ({"kind": "mesh", "data": 2, "model": 4}, {"process": (1, 192), "device": (8, 48)}),
        ({"kind": "mesh", "data": 2, "model": 3}, {"process": (1, 192), "device": (6, 64)}),
        # Each of the two copies has the moments of a half of the weights.
        ({"kind": "mesh", "data": 2, "model": 4, "shard_optimizer": True}, {"process": (1, 192), "device": (8, 32)}),
    ],
)
def test_memory_is_computed_for_every_task(strategy: dict[str, Any], expected: dict[str, tuple[int, float]]) -> None:
    task_memory = compute_task_memory(StrategyConfig.model_validate(strategy), TABLES)
    assert {memory.task: memory.count for memory in task_memory} == {
        task: count for task, (count, _) in expected.items()
    }
    for memory in task_memory:
        assert memory.bytes / MIB == pytest.approx(expected[memory.task][1], rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("partitioner", ["fixed", "min_size", "max_size"])
@pytest.mark.parametrize("rows", [2, 1000, 300_000, 5_000_000])
def test_number_of_shards_equals_the_partitioner_of_tensorflow(partitioner: Any, rows: int) -> None:
    config = StrategyConfig(kind="parameter_server", ps=3, partitioner=partitioner, shard_over_mb=2)
    from components.models import sharding

    with sharding.table():
        parts = _create_partitioner(config, 3)(tf.TensorShape([rows, 16]), tf.float32)
    assert parts == [count_shards(config, rows, rows * 64), 1]


def test_tasks_of_a_local_cluster_share_the_machine() -> None:
    two = training(strategy={"kind": "multi_worker"})
    assert find_misfit(two, TABLES, 2 * 192 * MIB) == ""
    reason = find_misfit(two, TABLES, 2 * 192 * MIB - 1)
    assert "received 0.4 GiB in training: 2 worker with 0.2 GiB each" in reason


@pytest.mark.parametrize(("memory", "fits"), [("200Mi", True), ("190Mi", False), (10**9, True), ("much", True)])
def test_task_of_a_job_has_the_memory_that_it_requests(memory: str | int, fits: bool) -> None:
    where = {"kind": "jobset", "image": "i", "resources": {"memory": memory}}
    reason = find_misfit(training(where=where), TABLES, machine=1)
    assert (reason == "") is fits
    if not fits:
        assert "expected at most the 0.2 GiB that training.where requests for each " in reason


@pytest.mark.parametrize(
    ("text", "expected"), [("16Gi", 16 << 30), ("1.5M", 1_500_000), ("7", 7), (8, 8), (None, None), ("16GB", None)]
)
def test_parse_quantity_understands_quantities_of_kubernetes(text: str | int | None, expected: int | None) -> None:
    assert parse_quantity(text) == expected


def test_trainer_rejects_tables_that_do_not_fit_once_vocabularies_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("transform_fn/assets", "transformed_metadata"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "transform_fn/assets/vocabulary_item_vocab").write_text("x\n" * 998)
    names = {"item_vocab": "/elsewhere/vocabulary_item_vocab"}
    (tmp_path / "transformed_metadata/asset_map").write_text(json.dumps(names))
    features = FeaturesConfig.model_validate({"columns": {"item": {"vocab": {"embedding": 4}}}})
    plan = TrainingPlan(
        features=FeaturePlan(features=features, labels=(Label("clicked"),), task="binary"),
        model=ModelConfig(kind="mlp"),
        training=training(),
    )
    needed = 1000 * 4 * 4 * 3
    monkeypatch.setattr(table_memory, "memory", lambda: (needed, 0))
    table_memory.check(plan, str(tmp_path))
    monkeypatch.setattr(table_memory, "memory", lambda: (needed - 1, 0))
    with pytest.raises(InputError, match=r"the largest is that of 'item_vocab': 1,000 rows of 4 numbers") as raised:
        table_memory.check(plan, str(tmp_path))
    assert "quotient_remainder" in raised.value.remedy
