"""Tests of comparing distributions: closed forms, false alarms on equal distributions, and changes of known size."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats

from components.data.column_comparison import compare
from components.monitor.config import MonitorConfig
from components.monitor.judgement import judge
from tests.support.data.tolerances import float64_sum


def test_distances_of_texts_equal_the_closed_form() -> None:
    reference = pa.array([b"a"] * 50 + [b"b"] * 30 + [b"c"] * 20)
    sample = pa.array([b"a"] * 20 + [b"b"] * 30 + [b"c"] * 40 + [b"d"] * 10)
    [compared] = compare({"x": reference}, {"x": sample})
    near = float64_sum(4)
    assert compared.distance == near.approx(0.3)
    assert compared.new == near.approx(0.1)
    shares = [(0.5, 0.2), (0.3, 0.3), (0.2, 0.4), (1e-4, 0.1)]
    assert compared.psi == near.approx(sum((q - p) * math.log(q / p) for p, q in shares))
    assert [(bin_.label, bin_.reference, bin_.sample) for bin_ in compared.bins] == [
        ("a", 0.5, 0.2),
        ("b", 0.3, 0.3),
        ("c", 0.2, 0.4),
        ("d", 0.0, 0.1),
        ("others", 0.0, 0.0),
    ]
    table = np.array([[50, 30, 20, 0], [20, 30, 40, 10]])
    # There is one column with two tests, so the Bonferroni correction doubles the p-value.
    assert compared.p_value == pytest.approx(
        2 * stats.chi2_contingency(table, correction=False)[1], rel=1e-6, abs=1e-12
    )


def test_distances_of_numbers_equal_the_closed_form() -> None:
    reference = pa.array(np.arange(1_000) / 1_000)
    # All values are in the upper half: five of ten bins are empty, and the others have twice as many values.
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
    assert [(bin_.label, bin_.reference, bin_.sample) for bin_ in compared.bins] == [
        ("0", 0.5, 0.25),
        ("1", 0.5, 0.5),
        ("7", 0.0, 0.25),
    ]


def test_missing_values_and_missing_columns_are_reported() -> None:
    reference = {"a": pa.array([1, 2, None, 4]), "b": pa.array([1.0, 2.0, 3.0, 4.0])}
    by_name = {column.name: column for column in compare(reference, {"a": pa.nulls(4, pa.int64())})}
    assert by_name["a"].missing == (0.25, 1.0)
    assert by_name["b"].missing == (0.0, 1.0)
    assert by_name["a"].distance is None


COLUMNS = 20
ROWS = 2_000
TEXTS = np.array([f"t{number}".encode() for number in range(201)], object)


def rows(random: np.random.Generator, count: int = ROWS) -> dict[str, pa.Array]:
    """Return columns with missing values: symmetric, skewed, with ties, with few values, and with rare texts."""
    columns = {}
    for number in range(COLUMNS):
        values = {
            0: lambda: random.normal(size=count),
            1: lambda: random.lognormal(size=count),
            2: lambda: np.maximum(random.normal(size=count), 0),
            3: lambda: random.integers(0, 8, count),
            4: lambda: TEXTS[random.zipf(1.5, count).clip(max=200)],
        }[number % 5]()
        columns[f"c{number}"] = pa.array(values, mask=random.random(count) < 0.05)
    return columns


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_configured() -> None:
    random = np.random.default_rng(0)
    results = [judge(1, ROWS, ("r", rows(random)), rows(random), MonitorConfig()) for _ in range(200)]
    alarms = sum(any(column.p_value < 0.05 for column in result.columns) for result in results)
    # At level 0.05, 21 or more alarms in 200 trials have a probability below 0.1 %.
    assert alarms <= 20
    assert sum(bool(result.findings) for result in results) <= 2


@pytest.mark.parametrize(("shift", "detected"), [(0.0, False), (0.05, False), (1.0, True)])
def test_shift_of_known_size_is_only_found_in_its_column(shift: float, detected: bool) -> None:
    random = np.random.default_rng(1)
    reference, sample = rows(random), rows(random)
    sample["c0"] = pa.array(np.asarray(sample["c0"].fill_null(0.0)) + shift)
    findings = judge(1, ROWS, ("r", reference), sample, MonitorConfig()).findings
    assert findings is not None
    assert {finding.column for finding in findings} == ({"c0"} if detected else set())


def test_new_values_missing_values_and_configured_bounds_are_found() -> None:
    random = np.random.default_rng(2)
    reference, sample = rows(random), rows(random)
    texts = reference["c4"].to_pylist()
    sample["c4"] = pa.array([b"new" if row % 16 == 0 else text for row, text in enumerate(texts)])
    sample["c3"] = pa.array([None if row % 4 == 0 else value for row, value in enumerate(sample["c3"].to_pylist())])
    sample["c1"] = pc.multiply(sample["c1"], 1.3)
    result = judge(1, ROWS, ("r", reference), sample, MonitorConfig(bounds={"c1": 0.005}))
    assert {(finding.column, finding.what) for finding in result.findings or ()} == {
        ("c4", "new values"),
        ("c3", "missing"),
        ("c1", "distance"),
    }


def test_too_few_rows_are_compared_without_findings() -> None:
    random = np.random.default_rng(3)
    result = judge(1, 100, ("r", rows(random)), rows(random, 100), MonitorConfig(least_rows=101))
    assert result.findings is None
    assert len(result.columns) == COLUMNS


def test_predicted_classes_are_compared_and_embeddings_skipped() -> None:
    def outputs(classes: list[str]) -> dict[str, pa.Array]:
        several = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * len(classes))), 2)
        return {"prediction": pa.array(classes), "embedding": several}

    (compared,) = compare(outputs(["a"] * 300 + ["b"] * 100), outputs(["a"] * 100 + ["c"] * 300))
    assert (compared.name, compared.distance, compared.new) == ("prediction", 0.75, 0.75)
    assert compared.p_value < 1e-9
