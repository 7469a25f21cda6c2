"""Tests that random numbers depend only on seed, name and key, and have the right distribution."""

from __future__ import annotations

import numpy as np
import pytest

from data.draws import normal, uniform

KEYS = np.arange(100_000, dtype=np.uint64)


@pytest.mark.parametrize("draw", [uniform, normal])
def test_slice_equals_the_slice_of_the_whole(draw):
    whole = draw(7, "price", KEYS)
    np.testing.assert_array_equal(draw(7, "price", KEYS[30_001:30_017]), whole[30_001:30_017])


@pytest.mark.parametrize("draw", [uniform, normal])
def test_another_seed_or_name_gives_uncorrelated_numbers(draw):
    base = draw(0, "price", KEYS)
    for numbers in (draw(1, "price", KEYS), draw(0, "hour", KEYS), draw(-1, "price", KEYS), draw(2**40, "price", KEYS)):
        assert abs(np.corrcoef(base, numbers)[0, 1]) < 0.015
        assert not np.any(base[:100] == numbers[:100])


def test_numbers_of_neighbouring_keys_are_uncorrelated():
    numbers = normal(0, "price", KEYS)
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.015


def test_uniform_numbers_fill_the_unit_interval_evenly():
    numbers = uniform(3, "x", KEYS)
    counts = np.histogram(numbers, bins=50, range=(0, 1))[0]
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert ((counts - 2000) ** 2 / 2000).sum() < 85  # 99.9 % quantile of chi-square, 49 degrees of freedom


def test_normal_numbers_have_the_moments_and_tails_of_a_standard_normal():
    numbers = normal(3, "x", KEYS)
    assert np.isfinite(numbers).all()
    assert numbers.mean() == pytest.approx(0, abs=0.015)
    assert numbers.std() == pytest.approx(1, abs=0.01)
    assert (numbers > 1.6449).mean() == pytest.approx(0.05, abs=0.003)
    assert (numbers < -2.3263).mean() == pytest.approx(0.01, abs=0.0015)
