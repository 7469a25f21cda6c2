"""Tests of the figures that the embedding tables benchmark computes from the records of its variants."""

from __future__ import annotations

from typing import Any

from benchmarks.embedding_tables import facts
from benchmarks.measure import Spread


def steps(wall: float, **cpu: float) -> dict[str, Any]:
    return {
        "wall": wall,
        "steps": 100,
        "tasks": {name: {"cpu": seconds, "mb": 10 * seconds} for name, seconds in cpu.items()},
    }


def test_variants_are_compared_round_by_round() -> None:
    records = {
        "one process": [steps(2, process=4), steps(3, process=4)],
        "2 workers, 2 ps": [steps(1, worker=1, ps=1), steps(6, worker=3, ps=1)],
        "2 workers, 2 ps, repeated rows": [steps(2, worker=3, ps=1), steps(6, worker=3, ps=1)],
        "checkpoint, waiting": [
            {
                "mb": 5,
                "written": 3,
                "alone": {"longest": 0.5, "steps_per_second": 10},
                "meanwhile": {"longest": 4, "steps_per_second": 2},
                "memory_alone": {"ps": 10},
                "memory": {"ps": 30},
            }
        ],
    }
    figures = facts(records)
    assert figures["one process: steps per second"] == Spread(41.6667, 33.3333, 50)
    assert figures["2 workers, 2 ps over one process: wall time"] == Spread(1.25, 0.5, 2)
    assert figures["2 workers, 2 ps over repeated rows: CPU"] == Spread(0.75, 0.5, 1)
    assert figures["2 workers, 2 ps, repeated rows: worker"] == "30.0 (30.0 to 30.0) CPU-ms per step, 30 MiB"
    assert figures["checkpoint, waiting: longest time between calls with it, s"] == Spread(4, 4, 4)
    assert figures["checkpoint, waiting: ps"] == "10 MiB without it, 30 MiB at most"
