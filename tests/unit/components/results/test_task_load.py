"""Tests of the loads of a training's tasks: as JSON, and the remark about a ps that holds too much."""

from __future__ import annotations

import pytest

from components.results import task_load
from components.results.task_load import TaskLoad, describe_imbalance

MIB = 1 << 20


def create_loads(*sizes: int) -> list[TaskLoad]:
    servers = [TaskLoad(f"ps-{number}", 0, 0.0, 0, 0, size) for number, size in enumerate(sizes)]
    return [TaskLoad("chief-0", 10**9, 1.0, 0, 0, 0), *servers]


def test_loads_are_the_same_after_json() -> None:
    loads = (TaskLoad("ps-0", 1, 2.5, 3, 4, 5), TaskLoad("worker-0", 6, 7.25, 8, 9, 0))
    assert task_load.from_json(task_load.to_json(loads)) == loads


@pytest.mark.parametrize(
    ("sizes", "largest"),
    [
        ((300 * MIB, 100 * MIB, 100 * MIB), "ps-0"),
        ((100 * MIB, 100 * MIB, 201 * MIB), "ps-2"),
        # Twice the mean of the others is not more than twice.
        ((100 * MIB, 100 * MIB, 200 * MIB), None),
        ((90 * MIB, 0), "ps-0"),
        ((500 * MIB,), None),
        ((0, 0), None),
        # So little does not matter.
        ((63 * MIB, 0), None),
        ((), None),
    ],
)
def test_ps_that_holds_more_than_twice_the_mean_of_the_others_is_described(
    sizes: tuple[int, ...], largest: str | None
) -> None:
    remark = describe_imbalance(create_loads(*sizes))
    assert (remark.partition(" ")[0] if remark else None) == largest
    if remark:
        assert "training.strategy.partitioner" in remark


def test_remark_has_the_sizes() -> None:
    remark = describe_imbalance(create_loads(400_000_000, 100_000_000, 50_000_000))
    assert remark
    assert remark.startswith("ps-0 holds 400 MB of variables, each of the other 2 ps 75 MB on average: ")
