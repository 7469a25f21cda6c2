"""Tests of choosing the validation part: stratified rows, whole groups or the newest rows, equal in every process."""

from __future__ import annotations

import numpy as np
import pytest

from components.features import feature_names
from components.trainer import validation_part
from components.trainer.validation_part import ValidationPart

ROWS = 1000


def test_rows_are_stratified_by_the_label() -> None:
    labels = np.repeat([0, 1], [980, 20])
    mask = ValidationPart(0.15, seed=1).mask(labels, 0)
    assert mask.sum() in (149, 150, 151)
    assert labels[mask].sum() == 3
    assert not np.array_equal(np.flatnonzero(mask), np.arange(mask.sum()))


def test_numeric_labels_are_stratified() -> None:
    labels = np.random.default_rng(0).lognormal(0, 2, ROWS).astype(np.float32)
    parts = [labels[ValidationPart(0.1, seed).mask(labels, 0)] for seed in range(20)]
    # In 100 random rows, the rank of the median would have a standard deviation of 50.
    ranks = [abs(int((labels < np.median(part)).sum()) - ROWS // 2) for part in parts]
    assert max(ranks) <= 15


def test_groups_are_not_divided() -> None:
    groups = np.random.default_rng(0).integers(1, 1 << 62, 300)[np.arange(ROWS) % 300]
    masks = [ValidationPart(0.2, 1, "group").mask(groups[start : start + 100], start) for start in range(0, ROWS, 100)]
    mask = np.concatenate(masks)
    assert 0.1 < mask.mean() < 0.3
    assert not {*groups[mask]} & {*groups[~mask]}


def test_rows_without_a_group_are_assigned_separately() -> None:
    mask = ValidationPart(0.2, 1, "group").mask(np.full(ROWS, feature_names.NO_ROW_KEY), 0)
    assert 0.15 < mask.mean() < 0.25


def test_newest_rows_are_held_out_without_dividing_equal_times() -> None:
    times = np.random.default_rng(0).permutation(np.arange(ROWS) // 7)
    part = ValidationPart.of([times[:300], times[300:]], 0.2, 1, "time")
    mask = part.mask(times, 0)
    assert times[mask].min() > times[~mask].max()
    assert mask.sum() == pytest.approx(200, abs=7)


def test_rows_are_chosen_at_random_if_all_have_the_same_time(caplog: pytest.LogCaptureFixture) -> None:
    part = ValidationPart.of([np.full(ROWS, 5)], 0.2, 1, "time")
    assert part == ValidationPart(0.2, 1, "row")
    assert "nearly all rows have the same time" in caplog.text


@pytest.mark.parametrize("by", ["row", "group", "time"])
def test_number_of_held_out_rows_is_bounded_for_large_splits(by: validation_part.By) -> None:
    keys = np.arange(1_000_000)
    part = ValidationPart.of([keys], 0.5, 1, by)
    assert part.mask(keys, 0).sum() == pytest.approx(100_000, abs=2_000)


@pytest.mark.parametrize("by", ["row", "group"])
def test_choice_depends_only_on_the_seed(by: validation_part.By) -> None:
    keys = np.arange(1, ROWS + 1) << 40
    masks = [ValidationPart(0.2, seed, by).mask(keys, 3) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert (masks[0] != masks[2]).any()


def test_folds_are_stratified_and_of_equal_size() -> None:
    labels = np.repeat([0, 1], [970, 30])
    numbers = ValidationPart(0.15, 1, folds=5).numbers(labels, 0)
    np.testing.assert_array_equal(np.bincount(numbers), [200] * 5)
    np.testing.assert_array_equal(np.bincount(numbers[labels == 1]), [6] * 5)


def test_folds_do_not_divide_groups() -> None:
    groups = np.random.default_rng(0).integers(1, 1 << 62, 300)[np.arange(ROWS) % 300]
    part = ValidationPart(0.15, 1, "group", folds=4)
    numbers = np.concatenate([part.numbers(groups[start : start + 100], start) for start in range(0, ROWS, 100)])
    assert np.bincount(numbers).min() > ROWS / 8
    assert len({*zip(groups, numbers, strict=True)}) == 300
    folds_without_groups = part.numbers(np.full(ROWS, feature_names.NO_ROW_KEY), 0)
    assert np.bincount(folds_without_groups).min() > ROWS / 5


def test_folds_of_networks_are_ignored_by_time() -> None:
    assert ValidationPart.of([np.arange(ROWS)], 0.2, 1, "time", folds=5) == ValidationPart(0.2, 1, "time", (800,))
    assert ValidationPart.of([], 0.2, 1, "row", folds=5) == ValidationPart(0.2, 1, folds=5)


def test_forecasts_of_labels_after_the_first_held_out_origin_are_not_used() -> None:
    origins = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 10))
    keys = np.stack([origins, origins + np.tile(np.arange(1, 11), 100)], axis=1)
    part = ValidationPart.of([keys[:300], keys[300:]], 0.2, 1, "origin", folds=5)
    numbers = part.numbers(keys, 0)
    assert part.folds == 1
    np.testing.assert_array_equal(numbers == 0, origins >= 80)
    np.testing.assert_array_equal(numbers == -1, keys[:, 1] <= 80)
    np.testing.assert_array_equal(part.mask(keys, 0, inside=False), keys[:, 1] <= 80)
    assert set(numbers) == {0, -1, validation_part.NOT_USED}


@pytest.mark.parametrize("by", ["time", "origin"])
def test_folds_with_rolling_origins_are_periods_after_their_training_rows(by: validation_part.By) -> None:
    random = np.random.default_rng(0)
    times = random.permutation(np.repeat(np.arange(100), 10))
    ends = times + np.tile(np.arange(1, 11), 100)
    keys = times if by == "time" else np.stack([times, ends], axis=1)
    part = ValidationPart.of([keys[:300], keys[300:]], 0.1, 1, by, folds=3, can_roll=True)
    numbers = part.numbers(keys, 0)
    assert (part.folds, part.is_rolling) == (3, True)
    np.testing.assert_array_equal(numbers, np.clip(times // 10 - 7, -1, 2))
    for fold, start in enumerate((70, 80, 90)):
        is_known = times < start if by == "time" else (times < start) & (ends <= start)
        np.testing.assert_array_equal(part.mask_known(keys, fold), is_known)
    np.testing.assert_array_equal(part.mask(keys, 0), times >= 70)


def test_folds_with_rolling_origins_contain_at_most_half_of_the_rows() -> None:
    part = ValidationPart.of([np.arange(ROWS)], 0.4, 1, "time", folds=5, can_roll=True)
    assert part.borders == (500, 600, 700, 800, 900)
    assert ValidationPart.of([np.repeat([1, 2], 500)], 0.1, 1, "time", folds=5, can_roll=True).borders == (2,)
