"""The benchmark of quality: its tables are what they say, and both sides answer for the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import quality
from benchmarks.quality_tables import TABLES


@pytest.mark.parametrize("name", [name for name in TABLES if name != "taxi"])
def test_table_has_a_label_for_each_row_and_hides_it(name: str) -> None:
    sample = TABLES[name]()
    truth, seen = sample.truth(), sample.features()
    assert len(truth) == len(seen) == len(sample.rows)
    assert sample.label not in seen.columns
    assert np.isfinite(truth).all()
    assert len(np.unique(truth)) == 2 if sample.task == "binary" else len(np.unique(truth)) > 2


def test_tails_are_nine_tenths_zeros_and_then_long() -> None:
    rows = TABLES["tails"]().rows
    for number in range(3):
        amounts = rows[f"amount_{number}"]
        assert (amounts == 0).mean() == pytest.approx(0.9, abs=0.02)
        assert amounts.max() > 20 * amounts[amounts > 0].median()


@pytest.mark.slow
def test_both_sides_answer_for_the_same_rows() -> None:
    ((ours, theirs, taken),) = quality._compared("wine", TABLES["wine"](), seeds=1)
    assert 0.85 < ours <= 1
    assert 0.85 < theirs <= 1
    assert taken.cpu > 0
