"""Tests of the tables of the elastic benchmark: losses at points of the curve, and steps per worker and phase."""

from __future__ import annotations

from benchmarks import elastic
from benchmarks.elastic import Trained


def test_table_has_means_and_standard_deviations_over_seeds() -> None:
    first_seed = Trained({100: 0.5, 600: 0.2}, 0.94, [])
    # Here ten steps of a lost worker were repeated, so the curve ends at step 610.
    second_seed = Trained({100: 0.7, 610: 0.4}, 0.96, [])
    _, _, line = elastic.format_table({"a side": [first_seed, second_seed]}, 600)
    assert line.startswith("| a side | 0.6000 ± 0.1414 |")
    assert line.endswith("| 0.3000 ± 0.1414 | 0.95000 ± 0.01414 |")


def test_phase_counts_the_steps_since_the_previous_phase() -> None:
    steps = [{"worker-0": 50}, {"worker-0": 80, "worker-3": 20}, {"worker-0": 80, "worker-3": 70}]
    assert elastic._phases([Trained({}, 0.9, steps)]) == ["seed 1: 0:50 | 0:30 3:20 | 3:50"]
