"""Rows are assigned to splits by their content alone."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.ingest import split_assignment
from components.ingest.config import SplitConfig
from components.ingest.split_assignment import LEFT_OUT, Splitter, TimeHistogram, UnassignedRow

pytestmark = pytest.mark.both_lines


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def config(**section: Any) -> SplitConfig:
    return SplitConfig.model_validate(section)


def make_rows(rows: int = 1000) -> pa.RecordBatch:
    random = np.random.default_rng(7)
    values = random.integers(-5, 5, rows)
    return batch(
        i=pa.array(values, pa.int64(), mask=values == 0),
        f=pa.array(random.normal(size=rows).astype(np.float32), mask=values == 1),
        s=pa.array([str(value).encode() for value in random.integers(0, 99, rows)], pa.binary(), mask=values == 2),
    )


def hashes(*arrays: pa.Array) -> list[int]:
    """Return the hashes of all values. Every array is a column with the same name."""
    result: list[int] = []
    for array in arrays:
        result += split_assignment.hash_rows(batch(a=array)).tolist()
    return result


def test_hashes_have_fixed_values() -> None:
    # These hashes must never change, because upgrades of libraries must not move rows to other splits.
    rows = batch(
        i=pa.array([1, -1, None], pa.int64()),
        f=pa.array([0.5, None, 1e30], pa.float32()),
        s=pa.array([b"x", b"", "é".encode()], pa.binary()),
        t=pa.array([[b"x"], [], [b"y", b"z", b"z"]], pa.list_(pa.binary())),
    )
    assert split_assignment.hash_rows(rows).tolist() == GOLDEN


GOLDEN = [4480598596975618635, 9813499470165475725, 6199808872709221935]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=6), st.permutations(["i", "f", "s"]))
def test_hashes_do_not_depend_on_blocks_or_the_order_of_columns(cuts: list[int], order: list[str]) -> None:
    full = make_rows()
    bounds = sorted({0, *cuts, 1000})
    reordered = batch(**{name: full.column(full.schema.get_field_index(name)) for name in order})
    parts = [split_assignment.hash_rows(reordered.slice(low, high - low)) for low, high in itertools.pairwise(bounds)]
    np.testing.assert_array_equal(np.concatenate(parts), split_assignment.hash_rows(full))


def test_splits_get_their_shares_of_the_rows() -> None:
    rows = batch(i=pa.array(np.arange(100_000)))
    counts = np.bincount(split_assignment.assign_by_hash(rows, [7, 2, 1]))
    np.testing.assert_allclose(counts, [70_000, 20_000, 10_000], rtol=0.02, atol=1)


@pytest.mark.parametrize("column", ["i", "f", "s"])
def test_split_hash_uses_all_columns_by_default_and_named_ones_if_set(column: str) -> None:
    full = make_rows()
    names = [name for name in ("i", "f", "s") if name != column]
    fewer = batch(**{name: full.column(full.schema.get_field_index(name)) for name in names})
    assert (split_assignment.hash_rows(full) != split_assignment.hash_rows(fewer)).mean() > 0.7
    chosen = split_assignment.hash_rows(full, by=names)
    # If all named columns are missing in a row, all columns are hashed.
    present = np.any([np.asarray(column_values.is_valid()) for column_values in fewer.columns], axis=0)
    np.testing.assert_array_equal(chosen[present], split_assignment.hash_rows(fewer)[present])
    np.testing.assert_array_equal(chosen[~present], split_assignment.hash_rows(full)[~present])


def test_hash_depends_on_the_column_of_a_value() -> None:
    rows = batch(a=pa.array([1, 2]), b=pa.array([2, 1]))
    assert len(set(split_assignment.hash_rows(rows).tolist())) == 2


def test_equal_values_of_different_types_have_equal_hashes() -> None:
    nans = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    for values in (np.array([0.0, -0.0], np.float32), nans):
        assert len(set(hashes(pa.array(values)))) == 1
    # Whether a value is an integer or a float, or a list, depends on other rows or on the file format.
    full = pa.array([3, None, -7, 2**24])
    single = full.cast(pa.float32())
    listed = pa.array([[3], None, [-7], [2**24]])
    assert hashes(full) == hashes(single) == hashes(listed) == hashes(listed.cast(pa.list_(pa.float32())))
    texts = pa.array([b"x", None], pa.binary())
    assert hashes(texts) == hashes(pa.array([[b"x"], None], pa.list_(pa.binary())))


def test_different_values_have_different_hashes() -> None:
    lists = [[1], [2], [1, 2], [2, 1], [1, 1], [1, 1, 1], [1, 2, 3], [3], [0], [0, 0]]
    assert len(set(hashes(pa.array(lists)))) == len(lists)
    texts = pa.array([b"", b"0", b"00", b"a", b"A", None], pa.binary())
    assert len(set(hashes(texts))) == 6
    texts = pa.array([[b""], [b"", b""], [b"x", b"y"], [b"y", b"x"], [b"xy"], [b"x"]], pa.list_(pa.binary()))
    assert len(set(hashes(texts))) == 6


def test_empty_list_hashes_like_a_missing_value() -> None:
    empty_list, missing, null = hashes(pa.array([[], None], pa.list_(pa.int64())), pa.nulls(1))
    assert empty_list == missing == null
    # An empty text is not missing.
    empty_list, missing = hashes(pa.array([b"", None], pa.binary()))
    assert empty_list != missing


def test_entirely_missing_column_does_not_change_the_hash() -> None:
    full = make_rows(10)
    columns = dict(zip(full.schema.names, full.columns, strict=True))
    for empty in (pa.nulls(10), pa.nulls(10, pa.int64()), pa.array([[]] * 10, pa.list_(pa.binary()))):
        np.testing.assert_array_equal(
            split_assignment.hash_rows(batch(**columns, n=empty)), split_assignment.hash_rows(full)
        )


def test_groups_stay_together_and_rows_without_a_group_are_divided() -> None:
    random = np.random.default_rng(1)
    users = random.integers(0, 300, 20_000)
    rows = batch(
        user=pa.array(users, mask=users < 30),
        shop=pa.array(users, mask=users < 30),
        n=pa.array(np.arange(20_000)),
    )
    splitter = Splitter(config(by="group", columns=["user", "shop"], train=2, eval=1))
    positions = splitter.assign(rows, None, ())
    for user in range(30, 300):
        assert len(set(positions[users == user])) == 1
    assert 0.5 < (positions[users >= 30] == 0).mean() < 0.8
    # Rows without a group are split individually; as a group, they would all be in one split.
    np.testing.assert_allclose((positions[users < 30] == 0).mean(), 2 / 3, atol=0.04)
    # If a part of the key is missing, the other parts identify the group.
    rows = batch(user=pa.array([1, 1, 1]), shop=pa.array([None, None, 5]), n=pa.array([1, 2, 3]))
    assert len(set(split_assignment.hash_rows(rows, ["user", "shop"])[:2].tolist())) == 1


def test_default_key_columns_are_used_unless_columns_are_configured() -> None:
    rows = batch(image=pa.array([b"x", b"x"] * 50, pa.binary()), path=pa.array(np.arange(100)))
    assert len(set(Splitter(config(train=1, eval=1), ["image"]).assign(rows, None, ()))) == 1
    assert len(set(Splitter(config(train=1, eval=1)).assign(rows, None, ()))) == 2
    assert len(set(Splitter(config(columns="path", train=1, eval=1), ["image"]).assign(rows, None, ()))) == 2


def test_split_by_files_is_used() -> None:
    splitter = Splitter(config(by="files", train="t*", eval="e*", test="x*"))
    for number, name in enumerate(("train", "eval", "test")):
        assert splitter.assign(batch(a=pa.array([1, 2])), name, ()).tolist() == [number] * 2


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([b"2019", b"2020", b"2021", b"2020"], pa.binary()), ["2019", "2020", "2021"]),
        (pa.array([2019, 2020, 2021, 2020]), ["2019", "2020", "2021"]),
        (pa.array([[2019], [2020], [2021], [2020]]), ["2019", "2020", "2021"]),
        (pa.array([0.5, 1.5, 2.5, 1.5], pa.float32()), ["0.5", "1.5", "2.5"]),
    ],
)
def test_column_can_determine_the_split(array: pa.Array, values: list[str]) -> None:
    splitter = Splitter(config(by="column", columns="a", train=values[:1], eval=values[1:2], test=values[2:]))
    assert splitter.find_unassigned(batch(a=array)) == []
    assert splitter.assign(batch(a=array), None, ()).tolist() == [0, 1, 2, 1]


def test_rows_whose_value_does_not_belong_to_a_split_are_reported() -> None:
    splitter = Splitter(config(by="column", columns="a", train=["x", "y"], eval="z"))
    block = batch(a=pa.array([b"x", b"w", None, b"z", b"\xff"], pa.binary()))
    expected = "expected a value that data.split names (x, y, z), received"
    assert splitter.find_unassigned(block) == [
        UnassignedRow(1, "a", f"{expected} 'w'"),
        UnassignedRow(2, "a", f"{expected} nothing"),
        UnassignedRow(4, "a", f"{expected} '\\\\xff'"),
    ]
    assert [unassigned.index for unassigned in splitter.find_unassigned(batch(a=pa.nulls(2)))] == [0, 1]
    assert [unassigned.index for unassigned in splitter.find_unassigned(batch(a=pa.array([[b"x", b"x"], [b"x"]])))] == [
        0
    ]


EPOCH_2020 = 1_577_836_800


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        (b"2020-01-01", EPOCH_2020 * 10**6),
        (b"2020-01-01T00:00:00", EPOCH_2020 * 10**6),
        (b" 2020-01-01 00:00:00Z ", EPOCH_2020 * 10**6),
        (b"2020-01-01T01:00:00+01:00", EPOCH_2020 * 10**6),
        (b"2020-01-01 01:00:00+0100", EPOCH_2020 * 10**6),
        (b"2020-01-01 00:00:00.5", EPOCH_2020 * 10**6 + 500_000),
        (b"2020-01-01 00:00:00.000001999Z", EPOCH_2020 * 10**6 + 1),
        (b"1577836800", EPOCH_2020 * 10**6),
        (b"1577836800.25", EPOCH_2020 * 10**6 + 250_000),
        (b"2020-01-01 02:00:00+02", EPOCH_2020 * 10**6),
        (b"2020-01-01T05:30:00 +0530", EPOCH_2020 * 10**6),
        (b"2020-01-01T00:00:00 GMT", EPOCH_2020 * 10**6),
        (b"2020-01-01 00:00 UTC", EPOCH_2020 * 10**6),
        (b"2020-1-1", EPOCH_2020 * 10**6),
        (b"2020/1/1 0:00", EPOCH_2020 * 10**6),
        (b"1850-06-15", -3_772_569_600 * 10**6),
        (b"0001-01-01", -62_135_596_800 * 10**6),
        (b"1969-12-31", -86_400 * 10**6),
        (b"-86400", -86_400 * 10**6),
        *(
            (text, None)
            for text in (
                b"",
                b"x",
                b"nan",
                b"inf",
                b"1e300",
                b"9" * 30,
                b"2020-13-01",
                b"1_577",
                b"0000-01-01",
                b"01/02/2020",
                b"\xff",
            )
        ),
    ],
)
def test_times_are_seconds_or_iso_8601(text: bytes, micros: int | None) -> None:
    for array in (pa.array([text, None], pa.binary()), pa.array([[text], []], pa.list_(pa.binary()))):
        times, valid = split_assignment.times_of(array)
        assert valid.tolist() == [micros is not None, False]
        assert times[0] == (micros or 0)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([EPOCH_2020, None, -1, 2**62]),
        pa.array([float(EPOCH_2020), None, -1.0, np.nan], pa.float32()),
        pa.array([[EPOCH_2020], [], [-1], [1, 2]]),
    ],
)
def test_numbers_are_seconds(array: pa.Array) -> None:
    times, valid = split_assignment.times_of(array)
    assert valid.tolist() == [True, False, True, False]
    assert times.tolist() == [EPOCH_2020 * 10**6, 0, -(10**6), 0]


def test_rows_without_a_time_are_reported() -> None:
    splitter = Splitter(config(by="time", columns="t", train=1, eval=1))
    assert splitter.needs_borders
    expected = "expected a time (seconds since 1970, as data.split.unit says, or ISO 8601), received"
    assert splitter.find_unassigned(batch(t=pa.array([b"2020-01-01", None, b"soon"], pa.binary()))) == [
        UnassignedRow(1, "t", f"{expected} nothing"),
        UnassignedRow(2, "t", f"{expected} 'soon'"),
    ]
    assert splitter.find_unassigned(batch(t=pa.array([1.5, np.nan], pa.float32()))) == [
        UnassignedRow(1, "t", f"{expected} nan")
    ]
    assert len(splitter.find_unassigned(batch(t=pa.nulls(3)))) == 3


def assign_by_time(times: Any, *shares: int, gap: float = 0, unit: str = "seconds") -> Any:
    section = dict(zip(("train", "eval", "test"), shares, strict=False))
    splitter = Splitter(config(by="time", columns="t", gap=gap, unit=unit, **section))
    rows = batch(t=pa.array(times))
    return splitter.assign(rows, None, splitter.times(rows).borders(shares))


@pytest.mark.extended
@pytest.mark.parametrize("shares", [(8, 2), (1, 1), (8, 1, 1), (1, 5, 4)])
@pytest.mark.parametrize("spread", ["even", "crowded"])
def test_split_by_time_reaches_its_shares_and_keeps_the_order_of_time(shares: tuple[int, ...], spread: str) -> None:
    random = np.random.default_rng(3)
    seconds = random.integers(0, 10**8, 50_000) if spread == "even" else random.exponential(10**5, 50_000).astype(int)
    positions = assign_by_time(seconds, *shares)
    np.testing.assert_allclose(np.bincount(positions) / len(positions), np.array(shares) / sum(shares), atol=0.002)
    for earlier, later in itertools.pairwise(range(len(shares))):
        assert seconds[positions == earlier].max() < seconds[positions == later].min()


def test_rows_in_the_gap_go_to_no_split() -> None:
    seconds = np.arange(1000)
    plain, positions = assign_by_time(seconds, 8, 1, 1), assign_by_time(seconds, 8, 1, 1, gap=10)
    assert np.bincount(plain).tolist() == [800, 100, 100]
    assert assign_by_time(seconds, 8, 1, 1, gap=1e300).tolist() == [0] * 800 + [LEFT_OUT] * 200
    left_out = np.flatnonzero(positions == LEFT_OUT).tolist()
    assert left_out == [*range(800, 810), *range(900, 910)]
    assigned = positions != LEFT_OUT
    np.testing.assert_array_equal(positions[assigned], plain[assigned])


@pytest.mark.parametrize(("unit", "per_day"), [("seconds", 86_400), ("milliseconds", 86_400_000), ("days", 1)])
def test_gap_has_the_same_effect_in_every_unit(unit: str, per_day: int) -> None:
    days = np.arange(18_000, 19_000)
    texts = [f"{day}".encode() for day in days.astype("M8[D]")]
    positions = assign_by_time(days * per_day, 8, 2, gap=10 * 86_400, unit=unit)
    assert np.flatnonzero(positions == LEFT_OUT).tolist() == [*range(800, 810)]
    np.testing.assert_array_equal(positions, assign_by_time(texts, 8, 2, gap=10 * 86_400))


def test_milliseconds_are_not_read_as_seconds() -> None:
    splitter = Splitter(config(by="time", columns="t", train=1, eval=1))
    times = [1_577_836_800, 1_577_836_800_000]
    for column in (pa.array(times), pa.array([b"%d" % time for time in times], pa.binary())):
        (row,) = splitter.find_unassigned(batch(t=column))
        assert row.index == 1
        assert "data.split.unit" in row.reason


def test_unit_requires_a_split_by_time() -> None:
    with pytest.raises(ValueError, match="unit needs by: time or by: within_time, received by: hash"):
        config(by="hash", unit="days", train=1, eval=1)


def test_rows_of_equal_time_stay_together_and_outer_splits_are_not_empty() -> None:
    assert assign_by_time([5] * 9 + [6], 1, 1).tolist() == [0] * 9 + [1]
    assert assign_by_time([5] + [6] * 9, 1, 1).tolist() == [0] + [1] * 9
    assert assign_by_time([5, 6, 7], 98, 1, 1).tolist()[::2] == [0, 2]
    # Equal times are in one split. The empty split is reported later, when rows are counted.
    assert assign_by_time([5, 5], 1, 1).tolist() == [0, 0]
    assert TimeHistogram().borders([1, 1]) == ()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_borders_do_not_depend_on_the_order_of_merging(data: st.DataObject) -> None:
    scale = data.draw(st.sampled_from([1, 10**6, 10**9]))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    times = random.integers(-5000, 9000, data.draw(st.sampled_from([50, 9000]))) * scale
    cuts = sorted(data.draw(st.lists(st.integers(0, len(times)), max_size=5)))
    parts = [TimeHistogram.from_times(part) for part in np.split(times, cuts)]
    full = TimeHistogram.from_times(times)
    merged = functools.reduce(TimeHistogram.merge, data.draw(st.permutations(parts)))
    assert merged == full
    assert functools.reduce(TimeHistogram.merge, data.draw(st.permutations([*parts, TimeHistogram()]))) == full
    assert len(full.counts) <= 4096
    assert sum(full.counts.values()) == len(times)
    # The histogram must not be coarser than the limit of bins requires.
    assert full.shift == 0 or len({time >> (full.shift - 1) for time in times.tolist()}) > 4096
