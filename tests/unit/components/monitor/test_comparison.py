"""Distances and tests: against closed forms, on identical distributions, and on changes of known size."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats
from tolerances import float64_sum

from components.monitor.comparison import compare
from components.monitor.config import MonitorConfig
from components.monitor.judgement import judge


def test_distances_of_texts_in_closed_form() -> None:
    reference = pa.array([b"a"] * 50 + [b"b"] * 30 + [b"c"] * 20)
    sample = pa.array([b"a"] * 20 + [b"b"] * 30 + [b"c"] * 40 + [b"d"] * 10)
    [compared] = compare({"x": reference}, {"x": sample})
    near = float64_sum(4)
    assert compared.distance == near.approx(0.3)
    assert compared.new == near.approx(0.1)
    shares = [(0.5, 0.2), (0.3, 0.3), (0.2, 0.4), (1e-4, 0.1)]
    assert compared.psi == near.approx(sum((q - p) * math.log(q / p) for p, q in shares))
    assert [(each.label, each.reference, each.sample) for each in compared.bins] == [
        ("a", 0.5, 0.2),
        ("b", 0.3, 0.3),
        ("c", 0.2, 0.4),
        ("d", 0.0, 0.1),
        ("others", 0.0, 0.0),
    ]
    table = np.array([[50, 30, 20, 0], [20, 30, 40, 10]])
    # One column, and two tests of it.
    assert compared.p_value == pytest.approx(
        2 * stats.chi2_contingency(table, correction=False)[1], rel=1e-6, abs=1e-12
    )


def test_distances_of_numbers_in_closed_form() -> None:
    reference = pa.array(np.arange(1_000) / 1_000)
    # All in the upper half: five of ten bins are empty, the others twice as full.
    sample = pa.array(0.5 + np.arange(1_000) / 2_000)
    [compared] = compare({"x": reference}, {"x": sample})
    p, q = np.full(10, 0.1), np.array([0.0] * 5 + [0.2] * 5)
    mean = (p + q) / 2
    expected = (np.sum(p * np.log2(p / mean)) + np.sum(q[5:] * np.log2(q[5:] / mean[5:]))) / 2
    assert compared.distance == pytest.approx(expected, abs=0.01)
    assert compared.p_value < 1e-20
    assert len(compared.bins) == 10


def test_few_numbers_are_compared_value_by_value() -> None:
    [compared] = compare({"x": pa.array([0, 0, 1, 1])}, {"x": pa.array([0, 1, 1, 7])})
    assert [(each.label, each.reference, each.sample) for each in compared.bins] == [
        ("0", 0.5, 0.25),
        ("1", 0.5, 0.5),
        ("7", 0.0, 0.25),
    ]


def test_missing_values_and_columns() -> None:
    reference = {"a": pa.array([1, 2, None, 4]), "b": pa.array([1.0, 2.0, 3.0, 4.0])}
    by_name = {each.name: each for each in compare(reference, {"a": pa.nulls(4, pa.int64())})}
    assert by_name["a"].missing == (0.25, 1.0)
    assert by_name["b"].missing == (0.0, 1.0)
    assert by_name["a"].distance is None


COLUMNS = 20
ROWS = 2_000
TEXTS = np.array([f"t{number}".encode() for number in range(201)], object)


def rows(random: np.random.Generator, count: int = ROWS) -> dict[str, pa.Array]:
    """Columns of several kinds, with missing values: symmetric, skewed, with ties, few values, texts with rare ones."""
    made = {}
    for at in range(COLUMNS):
        values = {
            0: lambda: random.normal(size=count),
            1: lambda: random.lognormal(size=count),
            2: lambda: np.maximum(random.normal(size=count), 0),
            3: lambda: random.integers(0, 8, count),
            4: lambda: TEXTS[random.zipf(1.5, count).clip(max=200)],
        }[at % 5]()
        made[f"c{at}"] = pa.array(values, mask=random.random(count) < 0.05)
    return made


@pytest.mark.extended
def test_false_alarms_are_as_rare_as_the_config_says() -> None:
    random = np.random.default_rng(0)
    judged = [judge(1, ROWS, ("r", rows(random)), rows(random), MonitorConfig()) for _ in range(200)]
    alarms = sum(any(each.p_value < 0.05 for each in one.columns) for one in judged)
    # Level 0.05: with 200 trials, 21 alarms or more have a probability below 0.1 % if the level holds.
    assert alarms <= 20
    assert sum(bool(one.findings) for one in judged) <= 2


@pytest.mark.parametrize(("shift", "detected"), [(0.0, False), (0.05, False), (1.0, True)])
def test_shift_of_known_size_is_found_in_its_column_alone(shift: float, detected: bool) -> None:
    random = np.random.default_rng(1)
    reference, sample = rows(random), rows(random)
    sample["c0"] = pa.array(np.asarray(sample["c0"].fill_null(0.0)) + shift)
    findings = judge(1, ROWS, ("r", reference), sample, MonitorConfig()).findings
    assert findings is not None
    assert {each.column for each in findings} == ({"c0"} if detected else set())


def test_what_is_new_missing_or_bounded_by_name_is_found() -> None:
    random = np.random.default_rng(2)
    reference, sample = rows(random), rows(random)
    texts = reference["c4"].to_pylist()
    sample["c4"] = pa.array([b"new" if at % 16 == 0 else text for at, text in enumerate(texts)])
    sample["c3"] = pa.array([None if at % 4 == 0 else value for at, value in enumerate(sample["c3"].to_pylist())])
    sample["c1"] = pc.multiply(sample["c1"], 1.3)
    judged = judge(1, ROWS, ("r", reference), sample, MonitorConfig(bounds={"c1": 0.005}))
    assert {(each.column, each.what) for each in judged.findings or ()} == {
        ("c4", "new values"),
        ("c3", "missing"),
        ("c1", "distance"),
    }


def test_too_few_rows_are_not_judged() -> None:
    random = np.random.default_rng(3)
    judged = judge(1, 100, ("r", rows(random)), rows(random, 100), MonitorConfig(least_rows=101))
    assert judged.findings is None
    assert len(judged.columns) == COLUMNS


def test_outputs_of_a_classification() -> None:
    def outputs(classes: list[str]) -> dict[str, pa.Array]:
        several = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * len(classes))), 2)
        return {"prediction": pa.array(classes), "embedding": several}

    (compared,) = compare(outputs(["a"] * 300 + ["b"] * 100), outputs(["a"] * 100 + ["c"] * 300))
    assert (compared.name, compared.distance, compared.new) == ("prediction", 0.75, 0.75)
    assert compared.p_value < 1e-9
