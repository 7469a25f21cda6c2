"""Tests of the memory that embedding tables need in every task, and of rejecting tables that do not fit."""

from __future__ import annotations

import binascii
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from pydantic import ValidationError

from components.base.errors import InputError
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models import sharding
from components.models.config import ModelConfig
from components.models.table_sizes import TableSize
from components.trainer import table_memory
from components.trainer.config import StrategyConfig, TrainingConfig
from components.trainer.plan import TrainingPlan
from components.trainer.strategy import create_partitioner
from components.trainer.table_memory import (
    compute_ps_bytes,
    compute_task_memory,
    count_shards,
    find_misfit,
    parse_quantity,
)

MIB = 1 << 20
HASH = {"partitioner": "hash"}
TABLES = [TableSize(name, "embedding", MIB, 8, False, 3, "embedding_8") for name in ("user", "item")]
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


@pytest.mark.parametrize(
    "partition",
    [
        {"partitioner": "fixed"},
        {"partitioner": "fixed", "shards": 5},
        {"partitioner": "min_size"},
        {"partitioner": "min_size", "shard_over_mb": 0.01},
        {"partitioner": "max_size"},
        {"partitioner": "max_size", "shard_over_mb": 7.5},
        {"partitioner": "hash"},
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [2, 1000, 300_000, 5_000_000])
@pytest.mark.parametrize("is_default", [True, False])
def test_number_of_shards_equals_the_partitioner_of_tensorflow(
    partition: dict[str, Any], rows: int, is_default: bool
) -> None:
    fields = {"kind": "parameter_server", "ps": 3, "shard_over_mb": 2}
    fields |= partition if is_default else {"partitioner": "max_size", "tables": {"wide": partition}}
    config = StrategyConfig.model_validate(fields)
    partitioner, shape = create_partitioner(config, 3), tf.TensorShape([rows, 16])
    with sharding.table("wide"):
        assert partitioner(shape, tf.float32) == [count_shards(config, "wide", rows, rows * 64), 1]
    # Other tables have the default, and other variables are not divided.
    with sharding.table("embedding_16"):
        assert partitioner(shape, tf.float32) == [count_shards(config, "embedding_16", rows, rows * 64), 1]
    assert partitioner(shape, tf.float32) == [1, 1]


def test_bytes_of_each_ps_are_those_of_its_shards() -> None:
    fields = {"kind": "parameter_server", "ps": 3, "shard_over_mb": 0.01}
    config = StrategyConfig.model_validate({**fields, "tables": {"wide": {"partitioner": "fixed", "shards": 2}}})
    tables = [
        TableSize("user", "embedding", 1000, 8, False, 3, "embedding_8"),
        TableSize("item", "embedding", 1001, 8, False, 3, "embedding_8"),
        TableSize("item", "quotients of embedding", 7, 8, False, 3, "embedding_8"),
        TableSize("user", "weights", 11, 1, False, 3, "wide"),
    ]
    begins = {name: binascii.crc32(name.encode()) % 3 for name in ("embedding_8", "wide")}
    expected = {"embedding_8": [0] * 3, "wide": [0] * 3}
    # 2,001 rows in three shards; seven rows of quotients are smaller than a shard; eleven weights in two shards.
    for shard, rows in enumerate((667, 667, 667)):
        expected["embedding_8"][(begins["embedding_8"] + shard) % 3] += rows * 8 * 4 * 3
    expected["embedding_8"][begins["embedding_8"]] += 7 * 8 * 4 * 3
    for shard, rows in enumerate((6, 5)):
        expected["wide"][(begins["wide"] + shard) % 3] += rows * 4 * 3
    assert compute_ps_bytes(config, tables) == {name: tuple(sizes) for name, sizes in expected.items()}
    [servers, _] = compute_task_memory(config, tables)
    assert servers.bytes == max(map(sum, zip(*expected.values(), strict=True)))
    # Two networks have tables of 1,000 rows each, in shards of 334, 333 and 333 rows.
    doubled = [replace(table, rows=2 * table.rows) for table in tables[:1]]
    [sizes] = compute_ps_bytes(config, doubled, networks=2).values()
    assert sorted(sizes) == [2 * rows * 8 * 4 * 3 for rows in (333, 333, 334)]


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ({"shards": 4}, "shards: expected partitioner fixed, received min_size"),
        ({"tables": {"wide": {**HASH, "shards": 4}}}, "shards: expected partitioner fixed, received hash"),
        ({"tables": {"wide": {**HASH, "shard_over_mb": 4}}}, "shard_over_mb: expected partitioner min_size"),
        ({"kind": "none", "tables": {"wide": HASH}}, "tables: expected kind parameter_server"),
        ({"kind": "multi_worker", "gradient_dtype": "bfloat16"}, "gradient_dtype: expected kind parameter_server"),
    ],
)
def test_options_without_an_effect_are_refused(strategy: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        StrategyConfig.model_validate({"kind": "parameter_server", **strategy})


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
    tables = {"wide": {"partitioner": "hash"}}
    strategy = StrategyConfig.model_validate({"kind": "parameter_server", "tables": tables})
    other = plan.model_copy(update={"training": plan.training.model_copy(update={"strategy": strategy})})
    with pytest.raises(InputError, match=r"training.strategy.tables: expected embedding_4, received wide"):
        table_memory.check(other, str(tmp_path))
