"""Tests that tables of IDs are divided as configured, on real ps, and that this does not change a training."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.models.table_sizes import TableSize
from components.trainer.config import StrategyConfig
from components.trainer.table_memory import compute_ps_bytes
from tests.support.data.tolerances import float32_sum
from tests.support.servers.in_fork_server import in_child, main_of

pytestmark = [pytest.mark.both_lines, pytest.mark.extended]

STEPS = 5
ROWS = {"embedding_8/rows": 751 + 1000, "embedding_8/quotients": 4, "embedding_4/rows": 300}
"""Variable of the tables of sharded_tables → its number of rows; 3,001 IDs in four quotients have 751 remainders."""
FIRST: dict[str, Any] = {
    "partitioner": "max_size",
    "shard_over_mb": 0.001,
    "tables": {"embedding_8": {"partitioner": "fixed", "shards": 5}, "wide": {"partitioner": "hash"}},
}
SECOND: dict[str, Any] = {"partitioner": "hash", "tables": {"embedding_4": {"partitioner": "min_size"}}}


def train(
    folder: Path, servers: int, saves: bool, strategy: dict[str, Any] | None, steps: int = STEPS
) -> dict[str, Any]:
    values: dict[str, Any] = in_child(
        folder / f"{servers}.log",
        main_of,
        "sharded_tables",
        str(folder / "checkpoints"),
        servers,
        saves,
        strategy,
        steps,
    )
    return values


def divide(rows: int, shards: int) -> list[int]:
    return [rows // shards + (shard < rows % shards) for shard in range(shards)]


def test_tables_are_divided_and_placed_as_configured_and_trained_and_restored_as_whole_ones(tmp_path: Path) -> None:
    three = train(tmp_path, 3, True, FIRST)
    alone = train(tmp_path, 0, False, None)
    two = train(tmp_path, 2, False, SECOND)
    expected = {
        # More shards than ps, but a variable of four rows has only four.
        "embedding_8/rows": divide(ROWS["embedding_8/rows"], 5),
        "embedding_8/quotients": divide(4, 4),
        # 4,800 bytes in shards of 1,048 bytes.
        "embedding_4/rows": divide(300, 5),
        "wide/rows": [751 + 1000 + 300],
        "wide/quotients": [4],
    }
    for name, sizes in expected.items():
        first = zlib.crc32(name.partition("/")[0].encode()) % 3
        assert three[f"{name}/sizes"] == sizes
        places = [f"ps/replica:0/task:{(first + shard) % 3}/device:CPU:0" for shard in range(len(sizes))]
        assert three[f"{name}/shards"] == places
        assert three[f"{name}/slots"][::2] == places
        assert two[f"{name}/sizes"] == [sum(sizes)]
        assert two[f"{name}/shards"] == [
            f"ps/replica:0/task:{zlib.crc32(name.partition('/')[0].encode()) % 2}/device:CPU:0"
        ]
    assert_predicted(three)
    # The sums of a step have other orders, and the steps of Adam are at most about its learning rate.
    tolerance = float32_sum(3001 * STEPS, largest=4.0)
    for trained in (three, two):
        for name in expected:
            for part in (name, f"{name}/0", f"{name}/1"):
                tolerance.assert_close(trained[part], alone[part])
        for weights, whole in zip(trained["weights"], alone["weights"], strict=True):
            tolerance.assert_close(weights, whole)


def test_gradients_of_tables_in_16_bits_are_half_of_the_bytes(tmp_path: Path) -> None:
    steps, short = 20, {**FIRST, "gradient_dtype": "bfloat16"}
    full = train(tmp_path, 3, True, FIRST, steps)
    half = train(tmp_path, 3, False, short, steps)
    # Every row of every table has a gradient in every step: 17,295 numbers, which are 2 bytes smaller each.
    numbers = 8 * (751 + 1000 + 4) + 4 * 300 + (751 + 1000 + 300 + 4)
    saved = full["sent"] - half["sent"]
    assert saved == pytest.approx(2 * numbers * (steps - 1), rel=0.1, abs=1e4)
    assert half["loss"] == pytest.approx(full["loss"], rel=1e-3, abs=1e-3)
    assert not np.array_equal(half["embedding_8/rows"], full["embedding_8/rows"]), "they were rounded"
    # A step of Adam is at most about its learning rate, so the rows stay close.
    np.testing.assert_allclose(half["embedding_8/rows"], full["embedding_8/rows"], rtol=0, atol=0.01 * steps / 2)


def assert_predicted(trained: dict[str, Any]) -> None:
    """Check that `plan` computes the bytes of the real shards, with two moments each."""
    config = StrategyConfig.model_validate({"kind": "parameter_server", "ps": 3, **FIRST})
    tables = [
        TableSize("user", "embedding", 751, 8, False, 3, "embedding_8"),
        TableSize("user", "quotients of embedding", 4, 8, False, 3, "embedding_8"),
        TableSize("item", "embedding", 1000, 8, False, 3, "embedding_8"),
        TableSize("site", "embedding", 300, 4, False, 3, "embedding_4"),
    ]
    widths = {"embedding_8": 8, "embedding_4": 4}
    real = {table: np.zeros(3, np.int64) for table in widths}
    for name in ROWS:
        table = name.partition("/")[0]
        for rows, place in zip(trained[f"{name}/sizes"], trained[f"{name}/shards"], strict=True):
            real[table][int(place.split("task:")[1][0])] += 3 * 4 * widths[table] * rows
    predicted = compute_ps_bytes(config, tables)
    assert predicted == {table: tuple(sizes) for table, sizes in real.items()}
