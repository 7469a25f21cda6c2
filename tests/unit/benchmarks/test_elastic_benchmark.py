"""The tables of the elastic benchmark: the loss at points of the curve, and the steps of each worker by phase."""

from __future__ import annotations

from benchmarks import elastic
from benchmarks.elastic import Trained


def test_table_has_means_and_deviations_over_the_seeds() -> None:
    one = Trained({100: 0.5, 600: 0.2}, 0.94, [])
    # Ten steps of a lost worker were repeated.
    other = Trained({100: 0.7, 610: 0.4}, 0.96, [])
    _, _, line = elastic.format_table({"a side": [one, other]}, 600)
    assert line.startswith("| a side | 0.6000 ± 0.1414 |")
    assert line.endswith("| 0.3000 ± 0.1414 | 0.95000 ± 0.01414 |")


def test_steps_of_a_phase_are_those_since_the_last_one() -> None:
    steps = [{"worker-0": 50}, {"worker-0": 80, "worker-3": 20}, {"worker-0": 80, "worker-3": 70}]
    assert elastic._phases([Trained({}, 0.9, steps)]) == ["seed 1: 0:50 | 0:30 3:20 | 3:50"]
