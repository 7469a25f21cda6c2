"""Metrics of groups equal scikit-learn's per group, with ties, weights and slices, however the rows are divided."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow_model_analysis as tfma
from sklearn import metrics

from components.base.errors import InputError
from components.data.examples import to_lists
from components.evaluator import grouped_rows, intervals
from components.evaluator.binned_sums import EMPTY, Slices
from components.evaluator.grouped_rows import GroupedRows
from components.evaluator.ranking import Measured, Ranking
from components.evaluator.ranking_metrics import GroupedCombiner
from tests.support.data.tolerances import float64_sum

pytestmark = pytest.mark.both_lines

Floats = npt.NDArray[np.float64]
ROWS, USERS, K = 600, 90, 3
RANDOM = np.random.default_rng(8)
USER = RANDOM.integers(0, USERS, ROWS)
LABEL = (RANDOM.random(ROWS) < 0.3).astype(np.int64)
# The scores are rounded so that many rows are tied.
SCORE = np.round(RANDOM.random(ROWS) + 0.2 * LABEL, 1).astype(np.float32)
WEIGHT = RANDOM.integers(1, 4, ROWS).astype(float)
PLACE = np.arange(ROWS) % 3
NEAR = float64_sum(ROWS)
"""Tolerance of sums over the rows or over the groups."""


def select_rows(at: Any = slice(None), weights: Floats | None = None, users: Any = USER) -> GroupedRows:
    """Return the rows at some positions, each in the overall slice and in the slice of its place."""
    count = len(USER[at])
    batch = to_lists(pa.RecordBatch.from_arrays([pa.array(users[at])], ["user"]))
    keys = [(), *((("place", place),) for place in range(3))]
    slices = Slices(keys, np.tile(np.arange(count), 2), np.append(np.zeros(count, np.int64), PLACE[at] + 1))
    row_weights = None if weights is None else weights[at]
    return grouped_rows.select_grouped(batch, "user", LABEL[at], {"": SCORE[at]}, row_weights, slices)


def compute_by_group(metric: Callable[[Floats, Floats, Floats], float | None], place: int | None = None) -> list[float]:
    """Return a metric of every group for which it is defined. It is called with labels, scores and weights."""
    values = []
    for user in range(USERS):
        rows = (user == USER) & ((place == PLACE) if place is not None else True)
        value = metric(LABEL[rows].astype(float), SCORE[rows].astype(float), WEIGHT[rows]) if rows.any() else None
        if value is not None:
            values.append(value)
    return values


def average_over_orders(value: Callable[[Floats], float]) -> Callable[[Floats, Floats, Floats], float | None]:
    """Return the mean of a value over all orders of tied rows; None if no row has label 1."""

    def mean(labels: Floats, scores: Floats, _: Floats) -> float | None:
        if not labels.any():
            return None
        blocks = [labels[scores == score] for score in np.unique(scores)[::-1]]
        orders = itertools.product(*(set(itertools.permutations(block.tolist())) for block in blocks))
        return float(np.mean([value(np.concatenate(labels_in_order)) for labels_in_order in orders]))

    return mean


def area(labels: Floats, scores: Floats, weights: Floats | None) -> float | None:
    if len(set(labels)) < 2:
        return None
    return float(metrics.roc_auc_score(labels, scores, sample_weight=weights))


def gain(labels: Floats, scores: Floats, _: Floats) -> float | None:
    if not labels.any():
        return None
    # scikit-learn rejects a group of a single row.
    return float(metrics.ndcg_score([labels], [scores], k=K)) if len(labels) > 1 else 1.0


def reciprocal(labels: Floats, most: int) -> float:
    rank = int(np.flatnonzero(labels)[0]) + 1
    return 1 / rank if rank <= most else 0.0


def values_of_slice(ranking: Ranking, measured: Measured, number: int) -> list[float]:
    values = measured[0][ranking.slices == number]
    return sorted(values[~np.isnan(values)].tolist())


CASES: dict[str, tuple[Callable[[Ranking], Measured], Callable[[Floats, Floats, Floats], float | None]]] = {
    "area": (Ranking.measure_auc, lambda labels, scores, _: area(labels, scores, None)),
    "gain": (lambda ranking: ranking.measure_gain(K), gain),
    "recall": (
        lambda ranking: ranking.measure_recall(K),
        average_over_orders(lambda ordered: ordered[:K].sum() / ordered.sum()),
    ),
    "precision": (
        lambda ranking: ranking.measure_precision(K),
        average_over_orders(lambda ordered: ordered[:K].sum() / K),
    ),
    "rank": (
        lambda ranking: ranking.measure_reciprocal_rank(None),
        average_over_orders(lambda ordered: reciprocal(ordered, ROWS)),
    ),
    "rank at": (
        lambda ranking: ranking.measure_reciprocal_rank(K),
        average_over_orders(lambda ordered: reciprocal(ordered, K)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_of_groups_are_those_of_the_definition_averaged_over_ties(name: str) -> None:
    measure, reference = CASES[name]
    ranking = Ranking(select_rows(), "")
    for number, place in enumerate([None, 0, 1, 2]):
        expected = sorted(compute_by_group(reference, place))
        assert len(expected) > 20
        assert values_of_slice(ranking, measure(ranking), number) == pytest.approx(expected, abs=1e-9)


def test_area_counts_rows_by_their_weights() -> None:
    ranking = Ranking(select_rows(weights=WEIGHT), "")
    values, weights = ranking.measure_auc()
    assert values_of_slice(ranking, (values, weights), 0) == NEAR.approx(sorted(compute_by_group(area)))
    assert weights[ranking.slices == 0].sum() == WEIGHT.sum()


def test_divided_rows_have_the_same_groups() -> None:
    parts: dict[int, list[GroupedRows]] = {}
    for start in range(0, ROWS, 70):
        for part, rows in grouped_rows.divide(select_rows(slice(start, start + 70), WEIGHT)):
            parts.setdefault(part, []).append(rows)
    values_by_slice: dict[Any, list[float]] = {}
    for part_rows in parts.values():
        rows = grouped_rows.concatenate(part_rows)
        ranking = Ranking(rows, "")
        values, _ = ranking.measure_auc()
        for number, value in zip(ranking.slices.tolist(), values.tolist(), strict=True):
            values_by_slice.setdefault(rows.slices.keys[number], []).append(value)
    whole = select_rows(weights=WEIGHT)
    ranking = Ranking(whole, "")
    for number, key in enumerate(whole.slices.keys):
        NEAR.assert_close(np.sort(values_by_slice[key]), np.sort(ranking.measure_auc()[0][ranking.slices == number]))


def test_rows_without_a_group_are_ignored_and_groups_may_be_texts() -> None:
    texts = np.array([None if user < 45 else f"user {user}".encode() for user in USER], object)
    ranking, numbered = Ranking(select_rows(users=texts), ""), Ranking(select_rows(np.flatnonzero(USER >= 45)), "")
    for number in range(4):
        expected = values_of_slice(numbered, numbered.measure_auc(), number)
        assert values_of_slice(ranking, ranking.measure_auc(), number) == NEAR.approx(expected)
    assert not len(select_rows(users=np.full(ROWS, None)).groups)


def test_row_with_several_groups_is_rejected() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([[1], [2, 3]], pa.large_list(pa.int64()))], ["user"])
    slices = Slices([()], np.arange(2), np.zeros(2, np.int64))
    with pytest.raises(InputError, match="expected one value of 'user' in each row, received a row with 2"):
        grouped_rows.select_grouped(batch, "user", np.zeros(2), {"": np.zeros(2)}, None, slices)


def test_ties_of_many_rows_are_exact() -> None:
    count = 5000
    slices = Slices([()], np.arange(count), np.zeros(count, np.int64))
    labels = (np.arange(count) < 10).astype(np.float32)
    ranking = Ranking(GroupedRows(np.zeros(count, np.uint64), labels, None, {"": np.zeros(count)}, slices), "")
    assert ranking.measure_auc()[0] == [0.5]
    assert ranking.measure_recall(100)[0] == float64_sum(count).approx([100 / count])
    # Expected reciprocal rank of the first of 10 hits among 5,000 rows in random order: the sum of P(rank = j) / j. The
    # ratio of successive probabilities avoids binomial coefficients.
    probability, expected = 10 / count, 0.0
    for j in range(1, count - 8):
        expected += probability / j
        probability *= (count - j - 9) / (count - j)
    assert ranking.measure_reciprocal_rank(None)[0] == pytest.approx([expected], rel=1e-7, abs=1e-10)


def test_standard_error_of_the_mean_equals_the_bootstrap_over_groups() -> None:
    rows = select_rows(weights=WEIGHT)
    ranking, key = Ranking(rows, ""), tfma.metrics.MetricKey("gauc")
    combiner = GroupedCombiner(key, Ranking.measure_auc)
    table = combiner.table(ranking, rows.slices)
    for number in range(4):
        mean, error = combiner.result(table.select_slice(number))[key]
        values, weights = (column[ranking.slices == number] for column in ranking.measure_auc())
        values, weights = values[~np.isnan(values)], weights[~np.isnan(values)]
        assert mean == NEAR.approx(np.average(values, weights=weights))
        drawn = np.random.default_rng(0).integers(0, len(values), (2000, len(values)))
        means = (values[drawn] * weights[drawn]).sum(axis=1) / weights[drawn].sum(axis=1)
        # The formula linearizes the ratio, which is approximate in the slices with only about 30 groups.
        assert error == pytest.approx(means.std(), rel=0.05, abs=1e-4)
    assert np.isnan(combiner.result(EMPTY.select_slice(0))[key].mean)


def test_interval_covers_the_mean_of_all_groups() -> None:
    random, inside, draws, groups = np.random.default_rng(2), 0, 400, 60
    for _ in range(draws):
        # The value depends on the weight, as it does for users who see more items.
        weights = random.integers(2, 40, groups).astype(float)
        values = np.clip(0.5 + 0.004 * weights + random.normal(0, 0.1, groups), 0, 1)
        mean = float(np.average(values, weights=weights))
        error = float(np.sqrt(((weights * (values - mean)) ** 2).sum() * groups / (groups - 1)) / weights.sum())
        interval = intervals.compute_group_mean_interval(mean, error)
        assert interval is not None
        sizes = np.arange(2, 40)
        inside += interval[0] <= float((sizes * (0.5 + 0.004 * sizes)).sum() / sizes.sum()) <= interval[1]
    assert 0.91 <= inside / draws <= 0.98
    assert intervals.compute_group_mean_interval(1.0, 0.0) is None


@pytest.mark.parametrize("most", [1, 4, 10])
def test_item_metrics_of_a_user_equal_those_of_a_dense_matrix(most: int) -> None:
    users, items, in_index = 40, 25, 20
    random = np.random.default_rng(3)
    draw = random.random((users, items))
    seen, relevant, shown = draw < 0.2, draw > 0.6, (draw > 0.3) & (draw < 0.4)
    # A user without interactions is ignored.
    relevant[0] = False
    scores = np.where(seen, -np.inf, random.normal(size=(users, items)))[:, :in_index]
    ranks = np.zeros((users, items), np.int64)
    ranks[:, :in_index] = (scores[:, None, :] >= scores[:, :, None]).sum(axis=2)
    user, item = np.nonzero(relevant | shown)
    order = random.permutation(len(user))
    user, item = user[order], item[order]
    batch = to_lists(pa.RecordBatch.from_arrays([pa.array(user)], ["user"]))
    slices = Slices([()], np.arange(len(user)), np.zeros(len(user), np.int64))
    label = relevant[user, item].astype(np.int64)
    ranking = Ranking(grouped_rows.select_grouped(batch, "user", label, {"": ranks[user, item]}, None, slices), "")

    counts = relevant[1:].sum(axis=1)
    hits = np.take_along_axis(relevant, np.argsort(-scores, axis=1)[:, :most], axis=1)[1:]
    discounts = 1 / np.log2(np.arange(2, most + 2))
    ideal = np.cumsum(discounts)[np.minimum(counts, most) - 1]
    assert counts.min() <= 4 < 10 < counts.max()
    recall, gain = hits.sum(axis=1) / counts, (hits * discounts).sum(axis=1) / ideal
    for measured, expected in ((ranking.measure_item_recall(most), recall), (ranking.measure_item_gain(most), gain)):
        assert values_of_slice(ranking, measured, 0) == NEAR.approx(sorted(expected))


def test_interactions_with_equal_ranks_take_successive_places() -> None:
    # This happens if an item occurs twice, or if two queries of the user both rank their item first.
    slices = Slices([()], np.arange(3), np.zeros(3, np.int64))
    ranks = np.array([1, 1, 2])
    batch = to_lists(pa.RecordBatch.from_arrays([pa.array(["a", "a", "a"])], ["user"]))
    ranking = Ranking(grouped_rows.select_grouped(batch, "user", np.ones(3, np.int64), {"": ranks}, None, slices), "")
    assert ranking.measure_item_gain(10)[0].tolist() == [1.0]
    assert ranking.measure_item_recall(1)[0] == NEAR.approx([2 / 3])
