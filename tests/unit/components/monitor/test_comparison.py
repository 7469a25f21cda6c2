"""Tests of comparing distributions: closed forms, false alarms on equal distributions, and changes of known size."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats

from components.data import column_comparison
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
    # Three tests. Holm's correction multiplies the smallest p-value by 3, the next by 2.
    uncorrected = {
        "new values": find_new_values_p_value(10, [70, 60, 60, 10], 100),
        "distance": float(stats.chi2_contingency(table, correction=False)[1]),
    }
    assert uncorrected["new values"] < uncorrected["distance"]
    assert compared.p_values["missing"] == 1.0
    assert math.log(compared.p_values["new values"]) == near.approx(math.log(3 * uncorrected["new values"]))
    assert math.log(compared.p_values["distance"]) == near.approx(math.log(2 * uncorrected["distance"]))
    assert compared.p_value == compared.p_values["new values"]


def find_new_values_p_value(new: int, counts: list[int], sample_size: int) -> float:
    """Return the p-value of the number of new values, from the hypergeometric distribution of every pair of texts."""
    total = sum(counts)

    def all_in_sample(values: int) -> float:
        return float(stats.hypergeom(total, sample_size, values).pmf(values))

    pairs = [(first, second) for first in range(len(counts)) for second in range(len(counts))]
    mean = sum(count * all_in_sample(count) for count in counts)
    square = sum(
        counts[first] * counts[second] * all_in_sample(counts[first] + (counts[second] if first != second else 0))
        for first, second in pairs
    )
    return float(stats.norm.sf((new - mean) / max(1.0, math.sqrt(max(square - mean**2, 0.0)))))


def test_p_value_of_new_values_equals_all_divisions() -> None:
    texts = [0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5]
    counts = np.bincount(texts)
    numbers = [
        sum(texts[at] not in {texts[row] for row in range(12) if row not in division} for at in division)
        for division in itertools.combinations(range(12), 6)
    ]
    mean, deviation = np.mean(numbers), np.std(numbers)
    assert deviation > 1
    for new in range(7):
        expected = float(stats.norm.sf((new - mean) / deviation))
        assert column_comparison._test_new_values(counts, new, 6) == pytest.approx(expected, abs=1e-9)


def test_p_value_of_the_range_bounds_all_orders() -> None:
    outside = [
        min(set(range(8)) - {*sample}) + 7 - max(set(range(8)) - {*sample})
        for sample in itertools.combinations(range(8), 4)
    ]
    for number in range(1, 5):
        exact = float(np.mean(np.array(outside) >= number))
        assert exact <= column_comparison._test_range(number, 4, 4) + 1e-12
        assert column_comparison._test_range(number, 4, 4) <= 2 * exact
    # All four values are outside in 5 of 70 orders, which are disjoint events.
    assert column_comparison._test_range(4, 4, 4) == pytest.approx(5 / 70, abs=1e-12)


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
    sample["c4"] = pa.array([b"new" if row % 11 == 0 else text for row, text in enumerate(texts)])
    sample["c3"] = pa.array([None if row % 4 == 0 else value for row, value in enumerate(sample["c3"].to_pylist())])
    sample["c1"] = pc.multiply(sample["c1"], 1.3)
    result = judge(1, ROWS, ("r", reference), sample, MonitorConfig(bounds={"c1": 0.005}))
    assert {(finding.column, finding.what) for finding in result.findings or ()} == {
        ("c4", "new values"),
        ("c3", "missing"),
        ("c1", "distance"),
    }


def find_drift(reference: object, sample: object, **bounds: float) -> dict[tuple[str, str], float]:
    """Return the findings on one column: (column, figure) → value."""
    columns = ({"x": pa.array(values)} for values in (reference, sample))
    judgement = judge(1, 3_000, ("r", next(columns)), next(columns), MonitorConfig(**bounds))
    return {(finding.column, finding.what): finding.value for finding in judgement.findings or ()}


def test_extreme_values_are_found_although_the_deciles_hardly_change() -> None:
    random = np.random.default_rng(4)
    reference, sample = random.lognormal(size=10_000), random.lognormal(size=3_000)
    assert find_drift(reference, sample) == {}
    # One value in a hundred arrives in another unit.
    sample[::100] *= 1_000
    found = find_drift(reference, sample)
    assert found == {
        ("x", "out of range"): pytest.approx(
            ((sample < reference.min()) | (sample > reference.max())).mean(), abs=1e-12
        )
    }
    assert 0.008 < found["x", "out of range"] < 0.012


def test_growing_tails_are_found_inside_the_range() -> None:
    random = np.random.default_rng(5)
    # A single outlier makes the range of the training rows useless.
    reference, sample = np.append(random.normal(size=9_999), 1e9), random.normal(size=3_000)
    assert find_drift(reference, sample) == {}
    sample[::25] = np.where(random.random(120) < 0.5, 4.0, -3.5)
    low, high = np.quantile(reference, [0.01, 0.99])
    before, now = (((values < low) | (values > high)).mean() for values in (reference, sample))
    assert find_drift(reference, sample) == {("x", "tails"): pytest.approx(now - before, abs=1e-12)}
    assert 0.03 < now - before < 0.05
    assert find_drift(reference, sample, tails=0.06) == {}


def test_ids_that_are_unique_to_each_row_are_no_new_values() -> None:
    ids = [f"i{number}" for number in range(13_000)]
    assert find_drift(ids[:10_000], ids[10_000:]) == {}


def test_unknown_users_are_found_beyond_the_expected_share() -> None:
    random = np.random.default_rng(6)
    reference, sample = ([f"u{user}" for user in random.integers(1_250, size=rows)] for rows in (10_000, 3_000))
    assert find_drift(reference, sample) == {}
    # A fifth of the rows comes from 75 users who were never seen. None of them is frequent enough for a bin.
    changed = [f"new{row // 5 % 75}" if row % 5 == 0 else user for row, user in enumerate(sample)]
    counts = Counter(reference)
    excess = np.mean([user not in counts for user in changed]) - [*counts.values()].count(1) / 10_000
    assert find_drift(reference, changed) == {("x", "new values"): pytest.approx(excess, abs=1e-12)}
    assert excess == pytest.approx(0.2, abs=0.01)
    # Where many users were seen only once, many unseen users are to be expected.
    reference, sample = ([f"u{user}" for user in random.integers(10_000, size=rows)] for rows in (10_000, 3_000))
    counts = Counter(reference)
    assert np.mean([user not in counts for user in sample]) > 0.3
    assert find_drift(reference, sample) == {}


def test_column_that_no_request_contains_has_drifted() -> None:
    reference = {"a": pa.array([1.0] * 600), "b": pa.array([b"x"] * 600)}
    judgement = judge(1, 600, ("r", reference), {"a": reference["a"]}, MonitorConfig())
    assert [(finding.column, finding.what, finding.value) for finding in judgement.findings or ()] == [
        ("b", "missing", 1.0)
    ]


@pytest.mark.parametrize(("before", "now", "detected"), [(0.02, 0.02, False), (0.02, 0.11, False), (0.02, 0.13, True)])
def test_shift_of_missing_values_reaches_the_bound(before: float, now: float, detected: bool) -> None:
    values = np.random.default_rng(7).normal(size=10_000)
    reference, sample = (
        pd.Series(values[:size]).mask(np.arange(size) < share * size)
        for size, share in ((10_000, before), (3_000, now))
    )
    expected = sample.isna().mean() - reference.isna().mean()
    found = find_drift(reference.to_numpy(), sample.to_numpy())
    assert found == ({("x", "missing"): pytest.approx(expected, abs=1e-12)} if detected else {})


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
